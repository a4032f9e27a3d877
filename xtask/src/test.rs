//! `cargo xtask test`: everything there is to check, on a fresh Debian machine with only Rust.
//!
//! Packages first, since nothing else is worth running without them; then each step runs even if
//! one before it failed, so that one run shows everything. Bounded by its steps: no fuzzing, no
//! measuring; the whole stays far under 25 minutes on two cores.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::packages;
use crate::root;
use crate::steps::{Counts, Steps};

/// Arguments of `test`.
#[derive(Args)]
pub struct Options {
    /// Never call apt-get: say what is missing and fail
    #[arg(long)]
    no_install: bool,
    /// The steps to run [default: all]
    #[arg(value_enum)]
    steps: Vec<Step>,
}

/// The steps, in the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Debian packages that the tests need
    Packages,
    /// rustfmt and clippy are there
    Toolchain,
    /// cargo fmt --check, the fuzz targets included
    Format,
    /// clippy with warnings denied
    Clippy,
    /// clippy of the fuzz targets
    ClippyFuzz,
    /// Unit, property and end-to-end tests
    Tests,
    /// Examples in the documentation
    DocTests,
    /// The documentation builds without warnings
    Doc,
    /// The tests of tables and switch again, for each slower instruction set that the machine has
    Simd,
    /// What threads share without locks, in every order of their steps (loom); the forwarding table
    /// with entries that move all the time
    Models,
}

/// Runs the chosen steps, or all.
pub fn run(options: &Options) -> Result<()> {
    let mut steps = Steps::default();
    for &step in Step::value_variants() {
        if !options.steps.is_empty() && !options.steps.contains(&step) {
            continue;
        }
        let ready = run_step(&mut steps, step, options);
        if !ready && matches!(step, Step::Packages | Step::Toolchain) {
            break;
        }
    }
    steps.finish()
}

fn run_step(steps: &mut Steps, step: Step, options: &Options) -> bool {
    let deny = [("RUSTDOCFLAGS", "-D warnings")];
    match step {
        Step::Packages => {
            let there = steps.step("packages", "Debian packages", || {
                packages::ensure(packages::CAPTURE, !options.no_install)?;
                packages::ensure(packages::CONTROL, !options.no_install)?;
                Ok(Counts::default())
            });
            // From another registry, which may be out of reach: its tests say that they are skipped.
            if there && let Err(error) = packages::ensure_osken(!options.no_install) {
                steps.not_run("os-ken", &format!("{error:#}"));
            }
            there
        }
        Step::Toolchain => steps
            .step("toolchain", "rustfmt and clippy", || components().map(|()| Counts::default())),
        Step::Format => {
            steps.command("format", &mut cargo("fmt --all --check"))
                & steps.command(
                    "format fuzz",
                    &mut cargo("fmt --manifest-path fuzz/Cargo.toml --check"),
                )
        }
        Step::Clippy => steps.command(
            "clippy",
            &mut cargo("clippy --workspace --all-targets --locked -- -D warnings"),
        ),
        Step::ClippyFuzz => steps.command(
            "clippy fuzz",
            &mut cargo(
                "clippy --manifest-path fuzz/Cargo.toml --target-dir target/fuzz-check \
                 --no-default-features --locked -- -D warnings",
            ),
        ),
        Step::Tests => steps.tests(
            "tests",
            &mut cargo("test --workspace --lib --bins --tests --examples --locked --no-fail-fast"),
        ),
        Step::DocTests => {
            steps.tests("doc tests", &mut cargo("test --workspace --doc --locked --no-fail-fast"))
        }
        Step::Doc => steps.command("doc", cargo("doc --workspace --no-deps --locked").envs(deny)),
        Step::Simd => SLOWER.iter().fold(true, |all, set| all & simd(steps, set)),
        // A target folder of its own: the flag would have everything built again each time.
        Step::Models => MODELS.iter().fold(true, |all, (name, flags, arguments)| {
            let mut command = cargo(arguments);
            command.env("RUSTFLAGS", flags);
            all & steps.tests(name, &mut command)
        }),
    }
}

/// The models: name of the step, the compiler's flags, and how its tests are run. The last one is no
/// model: each operation of the forwarding table's writer also moves entries, under its own tests.
const MODELS: &[(&str, &str, &str)] = &[
    (
        "models live",
        "--cfg loom",
        "test -p overbank-live --lib --profile models --locked --target-dir target/loom mailbox",
    ),
    (
        "models fib",
        "--cfg loom",
        "test -p overbank --lib --profile models --locked --target-dir target/loom fib::model",
    ),
    (
        "moving fib",
        "--cfg overbank_small",
        "test -p overbank --locked --target-dir target/moving --test fib --test fib_readers \
         --test fib_image",
    ),
];

/// An instruction set that `OVERBANK_SIMD` can force, below the best one that machines may have.
struct InstructionSet {
    name: &'static str,
    present: fn() -> bool,
    /// What the tables choose by themselves is this set, so that `tests` has covered it.
    is_best: fn() -> bool,
}

const SLOWER: &[InstructionSet] = &[
    InstructionSet { name: "portable", present: || true, is_best: || !has_avx2() },
    InstructionSet { name: "avx2", present: has_avx2, is_best: || has_avx2() && !has_avx512() },
];

fn simd(steps: &mut Steps, set: &InstructionSet) -> bool {
    let name = format!("tests {}", set.name);
    if (set.is_best)() {
        steps.not_run(&name, "the machine's best, so the step tests ran on it");
        return true;
    }
    if !(set.present)() {
        steps.not_run(&name, "this machine does not have it");
        return true;
    }
    let mut command =
        cargo("test -p overbank -p overbank-switch --lib --tests --locked --no-fail-fast");
    steps.tests(&name, command.env("OVERBANK_SIMD", set.name))
}

/// Whether this machine has AVX2.
#[cfg(target_arch = "x86_64")]
pub fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Whether this machine has AVX2.
#[cfg(not(target_arch = "x86_64"))]
pub fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

/// `cargo` with these arguments, in the root of the workspace.
pub fn cargo(arguments: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments.split_whitespace());
    command
}

fn components() -> Result<()> {
    let missing: Vec<&str> = [("rustfmt", "fmt --version"), ("clippy", "clippy --version")]
        .into_iter()
        .filter(|(_, probe)| {
            let status = cargo(probe)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            !status.is_ok_and(|status| status.success())
        })
        .map(|(name, _)| name)
        .collect();
    if !missing.is_empty() {
        let list = missing.join(" ");
        bail!("the toolchain lacks {list}; add with:\n    rustup component add {list}");
    }
    Ok(())
}
