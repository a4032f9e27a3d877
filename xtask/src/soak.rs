//! `cargo xtask soak`: runs the live switch under traffic, changing rules, flapping ports, dying
//! controllers, faults and SIGKILL, all at once.
//!
//! The work and its checks are in `crates/cli/tests/soak`; a short form is part of `cargo test`.
//! This task sets the time, the kind of ports and the seed, and reports the result. Unless
//! `--release` is given, the switch is that of the development profile, with checked arithmetic and
//! assertions. With `--release` it must also forward within a second of a start after SIGKILL.

use std::fs;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::packages;
use crate::root;
use crate::test::cargo;

/// Longest time from a start after SIGKILL to forwarding, in milliseconds.
const START_MS_MAX: u64 = 1000;

#[derive(Args)]
pub struct Options {
    /// Minutes in all, divided over the kinds of ports [default: half a minute]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,
    /// Seconds in all
    #[arg(long, value_name = "N", conflicts_with = "minutes",
          value_parser = clap::value_parser!(u64).range(6..=86_400))]
    seconds: Option<u64>,
    /// Use ports of this kind only
    #[arg(long, value_enum, value_name = "KIND")]
    port_kind: Option<Kind>,
    /// Seed of the random numbers [default: the time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Use the optimised switch
    #[arg(long)]
    release: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Afpacket,
    Afxdp,
    Tap,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For machines (`overbank-soak/1`); other output goes to standard error
    Json,
}

/// Runs it; fails if any check failed.
pub fn run(options: &Options) -> Result<()> {
    if !packages::is_root() {
        bail!("soak must run as root: it makes network namespaces");
    }
    if options.format == Format::Text {
        packages::ensure(packages::CAPTURE, true)?;
        packages::ensure(packages::CONTROL, true)?;
    }
    let report = root().join("target/soak.json");
    // Remove that of an earlier run.
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let profile = if options.release { "--release " } else { "" };
    let mut command = cargo(&format!(
        "test {profile}--locked -p overbank-cli --test soak nothing_breaks -- --nocapture"
    ));
    for name in ["SECONDS", "KIND", "SEED"] {
        command.env_remove(format!("OVERBANK_SOAK_{name}"));
    }
    command.env("OVERBANK_SOAK_REPORT", &report);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = options.seed.unwrap_or(since.as_secs());
    command.env("OVERBANK_SOAK_SEED", seed.to_string());
    if let Some(seconds) = options.seconds.or(options.minutes.map(|minutes| 60 * minutes)) {
        let kinds =
            if options.port_kind.is_some() { 1 } else { Kind::value_variants().len() as u64 };
        command.env("OVERBANK_SOAK_SECONDS", (seconds / kinds).to_string());
    }
    if let Some(kind) = options.port_kind.and_then(|kind| kind.to_possible_value()) {
        command.env("OVERBANK_SOAK_KIND", kind.get_name());
    }
    if options.format == Format::Json {
        command.stdout(Stdio::from(std::io::stderr()));
    }
    let status = command.stdin(Stdio::null()).status().context("cannot run cargo")?;
    if options.format == Format::Json {
        // A failed soak may have a report, too; without one, the error below is all.
        if let Ok(text) = fs::read_to_string(&report) {
            print!("{text}");
        }
    }
    if !status.success() {
        bail!("the soak failed (seed {seed}); what and where is said above");
    }
    if !report.exists() {
        bail!("the soak was skipped, or did not come to its end");
    }
    let late = late(&serde_json::from_str(&fs::read_to_string(&report)?)?);
    if !late.is_empty() && options.release {
        bail!("{}", late.join("\n"));
    }
    late.iter().for_each(|line| eprintln!("{line}; only --release is held to it"));
    Ok(())
}

/// Returns where a start after SIGKILL took too long to forward.
fn late(report: &Value) -> Vec<String> {
    let soaks = report["soaks"].as_array().map_or(&[][..], Vec::as_slice);
    let took = |soak: &Value| soak["counts"]["from start to forwarding, ms"].as_u64();
    let late = soaks.iter().filter_map(|soak| Some((soak, took(soak)?)));
    late.filter(|(_, ms)| *ms > START_MS_MAX)
        .map(|(soak, ms)| {
            let kind = soak["kind"].as_str().unwrap_or("?");
            format!("{kind}: {ms} ms from start to forwarding, at most {START_MS_MAX} are aimed at")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_start_that_takes_more_than_a_second_is_late() {
        let soak = |kind: &str, ms: u64| json!({ "kind": kind, "counts": { "from start to forwarding, ms": ms } });
        let report = json!({ "soaks": [soak("tap", 1000), soak("afxdp", 1001)] });
        let wanted = ["afxdp: 1001 ms from start to forwarding, at most 1000 are aimed at"];
        assert_eq!(late(&report), wanted);
        assert!(late(&json!({})).is_empty());
    }
}
