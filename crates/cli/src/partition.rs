//! `overbank partition`: tables of `overbank::partition`, built of a list of keys and kept in
//! files.

use crate::files::keep_apart;
use crate::options::Format;
use crate::setup::progress_bar;
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args as ClapArgs, Subcommand};
use indicatif::ProgressBar;
use overbank::isa::Isa;
use overbank::memory::Pages;
use overbank::partition::{
    BuildError, BuildStats, BuiltPiece, Config, Plan, Replica, RowBits, hash_key,
};
use overbank_kit::machine::{memory_available_bytes, usable_cores};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

mod bench;

/// The name of standard input.
const STDIN: &str = "-";
/// Longest line of a list of keys.
const LINE_MAX: u64 = 64 << 10;
/// Bytes of memory that a key takes while a table is built: its entry, twice sorted, once grouped.
const BUILD_BYTES: u64 = 64;
/// Most threads of a build.
const THREADS_MAX: u64 = 256;

/// What to do with a table.
#[derive(Subcommand)]
pub enum Command {
    Build(BuildArgs),
    Query(QueryArgs),
    Stat(StatArgs),
    Bench(bench::BenchArgs),
}

/// Build a table from a list of keys and their parts.
///
/// The table stores no keys: it takes 1.2 bits a key for two parts, 2.3 for four, 3.4 for eight and
/// 4.4 for sixteen. A key that is not in the list gets an arbitrary part.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank partition build keys.csv -o keys.table
  zcat keys.csv.gz | overbank partition build - -o keys.table --threads 2
  overbank partition build keys.csv -o keys.table --value-bits 4 --format json | jq .bits_per_key

A line is KEY,PART: any text, a comma and a number from 0 to 255. The last comma separates them.
Empty lines and a first line `key,part` or `key,value` are skipped. A key may occur twice with
the same part.")]
pub struct BuildArgs {
    /// List of keys; `-` is standard input
    keys: PathBuf,
    /// Table to write; replaces an existing file once the new one is complete
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Bits of a part [default: enough for the largest part in the list]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    value_bits: Option<u8>,
    /// Bits of a row: 128 takes less memory, 64 changes faster
    #[arg(long, value_name = "BITS", default_value = "128", value_parser = parse_row)]
    row: RowBits,
    /// Seed of the hash of keys: keep it secret if untrusted parties choose keys
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Generation of the table; it refuses deltas of other generations
    #[arg(long, value_name = "N", default_value_t = 0)]
    generation: u32,
    /// Threads [default: the cores of this process]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: Option<u64>,
    #[command(flatten)]
    output_options: OutputOptions,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
}

/// Look keys up in a table.
///
/// Prints KEY,PART for each. A key that is not in the table's list gets an arbitrary part.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank partition query keys.table 192.0.2.1 192.0.2.7
  cut -d, -f1 keys.csv | overbank partition query keys.table --keys -
  overbank partition query keys.table 192.0.2.1 --format json | jq '.[].part'")]
pub struct QueryArgs {
    /// File of the table
    table: PathBuf,
    /// Keys
    #[arg(value_name = "KEY", required_unless_present = "keys")]
    key: Vec<String>,
    /// Keys from a file, one a line; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    keys: Option<PathBuf>,
    #[command(flatten)]
    output_options: OutputOptions,
}

/// Report the size and the structure of a table.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  overbank partition stat keys.table
  overbank partition stat keys.table --format json | jq .bits_per_key")]
pub struct StatArgs {
    /// File of the table
    table: PathBuf,
    #[command(flatten)]
    output_options: OutputOptions,
}

#[derive(ClapArgs)]
struct OutputOptions {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl OutputOptions {
    /// Prints a document: as it is, or its fields one a line.
    fn print(&self, document: &Value) -> Result<()> {
        let text = match (self.format, document) {
            (Format::Text, Value::Object(fields)) => fields
                .iter()
                .filter(|(name, _)| *name != "schema")
                .map(|(name, value)| format!("{:<20} {}", name.replace('_', " "), shown(value)))
                .collect::<Vec<_>>()
                .join("\n"),
            _ => serde_json::to_string_pretty(document)?,
        };
        writeln!(std::io::stdout(), "{text}").context("standard output")
    }
}

/// Formats a value for people.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name} {}", shown(value));
            fields.iter().map(field).collect::<Vec<_>>().join(", ")
        }
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or(0.0))
        }
        value => value.to_string(),
    }
}

fn parse_row(text: &str) -> Result<RowBits, String> {
    match text {
        "64" => Ok(RowBits::R64),
        "128" => Ok(RowBits::R128),
        _ => Err("must be 64 or 128".to_owned()),
    }
}

/// Runs the command.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Build(args) => build(args),
        Command::Query(args) => query(args),
        Command::Stat(args) => stat(args),
        Command::Bench(args) => bench::run(args),
    }
}

fn build(args: &BuildArgs) -> Result<()> {
    let bar = progress_bar(args.quiet);
    if args.keys != Path::new(STDIN) {
        keep_apart(&args.output, &[&args.keys])?;
    }
    if args.output.is_dir() {
        bail!("{}: is a directory; must be a file", args.output.display());
    }
    let list = List::read(&args.keys, args.seed, args.value_bits, &bar)?;
    let name = list.name.clone();
    let bits = usize::from(args.value_bits.unwrap_or(list.value_bits()));
    let config = Config::new(list.entries.len(), bits).packed().row(args.row);
    let plan = Plan::new(&config.seed(args.seed).generation(args.generation))
        .with_context(|| name.clone())?;
    let threads = args.threads.map_or_else(|| usable_cores().len(), |threads| threads as usize);
    let start = Instant::now();
    let pieces = build_pieces(&plan, threads, &list.entries, &bar);
    let table = pieces.and_then(|pieces| plan.replica(pieces));
    bar.finish_and_clear();
    let (table, stats) = match table {
        Err(BuildError::Conflict { hash, first, second }) => {
            bail!("{}", conflict(args, &name, hash, [first, second])?)
        }
        table => table.with_context(|| name.clone())?,
    };
    let seconds = start.elapsed().as_secs_f64();
    table.save(&args.output)?;
    let mut document = describe("overbank-partition-build/1", &args.output, &table);
    let BuildStats { repeated, seeds_tried, groups, .. } = stats;
    document["repeated"] = json!(repeated);
    document["seeds_per_group"] = json!(seeds_tried as f64 / groups as f64);
    document["seconds"] = json!(seconds);
    document["threads"] = json!(threads);
    args.output_options.print(&document)
}

/// Builds the pieces of a plan, a thread each.
fn build_pieces(
    plan: &Plan,
    threads: usize,
    entries: &[(u64, u8)],
    bar: &ProgressBar,
) -> Result<Vec<BuiltPiece>, BuildError> {
    let pieces = plan.pieces(threads);
    bar.set_position(0);
    bar.set_length(pieces.iter().map(|piece| piece.blocks() as u64).sum());
    bar.set_message("solving");
    thread::scope(|scope| {
        let build = |piece: overbank::partition::Piece<'_>| {
            piece.build_watched(entries.iter().copied(), false, |_| bar.inc(1))
        };
        let threads: Vec<_> =
            pieces.into_iter().map(|piece| scope.spawn(move || build(piece))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<BuiltPiece, BuildError>>| {
            // A panic of a piece is one of this command.
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Names the key of a hash that has two values.
fn conflict(args: &BuildArgs, name: &str, hash: u64, values: [u8; 2]) -> Result<String> {
    let mut found: Vec<(u64, String)> = Vec::new();
    if args.keys != Path::new(STDIN) {
        let (_, input) = open(&args.keys)?;
        for_each_line(name, input, |number, line| {
            if let Some((key, _)) = line.rsplit_once(',')
                && hash_key(key.as_bytes(), args.seed) == hash
            {
                found.push((number, key.to_owned()));
            }
            Ok(())
        })?;
    }
    let [first, second] = values;
    Ok(match (found.first(), found.iter().find(|other| other.1 != found[0].1), found.last()) {
        (Some((line, key)), None, Some((last, _))) => {
            format!(
                "{name}: key \"{key}\" has two parts, {first} and {second} (lines {line} to {last})"
            )
        }
        (Some((line, key)), Some((other_line, other)), _) => format!(
            "{name}: keys \"{key}\" (line {line}) and \"{other}\" (line {other_line}) have one hash and \
             different parts; give another --seed"
        ),
        _ => format!("{name}: hash {hash:#018x} has two parts, {first} and {second}"),
    })
}

/// A list of keys and parts, hashed.
struct List {
    name: String,
    entries: Vec<(u64, u8)>,
    largest: u8,
}

impl List {
    fn read(path: &Path, seed: u64, value_bits: Option<u8>, bar: &ProgressBar) -> Result<List> {
        let (name, input) = open(path)?;
        bar.set_length(path.metadata().map_or(0, |meta| meta.len()));
        bar.set_message("reading");
        let memory = memory_available_bytes();
        let keys_max = memory.map_or(usize::MAX, |bytes| (bytes / BUILD_BYTES) as usize);
        let mut list = List { name, entries: Vec::new(), largest: 0 };
        for_each_line(&list.name.clone(), input, |number, line| {
            bar.inc(line.len() as u64 + 1);
            let at = || format!("{}:{number}", list.name);
            let heading = || number == 1 && matches!(line, "key,part" | "key,value");
            if line.is_empty() || heading() {
                return Ok(());
            }
            let Some((key, part)) = line.rsplit_once(',') else {
                bail!("{}: no comma in {}: a line is KEY,PART", at(), quoted(line));
            };
            let Ok(part) = part.trim().parse::<u8>() else {
                bail!("{}: part {}: must be a number from 0 to 255", at(), quoted(part));
            };
            if let Some(bits) = value_bits.filter(|&bits| bits < 8 && part >> bits != 0) {
                bail!("{}: part {part} has more than the {bits} bits of --value-bits", at());
            }
            if list.entries.len() >= keys_max {
                bail!("{}: more than {keys_max} keys need more memory than is available", at());
            }
            list.largest = list.largest.max(part);
            list.entries.push((hash_key(key.as_bytes(), seed), part));
            Ok(())
        })?;
        if list.entries.is_empty() {
            bail!("{}: no keys: a line is KEY,PART", list.name);
        }
        Ok(list)
    }

    /// Bits of the largest part, one at least.
    fn value_bits(&self) -> u8 {
        (8 - self.largest.leading_zeros() as u8).max(1)
    }
}

/// Returns the beginning of a text, in quotes and without control characters.
fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    let dots = if text.chars().nth(40).is_some() { "…" } else { "" };
    format!("\"{short}{dots}\"")
}

fn open(path: &Path) -> Result<(String, Box<dyn BufRead>)> {
    if path == Path::new(STDIN) {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            bail!("standard input is a terminal: `-` needs a list of keys, from a pipe or a file");
        }
        return Ok(("standard input".to_owned(), Box::new(BufReader::new(stdin))));
    }
    let name = path.display().to_string();
    if path.is_dir() {
        bail!("{name}: is a directory; must be a list of keys");
    }
    let file = File::open(path).with_context(|| format!("{name}: cannot open"))?;
    Ok((name, Box::new(BufReader::with_capacity(1 << 20, file))))
}

/// Calls `each` with each line and its number, from 1.
fn for_each_line(
    name: &str,
    mut input: Box<dyn BufRead>,
    mut each: impl FnMut(u64, &str) -> Result<()>,
) -> Result<()> {
    use std::io::Read;
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        let read = read.with_context(|| format!("{name}: cannot read"))?;
        if read == 0 {
            break;
        }
        if read as u64 == LINE_MAX && !line.ends_with(b"\n") {
            bail!("{name}:{number}: the line has more than {LINE_MAX} bytes");
        }
        let text = std::str::from_utf8(&line)
            .map_err(|_| anyhow!("{name}:{number}: not UTF-8 text"))?
            .trim_end_matches(['\n', '\r']);
        each(number, text)?;
    }
    Ok(())
}

fn load(path: &Path, isa: Option<Isa>) -> Result<Replica> {
    Ok(Replica::load(path, isa, Pages::Huge)?)
}

fn query(args: &QueryArgs) -> Result<()> {
    let table = load(&args.table, None)?;
    let (reader, seed) = (table.reader(), table.seed());
    let part = |key: &str| reader.lookup(hash_key(key.as_bytes(), seed));
    let mut found = Vec::new();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut answer = |key: &str| -> Result<()> {
        match args.output_options.format {
            Format::Text => writeln!(out, "{key},{}", part(key)).context("standard output")?,
            Format::Json => found.push(json!({ "key": key, "part": part(key) })),
        }
        Ok(())
    };
    match &args.keys {
        Some(path) => {
            let (name, input) = open(path)?;
            for_each_line(&name, input, |_, line| answer(line))?;
        }
        None => args.key.iter().try_for_each(|key| answer(key))?,
    }
    if args.output_options.format == Format::Json {
        serde_json::to_writer_pretty(&mut out, &found)?;
        writeln!(out).context("standard output")?;
    }
    out.flush().context("standard output")
}

/// Returns the document of `stat`.
fn describe(schema: &str, file: &Path, table: &Replica) -> Value {
    let reader = table.reader();
    let seeds = reader.seeds();
    json!({
        "schema": schema,
        "file": file.display().to_string(),
        "keys": table.keys(),
        "value_bits": reader.value_bits(),
        "row_bits": reader.row().get(),
        "bytes": reader.bytes(),
        "bits_per_key": 8.0 * reader.bytes() as f64 / table.keys().max(1) as f64,
        "partitions": reader.partitions(),
        "blocks": reader.blocks(),
        "groups": seeds.iter().sum::<usize>(),
        "groups_by_seed": seeds,
        "fallback_keys": reader.fallback_len(),
        "table": format!("{:#018x}", table.id()),
        "generation": table.generation(),
        "sequence": table.sequence(),
    })
}

fn stat(args: &StatArgs) -> Result<()> {
    let table = load(&args.table, None)?;
    args.output_options.print(&describe("overbank-partition-stat/1", &args.table, &table))
}
