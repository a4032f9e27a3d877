//! The tables with the oldest Rust that their manifest names, found by trying: each older one
//! refuses the crate.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::root;
use crate::steps;

const MANIFEST: &str = "crates/overbank/Cargo.toml";

/// Default features, and what all have in common.
const WAYS: [&str; 2] = ["", "--no-default-features"];

/// Checks the crate; returns why that Rust is unavailable here.
pub fn run(install: bool) -> Result<Option<String>> {
    let manifest = root().join(MANIFEST);
    let text = fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
    let manifest: toml::Table = text.parse().context(MANIFEST)?;
    let version = manifest["package"]["rust-version"].as_str().context("rust-version")?;
    let succeeds = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
    let rustup = |arguments: &str| {
        let mut command = Command::new("rustup");
        command.args(arguments.split_whitespace());
        command
    };
    if !succeeds(&mut rustup(&format!("run {version} rustc --version"))) {
        let mut add = rustup(&format!("toolchain install {version} --profile minimal"));
        if !(install && succeeds(&mut add)) {
            return Ok(Some(format!("Rust {version} is missing: {}", steps::shown(&add))));
        }
    }
    for way in WAYS {
        let check = "cargo check -p overbank --lib --locked --target-dir target/oldest";
        let mut command = rustup(&format!("run {version} {check} {way}"));
        steps::run(command.current_dir(root()).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN"))?;
    }
    Ok(None)
}
