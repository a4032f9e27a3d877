//! LMDB: built, or another program's.
//!
//! The lock file of another program's database is no less its own than the data: LMDB would write
//! readers into it. So there is no lock, and what the lock is for is checked instead: that no other
//! process has the database open at first, and that no commit has come since.
#![allow(unsafe_code)] // Opening LMDB, and asking for locks.

use super::{
    Grouped, Store, again, directory, file_bytes, lies_in, lookups, scans, through, writes,
};
use crate::aside::AsideError;
use crate::aside::bench::{Bench, Checked, Front, KeyOf, Keys, Match, Part, STEP};
use crate::aside::bench::{Side, Sides, State, go_on};
use crate::aside::others::{LMDB_DATA, Opened, Refused, lmdb_files, name_of};
use ::heed::byteorder::NativeEndian;
use ::heed::types::{Bytes, U64};
use ::heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, MdbError, RoTxn, WithoutTls};
use overbank_aside::{Timer, heed};
use std::fs::File;
use std::hint::black_box;
use std::io;
use std::ops::Bound;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// The table, without adapter: keys as bytes, since heed's numbers would allocate memory.
type Numbers = Database<'static, Bytes, U64<NativeEndian>>;

struct Lmdb {
    env: Env<WithoutTls>,
    numbers: Numbers,
    name: String,
    latest: bool,
    checked: Checked,
    file: PathBuf,
    /// Of one that was built.
    dir: Option<TempDir>,
    /// The newest commit of another program's.
    commit: Option<usize>,
}

/// Most bytes of an LMDB file; it takes only what it needs.
const MAP_BYTES: usize = 1 << 38;
const NAME: &str = "numbers";

fn bytes(key: u64) -> [u8; 8] {
    KeyOf::of(key)
}

pub(in crate::aside::bench) fn lmdb(
    keys: Keys<'_>,
    latest: bool,
) -> Result<Box<dyn Bench>, AsideError> {
    let dir = directory()?;
    let build = || {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES).max_dbs(1);
        // SAFETY: the directory is this process's, so only LMDB changes the file. Without syncing
        // it may lose commits with the machine, which do not outlive the process.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC);
            options.open(dir.path())
        }?;
        let made = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
            let numbers = opener.create_database(transaction, Some(NAME))?;
            Ok::<_, ::heed::Error>(CommitOrAbort::<_, ()>::Commit(numbers))
        })?;
        let numbers: Numbers = made.commit().ok_or(AsideError::Gone)?;
        let mut write = env.write_txn()?;
        keys.each(|key, value| numbers.put(&mut write, &bytes(key), &value))?;
        write.commit()?;
        Ok((env, numbers))
    };
    let (env, numbers) = lies_in(Some(&dir), build())?;
    let (name, file, commit) = (NAME.to_owned(), dir.path().join(LMDB_DATA), None);
    let (checked, dir) = (Checked::default(), Some(dir));
    Ok(Box::new(Lmdb { env, numbers, name, latest, checked, file, dir, commit }))
}

/// Flags in the record of a database (`MDB_db`), its length, and where they are.
const DUP_SORT: u16 = 0x04;
const INTEGER_KEY: u16 = 0x08;
const RECORD_BYTES: usize = 48;
const FLAGS: std::ops::Range<usize> = 4..6;

/// Opens another program's database for reading, and lists its keys. `fits` is asked before.
pub fn open(
    path: &Path,
    table: Option<&str>,
    fits: &mut dyn FnMut(usize) -> Result<(), AsideError>,
    stop: &AtomicBool,
) -> Result<Opened, AsideError> {
    let refused = |why: Refused| AsideError::Others { path: path.to_owned(), why };
    let (env, file) = open_env(path).map_err(refused)?;
    let commit = Some(env.info().last_txn_id);
    let (numbers, name, native) = open_numbers(&env, table).map_err(refused)?;
    let read = env.read_txn().map_err(|error| refused(error.into()))?;
    fits(numbers.len(&read).map_err(|error| refused(error.into()))? as usize)?;
    let mut keys = Vec::new();
    for pair in numbers.remap_data_type::<Bytes>().iter(&read).map_err(AsideError::from)? {
        let (key, value) = pair.map_err(|error| refused(error.into()))?;
        let (Ok(key), 8) = (key.try_into(), value.len()) else {
            let found = format!("a key of {} bytes with a value of {}", key.len(), value.len());
            return Err(refused(Refused::Types { found }));
        };
        let number = |key: u64| if native { u64::from_ne_bytes(key.to_be_bytes()) } else { key };
        let key = u64::from_be_bytes(key);
        if keys.last().is_some_and(|last| number(*last) >= number(key)) {
            return Err(refused(Refused::Order(name)));
        }
        keys.push(key);
        if keys.len() % STEP == 0 {
            go_on(stop)?;
        }
    }
    drop(read);
    let (checked, dir, table) = (Checked::others(), None, name.clone());
    let bench = Lmdb { env, numbers, name, latest: false, checked, file, dir, commit };
    Ok(Opened { name: name_of(path), table, keys, native, bench: Box::new(bench) })
}

/// Opens an environment, a directory or a file. Also returns its file.
fn open_env(path: &Path) -> Result<(Env<WithoutTls>, PathBuf), Refused> {
    let mut flags = EnvFlags::READ_ONLY | EnvFlags::NO_LOCK;
    if !path.is_dir() {
        flags |= EnvFlags::NO_SUB_DIR;
    }
    let (file, locks) = lmdb_files(path);
    let length = file.metadata()?.len();
    if length == 0 {
        return Err(Refused::NoDatabase("LMDB"));
    }
    for lock in locks {
        if is_locked(&lock)? {
            return Err(Refused::Held);
        }
    }
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.max_dbs(1);
    // SAFETY: no process has the database open. One that opens it now could overwrite pages while
    // they are read, which is wrong data until `recheck` sees the commit, but within the map.
    let env = unsafe {
        options.flags(flags);
        options.open(path)
    };
    let env = env.map_err(|error| match error {
        ::heed::Error::Mdb(MdbError::Invalid | MdbError::VersionMismatch) => {
            Refused::NoDatabase("LMDB")
        }
        error => error.into(),
    })?;
    let pages = (env.info().last_page_number as u64).saturating_add(1);
    let page_bytes = u64::from(env.unnamed_database_stat().page_size);
    if pages.saturating_mul(page_bytes) > length {
        return Err(Refused::Damaged);
    }
    Ok((env, file))
}

/// Returns whether an LMDB process has the lock file.
fn is_locked(lock: &Path) -> io::Result<bool> {
    let file = match File::open(lock) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let mut asked = libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: reads and writes one `flock`. Of open file descriptions, so that this process's own
    // locks count too.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut asked) } {
        0 => Ok(asked.l_type != libc::F_UNLCK as libc::c_short),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens the named database. Also returns its name, and whether its keys are numbers in this
/// machine's order of bytes.
fn open_numbers(
    env: &Env<WithoutTls>,
    table: Option<&str>,
) -> Result<(Numbers, String, bool), Refused> {
    let mut found = None;
    let opened = env.open_databases_and_commit(env.read_txn()?, |opener, transaction| {
        let names = opener.open_database::<Bytes, Bytes>(transaction, None)?;
        let names = names.ok_or(Refused::Damaged)?;
        let record = |name: &str| {
            let record = names.get(transaction, name.as_bytes())?;
            Ok::<_, Refused>(record.filter(|record| record.len() == RECORD_BYTES))
        };
        let name = match table {
            Some(name) if record(name)?.is_some() => name.to_owned(),
            _ => Refused::choose(named(&names, transaction)?, table)?,
        };
        let record = record(&name)?.unwrap_or_default();
        let flags = record.get(FLAGS).map_or(0, |flags| u16::from_ne_bytes([flags[0], flags[1]]));
        if flags & DUP_SORT != 0 {
            return Err(Refused::Multiple(name));
        }
        let numbers = opener.open_database(transaction, Some(&name))?.ok_or(Refused::Damaged)?;
        found = Some((name, flags & INTEGER_KEY != 0));
        Ok(CommitOrAbort::<_, ()>::Commit(numbers))
    })?;
    let (Some(numbers), Some((name, native))) = (opened.commit(), found) else {
        return Err(Refused::Damaged);
    };
    Ok((numbers, name, native))
}

/// Returns names of databases, of the first records: keys of the unnamed one whose values have the
/// length of a record.
fn named(
    names: &Database<'_, Bytes, Bytes>,
    transaction: &RoTxn<'_, WithoutTls>,
) -> Result<Vec<String>, Refused> {
    let mut found = Vec::new();
    for pair in names.iter(transaction)?.take(STEP) {
        let (name, record) = pair?;
        // heed panics at a name with a 0.
        if let (Ok(name), RECORD_BYTES) = (std::str::from_utf8(name), record.len())
            && !name.contains('\0')
        {
            found.push(name.to_owned());
        }
    }
    Ok(found)
}

/// Fails if another process has committed.
fn unchanged(env: &Env<WithoutTls>, commit: Option<usize>) -> Result<(), AsideError> {
    let changed = commit.is_some_and(|commit| env.info().last_txn_id != commit);
    if changed { Err(AsideError::Changed) } else { Ok(()) }
}

struct LmdbAlone<'a> {
    env: &'a Env<WithoutTls>,
    numbers: Numbers,
    latest: bool,
    commit: Option<usize>,
}

impl Store for LmdbAlone<'_> {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        let LmdbAlone { env, numbers, latest, .. } = self;
        if *latest {
            for key in lookups(part.ops) {
                let read = env.read_txn()?;
                checked.see(key, numbers.get(&read, &bytes(key))?);
            }
        }
        let read = env.read_txn()?;
        if !*latest {
            for key in lookups(part.ops) {
                checked.see(key, numbers.get(&read, &bytes(key))?);
            }
        }
        for (key, count) in scans(part.ops) {
            let from = bytes(key);
            let from: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(&from), Bound::Unbounded);
            let range = numbers.range(&read, &from)?;
            range.take(count).for_each(|pair| drop(black_box(pair)));
        }
        drop(read);
        if writes(part.ops).next().is_none() {
            return Ok(());
        }
        let mut write = env.write_txn()?;
        for key in writes(part.ops) {
            numbers.put(&mut write, &bytes(key), &checked.write(key))?;
        }
        Ok(write.commit()?)
    }

    fn recheck(&self, _: &[(u64, Option<u64>)]) -> Result<u64, AsideError> {
        unchanged(self.env, self.commit).map(|()| 0)
    }
}

struct LmdbAside<'a> {
    db: heed::Db,
    table: heed::Table<[u8; 8], u64>,
    timer: &'a mut Timer,
    latest: bool,
    env: &'a Env<WithoutTls>,
    commit: Option<usize>,
}

impl Store for LmdbAside<'_> {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        let LmdbAside { db, table, timer, latest, .. } = self;
        if *latest {
            through(&db.latest(table)?, timer, part, checked)?;
        }
        let read = db.begin_read()?;
        let snapshot = read.open(table)?;
        if !*latest {
            through(&snapshot, timer, part, checked)?;
        }
        for (key, count) in scans(part.ops) {
            let range = snapshot.range(bytes(key)..)?;
            range.take(count).for_each(|pair| drop(black_box(pair)));
        }
        drop(read);
        if writes(part.ops).next().is_none() {
            return Ok(());
        }
        let mut write = db.begin_write()?;
        for key in writes(part.ops) {
            write.put(table, bytes(key), checked.write(key))?;
        }
        Ok(write.commit()?)
    }

    fn recheck(&self, sample: &[(u64, Option<u64>)]) -> Result<u64, AsideError> {
        unchanged(self.env, self.commit)?;
        Ok(again(&self.db.begin_read()?.open(&self.table)?, sample)?)
    }

    fn state(&self) -> Option<State> {
        Some(State::of(self.table.aside(), self.timer))
    }
}

impl Bench for Lmdb {
    fn lend(&mut self, front: Front<'_>, to: Match<'_>) -> Result<(), AsideError> {
        let Lmdb { env, numbers, name, latest, checked, dir, commit, .. } = self;
        let (numbers, latest, commit) = (*numbers, *latest, *commit);
        let alone = LmdbAlone { env, numbers, latest, commit };
        let Some((config, timer)) = front else {
            let mut alone = Grouped(alone, checked);
            return lies_in(dir.as_ref(), to(Sides { alone: Side(&mut alone), aside: None }));
        };
        let mut unwritten = checked.clone();
        let mut db = heed::Db::new(env.clone());
        let table = db.table(name, config)?;
        let mut aside = Grouped(LmdbAside { db, table, timer, latest, env, commit }, checked);
        let mut alone = Grouped(alone, &mut unwritten);
        let sides = Sides { alone: Side(&mut alone), aside: Some(Side(&mut aside)) };
        lies_in(dir.as_ref(), to(sides))
    }

    fn set_latest(&mut self, latest: bool) {
        self.latest = latest;
    }

    fn bytes(&self) -> u64 {
        file_bytes(&self.file)
    }
}
