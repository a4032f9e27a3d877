//! Without the network: settings, captures, signals, privileges.

use crate::process::{PATIENCE, Running, overbank, totals, wait};
use overbank_ports::{Limits, read_ethernet};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

#[test]
fn all_problems_are_reported_before_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, rules) = (folder.path().join("switch.toml"), folder.path().join("rules.txt"));
    fs::write(&rules, "priority=1,actions=output:2\nactions=fly\n").expect("written");
    let text = format!("port = \"1=memory:\"\nrules = {rules:?}\nwokers = 2\nmac-age = -1\n");
    fs::write(&config, text).expect("written");
    let output = overbank().arg("switch").arg("--config").arg(&config).output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("3 problems"), "{errors}");
    for wanted in
        ["switch.toml:3: wokers: unknown setting", "switch.toml:4: mac-age: \"-1\"", "rules.txt:2:"]
    {
        assert!(errors.contains(wanted), "{wanted}: {errors}");
    }
    // Flags go before the file; `--check` starts nothing.
    fs::write(&rules, "priority=1,actions=output:2\n").expect("written");
    fs::write(&config, format!("port = \"1=memory:\"\nrules = {rules:?}\nworkers = 0\n"))
        .expect("written");
    let check = |more: &[&str]| {
        let mut command = overbank();
        command.args(["switch", "--check", "--config"]).arg(&config).args(more);
        command.output().expect("runs")
    };
    assert_eq!(check(&[]).status.code(), Some(1));
    let output = check(&["--workers", "2", "--port", "1=memory:", "--port", "2=tap:nowhere"]);
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "configuration is valid: 2 ports, 1 rule\n"
    );
    // Errors that only the system finds are reported for all ports as well.
    let output = overbank()
        .args(["switch", "--metrics", "off", "--port", "1=afpacket:nowhere0"])
        .args(["--port", "2=afpacket:nowhere1"])
        .output()
        .expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("port 1: ") && errors.contains("port 2: "), "{errors}");
}

/// The same frames leave as with `overbank replay`, whose every frame is checked by the oracle.
#[test]
fn captures_leave_as_replay_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (capture, rules) = (fixture("lan.pcap.gz"), fixture("lan.rules"));
    let replay = overbank()
        .args(["replay", "--quiet", "--rounds", "1", "--loops", "1", "--cache", "none"])
        .args(["--ports", "1,2,3", "--rules"])
        .arg(&rules)
        .arg("--out-dir")
        .arg(at("replay"))
        .arg(&capture)
        .output()
        .expect("runs");
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    for workers in ["1", "2"] {
        let out = |port: u32| at(&format!("w{workers}-{port}.pcap"));
        let mut command = overbank();
        command.args(["switch", "--metrics", "off", "--format", "json", "--workers", workers]);
        command.args(["--duration", "60", "--rules"]).arg(&rules).arg("--port").arg(format!(
            "1=pcap:in={},out={}",
            capture.display(),
            out(1).display()
        ));
        for port in [2, 3] {
            command.arg("--port").arg(format!("{port}=pcap:out={}", out(port).display()));
        }
        let output = command.output().expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert!(errors.contains("all captures are done"), "{errors}");
        let totals = totals(&String::from_utf8_lossy(&output.stdout));
        let frames = |path: &Path| -> Vec<Vec<u8>> {
            let store = read_ethernet(path, &Limits::default()).expect("a capture");
            store.iter().map(|frame| frame.data.to_vec()).collect()
        };
        assert_eq!(totals["ports"][0]["received"], frames(&capture).len());
        for port in [1, 2, 3] {
            let wanted = frames(&at("replay").join(format!("port-{port}.pcap")));
            assert!(!wanted.is_empty());
            assert!(frames(&out(port)) == wanted, "port {port}, {workers} workers");
        }
    }
}

/// Status documents of a switch that runs.
fn top(socket: &Path) -> Value {
    let output = overbank()
        .args(["top", "--once", "--format", "json", "--interval", "0.2", "--socket"])
        .arg(socket)
        .output()
        .expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn signals_reload_the_rules_and_end_the_switch() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rules, socket) = (folder.path().join("rules.txt"), folder.path().join("socket"));
    let notified = folder.path().join("notify");
    let manager = UnixDatagram::bind(&notified).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("set");
    let told = || {
        let mut text = [0; 64];
        let n = manager.recv(&mut text).expect("told in time");
        String::from_utf8_lossy(&text[..n]).into_owned()
    };
    fs::write(&rules, "in_port=1,actions=output:2\n").expect("written");
    let mut running = Running::start(
        overbank()
            .args(["switch", "--metrics", "127.0.0.1:0", "--format", "json", "--workers", "2"])
            .args(["--port", "1=memory:flows=100", "--port", "2=memory:"])
            .arg("--rules")
            .arg(&rules)
            .arg("--status-socket")
            .arg(&socket)
            .env("NOTIFY_SOCKET", &notified),
    );
    assert_eq!(told(), "READY=1");
    let rate =
        |port: usize, what: &str| top(&socket)["ports"][port][what].as_f64().expect("a number");
    wait("forwarding", || rate(1, "sent") > 0.0);
    assert_eq!(rate(0, "dropped"), 0.0);
    // A file with an error changes nothing, and says so with its line.
    fs::write(&rules, "in_port=1,actions=drop\nactions=fly\n").expect("written");
    running.signal("HUP");
    let line = running.expect("rules not reloaded");
    assert!(line.contains("rules.txt:2:"), "{line}");
    running.expect("rules unchanged");
    assert_eq!((told(), told()), ("RELOADING=1".into(), "READY=1".into()));
    wait("forwarding", || rate(1, "sent") > 0.0);
    assert_eq!(rate(0, "dropped"), 0.0);
    // A good one takes the place of the old one as a whole.
    fs::write(&rules, "in_port=1,actions=drop\npriority=5,in_port=2,actions=output:1\n")
        .expect("written");
    running.signal("HUP");
    let line = running.expect("rules read again");
    assert!(line.contains("added=1") && line.contains("changed=1"), "{line}");
    wait("dropping", || rate(0, "dropped") > 0.0 && rate(1, "sent") == 0.0);
    let rates = top(&socket);
    assert_eq!((&rates["rules"], &rates["closes"]), (&2.into(), &true.into()));
    // As text, for people.
    let output = overbank()
        .args(["top", "--once", "--interval", "0.1", "--socket"])
        .arg(&socket)
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("tier 1") && text.contains("memory:flows=100"), "{text}");
    let totals = totals(&running.end("TERM"));
    assert!(totals["ports"][0]["received"].as_u64() > Some(1000));
    assert_eq!(totals["control"]["reloads"], 2, "the start and one good reload");
    assert_eq!((told(), told()), ("RELOADING=1".into(), "READY=1".into()));
    assert_eq!(told(), "STOPPING=1");
    assert!(!socket.exists(), "the socket is gone with the switch");
    let output =
        overbank().args(["top", "--once", "--socket"]).arg(&socket).output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("no switch, gateway or proxy answers"),
        "{errors}"
    );
}

#[test]
fn a_controller_cannot_flood_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("of.sock");
    let start = Instant::now();
    let mut running = Running::start(
        overbank()
            .args(["switch", "--port", "1=memory:", "--metrics", "off", "--openflow"])
            .arg(format!("punix:{}", socket.display())),
    );
    let mut peer = None;
    wait("the socket", || {
        peer = UnixStream::connect(&socket).ok();
        peer.is_some()
    });
    let mut peer = peer.expect("connected");
    // Hello, a thousand errors, and an echo request to see their end.
    let mut bytes = vec![4, 0, 0, 8, 0, 0, 0, 1];
    for _ in 0..1000 {
        bytes.extend([4, 1, 0, 12, 0, 0, 0, 2, 0, 1, 0, 1]);
    }
    bytes.extend([4, 2, 0, 8, 0, 0, 0, 3]);
    peer.write_all(&bytes).expect("sent");
    let mut answers = Vec::new();
    while !answers.ends_with(&[4, 3, 0, 8, 0, 0, 0, 3]) {
        let mut some = [0; 256];
        let n = peer.read(&mut some).expect("it answers");
        assert!(n > 0, "the session ended: {answers:?}");
        answers.extend(&some[..n]);
    }
    running.signal("TERM");
    running.child.wait().expect("it ends");
    let most = 1 + start.elapsed().as_secs();
    let lines: Vec<String> = running.log.iter().filter(|l| l.contains("sent an error")).collect();
    assert!((1..=most).contains(&(lines.len() as u64)), "{}: {:?}", lines.len(), lines.first());
}

#[test]
fn ctrl_c_prints_tables_and_metrics_are_on_loopback() {
    let mut running = Running::start(
        overbank()
            .args(["switch", "--metrics", "127.0.0.1:0", "--log-format", "json"])
            .args(["--port", "1=memory:flows=10", "--port", "2=memory:", "--fail-mode"])
            .arg("standalone"),
    );
    let line = running.expect("\"metrics\"");
    let line: Value = serde_json::from_str(&line).expect("JSON logs");
    let address = line["fields"]["address"].as_str().expect("an address").to_owned();
    assert!(address.starts_with("127.0.0.1:"));
    wait("packets", || {
        let output = overbank()
            .args(["top", "--once", "--format", "json", "--interval", "0.1", "--address", &address])
            .output()
            .expect("runs");
        let rates: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        rates["total"]["packets"].as_f64() > Some(0.0)
    });
    let status = fs::read_to_string(format!("/proc/{}/status", running.child.id())).expect("there");
    let line = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).expect("there");
    assert_eq!(line("NoNewPrivs:").trim(), "1");
    // CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_BPF 39; nothing else.
    let rights = u64::from_str_radix(line("CapPrm:").trim(), 16).expect("hexadecimal");
    assert_eq!(rights & !(1 << 12 | 1 << 13 | 1 << 39), 0, "{rights:x}");
    let text = running.end("INT");
    assert!(text.contains("memory:flows=10") && text.contains("tier 1"), "{text}");
    assert!(!text.contains("DO NOT CLOSE"), "{text}");
}
