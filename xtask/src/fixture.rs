//! `cargo xtask fixture`: makes the captures under tests/fixtures/ again.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{packages, root, steps};

/// Runs the script that makes them.
pub fn run() -> Result<()> {
    if !packages::is_root() {
        bail!("fixture must run as root: it makes network namespaces");
    }
    packages::ensure(packages::CAPTURE, true)?;
    let folder = root().join("tests/fixtures");
    steps::run(Command::new(folder.join("make-capture.sh")).arg(&folder))?;
    println!("look over the tables in tests/fixtures/README.md: the number of frames has changed");
    Ok(())
}
