//! `overbank aside`: does a look-aside table pay in front of these indexes, with these keys?
//!
//! ```text
//!  keys, mix ─▶ index built ─▶ rounds: alone │ table of each size │ the same in bursts
//!                                  │   each turn: an empty table, warmed, then timed
//!                                  ▼
//!              ns with and without, hits beside the static optimum, the gate's verdict ─▶ advice
//! ```
//!
//! Contestants of an index take turns, with fresh operations each; of a file, all have the same ones
//! in a round. A ratio compares two figures of the same round. Indexes are measured one after
//! another: the question is what a table does for an index, not which index is the fastest.
//!
//! A table is new in each turn. The timer of its lookups is not: before the first round it has
//! measured both ways, so that the timed lookups go through the table and the gate knows the costs.

pub mod bench;
pub mod keys;
pub mod mix;
pub mod others;
pub mod page;
pub mod record;
pub mod rule;

use bench::{Bench, Subject, Table, Turn, Work};
use mix::{Mix, Stream};
use others::{Opened, Refused};
use overbank_aside::Timer;
use overbank_aside::lookaside::{Config, Meter};
use overbank_kit::machine::{Machine, memory_available_bytes};
use overbank_kit::rounds::turns;
use overbank_kit::spread::{Spread, median};
use record::{Comparison, IndexRecord, Input, Settings, TableRecord};
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

/// Timed operations of a turn.
pub const OPERATIONS: usize = 200_000;
/// Operations that warm a table up: this many, or as many for each entry, whichever is more.
pub const WARM: usize = 150_000;
const WARM_PER_ENTRY: usize = 6;
/// Lookups of a contestant before its first round, until its timer has measured both ways.
pub const SETTLE: u64 = Meter::SETTLED;
/// Bytes of a key beside the index: in the list of all, and in the law that draws it.
const KEY_BYTES: u64 = 28;
/// Bytes of an entry of a table, at most.
const ENTRY_BYTES: u64 = 22;
/// Most keys of an index.
pub const KEYS_MAX: usize = 100_000_000;

#[derive(Debug, thiserror::Error)]
pub enum AsideError {
    #[error("no index to measure: name at least one with --index")]
    NoIndex,
    #[error("no size to measure: name at least one with --entries")]
    NoEntries,
    #[error("--entries {entries}: must be at most {keys}, the number of keys")]
    Entries { entries: usize, keys: usize },
    #[error("{0} has no order to scan: leave it out with mix E")]
    Unordered(Subject),
    #[error("indexes of {keys} keys may need {} MiB of memory, {} MiB are available: name fewer \
             keys, or smaller indexes with --index", needed >> 20, available >> 20)]
    Memory { keys: usize, needed: u64, available: u64 },
    #[error("{}: {why}", path.display())]
    Others { path: PathBuf, why: Refused },
    #[error("another process has written to the database since: close it there, or name a copy")]
    Changed,
    #[error("{wrong} answers were wrong and {absent} keys absent; please report it")]
    Wrong { wrong: u64, absent: u64 },
    #[error("the database was lost by an error before")]
    Gone,
    #[error("{}: no directory for databases can be made there: {error}; set TMPDIR to another \
             directory", within.display())]
    Directory { within: PathBuf, error: io::Error },
    #[error("{}: the disk is full; free space for the databases, name fewer keys, or set TMPDIR \
             to another directory", within.display())]
    Full { within: PathBuf },
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
        entries.ok_or_else(|| {
            "must be a number from 1 up, or a share of the keys above 0% and up to 100%".to_owned()
        })
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
    /// Lookups of each contestant before the first round.
    pub settle: u64,
    /// Whether tables may step aside.
    pub gate: bool,
    pub seed: u64,
    pub pinned_core: Option<usize>,
}

impl Plan {
    /// Fails if a table has more entries than there are keys, or indexes of so many do not fit into
    /// memory. Otherwise the kernel would kill the process without a message.
    ///
    /// # Errors
    /// As said.
    pub fn fits(&self, keys: usize) -> Result<(), AsideError> {
        let mut entries = self.entries.iter().map(|entries| entries.of(keys));
        if let Some(entries) = entries.find(|entries| *entries > keys) {
            return Err(AsideError::Entries { entries, keys });
        }
        let needed = self.memory_bytes(keys);
        match memory_available_bytes() {
            Some(available) if needed > available => {
                Err(AsideError::Memory { keys, needed, available })
            }
            _ => Ok(()),
        }
    }

    /// Returns the bytes of memory that it takes with this many keys, at most.
    fn memory_bytes(&self, keys: usize) -> u64 {
        let index = self.subjects.iter().map(|subject| subject.key_bytes()).max().unwrap_or(0);
        let entries = self.entries.iter().map(|entries| entries.of(keys)).max().unwrap_or(0);
        let entries = (entries as u64).saturating_mul(ENTRY_BYTES);
        (keys as u64).saturating_mul(KEY_BYTES + index).saturating_add(entries)
    }
}

/// An index alone, or a table in front of it, with the figures of each round.
struct Contestant {
    entries: usize,
    config: Option<Config>,
    timer: Timer,
    /// Nanoseconds of an operation, in each part.
    ns: [Vec<f64>; 2],
    tables: Vec<Table>,
}

impl Contestant {
    fn new(entries: usize, config: Option<Config>) -> Contestant {
        let (timer, ns, tables) = (Timer::new(), Default::default(), Vec::new());
        Contestant { entries, config, timer, ns, tables }
    }

    fn turn(&mut self, index: &mut dyn Bench, work: &mut Work<'_>) -> Result<Turn, AsideError> {
        index.turn(self.config.as_ref().map(|config| (config, &mut self.timer)), work)
    }

    fn add(&mut self, turn: Turn) {
        self.ns.iter_mut().zip(turn.ns).for_each(|(all, ns)| all.push(ns));
        self.tables.extend(turn.table);
    }

    fn spread(&self, part: usize) -> Spread {
        Spread::of(self.ns[part].iter().copied())
    }

    /// Returns the figures of a part as multiples of another's, round by round.
    fn over(&self, other: &Contestant, part: usize) -> Spread {
        Spread::of_ratios(self.ns[part].iter().copied(), other.ns[part].iter().copied())
    }

    /// Returns the table in the round with the median time.
    fn of_median_round(&self) -> Option<&Table> {
        let mut rounds: Vec<_> = self.ns[0].iter().zip(&self.tables).collect();
        rounds.sort_by(|a, b| a.0.total_cmp(b.0));
        rounds.get(rounds.len().saturating_sub(1) / 2).map(|(_, table)| *table)
    }
}

/// Measures indexes of the stream's keys, which are built, or a database that is there and has
/// them. `progress` gets what runs and the share done. `stop` ends it early, after a whole round.
///
/// # Errors
/// The plan has nothing to measure, an index failed, or it was stopped before there was a figure.
pub fn run(
    plan: &Plan,
    input: Input,
    stream: &Stream,
    mut others: Option<Opened>,
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
    plan.fits(stream.key_count())?;
    let keys = stream.keys();
    let (mut indexes, mut interrupted) = (Vec::new(), false);
    for (nth, subject) in plan.subjects.iter().enumerate() {
        let share = |done: f64| (nth as f64 + done) / plan.subjects.len() as f64;
        let mut show = |what: &str, done: f64| progress(&format!("{subject}: {what}"), share(done));
        if others.is_none() {
            show("building", 0.0);
        }
        let mut measured =
            |index: &mut dyn Bench| measure(plan, *subject, index, stream.clone(), stop, &mut show);
        let measured = if let Some(Opened { bench, .. }) = &mut others {
            bench.set_latest(subject.is_latest());
            measured(&mut **bench)
        } else {
            subject.build(&keys, stop).and_then(|mut index| measured(&mut *index))
        };
        let (index, whole) = match measured {
            Err(AsideError::Stopped) => (None, false),
            measured => measured?,
        };
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
    let table = |entries: &Entries| {
        let entries = entries.of(keys);
        let config = Config::entries(entries).seed(plan.seed);
        Contestant::new(entries, Some(if plan.gate { config.gate(None) } else { config }))
    };
    let alone = std::iter::once(Contestant::new(0, None));
    let mut contestants: Vec<_> = alone.chain(plan.entries.iter().map(table)).collect();
    let mut whole_rounds = 0;
    let index = &mut *index;
    match rounds(plan, index, &mut contestants, &mut stream, stop, &mut whole_rounds, progress) {
        Err(AsideError::Stopped) => {}
        done => done?,
    }
    let record =
        (whole_rounds > 0).then(|| record(subject, index, &stream, whole_rounds, &contestants));
    Ok((record, whole_rounds == plan.rounds))
}

/// Runs all rounds, and counts those that were whole.
fn rounds(
    plan: &Plan,
    index: &mut dyn Bench,
    contestants: &mut [Contestant],
    stream: &mut Stream,
    stop: &AtomicBool,
    whole: &mut u32,
    progress: &mut dyn FnMut(&str, f64),
) -> Result<(), AsideError> {
    let operations = plan.operations;
    if stream.lookup_share() > 0.0 && plan.settle > 0 {
        let warm = (plan.settle as f64 / stream.lookup_share()).ceil() as usize;
        for contestant in contestants.iter_mut().filter(|contestant| contestant.config.is_some()) {
            progress(&format!("{} entries: costs", contestant.entries), 0.3);
            contestant.turn(index, &mut Work { stream, warm, operations, parts: 0, stop })?;
        }
    }
    let parts = if stream.reads_only() { 2 } else { 1 };
    let warm = |entries: usize| entries.saturating_mul(WARM_PER_ENTRY).max(plan.warm);
    let most = contestants.iter().map(|contestant| warm(contestant.entries)).max().unwrap_or(0);
    let count = contestants.len();
    for round in 0..plan.rounds as usize {
        let start = stream.clone();
        let mut of_round = Vec::new();
        for (nth, at) in turns(round, count).enumerate() {
            let contestant = &mut contestants[at];
            let done = (round * count + nth) as f64 / (plan.rounds as usize * count) as f64;
            progress(&format!("{} entries", contestant.entries), 0.3 + 0.7 * done);
            let again = stream.go_back_to(&start);
            let warm = if again { most } else { warm(contestant.entries) };
            let mut work = Work { stream, warm, operations, parts, stop };
            of_round.push((at, contestant.turn(index, &mut work)?));
        }
        of_round.into_iter().for_each(|(at, turn)| contestants[at].add(turn));
        *whole += 1;
    }
    Ok(())
}

fn record(
    subject: Subject,
    index: &dyn Bench,
    stream: &Stream,
    rounds: u32,
    contestants: &[Contestant],
) -> IndexRecord {
    let Some((alone, tables)) = contestants.split_first() else { unreachable!("an index alone") };
    let tables = tables.iter().filter_map(|of| {
        let bursts = |spread: Spread| (!of.ns[1].is_empty()).then_some(spread);
        let hits: Vec<f64> = of.tables.iter().filter_map(|table| table.hit_rate).collect();
        let Table { slots, bytes, report, .. } = of.of_median_round()?;
        Some(TableRecord {
            entries: of.entries,
            slots: *slots,
            bytes: *bytes,
            ns: of.spread(0),
            gain: alone.over(of, 0),
            burst_ns: bursts(of.spread(1)),
            burst_gain: bursts(alone.over(of, 1)),
            hit_rate: (!hits.is_empty()).then(|| median(hits)),
            optimum: stream.optimum(*slots),
            open_rounds: of.tables.iter().filter(|table| table.report.open).count() as u32,
            gate: report.to_string(),
        })
    });
    IndexRecord {
        index: subject.name(),
        what: subject.what(),
        bytes: index.bytes(),
        rounds,
        alone_ns: alone.spread(0),
        tables: tables.collect(),
    }
}

#[cfg(test)]
mod tests;
