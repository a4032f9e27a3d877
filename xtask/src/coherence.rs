//! `cargo xtask coherence`: records operations on keys that a device caches, while datagrams are
//! lost and every process is killed, and judges each key.
//!
//! The work and its checks are in `crates/cli/tests/coherence`; a short form is part of
//! `cargo test`.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::packages;
use crate::test::cargo;

#[derive(Args)]
pub struct Options {
    /// Operations at least
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    operations: u64,
    /// Seed of the random numbers [default: the time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

/// Runs it; fails if a key has a violation, or another check failed.
pub fn run(options: &Options) -> Result<()> {
    if !packages::is_root() {
        bail!("coherence must run as root: it makes network namespaces");
    }
    packages::ensure(packages::STORES, true)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = options.seed.unwrap_or(since.as_secs());
    let status = cargo(
        "test --release --locked -p overbank-cli --features full --test coherence each_key \
         -- --nocapture",
    )
    .env("OVERBANK_COHERENCE_OPERATIONS", options.operations.to_string())
    .env("OVERBANK_COHERENCE_SEED", seed.to_string())
    .status()
    .context("cannot run cargo")?;
    if !status.success() {
        bail!("the run failed (seed {seed}); what and where is said above");
    }
    Ok(())
}
