//! Caches, forwarding tables and switches of others, measured beside Overbank's on the same machine
//! at the same time.
//!
//! `tables` runs caches, [`table`]; `fib` forwarding tables, [`fib`]; `ovs` Open vSwitch with DPDK, [`ovs`];
//! `live` the running switch between interfaces beside Open vSwitch and the Linux bridge, [`live`].
//! Usually started by `cargo xtask peers`, which installs what is needed.

mod clock;
mod contestant;
mod fib;
mod folder;
mod keys;
mod live;
mod machine;
mod output;
mod ovs;
mod process;
mod table;
mod tables;
mod vswitch;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Caches, forwarding tables and switches of others, measured beside Overbank's.
#[derive(Parser)]
#[command(name = "overbank-peers", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Who is there to compare with
    List,
    /// Caches: nanoseconds per key, hit rate, memory
    Tables(tables::Options),
    /// Forwarding tables: nanoseconds per key, with and without a writer, building, memory
    Fib(fib::Options),
    /// Open vSwitch with DPDK beside Overbank's datapath: cycles per packet (as root)
    Ovs(ovs::Options),
    /// The live switch between interfaces beside Open vSwitch and the Linux bridge (as root)
    Live(live::Options),
    /// One table in a process of its own (started by `tables`)
    #[command(hide = true)]
    Contestant(contestant::Options),
    /// One forwarding table in a process of its own (started by `fib`)
    #[command(hide = true)]
    FibContestant(fib::ContestantOptions),
}

fn list() -> Result<()> {
    println!("tables:");
    for peer in table::PEERS {
        let bulk = if peer.bulk { "bursts" } else { "single" };
        println!("  {:<12} {bulk:<7} {}", peer.name, peer.what);
    }
    println!("fib:");
    for peer in fib::PEERS {
        println!("  {:<16} {}", peer.name, peer.what);
    }
    println!("ovs:");
    println!("  Open vSwitch 3.1 with DPDK, its cache configurations: {}", ovs::NAMES.join(", "));
    println!("live:");
    for contestant in live::contestants::ALL {
        println!("  {}", contestant.name());
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::List => list(),
        Command::Tables(options) => tables::run(&options),
        Command::Fib(options) => fib::run(&options),
        Command::Ovs(options) => ovs::run(&options),
        Command::Live(options) => live::run(&options),
        Command::Contestant(options) => contestant::run(&options),
        Command::FibContestant(options) => fib::contest(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("overbank-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}
