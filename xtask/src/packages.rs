//! Finds and installs the Debian packages that tasks need beside Rust.
//!
//! A package counts as present when the program that it brings runs, wherever it came from.

use std::env;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::steps::run;

/// A Debian package, the sign of its presence, and the task that needs it.
pub struct Package {
    /// Name for apt-get.
    pub name: &'static str,
    /// A program and the arguments with which it succeeds (or none).
    pub sign: &'static [&'static str],
    /// Task that needs it.
    pub needed_by: &'static str,
}

/// Packages of `test` and `fixture`.
pub const CAPTURE: &[Package] = &[
    Package { name: "iproute2", sign: &["ip"], needed_by: "capture: network namespaces" },
    Package { name: "ethtool", sign: &["ethtool"], needed_by: "capture: offload off" },
    Package { name: "tcpdump", sign: &["tcpdump"], needed_by: "capture: the frames" },
    Package {
        name: "python3",
        sign: &["python3", "-c", "import http.server, selectors"],
        needed_by: "capture: web, name and echo servers",
    },
    Package { name: "curl", sign: &["curl"], needed_by: "capture: web client" },
    Package { name: "iputils-ping", sign: &["ping"], needed_by: "capture: ping" },
    Package { name: "wireshark-common", sign: &["mergecap"], needed_by: "capture: pcapng" },
    Package { name: "tshark", sign: &["tshark"], needed_by: "tests: checks rewritten frames" },
    Package {
        name: "binutils",
        sign: &["objdump", "--version"],
        needed_by: "tests: lookups order no memory",
    },
];

/// Further packages of `test`, for the control plane.
pub const CONTROL: &[Package] = &[
    Package {
        name: "openvswitch-common",
        sign: &["ovs-ofctl", "--version"],
        needed_by: "tests: a controller",
    },
    Package {
        name: "openvswitch-switch",
        sign: &["ovs-vswitchd", "--version"],
        needed_by: "tests: a base station",
    },
    Package {
        name: "osmo-ggsn",
        sign: &["osmo-ggsn", "--version"],
        needed_by: "tests: GTP-U and Echo of others",
    },
    VENV,
];

pub const VENV: Package = Package {
    name: "python3-venv",
    sign: &["python3", "-c", "import ensurepip, venv"],
    needed_by: "tests: the Python package; os-ken and scapy, programs of others",
};

/// Further packages of `test`, for a cluster: its services, and what builds etcd's client.
pub const CLUSTER: &[Package] = &[
    Package {
        name: "protobuf-compiler",
        sign: &["protoc", "--version"],
        needed_by: "crates/stores: builds etcd's client",
    },
    Package {
        name: "libprotobuf-dev",
        sign: &["protoc", "-o", "/dev/null", "google/protobuf/descriptor.proto"],
        needed_by: "crates/stores: files that etcd's client is built from",
    },
    Package { name: "etcd-server", sign: &["etcd", "--version"], needed_by: "tests: a cluster" },
    Package {
        name: "nats-server",
        sign: &["nats-server", "--version"],
        needed_by: "tests: a cluster's log and messages",
    },
];

/// Further packages of `test`: stores of the key-value agent.
pub const STORES: &[Package] = &[
    Package {
        name: "redis-server",
        sign: &["redis-server", "--version"],
        needed_by: "tests: a store of keys and values",
    },
    Package {
        name: "memcached",
        sign: &["memcached", "--version"],
        needed_by: "tests: a store of keys and values",
    },
    Package {
        name: "nutcracker",
        sign: &["nutcracker", "--version"],
        needed_by: "tests: a proxy beside ours",
    },
];

/// Further packages of `test`: what compiles programs in C against the tables, and judges them.
pub const C: &[Package] = &[
    Package { name: "gcc", sign: &["gcc", "--version"], needed_by: "tests: the tables from C" },
    Package { name: "g++", sign: &["g++", "--version"], needed_by: "tests: the header in C++" },
    Package {
        name: "valgrind",
        sign: &["valgrind", "--version"],
        needed_by: "tests: the tables from C",
    },
];

/// Packages of the tests of the Python package.
pub const PYTHON: &[Package] = &[VENV];

/// A virtual environment of Python in `target`.
pub struct Environment {
    /// Its folder, and its name in messages.
    pub name: &'static str,
    /// Packages, at versions that work together: arguments of `pip install`.
    packages: &'static [&'static str],
    /// A script that succeeds if the tests can use them.
    sign: &'static str,
}

/// The environments of `test`.
pub const ENVIRONMENTS: &[Environment] = &[
    Environment {
        name: "osken",
        // The last release with the stock applications.
        packages: &["os-ken==1.4.0", "eventlet==0.41.3", "dnspython==2.9.2"],
        sign: "\
import eventlet
from importlib.util import find_spec
assert find_spec('os_ken.app.simple_switch_13')
",
    },
    Environment { name: "scapy", packages: &["scapy==2.8.0"], sign: "import scapy.contrib.gtp" },
];

/// The environment in which the Python package is built and tested.
pub const OVERBANK: Environment = Environment {
    name: "python",
    packages: &["--requirement", "crates/python/requirements.txt"],
    sign: "\
from importlib.metadata import version
for line in open('crates/python/requirements.txt'):
    name, equal, wanted = line.split('#')[0].strip().partition('==')
    assert not name or version(name) == wanted
",
};

/// The environment of the clients in Python.
pub const CLIENTS: Environment = Environment {
    name: "clients/python",
    packages: &["--requirement", "crates/kv/tests/clients/requirements.txt"],
    sign: "import redis, pymemcache, pylibmc",
};

/// Packages of `fuzz`.
pub const FUZZ: &[Package] =
    &[Package { name: "g++", sign: &["c++"], needed_by: "fuzz: builds libFuzzer" }];

/// Returns whether the process runs as root.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Ensures that all of `wanted` are present. As root, and if `may_install`, installs the missing
/// ones; else fails with the command that does.
pub fn ensure(wanted: &[Package], may_install: bool) -> Result<()> {
    let missing: Vec<&Package> = wanted.iter().filter(|p| !is_present(p)).collect();
    if missing.is_empty() {
        println!("all there: {}", names(&wanted.iter().collect::<Vec<_>>()));
        return Ok(());
    }
    for package in &missing {
        println!("missing: {:18} ({})", package.name, package.needed_by);
    }
    let list = names(&missing);
    let by_hand = format!("apt-get install --no-install-recommends {list}");
    if !may_install || !is_root() {
        bail!("Debian packages are missing; as root: {by_hand}");
    }
    apt(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(missing.iter().map(|p| p.name));
    apt(&arguments)?;
    let still: Vec<&Package> = missing.into_iter().filter(|p| !is_present(p)).collect();
    if !still.is_empty() {
        bail!("installed, but their programs do not run: {}", names(&still));
    }
    Ok(())
}

/// Ensures that `target/NAME` is a virtual environment with its packages; makes it if
/// `may_install`.
pub fn ensure_environment(environment: &Environment, may_install: bool) -> Result<()> {
    let Environment { name, packages, sign } = environment;
    let folder = crate::root().join("target").join(name);
    let works = || {
        Command::new(folder.join("bin/python"))
            .args(["-W", "ignore", "-c", sign])
            .current_dir(crate::root())
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if works() {
        println!("all there: {name}");
        return Ok(());
    }
    let pip = folder.join("bin/pip");
    if !may_install {
        bail!(
            "{name} is missing: python3 -m venv --clear {} && {} install {}",
            folder.display(),
            pip.display(),
            packages.join(" ")
        );
    }
    let mut venv = Command::new("python3");
    run(venv.args(["-m", "venv", "--clear"]).arg(&folder))?;
    run(Command::new(&pip)
        .args(["install", "--quiet", "--disable-pip-version-check"])
        .args(*packages)
        .current_dir(crate::root()))?;
    if !works() {
        bail!("{name} was installed, but does not run");
    }
    Ok(())
}

fn names(packages: &[&Package]) -> String {
    packages.iter().map(|p| p.name).collect::<Vec<_>>().join(" ")
}

fn apt(arguments: &[&str]) -> Result<()> {
    println!("apt-get {}", arguments.join(" "));
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .context("cannot run apt-get: is this a Debian system?")?;
    if !status.success() {
        bail!("apt-get {} failed ({status})", arguments[0]);
    }
    Ok(())
}

fn is_present(package: &Package) -> bool {
    let Some((program, arguments)) = package.sign.split_first() else { return false };
    let Some(path) = find(program) else { return false };
    arguments.is_empty()
        || Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// Finds a program in PATH, or in Debian's folders of programs for root.
pub fn find(program: &str) -> Option<PathBuf> {
    // Without PATH only Debian's folders are searched.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| {
            file.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_nowhere_is_missing_and_named() {
        let nowhere = [Package {
            name: "overbank-nowhere",
            sign: &["overbank-no-such-program"],
            needed_by: "this test",
        }];
        let error = ensure(&nowhere, false).expect_err("it cannot be there").to_string();
        assert!(error.contains("apt-get install --no-install-recommends overbank-nowhere"));
    }

    #[test]
    fn a_program_must_succeed_with_its_arguments() {
        let package = |sign| Package { name: "coreutils", sign, needed_by: "this test" };
        assert!(is_present(&package(&["sh"])));
        assert!(is_present(&package(&["sh", "-c", "exit 0"])));
        assert!(!is_present(&package(&["sh", "-c", "exit 1"])));
    }
}
