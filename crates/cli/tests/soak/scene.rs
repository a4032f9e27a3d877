//! Hosts, their wires to the switch, and the rules that stand from the start.
//!
//! ```text
//!   afpacket, afxdp:  near ═══veth═══ eth0 of the host          the switch has `near`
//!   tap:   tap ── bridge ── near ═══veth═══ eth0 of the host    the switch has, and makes, `tap`
//! ```
//!
//! Addresses are fixed and known to all hosts, so that no packet waits for ARP; the switch still
//! learns them by NORMAL for what goes to D and comes from there.

use crate::bench::PATIENCE;
use crate::context::{Kind, Plan};
use crate::netns::{Net, run, try_run};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// The hosts; host `n` is at port `n + 1` and has the address 10.77.0.`n + 1`.
pub const A: usize = 0;
pub const B: usize = 1;
pub const C: usize = 2;
pub const D: usize = 3;
pub const E: usize = 4;
pub const F: usize = 5;
const HOSTS: usize = 6;

/// UDP ports of E → F. Stamped by one rule; by one rule in each of two tables, changed together.
pub const ONE_STAMP: u16 = 9001;
pub const TWO_STAMPS: u16 = 9002;
/// Goes to the controllers.
pub const TO_CONTROLLERS: u16 = 9003;
/// Stamped by rules that end by themselves.
pub const TIMED: u16 = 9004;
/// Rules of the churn forward or drop it; hits many of them.
pub const CHURNED: u16 = 9005;
/// Where hosts send back what they get.
pub const ECHO: u16 = 7300;
/// Never to be forwarded, though rules of lower priority do so with all of 9600 to 9727.
pub const NEVER: u16 = 9666;
/// Forwarded by those.
pub const SOMETIMES: u16 = 9667;
/// The cookie of the rule that drops [`NEVER`].
pub const NEVER_COOKIE: u64 = 0x666;

/// Namespaces, wires and files of one soak.
pub struct Scene {
    pub plan: Plan,
    pub net: Net,
    pub folder: tempfile::TempDir,
    /// Where the switch listens for controllers.
    pub openflow: SocketAddr,
    /// Where it looks for one.
    pub controller: TcpListener,
}

/// Address of a host.
pub fn address(host: usize) -> String {
    format!("10.77.0.{}", host + 1)
}

fn mac(host: usize) -> String {
    format!("02:00:00:00:77:{:02x}", host + 1)
}

fn exists(interface: &str) -> bool {
    fs::metadata(format!("/sys/class/net/{interface}")).is_ok()
}

impl Scene {
    /// Builds it. Returns `None`, after a line, if privileges are missing.
    pub fn new(plan: Plan) -> Option<Scene> {
        let net = Net::new(HOSTS)?;
        // A port that is free and stays so, also while the switch is away: no other program has
        // this address of the loopback interface.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let own = Ipv4Addr::new(127, 128 | high >> 1, low, 253);
        let free = TcpListener::bind((own, 0)).and_then(|l| l.local_addr()).expect("a port");
        let controller = TcpListener::bind("127.0.0.1:0").expect("a port");
        controller.set_nonblocking(true).expect("a socket");
        let folder = tempfile::tempdir().expect("a folder");
        let scene = Scene { plan, net, folder, openflow: free, controller };
        for host in 0..HOSTS {
            scene.equip(host);
            if plan.kind == Kind::Tap {
                let (near, bridge) = (scene.net.near(host), scene.bridge(host));
                run(&format!(
                    "ip link add {bridge} type bridge && \
                     sysctl -qw net.ipv6.conf.{bridge}.disable_ipv6=1 && \
                     ip link set {near} master {bridge} && ip link set {bridge} up"
                ));
            }
        }
        scene.write_rules(0);
        Some(scene)
    }

    /// Addresses of a host, its neighbours, its routes; again after its wire was replaced.
    fn equip(&self, host: usize) {
        let space = self.net.space(host);
        let neighbours: Vec<String> = (0..HOSTS)
            .filter(|other| *other != host)
            .map(|other| {
                let (address, mac) = (address(other), mac(other));
                format!("neigh replace {address} lladdr {mac} dev eth0 nud permanent")
            })
            .collect();
        let batch = self.folder.path().join(format!("batch-{host}"));
        let route = format!("route replace 10.123.0.0/16 via {}", address(F));
        let route = if host == E { route } else { String::new() };
        let mac = mac(host);
        let lines = format!("link set eth0 address {mac}\n{}\n{route}\n", neighbours.join("\n"));
        fs::write(&batch, lines).expect("written");
        run(&format!("ip -n {space} -batch {}", batch.display()));
        if host == F {
            // Stamps are also written into the source address.
            run(&format!(
                "ip netns exec {space} sysctl -qw net.ipv4.conf.all.rp_filter=0 \
                 net.ipv4.conf.eth0.rp_filter=0"
            ));
        }
    }

    /// The interface that the switch has.
    pub fn port(&self, host: usize) -> String {
        match self.plan.kind {
            Kind::Tap => format!("{}t", self.net.near(host)),
            Kind::AfPacket | Kind::AfXdp => self.net.near(host),
        }
    }

    fn bridge(&self, host: usize) -> String {
        format!("{}b", self.net.near(host))
    }

    /// Ports as the switch is configured with them.
    pub fn ports(&self) -> Vec<String> {
        let one = |host: usize| {
            let faults = format!(
                ",loss=0.01,corrupt=0.01,reorder=0.02,duplicate=0.01,fault-on=both,fault-seed={}",
                self.plan.seed
            );
            let faults = if host == C { faults } else { String::new() };
            // Rings that are soon used from end to end, so that memory stays where it is.
            let ring = match self.plan.kind {
                Kind::AfPacket => ",ring-mib=1",
                Kind::AfXdp => ",frames=2048",
                Kind::Tap => "",
            };
            let (number, kind, port) = (host + 1, self.plan.kind.name(), self.port(host));
            format!("{number}={kind}:{port}{ring}{faults}")
        };
        (0..HOSTS).map(one).collect()
    }

    /// Joins what the switch has just made to the hosts; done again until it holds.
    pub fn attach(&self, host: usize) -> bool {
        if self.plan.kind != Kind::Tap {
            return true;
        }
        let (port, bridge) = (self.port(host), self.bridge(host));
        exists(&format!("{port}/master"))
            || exists(&port) && try_run(&format!("ip link set {port} master {bridge}")).0
    }

    /// Joins all of them.
    pub fn attach_all(&self) {
        let start = Instant::now();
        while !(0..HOSTS).all(|host| self.attach(host)) {
            assert!(start.elapsed() < PATIENCE, "the switch makes no TAP interfaces");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes the wire of a host down, or up.
    pub fn set_link(&self, host: usize, up: bool) {
        let word = if up { "up" } else { "down" };
        // A TAP interface that the switch makes anew may be missing for the moment.
        let (done, _, error) = try_run(&format!("ip link set {} {word}", self.port(host)));
        assert!(done || self.plan.kind == Kind::Tap, "{error}");
    }

    /// Deletes the interface that the switch has.
    pub fn pull(&self, host: usize) {
        run(&format!("ip link delete {}", self.port(host)));
    }

    /// Makes a new one; a TAP interface is the switch's to make.
    pub fn plug(&self, host: usize) {
        if self.plan.kind != Kind::Tap {
            self.net.add_pair(host);
            self.equip(host);
        }
    }

    /// Whether an XDP program is on an interface of the switch.
    pub fn has_xdp(&self) -> bool {
        (0..HOSTS).any(|host| {
            try_run(&format!("ip -d link show {}", self.port(host))).1.contains("prog/xdp")
        })
    }

    /// The file of rules that the switch reads at the start and on SIGHUP.
    pub fn rules(&self) -> PathBuf {
        self.folder.path().join("rules.txt")
    }

    /// Writes it; each `edition` says the same of what hosts send to each other.
    pub fn write_rules(&self, edition: u64) {
        let mut text = format!(
            "# edition {edition}\n\
             cookie={NEVER_COOKIE},priority=60000,udp,in_port=5,tp_dst={NEVER},actions=drop\n\
             priority=60000,udp,in_port=5,tp_dst={TO_CONTROLLERS},actions=controller\n\
             priority=50001,in_port=4,actions=normal\n\
             priority=50000,arp,actions=normal\n\
             priority=50000,ip,nw_dst=10.77.0.4,actions=normal\n\
             priority=50000,icmp,nw_dst=10.77.0.6,actions=output:6\n\
             priority=50000,udp,nw_dst=10.77.0.6,tp_dst={ECHO},actions=output:6\n"
        );
        for host in [A, B, C, E] {
            let (address, port) = (address(host), host + 1);
            text += &format!("priority=50000,ip,nw_dst={address},actions=output:{port}\n");
        }
        for n in 0..edition % 7 {
            text += &format!("priority=40,ip,nw_src=10.125.{n}.{edition},actions=drop\n");
        }
        // As a whole, as an editor does it.
        let (new, file) = (self.folder.path().join("rules.new"), self.rules());
        fs::write(&new, text).and_then(|()| fs::rename(&new, &file)).expect("written");
    }

    /// Waits until hosts hear each other.
    pub fn wait_for_forwarding(&self) {
        let start = Instant::now();
        let from = self.net.space(A);
        for to in [B, C, D] {
            let to = address(to);
            let ping = format!("ip netns exec {from} ping -c 1 -W 1 {to}");
            loop {
                let (answered, _, error) = try_run(&ping);
                if answered {
                    break;
                }
                // What ping itself has to say, were it only that it is not there.
                let error = error.trim();
                assert!(start.elapsed() < PATIENCE, "{to} does not answer; {ping}: {error}");
            }
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.plan.kind == Kind::Tap {
            for host in 0..HOSTS {
                let _ = try_run(&format!("ip link delete {}", self.bridge(host)));
            }
        }
    }
}
