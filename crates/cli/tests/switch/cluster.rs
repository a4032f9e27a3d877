//! `overbank gateway --node`: processes over a real etcd and a real nats-server, or over the first
//! of them alone, with packets.
//!
//! ```text
//!   a0n3 ═ node 0 ═ a0n6      each port a veth pair, whose other end (b…) the test has;
//!   a1n3 ═ node 1 ═ a1n6      those of the fabric are in a bridge
//!   a2n3 ═ node 2 ═ a2n6
//! ```

use crate::process::{Running, must, overbank, sh};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const NODES: usize = 3;
/// Sends an uplink packet of a terminal in at each node given, by this TEID, and prints the nodes
/// whose N6 it leaves by.
const PACKETS: &str = r#"
import socket, struct, sys, time
ingress = [int(n) for n in sys.argv[1].split(",")]
every = range(3)
def mac(name):
    return bytes.fromhex(open(f"/sys/class/net/{name}/address").read().strip().replace(":", ""))
def opened(name):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.bind((name, 0)); s.setblocking(False)
    return s
def checksum(h):
    s = sum(struct.unpack("!10H", h)); s = (s & 0xffff) + (s >> 16); s = (s & 0xffff) + (s >> 16)
    return ~s & 0xffff
def ip(src, dst, body):
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0x4000, 64, 17, 0,
                    socket.inet_aton(src), socket.inet_aton(dst))
    return h[:10] + struct.pack("!H", checksum(h)) + h[12:] + body
def udp(sport, dport, body):
    return struct.pack("!4H", sport, dport, 8 + len(body), 0) + body
n3 = {n: opened(f"b{n}n3") for n in every}
n6 = {n: opened(f"b{n}n6") for n in every}
inner = ip("10.45.0.2", "203.0.113.80", udp(5000, 53, b"question"))
gtpu = struct.pack("!BBHI", 0x30, 255, len(inner), int(sys.argv[2], 0)) + inner
outer = ip("198.51.100.7", "192.0.2.1", udp(2152, 2152, gtpu))
for n in ingress:
    n3[n].send(mac(f"a{n}n3") + b"\x02\0\0\0\0\x13" + b"\x08\x00" + outer)
seen, end = [], time.time() + 1
while time.time() < end and len(seen) < len(ingress):
    for n in every:
        try:
            frame = n6[n].recv(2048)
        except (BlockingIOError, OSError):
            continue
        if frame[12:14] == b"\x08\x00" and frame[26:30] == socket.inet_aton("10.45.0.2"):
            seen.append(n)
    time.sleep(0.005)
print(",".join(str(n) for n in sorted(seen)))
"#;

/// Address of an SMF.
pub const SMF: &str = "10.79.3.1";

/// N4 by IPv6, at the node that speaks.
#[cfg(all(feature = "cluster", feature = "pfcp"))]
const N4: &[&str] = &["--pfcp", "[fd79::9]:8805", "--pfcp-interface", "mgmt"];
#[cfg(all(feature = "cluster", not(feature = "pfcp")))]
const N4: &[&str] = &[];
/// Asks it for a heartbeat, and prints the answer.
#[cfg(feature = "cluster")]
const HEARTBEAT: &str = "\
import socket
s=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM);s.settimeout(1)
s.sendto(bytes.fromhex('2001000c000001000060000400000001'),('fd79::9',8805));print(s.recv(99).hex())";

/// A process that ends with the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the nodes have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Over {
    #[cfg(feature = "cluster")]
    Services,
    Peers,
}

pub struct Cluster {
    over: Over,
    pub space: String,
    folder: tempfile::TempDir,
    pub nodes: Vec<Option<Process>>,
    /// Options of all nodes, beside those that differ.
    more: &'static [&'static str],
    _services: Vec<Process>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        self._services.clear();
        sh(&format!("ip netns del {}", self.space));
    }
}

impl Cluster {
    /// Starts services, and nodes with these options besides; `None` where the test is skipped.
    #[cfg(feature = "cluster")]
    pub fn start(name: &str, more: &'static [&'static str]) -> Option<Cluster> {
        Cluster::start_over(Over::Services, name, more)
    }

    fn start_over(over: Over, name: &str, more: &'static [&'static str]) -> Option<Cluster> {
        if !overbank_testing::needs("root", must("id -u").trim() == "0") {
            return None;
        }
        let space = format!("obcl{name}{}", std::process::id());
        must(&format!("ip netns add {space}"));
        must(&format!("ip -n {space} link set lo up"));
        must(&format!("ip -n {space} link add fabric type bridge"));
        must(&format!("ip -n {space} link set fabric up"));
        must(&format!("ip -n {space} link add mgmt type veth peer name mgmt1"));
        must(&format!("ip -n {space} link set mgmt1 up"));
        must(&format!("ip -n {space} address add {SMF}/24 dev mgmt"));
        must(&format!("ip -n {space} link set mgmt up"));
        for node in 0..NODES {
            for role in ["n3", "n6", "f"] {
                let (a, b) = (format!("a{node}{role}"), format!("b{node}{role}"));
                must(&format!("ip -n {space} link add {a} type veth peer name {b}"));
                must(&format!("ip -n {space} link set {a} up"));
                must(&format!("ip -n {space} link set {b} up"));
            }
            must(&format!("ip -n {space} link set b{node}f master fabric"));
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut cluster =
            Cluster { over, space, folder, nodes: Vec::new(), more, _services: Vec::new() };
        cluster.pool("10.45.0.0/16");
        match over {
            #[cfg(feature = "cluster")]
            Over::Services => cluster.start_services(),
            Over::Peers => {
                let lines = "# all in one namespace\n0 127.0.0.1:7700\n1 127.0.0.1\n2 127.0.0.2\n";
                std::fs::write(cluster.at("peers"), lines).expect("written");
            }
        }
        for node in 0..NODES {
            let process = cluster.run(node);
            cluster.nodes.push(Some(process));
        }
        for node in 0..NODES {
            within(30, "a ready node", || cluster.command(node, &["check"]).0);
        }
        Some(cluster)
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Writes the configuration of all nodes.
    fn pool(&self, pool: &str) {
        let text = format!("ue-pool = \"{pool}\"\n");
        std::fs::write(self.at("gateway.toml"), text).expect("written");
    }

    #[cfg(feature = "cluster")]
    fn start_services(&mut self) {
        let url = |port| format!("http://127.0.0.1:{port}");
        let etcd = [
            format!("--data-dir={}", self.at("etcd")),
            format!("--listen-client-urls={}", url(2379)),
            format!("--advertise-client-urls={}", url(2379)),
        ];
        let nats = ["--jetstream".to_owned(), format!("--store_dir={}", self.at("nats"))];
        let space = &self.space;
        self._services = vec![started(space, "etcd", &etcd), started(space, "nats-server", &nats)];
        for port in [2379, 4222] {
            let open = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
            let open = format!("ip netns exec {space} bash -c '{open}'");
            within(60, "a service", || sh(&open).status.success());
        }
    }

    pub fn run(&self, node: usize) -> Process {
        self.run_at(node, &self.path(node))
    }

    /// Starts a process with this control socket.
    fn run_at(&self, node: usize, path: &str) -> Process {
        let mut command = self.gateway(node, path);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Process(command.spawn().expect("starts"))
    }

    /// The command of a process with this control socket.
    fn gateway(&self, node: usize, path: &str) -> Command {
        let ports = ["n3", "n6"].map(|role| format!("{role}=afpacket:a{node}{role}"));
        let mut words = vec!["gateway", "--metrics", "off"];
        for port in &ports {
            words.extend(["--port", port]);
        }
        // A second process gets no AF_XDP socket at a queue that has one.
        let own = path == self.path(node);
        let kind = if own && node.is_multiple_of(2) { "afxdp" } else { "afpacket" };
        let (fabric, node) = (format!("fabric={kind}:a{node}f"), node.to_string());
        words.extend(["--port", &fabric, "--node", &node, "--control", path]);
        let (peers, config) = (self.at("peers"), self.at("gateway.toml"));
        match self.over {
            #[cfg(feature = "cluster")]
            Over::Services => words.extend([
                "--etcd",
                "http://127.0.0.1:2379",
                "--nats",
                "nats://127.0.0.1:4222",
                "--replicas",
                "1",
            ]),
            Over::Peers => words.extend(["--peers", &peers]),
        }
        words.extend(["--n3-address", "192.0.2.1", "--config", &config]);
        words.extend(["--next-hop", "n6=default@02:00:00:00:00:16"]);
        words.extend(["--next-hop", "n3=default@02:00:00:00:00:13"]);
        words.extend(self.more);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space]).arg(overbank().get_program()).args(words);
        command
    }

    pub fn path(&self, node: usize) -> String {
        self.at(&format!("control{node}"))
    }

    /// Runs a command against a node; returns whether it succeeded, and what it printed.
    pub fn command(&self, node: usize, words: &[&str]) -> (bool, String) {
        Self::command_at(&self.path(node), words)
    }

    fn command_at(path: &str, words: &[&str]) -> (bool, String) {
        let output = overbank().arg("gateway").args(words).args(["--control", path]).output();
        let output = output.expect("runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    pub fn must(&self, node: usize, words: &[&str]) {
        let (done, text) = self.command(node, words);
        assert!(done, "{words:?}: {text}");
    }

    /// Sends a packet of session 1 in at each of these nodes; returns the nodes that handled one.
    fn packets(&self, ingress: &[usize]) -> Vec<usize> {
        self.packets_by("1", ingress)
    }

    /// The same with a packet of this TEID.
    pub fn packets_by(&self, teid: &str, ingress: &[usize]) -> Vec<usize> {
        let list: Vec<String> = ingress.iter().map(usize::to_string).collect();
        let output = Command::new("ip")
            .args(["netns", "exec", &self.space, "python3", "-c", PACKETS, &list.join(","), teid])
            .output()
            .expect("python3");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().split(',').filter_map(|node| node.parse().ok()).collect()
    }

    /// Returns the answer of N4 to a heartbeat, if it speaks at all.
    #[cfg(feature = "cluster")]
    fn heartbeat(&self) -> Option<String> {
        if !cfg!(feature = "pfcp") {
            return Some(String::new());
        }
        let python = ["netns", "exec", &self.space, "python3", "-c", HEARTBEAT];
        let output = Command::new("ip").args(python).stderr(Stdio::null()).output().expect("runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(feature = "cluster")]
fn started(space: &str, program: &str, words: &[String]) -> Process {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", space, program]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Process(command.spawn().expect("starts"))
}

/// Returns the node that answers the SMF.
#[cfg(feature = "cluster")]
pub fn speaker(cluster: &Cluster) -> Option<usize> {
    let speaks = |node: &usize| {
        let path = cluster.path(*node);
        let ask = format!("curl -sf --max-time 1 --unix-socket {path} http://gateway/speaker");
        sh(&ask).status.success()
    };
    (0..NODES).filter(|node| cluster.nodes[*node].is_some()).find(speaks)
}

pub fn within(seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !holds() {
        assert!(Instant::now() < end, "not within {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Fields of the session that packets are of.
const SESSION: [&str; 6] =
    ["id=1", "n3=192.0.2.1", "teid=1", "peer=198.51.100.7", "peer_teid=0x1001", "ipv4=10.45.0.2"];

/// Adds it at a node; another one with its tunnel is refused at another node.
fn add(cluster: &Cluster, node: usize) {
    cluster.must(node, &[&["sessions", "add"], &SESSION[..]].concat());
    let mut other = [&["sessions", "add"], &SESSION[..]].concat();
    (other[2], other[7]) = ("id=2", "ipv4=10.45.0.3");
    let (_, refused) = cluster.command((node + 1) % NODES, &other);
    assert!(refused.contains("a key belongs to another session"), "{refused}");
}

#[cfg(feature = "cluster")]
#[test]
fn any_node_takes_a_packet_and_one_handles_it() {
    let Some(mut cluster) = Cluster::start("a", N4) else { return };
    add(&cluster, 0);
    let handled = cluster.packets(&[0, 1, 2]);
    let home = *handled.first().expect("one handles them");
    assert_eq!(handled, [home; 3]);

    // Moved from any node, to the one that speaks.
    within(20, "N4 answers", || cluster.heartbeat().is_some());
    let n4 = cluster.heartbeat();
    let target = speaker(&cluster).unwrap_or((home + 1) % NODES);
    for to in [(target + 1) % NODES, target].into_iter().skip(usize::from(home != target)) {
        cluster.must(2, &["sessions", "move", "1", "--to", &to.to_string()]);
    }
    assert_eq!(cluster.packets(&[0, 1, 2]), [target; 3]);

    // Any node tells what it has counted, where it was and where it is.
    within(10, "the counts have come along", || {
        let shown = cluster.command(2, &["sessions", "show", "1", "--format", "json"]).1;
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        shown["uplink"]["packets"] == 6
    });

    // It changes where it is, by any node: its gate, and its address.
    cluster.must(0, &["sessions", "change", "1", "gate=downlink"]);
    assert!(cluster.packets(&[0, 1, 2]).is_empty());
    cluster.must(1, &["sessions", "change", "1", "gate=open"]);
    assert_eq!(cluster.packets(&[0, 1, 2]), [target; 3]);
    let exported = cluster.command((target + 1) % NODES, &["sessions", "export"]).1;
    assert!(exported.contains("192.0.2.1,0x1,198.51.100.7"), "{exported}");
    cluster.must(0, &["rebalance"]);

    // Any node shows the cluster, and finds the session.
    let others = [2, 1].map(|next| (target + next) % NODES);
    let other = *others.iter().find(|node| **node != home).expect("one that never had it");
    within(10, "the members have said how many sessions they have", || {
        let shown = cluster.command(other, &["status", "--format", "json"]).1;
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let seen = &shown["control"]["cluster"];
        let sessions = seen["members"].as_array().expect("members").iter();
        let sessions: u64 = sessions.filter_map(|member| member["sessions"].as_u64()).sum();
        assert_eq!((&seen["live"], &seen["state"]), (&NODES.into(), &"live".into()), "{shown}");
        sessions == 1
    });
    let (_, text) = cluster.command(other, &["status"]);
    assert!(text.contains(&format!("node {other}, live: 3 of 3 members live")), "{text}");
    // While it moves, two nodes count it.
    within(10, "it is listed, and counted once", || {
        let listed = cluster.command(other, &["sessions", "list", "--teid", "1"]).1;
        assert!(listed.contains("10.45.0.2"), "{listed}");
        listed.contains("1 of 1 sessions")
    });
    let local = cluster.command(other, &["sessions", "list", "--teid", "1", "--local"]).1;
    assert!(local.contains("0 of 0 sessions"), "{local}");

    // A second process with a number that is in use says so, and takes nothing.
    let path = cluster.folder.path().join("second").display().to_string();
    let second = cluster.run_at(other, &path);
    within(20, "the second process says why it waits", || {
        let (ready, text) = Cluster::command_at(&path, &["check"]);
        !ready && text.contains(&format!("another process is node {other} of the cluster"))
    });
    drop(second);
    assert!(cluster.command(other, &["check"]).0);
    // One with another limit ends.
    let refused = cluster.gateway(other, &path).args(["--max-nodes", "20"]).output();
    let errors = refused.expect("runs").stderr;
    let errors = String::from_utf8_lossy(&errors);
    assert!(errors.contains("max-nodes is 32 in the cluster and 20 here"), "{errors}");

    // Its node must end: the session goes elsewhere first, and no packet is lost.
    let others: Vec<usize> = (0..NODES).filter(|node| *node != target).collect();
    let mut ending = cluster.nodes[target].take().expect("it runs");
    must(&format!("kill -TERM {}", ending.0.id()));
    within(20, "the node has left", || {
        let handled = cluster.packets(&others);
        assert_eq!(handled.len(), 2, "a packet was lost to the drain");
        !handled.contains(&target) && matches!(ending.0.try_wait(), Ok(Some(_)))
    });
    assert!(ending.0.wait().expect("it has ended").success());
    within(20, "another node has taken the address of N4", || cluster.heartbeat() == n4);

    // The next one is killed: its session is taken over after the lease, and N4 if it spoke.
    let home = cluster.packets(&others)[0];
    let last = *others.iter().find(|node| **node != home).expect("one");
    cluster.nodes[home] = None;
    within(20, "the session is taken over", || cluster.packets(&[last]) == [last]);
    within(20, "the last node speaks", || cluster.heartbeat() == n4);
    cluster.must(last, &["sessions", "change", "1", "ipv4=10.45.0.9"]);
    assert!(cluster.packets(&[last]).is_empty(), "the source is no longer the session's");
    // It takes back what it had; another session has to wait for that.
    cluster.must(last, &["sessions", "change", "1", "ipv4=10.45.0.2"]);
    assert_eq!(cluster.packets(&[last]), [last]);
    let other = ["id=3", "n3=192.0.2.1", "teid=3", "peer=198.51.100.7", "peer_teid=3"];
    let words = [&["sessions", "add"][..], &other, &["ipv4=10.45.0.9"]].concat();
    let (_, resting) = cluster.command(last, &words);
    assert!(resting.contains("a key was freed less than its rest ago"), "{resting}");
    cluster.must(last, &["sessions", "remove", "1"]);
    assert!(cluster.packets(&[last]).is_empty());
}

/// Without etcd and NATS: any node but the first may go, and all begin anew with the first.
#[test]
fn peers_share_sessions_while_the_first_runs() {
    let Some(mut cluster) = Cluster::start_over(Over::Peers, "p", &[]) else { return };
    add(&cluster, 2);
    let home = cluster.packets(&[0, 1, 2])[0];
    if home != 1 {
        cluster.must(0, &["sessions", "move", "1", "--to", "1"]);
    }
    assert_eq!(cluster.packets(&[0, 1, 2]), [1; 3]);
    let (_, listed) = cluster.command(1, &["sessions", "list"]);
    assert!(listed.contains("10.45.0.2") && listed.contains("cluster"), "{listed}");

    // A list, all or none, by any node.
    let list = cluster.at("list.csv");
    let head = "id,n3,teid,peer,peer_teid,ipv4\n1,192.0.2.1,1,198.51.100.7,0x1001,10.45.0.2\n";
    let line = |id: u32| format!("{id},192.0.2.1,{id},198.51.100.7,1,10.45.1.{}\n", id - 99);
    let lines: String = (100..300).map(line).collect();
    let taken = "300,192.0.2.1,1,198.51.100.7,1,10.45.3.1\n";
    std::fs::write(&list, [head, &lines, taken].concat()).expect("written");
    let (done, refused) = cluster.command(2, &["sessions", "import", &list]);
    assert!(!done && refused.contains("TEID 0x1 at 192.0.2.1 belongs to session 1"), "{refused}");
    assert!(!cluster.command(0, &["sessions", "show", "100"]).0, "nothing is imported");
    std::fs::write(&list, [head, &lines].concat()).expect("written");
    let import = |words: &[&str]| {
        let (done, text) = cluster.command(2, &[&["sessions", "import", &list], words].concat());
        assert!(done, "{text}");
        text.trim().to_owned()
    };
    let would = "would be added 200, changed 0, removed 0, kept 1";
    assert_eq!(import(&["--dry-run"]), would);
    assert_eq!(import(&[]), would.trim_start_matches("would be "));
    assert!(cluster.command(0, &["sessions", "show", "100"]).0);
    for node in 0..NODES {
        cluster.must(node, &["check"]);
    }
    std::fs::write(&list, head).expect("written");
    assert_eq!(import(&["--replace"]), "added 0, changed 0, removed 200, kept 1");

    // Drained by request to another node, without a loss.
    let mut ending = cluster.nodes[1].take().expect("it runs");
    cluster.must(2, &["drain", "1"]);
    within(20, "the node has left", || {
        assert_eq!(cluster.packets(&[0, 2]).len(), 2, "a packet was lost to the drain");
        matches!(ending.0.try_wait(), Ok(Some(_)))
    });
    assert!(ending.0.wait().expect("it has ended").success());

    // It joins again, with a warning of a short fabric.
    must(&format!("ip -n {} link set a1f mtu 1400", cluster.space));
    let mut again = Running::start(&mut cluster.gateway(1, &cluster.path(1)));
    let warning = "the fabric's MTU is less than that of N3 or N6";
    assert!(again.seen.iter().any(|line| line.contains(warning)), "{:#?}", again.seen);
    within(30, "it takes packets again", || cluster.command(1, &["check"]).0);

    // Other pools wait until no node runs.
    cluster.pool("10.46.0.0/16");
    again.signal("HUP");
    again.expect("ue-pool: all nodes of a cluster need the same");
    again.expect("settings and sessions unchanged");
    cluster.pool("10.45.0.0/16");
    assert_eq!(cluster.packets(&[0, 1, 2]).len(), 3);

    // Killed: taken over after its lease.
    if cluster.packets(&[0]) != [2] {
        cluster.must(1, &["sessions", "move", "1", "--to", "2"]);
    }
    cluster.nodes[2] = None;
    within(20, "the session is taken over", || cluster.packets(&[0, 1]).len() == 2);

    // The first one is killed: nothing is handled after the lease, nor remembered.
    cluster.nodes[0] = None;
    within(20, "node 1 stops", || !cluster.command(1, &["check"]).0);
    assert!(cluster.packets(&[1]).is_empty());
    cluster.nodes[0] = Some(cluster.run(0));
    for node in [0, 1] {
        within(30, "both begin anew", || cluster.command(node, &["check"]).0);
    }
    let (found, gone) = cluster.command(1, &["sessions", "show", "1"]);
    assert!(!found && gone.contains("no such session"), "{gone}");
    cluster.must(1, &[&["sessions", "add"], &SESSION[..]].concat());
    assert_eq!(cluster.packets(&[0, 1]).len(), 2);

    // The cluster is lost while a node gives its sessions away: it says that it has kept some.
    let first = cluster.nodes[0].as_ref().expect("it runs").0.id();
    must(&format!("kill -STOP {first}"));
    cluster.must(1, &["drain"]);
    cluster.nodes[0] = None;
    again.expect("sessions were not all given away");
    assert_eq!(again.child.wait().expect("it has ended").code(), Some(1));
}
