//! Every registered experiment at smoke size: it has a record that can be drawn, and its checks
//! hold, but for those that differ from the paper on purpose.

use overbank_kit::experiment::{Context, LabError, Size};
use overbank_kit::machine::Machine;
use overbank_kit::report::outcomes;
use overbank_kit::results::Outcome;
use overbank_lab::experiments::{ALL, by_name, sort};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Claims of the papers that do not hold, by experiment and how the claim begins. The reason is in
/// the notes of the experiment. Timings are not here: an experiment at smoke size claims none.
const DIFFERS: &[(&str, &str)] = &[
    ("table1", "lines that 2-4 BLP reads"),
    ("appendix-ab", "the same at α = 0.95"),
    ("appendix-d", "2-4 BLP at α = 0.95 is less than 1 %"),
    ("appendix-d", "share of the missing keys"),
    // Promotion holds on to yesterday's flows.
    ("churn", "cuckoo-2-16+half-bubble hits at least"),
    // The exact sums say 113 trials, and 18.1 bits.
    ("sep-fig10a", "fewer than 100 trials"),
    ("sep-fig10b", "at least 16 bits"),
];

/// Experiments in network namespaces.
const NEED_ROOT: &[&str] = &["sb-latency"];
/// Experiments that start `overbank`: run by `crates/cli/tests/lab.rs`.
const NEED_PROGRAM: &[&str] = &[
    "kv10a-real",
    "kv11a-real",
    "kv11b-real",
    "kv11c-real",
    "kvproxy",
    "kvlanes",
    "kvshards",
    "kvlatency",
    "kvorigin",
];
/// Experiments over NATS JetStream.
const NEED_SERVICES: &[&str] = &["sb-log"];
/// Experiments with indexes and databases of others.
const NEED_ASIDE: &[&str] = &["lookaside", "lookaside-writes", "lookaside-threads"];

/// Experiments that run `overbank-workloads`.
const NEED_WORKLOADS: &[&str] = &[
    "sdc1",
    "sdc7",
    "sdc8",
    "sdc9",
    "sdc10",
    "sdc11",
    "sdc12",
    "sdc13",
    "sdc14",
    "sdc15",
    "sdcmodern",
    "sdcgap",
    "sdcvalid",
];

/// Whether this machine can run an experiment.
fn can_run(name: &str) -> bool {
    let root = || Command::new("sh").args(["-c", "test $(id -u) = 0 && ip netns list"]).output();
    let is_root =
        || overbank_testing::needs("root", root().is_ok_and(|done| done.status.success()));
    let built =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/workloads/release/overbank-workloads");
    let is_built =
        || overbank_testing::needs("`cargo xtask workloads`", Path::new(built).is_file());
    (!NEED_ROOT.contains(&name) || is_root())
        && (!NEED_WORKLOADS.contains(&name) || is_built())
        && (!NEED_ASIDE.contains(&name) || cfg!(feature = "aside"))
        && (!NEED_SERVICES.contains(&name) || cfg!(feature = "services"))
        && !NEED_PROGRAM.contains(&name)
}

/// Runs it; what is wrong goes to `wrong`, so that one experiment does not hide the others.
fn smoke(name: &str, wrong: &mut Vec<String>) -> Outcome {
    let experiment = by_name(name).expect("registered");
    let stop = AtomicBool::new(false);
    let (mut steps, mut last) = (0, 0.0);
    let mut progress = |_: &str, done: f64| {
        assert!((last..=1.0).contains(&done), "{name}: {done} after {last}");
        (steps, last) = (steps + 1, done);
    };
    let mut context = Context::smoke_run(&stop, &mut progress);
    let record = experiment.measure(&mut context).expect("a record");
    assert!(steps > 0, "{name} says nothing of its progress");
    assert_eq!((record.name.as_str(), record.size, record.seed), (name, Size::Smoke, 1));
    // One of timings only claims nothing at this size.
    let shows = record.checks.len() + record.tables.len() + record.plots.len();
    assert!(shows > 0, "{name} shows nothing");
    println!("{name}: {:.1} s", record.seconds);
    for check in &record.checks {
        let known = DIFFERS.iter().any(|(e, claim)| *e == name && check.claim.starts_with(claim));
        println!("  {}: {} ({})", check.claim, check.measured, check.stated);
        if check.holds == known {
            wrong.push(format!("{name}: {check:?}"));
        }
    }
    Outcome::new(record, Machine::here(None), format!("overbank lab run {name} --smoke"))
}

#[test]
fn every_experiment_holds_and_can_be_drawn() {
    let mut wrong = Vec::new();
    let names: Vec<&str> = ALL.iter().map(|e| e.name).filter(|name| can_run(name)).collect();
    let mut outcomes: Vec<Outcome> =
        names.iter().rev().map(|name| smoke(name, &mut wrong)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    sort(&mut outcomes);
    let sorted: Vec<&str> = outcomes.iter().map(|o| o.record.name.as_str()).collect();
    assert_eq!(sorted, names);

    let page = outcomes::page(&outcomes);
    assert!(!page.contains("NaN") && !page.contains("http"), "nothing from a network");
    let plots: usize = outcomes.iter().map(|o| o.record.plots.len()).sum();
    assert_eq!(page.matches("<svg").count(), plots);
}

#[test]
fn experiments_that_start_the_program_say_so_without_it() {
    for name in NEED_PROGRAM {
        let (stop, mut silent) = (AtomicBool::new(false), |_: &str, _: f64| {});
        let mut context = Context::smoke_run(&stop, &mut silent);
        let error = by_name(name).expect("registered").measure(&mut context).expect_err("none");
        assert!(error.to_string().starts_with("needs the program `overbank`"), "{error}");
    }
}

#[test]
fn names_are_distinct_and_can_be_file_names() {
    for (i, experiment) in ALL.iter().enumerate() {
        let name = experiment.name;
        assert!(ALL[..i].iter().all(|e| e.name != name), "{name} twice");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        assert!(name != "all" && !experiment.title.is_empty() && !experiment.source.is_empty());
    }
    assert!(by_name("all").is_none());
}

#[test]
fn ctrl_c_ends_each_of_them() {
    for experiment in ALL {
        let stop = AtomicBool::new(true);
        let mut steps = 0;
        let mut progress = |_: &str, _: f64| steps += 1;
        let smoke = Context::smoke_run(&stop, &mut progress);
        let mut context = Context { size: Size::Full, ..smoke };
        let ended = experiment.measure(&mut context);
        assert!(matches!(ended, Err(LabError::Stopped)), "{}: {ended:?}", experiment.name);
        assert_eq!(steps, 1, "{}", experiment.name);
        assert!(stop.load(Ordering::Relaxed));
    }
}
