//! crossbeam's `SkipMap`: many readers, many writers, no lock.
//!
//! It replaces a key by removing it before it links the new entry, so a reader beside the writer
//! may find the key absent, with a table in front as without. The table keeps no such answer.

use crate::live::{Aside, Index};
use crossbeam_skiplist::SkipMap;
use overbank::lookaside::Plain;
use std::ops::RangeBounds;

impl<K: Plain + Ord, V: Plain> Index<K, V> for SkipMap<K, V> {
    #[inline]
    fn get(&self, key: &K) -> Option<V> {
        SkipMap::get(self, key).map(|entry| *entry.value())
    }

    fn insert(&self, key: K, value: V) {
        SkipMap::insert(self, key, value);
    }

    fn remove(&self, key: &K) -> Option<V> {
        SkipMap::remove(self, key).map(|entry| *entry.value())
    }
}

impl<K: Plain + Ord, V: Plain> Aside<SkipMap<K, V>, K, V> {
    /// Returns keys and values in order. They come from the index, not from the table.
    pub fn range(&self, keys: impl RangeBounds<K>) -> impl Iterator<Item = (K, V)> {
        self.index.range(keys).map(|entry| (*entry.key(), *entry.value()))
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}
