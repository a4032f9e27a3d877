//! etcd and nats-server on loopback ports in a temporary directory, and hosts that only note.

use etcd_client::{Permission, PermissionType};
use overbank::hash::mix;
use overbank_cluster::etcd::State;
use overbank_cluster::message::{Answer, Counts, Refusal, Request};
use overbank_cluster::node::{Change, Entry, Shown};
use overbank_cluster::table::{Dense, DenseReader};
use overbank_cluster::{Key, Micros, Node, NodeId, Partition, SessionId, Settings, Tag};
use overbank_stores::{
    Driver, End, EtcdAccess, Handle, Host, Joined, NatsAccess, Options, StoresError, join,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const PARTITIONS: u16 = 8;
/// Longest wait for anything.
pub const LONG: Duration = Duration::from_secs(30);

pub fn key(nth: u64) -> Key {
    Key { hash: mix(nth), full: nth.into() }
}

/// Waits until something holds.
pub fn wait_for(what: &str, at_most: Duration, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + at_most;
    while !holds() {
        assert!(Instant::now() < end, "not within {at_most:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A program that ends with its owner.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[String], log: &Path) -> Program {
    let log = std::fs::File::options().create(true).append(true).open(log).expect("a log");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log);
    Program(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
}

/// One etcd and one nats-server, or three of each.
pub struct Services {
    folder: TempDir,
    servers: Vec<Server>,
    /// With TLS and passwords.
    is_secured: bool,
}

/// User of etcd and of NATS, and the password.
pub const USER: [&str; 2] = ["west", "quite-secret"];

/// One of each; the ports are those for clients and for the others.
struct Server {
    etcd_ports: [u16; 2],
    nats_ports: [u16; 2],
    etcd: Option<Program>,
    nats: Option<Program>,
}

impl Services {
    pub fn start(count: usize) -> Services {
        Services::with(count, false)
    }

    /// Starts one of each, with certificates, and etcd's authentication on.
    pub fn start_secured() -> Services {
        let services = Services::with(1, true);
        let [user, password] = USER;
        let prefix = "/overbank/test/";
        let enable = async || {
            let options = services.options(NodeId(0));
            let connect = EtcdAccess { user: None, ..options.etcd_access };
            let mut etcd = connect.connect(&options.etcd).await?;
            let end = Instant::now() + LONG;
            while let Err(error) = etcd.user_add("root", "r", None).await {
                assert!(Instant::now() < end, "etcd: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            etcd.user_grant_role("root", "root").await?;
            etcd.user_add(user, password, None).await?;
            etcd.role_add(user).await?;
            let all = PermissionType::Readwrite;
            let permission = Permission::new(all, prefix).with_prefix();
            etcd.role_grant_permission(user, permission).await?;
            etcd.user_grant_role(user, user).await?;
            etcd.auth_enable().await
        };
        runtime().block_on(enable()).expect("etcd's users");
        services
    }

    fn with(count: usize, is_secured: bool) -> Services {
        // What a failed test shows.
        let log = tracing_subscriber::fmt().with_test_writer().with_ansi(false);
        let _ = log.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).try_init();
        let folder = tempfile::tempdir().expect("a folder");
        let server = |_| Server {
            etcd_ports: [(); 2].map(|()| free_port()),
            nats_ports: [(); 2].map(|()| free_port()),
            etcd: None,
            nats: None,
        };
        let servers = (0..count).map(server).collect();
        let mut services = Services { folder, servers, is_secured };
        if is_secured {
            services.make_certificates();
        }
        for nth in 0..count {
            services.start_etcd(nth);
            services.start_nats(nth);
        }
        services
    }

    pub fn start_etcd(&mut self, nth: usize) {
        let folder = self.folder.path().join(format!("etcd{nth}"));
        let [client, peer] = self.servers[nth].etcd_ports.map(url);
        let client = self.of_scheme(client);
        let peers = self.servers.iter().enumerate();
        let peers = peers.map(|(nth, other)| format!("e{nth}={}", url(other.etcd_ports[1])));
        let peers = peers.collect::<Vec<_>>().join(",");
        let mut arguments = vec![
            format!("--name=e{nth}"),
            format!("--data-dir={}", folder.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={peers}"),
        ];
        if self.is_secured {
            let [ca, cert, key] =
                ["ca.pem", "server.pem", "server.key"].map(|name| self.file(name));
            arguments.extend([
                "--client-cert-auth".to_owned(),
                format!("--trusted-ca-file={ca}"),
                format!("--cert-file={cert}"),
                format!("--key-file={key}"),
                // Cheap passwords.
                "--bcrypt-cost=4".to_owned(),
            ]);
        }
        let log = self.folder.path().join(format!("etcd{nth}.log"));
        self.servers[nth].etcd = Some(start("etcd", &arguments, &log));
    }

    pub fn start_nats(&mut self, nth: usize) {
        let folder = self.folder.path().join(format!("nats{nth}"));
        let mut arguments = vec![
            "--jetstream".to_owned(),
            "--addr=127.0.0.1".to_owned(),
            format!("--name=n{nth}"),
            format!("--port={}", self.servers[nth].nats_ports[0]),
            format!("--store_dir={}", folder.display()),
        ];
        if self.servers.len() > 1 {
            let route = |server: &Server| format!("nats://127.0.0.1:{}", server.nats_ports[1]);
            let routes: Vec<String> = self.servers.iter().map(route).collect();
            arguments.extend([
                "--cluster_name=test".to_owned(),
                format!("--cluster={}", routes[nth]),
                format!("--routes={}", routes.join(",")),
            ]);
        }
        if self.is_secured {
            let [cert, key] = ["server.pem", "server.key"].map(|name| self.file(name));
            let tls = ["--tls".to_owned(), format!("--tlscert={cert}"), format!("--tlskey={key}")];
            let [user, password] = USER;
            arguments.extend(tls);
            arguments.extend([format!("--user={user}"), format!("--pass={password}")]);
        }
        let log = self.folder.path().join(format!("nats{nth}.log"));
        self.servers[nth].nats = Some(start("nats-server", &arguments, &log));
    }

    pub fn stop_etcd(&mut self, nth: usize) {
        self.servers[nth].etcd = None;
    }

    pub fn stop_nats(&mut self, nth: usize) {
        self.servers[nth].nats = None;
    }

    pub fn nats_urls(&self) -> Vec<String> {
        let ports = self.servers.iter().map(|server| server.nats_ports[0]);
        let scheme = if self.is_secured { "tls" } else { "nats" };
        ports.map(|port| format!("{scheme}://127.0.0.1:{port}")).collect()
    }

    fn of_scheme(&self, url: String) -> String {
        if self.is_secured { url.replace("http:", "https:") } else { url }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Makes an authority, and certificates of a server and of a node that it signs.
    fn make_certificates(&self) {
        let extensions = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
        std::fs::write(self.file("extensions"), extensions).expect("a file");
        let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        let mut lines =
            vec![format!("req -x509 {new} -days 2 -subj /CN=ca -keyout ca.key -out ca.pem")];
        for name in ["server", "node"] {
            lines.push(format!("req {new} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
            lines.push(format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile extensions -out {name}.pem"
            ));
        }
        for line in lines {
            let words = line.split_whitespace();
            let made = Command::new("openssl").args(words).current_dir(self.folder.path()).output();
            let made = made.expect("openssl");
            assert!(made.status.success(), "{line}: {}", String::from_utf8_lossy(&made.stderr));
        }
    }

    /// Returns what a node shows the services, and whom it trusts.
    pub fn access(&self) -> (EtcdAccess, NatsAccess) {
        if !self.is_secured {
            return Default::default();
        }
        let read = |name: &str| std::fs::read(self.file(name)).expect("a file");
        let user = Some((USER[0].to_owned(), USER[1].to_owned()));
        let etcd = EtcdAccess {
            user: user.clone(),
            ca: Some(read("ca.pem")),
            identity: Some((read("node.pem"), read("node.key"))),
        };
        (etcd, NatsAccess { user, credentials: None, ca: Some(self.file("ca.pem").into()) })
    }

    pub fn options(&self, node: NodeId) -> Options {
        let (etcd_access, nats_access) = self.access();
        let etcd = self.servers.iter().map(|server| self.of_scheme(url(server.etcd_ports[0])));
        Options {
            cluster: "test".to_owned(),
            node,
            etcd: etcd.collect(),
            etcd_access,
            nats: self.nats_urls(),
            nats_access,
            replicas: self.servers.len(),
            settings: Settings {
                partitions: PARTITIONS,
                node_bits: 3,
                // Snapshots and purges are made all the time.
                snapshot_every: 4,
                ..Settings::default()
            },
            equal: vec![("n3".to_owned(), "192.0.2.1".to_owned())],
            info: Arc::from([2, 0, 0, 0, 0, node.0]),
            seed: 7,
        }
    }

    pub fn try_join(
        &self,
        options: Options,
    ) -> Result<(Joined, tokio::runtime::Runtime), StoresError> {
        let runtime = runtime();
        // The services may still be starting.
        let end = Instant::now() + LONG;
        loop {
            match runtime.block_on(join(options.clone())) {
                Err(StoresError::Etcd { .. } | StoresError::Nats { .. })
                    if Instant::now() < end =>
                {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Ok(joined) => return Ok((joined, runtime)),
                Err(error) => return Err(error),
            }
        }
    }

    pub fn join(&self, node: u8) -> Site {
        let node = NodeId(node);
        let (joined, runtime) = self.try_join(self.options(node)).expect("joined");
        let state = Arc::new(Mutex::new(Seen::new(node)));
        let host = Notes { begun: Instant::now(), seen: state.clone() };
        let (driver, handle) = Driver::new(joined, runtime, host);
        let seen = state.clone();
        std::thread::spawn(move || {
            let ended = driver.run();
            seen.lock().expect("whole").end = Some(ended.map_err(|error| error.to_string()));
        });
        Site { node, handle, seen: state }
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().expect("threads")
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// What a data path would know.
struct Seen {
    node: NodeId,
    slots: BTreeMap<u32, (Arc<[Key]>, Shown)>,
    fib: BTreeMap<u64, u32>,
    tables: Vec<Option<DenseReader>>,
    members: BTreeSet<NodeId>,
    is_ingress: bool,
    valid_until: Micros,
    begun: Instant,
    answers: BTreeMap<u64, Answer>,
    end: Option<Result<End, String>>,
}

impl Seen {
    fn new(node: NodeId) -> Seen {
        Seen {
            node,
            slots: BTreeMap::new(),
            fib: BTreeMap::new(),
            tables: Vec::new(),
            members: BTreeSet::new(),
            is_ingress: false,
            valid_until: 0,
            begun: Instant::now(),
            answers: BTreeMap::new(),
            end: None,
        }
    }

    fn now(&self) -> Micros {
        self.begun.elapsed().as_micros() as Micros
    }
}

struct Notes {
    begun: Instant,
    seen: Arc<Mutex<Seen>>,
}

impl Host for Notes {
    fn now(&mut self) -> Micros {
        self.begun.elapsed().as_micros() as Micros
    }

    fn change(&mut self, change: &Change) {
        let mut seen = self.seen.lock().expect("whole");
        match change {
            Change::Install { slot, keys, shown, .. } => {
                for key in keys.iter() {
                    seen.fib.insert(key.hash, *slot);
                }
                seen.slots.insert(*slot, (keys.clone(), *shown));
            }
            Change::Renew { slot, keys, .. } => {
                let (_, shown) = seen.slots.remove(slot).expect("installed");
                seen.fib.retain(|_, held| held != slot);
                seen.fib.extend(keys.iter().map(|key| (key.hash, *slot)));
                seen.slots.insert(*slot, (keys.clone(), shown));
            }
            Change::Counts { .. } | Change::TakenOver { .. } => {}
            Change::Show { slot, shown } => {
                seen.slots.get_mut(slot).expect("installed").1 = *shown;
            }
            Change::Free { slot } => {
                let (keys, _) = seen.slots.remove(slot).expect("installed");
                for key in keys
                    .iter()
                    .filter(|key| seen.fib.get(&key.hash) == Some(slot))
                    .collect::<Vec<_>>()
                {
                    seen.fib.remove(&key.hash);
                }
            }
        }
    }

    fn look(&mut self, node: &Node<Dense>) -> bool {
        let mut seen = self.seen.lock().expect("whole");
        seen.begun = self.begun;
        seen.tables = node.tables().map(Dense::reader).collect();
        seen.members = node.view().members.keys().copied().collect();
        seen.is_ingress = matches!(node.state(), Some(State::Live | State::Draining));
        seen.valid_until = node.valid_until();
        false
    }

    fn settle(&mut self) {}

    fn counts(&mut self, _: SessionId) -> Counts {
        Counts::default()
    }

    fn answer(&mut self, number: u64, answer: Answer) {
        self.seen.lock().expect("whole").answers.insert(number, answer);
    }

    fn ended(&mut self) {
        let mut seen = self.seen.lock().expect("whole");
        *seen = Seen { answers: std::mem::take(&mut seen.answers), ..Seen::new(seen.node) };
    }
}

/// A node and what it knows.
pub struct Site {
    pub node: NodeId,
    pub handle: Handle,
    seen: Arc<Mutex<Seen>>,
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.is_running() {
            self.handle.stop();
        }
    }
}

impl Site {
    pub fn is_running(&self) -> bool {
        self.seen.lock().expect("whole").end.is_none()
    }

    /// Returns how it has ended.
    pub fn end(&self) -> Option<Result<End, String>> {
        self.seen.lock().expect("whole").end.clone()
    }

    pub fn is_ingress(&self) -> bool {
        let seen = self.seen.lock().expect("whole");
        seen.is_ingress && seen.now() < seen.valid_until
    }

    /// Returns the answer to a request.
    pub fn answer(&self, number: u64) -> Option<Answer> {
        self.seen.lock().expect("whole").answers.get(&number).cloned()
    }

    /// Asks until it is done; `meanwhile` runs between looks.
    pub fn ask(&self, requests: Vec<(u64, Request)>, mut meanwhile: impl FnMut()) {
        let end = Instant::now() + LONG;
        let mut open = requests;
        open.iter().for_each(|(number, body)| assert!(self.handle.request(*number, body.clone())));
        while !open.is_empty() {
            std::thread::sleep(Duration::from_millis(20));
            meanwhile();
            open.retain(|(number, body)| match self.answer(*number) {
                // What timed out may have been done meanwhile.
                Some(Ok(_) | Err(Refusal::KeyInUse | Refusal::Moving)) => false,
                Some(Err(_)) => {
                    self.seen.lock().expect("whole").answers.remove(number);
                    self.handle.request(*number, body.clone())
                }
                None => true,
            });
            assert!(Instant::now() < end, "not answered: {} of {:?}", open.len(), self.node);
        }
    }
}

/// Sends a packet in at a node; returns the node that handles it.
pub fn packet(sites: &[Site], ingress: NodeId, key: Key) -> Option<NodeId> {
    let (mut at, mut tag) = (ingress, Tag::default());
    loop {
        let site = sites.iter().find(|site| site.node == at)?;
        let seen = site.seen.lock().expect("whole");
        if seen.now() >= seen.valid_until {
            return None;
        }
        if tag.hops == 0 {
            if !seen.is_ingress {
                return None;
            }
            let partition = Partition::of(key.hash, PARTITIONS);
            let node = seen.tables[partition.index()].as_ref()?.lookup(key.hash);
            if node != at {
                if !seen.members.contains(&node) {
                    return None;
                }
                (at, tag) = (node, Tag { hops: 1, moved: 0 });
                continue;
            }
        }
        let (_, shown) = seen.slots.get(seen.fib.get(&key.hash)?)?;
        let (to, moved) = match shown.entry {
            Entry::Serving => return Some(at),
            Entry::Standby { .. } if tag.moved == shown.mark => return Some(at),
            Entry::Standby { from } => (from.node, 0),
            Entry::Moved { to } => (to.node, shown.mark),
        };
        if tag.hops >= 2 {
            return None;
        }
        (at, tag) = (to, Tag { hops: tag.hops + 1, moved });
    }
}
