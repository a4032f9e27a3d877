//! `explosion`: packets made to have a mask each, and what Open vSwitch and Overbank's datapath
//! leave to the packets of others, in the same run.
//!
//! ```text
//!  core 1   │ Overbank, no attack │ 0.1 % │ 1 % │ 10 % │ Open vSwitch, no attack │ 0.1 % │ …
//!             each is a separate switch, warm: every mask of the attack is there   · next round ·
//! ```
//!
//! Rules and packets are those of [`overbank_kit::explosion`], as in the lab's experiment. The
//! figure is the packets of others a second. The time includes the processing of attack packets,
//! and not the making of packets. The share is that of the same switch without an attack, in the
//! same round.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::ArgPredicate;
use overbank_kit::explosion::{CHOICES, FIELDS_MAX, PERCENTS, between};
use overbank_kit::recommended::RECOMMENDED;
use overbank_kit::spread::Spread;
use serde::Serialize;
use serde_json::{Value, json};

use super::overbank::{Datapaths, Runner};
use super::switch::MEMORY_MIB;
use super::traffic::Ids;
use super::{Common, Machine, Window};
use crate::output::{Block, Report, target};

/// Entries of Overbank's tier 1: as many as Open vSwitch's EMC has, and its SMC.
const ENTRIES: [usize; 2] = [1 << 13, 1 << 20];
/// Caches of Open vSwitch: as it comes, and with the SMC.
pub const CONFIGURATIONS: [&str; 2] = ["emc", "both"];
/// Length of the sequence of packets, as a power of two.
const SEQUENCE_LOG2: u32 = 20;
/// At this percentage of attack packets, others are to keep this share.
const AT_PERCENT: f64 = 1.0;
const KEPT_MIN: f64 = 0.8;

/// Arguments of `explosion`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Fields that the rules match, 2 to 4
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2,3,4",
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "2"),
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=FIELDS_MAX as u64))]
    fields: Vec<usize>,
    /// Flows of the others
    #[arg(long, value_name = "N", default_value_t = 1 << 16,
          default_value_if("smoke", ArgPredicate::Equals("true".into()), "1024"),
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 24))]
    flows: usize,
}

/// A switch with one cache, under each share of attack packets.
#[derive(Serialize)]
struct Row {
    fields: usize,
    switch: String,
    cache: String,
    shares: Vec<Share>,
}

/// A switch under one share of attack packets.
#[derive(Default, Serialize)]
struct Share {
    percent: f64,
    /// Million packets of others a second, by round.
    mpps: Vec<f64>,
    windows: Vec<Window>,
}

impl Row {
    fn new(fields: usize, switch: &str, cache: &str) -> Row {
        let share = |percent| Share { percent, ..Share::default() };
        let shares = PERCENTS.map(share).into();
        Row { fields, switch: switch.to_owned(), cache: cache.to_owned(), shares }
    }

    fn is_overbank(&self) -> bool {
        self.switch == "overbank"
    }

    fn name(&self) -> String {
        format!("{} fields, {} {}", self.fields, self.switch, self.cache)
    }

    /// What is left of the packets a second without an attack, by round.
    fn left(&self, share: &Share) -> Spread {
        Spread::of_ratios(share.mpps.iter().copied(), self.shares[0].mpps.iter().copied())
    }
}

impl Share {
    fn push(&mut self, window: Window, attack_share: f64, hertz: f64) {
        let cycles = window.cycles - window.generator_cycles;
        self.mpps.push(hertz / cycles * (1.0 - attack_share) / 1e6);
        self.windows.push(window);
    }
}

/// Measures all sets of rules and writes the results.
pub fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let machine = Machine::prepare(PERCENTS.len(), MEMORY_MIB)?;
    let mut record = common.record(machine.hertz);
    let mut rows = Vec::new();
    for &fields in &options.fields {
        rows.extend(measure(options, fields, &machine).context(format!("{fields} fields"))?);
    }
    record["flows"] = json!(options.flows);
    record["masks of the attack"] = json!(CHOICES);
    record["design"] = json!(RECOMMENDED);
    write(&common.out, record, &rows)
}

/// All switches with the rules of `fields` fields.
fn measure(options: &Options, fields: usize, machine: &Machine) -> Result<Vec<Row>> {
    let common = &options.common;
    let (settle, window) = common.times();
    let ids = PERCENTS.map(|percent| {
        Ids::explosion(fields, percent, options.flows, SEQUENCE_LOG2, common.seed).map(Arc::new)
    });
    let ids = ids.into_iter().collect::<Result<Vec<_>>>()?;
    let shares: Vec<f64> = ids.iter().map(|ids| ids.attack_share()).collect();
    // Every choice of the attack has come, and every flow a few times.
    let warmup = PERCENTS.map(|percent| {
        (between(percent).map_or(0, |between| CHOICES * (between + 1)) + 4 * options.flows) as u64
    });

    let mut rows = Vec::new();
    for entries in ENTRIES {
        eprintln!("{fields} fields, overbank, {entries} entries");
        let mut row = Row::new(fields, "overbank", &format!("{entries} entries"));
        let runners = ids.iter().map(|ids| Runner::new(RECOMMENDED, entries, ids));
        let mut datapaths = Datapaths::start(runners.collect::<Result<_>>()?)?;
        for (nth, packets) in warmup.into_iter().enumerate() {
            machine.check()?;
            datapaths.warm(nth, packets)?;
        }
        for _ in 0..common.rounds {
            for (nth, share) in row.shares.iter_mut().enumerate() {
                machine.check()?;
                share.push(datapaths.window(nth, settle, window)?, shares[nth], machine.hertz);
            }
        }
        rows.push(row);
    }
    for build in &common.vswitchd {
        eprintln!("{fields} fields, Open vSwitch, {}", build.name);
        let mut of = CONFIGURATIONS.map(|cache| Row::new(fields, &build.name, cache));
        let warm =
            |(ids, packets): (&Arc<Ids>, u64)| machine.warm(build, &common.flowgen, ids, packets);
        let switches = ids.iter().zip(warmup).map(warm).collect::<Result<Vec<_>>>()?;
        for _ in 0..common.rounds {
            for (nth, switch) in switches.iter().enumerate() {
                switch.resume()?;
                for (row, configuration) in of.iter_mut().zip(CONFIGURATIONS) {
                    machine.check()?;
                    let window = switch.window(configuration, settle, window)?;
                    row.shares[nth].push(window, shares[nth], machine.hertz);
                }
                switch.pause()?;
            }
        }
        rows.extend(of);
    }
    Ok(rows)
}

/// Writes `explosion.json`, `explosion.txt`, `explosion.md` and the record.
fn write(folder: &Path, mut record: Value, rows: &[Row]) -> Result<()> {
    let intro = format!(
        "Tuple space explosion: {CHOICES} masks that an attack asks for, kept warm, beside {} flows of \
         others. Overbank's datapath and Open vSwitch 3.1 with DPDK take turns on one core, median \
         [range] of {} windows of {} s; the time that making the packets takes is left out. Attack \
         packets differ in bits that no rule needs, so caches of whole flows rarely know them.",
        record["flows"], record["rounds"], record["window_seconds"],
    );
    record["rows"] = json!(rows);
    let claims = rows.iter().filter(|row| row.is_overbank()).filter_map(|row| {
        let share = row.shares.iter().find(|share| share.percent == AT_PERCENT)?;
        let what = format!("{}: others keep their packets a second at {AT_PERCENT} %", row.name());
        Some(target(what, KEPT_MIN, row.left(share)))
    });
    Report {
        name: "explosion",
        title: "Packets made to have a mask each, Open vSwitch beside Overbank's datapath",
        record: &record,
        intro,
        claims: claims.collect(),
        blocks: vec![left(rows), searched(rows)],
        core: 1,
    }
    .write(folder)
}

/// Packets of others: before, and what an attack leaves.
fn left(rows: &[Row]) -> Block {
    let cells = |row: &Row| {
        let before = Spread::of(row.shares[0].mpps.iter().copied());
        let left = row.shares[1..].iter().map(|share| row.left(share).map(|x| 100.0 * x).cell(1));
        [row.name(), before.cell(2)].into_iter().chain(left).collect()
    };
    Block {
        title: "Packets of others: million a second without an attack, % of them left under it"
            .into(),
        header: header("Mpps without", &PERCENTS[1..]),
        rows: rows.iter().map(cells).collect(),
    }
}

/// Why.
fn searched(rows: &[Row]) -> Block {
    let cells = |row: &Row| {
        let searched = row.shares.iter().map(|share| {
            let of = |value: fn(&Window) -> f64| Spread::of(share.windows.iter().map(value)).median;
            let upcalls = of(|w| 1e6 * w.upcalls as f64 / w.packets.max(1) as f64);
            format!("{:.1}, {upcalls:.0}", of(|w| w.subtables))
        });
        std::iter::once(row.name()).chain(searched).collect()
    };
    Block {
        title:
            "Masks searched a lookup in the megaflow cache (Open vSwitch: a hit), and packets of a \
                million that went to the classifier"
                .into(),
        header: header("", &PERCENTS),
        rows: rows.iter().map(cells).collect(),
    }
}

fn header(second: &str, percents: &[f64]) -> Vec<String> {
    let names = ["rules, switch", second].map(str::to_owned).into_iter();
    let percents = percents.iter().map(|percent| format!("{percent} % attack"));
    names.filter(|name| !name.is_empty()).chain(percents).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_others_are_compared_round_by_round() {
        let mut row = Row::new(2, "overbank", "x");
        for (share, cycles) in [(0, [110.0, 210.0]), (2, [120.0, 410.0])] {
            for cycles in cycles {
                let window = Window { cycles, generator_cycles: 10.0, ..Window::default() };
                row.shares[share].push(window, share as f64 / 200.0, 1e9);
            }
        }
        assert_eq!(row.shares[0].mpps, [10.0, 5.0]);
        let left = row.left(&row.shares[2]);
        assert!((left.high - 0.9).abs() < 1e-9 && (left.low - 0.495).abs() < 1e-9, "{left:?}");
        let blocks = [left_of(&row), searched(std::slice::from_ref(&row))];
        for block in blocks {
            assert!(block.rows.iter().all(|cells| cells.len() == block.header.len()));
        }
    }

    fn left_of(row: &Row) -> Block {
        left(std::slice::from_ref(row))
    }
}
