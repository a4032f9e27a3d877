//! Namespaces, services, nodes; and what is asked of them.

use crate::netns::{enter, run, try_run};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const NODES: usize = 4;
/// Of each service.
pub const SERVERS: usize = 3;
/// Where the node that speaks PFCP has N4, and the SMF: the hub.
pub const N4: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 9);
pub const SMF: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 254);
/// Longest wait for a start.
const START_MAX: Duration = Duration::from_secs(60);
/// Longest wait for an answer: longer than the gateway waits for its cluster.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Links of a node that can be cut.
#[derive(Clone, Copy)]
pub enum Link {
    Fabric,
    Control,
}

/// A process that is killed when it is dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Scene {
    tag: String,
    folder: tempfile::TempDir,
    pub etcd: [Option<Process>; SERVERS],
    pub nats: [Option<Process>; SERVERS],
    pub nodes: [Option<Process>; NODES],
    /// Packets that nodes have sent to others, which have not received them, over all cases.
    pub unreceived: i64,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.nodes = [const { None }; NODES];
        self.etcd = [const { None }; SERVERS];
        self.nats = [const { None }; SERVERS];
        for space in self.spaces() {
            let _ = try_run(&format!("ip netns del {space}"));
        }
        if std::thread::panicking() {
            self.show_logs(&[0; NODES + 2], 25);
        }
    }
}

fn etcd_url(nth: usize, port: u16) -> String {
    format!("http://10.99.0.{}:{port}", 16 + nth)
}

fn nats_url(nth: usize, port: u16) -> String {
    format!("nats://10.99.0.{}:{port}", 32 + nth)
}

impl Scene {
    /// Starts everything, and moves this thread to the hub. `None` where the test is skipped.
    pub fn start() -> Option<Scene> {
        let root = try_run("ip netns list").0 && run("id -u").trim() == "0";
        if !overbank_testing::needs("root", root) {
            return None;
        }
        let mut scene = Scene {
            tag: format!("obf{}", std::process::id()),
            folder: tempfile::tempdir().expect("a folder"),
            etcd: [const { None }; SERVERS],
            nats: [const { None }; SERVERS],
            nodes: [const { None }; NODES],
            unreceived: 0,
        };
        scene.wire();
        enter(&format!("/var/run/netns/{}", scene.space("hub")));
        for nth in 0..SERVERS {
            scene.start_etcd(nth);
            scene.start_nats(nth);
        }
        wait("etcd has a leader", || scene.find_etcd_leader().is_some());
        for node in 0..NODES {
            scene.start_node(node);
        }
        for node in 0..NODES {
            wait("a ready node", || scene.is_ready(node));
        }
        Some(scene)
    }

    fn space(&self, name: &str) -> String {
        format!("{}{name}", self.tag)
    }

    fn spaces(&self) -> Vec<String> {
        let nodes = (0..NODES).map(|node| format!("n{node}"));
        let all = nodes.chain(["svc", "hub"].map(str::to_owned));
        all.map(|name| self.space(&name)).collect()
    }

    fn wire(&self) {
        for space in self.spaces() {
            run(&format!(
                "ip netns add {space} && ip -n {space} link set lo up && ip netns exec {space} \
                 sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1"
            ));
        }
        let hub = self.space("hub");
        for bridge in ["fabric", "control"] {
            run(&format!(
                "ip -n {hub} link add {bridge} type bridge && ip -n {hub} link set {bridge} up"
            ));
        }
        run(&format!("ip -n {hub} address add {SMF}/24 dev control"));
        for node in 0..NODES {
            let space = self.space(&format!("n{node}"));
            for role in ["n3", "n6", "f", "c"] {
                self.pair(&space, &format!("a{node}{role}"), &format!("b{node}{role}"));
            }
            for (nth, role) in ["n3", "n6"].into_iter().enumerate() {
                let mac = mac(node, nth).map(|byte| format!("{byte:02x}")).join(":");
                run(&format!("ip -n {space} link set a{node}{role} address {mac}"));
            }
            run(&format!("ip -n {space} address add 10.99.0.{}/24 dev a{node}c", node + 1));
            for (role, bridge) in [("f", "fabric"), ("c", "control")] {
                run(&format!("ip -n {hub} link set b{node}{role} master {bridge}"));
            }
        }
        let space = self.space("svc");
        self.pair(&space, "as", "bs");
        run(&format!("ip -n {hub} link set bs master control"));
        for last in (0..SERVERS).flat_map(|nth| [16 + nth, 32 + nth]) {
            run(&format!("ip -n {space} address add 10.99.0.{last}/24 dev as"));
        }
    }

    /// A pair of interfaces, the second of which is in the hub.
    fn pair(&self, space: &str, near: &str, far: &str) {
        let hub = self.space("hub");
        run(&format!(
            "ip -n {space} link add {near} type veth peer name {far} netns {hub} && \
             ip -n {space} link set {near} up && ip -n {hub} link set {far} up"
        ));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spawn(&self, space: &str, program: &str, words: &[String], log: &str) -> Process {
        let log = std::fs::File::options().create(true).append(true).open(self.path(log));
        let log = log.expect("a log");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(space), program]).args(words);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        Process(command.spawn().expect("it starts"))
    }

    /// Names and texts of the logs.
    fn logs(&self) -> impl Iterator<Item = (String, String)> {
        let nodes = (0..NODES).map(|node| format!("node{node}.log"));
        let all = nodes.chain(["etcd.log".to_owned(), "nats.log".to_owned()]);
        all.map(|log| {
            let text = std::fs::read_to_string(self.path(&log)).unwrap_or_default();
            (log, text)
        })
    }

    /// Returns how long each log is.
    pub fn log_ends(&self) -> Vec<usize> {
        self.logs().map(|(_, text)| text.len()).collect()
    }

    /// Shows what was logged since [`Scene::log_ends`]; the last lines, if they are many.
    pub fn show_logs(&self, ends: &[usize], lines_max: usize) {
        for ((log, text), end) in self.logs().zip(ends) {
            let lines: Vec<&str> = text.get(*end..).unwrap_or_default().lines().collect();
            eprintln!("{log}:\n{}", lines[lines.len().saturating_sub(lines_max)..].join("\n"));
        }
    }

    pub fn start_etcd(&mut self, nth: usize) {
        let member = |nth| format!("e{nth}={}", etcd_url(nth, 2380));
        let members: Vec<String> = (0..SERVERS).map(member).collect();
        let words = [
            format!("--name=e{nth}"),
            format!("--data-dir={}", self.path(&format!("etcd{nth}")).display()),
            format!("--listen-client-urls={}", etcd_url(nth, 2379)),
            format!("--advertise-client-urls={}", etcd_url(nth, 2379)),
            format!("--listen-peer-urls={}", etcd_url(nth, 2380)),
            format!("--initial-advertise-peer-urls={}", etcd_url(nth, 2380)),
            format!("--initial-cluster={}", members.join(",")),
        ];
        self.etcd[nth] = Some(self.spawn("svc", "etcd", &words, "etcd.log"));
    }

    pub fn start_nats(&mut self, nth: usize) {
        let routes: Vec<String> = (0..SERVERS).map(|nth| nats_url(nth, 6222)).collect();
        let words = [
            "--jetstream".to_owned(),
            format!("--name=n{nth}"),
            format!("--addr=10.99.0.{}", 32 + nth),
            "--port=4222".to_owned(),
            "--http_port=8222".to_owned(),
            format!("--store_dir={}", self.path(&format!("nats{nth}")).display()),
            "--cluster_name=faults".to_owned(),
            format!("--cluster={}", nats_url(nth, 6222)),
            format!("--routes={}", routes.join(",")),
        ];
        self.nats[nth] = Some(self.spawn("svc", "nats-server", &words, "nats.log"));
    }

    /// Removes what a stopped server has on its disk.
    pub fn empty_nats(&self, nth: usize) {
        std::fs::remove_dir_all(self.path(&format!("nats{nth}"))).expect("removed");
    }

    fn find_etcd_leader(&self) -> Option<usize> {
        (0..SERVERS).find(|nth| {
            let status = tcp(16 + nth, 2379, "POST", "/v3/maintenance/status", "{}");
            status.is_ok_and(|(_, status)| {
                let leader = &status["leader"];
                leader.is_string() && *leader == status["header"]["member_id"]
            })
        })
    }

    pub fn etcd_leader(&self) -> usize {
        let mut leader = None;
        wait("etcd has a leader", || {
            leader = self.find_etcd_leader();
            leader.is_some()
        });
        leader.expect("found")
    }

    fn find_stream_leader(&self) -> Option<usize> {
        let path = "/jsz?accounts=true&streams=true";
        (0..SERVERS).find_map(|nth| {
            let (_, streams) = tcp(32 + nth, 8222, "GET", path, "").ok()?;
            let streams = streams["account_details"][0]["stream_detail"].clone();
            let is_log = |stream: &&Value| stream["name"] == "overbank-gateway-log";
            let log = streams.as_array()?.iter().find(is_log)?;
            log["cluster"]["leader"].as_str()?.strip_prefix('n')?.parse().ok()
        })
    }

    /// The server that leads the log.
    pub fn stream_leader(&self) -> usize {
        let mut leader = None;
        wait("the log has a leader", || {
            leader = self.find_stream_leader();
            leader.is_some()
        });
        leader.expect("found")
    }

    /// The node that speaks PFCP.
    pub fn speaker(&self) -> usize {
        let speaks =
            |node: &usize| self.ask(*node, "GET", "/speaker", "").is_ok_and(|said| said.0 == 200);
        let mut speaker = None;
        wait("a node speaks", || {
            speaker = (0..NODES).find(speaks);
            speaker.is_some()
        });
        speaker.expect("found")
    }

    pub fn start_node(&mut self, node: usize) {
        let mut words = vec!["gateway".to_owned()];
        let mut push = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        for role in ["n3", "n6"] {
            push("port", format!("{role}=afpacket:a{node}{role},ring-mib=1"));
        }
        push("port", format!("fabric=afpacket:a{node}f,ring-mib=1"));
        push("node", node.to_string());
        push("control", self.control(node).display().to_string());
        (0..SERVERS).for_each(|nth| push("etcd", etcd_url(nth, 2379)));
        (0..SERVERS).for_each(|nth| push("nats", nats_url(nth, 4222)));
        push("n3-address", "192.0.2.1".to_owned());
        push("ue-pool", "10.45.0.0/16".to_owned());
        push("next-hop", "n6=default@02:00:00:00:00:16".to_owned());
        push("next-hop", "n3=default@02:00:00:00:00:13".to_owned());
        push("pfcp", format!("{N4}:8805"));
        push("pfcp-interface", format!("a{node}c"));
        push("metrics", "off".to_owned());
        let (space, log) = (format!("n{node}"), format!("node{node}.log"));
        let program = env!("CARGO_BIN_EXE_overbank");
        self.nodes[node] = Some(self.spawn(&space, program, &words, &log));
    }

    /// Whether a node has ended, or was killed.
    pub fn has_ended(&mut self, node: usize) -> bool {
        let process = self.nodes[node].as_mut();
        process.is_none_or(|process| !matches!(process.0.try_wait(), Ok(None)))
    }

    /// Whether this is the last word of a node.
    fn has_logged(&self, node: usize, what: &str) -> bool {
        let text = std::fs::read_to_string(self.path(&format!("node{node}.log")));
        text.is_ok_and(|text| text.lines().next_back().is_some_and(|last| last.contains(what)))
    }

    /// Starts the nodes that have ended; returns whether there is one.
    pub fn start_again(&mut self) -> bool {
        let mut any = false;
        for node in 0..NODES {
            let ended = self.nodes[node].as_mut().map(|process| process.0.try_wait());
            if let Some(Ok(Some(status))) = ended {
                // One that was to drain, and lost its cluster, says so.
                let is_told = || self.has_logged(node, "sessions were not all given away");
                assert!(status.success() || is_told(), "node {node} has ended: {status}");
            }
            if !matches!(ended, Some(Ok(None))) {
                self.start_node(node);
                any = true;
            }
        }
        any
    }

    /// Returns the process and the resident memory of each node that runs, in KiB.
    pub fn memory(&self) -> Vec<(u32, u64)> {
        let resident = |process: &Process| {
            let pid = process.0.id();
            let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            Some((pid, line.trim().trim_end_matches(" kB").parse().ok()?))
        };
        self.nodes.iter().flatten().filter_map(resident).collect()
    }

    pub fn signal(&self, node: usize, name: &str) {
        if let Some(Process(child)) = &self.nodes[node] {
            run(&format!("kill -{name} {}", child.id()));
        }
    }

    pub fn set_link(&self, node: usize, link: Link, up: bool) {
        let role = match link {
            Link::Fabric => "f",
            Link::Control => "c",
        };
        let state = if up { "up" } else { "down" };
        run(&format!("ip link set b{node}{role} {state}"));
    }

    /// Cuts a node off from etcd, and undoes it.
    pub fn set_etcd(&self, node: usize, there: bool) {
        let space = self.space(&format!("n{node}"));
        let verb = if there { "del" } else { "add" };
        run(&format!("ip -n {space} route {verb} blackhole 10.99.0.16/28"));
    }

    /// Makes a node's way to the services slow, and undoes it.
    pub fn set_slow(&self, node: usize, slow: bool) {
        let space = self.space(&format!("n{node}"));
        run(&match slow {
            true => format!(
                "tc -n {space} qdisc add dev a{node}c root tbf rate 256kbit burst 2kb latency 1s"
            ),
            false => format!("tc -n {space} qdisc del dev a{node}c root"),
        });
    }

    pub fn control(&self, node: usize) -> PathBuf {
        self.path(&format!("control{node}"))
    }

    /// Asks a node; returns the status and the document.
    pub fn ask(&self, node: usize, method: &str, path: &str, body: &str) -> Answer {
        ask(&self.control(node), method, path, body)
    }

    pub fn is_ready(&self, node: usize) -> bool {
        self.ask(node, "GET", "/ready", "").is_ok_and(|(status, _)| status == 200)
    }

    pub fn status(&self, node: usize) -> Value {
        self.ask(node, "GET", "/status", "").expect("an answer").1
    }
}

pub fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + START_MAX;
    while !holds() {
        assert!(Instant::now() < end, "not within {START_MAX:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A status and a document, or why there is none.
pub type Answer = Result<(u16, Value), String>;

/// Adds a session by the node with this control socket.
pub fn add(control: &Path, number: u32) -> Result<(), String> {
    let session = json!({
        "id": number, "n3": "192.0.2.1", "teid": number,
        "peer": "198.51.100.7", "peer_teid": peer_teid(number, 0),
        "ipv4": address(number).to_string(),
    });
    match ask(control, "POST", "/sessions", &session.to_string())? {
        (200..300, _) => Ok(()),
        (_, refused) => Err(refused.to_string()),
    }
}

/// The address of a node's interface: N3 (0) or N6 (1).
pub fn mac(node: usize, role: usize) -> [u8; 6] {
    [2, 0, 0, 0, node as u8, role as u8]
}

/// The TEID of a session's tunnel after `round` changes.
pub fn peer_teid(number: u32, round: u32) -> u32 {
    round << 16 | number
}

/// The address of a session's terminal.
pub fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 45, 0, 0]) | number)
}

pub fn ask(control: &Path, method: &str, path: &str, body: &str) -> Answer {
    let text = |error: std::io::Error| error.to_string();
    let stream = UnixStream::connect(control).map_err(text)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(text)?;
    http(stream, method, path, body)
}

fn tcp(last: usize, port: u16, method: &str, path: &str, body: &str) -> Answer {
    let to = SocketAddr::from(([10, 99, 0, last as u8], port));
    let short = Duration::from_secs(1);
    let stream = TcpStream::connect_timeout(&to, short).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(short)).map_err(|error| error.to_string())?;
    http(stream, method, path, body)
}

fn http(mut stream: impl Read + Write, method: &str, path: &str, body: &str) -> Answer {
    let mut text = String::new();
    let len = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {len}\r\n\r\n{body}")
        .and_then(|()| stream.read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no answer")?;
    let status =
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}
