//! Look-aside tables in front of indexes and databases: what they gain, under writes and with two
//! threads. The paper's machine does not exist; this is what of its effect software gets, beside
//! goals of this project.
//!
//! The measurement is that of `overbank aside` (`products::aside`): an index alone and with a table
//! take turns, with fresh operations each, on the thread's CPU clock.

#[cfg(feature = "aside")]
mod reads;
#[cfg(feature = "aside")]
mod threads;
mod tree;
#[cfg(feature = "aside")]
mod writes;

use crate::prelude::*;

const SOURCE: &str = "after SDC (ICS 2019); goals of this project";

pub const LOOKASIDE: Experiment = Experiment {
    name: "lookaside",
    title: "Look-aside tables in front of indexes: lookups",
    source: SOURCE,
    #[cfg(feature = "aside")]
    run: reads::run,
    #[cfg(not(feature = "aside"))]
    run: absent,
};

pub const LOOKASIDE_WRITES: Experiment = Experiment {
    name: "lookaside-writes",
    title: "Look-aside tables in front of indexes: updates and insertions",
    source: SOURCE,
    #[cfg(feature = "aside")]
    run: writes::run,
    #[cfg(not(feature = "aside"))]
    run: absent,
};

pub const LOOKASIDE_THREADS: Experiment = Experiment {
    name: "lookaside-threads",
    title: "One look-aside table and two threads",
    source: SOURCE,
    #[cfg(feature = "aside")]
    run: threads::run,
    #[cfg(not(feature = "aside"))]
    run: absent,
};

pub const LOOKASIDE_TREE: Experiment = Experiment {
    name: "lookaside-tree",
    title: "The ordered tree with hints beside BTreeMap",
    source: SOURCE,
    run: tree::run,
};

#[cfg(not(feature = "aside"))]
fn absent(_: &mut Context<'_>) -> Result<Record, LabError> {
    Err(LabError::failed("this binary has no indexes: build it with `--features aside`"))
}

#[cfg(feature = "aside")]
mod shared {
    use super::*;
    use overbank_products::aside::bench::{Bench, Subject};
    use overbank_products::aside::mix::{Mix, Stream};
    use overbank_products::aside::record::{IndexRecord, TableRecord};
    use overbank_products::aside::{AsideError, Entries, Plan, SETTLE, WARM, measure};

    /// What is measured of an index: mix, skew, sizes of tables, and whether they may step aside.
    #[derive(Clone, Copy)]
    pub struct Case {
        pub subject: Subject,
        pub mix: Mix,
        pub theta: f64,
        pub shares: &'static [f64],
        pub gate: bool,
    }

    /// A case, measured.
    pub struct Measured {
        pub case: Case,
        pub index: IndexRecord,
    }

    impl Measured {
        /// Returns the table that holds this share of the keys.
        pub fn table(&self, share: f64) -> Option<&TableRecord> {
            let at = self.case.shares.iter().position(|of| *of == share)?;
            self.index.tables.get(at)
        }
    }

    /// Keys of an index: few for SkipMap, whose nodes are large.
    pub fn keys(subject: Subject, smoke: bool) -> u32 {
        match subject {
            _ if smoke => 4000,
            Subject::SkipMap => 2_000_000,
            _ => 10_000_000,
        }
    }

    /// Measures one case of a built index.
    pub fn measured(
        context: &mut Context<'_>,
        index: &mut dyn Bench,
        case: Case,
    ) -> Result<Measured, LabError> {
        let smoke = context.smoke();
        let Case { subject, mix, theta, shares, gate } = case;
        index.set_latest(subject.is_latest());
        let plan = Plan {
            subjects: vec![subject],
            entries: shares.iter().map(|share| Entries::Share(*share)).collect(),
            rounds: if smoke { 2 } else { 7 },
            operations: if smoke { 4000 } else { 500_000 },
            warm: if smoke { 20_000 } else { WARM },
            settle: if smoke { 0 } else { SETTLE },
            gate,
            seed: context.seed,
            pinned_core: None,
        };
        let stream = Stream::drawn(mix, keys(subject, smoke), theta, context.seed);
        let stream = stream.map_err(LabError::failed)?;
        let name = format!("{subject}, {mix:?}, θ = {theta}");
        let (stop, show) = (context.stop, &mut *context.progress);
        let mut progress = |what: &str, done: f64| show(&format!("{name}: {what}"), done);
        let found = measure(&plan, subject, index, stream, stop, &mut progress);
        match found.map_err(LabError::failed)? {
            (Some(index), true) => Ok(Measured { case, index }),
            _ => Err(LabError::Stopped),
        }
    }

    /// Builds an index with its keys.
    pub fn built(context: &Context<'_>, subject: Subject) -> Result<Box<dyn Bench>, LabError> {
        let stream = Stream::drawn(Mix::C, keys(subject, context.smoke()), 0.0, 1);
        let keys = stream.map_err(LabError::failed)?.keys();
        subject.build(&keys, context.stop).map_err(|error| match error {
            AsideError::Stopped => LabError::Stopped,
            error => LabError::failed(error),
        })
    }

    /// Returns all figures as a table.
    pub fn table(title: &str, all: &[Measured]) -> Table {
        let rows = all.iter().flat_map(|of| of.index.tables.iter().map(move |table| (of, table)));
        let gain = |gain: Option<Spread>| gain.map_or("–".to_owned(), |gain| gain.cell(2));
        let percent = |share: f64| format!("{:.1}", 100.0 * share);
        Table::of(
            title,
            rows,
            &[
                ("index", &|(of, _)| of.case.subject.to_string()),
                ("mix", &|(of, _)| format!("{:?}", of.case.mix)),
                ("θ", &|(of, _)| of.case.theta.to_string()),
                ("entries", &|(_, table)| table.entries.to_string()),
                ("MB", &|(_, table)| format!("{:.1}", table.bytes as f64 / 1e6)),
                ("gate", &|(of, table)| {
                    if of.case.gate { table.gate_state() } else { "none".to_owned() }
                }),
                ("alone, ns", &|(_, table)| table.alone_ns.cell(0)),
                ("×", &|(_, table)| gain(Some(table.gain))),
                ("× in bursts", &|(_, table)| gain(table.burst_gain)),
                ("hits %", &|(_, table)| table.hit_rate.map_or("–".to_owned(), percent)),
                ("optimum %", &|(_, table)| table.optimum.map_or("–".to_owned(), percent)),
            ],
        )
    }
}
