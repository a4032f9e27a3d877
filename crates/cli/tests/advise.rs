//! `overbank advise` as a person or a script sees it.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn advise(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.env_remove("OVERBANK_SIMD").arg("advise").args(arguments);
    command.output().expect("the command starts")
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

fn json(arguments: &[&str]) -> Value {
    let output = advise(&[arguments, &["--format", "json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert!(errors.is_empty(), "nothing on standard error without a terminal: {errors}");
    serde_json::from_slice(&output.stdout).expect("standard output is one JSON document")
}

#[test]
fn drawn_traffic_gets_predictions_that_hold() {
    let advice =
        json(&["--flows", "7783", "--zipf", "0.8", "--cache", "set-8,cuckoo-2-4,blp-2-16+pblru"]);
    assert_eq!(advice["schema"], "overbank-advise/1");
    assert_eq!(advice["traffic"]["kind"], "built_in");
    let cells = advice["cells"].as_array().expect("an array");
    // 2^10 to 2^15: four times the flows.
    assert_eq!(cells.len(), 3 * 6);
    for cell in cells {
        let measured = cell["measured"].as_f64().expect("a number");
        match cell["predicted"].as_f64() {
            Some(p) => assert!((p - measured).abs() < 0.01, "{cell}"),
            None => assert_eq!(cell["design"], "blp-2-16+pblru"),
        }
    }
    assert_eq!(advice["model"]["within_a_point"], 2 * 6);
    let theta = advice["profile"]["skew"]["theta"].as_f64().expect("a number");
    assert!((theta - 0.8).abs() < 0.05, "{theta}");
    let r = &advice["recommendation"];
    // Of those that were tried, at the size that was chosen; what a trial finds is up to the
    // machine.
    let tried = cells.iter().filter(|c| !c["lookup_ns"].is_null());
    let (mut best, mut chosen) = (f64::MAX, f64::MAX);
    for cell in tried {
        assert_eq!(cell["entries"], r["entries"]);
        let ns = cell["ns_per_packet"].as_f64().expect("a number");
        best = best.min(ns);
        if cell["design"] == r["design"] {
            chosen = ns;
        }
    }
    assert!(chosen <= 1.02 * best, "{chosen} ns, and {best} ns can be had: {r}");
    assert!(r["reason"].as_str().expect("text").contains("half the entries"));
    // The costs decide: where misses cost nothing, the smallest table will do.
    let free = json(&["--flows", "7783", "--miss-ns", "0", "--cache", "set-8"]);
    assert_eq!(free["recommendation"]["entries"], 1024);
}

#[test]
fn a_capture_gets_advice_and_a_page() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let report = dir.path().join("advice.html");
    let capture = fixture("lan.pcapng");
    let capture = capture.to_str().expect("UTF-8");
    let advice = json(&[capture, "--report", report.to_str().expect("UTF-8")]);
    let (traffic, profile) = (&advice["traffic"], &advice["profile"]);
    assert_eq!((&traffic["kind"], &traffic["file"]), (&"capture".into(), &"lan.pcapng".into()));
    assert_eq!(traffic["frames"], profile["packets"]);
    assert!(profile["flows"].as_u64() > Some(10) && profile["seconds"].as_f64() > Some(0.1));
    let windows = profile["windows"].as_array().expect("an array");
    let new: u64 = windows.iter().map(|w| w["new_flows"].as_u64().expect("a count")).sum();
    assert_eq!(Some(new), profile["flows"].as_u64(), "every flow is new once");
    // Everything fits: each flow misses once.
    let flows = profile["flows"].as_f64().expect("a count");
    let expected = 1.0 - flows / profile["packets"].as_f64().expect("a count");
    let measured = advice["recommendation"]["hit_rate"].as_f64().expect("a rate");
    assert!((measured - expected).abs() < 0.01, "{measured} {expected}");
    let page = fs::read_to_string(&report).expect("the report is there");
    for part in ["<svg", "blp-2-16", "Working set over time", "lan.pcapng"] {
        assert!(page.contains(part), "{part} is in the report");
    }
    for outside in ["http://", "https://", "<script", "<link", "src="] {
        assert!(!page.contains(outside), "{outside}: the page needs nothing from outside");
    }
    let output = advise(&[capture]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for part in ["Recommended", "Working set", "predicted %", "new flows", "Zipf θ", "tried"] {
        assert!(text.contains(part), "{part} is printed:\n{text}");
    }
    // The headline names what the table calls best.
    let headline = text.lines().find_map(|line| line.strip_prefix("Recommended: "));
    let (design, size) = headline.and_then(|h| h.split_once(" with ")).expect("a headline");
    let entries = size.split_once(" entries").expect("its size").0;
    let (_, table) = text.split_once("Best design of each size").expect("a table");
    let mut rows = table.lines().skip(1).take_while(|line| !line.is_empty());
    let named = |row: &str| row.trim().starts_with(&format!("{design} ")) && row.contains(entries);
    assert!(rows.any(named), "{design}, {entries}:\n{text}");
}

/// Fails with one line that contains all of `parts`.
fn refused(code: i32, arguments: &[&str], parts: &[&str]) {
    let output = advise(arguments);
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} prints no result");
    for part in parts {
        assert!(errors.contains(part), "{arguments:?}: {part} is not in: {errors}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
    assert!(code != 1 || errors.trim_end().lines().count() == 1, "{errors}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let cut = dir.path().join("cut.pcapng");
    let capture = fs::read(fixture("lan.pcapng")).expect("the fixture");
    fs::write(&cut, &capture[..capture.len() - 7]).expect("written");
    let cut = cut.to_str().expect("UTF-8");
    refused(1, &["nowhere.pcap"], &["nowhere.pcap", "No such file"]);
    refused(1, &[cut], &["cut.pcapng", "truncated"]);
    refused(1, &["--interface", "nowhere0"], &["nowhere0", "no such network interface"]);
    refused(1, &["--report", "/nowhere/advice.html"], &["/nowhere/advice.html", "no directory"]);
    refused(2, &["--cache", "set-5"], &["set-5", "blp-2-16"]);
    refused(2, &["--cache", "none"], &["none"]);
    refused(2, &["--flows", "0"], &["--flows"]);
    refused(2, &["--seconds", "5"], &["--interface"]);
    refused(2, &[cut, "--flows", "5"], &["--flows"]);
    refused(2, &["--miss-ns", "-1"], &[]);
    refused(1, &["--core", "9999"], &["--core: core 9999 is unavailable"]);
    refused(2, &["--core", "0", "--no-calibration"], &["--core", "--no-calibration"]);
}

/// The capture stays what it was, whatever the report is called.
#[test]
fn a_report_does_not_take_the_place_of_the_capture() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let victim = dir.path().join("victim.pcap");
    let frames = fs::read(fixture("lan.pcapng")).expect("the fixture");
    fs::write(&victim, &frames).expect("written");
    let name = victim.to_str().expect("UTF-8");
    let other = format!("{}/./victim.pcap", dir.path().display());
    for report in [name, other.as_str()] {
        refused(1, &[name, "--report", report], &["victim.pcap", "is an input"]);
        assert!(fs::read(&victim).expect("there") == frames);
    }
    // The same from standard input.
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.args(["advise", "-", "--report", name]);
    let output = command.stdin(fs::File::open(&victim).expect("opens")).output().expect("starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read(&victim).expect("there") == frames);
}

/// Loopback traffic of our own.
#[test]
#[cfg(target_os = "linux")]
fn a_live_sample_sees_what_comes_in() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = socket.local_addr().expect("bound");
    let done = std::sync::atomic::AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                socket.send_to(b"hello", to).expect("sent");
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let output = advise(&["--interface", "lo", "--seconds", "3", "--format", "json"]);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        output
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "this test listens: it must run as root (sudo -E cargo test): {errors}"
    );
    let advice: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(advice["traffic"]["kind"], "live");
    assert!(advice["profile"]["packets"].as_u64() > Some(20), "{}", advice["profile"]);
    assert!(advice["recommendation"]["hit_rate"].as_f64() > Some(0.3));
    assert_eq!(advice["traffic"]["memory_full"], false);
    refused(1, &["--interface", "lo", "--memory", "0"], &["--memory 0", "at least 1"]);
}
