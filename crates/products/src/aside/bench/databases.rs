//! Databases. Operations come in groups: their lookups share a snapshot, then their writes share a
//! transaction, which waits for no disk. Alone, a database is used without its adapter; only redb's
//! is owned by it where a table is in front, and there begins its transactions for both.

pub mod lmdb;
pub mod redb;

use super::{Checked, KeyOf, Part, Session, State, read_bursts};
use crate::aside::AsideError;
use crate::aside::mix::{Kind, Op};
use overbank_aside::{Source, Timer, heed};
use std::io::ErrorKind;
use std::path::Path;
use tempfile::TempDir;

/// Operations of a group.
const GROUP: usize = 1000;

fn directory() -> Result<TempDir, AsideError> {
    let made = tempfile::Builder::new().prefix("overbank-aside-").tempdir();
    made.map_err(|error| AsideError::Directory { within: std::env::temp_dir(), error })
}

/// Names the directory of a database that was built, if its disk is full.
fn lies_in<T>(dir: Option<&TempDir>, done: Result<T, AsideError>) -> Result<T, AsideError> {
    done.map_err(|error| {
        let io = match &error {
            AsideError::RedbItself(::redb::Error::Io(error))
            | AsideError::Redb(overbank_aside::redb::Error::Database(::redb::Error::Io(error)))
            | AsideError::LmdbItself(::heed::Error::Io(error))
            | AsideError::Lmdb(heed::Error::Database(::heed::Error::Io(error))) => error,
            _ => return error,
        };
        match (io.kind(), dir.and_then(|dir| dir.path().parent())) {
            (ErrorKind::StorageFull | ErrorKind::QuotaExceeded, Some(within)) => {
                AsideError::Full { within: within.to_owned() }
            }
            _ => error,
        }
    })
}

fn file_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

/// The keys that a group looks up.
fn lookups(ops: &[Op]) -> impl Iterator<Item = u64> {
    ops.iter().filter(|op| op.kind.looks_up()).map(|op| op.key)
}

/// Looks them up through a table.
fn through<S: Source<Key: KeyOf, Value = u64>>(
    source: &S,
    timer: &mut Timer,
    part: Part<'_>,
    checked: &mut Checked,
) -> Result<(), S::Error> {
    if part.bursts {
        return read_bursts(source, timer, part.ops, checked);
    }
    lookups(part.ops).try_for_each(|key| {
        checked.see(key, timer.get(source, KeyOf::of(key))?);
        Ok(())
    })
}

/// Looks sampled keys up in the index alone. Returns how many of their answers were others.
fn again<S: Source<Key: KeyOf, Value = u64>>(
    source: &S,
    sample: &[(u64, Option<u64>)],
) -> Result<u64, S::Error> {
    sample.iter().try_fold(0, |wrong, (key, found)| {
        Ok(wrong + u64::from(source.around(KeyOf::of(*key))? != *found))
    })
}

/// The keys that a group writes.
fn writes(ops: &[Op]) -> impl Iterator<Item = u64> {
    let writes = ops.iter().filter(|op| !matches!(op.kind, Kind::Read | Kind::Scan(_)));
    writes.map(|op| op.key)
}

fn scans(ops: &[Op]) -> impl Iterator<Item = (u64, usize)> {
    ops.iter().filter_map(|op| match op.kind {
        Kind::Scan(count) => Some((op.key, count as usize)),
        _ => None,
    })
}

/// A database, with a table in front or alone.
trait Store {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError>;
    /// Returns how many answers of a sample are not the database's, or fails if it has changed.
    fn recheck(&self, _sample: &[(u64, Option<u64>)]) -> Result<u64, AsideError> {
        Ok(0)
    }
    fn state(&self) -> Option<State> {
        None
    }
}

/// A side of a database.
struct Grouped<'a, S>(S, &'a mut Checked);

impl<S: Store> Session for Grouped<'_, S> {
    fn run(&mut self, part: Part<'_>) -> Result<(), AsideError> {
        let Grouped(store, checked) = self;
        part.ops.chunks(GROUP).try_for_each(|ops| {
            store.group(Part { ops, ..part }, checked)?;
            checked.close(ops);
            Ok(())
        })
    }

    fn recheck(&mut self) -> Result<(), AsideError> {
        let Grouped(store, checked) = self;
        checked.recheck(|sample| store.recheck(sample))
    }

    fn checked(&mut self) -> &mut Checked {
        self.1
    }

    fn state(&self) -> Option<State> {
        self.0.state()
    }
}
