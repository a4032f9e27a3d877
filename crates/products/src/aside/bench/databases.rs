//! Databases. Operations come in groups: their lookups share a snapshot, then their writes share a
//! transaction, which waits for no disk. Without a table, there is no adapter either.
#![allow(unsafe_code)] // Opening LMDB.

use super::{
    Bench, Checked, Front, KeyOf, Keys, Part, Session, State, Turn, Work, read_bursts, state, turn,
};
use crate::aside::AsideError;
use crate::aside::mix::{Kind, Op};
use ::heed::byteorder::{BE, NativeEndian as NE};
use ::heed::types::U64;
use ::heed::{CommitOrAbort, Env, EnvFlags, EnvOpenOptions, WithoutTls};
use ::redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};
use overbank_aside::{Source, Timer, heed, redb};
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::Path;
use tempfile::TempDir;

/// Operations of a group.
const GROUP: usize = 1000;

fn directory() -> Result<TempDir, AsideError> {
    let made = tempfile::Builder::new().prefix("overbank-aside-").tempdir();
    made.map_err(|error| AsideError::Directory { within: std::env::temp_dir(), error })
}

/// Names the directory if its disk is full.
fn lies_in<T>(dir: &TempDir, done: Result<T, AsideError>) -> Result<T, AsideError> {
    done.map_err(|error| {
        let io = match &error {
            AsideError::RedbItself(::redb::Error::Io(error))
            | AsideError::Redb(redb::Error::Database(::redb::Error::Io(error)))
            | AsideError::LmdbItself(::heed::Error::Io(error))
            | AsideError::Lmdb(heed::Error::Database(::heed::Error::Io(error))) => error,
            _ => return error,
        };
        match (io.kind(), dir.path().parent()) {
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

/// A database in a turn, with a table in front or alone.
trait Store {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError>;
    fn state(&self) -> Option<State> {
        None
    }
}

/// What a turn works on.
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

    fn checked(&mut self) -> &mut Checked {
        self.1
    }

    fn state(&self) -> Option<State> {
        self.0.state()
    }
}

const NUMBERS: TableDefinition<'static, u64, u64> = TableDefinition::new("numbers");

struct Redb {
    /// Always there between turns.
    database: Option<Database>,
    latest: bool,
    checked: Checked,
    dir: TempDir,
}

pub fn redb(keys: Keys<'_>, latest: bool) -> Result<Box<dyn Bench>, AsideError> {
    let dir = directory()?;
    let build = || {
        let database = Database::create(dir.path().join("numbers")).map_err(::redb::Error::from)?;
        let mut write = database.begin_write().map_err(::redb::Error::from)?;
        write.set_durability(Durability::None).map_err(::redb::Error::from)?;
        let mut table = write.open_table(NUMBERS).map_err(::redb::Error::from)?;
        keys.each(|key, value| table.insert(key, value).map(drop).map_err(::redb::Error::from))?;
        drop(table);
        write.commit().map_err(::redb::Error::from)?;
        Ok(Some(database))
    };
    let database = lies_in(&dir, build())?;
    Ok(Box::new(Redb { database, latest, checked: Checked::default(), dir }))
}

struct RedbAlone<'a> {
    database: &'a Database,
    latest: bool,
}

impl RedbAlone<'_> {
    fn open(&self) -> Result<ReadOnlyTable<u64, u64>, ::redb::Error> {
        Ok(self.database.begin_read()?.open_table(NUMBERS)?)
    }

    fn run(&self, ops: &[Op], checked: &mut Checked) -> Result<(), ::redb::Error> {
        let mut see = |table: &ReadOnlyTable<u64, u64>, key: u64| {
            checked.see(key, table.get(key)?.map(|value| value.value()));
            Ok::<_, ::redb::Error>(())
        };
        if self.latest {
            lookups(ops).try_for_each(|key| see(&self.open()?, key))?;
        } else {
            let table = self.open()?;
            lookups(ops).try_for_each(|key| see(&table, key))?;
        }
        if scans(ops).next().is_some() {
            scan(&self.open()?, ops)?;
        }
        if writes(ops).next().is_none() {
            return Ok(());
        }
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::None)?;
        let mut table = write.open_table(NUMBERS)?;
        for key in writes(ops) {
            table.insert(key, checked.write(key))?;
        }
        drop(table);
        Ok(write.commit()?)
    }
}

impl Store for RedbAlone<'_> {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        Ok(self.run(part.ops, checked)?)
    }
}

fn scan(table: &ReadOnlyTable<u64, u64>, ops: &[Op]) -> Result<(), ::redb::Error> {
    scans(ops).try_for_each(|(key, count)| {
        table.range(key..)?.take(count).for_each(|pair| drop(black_box(pair)));
        Ok(())
    })
}

struct RedbAside<'a> {
    db: &'a redb::Db,
    table: redb::Table<u64, u64>,
    timer: &'a mut Timer,
    latest: bool,
}

impl Store for RedbAside<'_> {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        let RedbAside { db, table, timer, latest } = self;
        if *latest {
            through(&db.latest(table)?, timer, part, checked)?;
        } else {
            through(&db.begin_read()?.open(table)?, timer, part, checked)?;
        }
        if scans(part.ops).next().is_some()
            && let Some(table) = db.begin_read()?.open(table)?.table()
        {
            scan(table, part.ops)?;
        }
        if writes(part.ops).next().is_none() {
            return Ok(());
        }
        let mut write = db.begin_write()?;
        write.set_durability(Durability::None)?;
        let mut opened = write.open(table)?;
        for key in writes(part.ops) {
            opened.insert(key, checked.write(key))?;
        }
        drop(opened);
        Ok(write.commit()?)
    }

    fn state(&self) -> Option<State> {
        Some(state!(self.table.aside(), self.timer))
    }
}

impl Bench for Redb {
    fn turn(&mut self, front: Front<'_>, work: &mut Work<'_>) -> Result<Turn, AsideError> {
        let Redb { database, latest, checked, dir } = self;
        let latest = *latest;
        let Some((config, timer)) = front else {
            let database = database.as_ref().ok_or(AsideError::Gone)?;
            let store = RedbAlone { database, latest };
            return lies_in(dir, turn(&mut Grouped(store, checked), work));
        };
        let mut db = redb::Db::new(database.take().ok_or(AsideError::Gone)?);
        let table = db.table(NUMBERS, config);
        let done = table.map_err(AsideError::from).and_then(|table| {
            let store = RedbAside { db: &db, table, timer, latest };
            turn(&mut Grouped(store, checked), work)
        });
        *database = db.into_database();
        lies_in(dir, done)
    }

    fn set_latest(&mut self, latest: bool) {
        self.latest = latest;
    }

    fn bytes(&self) -> u64 {
        file_bytes(&self.dir.path().join("numbers"))
    }
}

/// LMDB's table, without adapter.
type Numbers = ::heed::Database<'static, U64<BE>, U64<NE>>;

struct Lmdb {
    env: Env<WithoutTls>,
    numbers: Numbers,
    latest: bool,
    checked: Checked,
    dir: TempDir,
}

/// Most bytes of an LMDB file; it takes only what it needs.
const MAP_BYTES: usize = 1 << 38;
const NAME: &str = "numbers";

pub fn lmdb(keys: Keys<'_>, latest: bool) -> Result<Box<dyn Bench>, AsideError> {
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
            let numbers = opener.create_database::<U64<BE>, U64<NE>>(transaction, Some(NAME))?;
            Ok::<_, ::heed::Error>(CommitOrAbort::<_, ()>::Commit(numbers))
        })?;
        let numbers: Numbers = made.commit().ok_or(AsideError::Gone)?;
        let mut write = env.write_txn()?;
        keys.each(|key, value| numbers.put(&mut write, &key, &value))?;
        write.commit()?;
        Ok((env, numbers))
    };
    let (env, numbers) = lies_in(&dir, build())?;
    Ok(Box::new(Lmdb { env, numbers, latest, checked: Checked::default(), dir }))
}

struct LmdbAlone<'a> {
    env: &'a Env<WithoutTls>,
    numbers: Numbers,
    latest: bool,
}

impl Store for LmdbAlone<'_> {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        let LmdbAlone { env, numbers, latest } = self;
        if *latest {
            for key in lookups(part.ops) {
                let read = env.read_txn()?;
                checked.see(key, numbers.get(&read, &key)?);
            }
        }
        let read = env.read_txn()?;
        if !*latest {
            for key in lookups(part.ops) {
                checked.see(key, numbers.get(&read, &key)?);
            }
        }
        for (key, count) in scans(part.ops) {
            numbers.range(&read, &(key..))?.take(count).for_each(|pair| drop(black_box(pair)));
        }
        drop(read);
        if writes(part.ops).next().is_none() {
            return Ok(());
        }
        let mut write = env.write_txn()?;
        for key in writes(part.ops) {
            numbers.put(&mut write, &key, &checked.write(key))?;
        }
        Ok(write.commit()?)
    }
}

struct LmdbAside<'a> {
    db: heed::Db,
    table: heed::Table<[u8; 8], u64>,
    timer: &'a mut Timer,
    latest: bool,
}

impl Store for LmdbAside<'_> {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        let LmdbAside { db, table, timer, latest } = self;
        if *latest {
            through(&db.latest(table)?, timer, part, checked)?;
        }
        let read = db.begin_read()?;
        let snapshot = read.open(table)?;
        if !*latest {
            through(&snapshot, timer, part, checked)?;
        }
        for (key, count) in scans(part.ops) {
            let range = snapshot.range(<[u8; 8]>::of(key)..)?;
            range.take(count).for_each(|pair| drop(black_box(pair)));
        }
        drop(read);
        if writes(part.ops).next().is_none() {
            return Ok(());
        }
        let mut write = db.begin_write()?;
        for key in writes(part.ops) {
            write.put(table, KeyOf::of(key), checked.write(key))?;
        }
        Ok(write.commit()?)
    }

    fn state(&self) -> Option<State> {
        Some(state!(self.table.aside(), self.timer))
    }
}

impl Bench for Lmdb {
    fn turn(&mut self, front: Front<'_>, work: &mut Work<'_>) -> Result<Turn, AsideError> {
        let Lmdb { env, numbers, latest, checked, dir } = self;
        let (numbers, latest) = (*numbers, *latest);
        let Some((config, timer)) = front else {
            let store = LmdbAlone { env, numbers, latest };
            return lies_in(dir, turn(&mut Grouped(store, checked), work));
        };
        let mut db = heed::Db::new(env.clone());
        let table = db.table(NAME, config)?;
        let store = LmdbAside { db, table, timer, latest };
        lies_in(dir, turn(&mut Grouped(store, checked), work))
    }

    fn set_latest(&mut self, latest: bool) {
        self.latest = latest;
    }

    fn bytes(&self) -> u64 {
        file_bytes(&self.dir.path().join("data.mdb"))
    }
}
