//! `cargo xtask clients`: client libraries of Redis and memcached, at `overbank kv proxy`.
//!
//! The libraries come from their registries, at the versions that the files beside the programs
//! (crates/kv/tests/clients) name, and lie below `target/clients`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::packages::{self, Package};
use crate::root;
use crate::steps;
use crate::test;

const PACKAGES: &[Package] = &[
    packages::VENV,
    Package { name: "gcc", sign: &["gcc", "--version"], needed_by: "clients: builds pylibmc" },
    Package {
        name: "libmemcached-dev",
        sign: &["sh", "-c", "echo '#include <libmemcached/memcached.h>' | cc -E -"],
        needed_by: "clients: builds pylibmc",
    },
    Package {
        name: "zlib1g-dev",
        sign: &["sh", "-c", "echo '#include <zlib.h>' | cc -E -"],
        needed_by: "clients: builds pylibmc",
    },
    Package {
        name: "golang-go",
        sign: &["go", "version"],
        needed_by: "clients: go-redis, rueidis",
    },
    Package { name: "nodejs", sign: &["node", "--version"], needed_by: "clients: ioredis" },
    Package { name: "npm", sign: &["npm", "--version"], needed_by: "clients: ioredis" },
];

#[derive(Args)]
pub struct Options {
    /// Tests whose names contain this [default: all]
    filter: Vec<String>,
}

/// Builds the programs and runs them.
pub fn run(options: &Options) -> Result<()> {
    packages::ensure(PACKAGES, true)?;
    packages::ensure(packages::STORES, true)?;
    packages::ensure_environment(&packages::CLIENTS, true)?;
    let (from, to) = (root().join("crates/kv/tests/clients"), root().join("target/clients"));
    node(&from.join("node"), &to.join("node"))?;
    for program in ["goredis", "rueidis"] {
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(to.join("go").join(program)).arg(format!("./{program}"));
        steps::run(build.current_dir(from.join("go")))?;
    }
    let mut tests =
        test::cargo("test -p overbank-kv --features clients --locked --test clients --");
    steps::run(tests.args(&options.filter).env("OVERBANK_CLIENTS", to))
}

/// Copies the program and its lock file and installs its packages beside them: node looks there.
fn node(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for file in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--no-audit", "--no-fund", "--silent"]);
    steps::run(install.current_dir(to))
}
