//! A database in memory under YCSB's mixes, by the size of values.

use super::SDC15;
use super::point::{Common, Compared, Outcome, Point, Points, spread};
use crate::prelude::*;

/// Databases: the first has the nodes of the paper's, which is unavailable.
const INDEXES: [(&str, &str); 3] =
    [("masstree", "Masstree's nodes"), ("lmdb", "LMDB"), ("redb", "redb")];
/// SDC with keys and values in place of addresses.
const INSIDE: &str = "sdc-values";
const MIXES: [&str; 4] = ["A", "B", "C", "D"];
const VALUES: [u32; 3] = [8, 64, 512];
const SMOKE: [u32; 2] = [8, 512];

struct All {
    items: u32,
    values: &'static [u32],
    points: Points,
}

fn point(index: &'static str, system: &'static str, items: u32, mix: &str, value: u32) -> Point {
    Point::new(index, system, items).with(format!("--ycsb {mix} --value {value}"))
}

impl All {
    fn gain(&self, index: &'static str, mix: &str, value: u32) -> Option<f64> {
        let of = |system| point(index, system, self.items, mix, value);
        self.points.gain(&of("sdc"), &of("regular"), |modes| modes.as_evaluated)
    }

    /// Shows the gain of a system in workload C, and its hits.
    fn cell(&self, index: &'static str, system: &'static str) -> String {
        let of = |system| point(index, system, self.items, "C", self.values[0]);
        let gain = self.points.gain(&of(system), &of("regular"), |modes| modes.as_evaluated);
        let hits = self.points.get(&of(system)).map(of_reads);
        gain.zip(hits).map_or("–".to_owned(), |(gain, hits)| {
            format!("{gain:.2}, {} hits", percent(hits, 1))
        })
    }

    fn least(&self, value: u32, least: f64) -> Option<Finding> {
        let gain = self.gain("masstree", "C", value)?;
        Finding::new(gain >= least, format!("{gain:.2}"))
    }
}

/// Why SDC gains less than in the paper.
const ALL_ASKED: &str = "all items are asked for, so SDC answers about half of the lookups (the \
     table has its hits), and the others walk the index as before";

const CLAIMS: &[Claim<All>] = &[
    Claim::timed("workload C, values of 8 bytes", "up to 3.3; ≥ 2.5 here", |all: &All| {
        all.least(8, 2.5)
    })
    .because(ALL_ASKED),
    Claim::timed("workload C, values of 512 bytes", "1.9; ≥ 1.5 here", |all: &All| {
        all.least(512, 1.5)
    })
    .because(ALL_ASKED),
    Claim::new("C ≥ B ≥ A for all values", "less with more writes", |all: &All| {
        let gains = all.values.iter().map(|value| {
            let gain = |mix| all.gain("masstree", mix, *value);
            Some([gain("C")?, gain("B")?, gain("A")?])
        });
        let gains: Vec<_> = gains.collect::<Option<_>>()?;
        let holds = gains.iter().all(|[c, b, a]| c >= b && b >= a);
        Finding::new(holds, listed(&gains, |[c, b, a]| format!("{c:.2}, {b:.2}, {a:.2}")))
    }),
    Claim::new(
        "the gain falls with the size of values",
        "from each size to the next",
        |all: &All| {
            let gain = |value: &u32| all.gain("masstree", "C", *value);
            let gains: Vec<f64> = all.values.iter().map(gain).collect::<Option<_>>()?;
            let falls = gains.windows(2).all(|pair| pair[1] <= pair[0]);
            Finding::new(falls, listed(&gains, |gain| format!("{gain:.2}")))
        },
    ),
];

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let common = Common {
        items: if smoke { 30_000 } else { 1_000_000 },
        lookups: if smoke { 6000 } else { 96_000 },
        ..Common::of(context)
    };
    let items = common.items;
    let values: &[u32] = if smoke { &SMOKE } else { &VALUES };
    let cells = pairs(&pairs(&INDEXES.map(|(index, _)| index), &MIXES), values);
    let all = cells.into_iter().flat_map(|((index, mix), value)| {
        ["regular", "sdc"].map(|system| point(index, system, items, mix, value))
    });
    // The smallest values fit into SDC beside their keys.
    let inside = INDEXES.map(|(index, _)| point(index, INSIDE, items, "C", values[0]));
    let all = all.chain(inside).collect();
    let points = context.part((0.0, 0.9), |context| Points::run(context, common, all))?;
    let ends = [values[0], values[values.len() - 1]];
    let compared = ends.map(|value| {
        let [of, than] =
            ["sdc", "regular"].map(|system| point("masstree", system, items, "C", value));
        Compared { name: format!("Masstree's nodes, C, {value} bytes"), of, than }
    });
    let seeds = context.part((0.9, 1.0), |context| spread(context, common, &compared))?;
    let all = All { items, values, points };
    let mut record = SDC15.record(context);
    record.setting("items", items);
    record.setting("requests", format!("{}, after a third as many", common.lookups));
    record.setting("last-level cache", format!("{} KB", common.llc >> 10));
    all.points.tell(&mut record);
    all.points.tell_modes(&mut record);
    record.judge("", CLAIMS, &all);
    record.note(
        "The paper's database is Silo, which is unavailable here. These have its keys, its mixes, \
         its sizes and its one thread: a tree of Masstree's nodes, one layer of 15 keys a node with \
         version checks, and two databases as they are. Gains are as evaluated.",
    );
    for (index, name) in INDEXES {
        let curve = |mix: &&str| {
            let at = |value: &u32| Some((f64::from(*value), all.gain(index, mix, *value)?));
            Series::measured(format!("workload {mix}"), values.iter().filter_map(at).collect())
        };
        let plot = Plot::new(name, "bytes of a value", "times as fast as the regular machine");
        record.plots.push(plot.log_x().with(MIXES.iter().map(curve)));
    }
    let headings = values.iter().flat_map(|value| [format!("{value} bytes"), "hits, %".to_owned()]);
    let mut table = Table::new(
        "Times as fast as the regular machine, as evaluated, and hits of SDC",
        ["database, workload".to_owned()].into_iter().chain(headings),
    );
    for ((index, name), mix) in pairs(&INDEXES, &MIXES) {
        let cells = values.iter().flat_map(|value| {
            let gain = all.gain(index, mix, *value).map(|gain| format!("{gain:.2}"));
            let of = all.points.get(&point(index, "sdc", items, mix, *value));
            let hits = of.map(|of| format!("{:.1}", 100.0 * of_reads(of)));
            [gain, hits].map(|cell| cell.unwrap_or("–".to_owned()))
        });
        table.row([format!("{name}, {mix}")].into_iter().chain(cells));
    }
    record.tables.push(table);
    record.tables.push(Table::of(
        format!("The same of workload C, values of {} bytes, by what SDC holds", values[0]),
        INDEXES,
        &[
            ("database", &|(_, name)| (*name).to_owned()),
            ("address", &|(index, _)| all.cell(index, "sdc")),
            ("key and value", &|(index, _)| all.cell(index, INSIDE)),
        ],
    ));
    seeds.tell(&mut record);
    Ok(record)
}

/// Returns SDC's right hits as a share of the reads, which are its lookups.
fn of_reads(of: &Outcome) -> f64 {
    of.hits as f64 / of.counters.sdc.lookups.max(1) as f64
}
