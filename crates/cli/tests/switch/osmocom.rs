//! Osmocom's GTP beside ours: osmo-ggsn, sgsnemu and gtp-echo-responder, of Debian.
//!
//! ```text
//!   namespace 1: sgsnemu ── eth0 ── p1 ─┬─ UDP 2123 (GTP-C) ─▶ osmo-ggsn    namespace 4
//!        tun0: the terminal             └─ UDP 2152 (GTP-U) ─▶ the gateway ── p2 ── 10.79.2.1
//! ```
//!
//! An AF_XDP port takes the tunnels' datagrams and leaves the rest to the kernel, so osmo-ggsn is
//! the control plane of the gateway's user plane at one address.

use crate::gateway::Site;
use crate::net::{Net, Serving};
use crate::process::{Running, must, overbank, sh, totals_of, wait};
use overbank_ports::{Limits, read_ethernet};
use overbank_testing::capture::{self, FAULTS, tshark};
use overbank_wire::gtpu::{self, Body, Message};
use overbank_wire::ip::Packet;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The gateway's access address, where osmo-ggsn serves GTP-C.
const GGSN: &str = "10.79.1.9";
const SGSN: &str = "10.79.1.1";

fn installed() -> bool {
    let there = sh("osmo-ggsn --version && sgsnemu --version && gtp-echo-responder --version");
    overbank_testing::needs("osmo-ggsn", there.status.success())
}

/// osmo-ggsn, and what it and its peers write.
struct Osmocom {
    folder: tempfile::TempDir,
    _processes: [Serving; 2],
}

impl Osmocom {
    fn start(net: &Net) -> Osmocom {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        // No router solicitations in the tunnel, which has no session yet.
        for host in [1, 4] {
            let off = ["all", "default"].map(|of| format!("net.ipv6.conf.{of}.disable_ipv6=1"));
            net.must(host, &format!("sysctl -qw {} {}", off[0], off[1]));
        }
        net.must(2, "ethtool -K eth0 tx off");
        let configuration = format!(
            "log stderr\n logging filter all 1\nline vty\n no login\nggsn ggsn0\n gtp state-dir {}\n \
             gtp bind-ip {GGSN}\n apn internet\n  gtpu-mode tun\n  tun-device tun4\n  \
             type-support v4\n  ip prefix dynamic 10.45.0.0/16\n  ip ifconfig 10.45.255.1/16\n  \
             no shutdown\n default-apn internet\n no shutdown ggsn\n",
            folder.path().display()
        );
        fs::write(at("ggsn.cfg"), configuration).expect("written");
        let sniffer = net.capture(1, &at("gtp.pcap"));
        let ggsn = format!("osmo-ggsn -c {}", at("ggsn.cfg").display());
        let ggsn = net.start(4, &ggsn, &at("ggsn.log"));
        let started =
            || fs::read_to_string(at("ggsn.log")).is_ok_and(|t| t.contains("GGSN(ggsn0): S"));
        wait("osmo-ggsn", started);
        Osmocom { folder, _processes: [sniffer, ggsn] }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sgsn(&self, net: &Net, arguments: &str) -> Serving {
        let folder = self.folder.path().display();
        let command = format!(
            "sgsnemu --statedir {folder} --pidfile {folder}/sgsn.pid -l {SGSN} -r {GGSN} {arguments}"
        );
        net.start(1, &command, &self.at("sgsn.log"))
    }

    /// The session that the two agreed on: TEIDs of both ends, and the terminal's address.
    fn agreed(&self) -> [String; 3] {
        let answers = "gtp.message == 0x10 || gtp.message == 0x11";
        let fields = "-T fields -e gtp.teid_data -e gtp.user_ipv4";
        let pcap = self.at("gtp.pcap");
        let mut agreed = None;
        wait("a request and its answer", || {
            let text = sh(&format!("tshark -n -r {} -Y '{answers}' {fields}", pcap.display()));
            let text = String::from_utf8_lossy(&text.stdout).into_owned();
            if let [sgsn, ggsn, terminal] = text.split_whitespace().collect::<Vec<_>>()[..] {
                agreed = Some([ggsn, sgsn, terminal].map(str::to_owned));
            }
            agreed.is_some()
        });
        agreed.expect("both")
    }

    /// Reads all of the capture that is GTP-U; counts messages by sender and kind.
    fn messages(&self) -> BTreeMap<(IpAddr, &'static str), usize> {
        let mut counts = BTreeMap::new();
        for frame in frames(&self.at("gtp.pcap")) {
            let Ok(datagram) = gtpu::datagram(&frame) else { continue };
            let message = Message::parse(datagram.payload()).expect("GTP-U");
            let kind = match message.body {
                Body::GPdu(packet) => {
                    Packet::parse(packet).expect("a packet of IP");
                    "packet"
                }
                Body::EchoRequest => "echo",
                Body::EchoResponse { .. } => "echo response",
                Body::ErrorIndication { .. } => "error",
                other => panic!("{other:?}"),
            };
            *counts.entry((datagram.ends.src(), kind)).or_insert(0) += 1;
        }
        counts
    }
}

/// Sends what is given in hexadecimal until it is answered; prints the answer.
const ASK: &str = "\
import socket,sys
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.settimeout(.5)
for i in range(100):
  s.sendto(bytes.fromhex(sys.argv[3]),(sys.argv[1],int(sys.argv[2])))
  try:
    print(s.recv(2000).hex());break
  except (TimeoutError,ConnectionError):pass";

/// Sends an Echo Request from host 1; returns the answer's sequence number and restart counter.
fn echo(net: &Net, to: &str, port: u16, sequence: u16) -> (Option<u16>, u8) {
    let request = Message::echo_request(sequence);
    let mut bytes = vec![0; request.emit_len()];
    request.emit(&mut bytes).expect("room");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = net.must(1, &format!("python3 -c \"{ASK}\" {to} {port} {hex}"));
    let text = text.trim();
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    let answer: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect();
    let answer = Message::parse(&answer).expect("GTP-U");
    match answer.body {
        Body::EchoResponse { recovery: Some(counter) } => (answer.sequence, counter),
        other => panic!("{other:?}"),
    }
}

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let store = read_ethernet(path, &Limits::default()).expect("a capture");
    store.iter().map(|frame| frame.data.to_vec()).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn the_gateway_is_the_user_plane_of_osmo_ggsn() {
    let Some(site) = Site::new("go") else { return };
    if !installed() {
        return;
    }
    let net = &site.net;
    let osmocom = Osmocom::start(net);
    // Its user plane, before the gateway takes its place.
    assert_eq!(echo(net, GGSN, 2152, 0x1234).0, Some(0x1234));
    let control = osmocom.at("control");
    let mut gateway = site.gateway("afxdp");
    let running = Running::start(gateway.arg("--control").arg(&control));
    let _sgsn = osmocom.sgsn(net, "--createif");
    let tunnel = || sh(&format!("ip -n {} address show tun0", net.space(1))).stdout;
    wait("a tunnel", || String::from_utf8_lossy(&tunnel()).contains("10.45."));
    let [teid, peer_teid, terminal] = osmocom.agreed();
    let ask = |words: &[&str]| {
        let mut command = overbank();
        command.args(["gateway", "sessions"]).args(words).arg("--control").arg(&control);
        let output = command.output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    ask(&[
        "add",
        "id=1",
        &format!("n3={GGSN}"),
        &format!("teid={teid}"),
        &format!("peer={SGSN}"),
        &format!("peer_teid={peer_teid}"),
        &format!("ipv4={terminal}"),
    ]);
    must(&format!("ip -n {} route add 10.79.2.0/24 dev tun0 mtu lock 1400", net.space(1)));
    let ping = |count: u32| {
        sh(&format!("ip netns exec {} ping -i 0.2 -c {count} -W 2 10.79.2.1", net.space(1)))
    };
    wait("an answer", || ping(1).status.success());
    let text = String::from_utf8_lossy(&ping(5).stdout).into_owned();
    assert!(text.contains(" 0% packet loss"), "{text}");
    net.transfers_from("10.79.2.1");
    // Without its session, the peer gets an Error Indication that it understands.
    ask(&["remove", "1"]);
    assert!(!ping(1).status.success());
    wait("the peer ends its tunnel", || {
        fs::read_to_string(osmocom.at("sgsn.log")).is_ok_and(|text| text.contains("Received Error"))
    });
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    let total = |name: &str| totals["total"][name].as_u64().expect("a number");
    // What one of them sent, the other has, and all of it can be read.
    let received = totals["ports"][0]["received"].as_u64().expect("a number");
    let expected = [received, total("downlink"), total("error_indications")];
    wait("the rest of the capture", || {
        let counts = osmocom.messages();
        let count = |from: &str, kind| counts.get(&(ip(from), kind)).copied().unwrap_or(0) as u64;
        [count(SGSN, "packet"), count(GGSN, "packet"), count(GGSN, "error")] == expected
    });
    assert_eq!(total("error_indications"), 1);
    assert!(total("downlink_bytes") > 8_000_000, "{totals:#}");
}

/// gtp-echo-responder serves the port of GTP-C, whose Echo has the same bytes.
#[test]
fn echo_is_answered_as_others_answer_it() {
    let Some(site) = Site::new("ge") else { return };
    if !installed() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let responder = format!("gtp-echo-responder -l {GGSN} -R 7");
    let _responder = site.net.start(4, &responder, &folder.path().join("log"));
    assert_eq!(echo(&site.net, GGSN, 2123, 0xfffe), (Some(0xfffe), 7));
    let running = Running::start(&mut site.gateway("afxdp"));
    assert_eq!(echo(&site.net, GGSN, 2152, 0xfffe), (Some(0xfffe), 0));
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    assert_eq!(totals["total"]["echo_answered"], 1);
}

/// What sgsnemu and osmo-ggsn send each other, with sequence numbers, passes through the gateway
/// unchanged but for the TTL, in both of their directions.
#[test]
fn recorded_tunnels_are_read() {
    let Some(site) = Site::new("gr") else { return };
    if !installed() {
        return;
    }
    const PINGS: usize = 5;
    let osmocom = Osmocom::start(&site.net);
    let ping = format!("--pinghost=10.45.255.1 --pingrate=10 --pingcount={PINGS}");
    let _sgsn = osmocom.sgsn(&site.net, &ping);
    let [teid, peer_teid, terminal] = osmocom.agreed();
    let both = [SGSN, GGSN].map(|from| ((ip(from), "packet"), PINGS));
    wait("all pings and answers", || osmocom.messages() == BTreeMap::from(both));
    // Each end once in the place of the gateway.
    let header = "id,n3,teid,peer,peer_teid,ipv4";
    let up = format!("1,{GGSN},{teid},{SGSN},{peer_teid},{terminal}");
    let down = format!("2,{SGSN},{peer_teid},{GGSN},{teid},10.45.255.1");
    fs::write(osmocom.at("s.csv"), format!("{header}\n{up}\n{down}\n")).expect("written");
    capture::write(&osmocom.at("none.pcap"), []).expect("written");
    let mut command = overbank();
    command.args(["gateway", "--metrics", "off", "--format", "json", "--duration", "60"]);
    for (role, input) in [("n3", "gtp"), ("n6", "none")] {
        let [input, output] = [input, role].map(|name| osmocom.at(&format!("{name}.pcap")));
        let port = format!("{role}=pcap:in={},out={}", input.display(), output.display());
        command.args(["--port", &port]);
    }
    command.args(["--n3-address", GGSN, "--n3-address", SGSN, "--ue-pool", "10.45.0.0/16"]);
    command.args(["--next-hop", "n6=default@02:00:00:00:00:16", "--sessions"]);
    let output = command.arg(osmocom.at("s.csv")).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let inner = |frame: Vec<u8>| -> Option<Vec<u8>> {
        let message = Message::parse(gtpu::datagram(&frame).ok()?.payload()).ok()?;
        assert!(message.sequence.is_some(), "theirs have sequence numbers");
        let Body::GPdu(packet) = message.body else { panic!("{message:?}") };
        // The TTL, and the checksum over it.
        let mut packet = packet.to_vec();
        packet[8] -= 1;
        let sum = u16::from_be_bytes([packet[10], packet[11]]);
        let (sum, carry) = sum.overflowing_add(0x100);
        packet[10..12].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
        Some(packet)
    };
    let expected: Vec<Vec<u8>> =
        frames(&osmocom.at("gtp.pcap")).into_iter().filter_map(inner).collect();
    let sent: Vec<Vec<u8>> =
        frames(&osmocom.at("n6.pcap")).into_iter().map(|frame| frame[14..].to_vec()).collect();
    assert_eq!((sent.len(), &sent), (2 * PINGS, &expected));
    assert_eq!(tshark(&osmocom.at("n6.pcap"), FAULTS, &[]), [""; 0]);
}
