//! `tables`: every peer in a separate process, all on one core, taking turns round by round.
//!
//! ```text
//!  cell (α, θ)    start all · warm up in turn · round 1: A, B, C … · round 2: A, B, C … · end
//! ```
//!
//! An idle peer sleeps on its input. Orders and answers are lines; the clock is in the working
//! process.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::ArgPredicate;
use serde::Serialize;
use serde_json::json;

use crate::contestant::Answer;
use crate::output::{self, Block};
use crate::process::Process;
use crate::table::dpdk::MEMORY_MIB;
use crate::table::{PEERS, Peer, find};
use crate::{clock, machine};
use overbank_kit::spread::Spread;

/// Arguments of `tables`.
#[derive(Args)]
pub struct Options {
    /// Small sizes: seconds instead of minutes; figures mean little
    #[arg(long)]
    smoke: bool,
    /// Peers [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    peers: Vec<String>,
    /// Flows over entries
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0.5,0.95,2",
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.95")
    )]
    alpha: Vec<f64>,
    /// Skews; 0 is uniform
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "0,0.99",
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.99")
    )]
    zipf: Vec<f64>,
    /// Entries of every table
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "65536"),
          value_parser = clap::value_parser!(u32).range(1024..=1 << 24))]
    entries: u32,
    /// Rounds in which the peers take turns
    #[arg(long, value_name = "N", default_value_t = 7,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2"),
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Keys of a round, with and without insertion each
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "65536"))]
    keys: u64,
    /// Keys before the first round, as a multiple of the flows
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        default_value_if("smoke", ArgPredicate::Equals("true".into()), "2")
    )]
    warmup: u64,
    /// Cycles that a miss is assumed to cost elsewhere, for the emulated throughput
    #[arg(long, value_name = "N", default_value_t = 1000)]
    penalty: u32,
    /// Seed of the traffic
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

#[derive(Serialize)]
struct Cell {
    alpha: f64,
    zipf: f64,
    flows: u32,
    peers: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    peer: &'static str,
    /// Nanoseconds per key, lookups alone.
    lookup_ns: Spread,
    /// Nanoseconds per key, misses inserted.
    update_ns: Spread,
    hit_rate: f64,
    /// Million keys a second if a miss costs the penalty on top of `update_ns`.
    emulated_mkeys: f64,
    memory_bytes: u64,
    note: String,
}

fn start(peer: &'static Peer, options: &Options, flows: u32, zipf: f64) -> Result<Process> {
    let core = options.core();
    let arguments = [
        ("--flows", flows.to_string()),
        ("--zipf", zipf.to_string()),
        ("--entries", options.entries.to_string()),
        ("--seed", options.seed.to_string()),
        ("--core", core.to_string()),
    ];
    let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_string(), value]);
    let mode = ["contestant", peer.name].map(String::from);
    Process::start(peer.name, mode.into_iter().chain(arguments))
}

/// Measures all cells and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let peers: Vec<&'static Peer> = if options.peers.is_empty() {
        PEERS.iter().collect()
    } else {
        options.peers.iter().map(|name| find(name)).collect::<Result<_>>()?
    };
    let dpdk = peers.iter().filter(|peer| peer.name.starts_with("rte_")).count() as u64;
    let _huge_pages = match machine::HugePages::reserve(dpdk * u64::from(MEMORY_MIB)) {
        Ok(pages) => Some(pages),
        Err(error) => {
            eprintln!("DPDK's tables stay on ordinary pages: {error:#}");
            None
        }
    };
    let hertz = clock::hertz();
    let mut record = machine::describe(hertz);
    let mut cells = Vec::new();
    for &zipf in &options.zipf {
        for &alpha in &options.alpha {
            let flows = (alpha * f64::from(options.entries)).round();
            if !(1.0..=1e8).contains(&flows) {
                bail!("an α of {alpha} with {} entries", options.entries);
            }
            cells.push(cell(&peers, options, alpha, flows as u32, zipf, hertz)?);
        }
    }
    let intro = format!(
        "{} entries; bursts of 32 where the peer has them; misses are inserted; median [range] of {} \
         rounds, in which the peers took turns, one process each, on one core.\n{}, {} GHz TSC, {}.\n\
         emulated: million keys a second if a miss costs {} cycles more.\n`{}`",
        options.entries,
        options.rounds,
        record["cpu"].as_str().unwrap_or_default(),
        (hertz / 1e7).round() / 100.0,
        record["date"].as_str().unwrap_or_default(),
        options.penalty,
        record["command"].as_str().unwrap_or_default(),
    );
    let blocks: Vec<Block> = cells.iter().map(block).collect();
    record["entries"] = json!(options.entries);
    record["rounds"] = json!(options.rounds);
    record["keys_per_round"] = json!(options.keys);
    record["warmup"] = json!(options.warmup);
    record["penalty_cycles"] = json!(options.penalty);
    record["seed"] = json!(options.seed);
    record["cells"] = json!(cells);
    output::Report {
        name: "tables",
        title: "Caches of others beside Overbank's",
        record: &record,
        intro,
        blocks,
        claims: Vec::new(),
        core: options.core(),
    }
    .write(&options.out)
}

fn cell(
    peers: &[&'static Peer],
    options: &Options,
    alpha: f64,
    flows: u32,
    zipf: f64,
    hertz: f64,
) -> Result<Cell> {
    eprintln!("α = {alpha}, θ = {zipf}: {flows} flows");
    let mut processes = Vec::new();
    for peer in peers {
        let mut process = start(peer, options, flows, zipf)?;
        let _: Answer =
            process.order("warm", options.warmup * u64::from(flows.max(options.entries)))?;
        processes.push((process, Vec::new()));
    }
    for _ in 0..options.rounds {
        for (process, answers) in &mut processes {
            answers.push(process.order("round", options.keys)?);
        }
    }
    let row = |(process, answers): &(Process, Vec<Answer>)| {
        let update_ns = Spread::of(answers.iter().map(|a| a.update_ns));
        let hit_rate = Spread::of(answers.iter().map(|a| a.hit_rate)).median;
        let penalty_ns = f64::from(options.penalty) / hertz * 1e9;
        let last = answers.last();
        Row {
            peer: process.name(),
            lookup_ns: Spread::of(answers.iter().map(|a| a.lookup_ns)),
            update_ns,
            hit_rate,
            emulated_mkeys: 1e3 / (update_ns.median + (1.0 - hit_rate) * penalty_ns),
            memory_bytes: last.map_or(0, |a| a.memory_bytes),
            note: last.map_or(String::new(), |a| a.note.clone()),
        }
    };
    Ok(Cell { alpha, zipf, flows, peers: processes.iter().map(row).collect() })
}

fn block(cell: &Cell) -> Block {
    let header =
        ["peer", "hit %", "lookup ns", "× first", "with inserts ns", "emulated", "MiB", "note"];
    let first = cell.peers.first().map_or(1.0, |row| row.lookup_ns.median);
    let rows = cell.peers.iter().map(|row| {
        vec![
            row.peer.to_string(),
            format!("{:.2}", 100.0 * row.hit_rate),
            row.lookup_ns.cell(1),
            format!("{:.2}", row.lookup_ns.median / first),
            row.update_ns.cell(1),
            format!("{:.1}", row.emulated_mkeys),
            format!("{:.1}", row.memory_bytes as f64 / f64::from(1 << 20)),
            row.note.clone(),
        ]
    });
    let law = if cell.zipf == 0.0 { "uniform".to_string() } else { format!("Zipf {}", cell.zipf) };
    Block {
        title: format!("α = {}, {law}, {} flows", cell.alpha, cell.flows),
        header: header.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}
