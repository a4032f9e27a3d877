//! `cargo xtask fuzz SECONDS [TARGET]`: random and mutated bytes through every parser.
//!
//! cargo-fuzz on the nightly toolchain, with AddressSanitizer. The time is divided over the
//! targets; corpora stay in `fuzz/corpus` from run to run, and the fixtures seed the parsers. A
//! crash ends non-zero and leaves its input in `fuzz/artifacts`.

use std::process::Stdio;

use anyhow::{Result, bail};
use clap::Args;

use crate::packages;
use crate::sanitize::{nightly, require_nightly};
use crate::steps::Steps;
use crate::test::cargo;

/// A fuzz target of `fuzz/Cargo.toml`.
struct Target {
    name: &'static str,
    /// Longest input, in bytes.
    len_max: u32,
    /// Folder with inputs to start from.
    seeds: Option<&'static str>,
}

const TARGETS: &[Target] = &[
    Target { name: "extract", len_max: 2048, seeds: None },
    Target { name: "bridge", len_max: 64, seeds: None },
    Target { name: "edit", len_max: 2048, seeds: None },
    Target { name: "rules", len_max: 8192, seeds: Some("tests/fixtures") },
    Target { name: "capture", len_max: 1 << 18, seeds: Some("tests/fixtures") },
    Target { name: "cache_ops", len_max: 8192, seeds: None },
    Target { name: "fib_image", len_max: 16_384, seeds: None },
    Target { name: "openflow", len_max: 8192, seeds: None },
];

/// Arguments of `fuzz`.
#[derive(Args)]
pub struct Options {
    /// Time for all targets together, building aside
    #[arg(value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// One target: extract, bridge, edit, rules, capture, cache_ops, fib_image, openflow
    /// [default: all]
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
        bail!("no such target; there are: {}", known.join(", "));
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
    for Target { name, len_max, seeds } in chosen {
        if !steps.command(&format!("build {name}"), &mut nightly(&format!("fuzz build {name}"))) {
            continue;
        }
        let corpus = crate::root().join("fuzz/corpus").join(name);
        std::fs::create_dir_all(&corpus)?;
        let mut command = nightly(&format!("fuzz run {name}"));
        command.arg(corpus);
        command.args(seeds);
        command.args(["--", &format!("-max_total_time={seconds}"), &format!("-max_len={len_max}")]);
        // An input that takes this long is a finding too.
        command.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]);
        steps.command(&format!("fuzz {name}"), &mut command);
    }
    steps.finish()
}

fn has_cargo_fuzz() -> bool {
    nightly("fuzz --version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
