//! `overbank partition` as a person or a script sees it. No network, no privileges.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn overbank(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_overbank"))
        .env_remove("OVERBANK_SIMD")
        .arg("partition")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    // Beside the reader, since a command may answer before it has read all. One that fails early
    // does not read it.
    let writer = std::thread::spawn(move || _ = stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic");
    output
}

fn printed(arguments: &[&str], input: &str) -> String {
    let output = overbank(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    let text = printed(&[arguments, &["--format", "json"]].concat(), "");
    serde_json::from_str(&text).expect("one JSON document")
}

/// The one line that a failure prints.
fn refused(arguments: &[&str], input: &str) -> String {
    let output = overbank(arguments, input);
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors.trim_end().trim_start_matches("overbank: ").to_owned()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a directory for the test"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).expect("room");
        self.path(name)
    }

    /// A list of keys with four parts, and its table.
    fn built(&self, keys: usize) -> (String, String) {
        let line = |i: usize| format!("192.0.{}.{},{}\n", i / 256, i % 256, i % 7 % 4);
        let list: String = (0..keys).map(line).collect();
        let (list, table) = (self.write("keys.csv", list), self.path("table"));
        printed(&["build", &list, "-o", &table, "--threads", "2"], "");
        (list, table)
    }
}

#[test]
fn every_key_of_a_list_is_found_again() {
    let folder = Folder::new();
    let (list, table) = folder.built(40_000);
    let lines = fs::read_to_string(&list).expect("there");
    let keys: String = lines
        .lines()
        .map(|line| format!("{}\n", line.rsplit_once(',').expect("a comma").0))
        .collect();
    assert_eq!(printed(&["query", &table, "--keys", "-"], &keys), lines);
    assert_eq!(
        printed(&["query", &table, "192.0.0.5", "192.0.0.6"], ""),
        "192.0.0.5,1\n192.0.0.6,2\n"
    );
    let found = json(&["query", &table, "192.0.0.6"]);
    assert_eq!(found, serde_json::json!([{ "key": "192.0.0.6", "part": 2 }]));

    let stat = json(&["stat", &table]);
    assert_eq!(stat["schema"], "overbank-partition-stat/1");
    for (field, value) in [("keys", 40_000), ("value_bits", 2), ("row_bits", 128), ("sequence", 0)]
    {
        assert_eq!(stat[field], value, "{field}");
    }
    let bits = stat["bits_per_key"].as_f64().expect("a number");
    assert!((2.2..3.2).contains(&bits), "{bits}");
    let text = printed(&["stat", &table], "");
    assert!(text.contains("bits per key") && text.contains("fallback keys        0"), "{text}");
}

#[test]
fn lists_are_read_as_they_are_written() {
    let folder = Folder::new();
    let table = folder.path("table");
    let build = |list: &str, more: &[&str]| {
        let arguments = [&["build", "-", "-o", &table, "--format", "json"], more].concat();
        serde_json::from_str::<Value>(&printed(&arguments, list)).expect("JSON")
    };
    let built = build("key,part\r\na,1\r\n\nb,c, 9\na,1\n", &["--seed", "7", "--generation", "3"]);
    let of = |field: &str| built[field].as_u64().expect("a number");
    assert_eq!([of("keys"), of("repeated"), of("value_bits"), of("generation")], [2, 1, 4, 3]);
    assert_eq!(printed(&["query", &table, "a", "b,c"], ""), "a,1\nb,c,9\n");
    let one = build("only,0", &["--value-bits", "8", "--row", "64"]);
    assert_eq!((one["keys"].as_u64(), one["value_bits"].as_u64()), (Some(1), Some(8)));
    assert_eq!(printed(&["query", &table, "only"], ""), "only,0\n");
}

#[test]
fn bad_lists_are_refused_and_the_table_before_stays() {
    let folder = Folder::new();
    let (_, table) = folder.built(100);
    let before = fs::read(&table).expect("there");
    let long = format!("{},1\n", "x".repeat(70_000));
    for (list, more, error) in [
        ("", None, "no keys: a line is KEY,PART"),
        ("key,part\n", None, "no keys: a line is KEY,PART"),
        ("a,1\nb\n", None, "2: no comma in \"b\": a line is KEY,PART"),
        ("a,1\nb,256\n", None, "2: part \"256\": must be a number from 0 to 255"),
        ("a,1\nb,x\x1b\n", None, "2: part \"x\\u{1b}\": must be a number from 0 to 255"),
        ("a,4\n", Some("2"), "1: part 4 has more than the 2 bits of --value-bits"),
        ("a,1\nb,1\na,2\n", None, "key \"a\" has two parts, 1 and 2 (lines 1 to 3)"),
        (&long, None, "1: the line has more than 65536 bytes"),
    ] {
        let list = folder.write("bad.csv", list);
        let mut arguments = vec!["build", &list, "-o", &table];
        arguments.extend(more.iter().flat_map(|bits| ["--value-bits", bits]));
        let line = refused(&arguments, "");
        assert!(line.ends_with(error) && line.starts_with(&list), "{line}");
        assert!(fs::read(&table).expect("there") == before, "{error}");
    }
    let list = folder.write("bad.csv", b"a,1\n\xff,2\n");
    assert!(refused(&["build", &list, "-o", &table], "").ends_with("bad.csv:2: not UTF-8 text"));
    assert!(refused(&["build", &list, "-o", &list], "").contains("is an input and would be"));
    assert!(refused(&["build", "/nowhere", "-o", &table], "").contains("cannot open"));
    let line = refused(&["build", "-", "-o", &table], "a,1\na,2\n");
    assert!(line.starts_with("standard input: hash 0x") && line.contains("two parts"), "{line}");
    let missing = folder.path("no/table");
    assert!(refused(&["build", "-", "-o", &missing], "a,1\n").contains("no/table"));
    assert!(fs::read(&table).expect("there") == before);
    let left: Vec<PathBuf> =
        fs::read_dir(folder.0.path()).expect("there").map(|e| e.expect("one").path()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn damaged_truncated_and_foreign_tables_are_refused() {
    let folder = Folder::new();
    let (list, table) = folder.built(1000);
    let whole = fs::read(&table).expect("there");
    for command in [&["stat"][..], &["query"], &["bench", "--lookups", "64"]] {
        let refuse = |file: &Path| {
            let file = file.display().to_string();
            let key = (command[0] == "query").then_some("a");
            let arguments: Vec<&str> =
                [command, &[&file]].concat().into_iter().chain(key).collect();
            refused(&arguments, "")
        };
        let bad = PathBuf::from(folder.path("bad"));
        let mut bytes = whole.clone();
        bytes[whole.len() / 2] ^= 4;
        fs::write(&bad, bytes).expect("room");
        assert!(refuse(&bad).contains("block 1 is damaged"));
        fs::write(&bad, &whole[..whole.len() - 1]).expect("room");
        assert!(refuse(&bad).contains("its header says"));
        fs::write(&bad, "shorter than a header").expect("room");
        assert!(refuse(&bad).contains("not an image of a partition table"));
        assert!(refuse(Path::new(&list)).contains("not an image of a partition table"));
        assert!(refuse(Path::new("/nowhere")).contains("cannot open"));
    }
}

#[test]
fn lookups_are_measured_by_burst() {
    let folder = Folder::new();
    let (_, table) = folder.built(1000);
    let arguments = ["bench", &table, "--bursts", "1,32", "--lookups", "4096", "--rounds", "2"];
    let bench = json(&arguments);
    let bursts = bench["bursts"].as_array().expect("an array");
    assert_eq!(bursts.iter().map(|b| b["burst"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(32)]);
    assert!(bursts.iter().all(|burst| burst["ns"].as_f64().is_some_and(|ns| ns > 0.0)));
    let text = printed(&arguments, "");
    assert!(text.contains("keys of a burst") && text.contains("at the owner"), "{text}");
    assert!(json(&["bench", &table, "--moves", "0"])["moves"].is_null());
}

#[test]
fn moves_are_measured_at_the_owner_and_at_a_copy() {
    let folder = Folder::new();
    let (_, table) = folder.built(1000);
    let bench = ["bench", &table, "--bursts", "1", "--lookups", "64", "--rounds", "1", "--moves"];
    for (wanted, measured) in [("10", 10), ("600", 600), ("5000", 1000)] {
        let moves = json(&[&bench[..], &[wanted]].concat())["moves"].clone();
        assert_eq!(
            (moves["moves"].as_u64(), moves["delta_bytes"].as_u64()),
            (Some(measured), Some(23))
        );
        let ns = |name: &str| moves[name].as_f64().unwrap_or(0.0);
        assert!(0.0 < ns("owner_ns_p50") && ns("owner_ns_p50") <= ns("owner_ns_p99"));
        assert!(0.0 < ns("apply_ns_min") && ns("apply_ns_min") <= ns("apply_ns_max"));
    }
}
