//! `cargo xtask package`: Debian packages of what people install, each tried in a clean Debian.
//!
//! ```text
//!  cargo build ─▶ target/package: pages, completions, licences ─▶ cargo-deb ─▶ *.deb
//!                                                                                │ --check
//!  a clean Debian (mmdebstrap, kept as an archive) ─▶ apt installs it ─▶ used ─▶ purged
//! ```
//!
//! One file per package: [`command`]. [`root`] is the clean Debian, [`licences`] what the crates
//! inside ask to be passed on. cargo-deb brings what is easy to get wrong by hand: dependencies by
//! `dpkg-shlibdeps`, conffiles, and the scripts of systemd units. It is built once, in
//! `target/tools`.

mod command;
mod licences;
mod root;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::packages::{self, Package};
use crate::root as workspace;
use crate::steps::{run as run_command, shown};
use crate::test::cargo;

const CARGO_DEB: &str = "3.8.0";

/// What building a package needs.
const BUILD: &[Package] = &[
    Package {
        name: "dpkg-dev",
        sign: &["dpkg-shlibdeps", "--version"],
        needed_by: "package: dependencies",
    },
    Package { name: "protobuf-compiler", sign: &["protoc", "--version"], needed_by: "package" },
];

/// What its check needs.
const CHECK: &[Package] = &[
    Package {
        name: "mmdebstrap",
        sign: &["mmdebstrap", "--version"],
        needed_by: "package --check",
    },
    Package { name: "lintian", sign: &["lintian", "--version"], needed_by: "package --check" },
    Package { name: "iproute2", sign: &["ip"], needed_by: "package --check: interfaces" },
    Package {
        name: "qemu-user-static",
        sign: &["qemu-x86_64-static", "--version"],
        needed_by: "package --check: an old CPU",
    },
];

#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Package the command overbank, its units, configuration, manual pages and completions
    #[command(after_help = "Examples:\n  \
        cargo xtask package command               target/package/overbank_*.deb\n  \
        cargo xtask package command --check       and tries it in a clean Debian (as root)")]
    Command(Common),
}

/// Arguments of every package.
#[derive(Args)]
struct Common {
    /// Install it in a clean Debian, use it there and purge it; needs root and, the first time, a
    /// mirror of Debian
    #[arg(long)]
    check: bool,
    /// Never call apt-get or cargo install: name what is missing and fail
    #[arg(long)]
    no_install: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let What::Command(common) = &options.what;
    packages::ensure(BUILD, !common.no_install)?;
    if common.check {
        if !packages::is_root() {
            bail!("--check must run as root: it changes into a Debian that it has made");
        }
        packages::ensure(CHECK, !common.no_install)?;
    }
    let package = command::build(!common.no_install)?;
    if common.check { command::check(&package) } else { Ok(()) }
}

/// Returns the folder of packages and of what they are made from.
fn folder() -> PathBuf {
    workspace().join("target/package")
}

/// Makes an empty folder.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Runs a command and returns its output.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} ({})\n{}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
    }
    String::from_utf8(output.stdout).with_context(|| shown(command))
}

/// Runs `cargo build ...` and returns the program of this name.
fn build(arguments: &str, name: &str) -> Result<PathBuf> {
    let mut command = cargo(arguments);
    println!("{}", shown(&command));
    let messages = output_of(command.arg("--message-format=json-render-diagnostics"))?;
    let program = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let named = message["target"]["name"] == name;
        named.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    program.with_context(|| format!("{} made no {name}", shown(&command)))
}

/// Makes a package of what is built and staged, and returns its file.
fn deb(arguments: &str, may_install: bool) -> Result<PathBuf> {
    let tools = workspace().join("target/tools");
    let program = tools.join("bin/cargo-deb");
    let mut version = Command::new(&program);
    let version = version.arg("--version").stdin(Stdio::null()).output();
    if !version.is_ok_and(|output| output.stdout.trim_ascii().ends_with(CARGO_DEB.as_bytes())) {
        let mut install = cargo("install cargo-deb --locked --version");
        install.args([CARGO_DEB, "--root"]).arg(&tools);
        if !may_install {
            bail!("cargo-deb {CARGO_DEB} is missing: {}", shown(&install));
        }
        println!("{}", shown(&install));
        run_command(&mut install)?;
    }
    let mut command = Command::new(&program);
    // Quiet: it warns of each staged file below `target`. What it would say else, lintian says.
    command.current_dir(workspace()).args(["deb", "--quiet"]).args(arguments.split_whitespace());
    command.arg("--output").arg(folder());
    // The same commit gives the same package.
    command.env("SOURCE_DATE_EPOCH", git(&["log", "-1", "--format=%ct"])?);
    let made = output_of(&mut command)?;
    made.lines().last().map(PathBuf::from).context("cargo-deb names the package")
}

fn git(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    Ok(output_of(command.current_dir(workspace()).args(arguments))?.trim().to_owned())
}
