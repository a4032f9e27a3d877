//! `overbank kv advise`: reads MONITOR's output or captures, prints what a proxy would do.

use crate::options::Format;
use crate::setup::{progress_bar, stop_on_ctrl_c};
use crate::text;
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use overbank_products::kv_advise::{Advisor, ENTRIES, Question, Secret};
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Sizes that are simulated at a time.
const SIZES_MAX: usize = 16;

/// Recommend a cache of hot keys for a Redis, by the commands that it gets
///
/// Reads the output of `redis-cli MONITOR`, or captures of the traffic to Redis (pcap or pcapng,
/// also gzipped). Prints the commands by class, the hot keys, the skew, what `overbank kv proxy` of
/// each size would have answered and taken off the server, and one recommendation.
#[derive(ClapArgs)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  timeout 60 redis-cli MONITOR > monitor.log; overbank kv advise monitor.log
  timeout 60 redis-cli MONITOR | overbank kv advise -
  tcpdump -i eth0 -w redis.pcap tcp dst port 6379; overbank kv advise redis.pcap
  overbank kv advise redis.pcap --hash-names --format json | jq .recommendation

MONITOR can halve the throughput of a busy Redis: a capture costs it nothing. It shows commands once
they are done, without AUTH and without those that fail. A capture of TLS shows nothing.

Several files are one observation, in their order. Sizes and expiries of values are unknown: each
value is taken to fit, and to be asked for again after 60 seconds. Fills are reads of the proxy's
own, and are taken off what it saves.

Names are hashed with a key that is drawn for each run. Ctrl-C ends the reading early; the output
then covers what was read.")]
pub struct Args {
    /// Output of `redis-cli MONITOR`, or captures; `-`: standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// TCP port of Redis in captures
    #[arg(long, value_name = "PORT", default_value_t = 6379,
          value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Numbers of entries to simulate a proxy with
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = ENTRIES.map(|entries| entries as u32),
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    entries: Vec<u32>,
    /// Limit of listed hot keys
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(0..=10_000))]
    top: u32,
    /// Keys that are counted exactly; the counts of more are bounds
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    keys: u32,
    /// Print keyed hashes instead of names
    #[arg(long)]
    hash_names: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let mut entries: Vec<usize> = args.entries.iter().map(|&entries| entries as usize).collect();
    entries.sort_unstable();
    entries.dedup();
    if entries.len() > SIZES_MAX {
        bail!("--entries: must be at most {SIZES_MAX} sizes");
    }
    let is_stdin = |path: &&PathBuf| path.as_path() == Path::new("-");
    if args.files.iter().filter(is_stdin).count() > 1 {
        bail!("standard input can be read once: `-` must be named once");
    }
    let secret = args.hash_names.then(secret).transpose()?;
    let (keys_max, top) = (args.keys as usize, args.top as usize);
    let question = Question { port: args.port, keys_max, top, entries, secret };
    let stop = stop_on_ctrl_c()?;
    let bar = progress_bar(args.quiet);
    bar.set_length(
        args.files.iter().map(|path| path.metadata().map_or(0, |meta| meta.len())).sum(),
    );
    let mut advisor = Advisor::new(question);
    for path in &args.files {
        let (name, input) = open(path)?;
        bar.set_message(name.clone());
        let result = advisor.read(&name, bar.wrap_read(input), &stop);
        if result.is_err() {
            bar.finish_and_clear();
        }
        result?;
    }
    bar.finish_and_clear();
    let advice = advisor.advice()?;
    let printed = match args.format {
        Format::Text => text::kv_advise::render(&advice),
        Format::Json => serde_json::to_string_pretty(&advice)?,
    };
    writeln!(std::io::stdout(), "{}", printed.trim_end()).context("standard output")
}

/// Returns the name of an input and its bytes.
fn open(path: &Path) -> Result<(String, Box<dyn Read + Send>)> {
    if path == Path::new("-") {
        if std::io::stdin().is_terminal() {
            bail!("standard input is a terminal: `-` reads from a pipe or a file");
        }
        return Ok(("standard input".to_owned(), Box::new(std::io::stdin())));
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("{name}: cannot open it"))?;
    Ok((name, Box::new(file)))
}

/// Draws what names are hashed with.
fn secret() -> Result<Secret> {
    let mut secret = Secret::default();
    let drawn = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    drawn.context("--hash-names: no random numbers")?;
    Ok(secret)
}
