//! `overbank lab` as a person or a script sees it: names, records, the page, errors, Ctrl-C.

use overbank_kit::experiment::Record;
use overbank_kit::results::Outcome;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Bytes that a pipe of Linux holds.
#[cfg(target_os = "linux")]
const PIPE: usize = 65_536;

fn lab(arguments: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_overbank"))
        .arg("lab")
        .args(arguments)
        .current_dir(dir)
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn list_names_title_and_source() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let output = lab(&["list"], dir.path());
    let out = text(&output.stdout);
    assert!(output.status.success());
    for experiment in overbank_lab::experiments::ALL {
        let line = out.lines().find(|l| l.trim_start().starts_with(experiment.name));
        let line = line.unwrap_or_else(|| panic!("{} in {out}", experiment.name));
        assert!(line.contains(experiment.title) && line.contains(experiment.source), "{line}");
    }
    let moved = out.lines().find(|l| l.trim_start().starts_with("live ")).expect("a line");
    assert!(moved.contains("moved: cargo xtask peers live"), "{moved}");
}

#[test]
fn run_leaves_records_and_a_page_of_all_that_are_there() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let output = lab(&["run", "slide15", "slide15", "--smoke", "--seed", "7"], dir.path());
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "nothing on standard error without a terminal");
    assert!(out.contains(" ok ") && out.contains("0.71875") && out.contains("1 of 1 experiments"));

    // Into the directory of smoke sizes, so that it takes the place of no full record.
    let records = dir.path().join("out/lab-smoke");
    let json = fs::read_to_string(records.join("slide15.json")).expect("a record");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(record["schema"], "overbank-lab/1");
    assert_eq!((&record["name"], &record["seed"]), (&"slide15".into(), &7.into()));
    assert_eq!(record["command"], "overbank lab run slide15 slide15 --smoke --seed 7");

    let arguments = ["run", "table1", "--smoke", "--format", "json"];
    let output = lab(&arguments, dir.path());
    let array: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(array.as_array().map(Vec::len), Some(1), "the record of this run alone");
    assert_eq!(array[0]["name"], "table1");
    let page = fs::read_to_string(records.join("report.html")).expect("a page");
    let place = |id: &str| page.find(&format!("id=\"{id}\"")).expect("a section");
    assert!(place("table1") < place("slide15"), "the order is that of the list");
    assert_eq!(fs::read_dir(&records).expect("readable").count(), 3, "and no temporary file");

    // The page again, from the records, and Markdown.
    fs::remove_file(records.join("report.html")).expect("removed");
    let output = lab(&["report", "out/lab-smoke", "--markdown", "lab.md"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(records.join("report.html")).expect("a page"), page);
    let markdown = fs::read_to_string(dir.path().join("lab.md")).expect("a file");
    assert!(markdown.contains("\n## table1: ") && markdown.contains("| blp-2-4 |"));
}

/// The committed records make a report, and docs/results.md says what they say: every line that
/// names a record has its command, day, machine and count; every table below is a part of its
/// claims or of one of its tables.
#[test]
fn the_page_of_results_comes_out_of_the_records() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let out = tempfile::tempdir().expect("a directory for the test");
    let mut records = BTreeMap::new();
    for folder in ["epyc", "sapphire-rapids"] {
        let path = docs.join("records").join(folder);
        let html = out.path().join(folder).display().to_string();
        let output = lab(&["report", &path.display().to_string(), "--out", &html], out.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let page = fs::read_to_string(&html).expect("a page");
        for file in fs::read_dir(&path).expect("records") {
            let file = file.expect("an entry").path();
            let json = fs::read_to_string(&file).expect("a record");
            let outcome = Outcome::parse(&json).expect("a record");
            let name = outcome.record.name.clone();
            assert_eq!(file.file_stem().expect("a name"), &*name);
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
            records.insert(format!("records/{folder}/{name}.json"), outcome);
        }
    }

    let page = fs::read_to_string(docs.join("results.md")).expect("docs/results.md");
    let (mut outcome, mut headings, mut unnamed) = (None, Vec::new(), records.clone());
    let mut compared = 0;
    for line in page.lines() {
        let named = records.iter().find(|(path, _)| line.contains(&format!("]({path})")));
        if let Some((path, found)) = named {
            unnamed.remove(path);
            let (held, of) = found.held();
            assert!(of == 0 || line.contains(&format!("{held} of {of}")), "{line}");
            if !line.starts_with('|') {
                let made = format!("`{}`, {}, {}.", found.command, found.date, found.machine.cpu);
                assert!(line.contains(&made), "{line}\n{made}");
                outcome = Some(found);
            }
        } else if line.starts_with('#') {
            outcome = None;
        } else if let (Some(outcome), true) = (outcome, line.starts_with('|')) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let cells = &cells[1..cells.len() - 1];
            if headings.is_empty() {
                headings = cells.to_vec();
            } else if !cells.iter().all(|cell| cell.contains("---")) {
                assert!(is_in(&outcome.record, &headings, cells), "{line}");
                compared += 1;
            }
        }
        if !line.starts_with('|') {
            headings.clear();
        }
    }
    assert!(compared > 60, "{compared} rows");
    assert_eq!(unnamed.into_keys().collect::<Vec<_>>(), UNNAMED, "records without a line");
}

/// Older runs on the second machine, which only the report shows.
const UNNAMED: [&str; 3] = [
    "records/sapphire-rapids/fib5.json",
    "records/sapphire-rapids/fib6.json",
    "records/sapphire-rapids/fibwriter.json",
];

/// Whether a row is a claim of the record, or a part of a row of one of its tables.
fn is_in(record: &Record, headings: &[&str], cells: &[&str]) -> bool {
    if headings == ["", "claim", "asked", "measured"] {
        return record.checks.iter().any(|check| {
            let verdict = if check.holds { "holds" } else { "**missed**" };
            cells == [verdict, &check.claim, &check.stated, &check.measured]
        });
    }
    record.tables.iter().any(|table| {
        let column = |heading| table.headings.iter().position(|h| h == heading);
        let columns: Option<Vec<usize>> = headings.iter().map(column).collect();
        let same = |columns: &[usize], row: &[String]| {
            columns.iter().map(|&c| row[c].as_str()).eq(cells.iter().copied())
        };
        columns.is_some_and(|columns| table.rows.iter().any(|row| same(&columns, row)))
    })
}

/// The sizes of forwarding tables are the user's, in any notation and order.
#[test]
fn the_sizes_of_forwarding_tables_are_the_users() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let arguments =
        ["run", "fib6", "--smoke", "--entries", "20k,3000,20000", "--format", "json", "--quiet"];
    let output = lab(&arguments, dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let array: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let headings = array[0]["tables"][0]["headings"].to_string();
    assert_eq!(headings, r#"["batch","3 k entries","20 k entries"]"#);
    for wrong in ["0", "999", "4G", "1T", "k", "1.5M", "-1", "99999999999999999999G"] {
        let output = lab(&["run", "fib6", "--entries", wrong], dir.path());
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        let error = text(&output.stderr);
        let needed = "must be between 1000 and 3000000000 entries";
        assert!(error.contains(needed) || wrong == "-1", "{error}");
    }
}

/// A miss that costs a million cycles leaves a few keys a millisecond, on the fastest machine, too.
#[test]
fn the_miss_penalty_is_the_users() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let speeds = |penalty: &str, shown: &str| -> Vec<f64> {
        let arguments = ["run", "fig8", "--smoke", "--penalty", penalty, "--format", "json"];
        let output = lab(&arguments, dir.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let array: Value = serde_json::from_slice(&output.stdout).expect("one document");
        assert!(array[0]["settings"].to_string().contains(shown), "{}", array[0]["settings"]);
        let plots = array[0]["plots"].as_array().expect("plots");
        let speed = plots.iter().find(|p| p["title"].to_string().contains("throughput"));
        let curves = speed.expect("a plot")["series"].as_array().expect("curves");
        let last = |c: &Value| c["points"].as_array().and_then(|p| p.last()?[1].as_f64());
        curves.iter().filter_map(last).collect()
    };
    let dear = speeds("1000000", "1000000 cycles of the TSC (the paper: 1000)");
    // Half of the keys miss at α = 2, at some GHz: no machine is faster than its counter.
    assert!(dear.iter().any(|speed| *speed < 0.05), "{dear:?} million keys a second");
    assert!(!speeds("0", "0 cycles of the TSC (the paper: 1000)").is_empty());
}

/// Geometries that no experiment has, for people and for machines.
#[test]
fn any_geometry_has_a_model() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let arguments = ["model", "blp-3-5", "set-7", "--alpha", "0.5,2", "--simulate", "9000"];
    let output = lab(&arguments, dir.path());
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(out.contains("simulated: 9000 slots, 100 lookups per key"), "{out}");
    assert_eq!(out.lines().filter(|l| l.trim_start().starts_with("blp-3-5")).count(), 2, "{out}");

    let output = lab(&[&arguments[..], &["--format", "json"]].concat(), dir.path());
    let json: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(json["schema"], "overbank-model/1");
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let of = |name: &str| row[name].as_f64().expect("a number");
        assert!((of("hit_rate") - of("simulated")).abs() < 0.01, "{row}");
    }
    // What the paper prints for 2-4 BLP: E[c] = 3.59 of 4 slots.
    let output = lab(&["model", "blp-2-4", "--alpha", "0.953674", "--format", "json"], dir.path());
    let json: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let occupied = json["rows"][0]["occupied"].as_f64().expect("a number");
    assert!((4.0 * occupied - 3.59).abs() < 0.005, "{occupied}");
    assert_eq!((&json["simulation"], &json["rows"][0]["simulated"]), (&Value::Null, &Value::Null));
}

#[test]
fn errors_are_reported_before_any_work() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let fails = |arguments: &[&str], with: &[&str]| {
        let output = lab(arguments, dir.path());
        let errors = text(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        with.iter().for_each(|w| assert!(errors.contains(w), "{arguments:?}: {errors}"));
        assert!(!errors.contains("panicked"));
    };
    fails(&["run", "fig99"], &["unknown experiment \"fig99\"", "table1", "slide15", "all"]);
    fails(&["run"], &["<NAME>"]);
    fails(&["run", "live"], &["moved: cargo xtask peers live"]);
    fails(&["run", "slide15", "--core", "9999"], &["--core: core 9999 is unavailable"]);
    fails(&["run", "grid", "--penalty=-1"], &["--penalty", "between 0 and 1e9 cycles"]);
    fails(&["run", "grid", "--penalty", "NaN"], &["--penalty", "between 0 and 1e9 cycles"]);
    fails(&["model"], &["<GEOMETRY>"]);
    fails(&["model", "blp-4"], &["blp-4", "blp-H-M"]);
    fails(&["model", "blp-0-4"], &["H = 0", "at most 1024 slots"]);
    fails(&["model", "set-9", "--alpha", "0.5,0"], &["--alpha", "between 0.000001 and 100"]);
    fails(&["model", "set-9", "--simulate", "0"], &["--simulate"]);
    fails(&["model", "set-9", "--lookups", "5"], &["--simulate"]);
    let many = ["model", "set-9", "--simulate", "67108864", "--alpha", "0.5,100"];
    fails(&many, &["α = 100", "4294967295 keys"]);
    fails(&["report", "nowhere"], &["nowhere: cannot be read"]);
    fails(&["report", "."], &[".: no records of experiments"]);
    fs::write(dir.path().join("file"), "").expect("written");
    fails(&["run", "slide15", "--out", "file"], &["file: cannot be created"]);
    fs::write(dir.path().join("other.json"), "{\"schema\": \"x/1\"}").expect("written");
    fails(&["run", "slide15", "--out", "."], &["other.json", "schema \"x/1\""]);
    assert!(!dir.path().join("slide15.json").exists(), "before any work");
}

/// Neither a record nor the page is lost to another output, and records keep separate names.
#[test]
fn a_report_takes_the_place_of_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    assert!(lab(&["run", "slide15", "--smoke", "--out", "o"], dir.path()).status.success());
    let record = dir.path().join("o/slide15.json");
    let before = fs::read(&record).expect("a record");
    let refused = |arguments: &[&str], with: &str| {
        let output = lab(arguments, dir.path());
        let errors = text(&output.stderr);
        assert!(!output.status.success() && errors.contains(with), "{arguments:?}: {errors}");
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        assert_eq!(fs::read(&record).expect("still there"), before);
    };
    refused(&["report", "o", "--markdown", "o/slide15.json"], "would be overwritten");
    refused(&["report", "o", "--markdown", "o/../o/report.html"], "is the page");
    assert!(lab(&["report", "o", "--markdown", "o/report.md"], dir.path()).status.success());
    fs::copy(&record, dir.path().join("o/twice.json")).expect("copied");
    refused(&["report", "o"], "twice.json: second record of slide15");
    refused(&["report", "o/slide15.json"], "--out FILE: required");
    refused(&["report", "o/slide15.json", "--out", "o/slide15.json"], "would be overwritten");
    let odd = text(&before).replacen("\"rows\": [", "\"rows\": [[\"one cell\"],", 1);
    fs::write(dir.path().join("o/twice.json"), odd).expect("written");
    refused(&["report", "o"], "twice.json: not a record of `overbank lab run`: ");
}

#[test]
fn ctrl_c_keeps_finished_records() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let child = Command::new(env!("CARGO_BIN_EXE_overbank"))
        .args(["lab", "run", "slide15", "table1", "--out", "."])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("the command starts");
    let start = Instant::now();
    while !dir.path().join("slide15.json").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the first one is short");
        std::thread::sleep(Duration::from_millis(20));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let start = Instant::now();
    while child.try_wait().expect("waits").is_none() {
        assert!(start.elapsed() < Duration::from_secs(60), "ends soon");
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Ended early: 1 of 2 experiments done"));
    assert!(!dir.path().join("table1.json").exists());
    let page = fs::read_to_string(dir.path().join("report.html")).expect("a page");
    assert!(page.contains("id=\"slide15\"") && !page.contains("id=\"table1\""));
}

/// Returns what experiments with processes have left: processes, and names of namespaces.
#[cfg(target_os = "linux")]
fn left_by(process: u32) -> Vec<String> {
    let entries = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let command = |entry: &fs::DirEntry| {
        // Most files of this folder are no processes, and processes end while they are looked at.
        let bytes = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ")
    };
    let program = env!("CARGO_BIN_EXE_overbank");
    let starts =
        [format!("{program} lab servers"), format!("{program} switch --port 1=afpacket:c0")];
    let is_started = |text: &String| starts.iter().any(|start| text.starts_with(start));
    let processes = entries("/proc").map(|entry| command(&entry)).filter(is_started);
    let tag = format!("obl{process}x");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let names = entries("/run/netns").map(name).filter(|name| name.starts_with(&tag));
    processes.chain(names).collect()
}

/// Racks of processes at smoke size, and one that Ctrl-C ends: nothing is left of them.
#[test]
#[cfg(target_os = "linux")]
fn racks_of_processes_answer_and_leave_nothing() {
    let root = Command::new("sh").args(["-c", "test $(id -u) = 0 && ip netns list"]).output();
    if !overbank_testing::needs("root", root.is_ok_and(|done| done.status.success())) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory for the test");
    let temporary = dir.path().join("tmp");
    fs::create_dir(&temporary).expect("made");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
        command.args(["lab", "run"]).args(arguments).current_dir(dir.path());
        command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    };
    let check = |process: u32| {
        assert_eq!(left_by(process), Vec::<String>::new());
        assert_eq!(fs::read_dir(&temporary).expect("readable").count(), 0);
    };
    let child = start(&["kv10a-real", "kv11a-real", "--smoke", "--format", "json"]);
    let process = child.id();
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let records: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let records = records.as_array().expect("records");
    assert_eq!(records.len(), 2);
    for check in records.iter().flat_map(|record| record["checks"].as_array().expect("checks")) {
        assert_eq!(check["holds"], true, "{check}");
    }
    check(process);

    let child = start(&["kv11c-real"]);
    let (process, begun) = (child.id(), Instant::now());
    while !left_by(process).iter().any(|left| left.contains(" lab servers ")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "it starts");
        std::thread::sleep(Duration::from_millis(20));
    }
    let kill = Command::new("kill").args(["-INT", &process.to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("Ended early: 0 of 1 experiments done"));
    check(process);
}

/// Experiments with the proxy at smoke size: nothing is left of their processes.
#[test]
#[cfg(all(target_os = "linux", feature = "kv-proxy"))]
fn experiments_with_the_proxy_hold_and_leave_nothing() {
    for program in ["redis-server", "nutcracker"] {
        let version = Command::new(program).arg("--version").output();
        if !overbank_testing::needs(program, version.is_ok_and(|done| done.status.success())) {
            return;
        }
    }
    let dir = tempfile::tempdir().expect("a directory for the test");
    let temporary = dir.path().join("tmp");
    fs::create_dir(&temporary).expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.args(["lab", "run", "kvproxy", "kvlanes", "kvshards", "kvlatency", "kvorigin"]);
    command.args(["--smoke", "--format", "json"]).current_dir(dir.path());
    let output = command.env("TMPDIR", &temporary).output().expect("the command starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let records: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let records = records.as_array().expect("records");
    assert_eq!(records.len(), 5);
    for record in records {
        let checks = record["checks"].as_array().expect("checks");
        assert!(!checks.is_empty(), "{record}");
        checks.iter().for_each(|check| assert_eq!(check["holds"], true, "{check}"));
    }
    assert_eq!(fs::read_dir(&temporary).expect("readable").count(), 0);
}

/// Refused before the first experiment: an output that cannot be written, and an option that no
/// experiment uses.
#[test]
fn invalid_requests_are_refused_before_the_first_experiment() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    fs::create_dir_all(dir.path().join("o/table1.json")).expect("made");
    let refused = |arguments: &[&str], with: &str| {
        let output = lab(arguments, dir.path());
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains(with), "{arguments:?}: {errors}");
        assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
        assert!(output.stdout.is_empty());
        assert_eq!(fs::read_dir(dir.path().join("o")).expect("readable").count(), 1);
    };
    let run = ["run", "slide15", "table1", "--smoke", "--out", "o"];
    refused(&run, "o/table1.json: is a directory");
    let run = ["run", "slide15", "--smoke", "--out", "o"];
    refused(&[&run[..], &["--entries", "1M"]].concat(), "--entries: used only by fib5, fib6, fib7");
    refused(&[&run[..], &["--penalty", "1000"]].concat(), "--penalty: used only by fig8, fig9");
    // One that uses it is enough.
    let both = ["run", "slide15", "fig8", "--smoke", "--penalty", "300", "--out", "p"];
    let output = lab(&both, dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// A record that cannot be written, and a standard output that is full: the other experiments and
/// the page are made, and the exit status tells.
#[test]
#[cfg(target_os = "linux")]
fn a_failed_output_does_not_end_the_run() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let full = fs::File::options().write(true).open("/dev/full").expect("opens");
    let run = |stdout: Stdio| {
        Command::new(env!("CARGO_BIN_EXE_overbank"))
            .args(["lab", "run", "slide15", "table1", "appendix-ab", "--smoke", "--out", "."])
            .current_dir(dir.path())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts")
    };
    let page = || fs::read_to_string(dir.path().join("report.html")).expect("a page");
    let output = run(full.into()).wait_with_output().expect("its output");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("standard output: No space left"), "{errors}");
    assert_eq!(errors.trim_end().lines().count(), 1, "{errors}");
    for name in ["slide15", "table1", "appendix-ab"] {
        assert!(dir.path().join(name).with_extension("json").exists(), "{name}");
        assert!(page().contains(&format!("id=\"{name}\"")), "{name}");
    }

    // A full pipe holds the command up after the first experiment, while a directory takes the
    // place of the second one's record.
    for name in ["slide15", "table1", "appendix-ab"] {
        fs::remove_file(dir.path().join(name).with_extension("json")).expect("removed");
    }
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(&[b'\n'; PIPE]).expect("as much as a pipe holds");
    let child = run(writer.into());
    let start = Instant::now();
    while !dir.path().join("slide15.json").exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "the first one is short");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::create_dir(dir.path().join("table1.json")).expect("made");
    let mut out = String::new();
    reader.read_to_string(&mut out).expect("UTF-8");
    let output = child.wait_with_output().expect("its output");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("table1.json: is a directory"), "{errors}");
    assert!(errors.contains("no record written: table1\n"), "{errors}");
    assert!(out.contains("3 of 3 experiments done"), "{out}");
    assert!(dir.path().join("appendix-ab.json").exists(), "the one after it");
    for name in ["slide15", "table1", "appendix-ab"] {
        assert!(page().contains(&format!("id=\"{name}\"")), "{name}");
    }
}
