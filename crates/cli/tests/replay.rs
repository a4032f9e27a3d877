//! `overbank replay` as a person or a script sees it: what it prints, what it leaves behind, how it
//! fails. No network, no privileges; the capture is a fixture.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes as long, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

fn overbank() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.env_remove("OVERBANK_SIMD");
    command
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

fn replay(arguments: &[&str]) -> Output {
    overbank().arg("replay").args(arguments).output().expect("the command starts")
}

fn json(arguments: &[&str]) -> Value {
    let output = replay(&[arguments, &["--format", "json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    assert!(errors.is_empty(), "nothing on standard error without a terminal: {errors}");
    serde_json::from_slice(&output.stdout).expect("standard output is one JSON document")
}

/// Small enough for a test, large enough for misses: α = 0.95 with 4096 entries.
const SMALL: &[&str] =
    &["--flows", "3906", "--entries", "4096", "--warmup", "20", "--loops", "4", "--rounds", "2"];

fn small(more: &[&str]) -> Value {
    json(&[SMALL, more].concat())
}

fn numbers<'a>(replay: &'a Value, field: &'a str) -> impl Iterator<Item = f64> + 'a {
    let designs = replay["designs"].as_array().expect("an array");
    designs.iter().map(move |d| d[field].as_f64().unwrap_or_else(|| panic!("{field}: {d}")))
}

#[test]
fn all_designs_forward_built_in_traffic_alike() {
    let replay = small(&[]);
    assert_eq!(replay["schema"], "overbank-replay/1");
    let names: Vec<&str> = replay["designs"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|d| d["design"].as_str().expect("a name"))
        .collect();
    for wanted in [
        "set-4",
        "set-8",
        "set-16",
        "cuckoo-2-4",
        "blp-2-4",
        "blp-2-4+pblru",
        "blp-2-16",
        "blp-2-16+pblru",
    ] {
        assert!(names.contains(&wanted), "{wanted} takes part by default");
    }
    for design in replay["designs"].as_array().expect("an array") {
        let name = &design["design"];
        assert_eq!(design["digest"], replay["digest"], "{name}");
        let (n, micro) = (design["packets"].as_u64().expect("a count"), &design["microflow"]);
        assert_eq!(n, 2 * 4 * 3906, "{name}");
        let count = |v: &Value| v.as_u64().expect("a count");
        let hits = count(&micro["hits"]) + count(&design["megaflow"]["hits"]);
        assert_eq!(hits + count(&design["classifier_lookups"]), n, "{name}: every packet, once");
        let out: u64 = design["ports"]
            .as_array()
            .expect("an array")
            .iter()
            .map(|p| {
                assert_eq!(count(&p["bytes"]), 60 * count(&p["packets"]));
                count(&p["packets"])
            })
            .sum();
        assert_eq!(out, n, "{name}: the built-in rules drop nothing");
        assert_eq!(design["megaflow"]["masks"], 20, "{name}: the paper's set-up");
        for field in ["mpps", "mpps_min", "mpps_max", "ns_per_packet"] {
            assert!(design[field].as_f64().expect("a number") > 0.0, "{name} {field}");
        }
    }
    // Table 1 of the paper, as an ordering.
    let rate = |wanted: &str| {
        let at = names.iter().position(|n| *n == wanted).expect("takes part");
        numbers(&replay, "hit_rate").nth(at).expect("a rate")
    };
    assert!(rate("set-4") < rate("set-8") && rate("set-8") < rate("blp-2-4"));
    assert!(rate("blp-2-4") < rate("blp-2-16") && rate("blp-2-4") < rate("cuckoo-2-4"));
    assert_eq!(rate("none"), 0.0);
}

#[test]
fn the_digest_depends_on_the_packets_and_on_nothing_else() {
    let digest = |more: &[&str]| small(more)["digest"].as_str().expect("text").to_owned();
    let base = digest(&["--cache", "blp-2-16"]);
    assert_eq!(base, digest(&["--cache", "set-4+dc-bubble,none", "--simd", "portable"]));
    assert_eq!(base, digest(&["--cache", "cuckoo-2-4", "--entries", "64", "--megaflows", "70000"]));
    assert_ne!(base, digest(&["--cache", "blp-2-16", "--seed", "2"]));
    assert_ne!(base, digest(&["--cache", "blp-2-16", "--zipf", "0.99"]));
}

#[test]
fn skew_and_small_caches_do_what_they_must() {
    let rates = |more: &[&str]| numbers(&small(more), "hit_rate").collect::<Vec<_>>();
    let cache = ["--cache", "blp-2-16,blp-2-16+pblru"];
    let uniform = rates(&[&cache[..], &["--entries", "1302"]].concat());
    let skewed = rates(&[&cache[..], &["--entries", "1302", "--zipf", "0.99"]].concat());
    assert!(skewed[0] > uniform[0] + 0.2, "{skewed:?} {uniform:?}");
    assert!(skewed[1] > skewed[0], "PBLRU keeps hot flows: {skewed:?}");
}

#[test]
fn a_capture_is_replayed_with_rules_and_its_output_is_written() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (out, report) = (dir.path().join("out"), dir.path().join("report.html"));
    let (rules, pcapng) = (fixture("lan.rules"), fixture("lan.pcapng"));
    let path = |p: &Path| p.to_str().expect("UTF-8").to_owned();
    let replay = json(&[
        &path(&pcapng),
        "--rules",
        &path(&rules),
        "--cache",
        "blp-2-16,set-4",
        "--loops",
        "2",
        "--out-dir",
        &path(&out),
        "--report",
        &path(&report),
    ]);
    assert_eq!(replay["traffic"]["kind"], "capture");
    assert_eq!(
        replay["designs"][0]["packets"],
        5 * 2 * replay["traffic"]["frames"].as_u64().unwrap()
    );
    let ports = replay["designs"][0]["first_pass"]["ports"].as_array().expect("an array");
    assert!(ports.len() >= 3);
    for port in ports {
        let file = out.join(format!("port-{}.pcap", port["port"]));
        let written = overbank_ports::capture::read_ethernet(&file, &Default::default());
        let written = written.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(written.len() as u64, port["packets"].as_u64().expect("a count"));
    }
    let page = fs::read_to_string(&report).expect("the report is there");
    for part in ["<svg", "blp-2-16", "set-4", replay["digest"].as_str().expect("text")] {
        assert!(page.contains(part), "{part} is in the report");
    }
    for outside in ["http://", "https://", "<script", "<link", "src="] {
        assert!(!page.contains(outside), "{outside}: the page needs nothing from outside");
    }
    // The same frames gzipped and without interfaces, and built-in rules.
    let gz = json(&[&path(&fixture("lan.pcap.gz")), "--cache", "set-8", "--loops", "1"]);
    assert!(gz["traffic"]["frames"].as_u64() > Some(0));
}

#[test]
fn the_same_run_prints_tables_for_people() {
    let output = replay(&[SMALL, &["--cache", "blp-2-4,none"]].concat());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for part in ["blp-2-4", "none", "Mpps", "hit rate", "subtables", "port 2", "digest", "α = 0.95"]
    {
        assert!(text.contains(part), "{part} is printed:\n{text}");
    }
}

#[test]
fn seconds_bound_the_measurement() {
    let start = Instant::now();
    let replay = json(&[
        "--flows",
        "1000",
        "--entries",
        "1024",
        "--cache",
        "set-4,blp-2-4",
        "--seconds",
        "0.2",
    ]);
    assert!(start.elapsed() < Duration::from_secs(600));
    assert_eq!(replay["settings"]["seconds"], 0.2);
    assert!(numbers(&replay, "packets").all(|n| n > 0.0));
    assert!(replay["digest_packets"].as_u64() > Some(20_000));
}

/// Ports may exist that no frame comes in on and no rule names.
#[test]
fn named_ports_exist() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let rules = dir.path().join("flood.rules");
    fs::write(&rules, "actions=flood\n").expect("written");
    let rules = rules.to_str().expect("UTF-8");
    let replay = small(&["--rules", rules, "--ports", "7,9", "--cache", "set-4"]);
    let ports = replay["designs"][0]["ports"].as_array().expect("an array");
    let ports: Vec<_> = ports.iter().map(|p| p["port"].as_u64().expect("a number")).collect();
    assert_eq!(ports, [7, 9]);
}

/// Runs with `input` on standard input, of which the first byte comes alone.
fn piped(input: &[u8], arguments: &[&str]) -> Output {
    let mut child = overbank()
        .arg("replay")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A command that refuses its arguments reads nothing.
    let _ = stdin.write_all(&input[..1]);
    std::thread::sleep(Duration::from_millis(50));
    let _ = stdin.write_all(&input[1..]);
    drop(stdin);
    child.wait_with_output().expect("its output")
}

#[test]
fn a_dash_is_standard_input() {
    let arguments = ["-", "--cache", "set-4", "--loops", "1", "--format", "json"];
    let digest = |output: &Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let replay: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        replay["digest"].as_str().expect("text").to_owned()
    };
    for name in ["lan.pcapng", "lan.pcap.gz"] {
        let (path, bytes) = (fixture(name), fs::read(fixture(name)).expect("the fixture"));
        let mut from_file = arguments;
        from_file[0] = path.to_str().expect("UTF-8");
        let output = piped(&bytes, &arguments);
        assert_eq!(digest(&output), digest(&replay(&from_file)), "{name}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("\"standard input\""));
    }
    let rules = fs::read(fixture("lan.rules")).expect("the fixture");
    let (capture, rules_path) = (fixture("lan.pcapng"), fixture("lan.rules"));
    let [capture, rules_path] = [&capture, &rules_path].map(|p| p.to_str().expect("UTF-8"));
    let with_rules =
        |path| [capture, "--rules", path, "--cache", "set-4", "--loops", "1", "--format", "json"];
    let output = piped(&rules, &with_rules("-"));
    assert_eq!(digest(&output), digest(&replay(&with_rules(rules_path))));

    let failed = |input: &[u8], arguments: &[&str], part: &str| {
        let output = piped(input, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(part), "{errors}");
        assert!(errors.trim_end().lines().all(|line| line.contains("standard input")), "{errors}");
    };
    failed(b"no capture", &["-"], "standard input: not a capture");
    failed(b"rules", &["-", "--rules", "-"], "only one of the capture and the rules");
    failed(b"foo=1,actions=drop\n", &[capture, "--rules", "-"], "foo");
}

/// `overbank replay | head`: a closed output is no error.
#[test]
fn a_reader_that_went_away_is_no_failure() {
    let mut child = overbank()
        .arg("replay")
        .args(SMALL)
        .args(["--cache", "set-4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("its output");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Fails with one line (or one per error of a rule file) that contains all of `parts`.
fn refused(code: i32, arguments: &[&str], parts: &[&str]) -> String {
    let output = replay(arguments);
    let errors = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?} prints no result");
    for part in parts {
        assert!(errors.contains(part), "{arguments:?}: {part} is not in: {errors}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
    errors
}

#[test]
fn bad_input_is_refused_in_one_line_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, content).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    };
    let capture = fs::read(fixture("lan.pcapng")).expect("the fixture");
    let cut = file("cut.pcapng", &capture[..capture.len() - 7]);
    let text = file("text.pcap", b"not a capture at all, but long enough");
    let empty = file("empty.pcap", b"");
    // A pcap header of link type 101 (raw IP) and one packet.
    let mut raw = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65535, 101, 1, 0, 20, 20] {
        raw.extend_from_slice(&word.to_le_bytes());
    }
    raw.extend_from_slice(&[0x45; 20]);
    let raw = file("raw.pcap", &raw);
    let rules = file("bad.rules", b"udp,nw_dst=10.0.0.0/40,actions=output:2\nfoo=1,actions=drop\n");
    let out = dir.path().join("out").to_str().expect("UTF-8").to_owned();
    let report = dir.path().join("report.html").to_str().expect("UTF-8").to_owned();
    let outputs = ["--out-dir", out.as_str(), "--report", report.as_str()];
    let with =
        |more: &[&str]| [more, &outputs].concat().iter().map(|s| s.to_string()).collect::<Vec<_>>();
    let one_line = |code, arguments: &[&str], parts: &[&str]| {
        let owned = with(arguments);
        let all: Vec<&str> = owned.iter().map(String::as_str).collect();
        let errors = refused(code, &all, parts);
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    };
    one_line(1, &["nowhere.pcap"], &["nowhere.pcap", "No such file"]);
    one_line(1, &[&cut], &["cut.pcapng", "truncated", "packet"]);
    one_line(1, &[&text], &["text.pcap", "not a capture", "pcap"]);
    one_line(1, &[&empty], &["empty.pcap", "empty"]);
    one_line(1, &[&raw], &["raw.pcap", "Ethernet", "101"]);
    one_line(1, &["--entries", "0"], &["entr"]);
    one_line(1, &["--entries", "18446744073709551615"], &["18446744073709551615", "memory"]);
    one_line(1, &["--entries", "1000000000000"], &["--entries 1000000000000", "available"]);
    one_line(1, &["--megaflows", "0"], &["megaflow", "0"]);
    one_line(1, &["--core", "4096"], &["--core: core 4096 is unavailable"]);
    one_line(1, &["--rules", "nowhere.rules"], &["nowhere.rules: cannot read the rules: No such"]);
    refused(
        1,
        &["--rules", &rules],
        &["bad.rules:1:21", "prefix length", "`40`", "bad.rules:2:1", "foo"],
    );
    let designs = refused(2, &["--cache", "set-5"], &["set-5", "blp-2-16", "cuckoo-2-4", "+pblru"]);
    assert!(designs.contains("--cache"));
    refused(2, &["--flows", "0"], &["--flows"]);
    refused(2, &["--zipf", "-1"], &[]);
    refused(2, &["--seconds", "0"], &["--seconds"]);
    refused(2, &["--loops", "0"], &["--loops"]);
    refused(1, &["--report", "/nowhere/report.html"], &["/nowhere/report.html", "no directory"]);
    // A file where the directory should be.
    refused(1, &["--out-dir", &text, SMALL[0], SMALL[1]], &["text.pcap"]);

    let left: Vec<String> = fs::read_dir(dir.path())
        .expect("readable")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| {
            !name.ends_with(".pcap") && !name.ends_with(".pcapng") && name != "bad.rules"
        })
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn an_input_is_never_overwritten() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let capture = fs::read(fixture("lan.pcapng")).expect("the fixture");
    let input = dir.path().join("port-1.pcap");
    fs::write(&input, &capture).expect("written");
    let rules = dir.path().join("lan.rules");
    fs::copy(fixture("lan.rules"), &rules).expect("copied");
    let [dir_name, input_name, rules_name] = [dir.path(), &input, &rules].map(|p| {
        let text = p.to_str().expect("UTF-8");
        text.to_owned()
    });
    let base = [&input_name[..], "--rules", &rules_name, "--cache", "set-4", "--loops", "1"];
    for outputs in [["--report", &input_name], ["--report", &rules_name], ["--out-dir", &dir_name]]
    {
        refused(1, &[&base[..], &outputs].concat(), &["would be overwritten"]);
    }
    assert!(fs::read(&input).expect("there") == capture);
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 2);
}

#[test]
fn the_report_may_lie_in_the_output_directory() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let out = dir.path().join("new/out");
    let report = out.join("report.html");
    let [out, report] = [&out, &report].map(|p| p.to_str().expect("UTF-8"));
    json(&[SMALL, &["--cache", "set-4", "--out-dir", out, "--report", report]].concat());
    assert!(Path::new(report).is_file() && Path::new(out).join("port-2.pcap").is_file());
    refused(1, &[SMALL, &["--out-dir", out, "--report", out]].concat(), &["a directory"]);
}

#[test]
fn a_wrong_instruction_set_in_the_environment_is_named() {
    let mut command = overbank();
    command.args(["replay", "--flows", "100"]).env("OVERBANK_SIMD", "mmx");
    let output = command.output().expect("the command starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("OVERBANK_SIMD") && errors.contains("portable"), "{errors}");
    assert_eq!(errors.matches("OVERBANK_SIMD").count(), 1, "said once: {errors}");
}

/// The cores that a process may run on, as the kernel lists them.
fn cores(process: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("readable");
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.expect("the kernel lists them").trim().to_owned()
}

/// Whether a process handles SIGINT.
fn asks_for_ctrl_c(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("readable");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("the kernel lists them").trim(), 16);
    // Signal 2 is bit 1.
    caught.expect("hexadecimal") & 2 != 0
}

fn first_core(process: &str) -> String {
    cores(process).chars().take_while(char::is_ascii_digit).collect()
}

#[test]
fn ctrl_c_ends_early_and_reports_the_work_done() {
    let core = first_core("self");
    let mut child = overbank()
        .args(["replay", "--seconds", "3600", "--flows", "1000", "--format", "json"])
        .args(["--core", &core])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let (start, id) = (Instant::now(), child.id().to_string());
    // It asks for Ctrl-C once it is pinned; until then, Ctrl-C would end it at once.
    while cores(&id) != core || !asks_for_ctrl_c(&id) {
        assert!(start.elapsed() < PATIENCE, "pinned to this one alone: {}", cores(&id));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let start = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        assert!(start.elapsed() < PATIENCE, "ends soon");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let replay: Value = serde_json::from_slice(&output.stdout).expect("a whole document");
    assert_eq!(replay["interrupted"], true);
    assert_eq!(replay["machine"]["pinned_core"].to_string(), core);
    assert!(!replay["designs"].as_array().expect("an array").is_empty());
}

#[test]
fn help_has_examples_and_every_command_has_help() {
    for arguments in [&["--help"][..], &["replay", "--help"], &["help", "replay"]] {
        let output = overbank().args(arguments).output().expect("the command starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("Examples:"), "{text}");
    }
}
