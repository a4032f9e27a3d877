//! redb: built, or another program's.

use super::{
    Grouped, Store, again, directory, file_bytes, lies_in, lookups, scans, through, writes,
};
use crate::aside::AsideError;
use crate::aside::bench::{Bench, Checked, Front, Keys, Match, Part, STEP};
use crate::aside::bench::{Side, Sides, State, go_on};
use crate::aside::mix::Op;
use crate::aside::others::{Opened, Refused, name_of, unharmed};
use ::redb::{
    Database, DatabaseError, Durability, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase,
    ReadableTable, ReadableTableMetadata, StorageError, TableDefinition, TableError, TableHandle,
};
use overbank_aside::{Timer, redb};
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

type Numbers = TableDefinition<'static, u64, u64>;
const NUMBERS: Numbers = TableDefinition::new("numbers");

enum Base {
    Own(Database),
    Others(ReadOnlyDatabase),
}

impl Base {
    fn read(&self) -> &dyn ReadableDatabase {
        match self {
            Base::Own(database) => database,
            Base::Others(database) => database,
        }
    }
}

struct Redb {
    /// Always there between turns.
    base: Option<Base>,
    numbers: Numbers,
    latest: bool,
    checked: Checked,
    file: PathBuf,
    /// Of one that was built.
    dir: Option<TempDir>,
}

pub(in crate::aside::bench) fn redb(
    keys: Keys<'_>,
    latest: bool,
) -> Result<Box<dyn Bench>, AsideError> {
    let dir = directory()?;
    let file = dir.path().join("numbers");
    let build = || {
        let database = Database::create(&file).map_err(::redb::Error::from)?;
        let mut write = database.begin_write().map_err(::redb::Error::from)?;
        write.set_durability(Durability::None).map_err(::redb::Error::from)?;
        let mut table = write.open_table(NUMBERS).map_err(::redb::Error::from)?;
        keys.each(|key, value| table.insert(key, value).map(drop).map_err(::redb::Error::from))?;
        drop(table);
        write.commit().map_err(::redb::Error::from)?;
        Ok(Some(Base::Own(database)))
    };
    let base = lies_in(Some(&dir), build())?;
    let (numbers, checked, dir) = (NUMBERS, Checked::default(), Some(dir));
    Ok(Box::new(Redb { base, numbers, latest, checked, file, dir }))
}

/// Opens another program's database for reading, and lists its keys. `fits` is asked before.
pub fn open(
    path: &Path,
    table: Option<&str>,
    fits: &mut dyn FnMut(usize) -> Result<(), AsideError>,
    stop: &AtomicBool,
) -> Result<Opened, AsideError> {
    let refused = |why: Refused| AsideError::Others { path: path.to_owned(), why };
    let failed = |error: ::redb::Error| refused(Refused::Redb(error));
    // redb panics at some damaged files.
    let opened = unharmed(|| {
        let database = ReadOnlyDatabase::open(path).map_err(|error| refused(of_opening(error)))?;
        let read = database.begin_read().map_err(|error| failed(error.into()))?;
        let list = read.list_tables().map_err(|error| failed(error.into()))?;
        let names = list.map(|table| table.name().to_owned()).collect();
        let name = Refused::choose(names, table).map_err(refused)?;
        // Once in a run, since redb's handles borrow the name.
        let numbers = Numbers::new(name.clone().leak());
        let table = read.open_table(numbers).map_err(|error| match error {
            TableError::TableTypeMismatch { .. } | TableError::TypeDefinitionChanged { .. } => {
                refused(Refused::Types { found: error.to_string() })
            }
            TableError::TableIsMultimap(name) => refused(Refused::Multiple(name)),
            error => failed(error.into()),
        })?;
        fits(table.len().map_err(|error| failed(error.into()))? as usize)?;
        let mut keys = Vec::new();
        for pair in table.iter().map_err(|error| failed(error.into()))? {
            let (key, _) = pair.map_err(|error| failed(error.into()))?;
            keys.push(key.value());
            if keys.len() % STEP == 0 {
                go_on(stop)?;
            }
        }
        let base = Some(Base::Others(database));
        let (checked, file) = (Checked::others(), path.to_owned());
        let bench = Box::new(Redb { base, numbers, latest: false, checked, file, dir: None });
        Ok(Opened { name: name_of(path), table: name, keys, native: false, bench })
    });
    opened.unwrap_or_else(|| Err(refused(Refused::Damaged)))
}

fn of_opening(error: DatabaseError) -> Refused {
    match error {
        DatabaseError::DatabaseAlreadyOpen => Refused::Held,
        DatabaseError::RepairAborted => Refused::NotClosed,
        DatabaseError::Storage(StorageError::Io(error))
            if error.kind() == ErrorKind::InvalidData =>
        {
            Refused::NoDatabase("redb")
        }
        DatabaseError::Storage(StorageError::Io(error)) => match error.kind() {
            ErrorKind::UnexpectedEof => Refused::Damaged,
            _ => Refused::Io(error),
        },
        error => Refused::Redb(error.into()),
    }
}

/// Where transactions begin: in the database, or in the adapter that has it.
enum From<'a> {
    Base(&'a Base),
    Db(&'a redb::Db),
}

struct RedbAlone<'a> {
    from: From<'a>,
    numbers: Numbers,
    latest: bool,
}

impl RedbAlone<'_> {
    fn open(&self) -> Result<ReadOnlyTable<u64, u64>, redb::Error> {
        Ok(match self.from {
            From::Base(base) => {
                let read = base.read().begin_read().map_err(::redb::Error::from)?;
                read.open_table(self.numbers)?
            }
            From::Db(db) => db.begin_read()?.transaction().open_table(self.numbers)?,
        })
    }

    fn read(&self, ops: &[Op], checked: &mut Checked) -> Result<(), redb::Error> {
        let mut see = |table: &ReadOnlyTable<u64, u64>, key: u64| {
            checked.see(key, table.get(key)?.map(|value| value.value()));
            Ok::<_, redb::Error>(())
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
        Ok(())
    }

    fn write(&self, ops: &[Op], checked: &mut Checked) -> Result<(), redb::Error> {
        if writes(ops).next().is_none() {
            return Ok(());
        }
        let From::Base(Base::Own(database)) = self.from else { return Err(redb::Error::ReadOnly) };
        let mut write = database.begin_write()?;
        write.set_durability(Durability::None)?;
        let mut table = write.open_table(self.numbers)?;
        for key in writes(ops) {
            table.insert(key, checked.write(key))?;
        }
        drop(table);
        Ok(write.commit()?)
    }
}

impl Store for RedbAlone<'_> {
    fn group(&mut self, part: Part<'_>, checked: &mut Checked) -> Result<(), AsideError> {
        self.read(part.ops, checked)?;
        Ok(self.write(part.ops, checked)?)
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

    fn recheck(&self, sample: &[(u64, Option<u64>)]) -> Result<u64, AsideError> {
        Ok(again(&self.db.begin_read()?.open(&self.table)?, sample)?)
    }

    fn state(&self) -> Option<State> {
        Some(State::of(self.table.aside(), self.timer))
    }
}

impl Bench for Redb {
    fn lend(&mut self, front: Front<'_>, to: Match<'_>) -> Result<(), AsideError> {
        let Redb { base, numbers, latest, checked, dir, .. } = self;
        let (numbers, latest) = (*numbers, *latest);
        let Some((config, timer)) = front else {
            let from = From::Base(base.as_ref().ok_or(AsideError::Gone)?);
            let mut alone = Grouped(RedbAlone { from, numbers, latest }, checked);
            return lies_in(dir.as_ref(), to(Sides { alone: Side(&mut alone), aside: None }));
        };
        let (mut db, own) = match base.take().ok_or(AsideError::Gone)? {
            Base::Own(database) => (redb::Db::new(database), true),
            Base::Others(database) => (redb::Db::read_only(database), false),
        };
        let mut unwritten = checked.clone();
        let table = db.table(numbers, config);
        let done = table.map_err(AsideError::from).and_then(|table| {
            let alone = RedbAlone { from: From::Db(&db), numbers, latest };
            let mut alone = Grouped(alone, &mut unwritten);
            let mut aside = Grouped(RedbAside { db: &db, table, timer, latest }, checked);
            to(Sides { alone: Side(&mut alone), aside: Some(Side(&mut aside)) })
        });
        *base = if own {
            db.into_database().map(Base::Own)
        } else {
            db.into_read_only().map(Base::Others)
        };
        lies_in(dir.as_ref(), done)
    }

    fn set_latest(&mut self, latest: bool) {
        self.latest = latest;
    }

    fn bytes(&self) -> u64 {
        file_bytes(&self.file)
    }
}
