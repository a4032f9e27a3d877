//! `overbank aside`.

use crate::files::{Pending, keep_apart};
use crate::options::{Common, Format, parse_theta};
use crate::setup::{command_line, pin, progress_bar, stop_on_ctrl_c};
use crate::text;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use overbank_products::aside::bench::Subject;
use overbank_products::aside::mix::{LOOKUP_BYTES, Mix, Stream};
use overbank_products::aside::others::{Engine, Others};
use overbank_products::aside::record::Input;
use overbank_products::aside::{
    self, AsideError, Entries, KEYS_MAX, OPERATIONS, Plan, SETTLE, WARM, keys, page,
};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Between two looks at Ctrl-C while a file is read.
const READING: Duration = Duration::from_millis(100);

/// Measure whether a look-aside table pays in front of an index
///
/// A look-aside table keeps the answers of an index: one cache line for a hit instead of a walk.
/// Builds each index, lets it take turns alone and with a table, one size after another, and prints
/// nanoseconds an operation, the hit rate beside the best that is possible, what the gate decides,
/// and one recommendation.
#[derive(ClapArgs)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  overbank aside
  overbank aside keys.txt --index btreemap,lmdb --entries 1%,10% --report aside.html
  overbank aside --ycsb B --keys 10000000 --theta 0.8 --index redb-latest
  overbank aside --redb app.redb --table users --theta 0.8
  overbank aside requests.txt --lmdb /var/lib/app --table users
  overbank aside keys.u64 --binary --format json | jq .recommendation

A file's keys are looked up in its order, again and again; an index has each of them once. Without a
file, keys are drawn: mix A has half reads and half updates, B 5 % updates, C reads only, D reads of
the newest keys and 5 % insertions, E scans, F half read-modify-writes.

redb and lmdb share a transaction among lookups, redb-latest and lmdb-latest begin one for each;
their files lie in the directory for temporary files, and are removed. Ctrl-C ends the measurement
early; the output then covers the work done.

--redb and --lmdb read a database that is there, with keys and values of 64 bits and one value a key.
It is opened read-only and never written to, and must not be open elsewhere. Its keys are looked up,
drawn with --theta, or those of a file: numbers, in LMDB in the order of their bytes (big-endian)
unless it has integer keys. Both ways to look them up are measured; --index names one.

--memory bounds the file with the lists made of it: 40 bytes a key in it. What the indexes take is
compared with the memory that is available.")]
pub struct Args {
    /// Keys to look up, one number a line; `-`: standard input; default: drawn keys
    #[arg(value_name = "KEYS", conflicts_with_all = ["ycsb", "keys", "theta"])]
    file: Option<PathBuf>,
    /// The file has 8 bytes a key, little-endian
    #[arg(long, requires = "file")]
    binary: bool,
    /// Database of redb to read instead of building indexes
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lmdb", "ycsb", "keys"])]
    redb: Option<PathBuf>,
    /// Environment of LMDB to read instead: a directory, or a file
    #[arg(long, value_name = "PATH", conflicts_with_all = ["ycsb", "keys"])]
    lmdb: Option<PathBuf>,
    /// Table of that database [default: the only one]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Indexes [default: all but -latest; mix E: those in order]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(Subject::ALL.map(Subject::name))
              .try_map(|name| name.parse::<Subject>()))]
    index: Vec<Subject>,
    /// Sizes of tables: a number of entries up to that of the keys, or a share of the keys
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1%,10%")]
    entries: Vec<Entries>,
    /// Mix of operations over drawn keys, A to F
    #[arg(long, value_name = "MIX", default_value = "C")]
    ycsb: Mix,
    /// Number of drawn keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1..=KEYS_MAX as i64))]
    keys: u32,
    /// Zipf skew θ of drawn keys; 0 is uniform
    #[arg(long, value_name = "THETA", default_value_t = 0.99, value_parser = parse_theta)]
    theta: f64,
    /// Timed operations of a turn
    #[arg(long, value_name = "N", default_value_t = OPERATIONS as u64,
          value_parser = clap::value_parser!(u64).range(1000..=1 << 28))]
    operations: u64,
    /// Rounds in which an index takes turns alone and with a table
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
    let others = others(args)?;
    let on_disk = |path| if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    if let Some(report) = &args.common.report {
        let mut inputs: Vec<PathBuf> = args.file.iter().map(|file| on_disk(file).into()).collect();
        inputs.extend(others.iter().flat_map(Others::files));
        keep_apart(report, &inputs.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    }
    let stop = stop_on_ctrl_c()?;
    let report = args.common.report.as_deref().map(Pending::claim).transpose()?;
    let seed = args.common.seed;
    let mut plan = Plan {
        subjects: subjects(args, others.as_ref())?,
        entries: args.entries.clone(),
        rounds: args.rounds,
        operations: args.operations as usize,
        warm: WARM,
        settle: SETTLE,
        gate: true,
        seed,
        pinned_core: None,
    };
    let theta = args.theta;
    let fits = |keys| plan.fits(keys);
    let mut opened = others.as_ref().map(|others| others.open(fits, &stop)).transpose()?;
    let file = args.file.as_ref().map(|path| load(path, args, &stop)).transpose()?;
    let (input, stream) = match (&mut opened, file) {
        (Some(opened), file) => {
            let (name, table) = (opened.name.clone(), opened.table.clone());
            let (lookups, drawn) = match &file {
                Some((_, lookups)) => (Some(lookups.len()), None),
                None => (None, Some(theta)),
            };
            let stream = match file {
                Some((_, lookups)) => opened.file(lookups),
                None => opened.drawn(theta, seed)?,
            };
            (Input::Database { file: name, table, theta: drawn, lookups }, stream)
        }
        (None, Some((file, lookups))) => {
            let input = Input::File { file, lookups: lookups.len() };
            let stream = Stream::file(lookups);
            fits(stream.key_count())?;
            (input, stream)
        }
        (None, None) => {
            let (mix, keys) = (args.ycsb, args.keys);
            fits(keys as usize)?;
            (Input::BuiltIn { mix, keys, theta }, Stream::drawn(mix, keys, theta, seed)?)
        }
    };
    plan.pinned_core = pin(args.core)?;
    let bar = progress_bar(args.common.quiet);
    let mut progress = |what: &str, done: f64| {
        if !bar.is_hidden() {
            bar.set_length(1000);
            bar.set_position((done * 1000.0) as u64);
            bar.set_message(what.to_owned());
        }
    };
    let comparison = aside::run(&plan, input, &stream, opened, &stop, &mut progress);
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

/// Returns the database to read, if one is named.
fn others(args: &Args) -> Result<Option<Others>> {
    let (engine, path) = match (&args.redb, &args.lmdb) {
        (Some(path), _) => (Engine::Redb, path.clone()),
        (None, Some(path)) => (Engine::Lmdb, path.clone()),
        (None, None) if args.table.is_some() => {
            bail!("--table: must come with --redb FILE or --lmdb PATH")
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(Others { engine, path, table: args.table.clone() }))
}

/// Returns the indexes to measure. Says which are left out.
fn subjects(args: &Args, others: Option<&Others>) -> Result<Vec<Subject>> {
    if let Some(Others { engine, .. }) = others {
        let ways = engine.subjects();
        if let Some(other) = args.index.iter().find(|subject| !ways.contains(subject)) {
            bail!("--index {other}: must be {} or {}, with this database", ways[0], ways[1]);
        }
        return Ok(if args.index.is_empty() { ways.to_vec() } else { args.index.clone() });
    }
    if !args.index.is_empty() {
        return Ok(args.index.clone());
    }
    let scans = args.file.is_none() && args.ycsb == Mix::E;
    let usual = Subject::ALL.into_iter().filter(|subject| !subject.is_latest());
    let (kept, left_out): (Vec<_>, Vec<_>) =
        usual.partition(|subject| !scans || subject.is_ordered());
    if let [subject, ..] = left_out[..] {
        eprintln!("overbank: {subject} has no order to scan: it is left out of mix E");
    }
    Ok(kept)
}

/// Returns the name of a file and its keys.
fn load(path: &Path, args: &Args, stop: &AtomicBool) -> Result<(String, Vec<u64>)> {
    let stdin = path == Path::new("-");
    if stdin && std::io::stdin().is_terminal() {
        bail!("standard input is a terminal: `-` reads keys from a pipe or a file");
    }
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let limit = (args.common.memory as u64).saturating_mul(1 << 20);
    let too_long = || {
        let memory = args.common.memory;
        format!(
            "{name}: its keys take more than --memory {memory} MiB: raise it, or shorten the file"
        )
    };
    let bytes = read(path.to_owned(), stdin, limit, stop)
        .with_context(|| format!("{name}: cannot read the keys"))?;
    let lines = || bytes.split(|byte| *byte == b'\n').count();
    let most = if args.binary { bytes.len() / 8 } else { lines() } as u64;
    if most.saturating_mul(LOOKUP_BYTES).saturating_add(bytes.len() as u64) > limit {
        bail!(too_long());
    }
    let keys = if args.binary { keys::binary(&bytes) } else { keys::text(&bytes) };
    let keys = keys.with_context(|| name.clone())?;
    let file = path.file_name().map_or(name, |name| name.to_string_lossy().into_owned());
    Ok((file, keys))
}

/// Reads at most `limit` bytes and one more. On another thread: neither a file that cannot be
/// opened yet nor a pipe that is silent keeps Ctrl-C from ending this one.
fn read(path: PathBuf, stdin: bool, limit: u64, stop: &AtomicBool) -> Result<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let open = || -> std::io::Result<Box<dyn Read>> {
            Ok(if stdin { Box::new(std::io::stdin()) } else { Box::new(File::open(path)?) })
        };
        let mut bytes = Vec::new();
        let done = open().and_then(|file| {
            file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map(|_| bytes)
        });
        // Fails if the command has ended.
        _ = sender.send(done);
    });
    loop {
        match receiver.recv_timeout(READING) {
            Ok(done) => return Ok(done?),
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
            Err(RecvTimeoutError::Timeout) => return Err(AsideError::Stopped.into()),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("internal error: a thread panicked; please report it")
            }
        }
    }
}
