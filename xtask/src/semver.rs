//! `cargo xtask semver`: what a change of the tables' public face asks of the version number.
//!
//! cargo-semver-checks compares the crate with the commit that `crates/overbank/Cargo.toml` names,
//! the last face that others build on. A release moves that name to its own commit.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::package::tool;
use crate::root;
use crate::steps;

const VERSION: &str = "0.51.0";
const MANIFEST: &str = "crates/overbank/Cargo.toml";

#[derive(Args)]
pub struct Options {
    /// The commit to compare with [default: the one that crates/overbank/Cargo.toml names]
    commit: Option<String>,
}

/// Builds the program if it is missing, and compares.
pub fn run(options: &Options) -> Result<()> {
    let commit = match &options.commit {
        Some(commit) => commit.clone(),
        None => baseline()?,
    };
    let program = tool("cargo-semver-checks", "cargo-semver-checks", VERSION, true)?;
    let mut command = Command::new(program);
    command.args(["semver-checks", "-p", "overbank", "--baseline-rev", &commit]);
    steps::run(command.current_dir(root()))
}

fn baseline() -> Result<String> {
    let manifest: toml::Table =
        fs::read_to_string(root().join(MANIFEST)).context(MANIFEST)?.parse().context(MANIFEST)?;
    let commit = manifest["package"]["metadata"]["semver"]["baseline"].as_str();
    Ok(commit.context("package.metadata.semver.baseline: expected a commit")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_names_a_commit() {
        let commit = baseline().unwrap();
        assert!(commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit()), "{commit}");
    }
}
