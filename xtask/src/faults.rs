//! `cargo xtask faults`: a cluster of gateways under each fault of the matrix, as real processes.
//!
//! The work and its checks are in `crates/cli/tests/faults`; a short form is part of `cargo test`.
//! With a time, random cases follow each other: a soak.
//! The results are `target/faults.json`, a line for each case, and a table on standard output.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::packages;
use crate::root;
use crate::test::cargo;

#[derive(Args)]
pub struct Options {
    /// The cases as FAULT:WORK; either may be `all` [default: all, 40 minutes]
    cases: Vec<String>,
    /// Draw from these cases at random, for as long: any node, any length up to the fault's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,
    /// Seed of the random numbers [default: the time]
    #[arg(long, value_name = "S", requires = "minutes")]
    seed: Option<u64>,
}

/// Runs them; fails if a check failed.
pub fn run(options: &Options) -> Result<()> {
    if !packages::is_root() {
        bail!("faults must run as root: it makes network namespaces");
    }
    packages::ensure(packages::CLUSTER, true)?;
    let report = root().join("target/faults.json");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let cases = match &options.cases[..] {
        [] => "all".to_owned(),
        cases => cases.join(","),
    };
    // Times of recovery are those of the optimised gateway; a soak checks arithmetic, too.
    let profile = if options.minutes.is_some() { "" } else { "--release " };
    let mut command = cargo(&format!(
        "test {profile}--locked -p overbank-cli --features full --test faults what_was_answered \
         -- --nocapture"
    ));
    command.env("OVERBANK_FAULTS", cases).env("OVERBANK_FAULTS_REPORT", &report);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = options.seed.unwrap_or(since.as_secs());
    let seeded = match options.minutes {
        Some(minutes) => {
            command.env("OVERBANK_FAULTS_SECONDS", (60 * minutes).to_string());
            command.env("OVERBANK_FAULTS_SEED", seed.to_string());
            format!(" (seed {seed})")
        }
        None => {
            command.env_remove("OVERBANK_FAULTS_SECONDS");
            String::new()
        }
    };
    let status = command.status().context("cannot run cargo")?;
    let text = fs::read_to_string(&report).unwrap_or_default();
    println!("\n{}", table(&text)?);
    if !status.success() {
        bail!("a case failed{seeded}; what and where is said above");
    }
    Ok(())
}

/// Columns of the table, and their names in the results.
const COLUMNS: [(&str, &str); 9] = [
    ("fault", "fault"),
    ("while", "work"),
    ("packets", "packets"),
    ("lost", "lost"),
    ("recovery, ms", "recovery_ms"),
    ("settled, ms", "settled_ms"),
    ("answered", "answered"),
    ("refused", "refused"),
    ("memory, MiB", "memory_mib"),
];

/// Returns the results as Markdown.
fn table(lines: &str) -> Result<String> {
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut table = row(COLUMNS.map(|(head, _)| head.to_owned()).to_vec());
    table += &row(COLUMNS.map(|_| "---".to_owned()).to_vec());
    for line in lines.lines() {
        let result: Value = serde_json::from_str(line)?;
        let cell = |(_, name): (&str, &str)| match &result[name] {
            Value::Null => "–".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table += &row(COLUMNS.map(cell).to_vec());
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_a_row() {
        let line = r#"{"fault":"node-killed","work":"idle","packets":9,"lost":0,"recovery_ms":null,
                       "settled_ms":7,"answered":1,"refused":2,"memory_mib":40}"#;
        let table = table(&line.replace('\n', "")).expect("JSON");
        assert_eq!(
            table.lines().last(),
            Some("| node-killed | idle | 9 | 0 | – | 7 | 1 | 2 | 40 |")
        );
    }
}
