//! `cargo xtask workloads`: builds the programs that run on the machine of the SDC paper, and runs
//! them (workloads/README.md).
//!
//! The crate `workloads` lies outside the workspace: it compiles C by clang, and a wrapper of rustc
//! instruments some of its crates. Everything is made below `target/workloads`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::packages::{self, Package};
use crate::root;
use crate::steps::{self, Steps};
use crate::test;

/// Packages for building the crate.
const BUILD: &[Package] = &[Package {
    name: "clang",
    sign: &["clang", "--version"],
    needed_by: "workloads: the indexes in C",
}];

#[derive(Args)]
pub struct Options {
    /// Build it without hooks, for valgrind and QEMU
    #[arg(long)]
    plain: bool,
    /// Arguments of `overbank-workloads`; `-- --help` lists them [default: print its path]
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Builds the program; prints its path, or runs it.
pub fn run(options: &Options) -> Result<()> {
    // Quiet if it is there: the program's output may be read by another one.
    if packages::find("clang").is_none() {
        packages::ensure(BUILD, true)?;
    }
    steps::run(&mut if options.plain { plain() } else { cargo("build") })?;
    let folder = if options.plain { plain_folder() } else { folder() };
    let program = folder.join("release/overbank-workloads");
    if options.arguments.is_empty() {
        println!("{}", program.display());
        return Ok(());
    }
    steps::run(Command::new(program).args(&options.arguments))
}

/// Runs the steps of `cargo xtask test workloads`. Returns whether all succeeded.
pub fn check(steps: &mut Steps, may_install: bool) -> bool {
    let there = steps.step("packages workloads", "Debian packages", || {
        packages::ensure(BUILD, may_install).map(|()| steps::Counts::default())
    });
    let mut format = cargo_without_options("fmt");
    let crates = ["overbank-workloads", "overbank-watched", "overbank-qemu"];
    format.arg("--check").args(crates.iter().flat_map(|name| ["-p", name]));
    let mut clippy = cargo("clippy");
    clippy.args(["--all-targets", "--", "-D", "warnings"]);
    there
        && steps.command("format workloads", &mut format)
            & steps.command("clippy workloads", &mut clippy)
            & steps.command("build workloads without hooks", &mut plain())
            & steps.tests("tests workloads", &mut cargo("test"))
}

fn folder() -> PathBuf {
    root().join("target/workloads")
}

/// Where the build without hooks lies; the lab's `sdcvalid` looks for it there.
fn plain_folder() -> PathBuf {
    folder().join("plain")
}

fn cargo_without_options(what: &str) -> Command {
    test::cargo(&format!("{what} --manifest-path workloads/Cargo.toml"))
}

/// Returns the command that builds the crate without the wrapper.
fn plain() -> Command {
    let mut command = cargo_without_options("build");
    command.args(["--release", "--target-dir"]).arg(plain_folder());
    command
}

/// Returns a command of cargo for the crate, with the wrapper.
fn cargo(what: &str) -> Command {
    let mut command = cargo_without_options(what);
    command.args(["--release", "--workspace", "--target-dir"]).arg(folder());
    command.env("RUSTC_WRAPPER", root().join("workloads/rustc.sh"));
    command
}
