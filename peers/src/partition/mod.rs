//! `partition`: partition tables, each in a separate process, all on one core, taking turns.
//!
//! ```text
//!  keys, value bits   start all · builds: round 1: A, B, C … · round 2: B, C, … A
//!                               · every key · lookups: round 1: A, B, C … · round 2 … · end
//! ```
//!
//! A ratio is that of two figures of the same round.

mod contestant;
mod efd;
mod fuse;
mod keys;
mod overbank;
mod peer;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use clap::builder::ArgPredicate;
use serde_json::json;

pub use contestant::{Options as ContestantOptions, run as contest};
pub use peer::PEERS;

use crate::process::Process;
use crate::{clock, machine, output};
use contestant::Built;
use overbank_kit::rounds::turns;
use peer::{FLOOR, OVERBANK, Peer, find};

/// Keys up to which a table is built several times.
const REBUILT_MAX: u64 = 2_000_000;

/// Arguments of `partition`.
#[derive(Args)]
pub struct Options {
    /// Small sizes: seconds instead of minutes; figures mean little
    #[arg(long)]
    smoke: bool,
    /// Peers; Overbank's default table and the floor always take part [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    peers: Vec<String>,
    /// Keys, in millions
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,16",
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.05")
    )]
    sizes: Vec<f64>,
    /// Bits of a value, 1 to 4
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,2,3,4",
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "1,4"),
        value_parser = clap::value_parser!(u32).range(1..=4)
    )]
    value_bits: Vec<u32>,
    /// Keys of a lookup
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u8).range(1..=32))]
    burst: u8,
    /// Rounds of building, up to 2 million keys; larger tables are built once
    #[arg(long, value_name = "N", default_value_t = 5,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2"),
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    builds: u32,
    /// Rounds of lookups
    #[arg(long, value_name = "N", default_value_t = 21,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2"),
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Lookups of a round
    #[arg(long, value_name = "N", default_value_t = 1 << 19,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "65536"),
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    lookups: u64,
    /// Seed of the lookups
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Core to run on [default: the last one]
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    out: PathBuf,
}

impl Options {
    fn core(&self) -> usize {
        self.core.unwrap_or(machine::cpus() - 1)
    }
}

/// A peer at one size: its results, round by round.
pub struct Entrant {
    peer: &'static Peer,
    built: Vec<Built>,
    lookup_ns: Vec<f64>,
}

/// A number of keys with values of a number of bits.
pub struct Cell {
    keys: u64,
    value_bits: u32,
    entrants: Vec<Entrant>,
}

struct Running {
    process: Process,
    entrant: Entrant,
}

impl Running {
    fn start(
        options: &Options,
        peer: &'static Peer,
        (keys, value_bits): (u64, u32),
        floor_bytes: u64,
    ) -> Result<Running> {
        let mut arguments = vec!["partition-contestant".to_string(), peer.name.to_string()];
        let mut add =
            |name: &str, value: u64| arguments.extend([name.to_string(), value.to_string()]);
        add("--keys", keys);
        add("--value-bits", u64::from(value_bits));
        add("--burst", u64::from(options.burst));
        add("--floor-bytes", floor_bytes);
        add("--seed", options.seed);
        add("--core", options.core() as u64);
        let process = Process::start(peer.name, arguments)?;
        let entrant = Entrant { peer, built: Vec::new(), lookup_ns: Vec::new() };
        Ok(Running { process, entrant })
    }

    fn build(&mut self) -> Result<()> {
        self.entrant.built.push(self.process.order("build", 0)?);
        Ok(())
    }
}

/// Measures all sizes and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let named: Vec<&'static Peer> =
        options.peers.iter().map(|name| find(name)).collect::<Result<_>>()?;
    let takes_part = |peer: &&Peer| {
        let always = [OVERBANK, FLOOR].contains(&peer.name);
        always || named.is_empty() || named.iter().any(|other| other.name == peer.name)
    };
    let peers: Vec<&'static Peer> = PEERS.iter().filter(takes_part).collect();
    let folder = format!("/sys/devices/system/cpu/cpu{}", options.core());
    ensure!(Path::new(&folder).is_dir(), "core {} does not exist", options.core());
    let sizes = options.sizes.iter().map(|&millions| {
        let keys = (millions * 1e6).round();
        ensure!((1e3..=1e9).contains(&keys), "--sizes: {millions} million keys");
        Ok(keys as u64)
    });
    let sizes: Vec<u64> = sizes.collect::<Result<_>>()?;
    let hertz = clock::hertz();
    let mut record = machine::describe(hertz);
    let mut cells = Vec::new();
    for &keys in &sizes {
        for &value_bits in &options.value_bits {
            cells.push(cell(options, &peers, keys, value_bits)?);
        }
    }
    record["burst"] = json!(options.burst);
    record["builds"] = json!(options.builds);
    record["rounds"] = json!(options.rounds);
    record["lookups_per_round"] = json!(options.lookups);
    record["seed"] = json!(options.seed);
    record["core"] = json!(options.core());
    record["cells"] = cells.iter().map(report::record).collect();
    let intro = report::intro(options, &record);
    output::Report {
        name: "partition",
        title: "Partition tables of others beside Overbank's",
        record: &record,
        intro,
        blocks: cells.iter().map(report::block).collect(),
        claims: cells.iter().flat_map(report::claims).collect(),
        core: options.core(),
    }
    .write(&options.out)
}

fn cell(options: &Options, peers: &[&'static Peer], keys: u64, value_bits: u32) -> Result<Cell> {
    eprintln!("{keys} keys, {value_bits} bits");
    let peers: Vec<_> = peers.iter().filter(|peer| keys <= peer.keys_max).copied().collect();
    let reserved = peers.iter().map(|peer| (peer.reserved)(keys).next_multiple_of(2 << 20));
    let _huge_pages = match machine::HugePages::reserve(reserved.sum::<u64>() >> 20) {
        Ok(pages) => Some(pages),
        Err(error) => {
            eprintln!("DPDK's tables stay on ordinary pages: {error:#}");
            None
        }
    };
    // The floor has as many bytes as the first table, so that is built before.
    let mut running: Vec<Running> = Vec::new();
    let mut floor_bytes = 0;
    for peer in peers {
        eprintln!("  {}", peer.name);
        let mut one = Running::start(options, peer, (keys, value_bits), floor_bytes)?;
        one.build()?;
        if peer.name == OVERBANK {
            floor_bytes = one.entrant.built[0].bytes;
        }
        running.push(one);
    }
    for round in 1..if keys <= REBUILT_MAX { options.builds } else { 1 } {
        for at in turns(round as usize, running.len()) {
            running[at].build()?;
        }
    }
    for one in &mut running {
        let _: serde_json::Value = one.process.order("check", 0)?;
    }
    for round in 0..options.rounds {
        for at in turns(round as usize, running.len()) {
            let Running { process, entrant } = &mut running[at];
            if entrant.peer.looks_up {
                entrant.lookup_ns.push(process.order("round", options.lookups)?);
            }
        }
    }
    let entrants = running.into_iter().map(|one| one.entrant).collect();
    Ok(Cell { keys, value_bits, entrants })
}
