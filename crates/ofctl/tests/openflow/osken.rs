//! os-ken's stock learning switch as the controller, and hosts in network namespaces that ping each
//! other and run TCP through the switch.
//!
//! os-ken is looked for in the virtual environment that `OVERBANK_OSKEN` names, or in
//! `target/osken`, where `cargo xtask test packages` makes one.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use overbank_ofctl::Setup;
use overbank_ofctl::sessions::ControlOptions;
use overbank_ofctl::target::Target;
use overbank_runtime::ConfiguredPort;

use super::bench::{Bench, own_address, patient, wait};

const HOSTS: usize = 3;

/// The interpreter of the environment.
fn python() -> Option<PathBuf> {
    let folder = std::env::var_os("OVERBANK_OSKEN").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/osken"),
        PathBuf::from,
    );
    let python = folder.join("bin/python");
    let script = "\
import eventlet
from importlib.util import find_spec
assert find_spec('os_ken.app.simple_switch_13')
";
    let works = Command::new(&python).args(["-W", "ignore", "-c", script]).output();
    let works = works.is_ok_and(|output| output.status.success());
    let what = format!("os-ken with its applications in {}", folder.display());
    overbank_testing::needs(&what, works).then_some(python)
}

fn shell(line: &str) -> Output {
    Command::new("sh").args(["-c", line]).stdin(Stdio::null()).output().expect("sh is there")
}

fn run(line: &str) -> String {
    let output = shell(line);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Hosts, each in a separate namespace, each with an interface towards us.
struct Hosts {
    tag: String,
}

impl Hosts {
    /// Returns `None` where the test is skipped because it needs root.
    fn new() -> Option<Hosts> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let tag = format!("of{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let hosts = Hosts { tag };
        let added = shell(&format!("ip netns add {}", hosts.space(0))).status.success();
        if !overbank_testing::needs("root", added) {
            return None;
        }
        for host in 0..HOSTS {
            let (space, near) = (hosts.space(host), hosts.near(host));
            if host > 0 {
                run(&format!("ip netns add {space}"));
            }
            run(&format!(
                "ip link add {near} type veth peer name eth0 netns {space} && \
                 sysctl -qw net.ipv6.conf.{near}.disable_ipv6=1 && \
                 ip -n {space} address add 10.78.0.{}/24 dev eth0 && \
                 ip -n {space} link set lo up && ip -n {space} link set eth0 up && \
                 ip link set {near} up",
                host + 1
            ));
        }
        Some(hosts)
    }

    fn space(&self, host: usize) -> String {
        format!("{}h{host}", self.tag)
    }

    fn near(&self, host: usize) -> String {
        format!("{}p{host}", self.tag)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..HOSTS {
            shell(&format!("ip link del {}; ip netns del {}", self.near(host), self.space(host)));
        }
    }
}

/// Ended when it goes out of scope.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(silent.spawn().expect("it runs"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends its number of bytes, made from a seed, to each client.
const SERVER: &str = "
import random, socket, sys
listener = socket.create_server(('', 5001))
while True:
    connection, _ = listener.accept()
    connection.sendall(random.Random(7).randbytes(int(sys.argv[1])))
    connection.close()
";

/// Prints whether it got those bytes.
const CLIENT: &str = "
import random, socket, sys
connection = socket.create_connection((sys.argv[2], 5001), timeout=60)
got = b''.join(iter(lambda: connection.recv(65536), b''))
print('intact' if got == random.Random(7).randbytes(int(sys.argv[1])) else len(got))
";

const BYTES: usize = 4 << 20;

fn learning_switch(application: &str) {
    let Some(python) = python() else { return };
    let Some(hosts) = Hosts::new() else { return };
    let open = |host: usize| {
        let spec = format!("afpacket:{}", hosts.near(host)).parse().expect("a port");
        ConfiguredPort::open(host as u32 + 1, spec, 1).expect("it opens")
    };
    let ports = (0..HOSTS).map(open).collect();
    // A port that is free, and stays so.
    let host = own_address();
    let listener = TcpListener::bind((host, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    drop(listener);
    let options = ControlOptions {
        backoff: (Duration::from_millis(50), Duration::from_millis(200)),
        ..patient()
    };
    let target = Target::Connect { host: host.to_string(), port };
    let bench = Bench::over(Setup::default(), ports, options, vec![target]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openflow/osken.py");
    let controller =
        Running::start(Command::new(&python).args(["-W", "ignore"]).arg(script).args([
            &host.to_string(),
            &port.to_string(),
            &format!("os_ken.app.{application}"),
        ]));
    wait("the table-miss rule of the controller", || !bench.rules().is_empty());

    let exec = |host: usize| format!("ip netns exec {}", hosts.space(host));
    for (from, to) in [(0, 1), (0, 2), (2, 1)] {
        run(&format!("{} ping -c 3 -i 0.05 -W 20 10.78.0.{}", exec(from), to + 1));
    }
    let _server = Running::start(
        Command::new("ip")
            .args(["netns", "exec", &hosts.space(1), "python3", "-c", SERVER])
            .arg(BYTES.to_string()),
    );
    wait("the server listens", || run(&format!("{} ss -Hltn", exec(1))).contains(":5001"));
    for from in [0, 2] {
        let got = Command::new("ip")
            .args(["netns", "exec", &hosts.space(from), "python3", "-c", CLIENT])
            .args([&BYTES.to_string(), "10.78.0.2"])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&got.stdout);
        assert_eq!(text, "intact\n", "{}", String::from_utf8_lossy(&got.stderr));
    }
    // The controller saw the first packets, and its rules forwarded the rest.
    let counted = bench.counters.snapshot();
    assert!(counted.packet_ins_sent >= 3, "{counted:?}");
    assert!(counted.flow_mods >= 5, "{counted:?}");
    assert!(counted.packet_outs >= 3, "{counted:?}");
    assert_eq!(counted.errors_sent, 0, "{counted:?}");
    let learnt = bench.rules().iter().filter(|rule| rule.contains("dl_dst")).count();
    assert!(learnt >= 4, "{:#?}", bench.rules());
    // Workers tell their counts from time to time.
    wait("many frames for each of its packets", || {
        let frames: u64 = bench.switch().status().ports.iter().map(|port| port.received).sum();
        counted.packet_ins_sent < frames / 5
    });

    // Without its controller the switch goes on by the rules that it has.
    drop(controller);
    wait("the controller is gone", || bench.counters.snapshot().connections == 0);
    run(&format!("{} ping -c 2 -i 0.05 -W 20 10.78.0.2", exec(0)));
}

#[test]
fn hosts_ping_and_run_tcp_under_the_learning_switch_of_1_3() {
    learning_switch("simple_switch_13");
}

#[test]
fn hosts_ping_and_run_tcp_under_the_learning_switch_of_1_4() {
    learning_switch("simple_switch_14");
}

#[test]
fn hosts_ping_and_run_tcp_under_the_learning_switch_of_1_5() {
    learning_switch("simple_switch_15");
}
