//! Small runs of the program. It checks every answer itself and fails if one is wrong.

use std::process::{Command, Output};

use serde_json::Value;

/// A run that takes a fraction of a second.
const SMALL: &str = "--items 20000 --lookups 20000 --warmup 20000";

fn program(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_overbank-workloads"))
        .args(arguments.split_whitespace())
        .output()
        .expect("the program runs")
}

/// Returns the object that a run prints, and nothing else.
fn report(arguments: &str) -> Value {
    let output = program(&format!("run {arguments}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{arguments}: {error}");
    let text = String::from_utf8(output.stdout).expect("JSON");
    assert_eq!(text.lines().count(), 1, "{arguments}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

fn names(what: &str) -> Vec<String> {
    let output = program("list --format json");
    let lists: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names = lists[what].as_array().expect("a list");
    names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

fn number(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {report}"))
}

/// Accesses of a lookup with 8 reads of the value. Fewer: something is not instrumented.
fn accesses(index: &str) -> (f64, f64) {
    match index {
        "lmdb" | "redb" => (200.0, 500.0),
        "hash" => (10.0, 14.0),
        "skipmap" | "congee" => (50.0, 160.0),
        _ => (25.0, 90.0),
    }
}

#[test]
fn every_index_answers_right_behind_every_system() {
    let mut points = 0;
    for index in names("indexes") {
        for system in names("systems") {
            if system == "hints" && index != "tree" {
                continue;
            }
            // A key and 7 words, the default of sdc-values, are a line.
            let report = report(&format!("--index {index} --system {system} {SMALL}"));
            let (least, most) = accesses(&index);
            let counted = number(&report, "/accesses_per_lookup");
            let hits = number(&report, "/hits") / number(&report, "/lookups");
            let what = format!("{index} {system}: {counted} accesses, {hits} hits");
            match &*system {
                "regular" => assert!((least..most).contains(&counted) && hits == 0.0, "{what}"),
                "hints" => assert!(hits == 0.0, "{what}"),
                _ => assert!(counted > 8.0 && counted < most + 40.0 && hits > 0.5, "{what}"),
            }
            let searches = number(&report, "/counters/sdc/lookups");
            assert_eq!(searches, if system.starts_with("sdc") { 20000.0 } else { 0.0 }, "{what}");
            points += 1;
        }
    }
    assert!(points >= 8 * 4);
}

#[test]
fn writes_are_seen_by_later_lookups() {
    for index in names("indexes") {
        for system in ["regular", "sdc", "sdc-values", "slb", "slb-items", "copies"] {
            for mix in ["a", "D"] {
                let value = if system == "sdc-values" { 8 } else { 64 };
                let small = format!("--items 5000 --lookups 6000 --value {value}");
                let report =
                    report(&format!("--index {index} --system {system} --ycsb {mix} {small}"));
                assert_eq!(report["keys"], format!("ycsb-{}", mix.to_lowercase()));
                assert!(number(&report, "/counters/stores") > 0.0, "{index} {system} {mix}");
            }
        }
    }
}

#[test]
fn lmdb_has_the_papers_depth() {
    let report = report("--index lmdb --items 1500000 --value 8 --lookups 1000 --warmup 0");
    assert_eq!(report["depth"], 5);
}

#[test]
fn two_runs_count_the_same() {
    let mut points = Vec::new();
    for index in names("indexes") {
        for system in ["regular", "sdc", "slb-items", "copies"] {
            points.push((index.clone(), system, ""));
        }
    }
    // These copy values, or allocate while they serve.
    for (index, system, more) in [
        ("lmdb", "sdc-values", "--read 56"),
        ("tree", "hints", ""),
        ("bplus", "regular", "--heat --value 8"),
        ("bplus", "sdc", "--ycsb D"),
        ("redb", "sdc", "--ycsb D"),
    ] {
        points.push((index.to_owned(), system, more));
    }
    for (index, system, more) in points {
        let run = |arguments: String, pad: usize| {
            let output = Command::new(env!("CARGO_BIN_EXE_overbank-workloads"))
                .arg("run")
                .args(arguments.split_whitespace())
                .env("PADDING", "x".repeat(pad))
                .output()
                .expect("the program runs");
            let mut report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(report["addresses_fixed"], true, "this test needs personality(2)");
            report["counters"].take()
        };
        let usual = run(format!("--index {index} --system {system} {SMALL} {more}"), 0);
        // Another length of arguments and environment, and other allocations before the run.
        let longer = "--theta 0.99 --set ghz=2.5 --seed 1 --set tlb.page_bytes=4096";
        let ways = "--set llc.ways=12 --set l1.ways=8";
        // A map of accesses has a separate cache.
        let longer = match more.contains("--heat") {
            true => longer.to_owned(),
            false => format!("{longer} {ways}"),
        };
        let again = format!("{SMALL} {longer} {more} --system {system} --index {index}");
        assert_eq!(usual, run(again, 4000), "{index} {system}");
    }
}

#[test]
fn options_reach_the_machine() {
    let report = report(&format!(
        "--index hash --system sdc {SMALL} --llc 768KB --set sdc.family=2 --set tlb.walk_levels=0 \
         --false-hit dropped --set sdc.sub_tag_bits=1 --keys fresh"
    ));
    assert_eq!(report["shape"]["llc"]["bytes"], 768 << 10);
    assert_eq!(report["shape"]["sdc"]["family"], 2);
    assert_eq!(report["counters"]["walk"]["dram"], 0);
    assert_eq!(report["dropped"], report["counters"]["sdc"]["false_hits"]);
    assert!(number(&report, "/dropped") > 0.0);
}

#[test]
fn values_of_a_line_fill_more_slots() {
    let run = |system: &str, read: u32| {
        let shape = "--llc 192KB --set tlb.walk_levels=0";
        let report =
            report(&format!("--index bplus --system {system} --read {read} {shape} {SMALL}"));
        assert_eq!(report["counters"]["sdc"]["refused"], 0);
        number(&report, "/hits") / number(&report, "/lookups")
    };
    let hits = [8, 24, 56].map(|read| run("sdc-values", read));
    assert!(run("sdc", 8) > hits[0] && hits[0] > hits[1] && hits[1] > hits[2], "{hits:?}");
    assert!(hits[2] > 0.2, "{hits:?}");
}

fn sum(levels: &[Value], field: &str) -> u64 {
    levels.iter().filter_map(|of| of[field].as_u64()).sum()
}

#[test]
fn a_lookup_of_the_hash_table_reads_one_bucket() {
    let report = report("--index hash --heat --items 8000 --lookups 8000 --value 8 --buckets 8192");
    let levels = report["levels"].as_array().expect("a list");
    let of = |what: &str| {
        let of = levels.iter().find(|of| of["what"] == what);
        number(of.unwrap_or_else(|| panic!("{what}: {levels:?}")), "/accesses")
    };
    assert_eq!(of("level 0"), 8000.0);
    // The key and the value of its item, and two words of each item before it in the chain.
    let before = of("items") - 2.0 * 8000.0;
    assert!(before > 0.0 && before % 2.0 == 0.0 && before < 2.0 * 8000.0, "{levels:?}");
    // The table's mask and address are of no level.
    assert!(of("other") >= 2.0 * 8000.0, "{levels:?}");
    let heat = report["heat"].as_array().expect("a list");
    assert_eq!(sum(levels, "accesses"), heat.iter().filter_map(Value::as_u64).sum::<u64>());
}

#[test]
fn clock_has_as_many_slots_as_sdc_has_values() {
    for (system, read, words) in
        [("sdc", 64, 1.0), ("sdc-values", 8, 2.0), ("sdc-values", 24, 4.0), ("sdc-values", 56, 8.0)]
    {
        // One lookup: beginning and end are the same but for its value.
        let report = report(&format!(
            "--index bplus --system {system} --read {read} --llc 192KB --keys fresh --view \
             --items 20000 --warmup 20000 --lookups 1"
        ));
        let slots = number(&report, "/clock/slots");
        let held = number(&report, "/llc/slots/valid") / words;
        assert!(slots > 100.0 && (slots - held).abs() <= 1.0, "{system} {read}: {slots}, {held}");
        let most = number(&report, "/sdc_lines") * 8.0 / words;
        assert!(slots <= most, "{system} {read}: {slots} in {most}");
    }
}

#[test]
fn heat_has_eight_slots_a_line() {
    let report = report("--index bplus --heat --items 8000 --lookups 8000 --value 8");
    let heat = report["heat"].as_array().expect("a list");
    assert_eq!(heat.len(), (32 << 10) / 8);
    let levels = report["levels"].as_array().expect("a list");
    // And items, and the rest.
    assert_eq!(levels.len() as f64, number(&report, "/depth") + 2.0, "{levels:?}");
    assert_eq!(sum(levels, "accesses"), heat.iter().filter_map(Value::as_u64).sum::<u64>());
    for of in levels {
        let root = of["what"] == format!("level {}", number(&report, "/depth") - 1.0);
        // The rest are the address of the root and constants.
        let one = root || of["what"] == "other";
        assert!(number(of, "/lines") > if one { 0.0 } else { 10.0 }, "{of}");
        assert!(number(of, "/accesses") > 7000.0 && number(of, "/few") <= number(of, "/lines"));
    }
}

#[test]
fn broken_arguments_are_refused_in_one_line() {
    for (arguments, reason) in [
        ("", "--index"),
        ("--index none", "possible values: lmdb"),
        ("--index hash --items 0", "--items 0: must be between 1 and"),
        ("--index hash --lookups 0", "--lookups 0: must be between 1 and"),
        ("--index hash --items 10 --subset 11", "--subset 11: must be between 1 and --items"),
        ("--index hash --warmup 99999999999", "--warmup 99999999999: must be at most"),
        ("--index hash --theta -1", "--theta -1: must be at least 0"),
        ("--index hash --theta NaN", "--theta NaN: must be at least 0"),
        ("--index hash --value 12", "--value 12: must be a multiple of 8"),
        ("--index hash --value 8 --read 16", "--read 16: must be a multiple of 8 between 8 and"),
        ("--index hash --buckets 3", "--buckets 3: must be a power of two"),
        ("--index hash --llc 3XB", "must be a number of bytes"),
        ("--index hash --llc 99999999999GB", "must be a number of bytes"),
        ("--index hash --llc 5MB", "must be 64 x ways x a power of two"),
        ("--index hash --set llc.ways", "must be FIELD=VALUE"),
        ("--index hash --set llc.wais=3", "no such field"),
        ("--index hash --set llc.ways=-1", "--set llc.ways=-1: must be of the kind"),
        ("--index hash --set llc.bytes=1e9", "must be of the kind that it is by default: 3145728"),
        ("--index hash --set llc=null", "--set llc=null: must be of the kind"),
        ("--index hash --system sdc --table 3MB", "--table: is for SLB, copies and hints"),
        ("--index hash --set llc.ways=x", "must be JSON"),
        ("--index hash --set sdc.family=2", "no such field"),
        ("--index hash --system sdc --set sdc=null", "--set sdc"),
        ("--index hash --system hints", "only --index tree has hints"),
        ("--index hash --system sdc-values --read 64", "--read 64: must be 8, 24 or 56 with"),
        ("--index hash --system sdc-values --ycsb C", "--value 512: must be at most 64 with"),
        ("--index hash --system slb --table 17GB", "--table 18253611008: must be at most 2^34"),
        ("--index hash --system slb --table 64", "needs at least 512"),
        ("--index hash --system copies --table 8", "hold no bucket"),
        ("--index hash --ycsb A --keys fresh", "cannot be used with"),
    ] {
        let output = program(&format!("run {arguments}"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments}");
        assert_eq!(error.lines().count(), 1, "{arguments}: {error}");
        assert!(error.contains(reason), "{arguments}: {error}");
    }
}
