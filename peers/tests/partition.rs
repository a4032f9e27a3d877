//! `partition` from end to end, small: every peer starts in a separate process, gives every key its
//! value, and is in the record.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_overbank-peers"))
        .args(["partition", "--rounds", "2", "--builds", "2", "--lookups", "3000", "--out"])
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
    let folder = folder("partition-all");
    let output = run(&folder, &["--sizes", "0.02", "--value-bits", "1,4"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(folder.join("partition.json")).expect("a record");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    let cells = record["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let rows = cell["peers"].as_array().expect("rows");
        let names: Vec<&str> = rows.iter().map(|row| row["peer"].as_str().unwrap()).collect();
        let all = "partition-128 partition-128-packed partition-64 partition-64-packed setsep \
                   setsep-plain rte_efd rte_efd-avx2 rte_efd-avx2-4 sux floor";
        assert_eq!(names.join(" "), all);
        for row in rows {
            let (name, bits) = (row["peer"].as_str(), row["bits_per_key"].as_f64());
            assert!(bits >= cell["value_bits"].as_f64(), "{row}");
            assert_eq!(row["lookup_ns"].is_null(), name == Some("setsep-plain"), "{row}");
            assert_eq!(row["built_mkeys"].is_null(), name == Some("floor"), "{row}");
        }
        assert_eq!(rows[0]["lookup_ratio"]["median"], 1.0);
    }
    let text = std::fs::read_to_string(folder.join("partition.md")).expect("a table");
    assert!(text.contains("0.02 million keys, values of 4 bits"), "{text}");
}

#[test]
fn the_named_peers_take_part() {
    let folder = folder("partition-named");
    let output = run(&folder, &["--sizes", "0.005", "--value-bits", "2", "--peers", "sux"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let progress = String::from_utf8_lossy(&output.stderr).into_owned();
    let names: Vec<&str> = progress.lines().skip(1).map(str::trim).collect();
    assert_eq!(names.join(" "), "partition-128 sux floor");
}

#[test]
fn bad_arguments_are_one_clear_line() {
    let folder = folder("partition-bad");
    for (arguments, part) in [
        (["--peers", "x"], "unknown partition table `x`: must be one of partition-128,"),
        (["--sizes", "0"], "--sizes: 0 million keys"),
        (["--core", "4096"], "core 4096 does not exist"),
    ] {
        let output = run(&folder, &arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(part), "{arguments:?}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    assert!(!folder.exists(), "nothing was measured");
}
