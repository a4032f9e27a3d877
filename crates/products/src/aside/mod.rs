//! `overbank aside`: does a look-aside table pay in front of these indexes, with these keys?
//!
//! ```text
//!  keys, mix ─▶ index built ─▶ rounds: alone │ table of each size │ the same in bursts
//!                                  │   each turn: an empty table, warmed, then timed
//!                                  ▼
//!              ns with and without, hits beside the static optimum, the gate's verdict ─▶ advice
//! ```
//!
//! Contestants of an index take turns, with fresh operations each (a file begins again). A ratio
//! compares two figures of the same round. Indexes are measured one after another: the question is
//! what a table does for an index, not which index is the fastest.

pub mod bench;
pub mod keys;
pub mod mix;
pub mod page;
pub mod record;
pub mod rule;

use bench::{Bench, Front, Part, Subject, Table, Turn};
use mix::{Mix, Stream};
use overbank_aside::lookaside::Config;
use overbank_kit::machine::Machine;
use overbank_kit::rounds::turns;
use overbank_kit::spread::Spread;
use record::{Comparison, IndexRecord, Input, Settings, TableRecord};
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Timed operations of a turn.
pub const OPERATIONS: usize = 200_000;
/// Operations that warm a table up: this many, or as many for each entry, whichever is more. The
/// gate takes 33,000 lookups to know what they cost.
pub const WARM: usize = 150_000;
const WARM_PER_ENTRY: usize = 6;

#[derive(Debug, thiserror::Error)]
pub enum AsideError {
    #[error("no index to measure: name at least one with --index")]
    NoIndex,
    #[error("no size to measure: name at least one with --entries")]
    NoEntries,
    #[error("{0} has no order to scan: leave it out with mix E")]
    Unordered(Subject),
    #[error("{wrong} answers were wrong and {absent} keys absent; please report it")]
    Wrong { wrong: u64, absent: u64 },
    #[error("the database was lost by an error before")]
    Gone,
    #[error("a directory for databases: {0}")]
    Directory(io::Error),
    #[error(transparent)]
    Table(#[from] overbank_aside::lookaside::Error),
    #[error("redb: {0}")]
    Redb(#[from] overbank_aside::redb::Error),
    #[error("redb: {0}")]
    RedbItself(#[from] ::redb::Error),
    #[error("LMDB: {0}")]
    Lmdb(#[from] overbank_aside::heed::Error),
    #[error("LMDB: {0}")]
    LmdbItself(#[from] ::heed::Error),
    #[error(transparent)]
    Workload(#[from] overbank_kit::workload::WorkloadError),
    #[error("stopped before there was an answer")]
    Stopped,
}

/// The size of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Entries {
    Number(usize),
    /// Of the keys, 0 to 1.
    Share(f64),
}

impl Entries {
    /// Returns the entries for this many keys, at least one.
    pub fn of(self, keys: usize) -> usize {
        match self {
            Entries::Number(number) => number,
            Entries::Share(share) => ((share * keys as f64) as usize).max(1),
        }
    }
}

impl FromStr for Entries {
    type Err = String;

    fn from_str(text: &str) -> Result<Entries, String> {
        let entries = match text.strip_suffix('%') {
            Some(percent) => {
                let share = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
                share.filter(|share| *share > 0.0).map(|percent| Entries::Share(percent / 100.0))
            }
            None => text.parse().ok().filter(|number| *number > 0).map(Entries::Number),
        };
        entries.ok_or_else(|| "must be a number from 1 up, or a share such as 10%".to_owned())
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    pub subjects: Vec<Subject>,
    pub entries: Vec<Entries>,
    pub rounds: u32,
    /// Timed operations of a turn.
    pub operations: usize,
    /// Operations that warm a table up, at least.
    pub warm: usize,
    /// Whether tables may step aside.
    pub gate: bool,
    pub seed: u64,
    pub pinned_core: Option<usize>,
}

/// The figures of one contestant by round.
#[derive(Default)]
struct Figures {
    ns: Vec<f64>,
    burst_ns: Vec<f64>,
    tables: Vec<Table>,
}

impl Figures {
    fn add(&mut self, turn: Turn) {
        self.ns.extend(turn.ns.first());
        self.burst_ns.extend(turn.ns.get(1));
        self.tables.extend(turn.table);
    }

    /// Returns these figures as multiples of others, round by round.
    fn over(&self, ns: &[f64]) -> Spread {
        Spread::of_ratios(self.ns.iter().copied(), ns.iter().copied())
    }
}

/// Measures. `progress` gets what runs and the share done. `stop` ends it early, after a whole
/// round.
///
/// # Errors
/// The plan has nothing to measure, an index failed, or it was stopped before there was a figure.
pub fn run(
    plan: &Plan,
    input: Input,
    stream: &Stream,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<Comparison, AsideError> {
    if plan.subjects.is_empty() {
        return Err(AsideError::NoIndex);
    }
    if plan.entries.is_empty() {
        return Err(AsideError::NoEntries);
    }
    if let Stream::Drawn { mix: Mix::E, .. } = stream
        && let Some(unordered) = plan.subjects.iter().find(|subject| !subject.is_ordered())
    {
        return Err(AsideError::Unordered(*unordered));
    }
    let keys = stream.keys();
    let (mut indexes, mut interrupted) = (Vec::new(), false);
    for (nth, subject) in plan.subjects.iter().enumerate() {
        let share = |done: f64| (nth as f64 + done) / plan.subjects.len() as f64;
        progress(&format!("{subject}: building"), share(0.0));
        let mut show = |what: &str, done: f64| progress(&format!("{subject}: {what}"), share(done));
        let mut index = subject.build(&keys)?;
        let found = measure(plan, *subject, &mut *index, stream.clone(), stop, &mut show)?;
        let (index, whole) = found;
        indexes.extend(index);
        interrupted |= !whole;
        if interrupted {
            break;
        }
    }
    if indexes.is_empty() {
        return Err(AsideError::Stopped);
    }
    let recommendation = rule::recommend(&indexes);
    Ok(Comparison {
        schema: record::SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(plan.pinned_core),
        input,
        keys: keys.len(),
        settings: Settings {
            rounds: plan.rounds,
            operations: plan.operations,
            burst: bench::BURST,
            seed: plan.seed,
        },
        interrupted,
        indexes,
        recommendation,
    })
}

/// Measures one index, built of the stream's keys; `None` without a whole round. Also returns
/// whether all rounds were run. Of a stream that inserts, the index has the keys afterwards.
///
/// # Errors
/// The index failed, or an answer was wrong.
pub fn measure(
    plan: &Plan,
    subject: Subject,
    index: &mut dyn Bench,
    mut stream: Stream,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<(Option<IndexRecord>, bool), AsideError> {
    let keys = stream.key_count();
    let sizes: Vec<usize> = plan.entries.iter().map(|entries| entries.of(keys)).collect();
    let config = |entries| {
        let config = Config::entries(entries).seed(plan.seed);
        if plan.gate { config.gate(None) } else { config }
    };
    let tables = sizes.iter().map(|&entries| (Some(config(entries)), entries));
    let fronts: Vec<(Front, usize)> = std::iter::once((None, 0)).chain(tables).collect();
    let mut figures: Vec<Figures> = fronts.iter().map(|_| Figures::default()).collect();
    let total = plan.rounds as usize * fronts.len();
    let mut whole_rounds = 0;
    'rounds: for round in 0..plan.rounds as usize {
        let mut of_round = Vec::new();
        for (nth, at) in turns(round, fronts.len()).enumerate() {
            let (front, entries) = &fronts[at];
            let done = (round * fronts.len() + nth) as f64 / total as f64;
            progress(&format!("{entries} entries"), 0.3 + 0.7 * done);
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
            let warm = stream.next((WARM_PER_ENTRY * entries).max(plan.warm));
            // Only what runs is drawn: keys of insertions are there from then on.
            let ways = if front.is_some() && stream.reads_only() { 2 } else { 1 };
            let ops: Vec<_> = (0..ways).map(|_| stream.next(plan.operations)).collect();
            let parts = ops.iter().enumerate().map(|(way, ops)| Part { ops, bursts: way > 0 });
            of_round.push((at, index.turn(front, &warm, &parts.collect::<Vec<_>>())?));
        }
        of_round.into_iter().for_each(|(at, turn)| figures[at].add(turn));
        whole_rounds += 1;
    }
    let record = (whole_rounds > 0).then(|| record(subject, index, &stream, &sizes, &figures));
    Ok((record, whole_rounds == plan.rounds))
}

fn record(
    subject: Subject,
    index: &dyn Bench,
    stream: &Stream,
    sizes: &[usize],
    figures: &[Figures],
) -> IndexRecord {
    let Some((alone, tables)) = figures.split_first() else { unreachable!("an index alone") };
    let tables = sizes.iter().zip(tables).map(|(&entries, figures)| {
        let bursts = !figures.burst_ns.is_empty();
        let hits = Spread::of(figures.tables.iter().map(|table| table.hit_rate));
        let last = figures.tables.last().expect("a turn has a table");
        TableRecord {
            entries,
            slots: last.slots,
            bytes: last.bytes,
            ns: Spread::of(figures.ns.iter().copied()),
            gain: alone.over(&figures.ns),
            burst_ns: bursts.then(|| Spread::of(figures.burst_ns.iter().copied())),
            burst_gain: bursts.then(|| alone.over(&figures.burst_ns)),
            hit_rate: hits.median,
            optimum: stream.optimum(last.slots),
            open: last.report.open,
            gate: last.report.to_string(),
        }
    });
    IndexRecord {
        index: subject.name(),
        what: subject.what(),
        bytes: index.bytes(),
        alone_ns: Spread::of(alone.ns.iter().copied()),
        tables: tables.collect(),
    }
}

#[cfg(test)]
mod tests;
