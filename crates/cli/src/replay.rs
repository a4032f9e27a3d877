//! `overbank replay`.

use crate::files::{Pending, keep_apart};
use crate::options::{BuiltIn, Common, Format};
use crate::setup::{command_line, pin, progress_bar, stop_on_ctrl_c};
use crate::text;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args as ClapArgs;
use indicatif::ProgressBar;
use overbank::isa::Isa;
use overbank_kit::machine::memory_available_bytes;
use overbank_kit::traffic::Traffic;
use overbank_kit::workload::FlowStream;
use overbank_ports::capture::{Capture, CaptureSet, WriteError, read_ethernet};
use overbank_ports::memory::{FrameStore, Limits};
use overbank_products::TrafficSource;
use overbank_products::replay::feed::Source;
use overbank_products::replay::page;
use overbank_products::replay::{self, Contestant, Length, Plan, Progress};
use overbank_switch::datapath::MEGAFLOWS_16_BIT;
use overbank_switch::megaflow::MEGAFLOW_BYTES;
use overbank_switch::parse::parse_replay_rules;
use overbank_switch::ports::{PORT_IN_PORT, PORT_LOCAL};
use overbank_switch::rule::Rule;
use overbank_switch::translate::Tables;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Cap of frames of built-in traffic in `--out-dir`: the whole first pass would be gigabytes.
const BUILT_IN_FRAMES_OUT: u64 = 1_000_000;
/// Designs to compare without `--cache`.
const CONTESTANTS: &str = "none,set-4,set-8,set-16,cuckoo-2-4,cuckoo-2-8,cuckoo-2-16+half-bubble,\
                           blp-2-4,blp-2-4+pblru,blp-2-8,blp-2-16,blp-2-16+pblru";

/// Replay traffic through the three-tier switch, once for each flow-cache design.
///
/// Reports the hit rate of each tier, nanoseconds a packet and packets a second of each design.
/// Checks that every design forwarded every packet alike.
#[derive(ClapArgs)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:
  overbank replay
  overbank replay capture.pcapng --rules rules.txt --cache blp-2-16,set-4 --out-dir out/
  overbank replay --flows 100000 --zipf 0.99 --report report.html
  tcpdump -i eth0 -c 100000 -w - | overbank replay -
  overbank replay capture.pcap.gz --format json | jq '.designs[] | {design, mpps, hit_rate}'

A packet of interface i of a capture (from 0) arrives on port i + 1. Rules have the syntax of
`ovs-ofctl add-flows`. A loop is the capture once, or as many packets as flows. Ctrl-C ends a replay
early; the report then covers the work done.")]
pub struct Args {
    /// Capture to replay: pcap or pcapng, also gzipped; `-`: standard input; default: built-in
    /// traffic
    capture: Option<PathBuf>,
    /// Rules, one a line, in the syntax of ovs-ofctl; `-`: standard input; default: built-in rules
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Flow-cache designs, GEOMETRY[+POLICY][@SIMD]; `none`: every packet goes to the megaflow
    /// cache
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = CONTESTANTS)]
    cache: Vec<Contestant>,
    /// Entries of the flow cache
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    entries: usize,
    /// Limit of megaflows
    #[arg(long, value_name = "N", default_value_t = 1 << 16)]
    megaflows: usize,
    /// Ports to add to those of the traffic and the rules, such as 7,8
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    ports: Vec<u32>,
    #[command(flatten)]
    built_in: BuiltIn,
    /// Loops before the measurement [default: 20 for built-in traffic, 1 for a capture]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    warmup: Option<u64>,
    /// Loops of one measured round [default: enough for two million packets]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    loops: Option<u64>,
    /// Measure each design for this many seconds instead
    #[arg(long, value_name = "S", conflicts_with = "loops", value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Rounds in which the designs take turns
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Core to run on [default: the last]
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Instruction set of the flow cache [default: the best; OVERBANK_SIMD also sets it]
    #[arg(long, value_name = "NAME")]
    simd: Option<Isa>,
    /// Write the frames of the first loop to one port-N.pcap for each output port. Of built-in
    /// traffic, writes the first million. Replaces these files; all others stay
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be between 0.001 and 86400 seconds".to_owned()),
    }
}

/// Standard input as a file name.
const STDIN: &str = "-";
/// Standard input in messages.
const STDIN_NAME: &str = "standard input";

/// Writes outgoing frames: all of a capture, the first million of built-in traffic.
struct Output {
    captures: CaptureSet,
    /// Frames still to be written.
    left: u64,
}

impl Output {
    fn new(captures: CaptureSet, source: &Source<'_>) -> Output {
        let left = match source {
            Source::Capture(_) => u64::MAX,
            Source::BuiltIn { .. } => BUILT_IN_FRAMES_OUT,
        };
        Output { captures, left }
    }

    fn write(&mut self, port: u32, timestamp_ns: u64, frame: &[u8]) -> Result<(), WriteError> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        self.captures.write(port, timestamp_ns, frame)
    }
}

pub fn run(args: &Args) -> Result<()> {
    let is_stdin = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new(STDIN));
    if is_stdin(&args.capture) && is_stdin(&args.rules) {
        bail!("only one of the capture and the rules can be standard input");
    }
    let store = match &args.capture {
        Some(path) => Some(load_capture(path, args.common.memory)?),
        None => None,
    };
    let rules = load_rules(args, store.is_some())?;
    let stream = FlowStream::zipf(args.built_in.flows, args.built_in.zipf, args.common.seed)?;
    let source = match &store {
        Some(store) => Source::Capture(store),
        None => Source::BuiltIn { stream: &stream, traffic: Traffic::default() },
    };
    let ports = ports(&source, &rules, &args.ports);
    let tables = Tables::new(rules).context("rules")?;
    check_memory(args)?;

    // Claim every output first: a bad name fails before the work. The report may lie in the output
    // directory.
    let inputs: Vec<&Path> = args.capture.iter().chain(&args.rules).map(|p| on_disk(p)).collect();
    let captures =
        args.out_dir.as_deref().map(|dir| CaptureSet::create(dir, &ports)).transpose()?;
    captures.iter().flat_map(CaptureSet::paths).try_for_each(|path| keep_apart(path, &inputs))?;
    args.common.report.as_deref().map_or(Ok(()), |path| keep_apart(path, &inputs))?;
    let report = args.common.report.as_deref().map(Pending::claim).transpose()?;
    let pinned_core = pin(args.core)?;

    let plan = Plan {
        contestants: args.cache.clone(),
        entries: args.entries,
        megaflows: args.megaflows,
        ports,
        seed: args.common.seed,
        isa: args.simd,
        warmup_loops: args.warmup.unwrap_or(if store.is_some() { 1 } else { 20 }),
        length: match (args.loops, args.seconds) {
            (Some(loops), _) => Length::Loops(loops),
            (None, Some(seconds)) => Length::Seconds(seconds),
            (None, None) => Length::Auto,
        },
        rounds: args.rounds,
        pinned_core,
    };
    let stop = stop_on_ctrl_c()?;
    let bar = progress_bar(args.common.quiet);
    let mut output = captures.map(|captures| Output::new(captures, &source));
    let mut write = output.as_mut().map(|output| {
        |port: u32, time: u64, frame: &[u8]| -> Result<(), WriteError> {
            output.write(port, time, frame)
        }
    });
    let record = replay::run(
        &plan,
        &source,
        &tables,
        traffic_record(args, store.as_ref()),
        write.as_mut().map(|w| w as &mut replay::OutputFrames<'_>),
        &stop,
        &mut |p: Progress| show(&bar, p),
    );
    bar.finish_and_clear();
    let record = record?;

    let printed = match args.common.format {
        Format::Text => text::render(&record),
        Format::Json => serde_json::to_string_pretty(&record)?,
    };
    if let Some(output) = output {
        output.captures.finish()?;
    }
    if let Some(report) = report {
        report.finish(&page::page(&record, &command_line()))?;
    }
    writeln!(std::io::stdout(), "{printed}").context("standard output")?;
    Ok(())
}

/// Refuses designs that do not fit into memory together. Otherwise the kernel would kill the
/// process without a message.
fn check_memory(args: &Args) -> Result<()> {
    let signature_bytes = if args.megaflows <= MEGAFLOWS_16_BIT { 4 } else { 6 };
    let caches = args.cache.iter().filter(|c| **c != Contestant::None).count() as u128;
    let needed = caches * args.entries as u128 * signature_bytes
        + args.cache.len() as u128 * args.megaflows as u128 * MEGAFLOW_BYTES as u128;
    let Some(available) = memory_available_bytes() else { return Ok(()) };
    if needed > u128::from(available) {
        bail!(
            "--entries {} and --megaflows {} of {} designs need {} MiB of memory, {} MiB are \
             available: name fewer designs with --cache, or smaller sizes",
            args.entries,
            args.megaflows,
            args.cache.len(),
            needed >> 20,
            available >> 20
        );
    }
    Ok(())
}

pub fn load_capture(path: &Path, memory_mib: usize) -> Result<FrameStore> {
    let memory_bytes_max = memory_mib.checked_mul(1 << 20);
    let limits = Limits {
        memory_bytes_max: memory_bytes_max
            .with_context(|| format!("--memory {memory_mib}: exceeds the address space"))?,
    };
    if path == Path::new(STDIN) {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            bail!("standard input is a terminal: `-` reads a capture from a pipe or a file");
        }
        return Ok(Capture::from_reader(stdin, STDIN_NAME)?.into_ethernet(&limits)?);
    }
    Ok(read_ethernet(path, &limits)?)
}

/// Returns an input's path, standard input's too, for comparison with an output's.
fn on_disk(path: &Path) -> &Path {
    if path == Path::new(STDIN) { Path::new("/dev/stdin") } else { path }
}

fn load_rules(args: &Args, from_capture: bool) -> Result<Vec<Rule>> {
    let (name, text) = match &args.rules {
        Some(path) => {
            let (name, bytes) = if path == Path::new(STDIN) {
                let mut bytes = Vec::new();
                let read = std::io::stdin().read_to_end(&mut bytes);
                (STDIN_NAME.to_owned(), read.map(|_| bytes))
            } else {
                (path.display().to_string(), std::fs::read(path))
            };
            let bytes = bytes.with_context(|| format!("{name}: cannot read the rules"))?;
            let text = String::from_utf8(bytes)
                .map_err(|_| anyhow!("{name}: not UTF-8 text; must be rules"))?;
            (name, text)
        }
        None if from_capture => ("built-in rules".to_owned(), replay::CAPTURE_RULES.to_owned()),
        None => ("built-in rules".to_owned(), Traffic::default().rules()),
    };
    parse_replay_rules(&text).map_err(|errors| {
        // A terminal gets the source line and a caret, a script one line per error.
        let person = std::io::stderr().is_terminal();
        let total = errors.total();
        let list = if person {
            errors.with_source(&name).to_string()
        } else {
            errors.in_file(&name).to_string()
        };
        anyhow!(
            "{name}: {total} {} in the rules\n{list}",
            if total == 1 { "error" } else { "errors" }
        )
    })
}

/// Returns the ports of incoming frames, of rules and of the user.
fn ports(source: &Source<'_>, rules: &[Rule], named: &[u32]) -> Vec<u32> {
    let mut ports = source.in_ports();
    // A replay has every port that a rule names, LOCAL too, but none of the reserved ones.
    let real = |port: &u32| *port < PORT_IN_PORT || *port == PORT_LOCAL;
    ports.extend(rules.iter().flat_map(Rule::out_ports).filter(real));
    ports.extend(named);
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn traffic_record(args: &Args, store: Option<&FrameStore>) -> TrafficSource {
    match (&args.capture, store) {
        (Some(path), Some(store)) => TrafficSource::Capture {
            file: match path.file_name() {
                _ if path == Path::new(STDIN) => STDIN_NAME.to_owned(),
                name => name.unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            },
            frames: store.len() as u64,
            skipped: store.skipped(),
            broken: None,
        },
        _ => TrafficSource::BuiltIn {
            flows: args.built_in.flows,
            theta: args.built_in.zipf,
            classes: Some(Traffic::default().classes()),
            alpha: Some(f64::from(args.built_in.flows) / args.entries.max(1) as f64),
        },
    }
}

fn show(bar: &ProgressBar, p: Progress) {
    if !bar.is_hidden() {
        bar.set_length(p.total);
        bar.set_position(p.done);
        bar.set_message(format!("{:<18} {:<12} {:6.2} Mpps", p.contestant, p.phase, p.mpps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_written_whole_and_a_million_frames_of_built_in_traffic() {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let set = || CaptureSet::create(dir.path(), &[1, 2]).expect("writable");
        let (store, stream) = (FrameStore::new(), FlowStream::uniform(8, 1).expect("flows"));
        let capture = Output::new(set(), &Source::Capture(&store));
        assert_eq!(capture.left, u64::MAX);
        let source = Source::BuiltIn { stream: &stream, traffic: Traffic::default() };
        let mut built_in = Output::new(set(), &source);
        assert_eq!(built_in.left, 1_000_000);
        built_in.left = 3;
        for port in [1, 2, 2, 2, 1] {
            built_in.write(port, 0, &[0; 60]).expect("written");
        }
        let done = built_in.captures.finish().expect("written");
        assert_eq!(
            done.iter().map(|(port, _, frames)| (*port, *frames)).collect::<Vec<_>>(),
            [(1, 1), (2, 2)]
        );
    }
}
