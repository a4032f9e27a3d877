//! `cargo xtask sanitize`: runs the tests under AddressSanitizer, on every instruction set.
//!
//! Needs the nightly toolchain; builds into `target/asan`. A read or write outside an allocation, a
//! use after free or a leak ends the run with a report.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use clap::Args;

use crate::root;
use crate::steps::Steps;
use crate::test::{has_avx2, others};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const CRATES: &[&str] = &["overbank", "overbank-wire", "overbank-ports", "overbank-switch"];
/// Empty: the tables choose their instruction set.
const SIMD: &[&str] = &["", "portable", "avx2"];

#[derive(Args)]
pub struct Options {
    /// Crates to test [default: overbank overbank-wire overbank-ports overbank-switch]
    crates: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    require_nightly("sanitize")?;
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        bail!("sanitize supports {TARGET} only");
    }
    let chosen: Vec<&str> = match options.crates.as_slice() {
        [] => CRATES.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let mut steps = Steps::default();
    // Without them, tests that run them fail and name them.
    others(&mut steps, true);
    for &simd in SIMD {
        // Only the tables have instruction sets.
        let crates: Vec<&str> = match simd {
            "" => chosen.clone(),
            _ => chosen.iter().copied().filter(|&name| name == "overbank").collect(),
        };
        if crates.is_empty() {
            continue;
        }
        let name = if simd.is_empty() { "asan".to_string() } else { format!("asan {simd}") };
        if simd == "avx2" && !has_avx2() {
            steps.not_run(&name, "this machine does not have it");
            continue;
        }
        let mut command = nightly(&format!(
            "test --target {TARGET} --target-dir target/asan --lib --tests --locked --no-fail-fast"
        ));
        command.env("RUSTFLAGS", "-Zsanitizer=address");
        command.args(crates.iter().flat_map(|name| ["-p", name]));
        if !simd.is_empty() {
            command.env("OVERBANK_SIMD", simd);
        }
        // The sanitizer's allocator takes locks, which that test would take for the tables'.
        command.args(["--", "--skip", "lookups_order_no_memory"]);
        steps.tests(&name, &mut command);
    }
    steps.finish()
}

/// Returns `cargo +nightly` with these arguments, in the root of the workspace.
pub fn nightly(arguments: &str) -> Command {
    let mut command = Command::new("cargo");
    // The variables of the cargo that runs this task would mislead the other toolchain.
    for name in ["CARGO", "RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC"] {
        command.env_remove(name);
    }
    command.current_dir(root()).arg("+nightly").args(arguments.split_whitespace());
    command
}

/// Fails with the remedy if there is no nightly toolchain.
pub fn require_nightly(task: &str) -> Result<()> {
    let found = nightly("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        bail!(
            "{task} needs a nightly toolchain; add one with:\n    rustup toolchain install nightly"
        );
    }
    Ok(())
}
