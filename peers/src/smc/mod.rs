//! `smc`: tables of Overbank in the place of Open vSwitch's signature match cache, as in section
//! 7.2 of *Fast Software Cache Design for Network Appliances*, figures 6 and 7.
//!
//! ```text
//!  core 1   │ unpatched │ patched, no design │ set-4 │ set-8 │ cuckoo-2-4 │ …   · next round ·
//!             each is a separate ovs-vswitchd, warm, stopped while others are measured
//! ```
//!
//! The unpatched build and the patched one get the same flows in the same order: uniform or Zipf,
//! α times as many as the cache has entries, on 20 megaflow masks, to one port. The exact-match
//! cache is off. Before that, [`capture`] compares what each design forwards with what the
//! unpatched build does, byte by byte.
//!
//! All allocate on 2 MiB pages: the built-in cache is part of a large allocation of the switch's,
//! for which glibc is set to ask for them.

mod capture;
mod report;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use overbank_kit::workload::FlowStream;
use serde::Serialize;
use serde_json::json;

use crate::ovs::switch::{Build, Switch};
use crate::ovs::traffic::Ids;
use crate::ovs::{Common, Machine, Window};

/// Designs of the paper's comparison. Its "4-way" without SIMD is the built-in cache.
const PAPER: [&str; 5] = ["set-4", "set-8", "cuckoo-2-4", "blp-2-4", "blp-2-4+pblru"];
/// Others of ours.
const OURS: [&str; 3] = ["cuckoo-2-16+half-bubble", "blp-2-16", "blp-2-16+pblru"];
/// A table of ours that is larger than the built-in cache, which only a rebuild makes larger.
const LARGER: &str = "blp-2-16, 4 × the entries";
/// The unpatched build, and the patched one without a design.
const STOCK: &str = "unpatched";
const BUILT_IN: &str = "patched, no design";

/// Entries of the built-in cache.
const ENTRIES: usize = 1 << 20;
/// Entries of a table of 64 MiB.
const ENTRIES_LARGE: usize = 1 << 24;
/// Megaflow masks, and more.
const MASKS: u32 = 20;
const MASKS_MORE: [u32; 2] = [60, 200];
/// At this α every design hits, so that only the lookups differ.
const ALPHA_HITS: f64 = 0.125;
/// Length of a trace that comes again and again, as a power of two.
const TRACE_LOG2: u32 = 20;
/// Huge pages of a switch. Fewer packet buffers than elsewhere: ten switches are up at a time.
const MEMORY_MIB: u64 = 512;

/// Arguments of `smc`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Flows, as multiples of the entries
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.5,0.75,1,1.25,1.5,2",
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "0.02"))]
    alpha: Vec<f64>,
    /// Skews; 0 is uniform
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,0.8,0.99",
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "0"))]
    zipf: Vec<f64>,
    /// Parts of the measurement
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values = ["bytes", "lookup", "figures", "trace", "large", "masks", "dear"],
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "bytes,figures"))]
    parts: Vec<Part>,
    /// Packets before the first round, as a multiple of the flows
    #[arg(long, value_name = "N", default_value_t = 10)]
    warmup: u64,
    /// Length of the sequence of flows, as a power of two; then it starts again
    #[arg(long, value_name = "LOG2", default_value_t = 26,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "18"),
          value_parser = clap::value_parser!(u32).range(10..=30))]
    sequence: u32,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Part {
    /// A capture leaves with the same bytes
    Bytes,
    /// What a lookup costs where every design hits
    Lookup,
    /// Figures 6 and 7: α and skew
    Figures,
    /// The same 2^20 packets again and again
    Trace,
    /// Tables of 64 MiB
    Large,
    /// 60 and 200 megaflow masks
    Masks,
    /// Each megaflow lookup done by all implementations
    Dear,
}

/// A workload.
#[derive(Clone, Copy, Debug, Serialize)]
struct Case {
    part: Part,
    alpha: f64,
    zipf: f64,
    entries: usize,
    masks: u32,
    sequence_log2: u32,
}

/// A workload with the windows of each contestant, one a round.
#[derive(Serialize)]
struct Measured {
    case: Case,
    contestants: Vec<(String, Vec<Window>)>,
}

/// Returns the designs, for people.
pub fn list() -> String {
    designs().collect::<Vec<_>>().join(", ")
}

fn designs() -> impl Iterator<Item = &'static str> {
    PAPER.into_iter().chain(OURS)
}

impl Case {
    fn flows(&self) -> u32 {
        (self.alpha * self.entries as f64) as u32
    }

    fn name(&self) -> String {
        let Case { alpha, masks, .. } = self;
        let law = match self.zipf {
            0.0 => "uniform".to_owned(),
            theta => format!("Zipf {theta}"),
        };
        let what = match self.part {
            Part::Bytes | Part::Lookup | Part::Figures => String::new(),
            Part::Trace => format!(", 2^{TRACE_LOG2} packets repeated"),
            Part::Large => format!(", tables of {} MiB", (self.entries * 4) >> 20),
            Part::Masks => format!(", {masks} masks"),
            Part::Dear => ", dear megaflow lookups".to_owned(),
        };
        format!("α {alpha}, {law}{what}")
    }
}

/// Returns the workloads of these options.
fn cases(options: &Options) -> Vec<Case> {
    let case = |part, alpha| Case {
        part,
        alpha,
        zipf: 0.0,
        entries: ENTRIES,
        masks: MASKS,
        sequence_log2: options.sequence,
    };
    let figures = options.zipf.iter().flat_map(|&zipf| {
        options.alpha.iter().map(move |&alpha| Case { zipf, ..case(Part::Figures, alpha) })
    });
    let of = |part: Part| -> Vec<Case> {
        match part {
            Part::Bytes => Vec::new(),
            Part::Lookup => vec![case(part, ALPHA_HITS)],
            Part::Figures => figures.clone().collect(),
            Part::Trace => [1.0, 2.0]
                .map(|alpha| Case { sequence_log2: TRACE_LOG2, ..case(part, alpha) })
                .into(),
            Part::Large => vec![Case { entries: ENTRIES_LARGE, ..case(part, 1.0) }],
            Part::Masks => MASKS_MORE.map(|masks| Case { masks, ..case(part, 1.0) }).into(),
            Part::Dear => vec![case(part, 1.0)],
        }
    };
    options.parts.iter().flat_map(|&part| of(part)).collect()
}

/// Returns a build of each contestant: the unpatched one, the patched one without a design, and
/// with each.
fn builds(options: &Options, entries: usize) -> Result<Vec<Build>> {
    let given = |name: &str| {
        let found = options.common.vswitchd.iter().find(|build| build.name == name);
        found.with_context(|| format!("no build `{name}`: expected --vswitchd {name}=FILE"))
    };
    let (stock, patched) = (given("native")?, given("patched")?);
    let contestant = |build: &Build, name: &str, design: Option<(&str, usize)>| {
        let memory = ["mem", "limit"].map(|setting| format!("dpdk-socket-{setting}={MEMORY_MIB}"));
        let design = design.map(|(design, entries)| format!("smc-design={design}@{entries}"));
        Build {
            name: name.to_owned(),
            file: build.file.clone(),
            settings: memory.into_iter().chain(design).collect(),
            environment: &[("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")],
        }
    };
    let without = [contestant(stock, STOCK, None), contestant(patched, BUILT_IN, None)];
    let with = designs().map(|design| contestant(patched, design, Some((design, entries))));
    let larger = contestant(patched, LARGER, Some(("blp-2-16", 4 * entries)));
    Ok(without.into_iter().chain(with).chain([larger]).collect())
}

/// Measures all workloads and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    if let Some(wrong) = options.alpha.iter().find(|alpha| !(0.001..=64.0).contains(*alpha)) {
        bail!("--alpha {wrong}: must be from 0.001 to 64");
    }
    let machine = Machine::prepare(builds(options, ENTRIES)?.len(), MEMORY_MIB)?;
    let mut record = common.record(machine.hertz);
    let mut bytes = None;
    if options.parts.contains(&Part::Bytes) {
        bytes = Some(capture::compare(&builds(options, ENTRIES)?, &machine)?);
    }
    let (mut measured, mut failed) = (Vec::new(), None);
    for case in cases(options) {
        eprintln!("{}", case.name());
        match measure(options, case, &machine).with_context(|| case.name()) {
            Ok(found) => measured.push(found),
            // What was measured before is kept.
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    record["entries"] = json!(ENTRIES);
    record["warmup"] = json!(options.warmup);
    record["failed"] = json!(failed.as_ref().map(|error| format!("{error:#}")));
    let written = report::write(&common.out, record, bytes, &measured, machine.hertz);
    failed.map_or(written, Err)
}

/// Measures all contestants on one workload.
fn measure(options: &Options, case: Case, machine: &Machine) -> Result<Measured> {
    let common = &options.common;
    let (settle, window) = common.times();
    let stream = FlowStream::zipf(case.flows(), case.zipf, common.seed)?;
    let ids = Ids::of_masks(stream, case.sequence_log2, case.masks)?;
    let packets = options.warmup * u64::from(case.flows());
    let patience = Duration::from_secs(30 + packets / 500_000);
    let start = |build: &Build| -> Result<Switch> {
        let switch = Switch::start(build, &common.flowgen, &ids)?;
        switch.configure("smc")?;
        if case.part == Part::Dear {
            let arguments = ["autovalidator", "255"];
            switch.vswitch.appctl("dpif-netdev/subtable-lookup-prio-set", &arguments)?;
        }
        machine.feed(&build.name, &switch, packets, patience)?;
        Ok(switch)
    };
    let builds = builds(options, case.entries)?;
    let switches = builds.iter().map(start).collect::<Result<Vec<_>>>()?;
    let mut contestants: Vec<(String, Vec<Window>)> =
        builds.iter().map(|build| (build.name.clone(), Vec::new())).collect();
    for _ in 0..common.rounds {
        for (switch, (name, windows)) in switches.iter().zip(&mut contestants) {
            machine.check()?;
            switch.resume()?;
            let found = switch.window("smc", settle, window)?;
            switch.pause()?;
            if found.table.is_some() != (name != STOCK && name != BUILT_IN) {
                bail!("{name}: not the cache that was asked for: {}", switch.last_words());
            }
            windows.push(found);
        }
    }
    Ok(Measured { case, contestants })
}
