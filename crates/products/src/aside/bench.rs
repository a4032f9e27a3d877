//! An index that is measured with a look-aside table in front and without.
//!
//! An index is lent with its two sides, alone and with a table in front ([`Bench`]). A turn of one
//! runs operations and times them by the thread's CPU clock, which stops while more are drawn. Each
//! answer is checked (`checked.rs`).

mod checked;
pub(super) mod databases;
mod live;

use super::AsideError;
use super::mix::{Op, Stream};
use checked::{Checked, value};
use overbank_aside::lookaside::{Config, Report};
use overbank_aside::{Source, Timer, Watched};
use overbank_kit::machine::thread_time;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keys of a burst.
pub const BURST: usize = 32;
/// Keys or operations between two looks at the flag that ends a run. As many operations, not timed,
/// come before each timed piece: drawing it displaced the index from the processor's caches.
const STEP: usize = 10_000;
/// Most operations that are drawn and timed at once: 4 MB.
const PIECE: usize = 250_000;
/// Share of a part's lookups that must go through the table, for its hit rate to be one.
const THROUGH: f64 = 0.9;

/// An index that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    BTreeMap,
    Redb,
    RedbLatest,
    Lmdb,
    LmdbLatest,
    SkipMap,
    Congee,
    HashMap,
}

impl Subject {
    /// All, the slow ones first.
    pub const ALL: [Subject; 8] = [
        Subject::BTreeMap,
        Subject::Redb,
        Subject::RedbLatest,
        Subject::Lmdb,
        Subject::LmdbLatest,
        Subject::SkipMap,
        Subject::Congee,
        Subject::HashMap,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Subject::BTreeMap => "btreemap",
            Subject::Redb => "redb",
            Subject::RedbLatest => "redb-latest",
            Subject::Lmdb => "lmdb",
            Subject::LmdbLatest => "lmdb-latest",
            Subject::SkipMap => "skipmap",
            Subject::Congee => "congee",
            Subject::HashMap => "hashmap",
        }
    }

    pub fn what(self) -> &'static str {
        match self {
            Subject::BTreeMap => "std's BTreeMap behind a lock",
            Subject::Redb => "redb, lookups share a transaction",
            Subject::RedbLatest => "redb, a transaction for each lookup; a hit needs none",
            Subject::Lmdb => "LMDB by heed, lookups share a transaction",
            Subject::LmdbLatest => "LMDB by heed, a transaction for each lookup; a hit needs none",
            Subject::SkipMap => "crossbeam's SkipMap",
            Subject::Congee => "congee, an adaptive radix tree",
            Subject::HashMap => "hashbrown's HashMap behind a lock",
        }
    }

    /// Returns whether it has its keys in order, so that it can be scanned.
    pub fn is_ordered(self) -> bool {
        self != Subject::HashMap
    }

    /// Returns the bytes of memory that it takes for a key while it grows, at most. Databases are
    /// files; LMDB keeps the pages of a transaction in memory.
    pub fn key_bytes(self) -> u64 {
        match self {
            Subject::BTreeMap => 40,
            Subject::Redb | Subject::RedbLatest | Subject::Lmdb | Subject::LmdbLatest => 50,
            Subject::SkipMap => 80,
            Subject::Congee => 150,
            Subject::HashMap => 60,
        }
    }

    /// Returns whether each of its lookups begins a transaction.
    pub fn is_latest(self) -> bool {
        matches!(self, Subject::RedbLatest | Subject::LmdbLatest)
    }

    /// Builds it, with a value for each key. Databases lie in a directory that goes with it. `stop`
    /// ends it early.
    ///
    /// # Errors
    /// A database failed, or it was stopped.
    pub fn build(self, keys: &[u64], stop: &AtomicBool) -> Result<Box<dyn Bench>, AsideError> {
        let keys = Keys { keys, stop };
        match self {
            Subject::BTreeMap => live::btreemap(keys),
            Subject::SkipMap => live::skipmap(keys),
            Subject::Congee => live::congee(keys),
            Subject::HashMap => live::hashmap(keys),
            Subject::Redb | Subject::RedbLatest => databases::redb::redb(keys, self.is_latest()),
            Subject::Lmdb | Subject::LmdbLatest => databases::lmdb::lmdb(keys, self.is_latest()),
        }
    }
}

/// Keys to build an index of.
#[derive(Clone, Copy)]
struct Keys<'a> {
    keys: &'a [u64],
    stop: &'a AtomicBool,
}

impl Keys<'_> {
    /// Inserts each with its first value.
    fn each<E: Into<AsideError>>(
        self,
        mut insert: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), AsideError> {
        self.keys.chunks(STEP).try_for_each(|keys| {
            go_on(self.stop)?;
            keys.iter().try_for_each(|key| insert(*key, value(*key, 0)).map_err(E::into))
        })
    }
}

fn go_on(stop: &AtomicBool) -> Result<(), AsideError> {
    if stop.load(Ordering::Relaxed) { Err(AsideError::Stopped) } else { Ok(()) }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Subject, String> {
        Subject::ALL.into_iter().find(|subject| subject.name() == text).ok_or_else(|| {
            let names: Vec<_> = Subject::ALL.iter().map(|subject| subject.name()).collect();
            format!("must be one of {}", names.join(", "))
        })
    }
}

/// A table to put in front, and the timer of its lookups. The timer outlives the table, since it
/// takes longer to know what they cost.
pub type Front<'a> = Option<(&'a Config, &'a mut Timer)>;

/// Operations, to run together.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    ops: &'a [Op],
    /// Whether lookups come in bursts of [`BURST`]: for operations that only read, with a table.
    bursts: bool,
}

/// Operations to draw and run.
pub struct Work<'a> {
    pub stream: &'a mut Stream,
    /// Of each part.
    pub operations: usize,
    /// Timed parts. Lookups of those after the first come in bursts, if there is a table.
    pub parts: usize,
    pub stop: &'a AtomicBool,
}

/// What a turn came to.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Nanoseconds of an operation, for each part.
    pub ns: Vec<f64>,
    pub table: Option<Table>,
}

/// What a table did in a turn.
#[derive(Clone, Debug)]
pub struct Table {
    pub slots: usize,
    pub bytes: usize,
    /// Share of the lookups through it, in the first part, that it answered. `None` if a part had
    /// no lookups, or if more than a tenth of them went around the table.
    pub hit_rate: Option<f64>,
    pub report: Report,
}

/// What takes turns: an index alone, or with the table in front of it.
pub struct Side<'a>(&'a mut dyn Session);

impl Side<'_> {
    /// Runs operations that are not timed.
    ///
    /// # Errors
    /// A database failed, or it was stopped.
    pub fn warm(&mut self, work: &mut Work<'_>) -> Result<(), AsideError> {
        self.run(work, (0, STEP), false).map(drop)
    }

    /// Times each part.
    ///
    /// # Errors
    /// A database failed, an answer was wrong, now or before, or it was stopped.
    pub fn turn(&mut self, work: &mut Work<'_>) -> Result<Turn, AsideError> {
        let (mut ns, mut rates) = (Vec::new(), Vec::new());
        for part in 0..work.parts {
            let before = self.counts();
            let (time, lookups) = self.run(work, (STEP, PIECE), part > 0)?;
            let after = self.counts();
            ns.push(time.as_nanos() as f64 / work.operations.max(1) as f64);
            let (through, hits) = ((after.0 - before.0) as f64, (after.1 - before.1) as f64);
            let known = through > 0.0 && through >= THROUGH * lookups as f64;
            rates.push(known.then_some(hits / through));
        }
        self.0.checked().verdict()?;
        let all: Option<Vec<f64>> = rates.into_iter().collect();
        let hit_rate = all.and_then(|rates| rates.first().copied());
        let table = self.0.state().map(|State { slots, bytes, report, .. }| Table {
            slots,
            bytes,
            hit_rate,
            report,
        });
        Ok(Turn { ns, table })
    }

    /// Returns whether there is a table, and its gate is open.
    pub fn is_open(&self) -> bool {
        self.0.state().is_some_and(|state| state.report.open)
    }

    fn counts(&self) -> (u64, u64) {
        self.0.state().map_or((0, 0), |state| state.counts)
    }

    /// Runs operations in pieces, each after `lead` that are not timed. Returns the time and the
    /// number of all lookups.
    fn run(
        &mut self,
        work: &mut Work<'_>,
        (lead, piece): (usize, usize),
        bursts: bool,
    ) -> Result<(Duration, u64), AsideError> {
        let (mut time, mut lookups, mut left) = (Duration::ZERO, 0, work.operations);
        while left > 0 {
            go_on(work.stop)?;
            let timed = left.min(piece);
            let ops = work.stream.next(lead.min(timed) + timed);
            let (first, ops) = ops.split_at(lead.min(timed));
            self.0.run(Part { ops: first, bursts })?;
            let start = thread_time();
            self.0.run(Part { ops, bursts })?;
            time += thread_time() - start;
            self.0.recheck()?;
            let looked_up = first.iter().chain(ops).filter(|op| op.kind.looks_up());
            lookups += looked_up.count() as u64;
            left -= timed;
        }
        Ok((time, lookups))
    }
}

/// Both sides of an index, the second with a new table in front if one was asked for. Then nothing
/// may be written on the first: the table would not notice.
pub struct Sides<'a> {
    pub alone: Side<'a>,
    pub aside: Option<Side<'a>>,
}

/// What an index is lent to.
pub type Match<'a> = &'a mut dyn FnMut(Sides<'_>) -> Result<(), AsideError>;

/// An index, built.
pub trait Bench {
    /// Lends both sides.
    ///
    /// # Errors
    /// Those of the match; or a database failed, or a table cannot have the size.
    fn lend(&mut self, front: Front<'_>, to: Match<'_>) -> Result<(), AsideError>;

    /// Sets whether each lookup begins a transaction. Indexes in memory have none.
    fn set_latest(&mut self, _latest: bool) {}

    /// Returns the bytes that the index takes, in memory or in its file.
    fn bytes(&self) -> u64;
}

/// The state of a table.
struct State {
    /// Lookups through it, and how many of them it answered.
    counts: (u64, u64),
    slots: usize,
    bytes: usize,
    report: Report,
}

impl State {
    fn of(table: &impl Watched, timer: &Timer) -> State {
        let (slots, bytes, report) = (table.slots(), table.bytes(), table.gate().report());
        State { counts: timer.counts(), slots, bytes, report }
    }
}

/// A side as each kind of index has it.
trait Session {
    fn run(&mut self, part: Part<'_>) -> Result<(), AsideError>;
    /// Compares answers with the index's, if its values are not known.
    fn recheck(&mut self) -> Result<(), AsideError> {
        Ok(())
    }
    fn checked(&mut self) -> &mut Checked;
    /// Returns the table's state; `None` of an index alone.
    fn state(&self) -> Option<State> {
        None
    }
}

/// A key as a source has it.
trait KeyOf: Copy {
    fn of(key: u64) -> Self;
}

impl KeyOf for u64 {
    fn of(key: u64) -> u64 {
        key
    }
}

/// Big-endian: as bytes, keys have the order of their numbers.
impl KeyOf for [u8; 8] {
    fn of(key: u64) -> [u8; 8] {
        key.to_be_bytes()
    }
}

/// Reads keys in bursts through the table.
fn read_bursts<S: Source<Key: KeyOf, Value = u64>>(
    source: &S,
    timer: &mut Timer,
    ops: &[Op],
    checked: &mut Checked,
) -> Result<(), S::Error> {
    let (mut keys, mut values) = ([KeyOf::of(0); BURST], [None; BURST]);
    for burst in ops.chunks(BURST) {
        keys.iter_mut().zip(burst).for_each(|(key, op)| *key = KeyOf::of(op.key));
        timer.get_batch(source, &keys[..burst.len()], &mut values[..burst.len()])?;
        burst.iter().zip(&values).for_each(|(op, value)| checked.see(op.key, *value));
    }
    Ok(())
}
