//! `live` from end to end, small: a record of the lab whose claims hold. Without root, the part
//! between interfaces is left out, and the record says so; without Open vSwitch, that is left out.

use std::path::Path;
use std::process::Command;

use overbank_kit::experiment::Size;
use overbank_kit::results::Outcome;

#[test]
fn the_record_is_made_and_its_claims_hold() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live");
    let output = Command::new(env!("CARGO_BIN_EXE_overbank-peers"))
        .args(["live", "--smoke", "--seed", "7", "--out"])
        .arg(&folder)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(folder.join("records/live.json")).expect("a record");
    let outcome = Outcome::parse(&json).expect("a record of the lab");
    let record = &outcome.record;
    assert_eq!((&*record.name, record.size, record.seed), ("live", Size::Smoke, 7));
    assert!(record.checks.iter().all(|check| check.holds), "{:?}", record.checks);
    let between =
        record.tables.iter().filter(|table| table.title.starts_with("Flat out, ")).count();
    let skipped = record.notes.iter().any(|note| note.contains("between interfaces was skipped"));
    assert!(skipped || between >= 2, "{record:?}");
}

#[test]
fn a_missing_core_is_one_clear_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_overbank-peers"))
        .args(["live", "--smoke", "--core", "4096"])
        .output()
        .expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("core 4096 is unavailable"), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}
