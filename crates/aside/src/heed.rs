//! LMDB, by heed: tables in front of named databases.
//!
//! A snapshot has LMDB's number, and so has a commit. A number that the look-aside tables do not
//! know comes from another process, or another handle: they are cleared, since nothing says what it
//! changed. Lookups of the newest state ([`Db::get_latest`]) ask LMDB for the newest number, which
//! is in memory that all processes share, and begin a transaction only if the table has no answer.
//!
//! Keys and values are bytes as they lie in memory: `u64` in this machine's order, `[u8; 8]` for
//! any other. Databases of several values a key (`DUP_SORT`) are refused, nested transactions are
//! not offered.

use crate::look::{Watched, look, look_batch};
use crate::snapshot::{Changes, Handle, Stranger, Tables};
use crate::timer::Source;
use ::heed::types::Bytes;
use ::heed::{CommitOrAbort, Database, Env, RoTxn, RwTxn, WithoutTls};
use overbank::lookaside::{self, Config, Gate, Plain, VersionError, Versioned};
use std::ops::{Bound, RangeBounds};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Why an operation failed. What the transaction had changed is not in any table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// LMDB failed.
    #[error(transparent)]
    Database(#[from] ::heed::Error),
    /// A table to put in front cannot have this size.
    #[error(transparent)]
    Table(#[from] lookaside::Error),
    /// The number of a commit is used up, after 2⁴⁸.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// No database of this name.
    #[error("database {0}: does not exist")]
    Absent(String),
    /// A database of several values a key.
    #[error("database {0}: has several values a key (DUP_SORT), and a look-aside table one")]
    Multiple(String),
    /// A table in front is there already.
    #[error("database {0}: has a look-aside table; use its handle")]
    Aside(String),
    /// A handle that another environment gave.
    #[error("the handle is of another environment")]
    OtherEnvironment,
    /// A value that is longer or shorter than its type.
    #[error("a value of {found} bytes; must have {wanted}")]
    Length {
        /// Bytes in the database.
        found: usize,
        /// Bytes of the type.
        wanted: usize,
    },
}

/// Flag of a database of several values a key, and where its record has the flags (`MDB_db`).
const DUP_SORT: u16 = 0x04;
const FLAGS: std::ops::Range<usize> = 4..6;

/// A key or a value that LMDB and a look-aside table can have.
pub trait Fixed: Plain + IntoBytes + FromBytes + Immutable {}
impl<T: Plain + IntoBytes + FromBytes + Immutable> Fixed for T {}

/// Most bytes of a key of LMDB; the fewest are 1.
const KEY_BYTES_MAX: usize = 511;

/// An environment and its look-aside tables.
///
/// ```
/// use heed::EnvOpenOptions;
/// use overbank_aside::{heed::Db, lookaside::Config};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path();
/// let mut options = EnvOpenOptions::new().read_txn_without_tls();
/// options.map_size(1 << 20).max_dbs(1);
/// // SAFETY: nothing but LMDB changes the file.
/// let mut db = Db::new(unsafe { options.open(path)? });
/// let numbers = db.create::<u64, u64>("numbers", &Config::entries(1 << 10))?;
///
/// let mut write = db.begin_write()?;
/// write.put(&numbers, 7, 70)?;
/// write.commit()?;
/// assert_eq!(db.get_latest(&numbers, 7)?, Some(70));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Db {
    env: Env<WithoutTls>,
    tables: Tables,
}

/// A handle to a named database and the look-aside table in front of it.
pub struct Table<K: Fixed, V: Fixed> {
    database: Database<'static, Bytes, Bytes>,
    handle: Handle<K, V>,
}

impl<K: Fixed, V: Fixed> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Table { database: self.database, handle: self.handle.clone() }
    }
}

impl<K: Fixed, V: Fixed> Table<K, V> {
    /// Returns the look-aside table, for its counters and its gate.
    pub fn aside(&self) -> &(impl Watched + use<K, V>) {
        &*self.handle.table
    }
}

#[inline]
fn value<K: Fixed, V: Fixed>(
    database: &Database<'static, Bytes, Bytes>,
    transaction: &RoTxn<'_, WithoutTls>,
    key: K,
) -> Result<Option<V>, Error> {
    database.get(transaction, key.as_bytes())?.map(read).transpose()
}

impl Db {
    /// Takes an environment. What another handle to it commits counts as another process's.
    pub fn new(env: Env<WithoutTls>) -> Self {
        Db { env, tables: Tables::new() }
    }

    /// Returns the environment.
    pub fn into_env(self) -> Env<WithoutTls> {
        self.env
    }

    /// Puts a look-aside table in front of a named database.
    ///
    /// # Errors
    /// There is no such database, it has several values a key, there is a table already, or it
    /// cannot have this size.
    pub fn table<K: Fixed, V: Fixed>(
        &mut self,
        name: &str,
        config: &Config,
    ) -> Result<Table<K, V>, Error> {
        const { assert!(0 < size_of::<K>() && size_of::<K>() <= KEY_BYTES_MAX) };
        if self.tables.has(name) {
            return Err(Error::Aside(name.to_owned()));
        }
        let table = Versioned::new(config)?;
        let transaction = self.env.read_txn()?;
        let opened = self.env.open_databases_and_commit(transaction, |opener, transaction| {
            let names = opener.open_database::<Bytes, Bytes>(transaction, None)?;
            let record = names.map(|names| names.get(transaction, name.as_bytes()));
            let Some(record) = record.transpose()?.flatten() else {
                return Err(Error::Absent(name.to_owned()));
            };
            let flags = record.get(FLAGS).and_then(|flags| u16::read_from_bytes(flags).ok());
            if flags.is_none_or(|flags| flags & DUP_SORT != 0) {
                return Err(Error::Multiple(name.to_owned()));
            }
            let database = opener.open_database::<Bytes, Bytes>(transaction, Some(name))?;
            Ok(CommitOrAbort::<_, ()>::Commit(database))
        })?;
        let database = opened.commit().flatten().ok_or_else(|| Error::Absent(name.to_owned()))?;
        Ok(Table { database, handle: self.tables.add(name, table) })
    }

    /// Makes a named database if it does not exist, and puts a look-aside table in front.
    ///
    /// # Errors
    /// As [`Db::table`], or LMDB cannot make it.
    pub fn create<K: Fixed, V: Fixed>(
        &mut self,
        name: &str,
        config: &Config,
    ) -> Result<Table<K, V>, Error> {
        match self.table(name, config) {
            Err(Error::Absent(_)) => {}
            table => return table,
        }
        let transaction = self.env.write_txn()?;
        self.env.create_databases_and_commit(transaction, |opener, transaction| {
            opener.create_database::<Bytes, Bytes>(transaction, Some(name))?;
            Ok::<_, Error>(CommitOrAbort::<_, ()>::Commit(()))
        })?;
        self.table(name, config)
    }

    fn check<K: Fixed, V: Fixed>(&self, table: &Table<K, V>) -> Result<(), Error> {
        self.tables.check(&table.handle).map_err(|Stranger| Error::OtherEnvironment)
    }

    /// Begins a read transaction: a snapshot.
    ///
    /// # Errors
    /// LMDB failed.
    pub fn begin_read(&self) -> Result<Read<'_>, Error> {
        Ok(Read { db: self, transaction: self.env.read_txn()? })
    }

    /// Begins a write transaction; waits for another one's end, in any process.
    ///
    /// # Errors
    /// LMDB failed.
    pub fn begin_write(&self) -> Result<Write<'_>, Error> {
        let transaction = self.env.write_txn()?;
        Ok(Write { db: self, transaction, changes: self.tables.changes(), dirty: false })
    }

    /// Returns a key's value in the newest state, of any process. Begins no transaction if the
    /// look-aside table has the answer.
    ///
    /// # Errors
    /// LMDB failed, or the handle is another environment's.
    #[inline]
    pub fn get_latest<K: Fixed, V: Fixed>(
        &self,
        table: &Table<K, V>,
        key: K,
    ) -> Result<Option<V>, Error> {
        self.check(table)?;
        Ok(self.look_latest(table, key)?.0)
    }

    #[inline]
    fn look_latest<K: Fixed, V: Fixed>(
        &self,
        table: &Table<K, V>,
        key: K,
    ) -> Result<(Option<V>, bool), Error> {
        let newest = self.env.info().last_txn_id as u64;
        match table.handle.table.at(newest).get(key).answer() {
            Ok(value) => Ok((value, true)),
            // Its snapshot may be another one by now.
            Err(_) => self.begin_read()?.look(table, key),
        }
    }

    /// Returns lookups of the newest state, one transaction each, for a [`Timer`](crate::Timer).
    ///
    /// # Errors
    /// The handle is another environment's.
    pub fn latest<'a, K: Fixed, V: Fixed>(
        &'a self,
        table: &'a Table<K, V>,
    ) -> Result<Latest<'a, K, V>, Error> {
        self.check(table).map(|()| Latest { db: self, table })
    }
}

/// Lookups of the newest state: [`Db::latest`].
pub struct Latest<'a, K: Fixed, V: Fixed> {
    db: &'a Db,
    table: &'a Table<K, V>,
}

impl<K: Fixed, V: Fixed> Source for Latest<'_, K, V> {
    type Key = K;
    type Value = V;
    type Error = Error;

    fn gate(&self) -> &Gate {
        self.table.aside().gate()
    }

    fn around(&self, key: K) -> Result<Option<V>, Error> {
        value(&self.table.database, &self.db.begin_read()?.transaction, key)
    }

    #[inline]
    fn look(&self, key: K) -> Result<(Option<V>, bool), Error> {
        self.db.look_latest(self.table, key)
    }

    /// All keys share a snapshot.
    fn look_batch(&self, keys: &[K], values: &mut [Option<V>]) -> Result<u32, Error> {
        self.db.begin_read()?.open(self.table)?.look_batch(keys, values)
    }
}

/// A read transaction.
pub struct Read<'db> {
    db: &'db Db,
    transaction: RoTxn<'db, WithoutTls>,
}

impl Read<'_> {
    /// Opens a database as of this snapshot.
    ///
    /// # Errors
    /// The handle is another environment's.
    pub fn open<'a, K: Fixed, V: Fixed>(
        &'a self,
        table: &'a Table<K, V>,
    ) -> Result<ReadTable<'a, K, V>, Error> {
        self.db.check(table).map(|()| ReadTable { transaction: &self.transaction, table })
    }

    #[inline]
    fn look<K: Fixed, V: Fixed>(
        &self,
        table: &Table<K, V>,
        key: K,
    ) -> Result<(Option<V>, bool), Error> {
        let at = table.handle.table.at(self.transaction.id() as u64);
        look(&at, key, |key| value(&table.database, &self.transaction, key))
    }
}

/// A database as of a snapshot.
pub struct ReadTable<'a, K: Fixed, V: Fixed> {
    transaction: &'a RoTxn<'a, WithoutTls>,
    table: &'a Table<K, V>,
}

impl<K: Fixed, V: Fixed> ReadTable<'_, K, V> {
    fn at(&self) -> lookaside::At<'_, K, V> {
        self.table.handle.table.at(self.transaction.id() as u64)
    }

    /// Returns a key's value.
    ///
    /// # Errors
    /// LMDB failed, or the value has another length.
    #[inline]
    pub fn get(&self, key: K) -> Result<Option<V>, Error> {
        Ok(look(&self.at(), key, |key| value(&self.table.database, self.transaction, key))?.0)
    }

    /// Looks up as many keys as `values` has places, in bursts.
    ///
    /// # Errors
    /// LMDB failed; then `values` has no meaning.
    pub fn get_batch(&self, keys: &[K], values: &mut [Option<V>]) -> Result<(), Error> {
        self.look_batch(keys, values).map(drop)
    }

    /// Returns keys and values in the order of their bytes. They come from LMDB, not from the
    /// look-aside table.
    ///
    /// # Errors
    /// LMDB failed.
    pub fn range(
        &self,
        keys: impl RangeBounds<K>,
    ) -> Result<impl Iterator<Item = Result<(K, V), Error>>, Error> {
        range(&self.table.database, self.transaction, bounds(&keys))
    }
}

fn read<T: Fixed>(bytes: &[u8]) -> Result<T, Error> {
    let length = |_| Error::Length { found: bytes.len(), wanted: size_of::<T>() };
    T::read_from_bytes(bytes).map_err(length)
}

fn range<'txn, K: Fixed, V: Fixed>(
    database: &Database<Bytes, Bytes>,
    transaction: &'txn RoTxn<'_, WithoutTls>,
    (first, last): (Bound<K>, Bound<K>),
) -> Result<impl Iterator<Item = Result<(K, V), Error>> + use<'txn, K, V>, Error> {
    let found = database.range(transaction, &(bytes(&first), bytes(&last)))?;
    Ok(found.map(|pair| {
        let (key, value) = pair?;
        Ok((read(key)?, read(value)?))
    }))
}

fn bounds<K: Fixed>(keys: &impl RangeBounds<K>) -> (Bound<K>, Bound<K>) {
    (keys.start_bound().cloned(), keys.end_bound().cloned())
}

fn bytes<K: Fixed>(bound: &Bound<K>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| key.as_bytes())
}

impl<K: Fixed, V: Fixed> Source for ReadTable<'_, K, V> {
    type Key = K;
    type Value = V;
    type Error = Error;

    fn gate(&self) -> &Gate {
        self.table.aside().gate()
    }

    #[inline]
    fn around(&self, key: K) -> Result<Option<V>, Error> {
        value(&self.table.database, self.transaction, key)
    }

    #[inline]
    fn look(&self, key: K) -> Result<(Option<V>, bool), Error> {
        look(&self.at(), key, |key| self.around(key))
    }

    fn look_batch(&self, keys: &[K], values: &mut [Option<V>]) -> Result<u32, Error> {
        look_batch(&self.at(), keys, values, |key| self.around(key))
    }
}

/// A write transaction. Dropped without [`Write::commit`] it is aborted. Its reads are of the
/// transaction, past the look-aside tables.
pub struct Write<'db> {
    db: &'db Db,
    transaction: RwTxn<'db>,
    changes: Changes,
    /// Whether LMDB has something to commit. If not, it would not use up the number, which another
    /// process could then use for its commit.
    dirty: bool,
}

impl Write<'_> {
    /// Returns a key's value.
    ///
    /// # Errors
    /// LMDB failed, or the handle is another environment's.
    pub fn get<K: Fixed, V: Fixed>(&self, table: &Table<K, V>, key: K) -> Result<Option<V>, Error> {
        self.db.check(table)?;
        value(&table.database, &self.transaction, key)
    }

    /// Returns keys and values in the order of their bytes, with the changes of this transaction.
    ///
    /// # Errors
    /// LMDB failed, or the handle is another environment's.
    pub fn range<K: Fixed, V: Fixed>(
        &self,
        table: &Table<K, V>,
        keys: impl RangeBounds<K>,
    ) -> Result<impl Iterator<Item = Result<(K, V), Error>>, Error> {
        self.db.check(table)?;
        range(&table.database, &self.transaction, bounds(&keys))
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// LMDB failed, or the handle is another environment's.
    pub fn put<K: Fixed, V: Fixed>(
        &mut self,
        table: &Table<K, V>,
        key: K,
        value: V,
    ) -> Result<(), Error> {
        self.db.check(table)?;
        self.dirty = true;
        let put = table.database.put(&mut self.transaction, key.as_bytes(), value.as_bytes());
        self.changes.outcome(&table.handle, key, Some(value), &put);
        Ok(put?)
    }

    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    /// LMDB failed, or the handle is another environment's.
    pub fn delete<K: Fixed, V: Fixed>(
        &mut self,
        table: &Table<K, V>,
        key: K,
    ) -> Result<bool, Error> {
        self.db.check(table)?;
        let deleted = table.database.delete(&mut self.transaction, key.as_bytes());
        self.changes.outcome(&table.handle, key, None, &deleted);
        self.dirty |= !matches!(deleted, Ok(false));
        Ok(deleted?)
    }

    /// Removes the keys of a range of bytes, and returns their number. The commit clears the
    /// look-aside table.
    ///
    /// # Errors
    /// LMDB failed, or the handle is another environment's.
    pub fn delete_range<K: Fixed, V: Fixed>(
        &mut self,
        table: &Table<K, V>,
        keys: impl RangeBounds<K>,
    ) -> Result<usize, Error> {
        self.db.check(table)?;
        let (first, last) = bounds(&keys);
        let range = (bytes(&first), bytes(&last));
        self.changes.all(&table.handle);
        let deleted = table.database.delete_range(&mut self.transaction, &range);
        self.dirty |= !matches!(deleted, Ok(0));
        Ok(deleted?)
    }

    /// Removes all keys. The commit clears the look-aside table.
    ///
    /// # Errors
    /// LMDB failed, or the handle is another environment's.
    pub fn clear<K: Fixed, V: Fixed>(&mut self, table: &Table<K, V>) -> Result<(), Error> {
        self.db.check(table)?;
        self.dirty = true;
        self.changes.all(&table.handle);
        Ok(table.database.clear(&mut self.transaction)?)
    }

    /// Commits. After it returned, no lookup of the newest state sees an older value.
    ///
    /// # Errors
    /// LMDB failed: then nothing is published, and keys that were to change are out of the tables.
    pub fn commit(self) -> Result<(), Error> {
        let Write { db, transaction, changes, dirty } = self;
        if !dirty {
            transaction.abort();
            return Ok(());
        }
        let number = transaction.id() as u64;
        db.tables.commit(|| number, changes, || Ok(transaction.commit()?), |_| ())
    }

    /// Aborts. The look-aside tables keep what they have.
    pub fn abort(self) {
        self.transaction.abort();
    }
}
