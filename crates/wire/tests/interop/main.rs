//! GTP-U against programs of others: what scapy writes is read here, and what is written here is
//! read by scapy and tshark, which must find no fault in it.
//!
//! scapy is looked for in the virtual environment that `OVERBANK_SCAPY` names, or in
//! `target/scapy`, where `cargo xtask test packages` makes one.
//!
//! A line says what is in a frame: outer addresses, TEID, sequence number, N-PDU number, PDU
//! Session Container, message. `-` is an absent field.

use std::fmt::Display;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use overbank_testing::capture::{self, FAULTS};
use overbank_wire::gtpu::{
    Body, Container, Downlink, Encap, Extension, Extensions, Link, Message, Outer, PORT, Uplink,
    datagram, kind,
};
use overbank_wire::icmp_error::{self, Problem};
use overbank_wire::ip::{Ends, Packet};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/scapy_gtpu.py");
const FRAMES: usize = 400;

/// Returns the interpreter of the environment.
fn python() -> Option<PathBuf> {
    let folder = std::env::var_os("OVERBANK_SCAPY").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/scapy"),
        PathBuf::from,
    );
    let python = folder.join("bin/python");
    let works = Command::new(&python).args(["-c", "import scapy.contrib.gtp"]).output();
    let works = works.is_ok_and(|output| output.status.success());
    overbank_testing::needs(&format!("scapy in {}", folder.display()), works).then_some(python)
}

fn scapy(python: &Path, arguments: &[&str], input: String) -> String {
    let mut child = Command::new(python)
        .arg(SCRIPT)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("an interpreter");
    let mut stdin = child.stdin.take().expect("piped");
    // The script answers while it reads.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("an output");
    assert!(output.status.success(), "scapy: {}", output.status);
    writer.join().expect("no panic").expect("it reads all");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns what tshark prints of the frames, each with these fields, if `filter` finds them.
fn tshark(frames: &[Vec<u8>], filter: &str, fields: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("frames.pcap");
    capture::write(&path, frames.iter().map(Vec::as_slice)).expect("written");
    capture::tshark(&path, filter, fields)
}

fn shown(value: Option<impl Display>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn session(container: Option<Container>) -> String {
    match container {
        None => "-".to_owned(),
        Some(Container::Downlink(Downlink { qfi, rqi, ppi, sent, sequence, .. })) => {
            let rest = [shown(ppi), shown(sent), shown(sequence)].join(",");
            format!("down,{qfi},{},{rest}", u8::from(rqi))
        }
        Some(Container::Uplink(up)) => {
            let times = up.monitoring.map_or([None; 3], |times| times.map(Some)).map(shown);
            let [dl, ul] = [up.dl_delay, up.ul_delay].map(shown);
            let rest = [dl, ul, shown(up.sequence), shown(up.n3_n9_delay)].join(",");
            format!("up,{},0,{},{rest}", up.qfi, times.join(","))
        }
    }
}

/// Reads a frame and returns its line.
fn line(frame: &[u8]) -> String {
    let found = datagram(frame).expect("a datagram");
    assert!(found.checksum_is_right());
    let message = Message::parse(found.payload()).expect("a message");
    let body = match message.body {
        Body::GPdu(packet) => {
            let inner = Packet::parse(packet).expect("an inner packet");
            format!("g-pdu {} {}", inner.ends.src(), inner.ends.dst())
        }
        Body::EchoRequest => "echo-request".to_owned(),
        Body::EchoResponse { recovery } => format!("echo-response {}", shown(recovery)),
        Body::ErrorIndication { teid, peer } => format!("error {teid} {peer}"),
        Body::EndMarker => "end".to_owned(),
        Body::SupportedExtensions(kinds) => format!("supported {kinds:?}"),
    };
    let session = session(message.extensions.session());
    let (src, dst, teid) = (found.ends.src(), found.ends.dst(), message.teid);
    let (sequence, n_pdu) = (shown(message.sequence), shown(message.n_pdu));
    format!("{src} {dst} {teid} {sequence} {n_pdu} {session} {body}")
}

fn ends(rng: &mut Pcg64Mcg) -> Ends {
    if rng.random() {
        let mut address = || {
            let [a, b, c] = rng.random::<[u8; 3]>().map(|byte| byte % 250 + 1);
            [10, a, b, c].into()
        };
        Ends::V4 { src: address(), dst: address() }
    } else {
        // Without runs of zeros, an address has one form.
        let mut address = || {
            let mut groups = rng.random::<[u16; 8]>().map(|group| group | 0x1000);
            groups[0] = 0x2001;
            groups.into()
        };
        Ends::V6 { src: address(), dst: address() }
    }
}

/// Returns a container that scapy and tshark know all of.
fn container(rng: &mut Pcg64Mcg) -> Option<Container> {
    fn maybe<T>(rng: &mut Pcg64Mcg, value: T) -> Option<T> {
        rng.random::<bool>().then_some(value)
    }
    let qfi = rng.random::<u8>() % 64;
    let [a, b, c, d] = rng.random::<[u32; 4]>();
    let times = rng.random();
    Some(match rng.random::<u8>() % 4 {
        0 => return None,
        1 => Container::downlink(qfi),
        2 => Container::Downlink(Downlink {
            qfi,
            rqi: rng.random(),
            ppi: maybe(rng, a as u8 % 8),
            sent: maybe(rng, u64::from(b)),
            sequence: maybe(rng, c >> 8),
            mbs_sequence: None,
        }),
        _ => Container::Uplink(Uplink {
            qfi,
            monitoring: maybe(rng, times),
            dl_delay: maybe(rng, a),
            ul_delay: maybe(rng, b),
            sequence: maybe(rng, c >> 8),
            n3_n9_delay: maybe(rng, d),
            pdcp_delay: None,
        }),
    })
}

/// Returns an inner packet: UDP over IPv4 or IPv6, with text that tshark takes for no protocol.
fn inner(rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut bytes = vec![];
    let payload = b"overbank";
    match ends(rng) {
        Ends::V4 { src, dst } => {
            let ip = etherparse::PacketBuilder::ipv4(src.octets(), dst.octets(), 64);
            ip.udp(5000, 5001).write(&mut bytes, payload).expect("written");
            // "Do not fragment", so that it can be too big.
            (bytes[6], bytes[10], bytes[11]) = (0x40, 0, 0);
            let header = etherparse::Ipv4Header::from_slice(&bytes).expect("a header").0;
            let sum = header.calc_header_checksum();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Ends::V6 { src, dst } => {
            let ip = etherparse::PacketBuilder::ipv6(src.octets(), dst.octets(), 64);
            ip.udp(5000, 5001).write(&mut bytes, payload).expect("written");
        }
    }
    bytes
}

/// Writes a frame and returns it with its line. Messages about paths are written with `Outer`,
/// packets with `Encap`.
fn written(rng: &mut Pcg64Mcg) -> (Vec<u8>, String) {
    let mut vlan = None;
    if rng.random() {
        vlan = Some(rng.random::<u16>() & 0xefff);
    }
    let link = Link { dst: [2, 0, 0, 0, 0, 2], src: [2, 0, 0, 0, 0, 1], vlan };
    let outer = Outer { link, ends: ends(rng), ttl: 64 };
    let (src, dst) = (outer.ends.src(), outer.ends.dst());
    let (sequence, teid) = (rng.random::<u16>(), rng.random::<u32>());
    let peer = ends(rng).src();
    let (message, body) = match rng.random::<u8>() % 10 {
        0 => (Message::echo_request(sequence), format!("0 {sequence} - - echo-request")),
        1 => (Message::echo_response(sequence), format!("0 {sequence} - - echo-response 0")),
        2 => {
            let text = format!("0 0 - - error {teid} {peer}");
            (Message::error_indication(teid, peer), text)
        }
        3 => (Message::end_marker(teid), format!("{teid} - - - end")),
        _ => {
            let packet = inner(rng);
            let flow = Packet::parse(&packet).expect("valid").flow_hash();
            let inner = Packet::parse(&packet).expect("valid").ends;
            let encap = Encap { outer, teid, session: container(rng) };
            let mut bytes = [&[0; Encap::LEN_MAX][..], &packet].concat();
            let range = Encap::LEN_MAX..bytes.len();
            let start = encap.write(&mut bytes, range, flow, 46).expect("room");
            let text = format!("g-pdu {} {}", inner.src(), inner.dst());
            let session = session(encap.session);
            let line = format!("{src} {dst} {teid} - - {session} {text}");
            return (bytes.split_off(start), line);
        }
    };
    (framed(&outer, &message), format!("{src} {dst} {body}"))
}

fn framed(outer: &Outer, message: &Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; Outer::LEN_MAX + message.emit_len()];
    let range = Outer::LEN_MAX..bytes.len();
    message.emit(&mut bytes[range.clone()]).expect("room");
    let start = outer.write(&mut bytes, range, [PORT, PORT], 48, 0).expect("room");
    bytes.split_off(start)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn what_scapy_writes_is_read() {
    let Some(python) = python() else { return };
    let text = scapy(&python, &["write", "1", &FRAMES.to_string()], String::new());
    assert_eq!(text.lines().count(), FRAMES);
    for written in text.lines() {
        let (frame, expected) = written.split_once('\t').expect("two columns");
        assert_eq!(line(&from_hex(frame)), expected, "{frame}");
    }
}

#[test]
fn what_is_written_scapy_reads() {
    let Some(python) = python() else { return };
    let mut rng = Pcg64Mcg::seed_from_u64(2);
    let (frames, lines): (Vec<_>, Vec<_>) = (0..FRAMES).map(|_| written(&mut rng)).unzip();
    let input: String = frames.iter().map(|frame| hex(frame) + "\n").collect();
    let read = scapy(&python, &["read"], input);
    assert_eq!(read.lines().count(), FRAMES);
    for ((frame, expected), read) in frames.iter().zip(&lines).zip(read.lines()) {
        assert_eq!(read, expected, "{}", hex(frame));
        assert_eq!(&line(frame), expected, "{}", hex(frame));
    }
}

#[test]
fn tshark_finds_no_fault_in_messages() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let mut frames: Vec<_> = (0..FRAMES).map(|_| written(&mut rng).0).collect();
    // What scapy does not know.
    let outer = Outer { link: Link::default(), ends: ends(&mut rng), ttl: 64 };
    let mut room = [0; 8];
    let port = Extension { kind: kind::UDP_PORT, content: &50_000u16.to_be_bytes() };
    let extensions = Extensions::write(&[port], &mut room).expect("room");
    let peer = IpAddr::from([192, 0, 2, 1]);
    let error = Message { extensions, ..Message::error_indication(7, peer) };
    frames.push(framed(&outer, &error));
    frames.push(framed(&outer, &Message::supported_extensions(9)));
    assert_eq!(tshark(&frames, FAULTS, &[]), Vec::<String>::new());

    let fields = ["gtp.message", "gtp.teid", "gtp.ext_hdr.pdu_ses_con.qos_flow_id"];
    let read = tshark(&frames, "gtp", &fields);
    assert_eq!(read.len(), frames.len());
    for (frame, read) in frames.iter().zip(read) {
        let message = Message::parse(datagram(frame).expect("ours").payload()).expect("ours");
        let kind = match message.body {
            Body::GPdu(_) => 0xff,
            Body::EchoRequest => 1,
            Body::EchoResponse { .. } => 2,
            Body::ErrorIndication { .. } => 0x1a,
            Body::EndMarker => 0xfe,
            Body::SupportedExtensions(_) => 0x1f,
        };
        let qfi = message.extensions.session().map_or(String::new(), |s| s.qfi().to_string());
        assert_eq!(read, format!("0x{kind:02x}\t0x{:08x}\t{qfi}", message.teid));
    }
    let port = tshark(&frames, "gtp.ext_hdr.udp_port == 50000", &["gtp.teid_data"]);
    assert_eq!(port, ["0x00000007"]);
    let list = tshark(&frames, "gtp.message == 0x1f", &["gtp.seq_number", "gtp.ext_hdr_type"]);
    assert_eq!(list.len(), 1);
}

/// tshark has to be able to find faults, or its silence means nothing.
#[test]
fn tshark_finds_a_changed_byte() {
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    let ends = Ends::V6 { src: 1.into(), dst: 2.into() };
    let outer = Outer { link: Link::default(), ends, ttl: 64 };
    let packet = inner(&mut rng);
    let encap = Encap { outer, teid: 1, session: None };
    let mut bytes = [&[0; Encap::LEN_MAX][..], &packet].concat();
    let range = Encap::LEN_MAX..bytes.len();
    let start = encap.write(&mut bytes, range, 1, 0).expect("room");
    let frame = bytes.split_off(start);
    let mut checksum = frame.clone();
    checksum[62 + 5] ^= 1; // The TEID.
    let mut length = framed(&outer, &Message::error_indication(1, [192, 0, 2, 1].into()));
    let last = length.len() - 5;
    length[last] = 40; // The length of the peer's address.
    length[60..62].fill(0);
    assert_eq!(tshark(&[frame, checksum, length], FAULTS, &["frame.number"]), ["2", "3"]);
}

#[test]
fn tshark_finds_no_fault_in_errors() {
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    let mut frames = vec![];
    for problem in [
        Problem::TooBig { mtu: 1400 },
        Problem::NoRoute,
        Problem::Host,
        Problem::Port,
        Problem::Prohibited,
    ] {
        for _ in 0..20 {
            let bytes = inner(&mut rng);
            let packet = Packet::parse(&bytes).expect("valid");
            let mut room = [0; icmp_error::LEN_MAX_V6];
            let here = packet.ends.dst();
            let len = icmp_error::write(problem, &packet, here, &mut room).expect("an answer");
            let dl_type: u16 = if here.is_ipv4() { 0x0800 } else { 0x86dd };
            let link = [&[2; 12][..], &dl_type.to_be_bytes()].concat();
            frames.push([&link, &room[..len]].concat());
        }
    }
    assert_eq!(tshark(&frames, FAULTS, &[]), Vec::<String>::new());
    let mtu = "icmp.mtu == 1400 || icmpv6.mtu == 1400";
    assert_eq!(tshark(&frames, mtu, &["frame.number"]).len(), 20);
    let inside = tshark(&frames, "udp.srcport == 5000", &["frame.number"]);
    assert_eq!(inside.len(), frames.len(), "the quoted headers are read");
}
