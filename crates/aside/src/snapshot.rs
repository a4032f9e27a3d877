//! The snapshot rule: what redb and LMDB have in common.
//!
//! ```text
//! read    number of the snapshot ─▶ table as of that number ── miss ─▶ database ─▶ fill
//! commit  numbers of all tables open ─▶ changed keys out ─▶ database commits ─▶ publish
//!                                                              └─ fails: nothing is published
//! ```
//!
//! A transaction lists its changes and gives them to the tables when it commits. So a long one
//! costs readers no hits before, and an aborted one none at all.

use overbank::lookaside::{Commit, Plain, VersionError, Versioned};
use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most changes that a transaction lists for a table. With more, the table is cleared.
pub(crate) const CHANGES_MAX: usize = 1 << 16;

/// A table whose types are forgotten.
trait Erased: Send + Sync {
    /// Returns the empty list of a transaction.
    fn list(&self) -> Box<dyn Changed>;
    /// Opens a commit and takes out what the list has.
    fn open<'t>(
        &'t self,
        number: u64,
        list: &dyn Changed,
    ) -> Result<Box<dyn Open + 't>, VersionError>;
}

/// A list whose types are forgotten.
trait Changed: Any + Send {
    fn all(&mut self);
}

trait Open {
    fn publish(self: Box<Self>);
}

/// What a transaction changed in one table.
struct List<K, V> {
    keys: Vec<(K, Option<V>)>,
    /// Any number of keys, which are not listed.
    all: bool,
}

impl<K: Plain, V: Plain> Changed for List<K, V> {
    fn all(&mut self) {
        (self.all, self.keys) = (true, Vec::new());
    }
}

impl<K: Plain, V: Plain> Erased for Versioned<K, V> {
    fn list(&self) -> Box<dyn Changed> {
        Box::new(List::<K, V> { keys: Vec::new(), all: false })
    }

    fn open<'t>(
        &'t self,
        number: u64,
        list: &dyn Changed,
    ) -> Result<Box<dyn Open + 't>, VersionError> {
        let mut commit = self.commit(number)?;
        let list: &dyn Any = list;
        let list: &List<K, V> = list.downcast_ref().expect("a list is made by its table");
        if list.all {
            commit.clear();
        }
        list.keys.iter().for_each(|(key, value)| commit.change(*key, *value));
        Ok(Box::new(commit))
    }
}

impl<K: Plain, V: Plain> Open for Commit<'_, K, V> {
    fn publish(self: Box<Self>) {
        (*self).publish();
    }
}

/// The tables of a database.
pub(crate) struct Tables {
    /// Differs from that of each other database of the process.
    database: u64,
    names: Vec<String>,
    tables: Vec<Arc<dyn Erased>>,
    /// Held from the first table's number until the last one is published, so that a commit which
    /// the database lets in meanwhile has the next number.
    committing: Mutex<()>,
}

/// A table's place in [`Tables`], and the table.
pub(crate) struct Handle<K, V> {
    database: u64,
    place: usize,
    pub(crate) table: Arc<Versioned<K, V>>,
}

impl<K, V> Clone for Handle<K, V> {
    fn clone(&self) -> Self {
        Handle { database: self.database, place: self.place, table: self.table.clone() }
    }
}

/// A handle that belongs to another database.
pub(crate) struct Stranger;

impl Tables {
    pub(crate) fn new() -> Self {
        static DATABASES: AtomicU64 = AtomicU64::new(0);
        Tables {
            database: DATABASES.fetch_add(1, Ordering::Relaxed),
            names: Vec::new(),
            tables: Vec::new(),
            committing: Mutex::new(()),
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    pub(crate) fn add<K: Plain, V: Plain>(
        &mut self,
        name: &str,
        table: Versioned<K, V>,
    ) -> Handle<K, V> {
        let table = Arc::new(table);
        self.names.push(name.to_owned());
        self.tables.push(table.clone());
        Handle { database: self.database, place: self.tables.len() - 1, table }
    }

    pub(crate) fn check<K, V>(&self, handle: &Handle<K, V>) -> Result<(), Stranger> {
        if handle.database == self.database { Ok(()) } else { Err(Stranger) }
    }

    /// Returns the lists of a transaction.
    pub(crate) fn changes(&self) -> Changes {
        Changes(RefCell::new(self.tables.iter().map(|table| table.list()).collect()))
    }

    /// Commits: opens the number of the commit in each table, lets the database commit, and
    /// publishes. All tables take part, so that none mistakes the number for a stranger's.
    pub(crate) fn commit<E: From<VersionError>>(
        &self,
        number: impl FnOnce() -> u64,
        changes: Changes,
        database: impl FnOnce() -> Result<(), E>,
        published: impl FnOnce(u64),
    ) -> Result<(), E> {
        let _alone = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, lists) = (number(), changes.0.into_inner());
        let mut open = Vec::with_capacity(lists.len());
        for (table, list) in self.tables.iter().zip(&lists) {
            open.push(table.open(number, &**list)?);
        }
        database()?;
        open.into_iter().for_each(Open::publish);
        published(number);
        Ok(())
    }
}

/// What a transaction changed so far, by table.
pub(crate) struct Changes(RefCell<Vec<Box<dyn Changed>>>);

impl Changes {
    /// A key was given this value, or none; or that failed, and what it left is unknown.
    pub(crate) fn outcome<K: Plain, V: Plain, T, E>(
        &self,
        of: &Handle<K, V>,
        key: K,
        value: Option<V>,
        outcome: &Result<T, E>,
    ) {
        match outcome {
            Ok(_) => self.key(of, key, value),
            Err(_) => self.all(of),
        }
    }

    fn key<K: Plain, V: Plain>(&self, of: &Handle<K, V>, key: K, value: Option<V>) {
        let list: &mut dyn Any = &mut *self.0.borrow_mut()[of.place];
        let list: &mut List<K, V> = list.downcast_mut().expect("a list is made by its table");
        if list.keys.len() == CHANGES_MAX {
            list.all();
        }
        if !list.all {
            list.keys.push((key, value));
        }
    }

    /// Any number of keys of a table changed.
    pub(crate) fn all<K: Plain, V: Plain>(&self, of: &Handle<K, V>) {
        self.0.borrow_mut()[of.place].all();
    }

    /// Any number of keys of all tables changed.
    #[cfg(feature = "redb")]
    pub(crate) fn everything(&self) {
        self.0.borrow_mut().iter_mut().for_each(|list| list.all());
    }
}
