//! The live rule: a table in front of any index whose single operations are linearizable.
//!
//! ```text
//! get     table ── hit ──▶ value
//!           └─ miss: ticket ─▶ index ─▶ fill, if no writer was in the bucket since the ticket
//! write   guard: entry out, fills refused ─▶ index ─▶ keep, if no other writer came ─▶ guard off
//! ```

use crate::look::{Watched, look, look_batch};
use crate::timer::Source;
use overbank::lookaside::{Config, Copies, Error, Gate, Plain};
use std::convert::Infallible;

/// An index of keys and values whose operations may be called from all threads, and look as if each
/// happened at one moment between its call and its return.
pub trait Index<K, V>: Send + Sync {
    /// Returns the value of a key.
    fn get(&self, key: &K) -> Option<V>;
    /// Inserts a value in the place of the one that is there.
    fn insert(&self, key: K, value: V);
    /// Removes a key. Returns its value.
    fn remove(&self, key: &K) -> Option<V>;
}

/// An index that changes a value in one step.
pub trait Update<K, V>: Index<K, V> {
    /// Replaces the value of a key by what `change` makes of it, `None` for none, and returns that.
    /// `change` may be called more than once; the last call counts.
    fn update(&self, key: &K, change: &mut dyn FnMut(Option<V>) -> Option<V>) -> Option<V>;
}

/// An index with a table in front.
///
/// ```
/// # #[cfg(feature = "btreemap")] {
/// use overbank_aside::lookaside::Config;
/// use overbank_aside::{Aside, locked::Locked};
/// use std::collections::BTreeMap;
///
/// let index = Locked::new(BTreeMap::from([(1u64, 10u64)]));
/// let map = Aside::new(index, &Config::entries(1 << 10))?;
/// assert_eq!((map.get(1), map.get(2)), (Some(10), None));
/// map.insert(2, 20);
/// assert_eq!(map.update(2, |value| value.map(|value| value + 1)), Some(21));
/// assert_eq!(map.get(2), Some(21));
/// # }
/// # Ok::<(), overbank_aside::lookaside::Error>(())
/// ```
pub struct Aside<I, K: Plain, V: Plain> {
    pub(crate) index: I,
    pub(crate) table: Copies<K, V>,
}

impl<I: Index<K, V>, K: Plain, V: Plain> Aside<I, K, V> {
    /// Puts a table in front of an index.
    ///
    /// # Errors
    /// The table cannot have this size.
    pub fn new(index: I, config: &Config) -> Result<Self, Error> {
        Ok(Aside { index, table: Copies::new(config)? })
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get(&self, key: K) -> Option<V> {
        self.table.get_or(key, |key| self.index.get(key))
    }

    /// Looks up as many keys as `values` has places, in bursts whose waits for memory overlap. Each
    /// key is looked up separately: a list is no snapshot.
    pub fn get_batch(&self, keys: &[K], values: &mut [Option<V>]) {
        let Ok(_) = self.look_batch(keys, values);
    }

    /// Inserts a value in the place of the one that is there.
    pub fn insert(&self, key: K, value: V) {
        let writing = self.table.write(key);
        self.index.insert(key, value);
        writing.keep(value);
    }

    /// Removes a key. Returns its value.
    pub fn remove(&self, key: K) -> Option<V> {
        let writing = self.table.write(key);
        let old = self.index.remove(&key);
        writing.keep_absent();
        old
    }

    /// Replaces the value of a key by what `change` makes of it, `None` for none, and returns that.
    /// `change` may be called more than once; the last call counts. If it panics, the key stays out
    /// of the table. It must not use the index itself, which may be locked.
    pub fn update(&self, key: K, mut change: impl FnMut(Option<V>) -> Option<V>) -> Option<V>
    where
        I: Update<K, V>,
    {
        let writing = self.table.write(key);
        let new = self.index.update(&key, &mut change);
        match new {
            Some(value) => writing.keep(value),
            None => writing.keep_absent(),
        }
        new
    }

    /// Calls a closure with the index, to change any part of it: many keys, a range, all. Clears
    /// the table, which takes no answers in until the closure has returned or panicked. What the
    /// closure keeps of the index must not be written through later.
    pub fn change<R>(&self, change: impl FnOnce(&I) -> R) -> R {
        let _clearing = self.table.clearing();
        change(&self.index)
    }

    /// Returns the table, for its counters and its gate.
    pub fn table(&self) -> &(impl Watched + use<I, K, V>) {
        &self.table
    }

    /// Returns the index.
    pub fn into_index(self) -> I {
        self.index
    }
}

impl<I: Index<K, V>, K: Plain, V: Plain> Source for Aside<I, K, V> {
    type Key = K;
    type Value = V;
    type Error = Infallible;

    fn gate(&self) -> &Gate {
        self.table.gate()
    }

    #[inline]
    fn around(&self, key: K) -> Result<Option<V>, Infallible> {
        Ok(self.index.get(&key))
    }

    #[inline]
    fn look(&self, key: K) -> Result<(Option<V>, bool), Infallible> {
        look(&self.table, key, |key| self.around(key))
    }

    fn look_batch(&self, keys: &[K], values: &mut [Option<V>]) -> Result<u32, Infallible> {
        look_batch(&self.table, keys, values, |key| self.around(key))
    }
}
