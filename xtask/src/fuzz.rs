//! `cargo xtask fuzz SECONDS [TARGET]`: random and mutated bytes through every parser.
//!
//! cargo-fuzz on the nightly toolchain, with AddressSanitizer. The time is divided over the
//! targets; corpora stay in `fuzz/corpus` from run to run, and the small files of `fuzz/seeds`
//! start them. A crash ends non-zero and leaves its input in `fuzz/artifacts`.
//!
//! The summary lists the executions of each target, and `fuzz/executions.json` accumulates them.
//! Inputs are as short as each parser allows. A target below [`PER_SECOND_MIN`] executions a second
//! is reported as slow.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::packages;
use crate::sanitize::{nightly, require_nightly};
use crate::steps::{Counts, Steps, shown};
use crate::test::cargo;

/// A fuzz target of `fuzz/Cargo.toml`.
struct Target {
    name: &'static str,
    len_max: u32,
    /// Further options of libFuzzer.
    options: &'static [&'static str],
}

impl Target {
    const fn new(name: &'static str, len_max: u32) -> Target {
        Target { name, len_max, options: &[] }
    }
}

const TARGETS: &[Target] = &[
    Target::new("extract", 2048),
    Target::new("bridge", 64),
    Target::new("edit", 2048),
    Target::new("rules", 192),
    Target::new("capture", 2048),
    Target::new("cache_ops", 2048),
    Target::new("lookaside", 2048),
    Target::new("fib_image", 2048),
    Target::new("partition_image", 2048),
    Target::new("partition_deltas", 1024),
    Target::new("openflow", 8192),
    Target::new("settings", 512),
    Target::new("port_specs", 256),
    Target::new("queries", 128),
    // Recording how often each edge of a whole switch is taken cost half of the time: edges alone.
    Target { options: &["-entropic=0", "-use_counters=0"], ..Target::new("sessions", 96) },
    Target::new("documents", 1024),
    Target::new("gtpu", 512),
    Target::new("stores", 1024),
    Target::new("requests", 512),
    Target::new("pfcp", 512),
    Target::new("device", 1024),
    Target::new("key_files", 1024),
    Target::new("kv_agent", 1024),
    Target::new("tree_ops", 1024),
    Target::new("resp", 512),
    Target::new("memcached", 512),
    Target::new("proxy_session", 1024),
    Target::new("sdc_point", 4096),
];

/// Executions a second below which the summary calls a target slow.
const PER_SECOND_MIN: u64 = 2000;

/// How libFuzzer's final statistics begin the lines with the executions, and with those a second.
const EXECUTED: &str = "stat::number_of_executed_units:";
const RATE: &str = "stat::average_exec_per_sec:";

#[derive(Args)]
pub struct Options {
    /// Time for all targets together, without building
    #[arg(value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// One target: extract, bridge, edit, rules, capture, cache_ops, lookaside, fib_image,
    /// partition_image, partition_deltas, openflow, settings, port_specs, queries, sessions,
    /// documents, gtpu, stores, requests, pfcp, device, key_files, kv_agent, tree_ops,
    /// resp, memcached, proxy_session, sdc_point [default: all]
    target: Option<String>,
}

/// Runs the targets one after another.
pub fn run(options: &Options) -> Result<()> {
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| options.target.as_deref().is_none_or(|name| name == target.name))
        .collect();
    if chosen.is_empty() {
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        bail!("unknown target; known: {}", known.join(", "));
    }
    require_nightly("fuzz")?;
    packages::ensure(packages::FUZZ, true)?;
    let mut steps = Steps::default();
    if !has_cargo_fuzz() {
        let mut install = cargo("install cargo-fuzz --locked");
        if !steps.command("install cargo-fuzz", &mut install) {
            return steps.finish();
        }
    }
    let seconds = (options.seconds / chosen.len() as u64).max(1);
    for Target { name, len_max, options } in chosen {
        if !steps.command(&format!("build {name}"), &mut nightly(&format!("fuzz build {name}"))) {
            continue;
        }
        let folder = crate::root().join("fuzz");
        let corpus = folder.join("corpus").join(name);
        fs::create_dir_all(&corpus)?;
        let mut command = nightly(&format!("fuzz run {name}"));
        command.arg(corpus);
        command.args(Some(folder.join("seeds").join(name)).filter(|seeds| seeds.is_dir()));
        command.args(["--", &format!("-max_total_time={seconds}"), &format!("-max_len={len_max}")]);
        command.args(*options);
        // An input that takes this long is a finding, too.
        command.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
        // Threads of a switch allocate meanwhile, which looks like a leak; `sanitize` finds those.
        command.arg("-detect_leaks=0");
        let mut done = Done::default();
        steps.step(&format!("fuzz {name}"), &shown(&command), || fuzz(&mut command, &mut done));
        // A run that found something has executions, too.
        let (Some(executed), Some(rate)) = (done.executed, done.rate) else { continue };
        let total = add(&executions(), name, executed)?;
        steps.note(&note(executed, rate, total));
    }
    steps.finish()
}

/// What a target says at its end.
#[derive(Default)]
struct Done {
    executed: Option<u64>,
    /// Executions a second.
    rate: Option<u64>,
}

impl Done {
    fn hear(&mut self, line: &str) {
        let number = |name| line.trim().strip_prefix(name)?.trim().parse().ok();
        self.executed = number(EXECUTED).or(self.executed);
        self.rate = number(RATE).or(self.rate);
    }
}

/// Runs a target, lets its words through and reads its executions. Fails if it found something, or
/// if it does not say how much it did.
fn fuzz(command: &mut Command, done: &mut Done) -> Result<Counts> {
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let stderr = child.stderr.take().context("a piped child has an output")?;
    for line in BufReader::new(stderr).split(b'\n') {
        let line = line.context("cannot read the output of the target")?;
        let line = String::from_utf8_lossy(&line);
        // A closed standard error must not end the run.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
        done.hear(&line);
    }
    let status = child.wait().context("cannot wait for the target")?;
    if !status.success() {
        bail!("a finding, or it did not run ({status}); inputs are in fuzz/artifacts");
    }
    if done.executed.is_none() || done.rate.is_none() {
        bail!("no lines {EXECUTED} and {RATE} in its output");
    }
    Ok(Counts::default())
}

/// The executions of each target since this file exists.
fn executions() -> PathBuf {
    crate::root().join("fuzz/executions.json")
}

/// Returns the executions of each target since they are counted, and of all together.
pub fn executions_in_all() -> Result<String> {
    let sums = read(&executions())?;
    let each: Vec<String> = sums.iter().map(|(name, sum)| format!("{name} {sum}")).collect();
    Ok(format!("{}; in all {}", each.join(", "), sums.values().sum::<u64>()))
}

/// Returns the inputs that targets failed on since `start`.
pub fn artifacts(start: SystemTime) -> Vec<PathBuf> {
    let entries = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path()))
    };
    let since = |file: &PathBuf| {
        file.metadata().and_then(|data| data.modified()).is_ok_and(|time| time >= start)
    };
    let mut found: Vec<PathBuf> =
        entries(crate::root().join("fuzz/artifacts")).flat_map(entries).filter(since).collect();
    found.sort();
    found
}

fn read(file: &Path) -> Result<BTreeMap<String, u64>> {
    match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text)
            .with_context(|| format!("{}: expected executions by target", file.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

/// Adds to the executions of a target, and returns their sum. Replaces the file as a whole.
fn add(file: &Path, name: &str, executed: u64) -> Result<u64> {
    let mut sums = read(file)?;
    let sum = sums.entry(name.to_owned()).or_default();
    *sum = sum.saturating_add(executed);
    let sum = *sum;
    let text = serde_json::to_string_pretty(&sums).context("numbers are JSON")?;
    let new = file.with_extension("json.new");
    fs::write(&new, text + "\n").with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, file).with_context(|| format!("cannot replace {}", file.display()))?;
    Ok(sum)
}

fn note(executed: u64, rate: u64, total: u64) -> String {
    let slow = if rate < PER_SECOND_MIN { ", SLOW" } else { "" };
    format!("{executed} executions, {rate} a second{slow}; {total} in all")
}

fn has_cargo_fuzz() -> bool {
    nightly("fuzz --version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read_and_added_up() {
        let mut done = Done::default();
        done.hear("stat::number_of_executed_units: 4711\n");
        assert_eq!((done.executed, done.rate), (Some(4711), None));
        done.hear("stat::average_exec_per_sec:     12");
        done.hear("Done 9 runs");
        assert_eq!((done.executed, done.rate), (Some(4711), Some(12)));
        let folder = std::env::temp_dir().join(format!("overbank-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("executions.json");
        assert_eq!(add(&file, "rules", 40).expect("made"), 40);
        assert_eq!(add(&file, "edit", 1).expect("added"), 1);
        assert_eq!(add(&file, "rules", 2).expect("added"), 42);
        let text = fs::read_to_string(&file).expect("there");
        assert_eq!(text, "{\n  \"edit\": 1,\n  \"rules\": 42\n}\n");
        fs::write(&file, "[").expect("room");
        assert!(add(&file, "rules", 2).is_err(), "a broken file is not replaced");
        fs::remove_dir_all(&folder).expect("there");
    }

    #[test]
    fn a_slow_target_is_called_slow() {
        assert_eq!(note(40_000, 2000, 50_000), "40000 executions, 2000 a second; 50000 in all");
        assert!(note(39_999, 1999, 1).contains("SLOW"));
    }

    #[test]
    fn every_target_of_the_manifest_runs_and_its_seeds_are_short() {
        let folder = crate::root().join("fuzz");
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let bins: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"))
            .collect();
        let targets: Vec<String> =
            TARGETS.iter().map(|target| format!("{}.rs\"", target.name)).collect();
        assert_eq!(bins, targets);
        for seeds in fs::read_dir(folder.join("seeds")).expect("seeds") {
            let seeds = seeds.expect("an entry").path();
            let name = seeds.file_name().expect("a name").to_string_lossy().into_owned();
            let target = TARGETS.iter().find(|target| target.name == name).expect("of a target");
            for seed in fs::read_dir(&seeds).expect("a folder") {
                let seed = seed.expect("an entry");
                let len = seed.metadata().expect("a file").len();
                assert!(len <= u64::from(target.len_max), "{name}: {:?}", seed.file_name());
            }
        }
    }
}
