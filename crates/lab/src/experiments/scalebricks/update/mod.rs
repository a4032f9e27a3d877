//! Updates a second by the number of nodes that own the RIB.
//!
//! ```text
//!   RIB    32 parts by a hash of the key; N owners have 32 / N parts each
//!   move   owner: the change of the GPT ─▶ all nodes apply the delta
//!                                       ─▶ one node takes the FIB entry, another drops it
//!   full duplication: every node sets the value in its whole FIB
//! ```
//!
//! Owners work alone on this core, in turn; their rates are added. A cluster whose nodes do all of
//! it on one core has 1 / (owner/N + apply + entries/N), which is judged as well.

mod claims;
mod measure;
mod rib;
mod sessions;

use crate::prelude::*;
use claims::CLAIMS;
use measure::{Fib, Measured, fib, measure, replace};
use rib::{Dense, Paper, VALUE_BITS};
use sessions::sessions;

pub const SB_UPDATE: Experiment = Experiment {
    name: "sb-update",
    title: "Updates of the partition table, by owners of the RIB",
    source: "ScaleBricks, section 4.4.3",
    run,
};

const OWNERS: [usize; 6] = [1, 2, 4, 8, 16, 32];

struct Plan {
    keys: u64,
    /// Changes of an owner: before its clock runs, and under it.
    lead: usize,
    timed: usize,
    rounds: usize,
}

struct All {
    dense: Measured,
    paper: Measured,
    fib: Fib,
    keys: u64,
}

impl All {
    /// Updates a second of a cluster whose nodes own, apply and keep entries on one core each.
    fn whole(&self, of: &Measured, nodes: usize) -> f64 {
        let owner = 1e9 / of.rates.spread(0).median;
        let entries = median(self.fib.entries.iter().copied());
        1e9 / ((owner + entries) / nodes as f64 + of.apply().median)
    }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let plan = if smoke {
        Plan { keys: 100_000, lead: 8, timed: 32, rounds: 2 }
    } else {
        Plan { keys: 16_000_000, lead: 256, timed: 2048, rounds: 9 }
    };
    context.step("sessions", 0.0)?;
    let mut sessions = sessions(plan.keys);
    let dense = context.part((0.0, 0.4), |c| measure::<Dense>(c, &plan, &mut sessions, replace))?;
    let paper = |c: &mut Context<'_>| measure::<Paper>(c, &plan, &mut sessions, |_, _, _| Ok(None));
    let paper = context.part((0.4, 0.8), paper)?;
    let fib = context.part((0.8, 1.0), |context| fib(context, &plan))?;
    let all = All { dense, paper, fib, keys: plan.keys };
    let mut record = SB_UPDATE.record(context);
    record.setting("keys", plan.keys);
    record.setting("moves of an owner in a round", plan.timed);
    record.setting("bits of a value", VALUE_BITS);
    record.settings([isa()]);
    record.judge("", CLAIMS, &all);
    let millions = |spread: Spread| spread.map(|rate| rate / 1e6);
    let curve = |name: &str, rates: &Rounds| {
        let point = |(at, &n): (usize, &usize)| (n as f64, millions(rates.spread(at)));
        Series::rounds(name, OWNERS.iter().enumerate().map(point))
    };
    let whole = |of: &Measured| {
        let points = OWNERS.iter().map(|&n| (n as f64, all.whole(of, n) / 1e6)).collect();
        Series::model(format!("{}, with all of a node's work", of.name), points)
    };
    let plot = Plot::new("updates by nodes", "nodes that own the RIB", "M updates/s");
    record.plots.push(plot.log_x().log_y().with([
        curve(all.dense.name, &all.dense.rates),
        whole(&all.dense),
        curve(all.paper.name, &all.paper.rates),
        whole(&all.paper),
        curve("full duplication", &all.fib.rates),
    ]));
    let cell = |rates: &Rounds, at: usize| millions(rates.spread(at)).cell(2);
    record.tables.push(Table::of(
        "M updates a second",
        0..OWNERS.len(),
        &[
            ("nodes", &|&at| OWNERS[at].to_string()),
            ("partition table, owners", &|&at| cell(&all.dense.rates, at)),
            ("with all of a node's work", &|&at| {
                format!("{:.2}", all.whole(&all.dense, OWNERS[at]) / 1e6)
            }),
            ("SetSep, owners", &|&at| cell(&all.paper.rates, at)),
            ("full duplication", &|&at| cell(&all.fib.rates, at)),
        ],
    ));
    record.tables.push(Table::of(
        "A move",
        [&all.dense, &all.paper],
        &[
            ("table", &|of| of.name.to_owned()),
            ("owner p50, µs", &|of| format!("{:.2}", of.quantile(0.5) / 1e3)),
            ("owner p99, µs", &|of| format!("{:.2}", of.quantile(0.99) / 1e3)),
            ("apply, ns", &|of| of.apply().cell(1)),
            ("delta, bytes", &|of| format!("{:.1}", of.delta_bits[1] as f64 / 8.0)),
            ("a new key for another, µs", &|of| {
                of.replaces.map_or(String::new(), |(ns, _)| format!("{:.2}", ns / 1e3))
            }),
            ("its delta, bytes", &|of| {
                of.replaces.map_or(String::new(), |(_, bits)| format!("{:.0}", bits / 8.0))
            }),
        ],
    ));
    let entries = Spread::of(all.fib.entries.iter().copied());
    record.note(format!(
        "A forwarding entry dropped and another taken in: {} ns, in a table of all keys, which no handling \
         node has. Full duplication sets a value in a large table on every node: that is cheap in memory, \
         so its flat rate is above a few owners' sum. What it does not do is grow. Deltas pass in memory: \
         no network, no log.",
        entries.cell(0)
    ));
    Ok(record)
}
