//! Gives `--version` what cargo alone knows: commit, target and features (`src/version.rs`).
//!
//! The commit is that of the sources, not of a repository around an unpacked archive: git has to
//! know this very file. Without git, the version is the number alone. Runs again when HEAD moves,
//! not at each build.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let number = variable("CARGO_PKG_VERSION");
    let version = match commit() {
        Some(commit) => format!("{number} ({commit})"),
        None => number,
    };
    println!("cargo::rustc-env=OVERBANK_VERSION={version}");
    println!("cargo::rustc-env=OVERBANK_TARGET={}", variable("TARGET"));
    let instructions = variable("CARGO_CFG_TARGET_FEATURE").replace(',', " ");
    println!("cargo::rustc-env=OVERBANK_TARGET_FEATURES={instructions}");
    let features = env::vars().filter_map(|(name, _)| {
        let feature = name.strip_prefix("CARGO_FEATURE_")?.to_lowercase().replace('_', "-");
        (!["default", "full"].contains(&&*feature)).then_some(feature)
    });
    let mut features: Vec<String> = features.collect();
    features.sort();
    println!("cargo::rustc-env=OVERBANK_FEATURES={}", features.join(" "));
}

/// Returns `4674817b7bb1 2026-11-26`, the commit and its day; `None` without git or its repository.
fn commit() -> Option<String> {
    // The first changes with the branch, the second with each commit.
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // Cargo would run this again and again for a file that is absent.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    git(&["log", "-1", "--abbrev=12", "--format=%h %cs"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Returns a variable that cargo sets, or nothing.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
