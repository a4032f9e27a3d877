//! `cargo xtask test`: all checks, on a fresh Debian machine with only Rust.
//!
//! Packages first, since nothing else is worth running without them; then each step runs even if
//! one before it failed, so that one run shows everything. Bounded by its steps: no fuzzing, no
//! measuring; the whole takes at most 16 minutes on two cores, from a fresh clone.
//!
//! Most of that is compiling, so every step builds with the same packages selected and the same
//! features: another selection gives dependencies other features and builds them again.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use crate::api;
use crate::binaries::{self, Binary};
use crate::oldest;
use crate::packages;
use crate::peers;
use crate::root;
use crate::steps::{self, Counts, Steps};
use crate::words;
use crate::workloads;

/// Arguments of `test`.
#[derive(Args)]
pub struct Options {
    /// Never call apt-get: name the missing packages and fail
    #[arg(long)]
    no_install: bool,
    /// The steps to run [default: all but those with -full]
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
    /// Phrases that stop a reader, and comments past column 100
    Words,
    /// clippy with warnings denied
    Clippy,
    /// clippy of the fuzz targets
    ClippyFuzz,
    /// clippy of the tables for AArch64, whose vectors have separate files
    Aarch64,
    /// clippy of the tables with none of their features, and with each one alone
    Features,
    /// The tables with the oldest Rust that they are for
    Oldest,
    /// The public face of the tables is that of the list
    Api,
    /// The programs on the machine of the SDC paper, which the lab runs: clippy, and their tests
    Workloads,
    /// Builds the tests once
    Build,
    /// Unit, property and end-to-end tests
    Tests,
    /// The crate that measures what others have built: clippy, and its tests
    Peers,
    /// The Python package: built, installed in a virtual environment, tested there
    Python,
    /// Examples in the documentation
    DocTests,
    /// The documentation builds without warnings
    Doc,
    /// The tests of tables and switch again, for each slower instruction set that the machine has
    Simd,
    /// The forwarding table's tests with entries that move all the time
    Moving,
    /// What threads share without locks, in every order of their steps with two preemptions (loom)
    Models,
    /// The same with three preemptions
    ModelsFull,
    /// Partition tables beside maps: 19 million random operations, other ones each time; SDC beside
    /// its twin: 10 million
    TwinsFull,
    /// The cluster engine: 10,000 seeds of its simulator, two with 100,000 sessions at 32 nodes,
    /// and its models a step deeper
    ClusterFull,
    /// The key-value device under 20 million malformed frames
    DeviceFull,
    /// The look-aside table: 10^9 reads beside writes of the index
    LookasideFull,
    /// The proxy of hot keys while it or its Redis has a fault every second: an hour
    ProxyFull,
}

impl Step {
    /// Whether it runs only when it is named: it takes minutes.
    fn is_long(self) -> bool {
        matches!(
            self,
            Step::ModelsFull
                | Step::TwinsFull
                | Step::ClusterFull
                | Step::DeviceFull
                | Step::LookasideFull
                | Step::ProxyFull
        )
    }
}

/// Runs the chosen steps, or all.
pub fn run(options: &Options) -> Result<()> {
    let mut steps = Steps::default();
    let mut built = Vec::new();
    if let Err(error) = fs::remove_file(skipped())
        && error.kind() != ErrorKind::NotFound
    {
        bail!("{}: {error}", skipped().display());
    }
    for &step in Step::value_variants() {
        let chosen = match options.steps.as_slice() {
            [] => !step.is_long(),
            // They run what that one builds.
            some if step == Step::Build => {
                [Step::Build, Step::Tests, Step::Simd].iter().any(|step| some.contains(step))
            }
            some => some.contains(&step),
        };
        if !chosen {
            continue;
        }
        let ready = run_step(&mut steps, step, options, &mut built);
        if !ready && matches!(step, Step::Packages | Step::Toolchain) {
            break;
        }
    }
    // Written only if a test was skipped.
    steps.skipped(&fs::read_to_string(skipped()).unwrap_or_default());
    for (name, present) in INSTRUCTION_SETS {
        if !present() {
            steps.uncovered(format!("{name}: this machine lacks it"));
        }
    }
    steps.finish()
}

/// Returns the file in which tests that are skipped say so.
fn skipped() -> PathBuf {
    root().join("target/skipped-tests")
}

/// Ensures that the programs of others are there that tests run; installs them if `may_install`.
pub fn others(steps: &mut Steps, may_install: bool) -> bool {
    let there = steps.step("packages", "Debian packages", || {
        packages::ensure(packages::CAPTURE, may_install)?;
        packages::ensure(packages::CONTROL, may_install)?;
        packages::ensure(packages::CLUSTER, may_install)?;
        packages::ensure(packages::STORES, may_install)?;
        packages::ensure(packages::C, may_install)?;
        Ok(Counts::default())
    });
    // From another registry, which may be out of reach: then its tests fail, or are skipped.
    for environment in packages::ENVIRONMENTS.iter().filter(|_| there) {
        if let Err(error) = packages::ensure_environment(environment, may_install) {
            steps.not_run(environment.name, &format!("{error:#}"));
        }
    }
    there
}

fn run_step(steps: &mut Steps, step: Step, options: &Options, built: &mut Vec<Binary>) -> bool {
    let deny = [("RUSTDOCFLAGS", "-D warnings")];
    match step {
        Step::Packages => others(steps, !options.no_install),
        Step::Toolchain => steps
            .step("toolchain", "rustfmt and clippy", || components().map(|()| Counts::default())),
        Step::Format => {
            steps.command("format", &mut cargo("fmt --all --check"))
                & steps.command(
                    "format fuzz",
                    &mut cargo("fmt --manifest-path fuzz/Cargo.toml --check"),
                )
        }
        Step::Words => steps.step("words", "sources and documents", words::run),
        Step::Clippy => steps.command(
            "clippy",
            &mut cargo(
                "clippy --workspace --features \
                 overbank-cli/full,overbank-kv/clients,overbank-stores/services \
                 --all-targets --locked -- -D warnings",
            ),
        ),
        Step::ClippyFuzz => steps.command(
            "clippy fuzz",
            &mut cargo(
                "clippy --manifest-path fuzz/Cargo.toml --target-dir target/fuzz-check \
                 --no-default-features --locked -- -D warnings",
            ),
        ),
        Step::Aarch64 => match target(AARCH64, !options.no_install) {
            Ok(()) => steps.command(
                "aarch64",
                cargo("clippy -p overbank --lib --locked --target")
                    .args([AARCH64, "--", "-D", "warnings"]),
            ),
            // From rustup's server, which may be out of reach.
            Err(error) => {
                steps.not_run("aarch64", &format!("{error:#}"));
                true
            }
        },
        // All are tried, whatever comes of the first ones.
        Step::Features => FEATURES.into_iter().fold(true, |ready, features| {
            let what = "clippy -p overbank --lib --locked --no-default-features --features";
            let mut command = cargo(what);
            command.args([features, "--", "-D", "warnings"]);
            steps.command(&format!("tables, {features:?}"), &mut command) & ready
        }),
        Step::Oldest => steps.possible("oldest Rust", "cargo check of the tables", || {
            oldest::run(!options.no_install)
        }),
        Step::Api => steps.possible("api", "the public face of the tables", api::run),
        Step::Build => {
            let mut command = cargo(BUILD);
            steps.step("build", BUILD, || {
                *built = binaries::build(&mut command)?;
                Ok(Counts::default())
            })
        }
        // Without binaries, the step before has failed and the summary says so.
        Step::Tests | Step::Simd if built.is_empty() => false,
        Step::Tests => {
            let what =
                format!("{} binaries, those that wait beside those that compute", built.len());
            steps.step("tests", &what, || {
                let lanes = Lanes::of(built)?;
                let skipped = skipped().to_string_lossy().into_owned();
                let variables = [(overbank_testing::REPORT, &*skipped)];
                let mut counts = binaries::run(&[lanes.waiting, lanes.busy], &variables)?;
                counts += binaries::run(&[lanes.alone], &variables)?;
                Ok(counts)
            })
        }
        Step::Peers => {
            let there = steps.step("packages peers", "Debian packages", || {
                packages::ensure(peers::BUILD, !options.no_install)?;
                peers::source(!options.no_install).map(|()| Counts::default())
            });
            there
                && steps.command(
                    "format peers",
                    &mut cargo("fmt --manifest-path peers/Cargo.toml --check"),
                ) & steps.command("clippy peers", &mut cargo(PEERS_CLIPPY))
                    & steps.tests("tests peers", &mut cargo(PEERS))
        }
        Step::Workloads => workloads::check(steps, !options.no_install),
        Step::Python => python(steps, !options.no_install),
        Step::DocTests => steps.tests("doc tests", &mut cargo(DOC_TESTS)),
        Step::Doc => steps.command("doc", cargo(DOC).envs(deny)),
        Step::Simd => SLOWER.iter().fold(true, |all, set| all & simd(steps, set, built)),
        Step::Moving => steps.tests("moving fib", &mut cargo(MOVING)),
        Step::Models => models(steps, "", 2),
        Step::ModelsFull => models(steps, " full", 3),
        Step::TwinsFull => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let mut twins = cargo(TWINS);
            twins.env("OVERBANK_TWIN_OPERATIONS", TWIN_OPERATIONS);
            twins.env("OVERBANK_TWIN_SEED", since.as_secs().to_string());
            steps.tests("twins full", &mut twins) & steps.tests("sdc full", &mut cargo(SDC))
        }
        Step::ClusterFull => {
            let mut cluster = cargo(CLUSTER);
            cluster.env("OVERBANK_SIM_SEEDS", "10000").env("OVERBANK_SIM_LARGE", "2");
            cluster.env("OVERBANK_MODEL_DEPTH", "1");
            steps.tests("cluster full", &mut cluster)
        }
        Step::DeviceFull => {
            let mut device = cargo(DEVICE);
            device.env("OVERBANK_MALFORMED_FRAMES", MALFORMED_FRAMES);
            steps.tests("device full", &mut device)
        }
        Step::LookasideFull => {
            let mut lookaside = cargo(LOOKASIDE);
            lookaside.env("OVERBANK_LOOKASIDE_READS", LOOKASIDE_READS);
            steps.tests("lookaside full", &mut lookaside)
        }
        Step::ProxyFull => steps.tests("proxy full", &mut cargo(PROXY)),
    }
}

/// Builds all tests; those of the Python package are not Rust's.
const BUILD: &str = "test --workspace --exclude overbank-python --lib --bins --tests --examples \
                     --features overbank-cli/full,overbank-stores/services --locked --no-run";

/// The examples of the documentation, and the documentation: of what `BUILD` has built.
const DOC_TESTS: &str = "test --workspace --exclude overbank-python --doc --locked --no-fail-fast \
                         --features overbank-cli/full,overbank-stores/services";
const DOC: &str = "doc --workspace --exclude overbank-python --no-deps --locked \
                   --features overbank-cli/full,overbank-stores/services";

/// The forwarding table's tests, where each operation of the writer also moves entries. The whole
/// workspace is selected so that dependencies keep their features.
const MOVING: &str = "test --workspace --exclude overbank-python --locked --no-fail-fast --features \
                      overbank/always-displace,overbank-cli/full,overbank-stores/services \
                      --test tables fib";

/// The tests of `peers` that need no Open vSwitch, in a separate target folder: other dependencies.
const PEERS: &str = "test --manifest-path peers/Cargo.toml --target-dir target/peers/check \
                     --no-fail-fast --bins --test fib --test partition";
const PEERS_CLIPPY: &str = "clippy --manifest-path peers/Cargo.toml --target-dir \
                            target/peers/check --all-targets -- -D warnings";

/// Builds the Python package as a wheel (checked arithmetic, as in all tests), installs it in a
/// virtual environment, and runs its tests there.
fn python(steps: &mut Steps, may_install: bool) -> bool {
    let there = steps.step("packages python", "Debian packages", || {
        packages::ensure(packages::PYTHON, may_install).map(|()| Counts::default())
    });
    if !there {
        return false;
    }
    // From another registry, which may be out of reach.
    if let Err(error) = packages::ensure_environment(&packages::OVERBANK, may_install) {
        steps.not_run("tests python", &format!("{error:#}"));
        return true;
    }
    let folder = root().join("target/python");
    let command = |program: &str, arguments: &str| {
        let mut command = Command::new(folder.join("bin").join(program));
        command.current_dir(root().join("crates/python")).args(arguments.split_whitespace());
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("MYPY_CACHE_DIR", folder.join("mypy"));
        command
    };
    let wheels = folder.join("wheels");
    // What an earlier version left there would be installed as well.
    let _ = fs::remove_dir_all(&wheels);
    let built = steps.command(
        "wheel",
        command("maturin", "build --quiet --locked --out")
            .arg(&wheels)
            .arg("--interpreter")
            .arg(folder.join("bin/python")),
    ) && steps.step("wheel installed", "pip install", || {
        let mut install = command("pip", PIP_INSTALL);
        for wheel in fs::read_dir(&wheels)? {
            install.arg(wheel?.path());
        }
        steps::run(&mut install).map(|()| Counts::default())
    });
    built
        && steps.tests("tests python", &mut command("python", "-m pytest"))
            & steps.command("types python", &mut command("python", STUBTEST))
}

/// Checks the package's types, and that those of its Rust part are what the module has.
const STUBTEST: &str = "-m mypy.stubtest overbank --mypy-config-file pyproject.toml";

/// Without its dependencies, which are those of the tests.
const PIP_INSTALL: &str = "install --quiet --disable-pip-version-check --no-deps --force-reinstall";

/// The partition table's operations beside those of a map.
const TWINS: &str = "test -p overbank --lib --locked partition::tests::twin";
/// SDC beside its twin: 10 million operations, where debug builds have 1.5 million.
const SDC: &str = "test -p overbank-sdc --release --locked --test sdc_twin --test lru";
/// The cluster engine's seeds and models.
const CLUSTER: &str = "test -p overbank-cluster --lib --locked";
/// The key-value device under malformed frames, and their number.
const DEVICE: &str = "test -p overbank-device --lib --locked hostile";
const MALFORMED_FRAMES: &str = "20000000";
/// The look-aside table under threads, and the reads of each of two.
const LOOKASIDE: &str = "test -p overbank --lib --locked lookaside::copies::tests::threads";
const LOOKASIDE_READS: &str = "500000000";
const PROXY: &str = "test -p overbank-kv --features proxy,redis --locked --test redis -- --ignored \
                     --exact --nocapture soak::faults_change_nothing_for_an_hour";
/// Operations of each of 96 kinds of table.
const TWIN_OPERATIONS: &str = "200000";

/// Runs the models under loom, with at most `preemptions` where they have a bound.
fn models(steps: &mut Steps, suffix: &str, preemptions: u32) -> bool {
    let mut handover = cargo(MODELS_HANDOVER);
    handover.env("RUSTFLAGS", "--cfg loom");
    let mut tables = cargo(MODELS_TABLES);
    tables.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    let mut device = cargo(MODELS_DEVICE);
    device.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    let mut proxy = cargo(MODELS_PROXY);
    proxy.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    steps.tests(&format!("models handover{suffix}"), &mut handover)
        & steps.tests(&format!("models tables{suffix}"), &mut tables)
        & steps.tests(&format!("models device{suffix}"), &mut device)
        & steps.tests(&format!("models proxy{suffix}"), &mut proxy)
}

const MODELS_HANDOVER: &str = "test -p overbank-handover --lib --profile models --locked \
                               --target-dir target/loom";
const MODELS_TABLES: &str = "test -p overbank --lib --features loom --locked ::model::";
const MODELS_DEVICE: &str = "test -p overbank-netcache --lib --features loom --locked ::model::";
const MODELS_PROXY: &str = "test -p overbank-kv --lib --features loom --locked ::model::";

/// Binaries that wait most of their time: for ports, timers and other programs.
const WAITING: &[&str] = &[
    "crates/cli test capture_e2e",
    "crates/cli test coherence",
    "crates/cli test faults",
    "crates/cli test kv",
    "crates/cli test kv_proxy",
    "crates/cli test switch",
    "crates/bridge test switch",
    "crates/device test device",
    "crates/kv test memcached",
    "crates/kv test redis",
    "crates/kv test wire",
    "crates/ofctl test openflow",
    "crates/ofctl test switch",
    "crates/ports test interfaces",
    "crates/stores test services",
];

/// Binaries that load both cores and judge how the switch bears it.
const ALONE: &[&str] = &["crates/cli test soak"];

/// The binaries by how they run.
#[derive(Default)]
struct Lanes {
    waiting: Vec<Binary>,
    busy: Vec<Binary>,
    alone: Vec<Binary>,
}

impl Lanes {
    /// Fails if a list names a binary that was not built.
    fn of(built: &[Binary]) -> Result<Self> {
        let named = WAITING.iter().chain(ALONE);
        let gone: Vec<&str> =
            named.copied().filter(|name| built.iter().all(|b| b.title() != *name)).collect();
        if !gone.is_empty() {
            bail!("xtask/src/test.rs names binaries that were not built: {}", gone.join(", "));
        }
        let mut lanes = Self::default();
        for binary in built {
            let title = binary.title();
            let lane = match () {
                () if WAITING.contains(&&*title) => &mut lanes.waiting,
                () if ALONE.contains(&&*title) => &mut lanes.alone,
                () => &mut lanes.busy,
            };
            lane.push(binary.clone());
        }
        Ok(lanes)
    }
}

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

/// Whether this machine has something.
type Present = fn() -> bool;

/// Those that the tables have code for.
const INSTRUCTION_SETS: [(&str, Present); 3] =
    [("avx2", has_avx2), ("avx512", has_avx512), ("neon", || cfg!(target_arch = "aarch64"))];

/// The packages that choose by instruction set.
const SIMD: &[&str] = &["crates/overbank", "crates/switch"];

fn simd(steps: &mut Steps, set: &InstructionSet, built: &[Binary]) -> bool {
    let name = format!("tests {}", set.name);
    if (set.is_best)() {
        steps.not_run(&name, "the machine's best, so the step tests ran on it");
        return true;
    }
    if !(set.present)() {
        steps.not_run(&name, "this machine does not have it");
        return true;
    }
    let of_tables = |binary: &&Binary| SIMD.iter().any(|folder| binary.is_of(folder));
    let binaries: Vec<Binary> = built.iter().filter(of_tables).cloned().collect();
    let what = format!("OVERBANK_SIMD={}, {} binaries", set.name, binaries.len());
    steps.step(&name, &what, || binaries::run(&[binaries], &[("OVERBANK_SIMD", set.name)]))
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

/// Returns `cargo` with these arguments, in the root of the workspace.
pub fn cargo(arguments: &str) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments.split_whitespace());
    command
}

/// Features of the tables, each alone.
const FEATURES: [&str; 5] = ["", "detect", "huge-pages", "snapshot", "internals"];

const AARCH64: &str = "aarch64-unknown-linux-gnu";

/// Makes sure of the standard library of another target.
fn target(name: &str, install: bool) -> Result<()> {
    let rustup = |arguments: &[&str]| {
        Command::new("rustup").args(arguments).stdin(Stdio::null()).output().ok()
    };
    let installed = rustup(&["target", "list", "--installed"])
        .is_some_and(|list| String::from_utf8_lossy(&list.stdout).lines().any(|line| line == name));
    let add = ["target", "add", name];
    if installed || install && rustup(&add).is_some_and(|added| added.status.success()) {
        return Ok(());
    }
    bail!("the target is missing; add with: rustup {}", add.join(" "))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_binary_is_in_one_lane_and_each_name_is_of_a_binary() {
        let named = WAITING.iter().chain(ALONE).map(|title| {
            let mut words = title.split(' ');
            let mut word = || words.next().expect("folder, kind and name");
            Binary::sample(word(), word(), word())
        });
        let other = Binary::sample("crates/wire", "lib", "overbank_wire");
        let built: Vec<Binary> = named.chain([other.clone()]).collect();
        let lanes = Lanes::of(&built).expect("all there");
        assert_eq!((lanes.waiting.len(), lanes.alone.len()), (WAITING.len(), ALONE.len()));
        assert_eq!(lanes.busy, [other]);
        let error = Lanes::of(&built[1..]).err().expect("the first is not there").to_string();
        assert!(error.contains(WAITING[0]), "{error}");
    }
}
