//! An index that is measured with a look-aside table in front and without.
//!
//! A turn makes the table, runs operations until it is warm, and times others by the thread's CPU
//! clock. Each answer is checked: the upper half of a value is a hash of its key.

mod databases;
mod live;

use super::AsideError;
use super::mix::{Kind, Op};
use overbank::hash::mix;
use overbank_aside::lookaside::{Config, Report};
use overbank_aside::{Source, Timer};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::str::FromStr;

/// Keys of a burst.
pub const BURST: usize = 32;

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

    /// Builds it, with a value for each key. Databases lie in a directory that goes with it.
    ///
    /// # Errors
    /// A database failed.
    pub fn build(self, keys: &[u64]) -> Result<Box<dyn Bench>, AsideError> {
        Ok(match self {
            Subject::BTreeMap => live::btreemap(keys),
            Subject::SkipMap => live::skipmap(keys),
            Subject::Congee => live::congee(keys),
            Subject::HashMap => live::hashmap(keys),
            Subject::Redb | Subject::RedbLatest => {
                databases::redb(keys, self == Subject::RedbLatest)?
            }
            Subject::Lmdb | Subject::LmdbLatest => {
                databases::lmdb(keys, self == Subject::LmdbLatest)?
            }
        })
    }
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

/// What is in front of the index in a turn: nothing, or a table. The adapters of databases want one
/// in any case; an unused one has one bucket.
pub type Front = Option<Config>;

fn config(front: &Front) -> Config {
    front.clone().unwrap_or(Config::entries(1))
}

/// Timed operations of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub ops: &'a [Op],
    /// Whether lookups come in bursts of [`BURST`]: for operations that only read, with a table.
    pub bursts: bool,
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
    /// Share of the timed lookups through it that it answered.
    pub hit_rate: f64,
    pub report: Report,
}

/// An index, built.
pub trait Bench {
    /// Makes the table, runs `warm`, then times each of `parts`.
    ///
    /// # Errors
    /// A database failed, a table cannot have the size, or an answer was wrong.
    fn turn(&mut self, front: &Front, warm: &[Op], parts: &[Part<'_>]) -> Result<Turn, AsideError>;

    /// Sets whether each lookup begins a transaction. Indexes in memory have none.
    fn set_latest(&mut self, _latest: bool) {}

    /// Returns the bytes that the index takes, in memory or in its file.
    fn bytes(&self) -> u64;
}

/// Returns the value of a key: its hash, and how many times it was written.
fn value(key: u64, version: u32) -> u64 {
    mix(key) & !0xffff_ffff | u64::from(version)
}

/// Checks answers.
#[derive(Default)]
struct Checked {
    wrong: u64,
    absent: u64,
}

impl Checked {
    #[inline(always)]
    fn see(&mut self, key: u64, found: Option<u64>) {
        match found {
            Some(found) => self.wrong += u64::from((found ^ mix(key)) >> 32 != 0),
            None => self.absent += 1,
        }
    }

    /// Keys that are inserted may be absent for a moment.
    fn verdict<'a>(&self, ops: impl Iterator<Item = &'a [Op]>) -> Result<(), AsideError> {
        let inserts = ops.flatten().any(|op| op.kind == Kind::Insert);
        if self.wrong > 0 || self.absent > 0 && !inserts {
            return Err(AsideError::Wrong { wrong: self.wrong, absent: self.absent });
        }
        Ok(())
    }
}

/// Returns the bytes that the C library's allocator has handed out; 0 of another one.
#[allow(unsafe_code)] // A call of the C library.
fn heap_bytes() -> u64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes nothing, returns numbers.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Returns the thread's CPU time in nanoseconds.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// What a turn works on.
trait Session {
    fn run(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError>;
    fn timer(&self) -> Option<&Timer>;
    /// Returns the table's slots, bytes and what its gate says.
    fn table(&self) -> (usize, usize, Report);
}

/// Runs a turn. The hit rate is that of the first part.
fn turn(
    session: &mut impl Session,
    front: &Front,
    warm: &[Op],
    parts: &[Part<'_>],
) -> Result<Turn, AsideError> {
    let mut checked = Checked::default();
    session.run(Part { ops: warm, bursts: false }, &mut checked)?;
    let counts = |session: &_| Session::timer(session).map_or((0, 0), Timer::counts);
    let (before, mut after) = (counts(session), None);
    let mut ns = Vec::new();
    for part in parts {
        let start = cpu_ns();
        session.run(*part, &mut checked)?;
        ns.push((cpu_ns() - start) / part.ops.len().max(1) as f64);
        after.get_or_insert_with(|| counts(session));
    }
    checked.verdict(std::iter::once(warm).chain(parts.iter().map(|part| part.ops)))?;
    let after = after.unwrap_or(before);
    let hit_rate = (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64;
    let (slots, bytes, report) = session.table();
    let table = Table { slots, bytes, hit_rate, report };
    Ok(Turn { ns, table: front.is_some().then_some(table) })
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

/// Reads a key through the table, or around it if there is no timer.
#[inline(always)]
fn read<S: Source<Key: KeyOf, Value = u64>>(
    source: &S,
    timer: &mut Option<Timer>,
    key: u64,
    checked: &mut Checked,
) -> Result<(), S::Error> {
    let found = match timer {
        Some(timer) => timer.get(source, KeyOf::of(key))?,
        None => source.around(KeyOf::of(key))?,
    };
    checked.see(key, found);
    Ok(())
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
