//! `fib`: forwarding tables, each in a separate process, all on one core, taking turns.
//!
//! ```text
//!  size  Overbank, floor: build, check  ────────────────────────────────────────────┐
//!        group 1: build, check · round 1: Overbank, floor, A, B … · round 2 … · end │ as many
//!        group 2: build, check · round 1: Overbank, floor, C, D … · round 2 … · end ┘ as fit
//! ```
//!
//! If memory holds all, there is one group. Ratios are those of a peer to Overbank's bursts alone,
//! and to its lists, in the same round. The figures of Overbank and of the floor are medians over
//! the rounds of all groups.

mod contestant;
mod cuckoo;
mod dpdk;
mod floor;
mod keys;
mod maps;
mod overbank;
mod peer;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use clap::builder::ArgPredicate;
use serde_json::json;

pub use contestant::{Options as ContestantOptions, run as contest};
pub use peer::PEERS;

use crate::process::Process;
use crate::{clock, machine, output};
use contestant::{Built, Busy, Round};
use peer::{FLOOR, OVERBANK, Peer, find};

/// Arguments of `fib`.
#[derive(Args)]
pub struct Options {
    /// Small sizes: seconds instead of minutes; figures mean little
    #[arg(long)]
    smoke: bool,
    /// Peers; Overbank and the floor always take part [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    peers: Vec<String>,
    /// Entries, in millions
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,16,128",
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.5")
    )]
    sizes: Vec<f64>,
    /// Entries that the tables of others have room for, as a multiple of their entries
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    room: f64,
    /// Keys of a lookup
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::value_parser!(u8).range(1..=64))]
    burst: u8,
    /// Rounds in which the peers take turns
    #[arg(long, value_name = "N", default_value_t = 15,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2"),
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Keys of a round, present and absent ones each
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "65536"),
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    keys: u64,
    /// Keys that each peer is checked with before it is timed
    #[arg(long, value_name = "N", default_value_t = 1 << 18,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "10000"))]
    checks: u64,
    /// Seed of the keys
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Core to run on [default: the last one]
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Core of the thread that writes during lookups [default: another one, if there is one]
    #[arg(long, value_name = "N")]
    writer_core: Option<usize>,
    /// Leave out the lookups with a writer at work
    #[arg(long)]
    no_writer: bool,
    /// Folder of the results
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    out: PathBuf,
}

impl Options {
    fn core(&self) -> usize {
        self.core.unwrap_or(machine::cpus() - 1)
    }

    fn writer_core(&self) -> Option<usize> {
        let other = (0..machine::cpus()).rev().find(|&core| core != self.core());
        self.writer_core.or(other).filter(|_| !self.no_writer)
    }

    fn room(&self, peer: &Peer, entries: u64) -> u64 {
        let own = [OVERBANK, FLOOR].contains(&peer.name);
        if own { entries } else { (entries as f64 * self.room).round() as u64 }
    }

    fn bytes_max(&self, peer: &Peer, entries: u64) -> u64 {
        (peer.bytes_max)(self.room(peer, entries))
    }
}

/// A peer at one size: its results, round by round, each beside Overbank's round of the same time.
pub struct Entrant {
    peer: &'static Peer,
    /// The group that it ran in, from 1; Overbank and the floor run in all.
    group: usize,
    built: Built,
    rounds: Vec<(Round, Round)>,
    busy: Vec<Busy>,
}

/// One size.
pub struct Cell {
    entries: u64,
    groups: usize,
    entrants: Vec<Entrant>,
    /// Peers that did not fit into memory, and the bytes that they need.
    left_out: Vec<(&'static str, u64)>,
}

/// Splits peers, in their order, into the fewest groups that fit into `budget` bytes. The second
/// part are those that are too large alone.
fn groups<T: Copy>(peers: &[T], budget: u64, bytes: impl Fn(T) -> u64) -> (Vec<Vec<T>>, Vec<T>) {
    let (fit, left_out): (Vec<T>, Vec<T>) = peers.iter().partition(|&&p| bytes(p) <= budget);
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut used = u64::MAX;
    for peer in fit {
        match groups.last_mut() {
            Some(group) if used + bytes(peer) <= budget => {
                used += bytes(peer);
                group.push(peer);
            }
            _ => {
                used = bytes(peer);
                groups.push(vec![peer]);
            }
        }
    }
    (groups, left_out)
}

struct Running {
    process: Process,
    entrant: Entrant,
}

impl Running {
    /// Starts a peer, builds and checks its table.
    fn start(
        options: &Options,
        peer: &'static Peer,
        entries: u64,
        group: usize,
    ) -> Result<Running> {
        eprintln!("  {}", peer.name);
        let mut arguments = vec!["fib-contestant".to_string(), peer.name.to_string()];
        let mut add =
            |name: &str, value: u64| arguments.extend([name.to_string(), value.to_string()]);
        add("--entries", entries);
        add("--room", options.room(peer, entries));
        add("--burst", u64::from(options.burst));
        add("--seed", options.seed);
        add("--core", options.core() as u64);
        if let Some(core) = options.writer_core() {
            add("--writer-core", core as u64);
        }
        let mut process = Process::start(peer.name, arguments)?;
        let built = process.order("build", 0)?;
        let _: serde_json::Value = process.order("check", options.checks)?;
        let entrant = Entrant { peer, group, built, rounds: Vec::new(), busy: Vec::new() };
        Ok(Running { process, entrant })
    }
}

/// Measures all sizes and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let peers: Vec<&'static Peer> = if options.peers.is_empty() {
        PEERS.iter().collect()
    } else {
        options.peers.iter().map(|name| find(name)).collect::<Result<_>>()?
    };
    let peers: Vec<_> =
        peers.into_iter().filter(|peer| ![OVERBANK, FLOOR].contains(&peer.name)).collect();
    ensure!((1.0..=4.0).contains(&options.room), "--room is from 1 to 4: {}", options.room);
    for core in [Some(options.core()), options.writer_core()].into_iter().flatten() {
        let folder = format!("/sys/devices/system/cpu/cpu{core}");
        ensure!(Path::new(&folder).is_dir(), "core {core} does not exist");
    }
    if options.writer_core() == Some(options.core()) {
        bail!("core {}: the writer needs another core than the lookups", options.core());
    }
    let sizes = options.sizes.iter().map(|&millions| {
        let entries = (millions * 1e6).round();
        ensure!((1e3..=1e9).contains(&entries), "--sizes: {millions} million entries");
        Ok(entries as u64)
    });
    let sizes: Vec<u64> = sizes.collect::<Result<_>>()?;
    let hertz = clock::hertz();
    let mut record = machine::describe(hertz);
    let cells: Vec<Cell> =
        sizes.into_iter().map(|entries| cell(options, &peers, entries)).collect::<Result<_>>()?;
    record["burst"] = json!(options.burst);
    record["list"] = json!(peer::LIST);
    record["room"] = json!(options.room);
    record["rounds"] = json!(options.rounds);
    record["keys_per_round"] = json!(options.keys);
    record["keys_checked"] = json!(options.checks);
    record["seed"] = json!(options.seed);
    record["core"] = json!(options.core());
    record["writer_core"] = json!(options.writer_core());
    record["cells"] = cells.iter().map(report::record).collect();
    let intro = report::intro(options, &record);
    let blocks: Vec<_> = cells.iter().map(report::block).collect();
    output::Report {
        name: "fib",
        title: "Forwarding tables of others beside Overbank's",
        record: &record,
        intro,
        blocks,
        claims: cells.iter().flat_map(report::claims).collect(),
        core: options.core(),
    }
    .write(&options.out)
}

fn cell(options: &Options, peers: &[&'static Peer], entries: u64) -> Result<Cell> {
    eprintln!("{entries} entries");
    let own = [find(OVERBANK)?, find(FLOOR)?];
    let resident = own.iter().map(|peer| options.bytes_max(peer, entries)).sum::<u64>();
    // An eighth stays free for page tables, the kernel and other programs.
    let available = machine::available_bytes()?;
    let budget = (available / 8 * 7).checked_sub(resident).with_context(|| {
        format!("{entries} entries take {resident} bytes; {available} are available")
    })?;
    let (groups, left_out) = groups(peers, budget, |peer| options.bytes_max(peer, entries));
    let own = own.into_iter().map(|peer| Running::start(options, peer, entries, 0));
    let mut own: Vec<Running> = own.collect::<Result<_>>()?;
    let mut cell =
        Cell { entries, groups: groups.len().max(1), entrants: Vec::new(), left_out: vec![] };
    for peer in left_out {
        let bytes = options.bytes_max(peer, entries);
        eprintln!("  {}: {} MiB exceed the memory available", peer.name, bytes >> 20);
        cell.left_out.push((peer.name, bytes));
    }
    let alone = vec![Vec::new()];
    for (group, peers) in (1..).zip(if groups.is_empty() { &alone } else { &groups }) {
        let reserved = peers.iter().filter(|peer| peer.reserved);
        let bytes = reserved.map(|peer| options.bytes_max(peer, entries).next_multiple_of(2 << 20));
        let _huge_pages = match machine::HugePages::reserve(bytes.sum::<u64>() >> 20) {
            Ok(pages) => Some(pages),
            Err(error) => {
                eprintln!("DPDK's tables stay on ordinary pages: {error:#}");
                None
            }
        };
        let started = peers.iter().map(|peer| Running::start(options, peer, entries, group));
        let mut others: Vec<Running> = started.collect::<Result<_>>()?;
        for _ in 0..options.rounds {
            turn(options, &mut own, &mut others)?;
        }
        cell.entrants.extend(others.into_iter().map(|running| running.entrant));
        // The processes have ended; their huge pages are released here.
    }
    cell.entrants.splice(0..0, own.into_iter().map(|running| running.entrant));
    Ok(cell)
}

/// Runs one round of all peers; then, if a core is free for the writer, one with it.
fn turn(options: &Options, own: &mut [Running], others: &mut [Running]) -> Result<()> {
    let mut first: Option<Round> = None;
    for running in own.iter_mut().chain(others.iter_mut()) {
        let round: Round = running.process.order("round", options.keys)?;
        let beside = first.get_or_insert_with(|| round.clone()).clone();
        running.entrant.rounds.push((round, beside));
    }
    if options.writer_core().is_none() {
        return Ok(());
    }
    for running in own.iter_mut().chain(others).filter(|r| r.entrant.peer.name != FLOOR) {
        let busy: Busy = running.process.order("busy", options.keys.div_ceil(4))?;
        running.entrant.busy.push(busy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_fit() {
        let split = |sizes: &[u64]| groups(sizes, 10, |size| size);
        assert_eq!(split(&[]), (vec![], vec![]));
        assert_eq!(
            split(&[3, 3, 4, 1, 10, 2]),
            (vec![vec![3, 3, 4], vec![1], vec![10], vec![2]], vec![])
        );
        assert_eq!(split(&[11, 2, u64::MAX, 8]), (vec![vec![2, 8]], vec![11, u64::MAX]));
    }
}
