//! The package `overbank`: the command with everything that it can do, its units, example
//! configurations, manual pages and completions.
//!
//! Which files go where, and what it depends on: `crates/cli/Cargo.toml`. For any CPU of its
//! architecture: the tables choose their instruction sets at run time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::root::Root;
use super::{
    PROFILE, build as build_program, changelog, deb, empty, folder, git, left, licences, lintian,
    output_of, says, write,
};
use crate::root as workspace;
use crate::steps::{Counts, Steps};

const NAME: &str = "overbank";
const FEATURES: &str = "--features full";

/// Builds the program and makes the package; returns its file.
pub fn build(may_install: bool) -> Result<PathBuf> {
    let program = build_program(
        &format!("build --locked -p overbank-cli --profile {PROFILE} {FEATURES}"),
        NAME,
    )?;
    let to = |name: &str| folder().join(name);
    for stage in ["doc", "man"] {
        empty(&to(stage))?;
    }
    super::run_command(Command::new(&program).arg("man").arg("--out-dir").arg(to("man")))?;
    for shell in ["bash", "zsh", "fish"] {
        let script = output_of(Command::new(&program).args(["completions", shell]))?;
        write(&to(&format!("{NAME}.{shell}")), script)?;
    }
    let licences = to("doc/licences");
    write(&licences, licences::of("overbank-cli", FEATURES)?)?;
    super::run_command(Command::new("gzip").arg("-9n").arg(&licences))?;
    let changes = workspace().join("CHANGELOG.md");
    fs::copy(&changes, to("doc/changelog")).with_context(|| changes.display().to_string())?;
    write(&to("changelog"), changelog(NAME)?.1)?;
    if !git(&["status", "--porcelain"])?.is_empty() {
        println!("the package has changes that are not committed; its version names the commit");
    }
    let made = deb(&format!("--no-build --profile {PROFILE} -p overbank-cli"), may_install)?;
    let bytes = fs::metadata(&made).with_context(|| made.display().to_string())?.len();
    let inside = fs::metadata(&program).with_context(|| program.display().to_string())?.len();
    println!("{}: {bytes} bytes, of a program of {inside}", made.display());
    Ok(made)
}

/// Something that people do with the package, in a clean Debian.
struct Use {
    name: &'static str,
    what: &'static str,
    script: &'static str,
    /// Parts of what it prints.
    says: &'static [&'static str],
}

const INSTALL: Use = Use {
    name: "install",
    what: "depends on nothing that is missing, enables nothing",
    script: "
apt-get install --yes --no-install-recommends ./overbank_*.deb
dpkg --status overbank | grep -q '^Status: install ok installed$'
if ls /etc/systemd/system/*.wants/overbank* 2> /dev/null; then false; fi",
    says: &["Setting up overbank"],
};

/// In a Debian with apt and what is essential.
const ALONE: &[Use] = &[
    INSTALL,
    Use {
        name: "replay",
        what: "measures",
        script: "overbank replay --flows 2000 --rounds 2 --cache none,blp-2-16,set-4 --quiet",
        says: &["blp-2-16", "set-4", "packets alike, byte for byte"],
    },
    Use {
        name: "configurations",
        what: "the examples are valid",
        script: "
overbank switch --config /etc/overbank/switch.toml --check
overbank gateway --config /etc/overbank/gateway.toml --check
overbank kv proxy --config /etc/overbank/proxy.toml --check",
        says: &[
            "configuration is valid: 2 ports, 0 rules",
            "configuration is valid: 0 sessions",
            "configuration is valid: 127.0.0.1:6380, redis://127.0.0.1:6379",
        ],
    },
    Use {
        name: "switch",
        what: "runs by its example between two interfaces",
        script: "overbank switch --config /etc/overbank/switch.toml --duration 2",
        says: &["eth1", "eth2", " 0 rules"],
    },
    Use {
        name: "proxy",
        what: "runs by its example, without a Redis",
        script: "overbank kv proxy --config /etc/overbank/proxy.toml --duration 1 --metrics off",
        says: &["0 connections, 0 commands"],
    },
    Use {
        name: "conffile",
        what: "a changed one outlives another installation and a removal",
        script: "
echo '# mine' >> /etc/overbank/switch.toml
apt-get install --yes --reinstall ./overbank_*.deb
grep -q '^# mine$' /etc/overbank/switch.toml
apt-get remove --yes overbank
grep -q '^# mine$' /etc/overbank/switch.toml
if command -v overbank; then false; fi",
        says: &["Removing overbank"],
    },
];

/// In one with shells, man and systemd.
const WITH_TOOLS: &[Use] = &[
    INSTALL,
    Use {
        name: "bash",
    what: "completes",
        script: r#"
cat > /tmp/complete << 'END'
. /usr/share/bash-completion/bash_completion
_completion_loader overbank
complete -p overbank
COMP_WORDS=(overbank repl) COMP_CWORD=1
_overbank overbank repl overbank
echo "found: ${COMPREPLY[*]}"
END
bash -u /tmp/complete 2> /dev/null || bash /tmp/complete"#,
        says: &["-F _overbank", "found: replay"],
    },
    Use {
        name: "zsh",
    what: "completes",
        script: r#"
zsh -n /usr/share/zsh/vendor-completions/_overbank
zsh -fc 'autoload -Uz compinit; compinit -D -u; print "found: $_comps[overbank]"'"#,
        says: &["found: _overbank"],
    },
    Use {
        name: "fish",
    what: "completes",
        script: r#"fish -c 'complete -C "overbank repl"; complete -C "overbank kv ge"'"#,
        says: &["replay\t", "get\t"],
    },
    Use {
        name: "man",
    what: "has a page for each command, without warnings",
        script: "
mandb --quiet
whatis overbank overbank-replay overbank-gateway-sessions-list overbank-kv-proxy
man overbank-switch | tail -n 16
for page in /usr/share/man/man1/overbank*.1.gz; do
    said=$(man --warnings -l -E UTF-8 -Tutf8 -Z $page 2>&1 > /dev/null)
    if [ -n \"$said\" ]; then echo \"$page: $said\"; false; fi
done",
        says: &["overbank-replay (1)", "overbank switch --config switch.toml --check\n"],
    },
    Use {
        name: "systemd",
    what: "takes the units",
        script: "
systemd-analyze verify --man=yes /usr/lib/systemd/system/overbank-*.service
systemd-analyze security --offline=yes --threshold=50 /usr/lib/systemd/system/overbank-switch.service |
    tail -n 1",
        says: &["Overall exposure level"],
    },
    Use {
        name: "enable",
    what: "units and state, for the purge to remove",
        script: "systemctl enable overbank-switch overbank-gateway overbank-kv-proxy; mkdir -p /var/lib/private/overbank
touch /var/lib/private/overbank/kv; ln -s private/overbank /var/lib/overbank",
        says: &["overbank-switch.service", "overbank-kv-proxy.service"],
    },
];

/// Installs the package in clean Debians, uses it as people do, and purges it.
pub fn check(package: &Path) -> Result<()> {
    let mut steps = Steps::default();
    steps.step("lintian", "no errors and no warnings", || lintian(&[package.to_path_buf()]));
    for (name, packages, uses) in
        [("alone", "", ALONE), ("tools", "man-db,bash-completion,zsh,fish,systemd", WITH_TOOLS)]
    {
        let root = Root::new(name, packages)?;
        let before = root.files(NAME)?;
        root.take(package)?;
        let named = |step: &str| format!("{name} {step}");
        for used in uses {
            steps.step(&named(used.name), used.what, || used.try_in(&root));
            if used.name == INSTALL.name {
                steps.step(&named("version"), "has commit and instruction sets", || version(&root));
                if cfg!(target_arch = "x86_64") {
                    steps.step(&named("old CPU"), "is enough: no AVX", || oldest(&root));
                }
            }
        }
        steps.step(&named("purge"), "leaves nothing", || {
            root.run("apt-get purge --yes overbank; rm overbank_*.deb")?;
            left(&before, &root.files(NAME)?)
        });
    }
    steps.finish()
}

impl Use {
    fn try_in(&self, root: &Root) -> Result<Counts> {
        says(&root.run(self.script)?, self.says)
    }
}

fn version(root: &Root) -> Result<Counts> {
    let said = root.run("overbank --version; overbank -V")?;
    let commit = git(&["log", "-1", "--abbrev=12", "--format=(%h %cs)"])?;
    says(&said, &[&commit, "instruction sets of the tables: portable", "this CPU has: portable"])
}

/// Runs the program on an emulated CPU that has nothing beyond x86-64.
fn oldest(root: &Root) -> Result<Counts> {
    let emulated = |arguments: &str| {
        let mut emulator = Command::new("qemu-x86_64-static");
        emulator.args(["-cpu", "qemu64", "-L"]).arg(root.path());
        emulator.arg(root.path().join("usr/bin/overbank")).args(arguments.split_whitespace());
        output_of(&mut emulator)
    };
    let version = emulated("--version")?;
    says(&version, &["this CPU has: portable; tables take portable"])?;
    let replay = "replay --flows 500 --rounds 1 --warmup 1 --loops 1 --entries 4096 --cache none,blp-2-16 --quiet";
    says(&emulated(replay)?, &["packets alike, byte for byte"])
}
