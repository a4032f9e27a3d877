//! redb: tables in front of tables.
//!
//! redb shows no number of a snapshot. So commits are counted here, and the newest published
//! number, read before a transaction begins, is a lower bound of its snapshot's: all that the bound
//! admits holds for the snapshot too. No other process writes: redb locks the file.
//!
//! A lookup of the newest state ([`Db::get_latest`]) begins a transaction only if the table has no
//! answer, which saves more than the walk.
//!
//! Tables of several values a key (`MultimapTable`) have no table in front: they are no type that
//! [`Db::table`] takes. A write transaction reaches them, and tables that are not in front of
//! anything, by [`Write::other`] and [`Write::other_multimap`].

use crate::look::{Watched, look, look_batch};
use crate::snapshot::{Changes, Handle, Stranger, Tables};
use crate::timer::Source;
use ::redb::{
    Database, Durability, Key, MultimapTable, MultimapTableDefinition, ReadOnlyDatabase,
    ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, Savepoint, TableDefinition,
    TableError, TableHandle, Value, WriteTransaction,
};
use overbank::lookaside::{self, Config, Gate, Plain, VersionError, Versioned};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why an operation failed. What the transaction had changed is not in any table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// redb failed.
    #[error(transparent)]
    Database(#[from] ::redb::Error),
    /// A table to put in front cannot have this size.
    #[error(transparent)]
    Table(#[from] lookaside::Error),
    /// The number of a commit is used up, after 2⁴⁸.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// A table in front is there already, so the table must be reached through it.
    #[error("table {0}: has a look-aside table; use its handle")]
    Aside(String),
    /// A handle that another database gave.
    #[error("table {0}: the handle is of another database")]
    OtherDatabase(String),
    /// The database was opened for reading only.
    #[error("the database is read-only")]
    ReadOnly,
}

macro_rules! from {
    ($($error:ident),+) => {
        $(impl From<::redb::$error> for Error {
            fn from(error: ::redb::$error) -> Self {
                Error::Database(error.into())
            }
        })+
    };
}

from!(StorageError, TableError, TransactionError, CommitError, SavepointError, SetDurabilityError);

/// A key that redb and a look-aside table can have.
pub trait AsideKey: for<'a> Key<SelfType<'a> = Self> + Plain {}
impl<K: for<'a> Key<SelfType<'a> = K> + Plain> AsideKey for K {}

/// A value that redb and a look-aside table can have.
pub trait AsideValue: for<'a> Value<SelfType<'a> = Self> + Plain {}
impl<V: for<'a> Value<SelfType<'a> = V> + Plain> AsideValue for V {}

enum Base {
    Writable(Database),
    ReadOnly(ReadOnlyDatabase),
}

/// A database, owned, and its look-aside tables.
///
/// ```
/// use overbank_aside::{lookaside::Config, redb::Db};
/// use redb::TableDefinition;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("numbers.redb");
/// let mut db = Db::new(redb::Database::create(path)?);
/// let numbers = db.table(TableDefinition::<u64, u64>::new("numbers"), &Config::entries(1 << 10))?;
///
/// let write = db.begin_write()?;
/// write.open(&numbers)?.insert(7, 70)?;
/// write.commit()?;
/// assert_eq!(db.get_latest(&numbers, 7)?, Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Db {
    base: Base,
    tables: Tables,
    /// Commits of this process; the tables' numbers.
    published: AtomicU64,
}

/// A handle to a table and the look-aside table in front of it.
pub struct Table<K: AsideKey, V: AsideValue> {
    definition: TableDefinition<'static, K, V>,
    handle: Handle<K, V>,
}

impl<K: AsideKey, V: AsideValue> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Table { definition: self.definition, handle: self.handle.clone() }
    }
}

impl<K: AsideKey, V: AsideValue> Table<K, V> {
    /// Returns the look-aside table, for its counters and its gate.
    pub fn aside(&self) -> &(impl Watched + use<K, V>) {
        &*self.handle.table
    }
}

impl Db {
    /// Takes a database. Nothing else in the process can open it meanwhile.
    pub fn new(database: Database) -> Self {
        Db::on(Base::Writable(database))
    }

    /// Takes a database opened for reading only. Its file does not change meanwhile: redb's lock
    /// keeps writers out.
    pub fn read_only(database: ReadOnlyDatabase) -> Self {
        Db::on(Base::ReadOnly(database))
    }

    /// Returns the database, if it was opened for writing.
    pub fn into_database(self) -> Option<Database> {
        match self.base {
            Base::Writable(database) => Some(database),
            Base::ReadOnly(_) => None,
        }
    }

    /// Returns the database, if it was opened for reading only.
    pub fn into_read_only(self) -> Option<ReadOnlyDatabase> {
        match self.base {
            Base::Writable(_) => None,
            Base::ReadOnly(database) => Some(database),
        }
    }

    fn on(base: Base) -> Self {
        Db { base, tables: Tables::new(), published: AtomicU64::new(0) }
    }

    /// Puts a look-aside table in front of a table, which need not exist yet.
    ///
    /// Waits for a write transaction that began before this database was handed over, since that
    /// would write past the table: do not call it from the thread that holds one.
    ///
    /// # Errors
    /// There is one already, it cannot have this size, or redb failed.
    pub fn table<K: AsideKey, V: AsideValue>(
        &mut self,
        definition: TableDefinition<'static, K, V>,
        config: &Config,
    ) -> Result<Table<K, V>, Error> {
        if self.tables.has(definition.name()) {
            return Err(Error::Aside(definition.name().to_owned()));
        }
        let table = Versioned::new(config)?;
        if let Base::Writable(database) = &self.base {
            database.begin_write()?.abort()?;
        }
        Ok(Table { definition, handle: self.tables.add(definition.name(), table) })
    }

    fn begin(&self) -> Result<ReadTransaction, Error> {
        Ok(match &self.base {
            Base::Writable(database) => database.begin_read()?,
            Base::ReadOnly(database) => database.begin_read()?,
        })
    }

    fn check<K: AsideKey, V: AsideValue>(&self, table: &Table<K, V>) -> Result<(), Error> {
        let name = || table.definition.name().to_owned();
        self.tables.check(&table.handle).map_err(|Stranger| Error::OtherDatabase(name()))
    }

    /// Begins a read transaction: a snapshot.
    ///
    /// # Errors
    /// redb failed.
    pub fn begin_read(&self) -> Result<Read<'_>, Error> {
        // Before the transaction: its snapshot has this commit, and perhaps a later one.
        let number = self.published.load(Ordering::Acquire);
        Ok(Read { db: self, number, transaction: self.begin()? })
    }

    /// Begins a write transaction; waits for another one's end.
    ///
    /// # Errors
    /// redb failed, or the database is read-only.
    pub fn begin_write(&self) -> Result<Write<'_>, Error> {
        let Base::Writable(database) = &self.base else { return Err(Error::ReadOnly) };
        let transaction = database.begin_write()?;
        Ok(Write { db: self, transaction, changes: self.tables.changes() })
    }

    /// Returns a key's value in the newest state. Begins no transaction if the look-aside table has
    /// the answer.
    ///
    /// # Errors
    /// redb failed, or the handle is another database's.
    #[inline]
    pub fn get_latest<K: AsideKey, V: AsideValue>(
        &self,
        table: &Table<K, V>,
        key: K,
    ) -> Result<Option<V>, Error> {
        self.check(table)?;
        Ok(self.look_latest(table, key)?.0)
    }

    #[inline]
    fn look_latest<K: AsideKey, V: AsideValue>(
        &self,
        table: &Table<K, V>,
        key: K,
    ) -> Result<(Option<V>, bool), Error> {
        let at = table.handle.table.at(self.published.load(Ordering::Acquire));
        look(&at, key, |key| self.alone(table, key))
    }

    /// Looks a key up in a transaction for it alone.
    fn alone<K: AsideKey, V: AsideValue>(
        &self,
        table: &Table<K, V>,
        key: K,
    ) -> Result<Option<V>, Error> {
        value(open(&self.begin()?, table)?.as_ref(), key)
    }

    /// Returns lookups of the newest state, one transaction each, for a [`Timer`](crate::Timer).
    ///
    /// # Errors
    /// The handle is another database's.
    pub fn latest<'a, K: AsideKey, V: AsideValue>(
        &'a self,
        table: &'a Table<K, V>,
    ) -> Result<Latest<'a, K, V>, Error> {
        self.check(table).map(|()| Latest { db: self, table })
    }
}

/// Opens a table; `None` if no transaction has made it.
fn open<K: AsideKey, V: AsideValue>(
    transaction: &ReadTransaction,
    table: &Table<K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, Error> {
    match transaction.open_table(table.definition) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[inline]
fn value<K: AsideKey, V: AsideValue>(
    table: Option<&ReadOnlyTable<K, V>>,
    key: K,
) -> Result<Option<V>, Error> {
    let Some(table) = table else { return Ok(None) };
    Ok(table.get(key)?.map(|value| value.value()))
}

/// Lookups of the newest state: [`Db::latest`].
pub struct Latest<'a, K: AsideKey, V: AsideValue> {
    db: &'a Db,
    table: &'a Table<K, V>,
}

impl<K: AsideKey, V: AsideValue> Source for Latest<'_, K, V> {
    type Key = K;
    type Value = V;
    type Error = Error;

    fn gate(&self) -> &Gate {
        self.table.aside().gate()
    }

    fn around(&self, key: K) -> Result<Option<V>, Error> {
        self.db.alone(self.table, key)
    }

    #[inline]
    fn look(&self, key: K) -> Result<(Option<V>, bool), Error> {
        self.db.look_latest(self.table, key)
    }

    /// The misses of a burst share a transaction.
    fn look_batch(&self, keys: &[K], values: &mut [Option<V>]) -> Result<u32, Error> {
        let at = self.table.handle.table.at(self.db.published.load(Ordering::Acquire));
        let mut opened = None;
        look_batch(&at, keys, values, |key| {
            if opened.is_none() {
                opened = Some(open(&self.db.begin()?, self.table)?);
            }
            value(opened.as_ref().and_then(Option::as_ref), key)
        })
    }
}

/// A read transaction.
pub struct Read<'db> {
    db: &'db Db,
    /// A lower bound of the snapshot's number.
    number: u64,
    transaction: ReadTransaction,
}

impl Read<'_> {
    /// Opens a table as of this snapshot.
    ///
    /// # Errors
    /// redb failed, or the handle is another database's.
    pub fn open<'a, K: AsideKey, V: AsideValue>(
        &self,
        table: &'a Table<K, V>,
    ) -> Result<ReadTable<'a, K, V>, Error> {
        self.db.check(table)?;
        let snapshot = open(&self.transaction, table)?;
        Ok(ReadTable { table: &table.handle.table, number: self.number, snapshot })
    }

    /// Returns redb's transaction, for tables without look-aside table.
    pub fn transaction(&self) -> &ReadTransaction {
        &self.transaction
    }
}

/// A table as of a snapshot.
pub struct ReadTable<'a, K: AsideKey, V: AsideValue> {
    table: &'a Versioned<K, V>,
    number: u64,
    snapshot: Option<ReadOnlyTable<K, V>>,
}

impl<K: AsideKey, V: AsideValue> ReadTable<'_, K, V> {
    /// Returns a key's value.
    ///
    /// # Errors
    /// redb failed.
    #[inline]
    pub fn get(&self, key: K) -> Result<Option<V>, Error> {
        let at = self.table.at(self.number);
        Ok(look(&at, key, |key| value(self.snapshot.as_ref(), key))?.0)
    }

    /// Looks up as many keys as `values` has places, in bursts.
    ///
    /// # Errors
    /// redb failed; then `values` has no meaning.
    pub fn get_batch(&self, keys: &[K], values: &mut [Option<V>]) -> Result<(), Error> {
        self.look_batch(keys, values).map(drop)
    }

    /// Returns redb's table, for ranges; `None` if no transaction had made it.
    pub fn table(&self) -> Option<&ReadOnlyTable<K, V>> {
        self.snapshot.as_ref()
    }
}

impl<K: AsideKey, V: AsideValue> Source for ReadTable<'_, K, V> {
    type Key = K;
    type Value = V;
    type Error = Error;

    fn gate(&self) -> &Gate {
        self.table.gate()
    }

    #[inline]
    fn around(&self, key: K) -> Result<Option<V>, Error> {
        value(self.snapshot.as_ref(), key)
    }

    #[inline]
    fn look(&self, key: K) -> Result<(Option<V>, bool), Error> {
        look(&self.table.at(self.number), key, |key| self.around(key))
    }

    fn look_batch(&self, keys: &[K], values: &mut [Option<V>]) -> Result<u32, Error> {
        look_batch(&self.table.at(self.number), keys, values, |key| self.around(key))
    }
}

/// A write transaction. Dropped without [`Write::commit`] it is aborted.
pub struct Write<'db> {
    db: &'db Db,
    transaction: WriteTransaction,
    changes: Changes,
}

impl Write<'_> {
    /// Opens a table to change it; makes it if it does not exist.
    ///
    /// # Errors
    /// redb failed, or the handle is another database's.
    pub fn open<K: AsideKey, V: AsideValue>(
        &self,
        table: &Table<K, V>,
    ) -> Result<WriteTable<'_, K, V>, Error> {
        self.db.check(table)?;
        let opened = self.transaction.open_table(table.definition)?;
        Ok(WriteTable { changes: &self.changes, handle: table.handle.clone(), table: opened })
    }

    /// Opens a table without look-aside table.
    ///
    /// # Errors
    /// redb failed, or the table has a look-aside table.
    pub fn other<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<::redb::Table<'_, K, V>, Error> {
        self.none_aside(definition.name())?;
        Ok(self.transaction.open_table(definition)?)
    }

    /// Opens a table of several values a key.
    ///
    /// # Errors
    /// redb failed, or the table has a look-aside table.
    pub fn other_multimap<K: Key + 'static, V: Key + 'static>(
        &self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'_, K, V>, Error> {
        self.none_aside(::redb::MultimapTableHandle::name(&definition))?;
        Ok(self.transaction.open_multimap_table(definition)?)
    }

    fn none_aside(&self, name: &str) -> Result<(), Error> {
        if self.db.tables.has(name) { Err(Error::Aside(name.to_owned())) } else { Ok(()) }
    }

    /// Deletes a table with all its keys. Returns whether it existed.
    ///
    /// # Errors
    /// redb failed, or the handle is another database's.
    pub fn delete<K: AsideKey, V: AsideValue>(&self, table: &Table<K, V>) -> Result<bool, Error> {
        self.db.check(table)?;
        self.changes.all(&table.handle);
        Ok(self.transaction.delete_table(table.definition)?)
    }

    /// Takes a savepoint that ends with the process.
    ///
    /// # Errors
    /// redb failed, or the transaction has changed something.
    pub fn savepoint(&self) -> Result<Savepoint, Error> {
        Ok(self.transaction.ephemeral_savepoint()?)
    }

    /// Goes back to a savepoint. The commit clears all look-aside tables.
    ///
    /// # Errors
    /// redb failed, or the savepoint is void.
    pub fn restore(&mut self, savepoint: &Savepoint) -> Result<(), Error> {
        self.changes.everything();
        Ok(self.transaction.restore_savepoint(savepoint)?)
    }

    /// Sets whether the commit waits for the disk.
    ///
    /// # Errors
    /// redb refuses.
    pub fn set_durability(&mut self, durability: Durability) -> Result<(), Error> {
        Ok(self.transaction.set_durability(durability)?)
    }

    /// Commits. After it returned, no lookup of the newest state sees an older value.
    ///
    /// # Errors
    /// redb failed: then nothing is published, and keys that were to change are out of the tables.
    pub fn commit(self) -> Result<(), Error> {
        let Write { db, transaction, changes } = self;
        let published = &db.published;
        db.tables.commit(
            || published.load(Ordering::Relaxed) + 1,
            changes,
            || Ok(transaction.commit()?),
            |number| published.store(number, Ordering::Release),
        )
    }

    /// Aborts. The look-aside tables keep what they have.
    ///
    /// # Errors
    /// redb failed.
    pub fn abort(self) -> Result<(), Error> {
        Ok(self.transaction.abort()?)
    }
}

/// A table in a write transaction. Its reads are of the transaction, past the look-aside table.
pub struct WriteTable<'w, K: AsideKey, V: AsideValue> {
    changes: &'w Changes,
    handle: Handle<K, V>,
    table: ::redb::Table<'w, K, V>,
}

impl<K: AsideKey, V: AsideValue> WriteTable<'_, K, V> {
    /// Returns a key's value.
    ///
    /// # Errors
    /// redb failed.
    pub fn get(&self, key: K) -> Result<Option<V>, Error> {
        Ok(self.table.get(key)?.map(|value| value.value()))
    }

    /// Returns redb's table, for ranges.
    pub fn table(&self) -> &impl ReadableTable<K, V> {
        &self.table
    }

    /// Inserts a value. Returns the one that it replaces.
    ///
    /// # Errors
    /// redb failed.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Error> {
        let old = self.table.insert(key, value).map(|old| old.map(|old| old.value()));
        self.changes.outcome(&self.handle, key, Some(value), &old);
        Ok(old?)
    }

    /// Removes a key. Returns its value.
    ///
    /// # Errors
    /// redb failed.
    pub fn remove(&mut self, key: K) -> Result<Option<V>, Error> {
        let old = self.table.remove(key).map(|old| old.map(|old| old.value()));
        self.changes.outcome(&self.handle, key, None, &old);
        Ok(old?)
    }

    /// Keeps the keys for which `keep` returns true. The commit clears the look-aside table.
    ///
    /// # Errors
    /// redb failed.
    pub fn retain(&mut self, keep: impl FnMut(K, V) -> bool) -> Result<(), Error> {
        self.changes.all(&self.handle);
        Ok(self.table.retain(keep)?)
    }
}
