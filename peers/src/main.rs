//! Measures caches, forwarding tables and switches of others beside Overbank's on the same machine
//! at the same time.
//!
//! `tables` runs caches, [`table`]; `aside` those in front of an index, [`aside`]; `mdbx` libmdbx's
//! beside ours in front of LMDB (feature `mdbx`); `fib` forwarding tables, [`fib`]; `partition`
//! partition tables, [`partition`]; `ovs` Open vSwitch with DPDK, [`ovs`], `explosion` the same
//! under packets made to slow it, [`ovs::explosion`]; `smc` Open vSwitch with a table of Overbank
//! inside, [`smc`]; `gateway` its tunnels beside the gateway's, [`gateway`]; `live` the running
//! switch between interfaces beside Open vSwitch and the Linux bridge, [`live`]; `control` rules
//! over OpenFlow, [`control`]. `cargo xtask peers` installs what is needed and starts it.

mod aside;
mod clock;
mod contestant;
mod control;
mod fib;
mod folder;
mod gateway;
mod keys;
mod live;
mod machine;
#[cfg(feature = "mdbx")]
mod mdbx;
mod output;
mod ovs;
mod partition;
mod process;
mod smc;
mod table;
mod tables;
mod vswitch;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures caches, forwarding tables, partition tables and switches of others beside Overbank's
#[derive(Parser)]
#[command(name = "overbank-peers", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists the peers
    List,
    /// Measures caches: nanoseconds per key, hit rate, memory
    Tables(tables::Options),
    /// Measures look-aside tables in front of an index: nanoseconds per lookup, hit rate
    Aside(aside::Options),
    /// Measures lookups in front of LMDB and inside libmdbx: nanoseconds per lookup, hit rate
    #[cfg(feature = "mdbx")]
    Mdbx(aside::Options),
    /// Measures forwarding tables: nanoseconds per key, with and without a writer, building, memory
    Fib(fib::Options),
    /// Measures partition tables: nanoseconds per key, bits per key, building
    Partition(partition::Options),
    /// Measures Open vSwitch with DPDK beside Overbank's datapath: cycles per packet (as root)
    Ovs(ovs::Options),
    /// Measures tables of Overbank in the place of Open vSwitch's signature cache (as root)
    Smc(smc::Options),
    /// Measures what both leave to packets of others, under packets made to have a mask each (as
    /// root)
    Explosion(ovs::explosion::Options),
    /// Measures Open vSwitch with gtpu ports beside Overbank's gateway (as root)
    Gateway(gateway::Options),
    /// Measures the live switch between interfaces beside Open vSwitch and the Linux bridge (as
    /// root)
    Live(live::Options),
    /// Measures how long rules take into a switch and out of it over OpenFlow (as root)
    Control(control::Options),
    /// Runs one table in a separate process (started by `tables`)
    #[command(hide = true)]
    Contestant(contestant::Options),
    /// Runs one forwarding table in a separate process (started by `fib`)
    #[command(hide = true)]
    FibContestant(fib::ContestantOptions),
    /// Runs one partition table in a separate process (started by `partition`)
    #[command(hide = true)]
    PartitionContestant(partition::ContestantOptions),
}

fn list() -> Result<()> {
    println!("tables:");
    for peer in table::PEERS {
        let bulk = if peer.bulk { "bursts" } else { "single" };
        println!("  {:<12} {bulk:<7} {}", peer.name, peer.what);
    }
    println!("aside:\n  fixed-cache, quick_cache, moka, lru");
    println!("mdbx:\n  libmdbx 0.14, mdbx_get and mdbx_cache_get");
    println!("fib:");
    for peer in fib::PEERS {
        println!("  {:<16} {}", peer.name, peer.what);
    }
    println!("partition:");
    for peer in partition::PEERS {
        println!("  {:<20} {}", peer.name, peer.what);
    }
    println!("ovs:");
    println!("  Open vSwitch 3.1 with DPDK, its cache configurations: {}", ovs::NAMES.join(", "));
    println!("smc:");
    println!(
        "  Open vSwitch 3.1 with DPDK, as it is and with a table of Overbank: {}",
        smc::list()
    );
    println!("explosion:");
    println!("  Open vSwitch 3.1 with DPDK: {}", ovs::explosion::CONFIGURATIONS.join(", "));
    println!("gateway:");
    println!("  Open vSwitch 3.1 with DPDK: {}", gateway::CONFIGURATIONS.join(", "));
    println!("control:");
    println!("  Open vSwitch 3.1, userspace datapath");
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
        Command::Aside(options) => aside::run(&options),
        #[cfg(feature = "mdbx")]
        Command::Mdbx(options) => mdbx::run(&options),
        Command::Fib(options) => fib::run(&options),
        Command::Partition(options) => partition::run(&options),
        Command::Ovs(options) => ovs::run(&options),
        Command::Smc(options) => smc::run(&options),
        Command::Explosion(options) => ovs::explosion::run(&options),
        Command::Gateway(options) => gateway::run(&options),
        Command::Live(options) => live::run(&options),
        Command::Control(options) => control::run(&options),
        Command::Contestant(options) => contestant::run(&options),
        Command::FibContestant(options) => fib::contest(&options),
        Command::PartitionContestant(options) => partition::contest(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("overbank-peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}
