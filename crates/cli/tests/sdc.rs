//! `overbank sdc` as a person or a script sees it: with the program that runs the index where it is
//! built, and with others that fail.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const BUILT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/workloads/release/overbank-workloads");
/// Sizes at which nothing takes long.
const SMALL: [&str; 8] =
    ["run", "--items", "20000", "--subset", "4000", "--lookups", "4000", "--llc=192KB"];

fn is_built() -> bool {
    overbank_testing::needs("`cargo xtask workloads`", Path::new(BUILT).is_file())
}

/// Returns the command; `program` stands for overbank-workloads.
fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.arg("sdc").args(arguments).env("OVERBANK_WORKLOADS", program).stdin(Stdio::null());
    command
}

fn sdc(arguments: &[&str]) -> Output {
    let arguments = [&SMALL, arguments].concat();
    command(Path::new(BUILT), &arguments).output().expect("the command starts")
}

fn printed(arguments: &[&str]) -> String {
    let output = sdc(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--format", "json"]].concat())).expect("JSON")
}

/// Returns the error: one line, and no output.
fn line(output: Output, status: i32) -> String {
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(status) && output.stdout.is_empty(), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors.strip_prefix("overbank: ").expect("our name").trim_end().to_owned()
}

fn refused(arguments: &[&str]) -> String {
    line(sdc(arguments), 1)
}

fn misread(arguments: &[&str]) -> String {
    let output = sdc(arguments);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text")
}

/// Writes a program for the shell. By another process: a program that this one has open for writing
/// while another thread starts a process is busy.
fn program(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("program");
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod +x \"$2\"";
    let mut shell = Command::new("sh");
    let done = shell.args(["-c", write, "sh", script]).arg(&path).status().expect("sh");
    assert!(done.success());
    path
}

#[test]
fn a_point_has_figures_beside_the_regular_machine() {
    if !is_built() {
        return;
    }
    let found = json(&["--view", "0,17"]);
    assert_eq!(found["schema"], "overbank-sdc/1");
    let (point, regular) = (&found["point"], &found["regular"]);
    assert_eq!((&point["index"], &point["system"]), (&"lmdb".into(), &"sdc".into()));
    assert_eq!((&regular["system"], &regular["llc"]), (&"regular".into(), &Value::Null));
    for mode in ["blocking", "overlap", "as_evaluated"] {
        let speed = |of: &Value| of["lookups_per_second"][mode].as_f64().expect("a number");
        let gain = found["gain"][mode].as_f64().expect("a number");
        assert!((gain - speed(point) / speed(regular)).abs() < 1e-9 && gain > 1.0, "{gain}");
    }
    let sets = point["llc"]["sets"].as_array().expect("sets");
    assert_eq!(
        sets.iter().map(|of| of["set"].as_u64().expect("a set")).collect::<Vec<_>>(),
        [0, 17]
    );
    let ways = sets[1]["ways"].as_array().expect("ways");
    assert_eq!(ways.len(), 12);
    assert!(ways.iter().any(|way| way["kind"] == "sdc"), "{ways:?}");
    let lines = &point["llc"]["lines"];
    assert_eq!(lines["sdc"], point["sdc_lines"]);
    let left: u64 = ["clock", "line", "overwritten", "equal", "invalidated"]
        .map(|cause| point["counters"]["sdc"]["evicted"][cause].as_u64().expect("a count"))
        .iter()
        .sum();
    assert!(left > 0);
    assert_eq!(found["bits"]["line"]["slots"], (5 + 3) * 8);
    // Simulated: the same again.
    let again = json(&["--view", "0,17"]);
    if point["addresses_fixed"] == true {
        assert_eq!(again["point"]["counters"], point["counters"]);
    }
}

#[test]
fn text_and_page_say_the_same() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory for the test");
    let page = dir.path().join("page.html");
    let report = page.to_str().expect("UTF-8");
    let text = printed(&["--family", "2", "--sub-tag-bits", "4", "--report", report]);
    assert!(text.starts_with("lmdb, sdc: 4\u{202f}000 lookups of 4\u{202f}000 items"), "{text}");
    for wanted in [
        "families of up to 2, sub-tags of 4 bits",
        "as evaluated",
        "false hits, %",
        "left, replaced by CLOCK",
        "At the end SDC holds ",
        "SDC adds ",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let page = fs::read_to_string(&page).expect("a page");
    assert_eq!(page.matches("<h3>Set ").count(), 4, "the fullest sets");
    assert!(page.contains(", family ") && !page.contains("http"), "nothing from a network");
}

#[test]
fn other_systems_mixes_and_maps_run() {
    if !is_built() {
        return;
    }
    let found = json(&["--index", "tree", "--system", "hints", "--table=64KB", "--alone"]);
    assert_eq!((&found["regular"], &found["gain"]), (&Value::Null, &Value::Null));
    assert_eq!((&found["bits"], &found["point"]["table_bytes"]), (&Value::Null, &65536.into()));
    let found = json(&["--index", "masstree", "--ycsb", "b", "--set", "sdc.process_bits=2"]);
    assert_eq!(found["regular"]["keys"], "ycsb-b");
    assert_eq!(found["point"]["shape"]["sdc"]["process_bits"], 2);
    let dir = tempfile::tempdir().expect("a directory for the test");
    let page = dir.path().join("page.html");
    let report = page.to_str().expect("UTF-8");
    let found =
        json(&["--index", "bplus", "--heat", "--llc=32KB", "--value=8", "--report", report]);
    assert_eq!(found["point"]["heat"].as_array().expect("a map").len(), 4096);
    assert!(fs::read_to_string(&page).expect("a page").contains("Accesses to the slots"));
}

#[test]
fn the_lists_are_those_of_the_program() {
    if !is_built() {
        return;
    }
    let output = Command::new(BUILT).args(["list", "--format", "json"]).output().expect("runs");
    let lists: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let error = misread(&["--index", "btree"]);
    let names = |list: &Value| -> Vec<String> {
        let names = list.as_array().expect("a list").iter();
        names.map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    let wanted = format!("[possible values: {}]", names(&lists["indexes"]).join(", "));
    assert!(error.contains(&wanted), "{error}: {wanted}");
    let wanted = format!("[possible values: {}]", names(&lists["systems"]).join(", "));
    assert!(misread(&["--system", "none"]).contains(&wanted));
}

#[test]
fn wrong_values_are_a_line() {
    if !is_built() {
        return;
    }
    let says = |arguments: &[&str], wanted: &str| {
        let error = refused(arguments);
        assert!(error.contains(wanted), "{arguments:?}: {error}");
    };
    says(&["--llc", "3000000"], "llc: 3000000 bytes, 12 ways: bytes must be 64 x ways");
    says(&["--llc", "3XB"], "'3XB' for '--llc <BYTES>': must be a number of bytes, as 4096");
    says(&["--family", "3"], "sdc: family of 3 lines: must be 1, 2, 4 or 8");
    says(&["--sub-tag-bits", "9"], "sdc: sub-tag of 9 bits: must be between 0 and 8");
    says(&["--slots", "4"], "sdc: 4 slots a line: must be 8, or 1");
    says(&["--set", "llc.doors=2"], "--set llc.doors=2: no such field");
    says(&["--set", "llc"], "--set llc: must be FIELD=VALUE");
    says(&["--subset", "20001"], "--subset 20001: must be between 1 and --items, which is 20000");
    says(&["--value", "12"], "--value 12: must be a multiple of 8");
    says(&["--read", "1KB"], "--read 1024: must be a multiple of 8 between 8 and --value 512");
    says(&["--view", "256"], "--view 256: must be below 256, the sets of the last-level cache");
    says(&["--view", "one"], "must be numbers of sets, as 0,17");
    says(&["--lookups", "0"], "--lookups 0: must be between 1");
    says(&["--system", "hints"], "hints");
    assert!(misread(&["--theta", "3"]).contains("between 0 (uniform) and 2"));
    assert!(misread(&["--ratio", "1"]).contains("cannot be used with"));
    assert!(misread(&["--ycsb", "E"]).contains("[possible values: A, B, C, D]"));
}

#[test]
fn options_of_sdc_need_sdc_and_a_report_a_place() {
    let nothing = Path::new("/nonexistent");
    let run = |arguments: &[&str]| line(command(nothing, arguments).output().expect("runs"), 1);
    let error = run(&["run", "--system", "slb", "--family", "2"]);
    assert_eq!(error, "--family: must come with --system sdc");
    let error = run(&["run", "--report", "/nonexistent/page.html"]);
    assert_eq!(error, "/nonexistent/page.html: cannot be written: no directory /nonexistent");
    let error = run(&["run"]);
    assert!(error.contains("build it by `cargo xtask workloads`"), "{error}");
    assert!(error.contains("or name it in OVERBANK_WORKLOADS"), "{error}");
}

#[test]
fn a_program_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let page = dir.path().join("page.html");
    let says = |script: &str, wanted: &str| {
        let path = program(dir.path(), script);
        let report = ["run", "--format", "json", "--report", page.to_str().expect("UTF-8")];
        let error = line(command(&path, &report).output().expect("runs"), 1);
        assert!(error.contains(wanted), "{script}: {error}");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 1, "{script}");
    };
    says("echo first >&2; echo 'overbank-workloads: no memory' >&2; exit 1", "no memory");
    says("exit 1", "exit status: 1: it said nothing");
    says("echo half; kill -9 $$", "signal: 9 (SIGKILL): it said nothing");
    says("printf 'a\\033[2J\\377\\n' >&2; exit 101", "exit status: 101: a\u{fffd}[2J\u{fffd}");
    says("exit 0", "printed nothing");
    says("echo '{\"index\":\"lmdb\"}'", "no outcome of a point: missing field");
    says("head -c 4096 /dev/urandom", "no outcome of a point");
    says("head -c 100000 /dev/zero | tr '\\0' '['", "no outcome of a point");
}

#[test]
fn a_point_of_an_experiment_that_dies_leaves_the_others() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory for the test");
    let of = "*\"--index hash --system sdc \"*\"--subset 1365 \"*\"--keys replayed\"*";
    let script = format!("case \"$*\" in {of}) kill -9 $$;; esac\nexec {BUILT} \"$@\"");
    let path = program(dir.path(), &script);
    let mut lab = Command::new(env!("CARGO_BIN_EXE_overbank"));
    lab.args(["lab", "run", "sdc9", "--smoke", "--out", "records"]).current_dir(dir.path());
    let output = lab.env("OVERBANK_WORKLOADS", path).output().expect("runs");
    let record = fs::read_to_string(dir.path().join("records/sdc9.json"));
    let record =
        record.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let checks = record["checks"].as_array().expect("checks").iter();
    let dead: Vec<&Value> = checks.filter(|check| check["stated"] == "it does").collect();
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0]["claim"], "hash, sdc, 1365 items runs");
    assert_eq!(dead[0]["measured"], "signal: 9 (SIGKILL): it said nothing");
    assert_eq!(dead[0]["holds"], false);
    let tables = record["tables"].as_array().expect("tables").iter();
    let rows = tables.flat_map(|table| table["rows"].as_array().expect("rows"));
    let cells = rows.flat_map(|row| {
        let cells = row.as_array().expect("cells").iter().enumerate();
        cells.filter(|(_, cell)| **cell == "–").map(|(at, _)| (row[0].clone(), at))
    });
    // Of all points, that one alone has no figure.
    assert_eq!(cells.collect::<Vec<_>>(), [("hash table, 0.5".into(), 2)]);
}

#[test]
fn what_the_program_prints_is_checked() {
    if !is_built() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory for the test");
    let says = |edit: &str, wanted: &str| {
        let script = format!("{BUILT} \"$@\" | sed '{edit}'");
        let path = program(dir.path(), &script);
        let error = line(command(&path, &SMALL).output().expect("runs"), 1);
        assert!(error.contains(wanted), "{edit}: {error}");
    };
    says("s/\"index\":\"lmdb\"/\"index\":\"hash\"/", "printed a point of hash");
    says("s/\"index\":\"lmdb\"/\"index\":\"\\\\u001b[2J\"/", "what cannot be: the name");
    says("s/\"accesses\":[0-9]*/\"accesses\":18446744073709551615/", "what cannot be: a counter");
    says("s/\"lookups\":4000/\"lookups\":0/", "what cannot be: ");
    says("s/\"ways\":12/\"ways\":0/", "what cannot be: llc: 0 ways");
    says("s/\"blocking\":[0-9.]*/\"blocking\":0/g", "what cannot be: a rate");
    says("s/$/garbage/", "trailing characters");
}

#[test]
fn ctrl_c_ends_the_program_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let pids = dir.path().join("pids");
    let script = format!("echo $$ >> {}; exec sleep 300", pids.display());
    let path = program(dir.path(), &script);
    let page = dir.path().join("page.html");
    let report = ["run", "--report", page.to_str().expect("UTF-8")];
    let mut command = command(&path, &report);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let started = Instant::now();
    let running = || fs::read_to_string(&pids).unwrap_or_default();
    while running().lines().count() < 2 && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let error = line(child.wait_with_output().expect("it ends"), 1);
    assert_eq!(error, "stopped before there was an answer");
    for pid in running().lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid} still runs");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 2, "program and pids");
}
