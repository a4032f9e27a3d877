//! Databases of other programs: opened for reading, and never written to.
//!
//! redb's lock keeps writers out while it is read. LMDB's would be written into the lock file, so
//! it is not taken (`bench/databases/lmdb.rs`): what another process has open is refused, and a
//! commit that comes later ends the measurement.

use super::bench::databases::{lmdb, redb};
use super::bench::{Bench, Subject};
use super::mix::Stream;
use super::{AsideError, KEYS_MAX};
use overbank_kit::workload::WorkloadError;
use std::ffi::OsString;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::{fmt, fs, io};

/// LMDB's files in a directory: the data, and the lock.
pub(super) const LMDB_DATA: &str = "data.mdb";
pub(super) const LMDB_LOCK: &str = "lock.mdb";

/// Returns the file with the data of an LMDB database, a directory or a file, and the files that a
/// process which has it open may have locked, by either name of it and either way to open it.
pub(super) fn lmdb_files(path: &Path) -> (PathBuf, Vec<PathBuf>) {
    let data = if path.is_dir() { path.join(LMDB_DATA) } else { path.to_owned() };
    let real = data.canonicalize().unwrap_or_else(|_| data.clone());
    let locks = [&data, &real].into_iter().flat_map(|data| {
        let beside = [data.as_os_str(), "-lock".as_ref()].into_iter().collect::<OsString>();
        [beside.into(), data.with_file_name(LMDB_LOCK)]
    });
    let locks = locks.collect();
    (data, locks)
}

/// What a database is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Redb,
    Lmdb,
}

impl Engine {
    /// Returns the ways to look keys up in it.
    pub fn subjects(self) -> [Subject; 2] {
        match self {
            Engine::Redb => [Subject::Redb, Subject::RedbLatest],
            Engine::Lmdb => [Subject::Lmdb, Subject::LmdbLatest],
        }
    }
}

/// A database to open, and its table; by default the only one.
#[derive(Clone, Debug)]
pub struct Others {
    pub engine: Engine,
    pub path: PathBuf,
    pub table: Option<String>,
}

/// Why a database is not measured.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("is no {0} database")]
    NoDatabase(&'static str),
    #[error("is damaged or cut off: repair it with the program that made it")]
    Damaged,
    #[error("is open in another process: close it there, or name a copy")]
    Held,
    #[error("was not closed when it was last written: open and close it with its program")]
    NotClosed,
    #[error("has no table with a name")]
    Empty,
    #[error("has no table {}; has {}", name.escape_debug(), Names(names))]
    Absent { name: String, names: Vec<String> },
    #[error("has several tables: name one with --table: {}", Names(.0))]
    Several(Vec<String>),
    #[error("table {}: has several values a key; must have one", .0.escape_debug())]
    Multiple(String),
    #[error("table {}: its keys are in an order that its program gave LMDB; must be that of their \
             bytes, or of integers", .0.escape_debug())]
    Order(String),
    #[error("{}; must have keys and values of 64 bits", found.escape_debug())]
    Types { found: String },
    #[error("{0} keys; must be from 1 to {KEYS_MAX}")]
    Keys(usize),
    #[error("redb: {0}")]
    Redb(::redb::Error),
    #[error("LMDB: {0}")]
    Lmdb(::heed::Error),
}

impl From<::heed::Error> for Refused {
    fn from(error: ::heed::Error) -> Refused {
        match error {
            ::heed::Error::Io(error) => Refused::Io(error),
            error => Refused::Lmdb(error),
        }
    }
}

impl Refused {
    /// Returns the table of this name, or the only one.
    pub(super) fn choose(mut names: Vec<String>, wanted: Option<&str>) -> Result<String, Refused> {
        match (wanted, names.len()) {
            (_, 0) => Err(Refused::Empty),
            (Some(name), _) if names.iter().any(|has| has == name) => Ok(name.to_owned()),
            (Some(name), _) => Err(Refused::Absent { name: name.to_owned(), names }),
            (None, 1) => Ok(names.remove(0)),
            (None, _) => Err(Refused::Several(names)),
        }
    }
}

/// Most names that an error lists.
const NAMES_MAX: usize = 20;

/// A list of names.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(NAMES_MAX)];
        // Any text may be a name.
        let shown: Vec<_> = shown.iter().map(|name| name.escape_debug().to_string()).collect();
        f.write_str(&shown.join(", "))?;
        if self.0.len() > NAMES_MAX { f.write_str(", …") } else { Ok(()) }
    }
}

/// A database that is open for reading.
pub struct Opened {
    /// The last part of its path.
    pub name: String,
    pub table: String,
    /// In their order; until a stream has them.
    pub(super) keys: Vec<u64>,
    /// Whether keys are numbers in this machine's order of bytes, which are taken as if they were
    /// in the other.
    pub(super) native: bool,
    pub(super) bench: Box<dyn Bench>,
}

impl Opened {
    /// Draws its keys by Zipf's law with this θ. Takes the list of them.
    ///
    /// # Errors
    /// No such skew.
    pub fn drawn(&mut self, theta: f64, seed: u64) -> Result<Stream, WorkloadError> {
        Stream::drawn_of(take(&mut self.keys), theta, seed)
    }

    /// Looks up these keys in order, again and again. They need not be in the database. Takes the
    /// list of its keys.
    pub fn file(&mut self, mut lookups: Vec<u64>) -> Stream {
        if self.native {
            lookups.iter_mut().for_each(|key| *key = u64::from_be_bytes(key.to_ne_bytes()));
        }
        Stream::file(lookups).over(take(&mut self.keys))
    }
}

impl Others {
    /// Returns its files, which may not all be there.
    pub fn files(&self) -> Vec<PathBuf> {
        match self.engine {
            Engine::Redb => vec![self.path.clone()],
            Engine::Lmdb => {
                let (data, mut files) = lmdb_files(&self.path);
                files.push(data);
                files
            }
        }
    }

    /// Opens it for reading, and lists its keys. `fits` is asked whether their number does before.
    ///
    /// # Errors
    /// It is none, another process has it, or the table has other types.
    pub fn open(
        &self,
        fits: impl Fn(usize) -> Result<(), AsideError>,
        stop: &AtomicBool,
    ) -> Result<Opened, AsideError> {
        let refused = |why| AsideError::Others { path: self.path.clone(), why };
        let mut fits = |keys: usize| match keys {
            1..=KEYS_MAX => fits(keys),
            keys => Err(refused(Refused::Keys(keys))),
        };
        // A pipe would be waited for.
        let special = |file: fs::Metadata| !file.is_file() && !file.is_dir();
        let open = match self.engine {
            Engine::Redb if fs::metadata(&self.path).is_ok_and(special) => {
                return Err(refused(Refused::NoDatabase("redb")));
            }
            Engine::Redb => redb::open,
            Engine::Lmdb => lmdb::open,
        };
        open(&self.path, self.table.as_deref(), &mut fits, stop)
    }
}

pub(super) fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// Runs it; `None` if it panicked. The panic prints nothing.
pub(super) fn unharmed<T>(run: impl FnOnce() -> T) -> Option<T> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = catch_unwind(AssertUnwindSafe(run));
    std::panic::set_hook(hook);
    done.ok()
}

#[cfg(test)]
mod tests;
