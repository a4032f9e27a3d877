//! Developer tasks: `cargo xtask <task>`, from anywhere inside the workspace.
//!
//! One file per task. [`packages`] knows which Debian packages a task needs, [`steps`] runs
//! commands one after another and sums up; [`nightly`] runs the other tasks. Everything ends
//! non-zero on any failure.

mod api;
mod bench;
mod binaries;
mod clients;
mod coherence;
mod faults;
mod fixture;
mod fuzz;
mod instructions;
mod mutants;
mod nightly;
mod oldest;
mod package;
mod packages;
mod peers;
mod sanitize;
mod semver;
mod soak;
mod steps;
mod test;
mod words;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run a developer task
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
#[command(after_help = "Examples:\n  \
    cargo xtask test                  all checks of a change\n  \
    cargo xtask test clippy format    these steps only\n  \
    cargo xtask help soak             the options of a task")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check everything: packages, format, lints, tests, documentation
    ///
    /// As root, installs missing Debian packages with apt-get; otherwise lists them and fails. The
    /// end-to-end tests make network namespaces and need root.
    #[command(after_help = "Examples:\n  \
        cargo xtask test                  all steps\n  \
        cargo xtask test --no-install     never calls apt-get\n  \
        cargo xtask test clippy format    these steps only\n  \
        cargo xtask test models-full      the models with three preemptions, many minutes\n  \
        cargo xtask test twins-full       partition tables beside maps, two minutes\n  \
        cargo xtask test cluster-full     10,000 seeds of the cluster's simulator\n  \
        cargo xtask test device-full      20 million malformed frames\n  \
        cargo xtask test lookaside-full   10^9 reads of a look-aside table beside writes\n  \
        cargo xtask test proxy-full       an hour of faults behind the proxy of hot keys")]
    Test(test::Options),
    /// Run the tests under AddressSanitizer (nightly toolchain)
    #[command(after_help = "Examples:\n  \
        cargo xtask sanitize              every library crate\n  \
        cargo xtask sanitize overbank     one crate")]
    Sanitize(sanitize::Options),
    /// Run cargo-fuzz with random and mutated input (nightly toolchain)
    #[command(after_help = "Examples:\n  \
        cargo xtask fuzz 300              five minutes, divided over all targets\n  \
        cargo xtask fuzz 60 rules         one minute of one target")]
    Fuzz(fuzz::Options),
    /// Measure at full size and record the results under target/bench/
    #[command(after_help = "Examples:\n  \
        cargo xtask bench                 all records\n  \
        cargo xtask bench probe           the bare table lookups only")]
    Bench(bench::Options),
    /// Count the instructions per packet in each tier with valgrind
    #[command(after_help = "Examples:\n  \
        cargo xtask instructions              the usual designs\n  \
        cargo xtask instructions blp-2-8      one design")]
    Instructions(instructions::Options),
    /// Measure other caches, tables and switches beside Overbank's (DPDK, Open vSwitch)
    ///
    /// As root, installs what it needs with apt-get; otherwise lists what is missing. Writes
    /// results to target/peers/.
    #[command(after_help = "Examples:\n  \
        cargo xtask peers --list                         the products compared\n  \
        cargo xtask peers                                everything, as root\n  \
        cargo xtask peers --smoke                        everything, small, in minutes\n  \
        cargo xtask peers tables -- --alpha 0.95         caches, one load\n  \
        cargo xtask peers mdbx -- --smoke                libmdbx beside LMDB, small\n  \
        cargo xtask peers partition -- --sizes 1         partition tables, one size\n  \
        cargo xtask peers ovs --native -- --rounds 3     Open vSwitch, two builds of it\n  \
        cargo xtask peers explosion -- --smoke           both under an attack, small\n  \
        cargo xtask peers gateway -- --sessions 1000     tunnels beside Open vSwitch, one size")]
    Peers(peers::Options),
    /// Run client libraries of Redis and memcached at the proxy for hot keys
    ///
    /// As root, installs what it needs with apt-get; libraries come from PyPI, npm and Go's proxy
    /// and lie below target/clients/.
    #[command(after_help = "Examples:\n  \
        cargo xtask clients               all of them\n  \
        cargo xtask clients redis_py      one")]
    Clients(clients::Options),
    /// Build the programs that run on the machine of the SDC paper, and run them
    ///
    /// As root, installs clang with apt-get if it is missing. Without arguments prints the path of
    /// the program, below target/workloads/.
    #[command(after_help = "Examples:\n  \
        cargo xtask workloads                            builds, prints the path\n  \
        cargo xtask workloads -- list                    indexes and systems\n  \
        cargo xtask workloads -- run --index lmdb --system sdc --subset 20000")]
    Workloads(workloads::Options),
    /// Run the live switch under traffic, changing rules, flapping ports, dying controllers and
    /// faults
    ///
    /// Uses every kind of port in turn, in network namespaces: needs root. Its short form is part
    /// of the tests. Ends non-zero if removed rules treated a packet, a transfer arrived with other
    /// bytes, memory grew, an account did not close, or the switch did not come back.
    #[command(after_help = "Examples:\n  \
        cargo xtask soak                                   half a minute\n  \
        cargo xtask soak --minutes 30                      ten minutes for each kind of port\n  \
        cargo xtask soak --port-kind afxdp --seed 7        repeats the run with that seed\n  \
        cargo xtask soak --minutes 5 --format json         for machines")]
    Soak(soak::Options),
    /// Run a cluster of gateways under faults: nodes, links, etcd, NATS
    ///
    /// Four gateways, three etcd and three NATS servers in network namespaces, under packets: needs
    /// root. Its short form is part of the tests. Ends non-zero if a packet left twice or as
    /// another session's, an account did not close, or what was answered was gone.
    #[command(after_help = "Examples:\n  \
        cargo xtask faults                        all cases, 40 minutes\n  \
        cargo xtask faults node-killed:all        one fault, during all work\n  \
        cargo xtask faults all:idle etcd-cut:moving\n  \
        cargo xtask faults --minutes 30 --seed 7  random cases for half an hour")]
    Faults(faults::Options),
    /// Record operations on keys that a device caches while every process is killed (as root)
    #[command(after_help = "Examples:\n  \
        cargo xtask coherence                          a million operations, minutes\n  \
        cargo xtask coherence --operations 100000 --seed 7")]
    Coherence(coherence::Options),
    /// Run the slow tasks, each at a bounded size: at most 81 minutes on two cores (as root)
    ///
    /// The tasks are sanitize, fuzz, clients, peers, soak, proxy, faults, the models with three
    /// preemptions, and bench. All run even if one fails. The summary lists their findings and the
    /// executions of the fuzz targets.
    #[command(after_help = "Examples:\n  \
        cargo xtask nightly               all tasks\n  \
        cargo xtask nightly fuzz soak     these tasks only\n  \
        cargo xtask nightly --short       all of them, as small as they get")]
    Nightly(nightly::Options),
    /// Break the code on purpose, one place at a time, to see a test fail
    ///
    /// xtask/mutants.toml lists the places. Breaks a copy of the tree, not the tree itself. Ends
    /// non-zero if a mutant lives.
    #[command(after_help = "Examples:\n  \
        cargo xtask mutants               all of them, ten minutes\n  \
        cargo xtask mutants stations      those with this in their name or file")]
    Mutants(mutants::Options),
    /// Make Debian packages of what people install; --check tries them in a clean Debian
    #[command(after_help = "Examples:\n  \
        cargo xtask package command               target/package/overbank_*.deb\n  \
        cargo xtask package command --check       and tries it in a clean Debian (as root)")]
    Package(package::Options),
    /// Compare the public face of the tables with the one that others build on
    ///
    /// Runs cargo-semver-checks, which it builds once, in minutes.
    #[command(after_help = "Examples:\n  \
        cargo xtask semver                with the commit that the crate names\n  \
        cargo xtask semver HEAD~3         with another one")]
    Semver(semver::Options),
    /// Make tests/fixtures/lan.pcapng and lan.pcap.gz again (as root)
    #[command(after_help = "Example:\n  cargo xtask fixture")]
    Fixture,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Sanitize(options) => sanitize::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Instructions(options) => instructions::run(&options),
        Task::Peers(options) => peers::run(&options),
        Task::Clients(options) => clients::run(&options),
        Task::Workloads(options) => workloads::run(&options),
        Task::Soak(options) => soak::run(&options),
        Task::Faults(options) => faults::run(&options),
        Task::Coherence(options) => coherence::run(&options),
        Task::Nightly(options) => nightly::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Semver(options) => semver::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Fixture => fixture::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The summary ends the output.
        Err(error) if error.is::<steps::StepsFailed>() => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the workspace.
fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map(PathBuf::from).unwrap_or(xtask)
}
