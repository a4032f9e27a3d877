//! `overbank replay` on real traffic, end to end.
//!
//! A capture of real programs is replayed by the built binary; every frame of every output capture
//! must be the one that the oracle (a linear scan of the rules) says, and tshark must find neither
//! a bad checksum nor a malformed frame among them. Once with the committed capture, once with one
//! that `tests/fixtures/make-capture.sh` makes on the spot, which takes root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use overbank_ports::{Capture, FrameStore, Limits, read_ethernet};
use overbank_switch::oracle::Oracle;
use overbank_switch::parse::parse_rules;
use serde_json::Value;

const PORTS: [u32; 3] = [1, 2, 3];
const DESIGNS: [&str; 3] = ["set-4", "cuckoo-2-4", "blp-2-16+pblru"];

/// What tshark must not find.
const FAULTS: &str =
    "_ws.expert.group == \"Checksum\" || _ws.expert.group == \"Malformed\" || _ws.malformed";

/// What the rules make of the capture: output port, filter that must find something there.
const REWRITTEN: [(u32, &str); 13] = [
    (2, "ip.dst == 192.0.2.80 && tcp.dstport == 8080 && eth.dst == 02:00:00:00:aa:02"),
    (1, "ip.src == 192.0.2.80 && tcp.srcport == 8080 && tcp.len > 1000"),
    (2, "ipv6.dst == 2001:db8::80 && tcp.dstport == 8080"),
    (2, "vlan.id == 53 && dns && ip.ttl == 63"),
    (2, "dns && eth.src == 02:00:00:00:00:ff"),
    (2, "ip.dst == 192.0.2.7 && udp.dstport == 7007"),
    (2, "ip.dst == 192.0.2.7 && udp.dstport == 7 && udp.length > 1400"),
    (1, "ip.src == 192.0.2.7 && ip.frag_offset > 0"),
    (2, "ipv6.dst == 2001:db8::7 && ipv6.fraghdr"),
    (3, "icmp && ip.dst == 198.51.100.3"),
    (1, "icmpv6 && ipv6.src == 2001:db8::3 && ipv6.fraghdr"),
    (1, "ieee8021ad.id == 200 && vlan.id == 20"),
    (2, "ieee8021ad.id == 31 && vlan.id == 40"),
];

#[test]
fn the_committed_capture_leaves_as_the_oracle_says() {
    check(&fixtures().join("lan.pcapng"), &REWRITTEN);
}

#[test]
fn one_port_of_it_with_gzip_leaves_as_the_oracle_says() {
    check(&fixtures().join("lan.pcap.gz"), &[]);
}

#[test]
fn a_capture_made_now_leaves_as_the_oracle_says() {
    let root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    assert!(root, "this test makes network namespaces: it must run as root (sudo -E cargo test)");
    let folder = tempfile::tempdir().expect("a folder for the capture");
    let script = fixtures().join("make-capture.sh");
    succeed(Command::new(script).arg(folder.path()));
    check(&folder.path().join("lan.pcapng"), &REWRITTEN);
}

/// tshark has to be able to find faults, or its silence means nothing.
#[test]
fn tshark_finds_a_flipped_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.pcapng");
    let mut bytes = fs::read(fixtures().join("lan.pcapng")).expect("the fixture");
    // Inside of a page that came over TCP.
    let page = b"\n2000\n2001\n";
    let at = bytes.windows(page.len()).position(|w| w == page).expect("the page is in the capture");
    bytes[at + 1] ^= 1;
    fs::write(&broken, bytes).expect("writing the broken capture");
    assert_eq!(tshark(&broken, FAULTS).lines().count(), 1);
}

fn check(capture: &Path, rewritten: &[(u32, &str)]) {
    let rules = fixtures().join("lan.rules");
    let folder = tempfile::tempdir().expect("a folder for the output");
    let out = folder.path().join("out");
    let output = succeed(
        Command::new(env!("CARGO_BIN_EXE_overbank"))
            .args(["replay", "--format", "json", "--quiet", "--loops", "3", "--rounds", "1"])
            .args(["--warmup", "1", "--entries", "4096", "--cache", &DESIGNS.join(",")])
            .args(["--ports", "1,2,3"])
            .arg("--rules")
            .arg(&rules)
            .arg("--out-dir")
            .arg(&out)
            .arg(capture),
    );
    let record: Value = serde_json::from_slice(&output.stdout).expect("a JSON document");

    let frames = read_ethernet(capture, &Limits::default()).expect("the capture is readable");
    let expected = Expected::from_oracle(&frames, &rules);
    for port in PORTS {
        let file = out.join(format!("port-{port}.pcap"));
        compare(&file, &expected.outputs[&port]);
        assert_eq!(tshark(&file, FAULTS), "", "port {port}: checksums or malformed frames");
    }
    for (port, filter) in rewritten {
        let found = tshark(&out.join(format!("port-{port}.pcap")), filter);
        assert_ne!(found, "", "port {port}: no frame with {filter}");
    }

    let designs = record["designs"].as_array().expect("a list of designs");
    assert_eq!(designs.iter().map(|d| &d["design"]).collect::<Vec<_>>(), DESIGNS);
    for design in designs {
        assert_eq!(design["digest"], record["digest"], "{design}");
        let first_pass = &design["first_pass"];
        assert_eq!(first_pass["packets"], frames.len(), "{design}");
        assert_eq!(first_pass["drops"], serde_json::json!(expected.drops), "{design}");
        for tally in first_pass["ports"].as_array().expect("a list of ports") {
            let port = tally["port"].as_u64().expect("a port number") as u32;
            let outputs = &expected.outputs[&port];
            assert_eq!(tally["packets"], outputs.len(), "{design}");
            let bytes: usize = outputs.iter().map(|(_, frame)| frame.len()).sum();
            assert_eq!(tally["bytes"], bytes, "{design}");
        }
    }
}

/// What must leave by each port, in order, with the time that its frame came in; and how many
/// frames leave by none, by reason.
struct Expected {
    outputs: BTreeMap<u32, Vec<(u64, Vec<u8>)>>,
    drops: BTreeMap<&'static str, u64>,
}

impl Expected {
    fn from_oracle(frames: &FrameStore, rules: &Path) -> Expected {
        let text = fs::read_to_string(rules).expect("the rules are readable");
        let oracle = Oracle::new(parse_rules(&text).expect("the rules are right"));
        let mut expected = Expected {
            outputs: PORTS.iter().map(|&port| (port, Vec::new())).collect(),
            drops: BTreeMap::new(),
        };
        for frame in frames.iter() {
            let verdict = oracle.process(frame.data, frame.interface + 1, &PORTS);
            for (port, bytes) in verdict.outputs {
                let outputs = expected.outputs.get_mut(&port).expect("one of the ports");
                outputs.push((frame.timestamp_ns, bytes));
            }
            if let Some(reason) = verdict.drop {
                *expected.drops.entry(reason.name()).or_default() += 1;
            }
        }
        expected
    }
}

fn compare(file: &Path, expected: &[(u64, Vec<u8>)]) {
    let mut capture = Capture::open(file).expect("an output capture");
    let mut count = 0;
    while let Some(packet) = capture.next_packet().expect("a whole capture") {
        let (time, frame) = expected.get(count).unwrap_or_else(|| {
            panic!("{}: more than the {} frames expected", file.display(), expected.len())
        });
        assert_eq!(packet.timestamp_ns, *time, "{}: time of frame {count}", file.display());
        assert!(
            packet.data == &frame[..],
            "{}: frame {count}\n     is {}\nexpected {}",
            file.display(),
            hex(packet.data),
            hex(frame)
        );
        count += 1;
    }
    assert_eq!(count, expected.len(), "{}: frames", file.display());
}

/// The lines that tshark prints for the frames of a capture that a filter finds.
fn tshark(capture: &Path, filter: &str) -> String {
    let output = succeed(
        Command::new("tshark")
            .args(["-n", "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE"])
            .args(["-o", "udp.check_checksum:TRUE", "-Y", filter, "-r"])
            .arg(capture),
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; `cargo xtask test` installs what is missing")
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stderr}", output.status);
    output
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
