//! `mdbx` from end to end, small: both databases are built, every answer is right, and the record
//! has every front.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

const FRONTS: [&str; 6] = [
    "LMDB",
    "LMDB, overbank",
    "LMDB, overbank, bursts",
    "libmdbx",
    "libmdbx, cache_get, bounded",
    "libmdbx, cache_get, unbounded",
];

#[test]
fn every_front_is_measured() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mdbx");
    let output = Command::new(env!("CARGO_BIN_EXE_overbank-peers"))
        .args(["mdbx", "--keys", "20000", "--rounds", "2", "--lookups", "3000", "--zipf", "0,0.99"])
        .arg("--out")
        .arg(&folder)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(folder.join("mdbx.json")).expect("a record");
    let record: Value = serde_json::from_str(&json).expect("JSON");
    let (lmdb, libmdbx) = (&record["lmdb"], &record["libmdbx"]);
    assert_eq!((lmdb["entries"].as_u64(), libmdbx["entries"].as_u64()), (Some(20000), Some(20000)));
    let cells = record["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2);
    for cell in cells {
        let rows = cell["fronts"].as_array().expect("rows");
        let names: Vec<&str> = rows.iter().map(|row| row["front"].as_str().unwrap()).collect();
        assert_eq!(names, FRONTS);
        for row in rows {
            let alone = ["LMDB", "libmdbx"].contains(&row["front"].as_str().unwrap());
            assert!(row["ns"]["median"].as_f64() > Some(0.0), "{row}");
            assert_eq!(row["bytes"].as_u64() == Some(0), alone, "{row}");
            assert_eq!(row["hit_rate"].as_f64() == Some(0.0), alone, "{row}");
            assert!(!alone || row["as_fast_as_alone"]["median"] == 1.0, "{row}");
        }
        // Nothing is forgotten without a bound.
        assert!(rows[5]["hit_rate"].as_f64() > rows[4]["hit_rate"].as_f64(), "{cell}");
        assert!(rows[5]["bytes"].as_u64() > rows[4]["bytes"].as_u64(), "{cell}");
    }
    // The databases are removed.
    let left = std::fs::read_dir(&folder).expect("the folder");
    let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.starts_with("overbank-peers")));
}
