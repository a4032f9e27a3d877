//! The simulated machine against what is known (its SDC: `crates/sdc/tests/sdc_twin.rs`):
//!
//! ```text
//! lists      LRU as naive lists: the same misses after each access
//! forms      uniform, Zipf (Che), a scan: the same shares as the formula
//! callgrind  an array: the same misses; lookups of real indexes: about the same
//! ```

mod callgrind;
mod lists;

use super::SDCVALID;
use super::point::{Common, Outcome, Point};
use crate::prelude::*;
use callgrind::{Callgrind, Counts, SERVE, WALK};
use lists::{Form, SCANNED, Twin};
use overbank_products::sdc::program::Program;
use overbank_sdc::{Counters, INSTRUCTIONS_A_CYCLE, Shape};
use serde::Deserialize;
use std::process::Command;
use std::sync::atomic::Ordering;

/// Indexes that a run at smoke size has: a tree in C, and one in Rust.
const SMOKE: [&str; 2] = ["lmdb", "btreemap"];
const INDEXES: [&str; 9] =
    ["lmdb", "btreemap", "hash", "bplus", "masstree", "skipmap", "redb", "congee", "tree"];
/// Orders of walks, with the bytes of the array in last-level caches of 3 MB.
const WALKS: [(&str, &str); 4] =
    [("sequential", "4MB"), ("strided", "2MB"), ("random", "2MB"), ("random", "8MB")];
/// The machine has what callgrind has.
const NO_TLB: &str = "--set tlb.walk_levels=0";

/// A walk in the machine and in callgrind.
struct Walk {
    name: String,
    model: Counters,
    callgrind: Counts,
}

/// Lookups in the machine and in callgrind.
struct Lookups {
    index: &'static str,
    model: Outcome,
    base_cycles: f64,
    callgrind: Counts,
}

impl Lookups {
    fn a_lookup(&self, n: u64) -> f64 {
        n as f64 / self.model.lookups as f64
    }

    /// Returns misses a lookup of L1 and of the last level: the machine's and callgrind's.
    fn misses(&self) -> [[f64; 2]; 2] {
        let (counters, other) = (&self.model.counters, self.callgrind);
        [[counters.l1.misses, other.l1], [counters.llc.misses, other.llc]]
            .map(|level| level.map(|n| self.a_lookup(n)))
    }

    /// Returns the machine's accesses, without the client's one a lookup.
    fn accesses(&self) -> u64 {
        self.model.counters.accesses.saturating_sub(self.model.lookups)
    }

    fn instructions_an_access(&self) -> f64 {
        self.callgrind.instructions as f64 / self.accesses() as f64
    }
}

/// All that was measured.
struct Valid {
    twins: Vec<Twin>,
    uniform: Form,
    che: Form,
    scan: Counters,
    walks: Vec<Walk>,
    lookups: Vec<Lookups>,
}

const KNOWN: &[Claim<Valid>] = &[
    Claim::new("misses are those of stack distances, after each access", "equal", |of: &Valid| {
        let wrong: Vec<_> = of.twins.iter().filter(|twin| twin.differing > 0).collect();
        let name = |twin: &&Twin| format!("{}, {} x {}", twin.stream, twin.sets, twin.ways);
        let what = listed_or_none(&wrong, name);
        Finding::new(wrong.is_empty(), format!("of {} streams differ: {what}", of.twins.len()))
    }),
    Claim::new("uniform lines, fully associative: misses", "1 − C/N ± 3 σ", |of: &Valid| {
        form(&of.uniform)
    }),
    Claim::new("Zipf's law, fully associative: misses", "Che's ± 1 point", |of: &Valid| {
        form(&of.che)
    }),
    Claim::new("a scan", "one miss a line, one row miss a row", |of: &Valid| {
        let (lines, rows) = (SCANNED / 64, SCANNED / Shape::paper().dram.row_bytes);
        let misses = [of.scan.l1.misses, of.scan.llc.misses];
        let opened = of.scan.dram.closed + of.scan.dram.conflicts;
        Finding::new(
            misses == [lines; 2] && opened == rows,
            format!("{lines} lines: {misses:?} misses; {rows} rows: {opened} opened"),
        )
    }),
];

fn form(of: &Form) -> Option<Finding> {
    let Form { model, formula, most } = *of;
    let text = format!("{model:.5}; {formula:.5} ± {most:.5}");
    Finding::new((model - formula).abs() <= most, text)
}

const CALLGRIND: &[Claim<Valid>] = &[
    Claim::new("misses of an array in callgrind", "equal, but for one return", |of: &Valid| {
        let text = |walk: &Walk| {
            let (model, other) = (&walk.model, walk.callgrind);
            let all = [model.l1.misses, other.l1, model.llc.misses, other.llc];
            format!("{}: {all:?}", walk.name)
        };
        let same = of.walks.iter().all(|walk| {
            let (model, other) = (&walk.model, walk.callgrind);
            // When the loop ends, it reads its return address, which may miss.
            let pairs = [
                (other.references, model.accesses),
                (other.l1, model.l1.misses),
                (other.llc, model.llc.misses),
            ];
            pairs.iter().all(|(other, model)| (*model..=model + 1).contains(other))
        });
        Finding::new(same, listed(&of.walks, text)).filter(|_| !of.walks.is_empty())
    })
    .expected(),
    Claim::new("each index, misses of L1 a lookup", "callgrind's ± 5 %", |of: &Valid| near(of, 0))
        .expected(),
    Claim::new(
        "each index, misses of the last level a lookup",
        "callgrind's ± 5 %",
        |of: &Valid| near(of, 1),
    )
    .expected(),
    Claim::timed(
        "instructions an access that base cycles stand for",
        "callgrind's ± 10 %",
        |of: &Valid| {
            let stated = |of: &Lookups| INSTRUCTIONS_A_CYCLE * of.base_cycles + 1.0;
            let holds = of
                .lookups
                .iter()
                .all(|of| (stated(of) / of.instructions_an_access() - 1.0).abs() <= 0.1);
            let text = listed(&of.lookups, |of| {
                format!("{} {:.1}, {:.1}", of.index, stated(of), of.instructions_an_access())
            });
            Finding::new(holds, text).filter(|_| !of.lookups.is_empty())
        },
    )
    .expected(),
];

/// Whether misses of a level are within 5 % of callgrind's.
fn near(of: &Valid, level: usize) -> Option<Finding> {
    let apart = of.lookups.iter().map(|of| {
        let [model, other] = of.misses()[level];
        (model / other - 1.0, of.index)
    });
    let apart: Vec<_> = apart.collect();
    let holds = apart.iter().all(|(apart, _)| apart.abs() <= 0.05);
    let text = listed(&apart, |(apart, index)| format!("{index} {:+.1} %", 100.0 * apart));
    Finding::new(holds, text).filter(|_| !apart.is_empty())
}

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("lists", 0.0)?;
    let program = Program::find().map_err(LabError::failed)?;
    let (seed, smoke) = (context.seed, context.smoke());
    let accesses = if smoke { 20_000 } else { 1_000_000 };
    let twins = context.part((0.0, 0.2), |context| lists::twins(context, accesses))?;
    context.step("closed forms", 0.2)?;
    let (uniform, che) = (lists::uniform(seed, accesses)?, lists::che(seed, accesses)?);
    let scan = lists::scan()?;
    let mut of = Valid { twins, uniform, che, scan, walks: Vec::new(), lookups: Vec::new() };

    let mut record = SDCVALID.record(context);
    let common = if smoke {
        Common { items: 20_000, lookups: 5_000, llc: 192 << 10 }
    } else {
        Common { items: 100_000, lookups: 100_000, llc: 3 << 20 }
    };
    record.settings([
        ("accesses of a stream", accesses.to_string()),
        ("items, lookups in callgrind", format!("{}, {}", common.items, common.lookups)),
        ("last-level cache there", format!("{} KB", common.llc >> 10)),
    ]);
    match Callgrind::find(program.path()) {
        Ok(callgrind) => context.part((0.25, 1.0), |context| {
            beside(context, &mut of, &mut record, (&program, &callgrind), common)
        })?,
        Err(why) => record.note(format!("Not compared with callgrind: {why}.")),
    }
    record.judge("", KNOWN, &of);
    record.judge("", CALLGRIND, &of);
    record.tables.push(twins_table(&of));
    if !of.lookups.is_empty() {
        record.tables.push(lookups_table(&of));
        record.note(
            "Callgrind runs the same program built without hooks. Misses are those of all of it while \
             it serves, and the machine sees the client's list of requests as well (a line in 16 \
             lookups): its lines take places from the index. Instructions and references are \
             without the client's. What references exceed accesses is nearly all the stack: \
             registers saved, return addresses, arguments. Its lines are hot and hardly miss: \
             workloads/qemu/README.md has the figures of each index with and without them.",
        );
    }
    Ok(record)
}

/// Runs walks and lookups in both. One that fails is a claim that does not hold.
fn beside(
    context: &mut Context<'_>,
    of: &mut Valid,
    record: &mut Record,
    (program, callgrind): (&Program, &Callgrind),
    common: Common,
) -> Result<(), LabError> {
    #[derive(Deserialize)]
    struct Walked {
        counters: Counters,
    }
    let (stop, seed) = (context.stop, context.seed);
    let stopped = || stop.load(Ordering::Relaxed);
    let levels = |shape: &Shape| shape.l1.map(|l1| [l1, shape.llc]);
    let levels =
        levels(&Shape::paper()).ok_or_else(|| LabError::failed("internal error: no L1"))?;
    let lookup_levels = [levels[0], overbank_sdc::Level { bytes: common.llc, ..levels[1] }];

    let reads = if context.smoke() { 200_000 } else { 3_000_000 };
    for (order, bytes) in WALKS {
        context.step(&format!("walk, {order}"), 0.0)?;
        let walk = format!("walk --order {order} --bytes {bytes} --accesses {reads} {NO_TLB}");
        let arguments: Vec<_> = walk.split(' ').map(str::to_owned).collect();
        let run = || -> Result<Walk, String> {
            let mut command = Command::new(program.path());
            let text = callgrind::output(command.args(&arguments), &stopped)?;
            let model = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let Walked { counters: model } = model;
            let callgrind = callgrind.run(levels, WALK, &arguments, &stopped)?;
            Ok(Walk { name: format!("{order}, {bytes}"), model, callgrind })
        };
        match run() {
            Ok(walk) => of.walks.push(walk),
            Err(why) => record.claim(format!("{walk} runs"), "it does", why, false),
        }
    }
    let indexes: &[&'static str] = if context.smoke() { &SMOKE } else { &INDEXES };
    for (number, index) in indexes.iter().enumerate() {
        let done = 0.1 + 0.9 * number as f64 / indexes.len() as f64;
        context.step(&format!("{index} in callgrind"), done)?;
        let point = Point::new(index, "regular", common.items).fresh(true).with(NO_TLB);
        let point = point.with(format!("--warmup {}", common.lookups));
        let arguments = common.arguments(&point, seed);
        let run = || -> Result<Lookups, String> {
            let watching = [&arguments[..], &["--watch-requests".to_owned()]].concat();
            let model = program.run(&watching, &stopped).map_err(|error| error.to_string())?;
            let callgrind = callgrind.run(lookup_levels, SERVE, &arguments, &stopped)?;
            Ok(Lookups { index, base_cycles: model.shape.base_cycles, model, callgrind })
        };
        match run() {
            Ok(lookups) => of.lookups.push(lookups),
            Err(why) => record.claim(format!("{point} runs"), "it does", why, false),
        }
    }
    context.step("callgrind", 1.0)
}

fn twins_table(of: &Valid) -> Table {
    Table::of(
        "Misses of one cache",
        &of.twins,
        &[
            ("stream", &|twin| twin.stream.to_owned()),
            ("sets x ways", &|twin| format!("{} x {}", twin.sets, twin.ways)),
            ("machine", &|twin| twin.model.to_string()),
            ("list", &|twin| twin.list.to_string()),
        ],
    )
}

fn lookups_table(of: &Valid) -> Table {
    let figure = |value: f64| format!("{value:.2}");
    let misses =
        |of: &&Lookups, level: usize, which: usize| format!("{:.3}", of.misses()[level][which]);
    Table::of(
        "A lookup: the machine, and callgrind without hooks",
        &of.lookups,
        &[
            ("index", &|of| of.index.to_owned()),
            ("instructions", &|of| figure(of.a_lookup(of.callgrind.instructions))),
            ("references, callgrind", &|of| figure(of.a_lookup(of.callgrind.references))),
            ("accesses, machine", &|of| figure(of.a_lookup(of.accesses()))),
            ("instructions an access", &|of| figure(of.instructions_an_access())),
            ("L1 misses, callgrind", &|of| misses(of, 0, 1)),
            ("L1 misses, machine", &|of| misses(of, 0, 0)),
            ("last-level misses, callgrind", &|of| misses(of, 1, 1)),
            ("last-level misses, machine", &|of| misses(of, 1, 0)),
        ],
    )
}
