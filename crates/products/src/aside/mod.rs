//! `overbank aside`: does a look-aside table pay in front of these indexes, with these keys?
//!
//! ```text
//!  keys, mix ─▶ index built ─▶ table of each size ─▶ rounds: alone │ through the table
//!                                                      │           │ the same in bursts
//!                                                      ▼
//!              ns with and without, hits beside the static optimum, the gate's verdict ─▶ advice
//! ```
//!
//! The index alone and with the table take turns, with fresh operations each; of a file, both have
//! the same ones in a round. A ratio compares two figures of the same round. Tables and indexes are
//! measured one after another: the question is what a table does for an index, not which index is
//! the fastest.
//!
//! Where keys are only read, a table is warmed up once and kept. Where the index alone writes too,
//! which its table does not notice, a table is new in each turn. The timer of its lookups is not:
//! before the first round it has measured both ways, so that the timed lookups go through the table
//! and the gate knows the costs.

pub mod bench;
pub mod keys;
pub mod mix;
pub mod others;
pub mod page;
pub mod record;
pub mod rule;

use bench::{Bench, Side, Sides, Subject, Table, Turn, Work};
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
/// Operations that warm a table up: this many, or as many for each entry, whichever is more. One
/// that is kept gets more: hits rise until some 30 lookups an entry have come.
pub const WARM: usize = 150_000;
const WARM_PER_ENTRY: usize = 6;
const KEPT_WARM_PER_ENTRY: usize = 24;
/// Lookups through a table before the first round, until its timer has measured both ways.
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
    /// Lookups through each table before the first round.
    pub settle: u64,
    /// Whether tables may step aside.
    pub gate: bool,
    pub seed: u64,
    pub pinned_core: Option<usize>,
}

impl Plan {
    /// Fails if a table has more entries than there are keys, or if indexes of this many keys may
    /// not fit into memory. Otherwise the kernel would kill the process without a message.
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

/// A table of one size in front of an index, with the figures of each round.
struct Contest {
    entries: usize,
    config: Config,
    timer: Timer,
    alone: Parts,
    aside: Parts,
    tables: Vec<Table>,
}

/// Nanoseconds of an operation in each part, by round.
#[derive(Default)]
struct Parts([Vec<f64>; 2]);

impl Parts {
    fn add(&mut self, turn: &Turn) {
        self.0.iter_mut().zip(&turn.ns).for_each(|(all, ns)| all.push(*ns));
    }

    fn spread(&self, part: usize) -> Option<Spread> {
        let of = &self.0[part];
        (!of.is_empty()).then(|| Spread::of(of.iter().copied()))
    }

    /// Returns the figures of a part as multiples of another's, round by round.
    fn over(&self, other: &Parts, part: usize) -> Spread {
        Spread::of_ratios(self.0[part].iter().copied(), other.0[part].iter().copied())
    }
}

impl Contest {
    fn new(plan: &Plan, entries: usize) -> Contest {
        let config = Config::entries(entries).seed(plan.seed);
        Contest {
            entries,
            config: if plan.gate { config.gate(None) } else { config },
            timer: Timer::new(),
            alone: Parts::default(),
            aside: Parts::default(),
            tables: Vec::new(),
        }
    }

    fn add(&mut self, alone: &Turn, aside: Turn) {
        self.alone.add(alone);
        self.aside.add(&aside);
        self.tables.extend(aside.table);
    }

    /// Returns the table in the round with the median time.
    fn of_median_round(&self) -> Option<&Table> {
        let mut rounds: Vec<_> = self.aside.0[0].iter().zip(&self.tables).collect();
        rounds.sort_by(|a, b| a.0.total_cmp(b.0));
        rounds.get(rounds.len().saturating_sub(1) / 2).map(|(_, table)| *table)
    }

    fn record(&self, stream: &Stream) -> Option<TableRecord> {
        let Contest { alone, aside, .. } = self;
        let hits: Vec<f64> = self.tables.iter().filter_map(|table| table.hit_rate).collect();
        let Table { slots, bytes, report, .. } = self.of_median_round()?;
        let burst_ns = aside.spread(1);
        Some(TableRecord {
            entries: self.entries,
            slots: *slots,
            bytes: *bytes,
            rounds: self.tables.len() as u32,
            alone_ns: alone.spread(0)?,
            ns: aside.spread(0)?,
            gain: alone.over(aside, 0),
            burst_ns,
            burst_gain: burst_ns.map(|_| alone.over(aside, 1)),
            hit_rate: (!hits.is_empty()).then(|| median(hits)),
            optimum: stream.optimum(*slots),
            open_rounds: self.tables.iter().filter(|table| table.report.open).count() as u32,
            gate: report.to_string(),
        })
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
    let (keys, start) = (stream.key_count(), stream.clone());
    let mut contests = Vec::new();
    let mut whole = true;
    for (nth, entries) in plan.entries.iter().enumerate() {
        let mut contest = Contest::new(plan, entries.of(keys));
        let share = |done: f64| (nth as f64 + done) / plan.entries.len() as f64;
        let mut progress = |what: &str, done: f64| {
            progress(&format!("{} entries: {what}", contest.entries), 0.3 + 0.7 * share(done));
        };
        stream.go_back_to(&start);
        let mut run = Run { plan, stream: &mut stream, stop, progress: &mut progress };
        let (entries, config, timer) = (contest.entries, &contest.config, &mut contest.timer);
        let (mut found, on) = (Vec::new(), (index as &mut dyn Bench, config, timer));
        let done = if run.stream.reads_only() {
            run.reading(on, entries, &mut found)
        } else {
            run.writing(on, entries, &mut found)
        };
        found.into_iter().for_each(|(alone, aside)| contest.add(&alone, aside));
        contests.push(contest);
        match done {
            Err(AsideError::Stopped) => {
                whole = false;
                break;
            }
            done => done?,
        }
    }
    let alone: Vec<f64> = contests.iter().flat_map(|of| of.alone.0[0].iter().copied()).collect();
    let record = (!alone.is_empty()).then(|| IndexRecord {
        index: subject.name(),
        what: subject.what(),
        bytes: index.bytes(),
        alone_ns: Spread::of(alone),
        tables: contests.iter().filter_map(|contest| contest.record(&stream)).collect(),
    });
    Ok((record, whole))
}

/// The rounds of a contest.
struct Run<'a> {
    plan: &'a Plan,
    stream: &'a mut Stream,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str, f64),
}

/// An index, and what is put in front of it.
type On<'a> = (&'a mut dyn Bench, &'a Config, &'a mut Timer);

/// The two sides in the order of a round.
fn order(round: usize) -> impl Iterator<Item = bool> {
    turns(round, 2).map(|at| at == 1)
}

impl Run<'_> {
    fn work(&mut self, operations: usize, parts: usize) -> Work<'_> {
        Work { stream: self.stream, operations, parts, stop: self.stop }
    }

    fn show(&mut self, what: &str, round: usize) {
        (self.progress)(what, round as f64 / self.plan.rounds as f64);
    }

    /// One table, kept through all rounds.
    fn reading(
        &mut self,
        (index, config, timer): On<'_>,
        entries: usize,
        found: &mut Vec<(Turn, Turn)>,
    ) -> Result<(), AsideError> {
        let Plan { warm, settle, operations, rounds, .. } = *self.plan;
        let first = entries.saturating_mul(WARM_PER_ENTRY);
        let rest = entries.saturating_mul(KEPT_WARM_PER_ENTRY - WARM_PER_ENTRY);
        index.lend(Some((config, timer)), &mut |Sides { mut alone, aside }| {
            let Some(mut aside) = aside else { return Ok(()) };
            self.show("warming up", 0);
            aside.warm(&mut self.work(first.max(warm) + settle as usize, 0))?;
            // One that has stepped aside by then does not fill.
            if aside.is_open() {
                self.show("warming up further", 0);
                aside.warm(&mut self.work(rest, 0))?;
            }
            let start = self.stream.clone();
            alone.warm(&mut self.work(self.plan.warm, 0))?;
            self.stream.go_back_to(&start);
            let (mut open, mut passed) = (aside.is_open(), false);
            while found.len() < rounds as usize {
                let round = found.len();
                self.show("measuring", round);
                let start = self.stream.clone();
                let mut turn = |side: &mut Side<'_>| {
                    self.stream.go_back_to(&start);
                    side.turn(&mut self.work(operations, 2))
                };
                let [mut of_alone, mut of_aside] = [None, None];
                for through in order(round) {
                    if through {
                        of_aside = Some(turn(&mut aside)?);
                    } else {
                        of_alone = Some(turn(&mut alone)?);
                    }
                }
                // Once in 17 million lookups the timer leaves an open table alone for a while:
                // that passes, and the round is run again.
                let hits = of_aside.as_ref().and_then(|turn| turn.table.as_ref()?.hit_rate);
                let stays_open = std::mem::replace(&mut open, aside.is_open()) && open;
                passed = !passed && stays_open && hits.is_none();
                if passed {
                    aside.warm(&mut self.work(SETTLE as usize, 0))?;
                } else {
                    found.extend(of_alone.zip(of_aside));
                }
            }
            Ok(())
        })
    }

    /// A new table in each round.
    fn writing(
        &mut self,
        (index, config, timer): On<'_>,
        entries: usize,
        found: &mut Vec<(Turn, Turn)>,
    ) -> Result<(), AsideError> {
        let Plan { warm, settle, operations, rounds, .. } = *self.plan;
        let share = self.stream.lookup_share();
        if share > 0.0 && settle > 0 {
            self.show("costs", 0);
            let settle = (settle as f64 / share).ceil() as usize;
            index.lend(Some((config, timer)), &mut |Sides { aside, .. }| {
                let mut work = self.work(settle, 0);
                aside.map_or(Ok(()), |mut aside| aside.warm(&mut work))
            })?;
        }
        let warm_aside = entries.saturating_mul(WARM_PER_ENTRY).max(warm);
        for round in 0..rounds as usize {
            self.show("measuring", round);
            let [mut of_alone, mut of_aside] = [None, None];
            for through in order(round) {
                let front = through.then_some((config, &mut *timer));
                let (of, warm) = match through {
                    true => (&mut of_aside, warm_aside),
                    false => (&mut of_alone, warm),
                };
                index.lend(front, &mut |Sides { alone, aside }| {
                    let mut side = aside.unwrap_or(alone);
                    side.warm(&mut self.work(warm, 0))?;
                    *of = Some(side.turn(&mut self.work(operations, 1))?);
                    Ok(())
                })?;
            }
            found.extend(of_alone.zip(of_aside));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
