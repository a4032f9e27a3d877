//! `overbank gateway`: captures through it, and hosts in namespaces that talk through it.

use crate::net::Net;
use crate::process::{Running, must, overbank, totals_of};
use overbank_ports::{Limits, read_ethernet};
use overbank_testing::capture::{self, FAULTS, tshark};
use std::fs;
use std::path::Path;
use std::process::Command;

pub const HEADER: &str = "id,n3,teid,peer,peer_teid,qfi,ipv4";

fn frames(path: &Path) -> Vec<Vec<u8>> {
    let store = read_ethernet(path, &Limits::default()).expect("a capture");
    store.iter().map(|frame| frame.data.to_vec()).collect()
}

fn checksum(header: &[u8]) -> [u8; 2] {
    let words = header.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// An IPv4 packet that must not be fragmented, and has no identification.
fn ipv4(src: [u8; 4], dst: [u8; 4], ttl: u8, tos: u8, proto: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b] = (20 + payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x45, tos, a, b, 0, 0, 0x40, 0, ttl, proto, 0, 0];
    packet.extend(src.into_iter().chain(dst));
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend(payload);
    packet
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let head = [ports[0], ports[1], 8 + payload.len() as u16, 0];
    let head = head.iter().flat_map(|word| word.to_be_bytes());
    head.chain(payload.iter().copied()).collect()
}

fn ethernet(dst: u8, src: u8, packet: &[u8]) -> Vec<u8> {
    let mac = |n| [2, 0, 0, 0, 0, n];
    [&mac(dst)[..], &mac(src), &[8, 0], packet].concat()
}

const N3: [u8; 4] = [192, 0, 2, 1];
const PEER: [u8; 4] = [198, 51, 100, 7];
const TERMINAL: [u8; 4] = [10, 45, 0, 2];
const HOST: [u8; 4] = [203, 0, 113, 80];

fn g_pdu(teid: u8, packet: &[u8]) -> Vec<u8> {
    let [a, b] = (packet.len() as u16).to_be_bytes();
    let message = [&[0x30, 255, a, b, 0, 0, 0, teid], packet].concat();
    ethernet(3, 0x13, &ipv4(PEER, N3, 64, 0, 17, &udp([2152, 2152], &message)))
}

/// Captured GTP-U in, the packets inside it out; and back.
#[test]
fn captures_pass_both_ways() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let write = |path: &Path, frames: &[Vec<u8>]| {
        capture::write(path, frames.iter().map(Vec::as_slice)).expect("written");
    };
    let inner = |ttl| ipv4(TERMINAL, HOST, ttl, 0, 17, &udp([5000, 5001], b"question"));
    let spoofed = ipv4([10, 45, 0, 3], HOST, 64, 0, 17, &udp([5000, 5001], b"question"));
    let echo = [0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0];
    let echo = ethernet(3, 0x13, &ipv4(PEER, N3, 64, 0, 17, &udp([40_000, 2152], &echo)));
    let up = [g_pdu(1, &inner(64)), g_pdu(1, &spoofed), echo, g_pdu(9, &inner(64)), vec![0; 20]];
    write(&at("up.pcap"), &up);
    let answer = |ttl| ipv4(HOST, TERMINAL, ttl, 0xb8, 17, &udp([5001, 5000], b"answer"));
    let other = ipv4(HOST, [10, 45, 9, 9], 64, 0, 17, &udp([5001, 5000], b"answer"));
    write(&at("down.pcap"), &[ethernet(6, 0x16, &answer(64)), ethernet(6, 0x16, &other)]);
    fs::write(at("s.csv"), format!("{HEADER}\n1,192.0.2.1,1,198.51.100.7,0x2001,9,10.45.0.2\n"))
        .expect("written");
    let port = |name, input, output| {
        let (input, output) = (at(input), at(output));
        format!("{name}=pcap:in={},out={}", input.display(), output.display())
    };
    let mut command = overbank();
    command.args(["gateway", "--metrics", "off", "--format", "json", "--duration", "60"]);
    command.args(["--port", &port("n3", "up.pcap", "to-n3.pcap")]);
    command.args(["--port", &port("n6", "down.pcap", "to-n6.pcap")]);
    command.args(["--n3-address", "192.0.2.1", "--ue-pool", "10.45.0.0/16", "--sessions"]);
    command.arg(at("s.csv"));
    command.args(["--next-hop", "n3=default@02:00:00:00:00:13"]);
    command.args(["--next-hop", "n6=default@02:00:00:00:00:16"]);
    let checked = Command::new(command.get_program())
        .args(command.get_args())
        .arg("--check")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(text, "configuration is valid: 1 session\n");
    let output = command.output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let totals = totals_of("overbank-gateway/1", &String::from_utf8_lossy(&output.stdout));

    // Ports of captures have no MAC address: frames leave with zeros.
    let mut decapsulated = ethernet(0x16, 0, &inner(63));
    decapsulated[6..12].fill(0);
    assert_eq!(frames(&at("to-n6.pcap")), [decapsulated]);
    for file in ["to-n3.pcap", "to-n6.pcap"] {
        assert_eq!(tshark(&at(file), FAULTS, &[]), [""; 0]);
    }
    let to_n3 = frames(&at("to-n3.pcap"));
    assert_eq!(to_n3.len(), 3);
    let mut response = to_n3.iter().filter(|frame| frame[43] == 2);
    assert_eq!(
        response.next().map(|frame| &frame[36..]),
        Some(&[0x9c, 0x40, 0, 22, 0, 0, 0x32, 2, 0, 6, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 14, 0,][..])
    );
    assert!(to_n3.iter().any(|frame| frame[43] == 26), "an Error Indication");
    let tunnelled = to_n3.iter().find(|frame| frame[43] == 255).expect("a G-PDU");
    let inside = answer(63);
    let len = (8 + inside.len()) as u8;
    let header = [0x34, 255, 0, len, 0, 0, 0x20, 1, 0, 0, 0, 0x85, 1, 0, 9, 0];
    assert_eq!(tunnelled[42..], [&header[..], &inside].concat());
    assert_eq!((tunnelled[15], &tunnelled[26..34]), (0xb8, &[192, 0, 2, 1, 198, 51, 100, 7][..]));

    let (n3, n6) = (&totals["ports"][0], &totals["ports"][1]);
    let dropped = |port: &serde_json::Value, reason: &str| port["dropped"][reason].as_u64();
    assert_eq!((dropped(n3, "spoofed_source"), dropped(n3, "unknown_teid")), (Some(1), Some(1)));
    assert_eq!(dropped(n6, "unknown_ue"), Some(1));
    let total = |name: &str| totals["total"][name].as_u64();
    assert_eq!((total("uplink"), total("downlink")), (Some(1), Some(1)));
    assert_eq!((total("echo_answered"), total("error_indications")), (Some(1), Some(1)));
}

#[test]
fn wrong_settings_and_sessions_are_all_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let sessions = folder.path().join("s.csv");
    let run = |n3: &str, echo: &str| {
        let mut command = overbank();
        command.args([
            "gateway",
            "--echo-interval",
            echo,
            "--check",
            "--port",
            "n3=tap:a",
            "--port",
            "n6=tap:b",
        ]);
        command.args(["--n3-address", n3, "--ue-pool", "10.45.0.0/16", "--sessions"]);
        let output = command.arg(&sessions).output().expect("runs");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let lines =
        "1,192.0.2.1,1,198.51.100.7,1,,10.45.0.2\n2,192.0.2.1,1,198.51.100.7,1,,10.46.0.2\n";
    fs::write(&sessions, format!("{HEADER}\n{lines}3,192.0.2.1,3,198.51.100.7,1,,10.45.0.2\n"))
        .expect("written");
    let errors = run("192.0.2.1", "0");
    assert!(errors.contains("2 problems"), "{errors}");
    for wanted in [
        "s.csv:3: address 10.46.0.2 is in no UE pool; pools: 10.45.0.0/16",
        "s.csv:4: address 10.45.0.2 belongs to session 1; session 3 needs another (line 2)",
    ] {
        assert!(errors.contains(wanted), "{wanted}: {errors}");
    }
    let errors = run("nowhere", "60");
    assert!(errors.contains("--n3-address: \"nowhere\": must be the IP address"), "{errors}");
    let errors = run("192.0.2.1", "5");
    assert!(errors.contains("--echo-interval: 5: must be 0 (off) or at least 60"), "{errors}");
}

/// Sends a datagram through the tunnel to the host behind N6 and prints what comes back.
const TERMINAL_SIDE: &str = "\
import socket,struct,sys
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.78.0.1',2152));s.settimeout(2)
u=struct.pack('!4H',6000,5001,12,0)+b'ping'
p=struct.pack('!BBHHHBBH4s4s',69,0,32,0,16384,64,17,0,bytes([10,45,0,2]),bytes([10,78,0,2]))
w=struct.unpack('!10H',p);c=sum(w);c=~((c&65535)+(c>>16))&65535
p=p[:10]+struct.pack('!H',c)+p[12:]+u
for i in range(int(sys.argv[1])):
  s.sendto(struct.pack('!BBHI',48,255,len(p),1)+p,('10.78.0.9',2152))
  try:
    m=s.recv(2000);print('answer',m[4:8].hex(),m[-4:].decode());break
  except TimeoutError:print('silence')";
const HOST_SIDE: &str = "\
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.78.0.2',5001))
print('up',flush=True)
while 1:
  d,a=s.recvfrom(99);s.sendto(d[::-1],a)";

#[test]
fn a_terminal_reaches_a_host_until_its_gate_closes() {
    let Some(net) = Net::new("gw", 2) else { return };
    let address = |space: Option<u8>, name: &str| {
        let inside = space.map_or(String::new(), |n| format!("ip netns exec {}", net.space(n)));
        must(&format!("{inside} cat /sys/class/net/{name}/address")).trim().to_owned()
    };
    let near = [address(None, &net.near(1)), address(None, &net.near(2))];
    let far = [address(Some(1), "eth0"), address(Some(2), "eth0")];
    // N3 has a configured route, N6 the kernel's: an address, and a neighbour that it knows.
    let space = net.space(1);
    must(&format!("ip -n {space} neigh replace 10.78.0.9 lladdr {} dev eth0", near[0]));
    let space = net.space(2);
    must(&format!("ip -n {space} neigh replace 10.78.0.9 lladdr {} dev eth0", near[1]));
    let n6 = net.near(2);
    must(&format!("ip address add 10.78.0.10/32 dev {n6}"));
    must(&format!("ip route add 10.78.0.2/32 dev {n6}"));
    must(&format!("ip -n {} route add 10.45.0.0/16 via 10.78.0.9", net.space(2)));
    let folder = tempfile::tempdir().expect("a folder");
    let sessions = folder.path().join("s.csv");
    let write = |gate: &str| {
        let line = "1,10.78.0.9,1,10.78.0.1,0x2001,9,10.45.0.2";
        fs::write(&sessions, format!("{HEADER},gate\n{line},{gate}\n")).expect("written");
    };
    write("open");
    let mut command = overbank();
    command.args(["gateway", "--metrics", "off", "--format", "json"]);
    command.args(["--port", &format!("n3=afpacket:{}", net.near(1))]);
    command.args(["--port", &format!("n6=afpacket:{}", net.near(2))]);
    command.args(["--n3-address", "10.78.0.9", "--ue-pool", "10.45.0.0/16", "--sessions"]);
    command.arg(&sessions);
    command.args(["--next-hop", &format!("n3=default@{}", far[0])]);
    let mut running = Running::start(&mut command);
    // Learnt while it runs.
    must(&format!("ip neigh replace 10.78.0.2 lladdr {} dev {n6}", far[1]));
    let _host = net.serve(2, HOST_SIDE);
    let ask = |tries: u32| {
        let space = net.space(1);
        let output = Command::new("ip")
            .args(["netns", "exec", &space, "python3", "-c", TERMINAL_SIDE, &tries.to_string()])
            .output()
            .expect("python is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let answer = ask(20);
    assert!(answer.ends_with("answer 00002001 gnip\n"), "{answer}");
    write("closed");
    running.signal("HUP");
    running.expect("settings and sessions read again");
    assert_eq!(ask(1), "silence\n");
    fs::write(&sessions, format!("{HEADER}\n1,2,3\n")).expect("written");
    running.signal("HUP");
    running.expect("settings and sessions unchanged");
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    let dropped = &totals["ports"][0]["dropped"];
    assert!(dropped["gate_closed"].as_u64().is_some_and(|n| n >= 1), "{dropped}");
    assert_eq!(totals["control"]["sessions"], 1);
}

/// Answers datagrams with their bytes turned round.
const ECHOING: &str = "\
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.79.2.1',5001))
print('up',flush=True)
while 1:
  d,a=s.recvfrom(99);s.sendto(d[::-1],a)";

/// A gateway in a separate namespace, between an access network and a data network: its next hops
/// are those of its kernel.
pub struct Site {
    pub net: Net,
}

impl Site {
    /// Namespaces 1 (access), 2 (data) and 3 (control), at 10.79.N.1; the gateway is in namespace
    /// 4, at 10.79.N.9 on interface pN.
    pub fn new(tag: &str) -> Option<Site> {
        let net = Net::new(tag, 4)?;
        for host in 1..=3 {
            let (space, near, gateway) = (net.space(host), net.near(host), net.space(4));
            must(&format!(
                "ip link set {near} netns {gateway} name p{host} && \
                 ip -n {gateway} address add 10.79.{host}.9/24 dev p{host} && \
                 ip -n {gateway} link set p{host} up && \
                 ip -n {space} address flush dev eth0 && \
                 ip -n {space} address add 10.79.{host}.1/24 dev eth0"
            ));
        }
        must(&format!("ip -n {} route add 10.45.0.0/16 via 10.79.2.9", net.space(2)));
        Some(Site { net })
    }

    /// The gateway's command, with ports of this kind.
    pub fn gateway(&self, kind: &str) -> Command {
        let mut command = self.gateway_of_file(kind);
        command.args(["--ue-pool", "10.45.0.0/16"]);
        command
    }

    /// The same, with its pools in a file.
    fn gateway_of_file(&self, kind: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.net.space(4)]).arg(overbank().get_program());
        command.args(["gateway", "--metrics", "off", "--format", "json"]);
        command.args(["--port", &format!("n3={kind}:p1"), "--port", &format!("n6={kind}:p2")]);
        command.args(["--n3-address", "10.79.1.9"]);
        command
    }

    /// Sends packets of 10.45.0.2 through a tunnel until one is answered.
    fn ask(&self, teid: u32, tries: u32) -> String {
        self.ask_of(45, teid, tries)
    }

    /// The same, with 10.POOL.0.2.
    fn ask_of(&self, pool: u8, teid: u32, tries: u32) -> String {
        let script = TERMINAL_SIDE
            .replace("10,45,0,2", &format!("10,{pool},0,2"))
            .replace("10.78.0.1'", "10.79.1.1'")
            .replace("10.78.0.9'", "10.79.1.9'")
            .replace("10,78,0,2", "10,79,2,1")
            .replace("len(p),1)", "len(p),int(sys.argv[2]))");
        let output = Command::new("ip")
            .args(["netns", "exec", &self.net.space(1), "python3", "-c", &script])
            .args([tries.to_string(), teid.to_string()])
            .output()
            .expect("python is there");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[test]
fn next_hops_come_from_the_kernel() {
    next_hops("gk", "afpacket");
}

/// The kernel keeps what is not the gateway's: its answers to ARP and ping.
#[test]
fn af_xdp_ports_take_the_gateways_frames_alone() {
    next_hops("gx", "afxdp");
}

/// The XDP program follows the pools: packets to the new one come to the gateway, those to the old
/// one stay with the kernel. A reload with an error changes neither.
#[test]
fn a_reload_changes_what_af_xdp_ports_take() {
    let Some(site) = Site::new("gr") else { return };
    must(&format!("ip -n {} route add 10.46.0.0/16 via 10.79.2.9", site.net.space(2)));
    let folder = tempfile::tempdir().expect("a folder");
    let (sessions, config) = (folder.path().join("s.csv"), folder.path().join("gw.toml"));
    let write = |pool: &str, of: &str| {
        fs::write(&config, format!("ue-pool = \"{pool}\"\n")).expect("written");
        let line = format!("1,10.79.1.9,1,10.79.1.1,0x2001,9,{of}.0.2");
        fs::write(&sessions, format!("{HEADER}\n{line}\n")).expect("written");
    };
    write("10.45.0.0/16", "10.45");
    let mut command = site.gateway_of_file("afxdp");
    command.arg("--sessions").arg(&sessions).arg("--config").arg(&config);
    let mut running = Running::start(&mut command);
    let _host = site.net.serve(2, ECHOING);
    let answer = site.ask(1, 20);
    assert!(answer.ends_with("answer 00002001 gnip\n"), "{answer}");
    // The session's address is in no pool: all stays.
    write("10.46.0.0/16", "10.45");
    running.signal("HUP");
    running.expect("settings and sessions unchanged");
    let answer = site.ask(1, 20);
    assert!(answer.ends_with("answer 00002001 gnip\n"), "{answer}");
    write("10.46.0.0/16", "10.46");
    running.signal("HUP");
    running.expect("settings and sessions read again");
    let answer = site.ask_of(46, 1, 20);
    assert!(answer.ends_with("answer 00002001 gnip\n"), "{answer}");
    // To the old pool: the kernel's.
    let space = site.net.space(2);
    must(&format!("ip netns exec {space} ping -c 2 -i 0.2 -W 1 10.45.0.2 || true"));
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    let dropped = &totals["ports"][1]["dropped"];
    assert_eq!(dropped["not_ue"].as_u64().unwrap_or(0), 0, "{dropped}");
    assert_eq!(totals["total"]["downlink"], 3, "{}", totals["total"]);
}

fn next_hops(tag: &str, kind: &str) {
    let Some(site) = Site::new(tag) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let sessions = folder.path().join("s.csv");
    let line = "1,10.79.1.9,1,10.79.1.1,0x2001,9,10.45.0.2";
    fs::write(&sessions, format!("{HEADER}\n{line}\n")).expect("written");
    let running = Running::start(site.gateway(kind).arg("--sessions").arg(&sessions));
    let _host = site.net.serve(2, ECHOING);
    let answer = site.ask(1, 20);
    assert!(answer.ends_with("answer 00002001 gnip\n"), "{answer}");
    must(&format!("ip netns exec {} ping -c 1 -W 5 10.79.1.9", site.net.space(1)));
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    if kind == "afxdp" {
        let dropped = &totals["ports"][0]["dropped"];
        let others = ["not_ip", "not_udp", "other_mac", "other_address"];
        let seen = others.map(|reason| dropped[reason].as_u64().unwrap_or(0));
        assert_eq!(seen, [0; 4], "{dropped}");
    }
    // The first packet to the host found no next hop; the kernel was asked.
    assert!(totals["total"]["downlink"].as_u64() >= Some(1), "{}", totals["total"]);
}

/// An SMF, played by scapy: a session whose tunnel the gateway chooses, a handover to the gNB, a
/// session that wants the same address, the end.
#[cfg(feature = "pfcp")]
const SMF: &str = "\
import socket,sys
from scapy.contrib.pfcp import *
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('10.79.3.1',8805));s.settimeout(10)
seq=0
def ask(m,seid=None):
    global seq
    seq+=1
    s.sendto(bytes((PFCP(seq=seq,S=0) if seid is None else PFCP(seq=seq,S=1,seid=seid))/m),('10.79.3.9',8805))
    r=PFCP(s.recv(4000))
    assert r.seq==seq,r.show(dump=True)
    return r
def accepted(r):
    assert r[IE_Cause].cause==1,r.show(dump=True)
    return r
node=IE_NodeId(id_type=0,ipv4='10.79.3.1');stamp=IE_RecoveryTimeStamp(timestamp=3785653512)
assert ask(PFCPHeartbeatRequest(IE_list=[stamp])).haslayer(PFCPHeartbeatResponse)
accepted(ask(PFCPAssociationSetupRequest(IE_list=[node,stamp])))
L=lambda c,*l:c(IE_list=list(l))
wanted=L(PFCPSessionEstablishmentRequest,node,IE_FSEID(v4=1,seid=0xabc,ipv4='10.79.3.1'),
 L(IE_CreatePDR,IE_PDR_Id(id=1),IE_Precedence(precedence=200),
  L(IE_PDI,IE_SourceInterface(interface='Core'),IE_UE_IP_Address(V4=1,ipv4='10.45.0.2',SD=1)),
  IE_FAR_Id(id=1),IE_QER_Id(id=1)),
 L(IE_CreatePDR,IE_PDR_Id(id=2),IE_Precedence(precedence=200),
  L(IE_PDI,IE_SourceInterface(interface='Access'),IE_FTEID(CH=1,V4=1)),
  IE_OuterHeaderRemoval(header='GTP-U/UDP/IPv4'),IE_FAR_Id(id=2),IE_QER_Id(id=1)),
 L(IE_CreateFAR,IE_FAR_Id(id=1),IE_ApplyAction(BUFF=1,NOCP=1)),
 L(IE_CreateFAR,IE_FAR_Id(id=2),IE_ApplyAction(FORW=1),
  L(IE_ForwardingParameters,IE_DestinationInterface(interface='Core'))),
 L(IE_CreateQER,IE_QER_Id(id=1),IE_GateStatus(ul=0,dl=0),IE_QFI(QFI=9)))
r=accepted(ask(wanted,0))
assert r.seid==0xabc
seid,teid=r[IE_FSEID].seid,r[IE_FTEID].TEID
def to(teid,*more):
    accepted(ask(L(PFCPSessionModificationRequest,L(IE_UpdateFAR,IE_FAR_Id(id=1),IE_ApplyAction(FORW=1),
     L(IE_UpdateForwardingParameters,IE_DestinationInterface(interface='Access'),
      IE_OuterHeaderCreation(GTPUUDPIPV4=1,TEID=teid,ipv4='10.79.1.1'),*more))),seid))
to(0x2001)
assert ask(wanted,0)[IE_Cause].cause==73
print(teid,flush=True)
sys.stdin.readline()
to(0x2002,IE_PFCPSMReqFlags(SNDEM=1))
print('handed over',flush=True)
sys.stdin.readline()
accepted(ask(PFCPSessionDeletionRequest(),seid))
print('deleted',flush=True)";

#[cfg(feature = "pfcp")]
#[test]
fn an_smf_makes_and_ends_a_session() {
    use crate::process::wait;
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let Some(site) = Site::new("gp") else { return };
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/scapy/bin/python");
    let python = std::env::var_os("OVERBANK_SCAPY")
        .map_or(python, |folder| Path::new(&folder).join("bin/python"));
    if !overbank_testing::needs("scapy (cargo xtask test packages)", python.exists()) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    site.net.must(4, "ethtool -K p3 tx off");
    let captures = [(1, "n3.pcap"), (3, "n4.pcap")];
    let _sniffers = captures.map(|(host, name)| site.net.capture(host, &at(name)));
    let running = Running::start(site.gateway("afpacket").args(["--pfcp", "10.79.3.9:8805"]));
    let _host = site.net.serve(2, ECHOING);
    let mut smf = Command::new("ip")
        .args(["netns", "exec", &site.net.space(3)])
        .arg(python)
        .args(["-c", SMF])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python is there");
    let mut to_smf = smf.stdin.take().expect("piped");
    let mut lines = BufReader::new(smf.stdout.take().expect("piped")).lines();
    let mut line = || lines.next().expect("the SMF goes on").expect("text");
    let teid: u32 = line().parse().expect("a TEID");
    let answer = site.ask(teid, 20);
    assert!(answer.ends_with("answer 00002001 gnip\n"), "{answer}");
    writeln!(to_smf).expect("it reads");
    assert_eq!(line(), "handed over");
    let answer = site.ask(teid, 20);
    assert!(answer.ends_with("answer 00002002 gnip\n"), "{answer}");
    drop(to_smf);
    assert_eq!(line(), "deleted");
    assert!(smf.wait().expect("it ends").success());
    // What comes now is an Error Indication.
    let answer = site.ask(teid, 1);
    assert!(answer.starts_with("answer 00000000"), "{answer}");
    // tshark finds no fault in what the process sent.
    let found = |name, filter: &str| tshark(&at(name), filter, &["frame.number"]).len();
    for (name, filter, count) in [
        ("n3.pcap", "gtp.message == 0xfe && gtp.teid == 0x2001", 1),
        ("n3.pcap", "gtp.message == 0x1a", 1),
        ("n4.pcap", "pfcp && ip.src == 10.79.3.9", 7),
    ] {
        wait("a capture", || found(name, filter) == count);
        let faults = format!("({FAULTS}) && (ip.src == 10.79.1.9 || ip.src == 10.79.3.9)");
        assert_eq!(tshark(&at(name), &faults, &[]), [""; 0]);
    }
    let totals = totals_of("overbank-gateway/1", &running.end("TERM"));
    assert_eq!(totals["control"]["sessions"], 0);
    assert_eq!(totals["total"]["error_indications"], 1);
}
