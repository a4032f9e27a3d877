//! `fib` from end to end, small: every peer starts in a separate process, gives right answers to
//! all orders, and is in the record.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_overbank-peers"))
        .args(["fib", "--rounds", "2", "--keys", "3000", "--checks", "2000", "--out"])
        .arg(folder)
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn every_peer_is_measured() {
    let folder = folder("fib-all");
    let output = run(&folder, &["--sizes", "0.02,0.5"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(folder.join("fib.json")).expect("a record");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    let cells = record["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let rows = cell["peers"].as_array().expect("rows");
        let mut names: Vec<&str> = rows.iter().map(|row| row["peer"].as_str().unwrap()).collect();
        names.dedup();
        let all = "overbank floor rte_hash-lf rte_hash-lf-ext libcuckoo hashbrown papaya scc";
        assert_eq!(names.join(" "), all);
        assert_eq!(rows[0]["hit_ratio"]["median"], 1.0);
        assert_eq!(rows[2]["hit_ratio_list"]["median"], 1.0);
        for row in rows {
            assert!(row["hit_ns"]["min"].as_f64() > Some(0.0), "{row}");
            assert!(row["miss_ratio"]["median"].as_f64() > Some(0.0), "{row}");
            // 8 bytes are an entry itself. A small table fits into pages that were there before.
            let small = cell["entries"] == 20_000;
            assert!(small || row["bytes_per_entry"].as_f64() >= Some(8.0), "{row}");
            let writer = &row["writer"];
            if row["peer"] != "floor" && !record["writer_core"].is_null() {
                assert!(writer["changes_per_s"]["min"].as_f64() > Some(0.0), "{row}");
                assert_eq!(writer["lost"], 0, "{row}");
            }
        }
        assert!(cell["rte_hash_best"]["hit"].as_f64() > Some(0.0));
    }
    let text = std::fs::read_to_string(folder.join("fib.md")).expect("a table");
    assert!(text.contains("0.02 million entries") && text.contains("| papaya get"), "{text}");
}

#[test]
fn bad_arguments_are_one_clear_line() {
    let folder = folder("fib-bad");
    for (arguments, part) in [
        (["--peers", "x"], "unknown forwarding table `x`: must be one of overbank, floor,"),
        (["--sizes", "0"], "--sizes: 0 million entries"),
        (["--room", "0.5"], "--room is from 1 to 4: 0.5"),
        (["--core", "4096"], "core 4096 does not exist"),
    ] {
        let output = run(&folder, &arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{arguments:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    assert!(!folder.exists(), "nothing was measured");
}
