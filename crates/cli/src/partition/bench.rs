//! `overbank partition bench`: lookups in a table, and changes of a table of its size.

use super::{BUILD_BYTES, OutputOptions, load};
use crate::options::Format;
use crate::setup::pin;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use overbank::hash::mix;
use overbank::isa::Isa;
use overbank::partition::{Config, Delta, Reader, Replica, Writer};
use overbank::random::Pcg32;
use overbank_kit::machine::memory_available_bytes;
use overbank_kit::rounds::Rounds;
use overbank_kit::spread::Spread;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Moves without `--moves`.
const MOVES: u64 = 1 << 16;
/// Moves that are applied between two readings of the clock.
const BATCH: usize = 256;

/// Measure lookups in a table and moves of keys.
///
/// Lookups: nanoseconds a key, by the keys that are looked up together. Moves change the part of a
/// key: the time that the owner of the keys takes, the bytes that it sends, and the time to apply
/// them in a copy. A file has no keys, so the moves are those of as many random keys in a table of
/// the same width, which is built first: 64 bytes of memory a key.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank partition bench keys.table
  overbank partition bench keys.table --moves 0
  overbank partition bench keys.table --bursts 1,32 --rounds 9 --core 1 --format json")]
pub struct BenchArgs {
    /// File of the table
    table: PathBuf,
    /// Sizes of the bursts, in keys
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16,32,64",
          value_parser = clap::value_parser!(u64).range(1..=64))]
    bursts: Vec<u64>,
    /// Lookups in a round
    #[arg(long, value_name = "N", default_value_t = 1 << 20,
          value_parser = clap::value_parser!(u64).range(64..=1 << 28))]
    lookups: u64,
    /// Rounds in which the bursts take turns
    #[arg(long, value_name = "N", default_value_t = 7,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Keys that change their part; 0: none [default: 65536, or none if memory is short]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1 << 24))]
    moves: Option<u64>,
    /// Core to run on [default: the last]
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Instruction set [default: the best; OVERBANK_SIMD also sets it]
    #[arg(long, value_name = "NAME")]
    simd: Option<Isa>,
    #[command(flatten)]
    output_options: OutputOptions,
}

/// Runs the command.
pub(super) fn run(args: &BenchArgs) -> Result<()> {
    let core = pin(args.core)?;
    let table = load(&args.table, args.simd)?;
    let reader = table.reader();
    let mut pcg = Pcg32::new(1, 1);
    let mut hash = || u64::from(pcg.draw()) << 32 | u64::from(pcg.draw());
    let hashes: Vec<u64> = (0..args.lookups).map(|_| hash()).collect();
    let mut bursts: Vec<usize> = args.bursts.iter().map(|&burst| burst as usize).collect();
    let turn = |burst: &mut usize, _| Ok(lookups_ns(&reader, &hashes, *burst));
    let rounds = Rounds::run(&mut bursts, args.rounds as usize, |_| Ok(()), turn)?;
    let measured = bursts.iter().enumerate().map(|(nth, burst)| {
        let spread = rounds.spread(nth);
        json!({ "burst": burst, "ns": spread.median, "ns_min": spread.low, "ns_max": spread.high })
    });
    let moves = moves(args, &table)?;
    let document = json!({
        "schema": "overbank-partition-bench/1",
        "file": args.table.display().to_string(),
        "keys": table.keys(),
        "value_bits": reader.value_bits(),
        "row_bits": reader.row().get(),
        "bytes": reader.bytes(),
        "pinned_core": core,
        "lookups": args.lookups,
        "rounds": args.rounds,
        "bursts": measured.collect::<Vec<_>>(),
        "moves": moves.as_ref().map(Moves::document),
    });
    if args.output_options.format == Format::Json {
        return args.output_options.print(&document);
    }
    let rows = bursts.iter().enumerate().map(|(nth, burst)| {
        let spread = rounds.spread(nth);
        let ns = [spread.median, spread.low, spread.high].map(|ns| format!("{ns:.2}"));
        let [median, low, high] = ns;
        [burst.to_string(), median, low, high]
    });
    let lookups =
        crate::text::lab::columns(["keys of a burst", "ns a key", "lowest", "highest"], rows);
    let moves = moves.map(|moves| format!("\n{moves}")).unwrap_or_default();
    writeln!(std::io::stdout(), "{lookups}{moves}").context("standard output")
}

/// Nanoseconds of a lookup in bursts of this many keys.
fn lookups_ns(reader: &Reader, hashes: &[u64], burst: usize) -> f64 {
    let mut values = [0; 64];
    let start = Instant::now();
    let mut sum = 0u64;
    for hashes in hashes.chunks(burst) {
        let values = &mut values[..hashes.len()];
        reader.lookup_batch(hashes, values);
        sum += u64::from(values[0]);
    }
    std::hint::black_box(sum);
    start.elapsed().as_nanos() as f64 / hashes.len() as f64
}

/// Times of moves.
struct Moves {
    count: usize,
    /// At the owner, sorted.
    owner_ns: Vec<u64>,
    delta_bytes: usize,
    /// Mean of each batch.
    apply_ns: Spread,
}

impl Moves {
    fn owner_ns(&self, percent: usize) -> u64 {
        self.owner_ns[(self.owner_ns.len() - 1) * percent / 100]
    }

    fn document(&self) -> Value {
        let Spread { median, low, high } = self.apply_ns;
        json!({
            "moves": self.count,
            "owner_ns_p50": self.owner_ns(50),
            "owner_ns_p99": self.owner_ns(99),
            "delta_bytes": self.delta_bytes,
            "apply_batch": BATCH.min(self.count),
            "apply_ns": median,
            "apply_ns_min": low,
            "apply_ns_max": high,
        })
    }
}

impl std::fmt::Display for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |percent| self.owner_ns(percent) as f64 / 1000.0;
        let Spread { median, low, high } = self.apply_ns;
        writeln!(f, "moves                {}", self.count)?;
        writeln!(f, "at the owner         {:.2} us p50, {:.2} us p99", us(50), us(99))?;
        writeln!(f, "bytes of a move      {} at most, the batch's header apart", self.delta_bytes)?;
        write!(f, "applied in           {median:.1} ns ({low:.1} to {high:.1})")
    }
}

/// Moves keys of a table of the same size and width, in random order, and applies the deltas to a
/// copy. `None`: not wanted, or no memory.
fn moves(args: &BenchArgs, table: &Replica) -> Result<Option<Moves>> {
    let keys = table.keys() as u64;
    let count = args.moves.unwrap_or(MOVES).min(keys);
    if count == 0 {
        return Ok(None);
    }
    let needed = keys.saturating_mul(BUILD_BYTES);
    if let Some(free) = memory_available_bytes().filter(|&free| needed > free) {
        let why = format!("moves of {keys} keys need {needed} bytes of memory, {free} are free");
        if args.moves.is_some() {
            bail!("--moves: {why}");
        }
        eprintln!("overbank: {why}: moves are not measured");
        return Ok(None);
    }
    let reader = table.reader();
    let bits = reader.value_bits();
    let part = |key: u64| (mix(!key) & ((1 << bits) - 1)) as u8;
    let config = Config::new(table.keys(), bits).packed().row(reader.row()).isa(args.simd);
    let (mut writer, _) = Writer::build(&config, (0..keys).map(|key| (mix(key), part(key))))
        .with_context(|| format!("{}: --moves", args.table.display()))?;
    let (mut copy, mut deltas) = (writer.replica()?, Vec::<Delta>::new());
    let mut owner_ns = Vec::new();
    for n in 0..count {
        // Each key once, so its part is known without a look that would bring its lines.
        let key = n * (keys / count) + mix(n) % (keys / count);
        let start = Instant::now();
        let delta = writer.insert(mix(key), part(key) ^ 1)?;
        owner_ns.push(start.elapsed().as_nanos() as u64);
        deltas.extend(delta);
    }
    owner_ns.sort_unstable();
    let mut batches = Vec::new();
    for batch in deltas.chunks(BATCH).filter(|batch| batch.len() == BATCH || count < BATCH as u64) {
        let start = Instant::now();
        copy.apply_all(batch)?;
        batches.push(start.elapsed().as_nanos() as f64 / batch.len() as f64);
    }
    Ok(Some(Moves {
        count: owner_ns.len(),
        owner_ns,
        delta_bytes: deltas.iter().map(Delta::bytes).max().unwrap_or(0),
        apply_ns: Spread::of(batches),
    }))
}
