//! `overbank kv load`: requests by Zipf's law, and what became of them.
//!
//! ```text
//!   closed loop (default)   as many requests in flight as the window says: servers set the rate
//!   open loop (--rate)      requests at their times; a latency counts from the time at which its
//!                           request was due, so a stall is in the latencies of all it delays
//! ```
//!
//! An answer with a stamp is of a device, one without is of a server: that gives the hits. Keys are
//! `key000000000007`, with the most popular one first.

use super::Servers;
use crate::options::Format;
use crate::setup::{progress_bar, stop_on_ctrl_c};
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use overbank_declare::counters::Counters;
use overbank_kit::report::count;
use overbank_kit::workload::FlowStream;
use overbank_kv::client::{Client, Completion, Error, Outcome, Request, Totals};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Name and version of the document.
const SCHEMA: &str = "overbank.kv-load.v1";
/// Most keys: their law is a table in memory.
const KEYS_MAX: i64 = 100_000_000;
/// Most requests in flight to all servers together.
const WINDOW_MAX: i64 = 100_000;
/// Parts of a percent that writes are drawn by.
const SHARES: u32 = 1_000_000;
/// Time between two updates of the progress bar.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Longest latency that is recorded; longer ones count as this, in microseconds.
const LATENCY_MAX_US: u64 = 60_000_000;

/// Load servers with requests by Zipf's law; reports rates, hits of a device and latencies
#[derive(clap::Args)]
#[command(after_help = "Examples:
  overbank kv load --keys 100000 --theta 0.99 --fill --seconds 10
  overbank kv load --server 192.0.2.1,192.0.2.2 --writes 5 --window 256
  overbank kv load --rate 20000 --seconds 30 --format json     an open loop, for latencies

Without --fill, keys that no one has set are read as missing. Ctrl-C ends it early with its report.")]
pub struct Args {
    #[command(flatten)]
    servers: Servers,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(1..=KEYS_MAX))]
    keys: u32,
    /// Zipf skew θ of the keys; 0 is uniform
    #[arg(long, value_name = "THETA", default_value_t = 0.99, value_parser = in_range::<0, 2>)]
    theta: f64,
    /// Share of writes, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = in_range::<0, 100>)]
    writes: f64,
    /// Length of values, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(0..=1400))]
    value: u32,
    /// Seconds to run
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = in_range::<0, 86_400>)]
    seconds: f64,
    /// Requests a second, whatever the servers do: an open loop
    #[arg(long, value_name = "R", value_parser = in_range::<1, 10_000_000>)]
    rate: Option<f64>,
    /// Limit of requests in flight
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=WINDOW_MAX))]
    window: u32,
    /// Set every key first
    #[arg(long)]
    fill: bool,
    /// Seed of keys and writes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show no progress bar
    #[arg(long, short)]
    quiet: bool,
}

fn in_range<const MIN: u32, const MAX: u32>(text: &str) -> Result<f64, String> {
    let range = f64::from(MIN)..=f64::from(MAX);
    match text.parse::<f64>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("must be between {MIN} and {MAX}")),
    }
}

/// Quantiles in microseconds.
#[derive(Serialize)]
struct Latency {
    count: u64,
    mean_us: f64,
    p50_us: u64,
    p90_us: u64,
    p99_us: u64,
    p999_us: u64,
    max_us: u64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Latency {
            count: histogram.len(),
            mean_us: (histogram.mean() * 10.0).round() / 10.0,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max(),
        }
    }
}

/// What became of all requests.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    keys: u32,
    theta: f64,
    writes_percent: f64,
    value_bytes: u32,
    window: u32,
    rate: Option<f64>,
    seed: u64,
    ended_early: bool,
    seconds: f64,
    begun: u64,
    answered: u64,
    answered_per_second: f64,
    reads: u64,
    /// Reads that a device has answered, and servers.
    hits: u64,
    misses: u64,
    hit_share: f64,
    /// Reads that found no value.
    missing: u64,
    written: u64,
    /// Requests without an answer, by reason.
    failed: BTreeMap<&'static str, u64>,
    hit_latency: Latency,
    miss_latency: Latency,
    write_latency: Latency,
    client: Totals,
}

/// What is in flight, and what has ended.
struct Load {
    client: Client,
    value: Vec<u8>,
    /// When requests were due, by ticket.
    due: HashMap<u64, Instant>,
    begun: u64,
    missing: u64,
    failed: BTreeMap<&'static str, u64>,
    hits: Histogram<u64>,
    misses: Histogram<u64>,
    writes: Histogram<u64>,
}

fn name(key: u32) -> String {
    format!("key{key:012}")
}

impl Load {
    fn new(client: Client, value: u32) -> Result<Load> {
        // Three digits, as the quantiles of the report have.
        let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX_US, 3);
        Ok(Load {
            client,
            value: vec![b'v'; value as usize],
            due: HashMap::new(),
            begun: 0,
            missing: 0,
            failed: BTreeMap::new(),
            hits: histogram()?,
            misses: histogram()?,
            writes: histogram()?,
        })
    }

    /// Begins a request that is due at `at`, unless its server has as many as it remembers.
    fn begin(&mut self, key: u32, is_write: bool, at: Instant) -> Result<bool> {
        let key = name(key);
        let request = match is_write {
            true => Request::Put(key.as_bytes(), &self.value),
            false => Request::Get(key.as_bytes()),
        };
        match self.client.begin(request) {
            Ok(ticket) => {
                self.due.insert(ticket, at);
                self.begun += 1;
                Ok(true)
            }
            Err(Error::Full { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes what has ended; waits for the first one for `wait` at most.
    fn take(&mut self, mut wait: Duration) -> Result<()> {
        while let Some(done) = self.client.poll(wait)? {
            self.ended(done);
            wait = Duration::ZERO;
        }
        Ok(())
    }

    fn ended(&mut self, done: Completion) {
        let Some(due) = self.due.remove(&done.ticket) else { return };
        let of = match done.result {
            Err(error) => {
                *self.failed.entry(error.name()).or_default() += 1;
                return;
            }
            Ok(Outcome::Written) => &mut self.writes,
            Ok(Outcome::Read(value)) => {
                self.missing += u64::from(value.is_none());
                if done.from_device { &mut self.hits } else { &mut self.misses }
            }
        };
        of.saturating_record((due.elapsed().as_micros() as u64).max(1));
    }

    fn answered(&self) -> u64 {
        self.hits.len() + self.misses.len() + self.writes.len()
    }

    /// Takes the rest: what is in flight ends in a bounded time.
    fn finish(&mut self) -> Result<()> {
        while self.client.in_flight() > 0 {
            self.take(SHOW_EVERY)?;
        }
        Ok(())
    }
}

/// Sets every key.
fn fill(args: &Args, bar: &ProgressBar, stop: &AtomicBool) -> Result<()> {
    let mut load = Load::new(args.servers.connect()?, args.value)?;
    bar.set_length(args.keys.into());
    bar.set_message("setting keys");
    for key in 0..args.keys {
        while load.due.len() >= args.window as usize || !load.begin(key, true, Instant::now())? {
            load.take(SHOW_EVERY)?;
        }
        if let Some((why, _)) = load.failed.first_key_value() {
            bail!("cannot set the keys: {why}; see `overbank kv put` for the reason");
        }
        if stop.load(Ordering::Relaxed) {
            bail!("ended before all keys were set");
        }
        bar.set_position(key.into());
    }
    load.finish()?;
    match load.failed.first_key_value() {
        Some((why, _)) => bail!("cannot set the keys: {why}; see `overbank kv put` for the reason"),
        None => Ok(()),
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut keys = FlowStream::zipf(args.keys, args.theta, args.seed)?;
    let mut shares = FlowStream::uniform(SHARES, args.seed ^ u64::MAX)?;
    let writes = (args.writes / 100.0 * f64::from(SHARES)) as u32;
    let bar = progress_bar(args.quiet);
    let stop = stop_on_ctrl_c()?;
    if args.fill {
        fill(args, &bar, &stop)?;
    }
    let mut load = Load::new(args.servers.connect()?, args.value)?;
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.seconds));
    bar.set_length(length.as_millis() as u64);
    let pause = args.rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    let (mut shown, mut next) = (start, start);
    // What is drawn and could not begin yet.
    let mut drawn = None;
    let ended_early = loop {
        let now = Instant::now();
        if now - start >= length {
            break false;
        }
        if stop.load(Ordering::Relaxed) {
            break true;
        }
        if now - shown >= SHOW_EVERY {
            shown = now;
            bar.set_position((now - start).as_millis() as u64);
            bar.set_message(format!("{} answers", count(load.answered())));
        }
        let is_due = pause.is_none() || next <= now;
        let mut has_room = load.due.len() < args.window as usize;
        if is_due && has_room {
            let (key, is_write) =
                drawn.unwrap_or_else(|| (keys.next_flow(), shares.next_flow() < writes));
            let at = if pause.is_some() { next } else { now };
            has_room = load.begin(key, is_write, at)?;
            drawn = (!has_room).then_some((key, is_write));
            if has_room {
                next += pause.unwrap_or_default();
            }
        }
        let wait = match (is_due && has_room, pause) {
            (true, _) => Duration::ZERO,
            (false, Some(_)) if has_room => next.saturating_duration_since(now).min(SHOW_EVERY),
            (false, _) => SHOW_EVERY,
        };
        if wait.is_zero() || load.client.in_flight() > 0 {
            load.take(wait)?;
        } else {
            std::thread::sleep(wait);
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    load.finish()?;
    bar.finish_and_clear();
    if load.answered() == 0 && load.begun > 0 {
        let why = load.failed.first_key_value().map_or("", |(why, _)| why);
        bail!("no answer to {} requests: {why}; see `overbank kv get`", load.begun);
    }
    let report = report(args, &load, ended_early, seconds);
    let printed = match args.format {
        Format::Text => text(&report),
        Format::Json => serde_json::to_string_pretty(&report).context("internal error")?,
    };
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

fn report(args: &Args, load: &Load, ended_early: bool, seconds: f64) -> Report {
    let (hits, misses) = (load.hits.len(), load.misses.len());
    let share = hits as f64 / (hits + misses).max(1) as f64;
    Report {
        schema: SCHEMA,
        keys: args.keys,
        theta: args.theta,
        writes_percent: args.writes,
        value_bytes: args.value,
        window: args.window,
        rate: args.rate,
        seed: args.seed,
        ended_early,
        seconds: (seconds * 1e3).round() / 1e3,
        begun: load.begun,
        answered: load.answered(),
        answered_per_second: (load.answered() as f64 / seconds).round(),
        reads: hits + misses,
        hits,
        misses,
        hit_share: (share * 1e4).round() / 1e4,
        missing: load.missing,
        written: load.writes.len(),
        failed: load.failed.clone(),
        hit_latency: Latency::of(&load.hits),
        miss_latency: Latency::of(&load.misses),
        write_latency: Latency::of(&load.writes),
        client: load.client.totals(),
    }
}

fn text(report: &Report) -> String {
    let mut table =
        crate::switch::table(&["answers", "count", "mean µs", "p50", "p90", "p99", "p99.9", "max"]);
    for (name, latency) in [
        ("read, device", &report.hit_latency),
        ("read, server", &report.miss_latency),
        ("written", &report.write_latency),
    ] {
        let Latency { count: n, mean_us, p50_us, p90_us, p99_us, p999_us, max_us } = latency;
        if *n > 0 {
            let numbers = [p50_us, p90_us, p99_us, p999_us, max_us].map(ToString::to_string);
            let head = [name.to_owned(), count(*n), format!("{mean_us:.0}")];
            table.add_row(head.into_iter().chain(numbers));
        }
    }
    let Report { seconds, answered, answered_per_second, hit_share, missing, .. } = report;
    let early = if report.ended_early { "ended early; " } else { "" };
    let mut text = format!(
        "{early}{seconds:.1} s, {} answers, {} a second; {:.1} % of the reads by a device, {} \
         without a value\n{table}",
        count(*answered),
        count(*answered_per_second as u64),
        hit_share * 100.0,
        count(*missing),
    );
    for (why, n) in &report.failed {
        text.push_str(&format!("\nfailed, {why}: {}", count(*n)));
    }
    report.client.visit(|counter, reason, n| {
        let is_fault = !["begun", "received", "answers", "gave_up"].contains(&counter.name);
        if n > 0 && is_fault {
            let reason = reason.map_or(String::new(), |reason| format!(", {reason}"));
            text.push_str(&format!("\n{}{reason}: {}", counter.name, count(n)));
        }
    });
    text
}
