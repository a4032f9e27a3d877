//! `overbank advise`.

use crate::files::{Pending, keep_apart};
use crate::options::{BuiltIn, Common, Format};
use crate::replay::load_capture;
use crate::setup::{command_line, pin, progress_bar, stop_on_ctrl_c};
use crate::text;
use anyhow::{Result, bail};
use clap::Args as ClapArgs;
use overbank::cache::Design;
use overbank_kit::workload::{FlowStream, Trace};
use overbank_products::TrafficSource;
use overbank_products::advise::calibrate::calibrated;
use overbank_products::advise::{self, Costs, Input, Question, page};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
#[cfg(target_os = "linux")]
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Designs to choose from without `--cache`.
const DESIGNS: &str = "set-4,set-8,set-16,cuckoo-2-4,cuckoo-2-8,cuckoo-2-16,\
                       cuckoo-2-16+half-bubble,blp-2-4,blp-2-4+pblru,blp-2-8,blp-2-16,\
                       blp-2-16+pblru,blp-2-16+half-bubble,set-16+pblru";

/// Recommend a flow cache for your traffic, with the reason
///
/// Examines the flows of a capture, a live sample or built-in traffic: number, skew and churn.
/// Measures the hit rate of each design and size with the real tables, and predicts that of random
/// eviction with a model. Takes the smallest size within 2 % of the best estimated time a packet.
/// Then tries the best designs of that size on this machine with this traffic.
#[derive(ClapArgs)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  overbank advise capture.pcapng
  overbank advise --interface eth0 --seconds 30          needs CAP_NET_RAW: run as root
  overbank advise --flows 300000 --zipf 0.9 --report advice.html
  overbank advise capture.pcap --format json | jq .recommendation

Sizes are powers of two from 1024 to four times the flows, at most 67108864 entries. Built-in
traffic of more than 11 million flows has at most 8388608. The reason says if a larger size may be
better.

Costs: `overbank replay` on the target machine reports ns/hit and ns/miss; --miss-ns is their
difference. The defaults are those of docs/results.md. The costs of policies and of a second cache
line are measured at the start, in less than a second.

With half a million packets or more, the designs within 2 % of the best estimate and a short list
are tried at the end, in a few seconds. The last column of the tables has their times; in JSON,
lookup_ns is null for the others. Ctrl-C ends it early; the advice then covers the work done.")]
pub struct Args {
    /// Capture to analyse: pcap or pcapng, also gzipped; default: built-in
    /// traffic
    #[arg(conflicts_with = "interface")]
    capture: Option<PathBuf>,
    /// Sample a network interface instead
    #[arg(long, value_name = "IFACE", conflicts_with_all = ["flows", "zipf"])]
    interface: Option<String>,
    /// Seconds to sample
    #[arg(long, value_name = "S", requires = "interface", default_value_t = 10.0,
          value_parser = parse_seconds)]
    seconds: f64,
    /// Limit of packets in a live sample
    #[arg(long, value_name = "N", requires = "interface", default_value_t = 50_000_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    packets: u64,
    #[command(flatten)]
    built_in: BuiltIn,
    /// Designs to choose from, GEOMETRY[+POLICY]
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = DESIGNS)]
    cache: Vec<Design>,
    /// Nanoseconds of a packet that hits in the cache
    #[arg(long, value_name = "NS", default_value_t = Costs::default().hit_ns,
          value_parser = parse_ns)]
    hit_ns: f64,
    /// Additional nanoseconds of a packet that misses
    #[arg(long, value_name = "NS", default_value_t = Costs::default().miss_ns,
          value_parser = parse_ns)]
    miss_ns: f64,
    /// Time and try no design: take the costs of policies and of a second line from a table
    #[arg(long)]
    no_calibration: bool,
    /// Core to time on [default: the last]
    #[arg(long, value_name = "N", conflicts_with = "no_calibration")]
    core: Option<usize>,
    #[command(flatten)]
    common: Common,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be between 0.1 and 86400 seconds".to_owned()),
    }
}

fn parse_ns(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ns) if (0.0..=1e9).contains(&ns) => Ok(ns),
        _ => Err("must be between 0 and 1e9 nanoseconds".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<()> {
    // Claim the output first: a bad name fails before the work.
    keep_report_apart(args)?;
    let report = args.common.report.as_deref().map(Pending::claim).transpose()?;
    let stop = stop_on_ctrl_c()?;
    let bar = progress_bar(args.common.quiet);
    let costs = Costs { hit_ns: args.hit_ns, miss_ns: args.miss_ns, ..Costs::default() };
    let costs = if args.no_calibration { costs } else { calibrated_on(args.core, costs)? };
    let seed = args.common.seed;
    let question = Question { designs: args.cache.clone(), costs, seed };
    let mut progress = |what: &str, done: f64| {
        if !bar.is_hidden() {
            bar.set_length(1000);
            bar.set_position((done * 1000.0) as u64);
            bar.set_message(what.to_owned());
        }
    };
    // The core was available at the start. If it has gone, the trial is still worth making.
    let mut pin = || drop(pin(args.core));
    let advice = match sample(args, &stop)? {
        Some((trace, traffic)) => {
            let input = Input::Trace(&trace);
            advise::run(&question, input, traffic, &stop, &mut progress, &mut pin)
        }
        None => {
            let BuiltIn { flows, zipf: theta } = args.built_in;
            let stream = FlowStream::zipf(flows, theta, seed)?;
            let input = Input::Drawn { stream: &stream, theta };
            let traffic = TrafficSource::drawn(flows, theta);
            advise::run(&question, input, traffic, &stop, &mut progress, &mut pin)
        }
    };
    bar.finish_and_clear();
    let advice = advice?;
    let printed = match args.common.format {
        Format::Text => text::advise::render(&advice),
        Format::Json => serde_json::to_string_pretty(&advice)?,
    };
    if let Some(report) = report {
        report.finish(&page::page(&advice, &command_line()))?;
    }
    writeln!(std::io::stdout(), "{printed}")?;
    Ok(())
}

/// Measures costs on a separate thread, so that the simulation after it may use all cores.
fn calibrated_on(core: Option<usize>, costs: Costs) -> Result<Costs> {
    let measure = move || pin(core).map(|_| calibrated(costs));
    std::thread::spawn(measure).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Refuses a report that would replace the capture, which may be standard input.
fn keep_report_apart(args: &Args) -> Result<()> {
    let on_disk = |path| if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
    match (&args.common.report, &args.capture) {
        (Some(report), Some(capture)) => keep_apart(report, &[on_disk(capture)]),
        _ => Ok(()),
    }
}

/// Returns the flows of a capture or of an interface; `None` for generated traffic.
fn sample(args: &Args, stop: &AtomicBool) -> Result<Option<(Trace, TrafficSource)>> {
    if let Some(interface) = &args.interface {
        return listen(args, interface, stop).map(Some);
    }
    let Some(path) = &args.capture else { return Ok(None) };
    let store = load_capture(path, args.common.memory)?;
    let trace = Trace::of(&store);
    let traffic = TrafficSource::Capture {
        file: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        frames: store.len() as u64,
        skipped: store.skipped(),
        broken: Some(trace.broken()),
    };
    Ok(Some((trace, traffic)))
}

/// Returns the most bytes that a sample of `packets` and `flows` takes. Lists take 12 bytes a
/// packet and 8 a flow, up to three times that while they grow. The hash table takes 17 bytes a
/// bucket, is at least 7/16 full, and takes half as much again while it grows.
#[cfg(any(target_os = "linux", test))]
fn sample_bytes(packets: usize, flows: usize) -> u64 {
    packets as u64 * 36 + flows as u64 * (24 + 59)
}

/// Takes frames until the time is over, the sample is full, memory runs out, or Ctrl-C.
#[cfg(target_os = "linux")]
fn listen(args: &Args, interface: &str, stop: &AtomicBool) -> Result<(Trace, TrafficSource)> {
    let mut sniffer = overbank_ports::sniff::Sniffer::open(interface)?;
    let mut trace = Trace::default();
    let (start, time) = (Instant::now(), Duration::from_secs_f64(args.seconds));
    let memory = args.common.memory;
    let bytes_max = (memory as u64).saturating_mul(1 << 20);
    let (mut frames, mut memory_full) = (0, false);
    while frames < args.packets && !stop.swap(false, Ordering::Relaxed) {
        let Some(left) = time.checked_sub(start.elapsed()) else { break };
        memory_full = sample_bytes(trace.ids().len() + 1, trace.hashes().len() + 1) > bytes_max;
        if memory_full {
            break;
        }
        let wait = left.min(Duration::from_millis(100));
        if let Some(frame) = sniffer.next_frame(wait)? {
            trace.push(frame.data, 1, frame.timestamp_ns);
            frames += 1;
        }
    }
    if memory_full && trace.ids().is_empty() {
        bail!("--memory {memory}: must be at least 1 for a sample");
    }
    if trace.ids().is_empty() {
        let seconds = start.elapsed().as_secs_f64();
        match sniffer.xdp_program() {
            Some(program) => bail!(
                "{interface}: no frame arrived within {seconds:.1} s: {program} takes frames before \
                 they can be sampled, as that of an AF_XDP port of `overbank switch` does; sample \
                 while it is detached, or use an AF_PACKET port meanwhile"
            ),
            None => bail!("{interface}: no frame arrived within {seconds:.1} s"),
        }
    }
    let traffic = TrafficSource::Live {
        interface: interface.to_owned(),
        seconds: (start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        frames,
        missed: sniffer.missed(),
        broken: trace.broken(),
        memory_full,
    };
    Ok((trace, traffic))
}

#[cfg(not(target_os = "linux"))]
fn listen(_: &Args, interface: &str, _: &AtomicBool) -> Result<(Trace, TrafficSource)> {
    bail!("{interface}: live samples need Linux")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the known growth of the lists and the table, at their largest.
    #[test]
    fn a_sample_takes_no_more_than_is_counted() {
        for packets in [1usize, 5, 1000, 1025, (1 << 20) + 1, 1 << 26] {
            // A list doubles; the old one stays until the new one is filled.
            let list = |bytes: u64| match packets.next_power_of_two() as u64 {
                grown if grown as usize == packets => grown * bytes,
                grown => (grown + grown / 2) * bytes,
            };
            // A hash table has a power of two of buckets, filled to 7/8.
            let buckets = (packets as u64 * 8).div_ceil(7).next_power_of_two();
            let table = (buckets + buckets / 2) * 17;
            let most = list(4).max(4) + list(8) + list(8) + table;
            assert!(sample_bytes(packets, packets) + 1024 >= most, "{packets} packets");
        }
        assert!(sample_bytes(1_000_000, 1000) < 64 << 20);
    }
}
