//! `cargo xtask package`: Debian packages of what people install, each tried in a clean Debian.
//!
//! ```text
//!  cargo build ─▶ target/package: pages, completions, licences ─▶ cargo-deb ─▶ *.deb
//!                                                                                │ --check
//!  a clean Debian (mmdebstrap, kept as an archive) ─▶ apt installs it ─▶ used ─▶ purged
//! ```
//!
//! One file for each thing that is packaged: [`command`], [`c`]. [`root`] is the clean Debian,
//! [`licences`] what the crates inside ask to be passed on. For the command, cargo-deb brings what
//! is easy to get wrong by hand: dependencies by `dpkg-shlibdeps`, conffiles, and the scripts of
//! systemd units. For the library, cargo-c knows how libraries are named and found. Both are built
//! once, in `target/tools`.

mod c;
mod command;
mod licences;
mod root;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::packages::{self, Package};
use crate::root as workspace;
use crate::steps::{Counts, run as run_command, shown};
use crate::test::cargo;

/// Of `Cargo.toml`.
const PROFILE: &str = "dist";
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
    /// Package the tables for C: liboverbank1 and liboverbank-dev
    #[command(after_help = "Examples:\n  \
        cargo xtask package c                     target/package/liboverbank*.deb\n  \
        cargo xtask package c --check             and tries them in a clean Debian (as root)")]
    C(Common),
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
    let (What::Command(common) | What::C(common)) = &options.what;
    packages::ensure(BUILD, !common.no_install)?;
    if common.check {
        if !packages::is_root() {
            bail!("--check must run as root: it changes into a Debian that it has made");
        }
        packages::ensure(CHECK, !common.no_install)?;
    }
    match &options.what {
        What::Command(_) => {
            let package = command::build(!common.no_install)?;
            if common.check { command::check(&package) } else { Ok(()) }
        }
        What::C(_) => {
            let packages = c::build(!common.no_install)?;
            if common.check { c::check(&packages) } else { Ok(()) }
        }
    }
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
    let program = tool("cargo-deb", "cargo-deb", CARGO_DEB, may_install)?;
    let mut command = Command::new(&program);
    // Quiet: it warns of each staged file below `target`. What it would say else, lintian says.
    command.current_dir(workspace()).args(["deb", "--quiet"]).args(arguments.split_whitespace());
    command.arg("--output").arg(folder());
    // The same commit gives the same package.
    command.env("SOURCE_DATE_EPOCH", git(&["log", "-1", "--format=%ct"])?);
    let made = output_of(&mut command)?;
    made.lines().last().map(PathBuf::from).context("cargo-deb names the package")
}

/// Returns a program of a crate from the registry, in `target/tools`; builds it if it is not there.
pub fn tool(name: &str, program: &str, version: &str, may_install: bool) -> Result<PathBuf> {
    let tools = workspace().join("target/tools");
    let program = tools.join("bin").join(program);
    // What cargo says that it has installed there.
    let list = cargo("install --list --root").arg(&tools).output();
    let there = list.is_ok_and(|list| {
        String::from_utf8_lossy(&list.stdout).contains(&format!("{name} v{version}:"))
    });
    if !(there && program.exists()) {
        let mut install = cargo("install --locked");
        install.args([name, "--version", version, "--root"]).arg(&tools);
        if !may_install {
            bail!("{name} {version} is missing: {}", shown(&install));
        }
        println!("{}", shown(&install));
        run_command(&mut install)?;
    }
    Ok(program)
}

/// Returns the version of a Debian package, and its list of changes: this version.
fn changelog(source: &str) -> Result<(String, String)> {
    let manifest = |path: &str| -> Result<toml::Table> {
        let path = workspace().join(path);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.parse().with_context(|| path.display().to_string())
    };
    let (all, own) = (manifest("Cargo.toml")?, manifest("crates/cli/Cargo.toml")?);
    let version = all["workspace"]["package"]["version"].as_str().context("a version")?;
    let maintainer = own["package"]["metadata"]["deb"]["maintainer"].as_str();
    let maintainer = maintainer.context("a maintainer")?;
    let (commit, date) =
        (git(&["log", "-1", "--abbrev=12", "--format=%h"])?, git(&["log", "-1", "--format=%cD"])?);
    let changes = format!(
        "{source} ({version}-1) unstable; urgency=medium\n\n  * Package of commit {commit}; \
         changelog.gz has the changes.\n\n -- {maintainer}  {date}\n"
    );
    Ok((format!("{version}-1"), changes))
}

fn lintian(packages: &[PathBuf]) -> Result<Counts> {
    // Overrides have their reasons: packaging/debian.
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--tag-display-limit", "0", "--allow-root"]);
    print!("{}", output_of(lintian.args(packages))?);
    Ok(Counts::default())
}

/// Prints what a program said; fails if a part is not in it.
fn says(said: &str, parts: &[&str]) -> Result<Counts> {
    println!("{}", said.trim_end());
    match parts.iter().find(|part| !said.contains(**part)) {
        None => Ok(Counts::default()),
        Some(part) => bail!("{part:?} is not in what it printed"),
    }
}

/// Fails if files are there that were not before, or are gone.
fn left(before: &[String], after: &[String]) -> Result<Counts> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) =
        (before.iter().collect(), after.iter().collect());
    let changed: Vec<&str> =
        before.symmetric_difference(&after).map(|file| file.as_str()).collect();
    if !changed.is_empty() {
        bail!("{} files were left or are gone\n{}", changed.len(), changed.join("\n"));
    }
    Ok(Counts::default())
}

fn git(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    Ok(output_of(command.current_dir(workspace()).args(arguments))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_or_gone_is_named() {
        let files =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let before = files(&["etc/passwd", "usr/bin/sh"]);
        assert!(left(&before, &before).is_ok());
        let error = left(&before, &files(&["etc/overbank/mine", "usr/bin/sh"])).expect_err("both");
        assert_eq!(
            error.to_string(),
            "2 files were left or are gone\netc/overbank/mine\netc/passwd"
        );
    }

    #[test]
    fn the_list_of_changes_has_version_and_maintainer() {
        let (version, text) = changelog("overbank").expect("two manifests and a commit");
        assert!(version.ends_with("-1"));
        assert!(
            text.starts_with(concat!("overbank (", env!("CARGO_PKG_VERSION"), "-1) ")),
            "{text}"
        );
        assert!(text.contains("\n -- The Overbank contributors <"), "{text}");
    }
}
