//! `overbank aside`.

use crate::files::{Pending, keep_apart};
use crate::options::{Common, Format, parse_theta};
use crate::setup::{command_line, pin, progress_bar, stop_on_ctrl_c};
use crate::text;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use overbank_products::aside::bench::Subject;
use overbank_products::aside::mix::{Mix, Stream};
use overbank_products::aside::record::Input;
use overbank_products::aside::{self, Entries, OPERATIONS, Plan, WARM, keys, page};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Indexes to measure without `--index`.
const INDEXES: &str = "btreemap,redb,lmdb,skipmap,congee,hashmap";

/// Measure whether a look-aside table pays in front of an index
///
/// A look-aside table keeps the answers of an index: one cache line for a hit instead of a walk.
/// Builds each index, lets it take turns alone and with tables of each size, and prints nanoseconds
/// an operation, the hit rate beside the best that is possible, what the gate decides, and one
/// recommendation.
#[derive(ClapArgs)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  overbank aside
  overbank aside keys.txt --index btreemap,lmdb --entries 1%,10% --report aside.html
  overbank aside --ycsb B --keys 10000000 --theta 0.8 --index redb-latest
  overbank aside keys.u64 --binary --format json | jq .recommendation

A file's keys are looked up in its order, again and again; an index has each of them once. Without a
file, keys are drawn: mix A has half reads and half updates, B 5 % updates, C reads only, D reads of
the newest keys and 5 % insertions, E scans, F half read-modify-writes.

redb and lmdb share a transaction among lookups, redb-latest and lmdb-latest begin one for each;
their files lie in the directory for temporary files, and are removed. Ctrl-C ends the measurement
early; the output then covers the work done.")]
pub struct Args {
    /// Keys to look up, one number a line; `-`: standard input; default: drawn keys
    #[arg(value_name = "KEYS", conflicts_with_all = ["ycsb", "keys", "theta"])]
    file: Option<PathBuf>,
    /// The file has 8 bytes a key, little-endian
    #[arg(long, requires = "file")]
    binary: bool,
    /// Indexes: btreemap, redb, redb-latest, lmdb, lmdb-latest, skipmap, congee, hashmap
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = INDEXES)]
    index: Vec<Subject>,
    /// Sizes of tables: a number of entries, or a share of the keys
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1%,10%")]
    entries: Vec<Entries>,
    /// Mix of operations over drawn keys, A to F
    #[arg(long, value_name = "MIX", default_value = "C")]
    ycsb: Mix,
    /// Number of drawn keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    keys: u32,
    /// Zipf skew θ of drawn keys; 0 is uniform
    #[arg(long, value_name = "THETA", default_value_t = 0.99, value_parser = parse_theta)]
    theta: f64,
    /// Timed operations of a turn
    #[arg(long, value_name = "N", default_value_t = OPERATIONS as u64,
          value_parser = clap::value_parser!(u64).range(1000..=1 << 28))]
    operations: u64,
    /// Rounds in which an index and its tables take turns
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Core to run on [default: the last]
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &Args) -> Result<()> {
    // Claim the output first: a bad name fails before the work.
    let on_disk = |path| if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    if let (Some(report), Some(file)) = (&args.common.report, &args.file) {
        keep_apart(report, &[on_disk(file)])?;
    }
    let report = args.common.report.as_deref().map(Pending::claim).transpose()?;
    let seed = args.common.seed;
    let (input, stream) = match &args.file {
        Some(path) => {
            let (file, lookups) = load(path, args)?;
            (Input::File { file, lookups: lookups.len() }, Stream::file(lookups))
        }
        None => {
            let (mix, keys, theta) = (args.ycsb, args.keys, args.theta);
            (Input::BuiltIn { mix, keys, theta }, Stream::drawn(mix, keys, theta, seed)?)
        }
    };
    let pinned_core = pin(args.core)?;
    let plan = Plan {
        subjects: args.index.clone(),
        entries: args.entries.clone(),
        rounds: args.rounds,
        operations: args.operations as usize,
        warm: WARM,
        gate: true,
        seed,
        pinned_core,
    };
    let stop = stop_on_ctrl_c()?;
    let bar = progress_bar(args.common.quiet);
    let mut progress = |what: &str, done: f64| {
        if !bar.is_hidden() {
            bar.set_length(1000);
            bar.set_position((done * 1000.0) as u64);
            bar.set_message(what.to_owned());
        }
    };
    let comparison = aside::run(&plan, input, &stream, &stop, &mut progress);
    bar.finish_and_clear();
    let comparison = comparison?;
    let printed = match args.common.format {
        Format::Text => text::aside::render(&comparison),
        Format::Json => serde_json::to_string_pretty(&comparison)?,
    };
    if let Some(report) = report {
        report.finish(&page::page(&comparison, &command_line()))?;
    }
    writeln!(std::io::stdout(), "{printed}").context("standard output")
}

/// Returns the name of a file and its keys.
fn load(path: &Path, args: &Args) -> Result<(String, Vec<u64>)> {
    let limit = (args.common.memory as u64).saturating_mul(1 << 20);
    let read = |name: &str, reader: &mut dyn Read| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = reader.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.with_context(|| format!("{name}: cannot read the keys"))?;
        if bytes.len() as u64 > limit {
            bail!("{name}: more than --memory {} MiB of keys", args.common.memory);
        }
        Ok(bytes)
    };
    let (name, bytes) = if path == Path::new("-") {
        let mut stdin = std::io::stdin();
        if stdin.is_terminal() {
            bail!("standard input is a terminal: `-` reads keys from a pipe or a file");
        }
        ("standard input".to_owned(), read("standard input", &mut stdin)?)
    } else {
        let name = path.display().to_string();
        let mut file = File::open(path).with_context(|| format!("{name}: cannot read the keys"))?;
        let bytes = read(&name, &mut file)?;
        (name, bytes)
    };
    let keys = if args.binary { keys::binary(&bytes) } else { keys::text(&bytes) };
    let keys = keys.with_context(|| name.clone())?;
    let file = path.file_name().map_or(name, |name| name.to_string_lossy().into_owned());
    Ok((file, keys))
}
