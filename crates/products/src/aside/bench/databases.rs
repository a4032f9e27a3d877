//! Databases. Operations come in groups: their lookups share a snapshot, then their writes share a
//! transaction, which waits for no disk.
#![allow(unsafe_code)] // Opening LMDB.

use super::{
    Bench, Checked, Front, KeyOf, Part, Session, Turn, config, read, read_bursts, turn, value,
};
use crate::aside::AsideError;
use crate::aside::mix::{Kind, Op};
use ::heed::{Env, EnvFlags, EnvOpenOptions, WithoutTls};
use ::redb::{Database, Durability, TableDefinition};
use overbank_aside::lookaside::Report;
use overbank_aside::{Source, Timer, Watched, heed, redb};
use std::hint::black_box;
use std::path::Path;
use tempfile::TempDir;

/// Operations of a group.
const GROUP: usize = 1000;
const NUMBERS: TableDefinition<'static, u64, u64> = TableDefinition::new("numbers");

fn directory() -> Result<TempDir, AsideError> {
    tempfile::Builder::new().prefix("overbank-aside-").tempdir().map_err(AsideError::Directory)
}

fn file_bytes(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

/// The lookups of a group.
fn reads<S: Source<Key: KeyOf, Value = u64>>(
    source: &S,
    timer: &mut Option<Timer>,
    part: Part<'_>,
    checked: &mut Checked,
) -> Result<(), S::Error> {
    if let (Some(timer), true) = (&mut *timer, part.bursts) {
        return read_bursts(source, timer, part.ops, checked);
    }
    let mut reads = part.ops.iter().filter(|op| matches!(op.kind, Kind::Read | Kind::Modify));
    reads.try_for_each(|op| read(source, timer, op.key, checked))
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

struct Redb {
    /// Always there between turns.
    database: Option<Database>,
    latest: bool,
    version: u32,
    dir: TempDir,
}

pub fn redb(keys: &[u64], latest: bool) -> Result<Box<dyn Bench>, AsideError> {
    let dir = directory()?;
    let database = Database::create(dir.path().join("numbers")).map_err(::redb::Error::from)?;
    let db = redb::Db::new(database);
    let mut write = db.begin_write()?;
    write.set_durability(Durability::None)?;
    let mut table = write.other(NUMBERS)?;
    for key in keys {
        table.insert(*key, value(*key, 0)).map_err(::redb::Error::from)?;
    }
    drop(table);
    write.commit()?;
    Ok(Box::new(Redb { database: db.into_database(), latest, version: 0, dir }))
}

/// What a turn of redb works on.
struct RedbState {
    db: redb::Db,
    table: redb::Table<u64, u64>,
    timer: Option<Timer>,
    latest: bool,
    version: u32,
}

impl RedbState {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        let RedbState { db, table, timer, .. } = self;
        if self.latest {
            reads(&db.latest(table)?, timer, part, checked)?;
        } else {
            reads(&db.begin_read()?.open(table)?, timer, part, checked)?;
        }
        for (key, count) in scans(part.ops) {
            let read = db.begin_read()?.open(table)?;
            if let Some(table) = read.table() {
                let range = table.range(key..).map_err(::redb::Error::from)?;
                range.take(count).for_each(|pair| drop(black_box(pair)));
            }
        }
        if writes(part.ops).next().is_none() {
            return Ok(());
        }
        let mut write = db.begin_write()?;
        write.set_durability(Durability::None)?;
        let mut opened = write.open(table)?;
        for key in writes(part.ops) {
            opened.insert(key, value(key, self.version))?;
        }
        drop(opened);
        Ok(write.commit()?)
    }
}

macro_rules! session {
    ($state:ty) => {
        impl Session for $state {
            fn run(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
                let mut groups = part.ops.chunks(GROUP);
                groups.try_for_each(|ops| self.group(Part { ops, ..part }, checked))
            }
            fn timer(&self) -> Option<&Timer> {
                self.timer.as_ref()
            }
            fn table(&self) -> (usize, usize, Report) {
                let table = self.table.aside();
                (table.slots(), table.bytes(), table.gate().report())
            }
        }
    };
}

session!(RedbState);
session!(LmdbState);

impl Bench for Redb {
    fn turn(&mut self, front: &Front, warm: &[Op], parts: &[Part<'_>]) -> Result<Turn, AsideError> {
        self.version += 1;
        let mut db = redb::Db::new(self.database.take().ok_or(AsideError::Gone)?);
        let table = db.table(NUMBERS, &config(front))?;
        let (timer, latest) = (front.is_some().then(Timer::new), self.latest);
        let mut state = RedbState { db, table, timer, latest, version: self.version };
        let turn = turn(&mut state, front, warm, parts);
        self.database = state.db.into_database();
        turn
    }

    fn set_latest(&mut self, latest: bool) {
        self.latest = latest;
    }

    fn bytes(&self) -> u64 {
        file_bytes(&self.dir.path().join("numbers"))
    }
}

struct Lmdb {
    env: Env<WithoutTls>,
    latest: bool,
    version: u32,
    dir: TempDir,
}

/// Most bytes of an LMDB file; it takes only what it needs.
const MAP_BYTES: usize = 1 << 38;
const NAME: &str = "numbers";

pub fn lmdb(keys: &[u64], latest: bool) -> Result<Box<dyn Bench>, AsideError> {
    let dir = directory()?;
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(MAP_BYTES).max_dbs(1);
    // SAFETY: the directory is this process's, so only LMDB changes the file. Without syncing it
    // may lose commits with the machine, which do not outlive the process.
    let env = unsafe {
        options.flags(EnvFlags::NO_SYNC);
        options.open(dir.path())
    }?;
    let mut db = heed::Db::new(env.clone());
    let table = db.create::<[u8; 8], u64>(NAME, &config(&None))?;
    let mut write = db.begin_write()?;
    for key in keys {
        write.put(&table, KeyOf::of(*key), value(*key, 0))?;
    }
    write.commit()?;
    Ok(Box::new(Lmdb { env, latest, version: 0, dir }))
}

/// What a turn of LMDB works on.
struct LmdbState {
    db: heed::Db,
    table: heed::Table<[u8; 8], u64>,
    timer: Option<Timer>,
    latest: bool,
    version: u32,
}

impl LmdbState {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        let LmdbState { db, table, timer, .. } = self;
        if self.latest {
            reads(&db.latest(table)?, timer, part, checked)?;
        }
        let read = db.begin_read()?;
        let snapshot = read.open(table)?;
        if !self.latest {
            reads(&snapshot, timer, part, checked)?;
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
            write.put(table, KeyOf::of(key), value(key, self.version))?;
        }
        Ok(write.commit()?)
    }
}

impl Bench for Lmdb {
    fn turn(&mut self, front: &Front, warm: &[Op], parts: &[Part<'_>]) -> Result<Turn, AsideError> {
        self.version += 1;
        let mut db = heed::Db::new(self.env.clone());
        let table = db.table(NAME, &config(front))?;
        let (timer, latest) = (front.is_some().then(Timer::new), self.latest);
        let mut state = LmdbState { db, table, timer, latest, version: self.version };
        turn(&mut state, front, warm, parts)
    }

    fn set_latest(&mut self, latest: bool) {
        self.latest = latest;
    }

    fn bytes(&self) -> u64 {
        file_bytes(&self.dir.path().join("data.mdb"))
    }
}
