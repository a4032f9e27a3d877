//! `--mode l2`: hosts that talk through the Ethernet switch, by real frames.

use crate::net::Net;
use crate::process::{Running, must, overbank, totals, wait};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// A switch of two workers between all hosts.
fn switch(net: &Net, kind: &str, hosts: u8, more: &[&str]) -> Command {
    let mut command = overbank();
    command.args(["switch", "--mode", "l2", "--workers", "2"]);
    command.args(["--metrics", "off", "--format", "json"]);
    for host in 1..=hosts {
        command.arg("--port").arg(format!("{host}={kind}:{}", net.near(host)));
    }
    command.args(more);
    command
}

fn address(net: &Net, host: u8) -> String {
    must(&format!("ip netns exec {} cat /sys/class/net/eth0/address", net.space(host)))
        .trim()
        .to_owned()
}

/// The status of the switch.
fn status(socket: &Path) -> Value {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.write_all(b"status\n").expect("it reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("it answers");
    serde_json::from_str(&line).expect("one JSON document")
}

/// What the switch knows.
fn fdb(socket: &Path, more: &[&str]) -> Value {
    let mut command = overbank();
    let output = command.args(["fdb", "--format", "json", "--socket"]).arg(socket).args(more);
    let output = output.output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Waits for a frame of a test and prints the VLAN that the kernel took off.
const LISTEN: &str =
    "import socket,struct;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,0x300);\
    s.setsockopt(263,8,1);s.bind(('eth0',3));s.settimeout(60);print('up',flush=True)
while True:
    d,a,_,_=s.recvmsg(2000,256)
    if d[12:14]==b'\\x88\\xb5':
        print(struct.unpack_from('H',a[0][2],16)[0]&4095,flush=True);break";

/// One host sends a frame in VLAN 10, and another one gets it, its tag included.
fn talks_in_vlan(net: &Net, from: u8, to: u8) {
    let mut listener = Command::new("ip")
        .args(["netns", "exec", &net.space(to), "python3", "-c", LISTEN])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(listener.stdout.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says so");
    let bytes = format!("{}{}8100000a88b5", address(net, to), address(net, from)).replace(':', "");
    must(&format!(
        "ip netns exec {} python3 -c \"import socket;s=socket.socket(socket.AF_PACKET,\
         socket.SOCK_RAW);s.bind(('eth0',0));s.send(bytes.fromhex('{bytes}')+bytes(46))\"",
        net.space(from)
    ));
    line.clear();
    said.read_line(&mut line).expect("what it got");
    listener.wait().expect("it ends");
    assert_eq!(line.trim(), "10", "from {from} to {to}");
}

fn through_it(kind: &str, tag: &str) {
    let Some(net) = Net::new(tag, 3) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let at = socket.display().to_string();
    let mut running = Running::start(&mut switch(&net, kind, 3, &["--status-socket", &at]));
    for (from, to) in [(1, 2), (2, 3), (3, 1)] {
        wait("a ping", || net.pings(from, to));
    }
    // Hosts 1 and 3 also talk in VLAN 10, with the same Ethernet addresses.
    talks_in_vlan(&net, 1, 3);
    talks_in_vlan(&net, 3, 1);
    net.transfers();
    // Everybody is where they are, in each VLAN.
    for (host, vlan) in [(1, 0), (2, 0), (3, 0), (1, 10), (3, 10)] {
        let (mac, vlan) = (address(&net, host), vlan.to_string());
        let mut stations = Value::Null;
        wait(&format!("host {host}, VLAN {vlan}"), || {
            stations = fdb(&socket, &["--mac", &mac, "--vlan", &vlan])["stations"].take();
            stations.as_array().expect("a list").len() == 1
        });
        assert_eq!(stations[0]["port"], host);
    }
    let output = overbank().args(["fdb", "--port", "2", "--socket"]).arg(&socket).output();
    let text = String::from_utf8_lossy(&output.expect("runs").stdout).into_owned();
    assert!(text.contains(&address(&net, 2)) && !text.contains(&address(&net, 1)), "{text}");
    let output = overbank().args(["fdb", "--vlan", "5000", "--socket"]).arg(&socket).output();
    let output = output.expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("from 0 to 4095"), "{errors}");
    let mut command = overbank();
    let top = command.args(["top", "--once", "--interval", "0.1", "--socket"]).arg(&socket);
    let text = String::from_utf8_lossy(&top.output().expect("runs").stdout).into_owned();
    assert!(text.contains("Ethernet") && text.contains("addresses"), "{text}");
    // A port is pulled out and plugged in again: its stations are forgotten, and learnt anew.
    net.unplug(2);
    running.expect("the interface is gone");
    wait("flushed", || fdb(&socket, &["--port", "2"])["stations"] == Value::Array(Vec::new()));
    net.plug(2);
    must(&format!("ip -n {} neighbour flush all", net.space(1)));
    running.expect("is open again");
    wait("a ping again", || net.pings(1, 2));
    let totals = totals(&running.end("TERM"));
    assert_eq!(totals["mode"], "l2");
    let sent = |port: usize| totals["ports"][port]["sent_bytes"].as_u64().expect("a number");
    assert!(sent(0) > 8_000_000, "{totals:#}");
    assert!(sent(2) < 1_000_000, "what is for host 1 does not go to host 3: {totals:#}");
    assert!(totals["control"]["macs"]["flushed"].as_u64() > Some(0), "{totals:#}");
}

#[test]
fn hosts_talk_through_the_ethernet_switch_on_packet_sockets() {
    through_it("afpacket", "e");
}

#[test]
fn hosts_talk_through_the_ethernet_switch_on_af_xdp() {
    through_it("afxdp", "f");
}

#[test]
fn isolated_hosts_talk_to_the_rest_and_static_ones_stay() {
    let Some(net) = Net::new("i", 3) else { return };
    // Host 3 will take the address of host 1; the configuration knows better.
    let fixed = format!("{}=1", address(&net, 1));
    let more = ["--isolated", "1,2", "--mac-static", &fixed];
    let running = Running::start(&mut switch(&net, "afpacket", 3, &more));
    wait("a ping", || net.pings(1, 3));
    wait("a ping", || net.pings(2, 3));
    assert!(!net.pings(1, 2) && !net.pings(2, 1));
    must(&format!(
        "ip -n {0} link set eth0 address {1} && ip -n {0} neighbour flush all",
        net.space(3),
        address(&net, 1)
    ));
    assert!(!net.pings(3, 2), "its frames are not taken");
    let totals = totals(&running.end("TERM"));
    let port = |n: usize| &totals["ports"][n];
    assert!(port(2)["dropped"]["static_elsewhere"].as_u64() > Some(0), "{totals:#}");
    assert_eq!(totals["control"]["stations_static"], 1);
    assert_eq!(totals["control"]["macs"]["moved"], 0);
}

/// Over before the switch looks: hosts behind the port may have moved.
#[test]
fn a_link_that_is_down_for_an_instant_is_flushed() {
    let Some(net) = Net::new("k", 2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let at = socket.display().to_string();
    let running = Running::start(&mut switch(&net, "afpacket", 2, &["--status-socket", &at]));
    let flushed = || status(&socket)["control"]["macs"]["flushed"].as_u64().expect("a number");
    wait("a ping", || net.pings(1, 2));
    let near = net.near(1);
    wait("both are known", || {
        let known =
            |host| fdb(&socket, &["--mac", &address(&net, host)])["stations"][0]["port"] == host;
        known(1) && known(2) && flushed() == 0
    });
    // Its first looks may have been before the last host came up.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = flushed();
    must(&format!("ip link set {near} down; ip link set {near} up"));
    wait("its station is gone", || flushed() > before);
    wait("a ping", || net.pings(1, 2));
    let totals = totals(&running.end("TERM"));
    assert_eq!(totals["control"]["macs"]["moved"], 0);
}

/// Sends frames from sources that do not exist, as fast as it can, until it is killed.
const FLOOD: &str = "import os,socket;s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW)
s.bind(('eth0',0));d=bytes.fromhex('020000000909')
while True: s.send(d+b'\\x02'+os.urandom(5)+b'\\x88\\xb5'+bytes(46))";

#[test]
fn hosts_talk_beside_a_flood_of_invented_addresses() {
    let Some(net) = Net::new("g", 3) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let at = socket.display().to_string();
    let more = ["--mac-entries", "100", "--mac-rate", "200", "--status-socket", &at];
    let running = Running::start(&mut switch(&net, "afpacket", 3, &more));
    wait("a ping", || net.pings(1, 2));
    let mut flood = Command::new("ip")
        .args(["netns", "exec", &net.space(3), "python3", "-c", FLOOD])
        .spawn()
        .expect("the flood starts");
    wait("a full table, and transfers beside it", || {
        net.transfers();
        let status = status(&socket);
        let (control, total) = (&status["control"], &status["total"]);
        control["stations"] == 100
            && control["macs"]["refused"].as_u64() > Some(0)
            && total["learn_limited"].as_u64() > Some(0)
    });
    wait("a ping", || net.pings(2, 1));
    for host in [1, 2] {
        let listing = fdb(&socket, &["--mac", &address(&net, host)]);
        assert_eq!(listing["stations"][0]["port"], host, "{listing:#}");
    }
    flood.kill().expect("it runs");
    flood.wait().expect("it ends");
    let totals = totals(&running.end("TERM"));
    assert_eq!(totals["control"]["stations"], 100);
    assert_eq!(totals["control"]["macs"]["moved"], 0, "no address moved");
}

#[test]
fn settings_of_other_modes_are_refused() {
    let output = overbank()
        .args(["switch", "--check", "--mode", "l2", "--port", "1=memory:", "--openflow", "ptcp:"])
        .args(["--isolated", "2", "--mac-static", "02:00:00:00:00:01", "--mac-pages", "2g"])
        .args(["--mac-static", "02:00:00:00:00:01=+1"])
        .output()
        .expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for wanted in [
        "5 problems",
        "--openflow: not a setting of mode l2; remove it or use mode openflow",
        "--isolated: port 2 is not configured; configured: 1",
        "--mac-static: \"02:00:00:00:00:01\": must be MAC[@VLAN]=PORT",
        "--mac-static: \"+1\": must be a number from 1 to",
        "--mac-pages: \"2g\": must be one of huge, 1g, small",
    ] {
        assert!(errors.contains(wanted), "{wanted}: {errors}");
    }
}
