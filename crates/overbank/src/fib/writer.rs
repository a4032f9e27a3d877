//! Changes of a table, by its one writer.

use core::ops::Range;

use super::bucket::{Bucket, CLASSES};
use super::candidates::Candidates;
use super::config::Config;
use super::drain::Drain;
use super::error::{FibError, Full};
use super::key::{Key, Value};
use super::reader::Reader;
use super::search::Search;
use super::table::Table;
#[cfg(any(test, feature = "internals"))]
use crate::random::Pcg32;
use crate::sync::Arc;

/// Counts of a writer's operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// New keys inserted.
    pub inserted: u64,
    /// Values replaced.
    pub updated: u64,
    /// Keys removed.
    pub removed: u64,
    /// Insertions refused because no free slot was found.
    pub refused: u64,
    /// Searches for a free slot; each also counts in `inserted` or `refused`.
    pub searches: u64,
    /// Entries moved to their other bucket.
    pub displaced: u64,
    /// Entries in their second bucket now.
    pub second: u64,
}

/// Writes a table. Each table has one writer, which may move between threads.
///
/// An operation reads and writes the key's two buckets; an insertion into full buckets searches a
/// bounded number of others. No change of an entry allocates.
pub struct Writer<K, V> {
    pub(super) table: Arc<Table<K, V>>,
    pub(super) search: Search,
    pub(super) len: usize,
    pub(super) stats: Stats,
    #[cfg(any(test, feature = "internals"))]
    pub(super) pcg: Pcg32,
}

impl<K: Key, V: Value> Writer<K, V> {
    /// Returns the writer of an empty table.
    pub fn new(config: &Config) -> Result<Self, FibError> {
        Ok(Self {
            table: Arc::new(Table::new(config)?),
            search: Search::new(config.search::<K, V>()),
            len: 0,
            stats: Stats::default(),
            #[cfg(any(test, feature = "internals"))]
            pcg: Pcg32::new(config.seed, 11),
        })
    }

    /// Returns a reader of this table.
    pub fn reader(&self) -> Reader<K, V> {
        Reader::new(Arc::clone(&self.table))
    }

    /// Prefetches the lines of a key that will soon be inserted, updated or removed. To build a
    /// table from a list, call it about sixteen keys ahead.
    #[inline]
    pub fn prefetch(&self, key: K) {
        let candidates = self.table.candidates(key);
        self.table.prefetch(candidates.home);
        self.table.prefetch(candidates.second);
    }

    /// Returns the key's bucket and slot.
    #[inline]
    pub(super) fn find(&self, candidates: Candidates, key: K) -> Option<(u32, usize)> {
        if let Some(slot) = self.table.find(candidates.home, key) {
            return Some((candidates.home, slot));
        }
        if !self.table.header(candidates.home).marked(candidates.second) {
            return None;
        }
        self.table.find(candidates.second, key).map(|slot| (candidates.second, slot))
    }

    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.table.set_len(len);
    }

    /// Returns the key's value.
    pub fn get(&self, key: K) -> Option<V> {
        let (bucket, slot) = self.find(self.table.candidates(key), key)?;
        Some(self.table.value(bucket, slot))
    }

    /// Inserts a key, or replaces its value and returns the old one. An error changes nothing.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        self.churn();
        let candidates = self.table.candidates(key);
        if let Some((bucket, slot)) = self.find(candidates, key) {
            return Ok(Some(self.replace(bucket, slot, value)));
        }
        let bucket = [candidates.home, candidates.second]
            .into_iter()
            .find(|&bucket| self.table.free_slot(bucket).is_some());
        let bucket = match bucket {
            Some(bucket) => bucket,
            None => self.make_room(candidates)?,
        };
        let Some(slot) = self.table.free_slot(bucket) else { return Err(self.full(0)) };
        if bucket == candidates.second {
            // First, so that a present key is always marked.
            self.table.mark(candidates);
            self.stats.second += 1;
        }
        self.table.write(bucket, slot, key, value);
        self.set_len(self.len + 1);
        self.stats.inserted += 1;
        Ok(None)
    }

    /// Frees a slot in one of the key's buckets, which are full.
    #[cold]
    fn make_room(&mut self, candidates: Candidates) -> Result<u32, Full> {
        self.stats.searches += 1;
        match self.search.make_room(&self.table, candidates, &mut self.stats.second) {
            Some((bucket, moves)) => {
                self.stats.displaced += moves as u64;
                Ok(bucket)
            }
            None => {
                self.stats.refused += 1;
                Err(self.full(self.search.searched()))
            }
        }
    }

    fn full(&self, searched: usize) -> Full {
        Full { entries: self.len, slots: self.table.slots(), searched }
    }

    fn replace(&mut self, bucket: u32, slot: usize, value: V) -> V {
        let old = self.table.value(bucket, slot);
        self.table.set_value(bucket, slot, value);
        self.stats.updated += 1;
        old
    }

    /// Replaces the value of a key and returns the old one; does nothing without an entry.
    pub fn update(&mut self, key: K, value: V) -> Option<V> {
        self.churn();
        let (bucket, slot) = self.find(self.table.candidates(key), key)?;
        Some(self.replace(bucket, slot, value))
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.churn();
        let place = self.find(self.table.candidates(key), key)?;
        Some(self.vacate(key, place))
    }

    /// Removes all entries and iterates over them. Readers find fewer and fewer.
    pub fn drain(&mut self) -> Drain<'_, K, V> {
        Drain::new(self)
    }

    /// Removes all entries, as [`Writer::drain`] does. The markers that have lost count stay.
    pub fn clear(&mut self) {
        drop(self.drain());
    }

    /// Removes a key from the place where it is; returns its value.
    pub(super) fn vacate(&mut self, key: K, (bucket, slot): (u32, usize)) -> V {
        let candidates = self.table.candidates(key);
        let old = self.table.value(bucket, slot);
        self.table.clear(bucket, slot);
        if bucket == candidates.second {
            self.table.unmark(candidates);
            // A caller's key that is not what its words say may have been counted elsewhere.
            self.stats.second = self.stats.second.saturating_sub(1);
        }
        self.set_len(self.len - 1);
        self.stats.removed += 1;
        old
    }

    /// Returns the number of markers that have lost count of the keys in their second bucket. Each
    /// costs lookups of absent keys one more line. Reads all headers.
    pub fn stuck_markers(&self) -> usize {
        self.stuck().count()
    }

    pub(super) fn stuck(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..self.table.buckets).flat_map(move |bucket| {
            let header = self.table.header(bucket);
            (0..CLASSES).filter(move |&class| header.stuck(class)).map(move |class| (bucket, class))
        })
    }

    /// Moves entries on every operation, with the feature `always-displace`.
    #[inline(always)]
    fn churn(&mut self) {
        #[cfg(feature = "always-displace")]
        self.shuffle(4);
    }

    /// Iterates over every entry, in the order of the buckets. Reads the whole table.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        self.iter_in(0..self.buckets())
    }

    /// Iterates over the entries of some buckets, to visit a table in slices. An insertion between
    /// two slices may move an entry from an unvisited bucket into a visited one.
    pub fn iter_in(&self, buckets: Range<usize>) -> impl Iterator<Item = (K, V)> + '_ {
        let table = &*self.table;
        // At most the number of buckets, which has 32 bits.
        let end = buckets.end.min(self.buckets()) as u32;
        let start = buckets.start.min(self.buckets()) as u32;
        (start..end).flat_map(move |bucket| {
            let header = table.header(bucket);
            (0..Bucket::<K, V>::SLOTS)
                .filter(move |&slot| header.has(slot))
                .map(move |slot| (table.key(bucket, slot), table.value(bucket, slot)))
        })
    }

    /// Returns the number of buckets.
    pub fn buckets(&self) -> usize {
        self.table.buckets as usize
    }

    #[cfg(feature = "snapshot")]
    pub(super) fn table(&self) -> &Table<K, V> {
        &self.table
    }

    /// Puts an entry of an image into its free slot. Returns `false` if the key does not belong
    /// into this bucket or is already present; the table must not be used then.
    #[cfg(feature = "snapshot")]
    pub(super) fn restore(&mut self, bucket: u32, slot: usize, key: K, value: V) -> bool {
        let candidates = self.table.candidates(key);
        let second = bucket == candidates.second;
        if !(second || bucket == candidates.home) || self.table.find(bucket, key).is_some() {
            return false;
        }
        if second {
            self.table.mark(candidates);
            self.stats.second += 1;
        }
        self.table.write(bucket, slot, key, value);
        self.set_len(self.len + 1);
        true
    }

    /// Finishes after the last `restore`; fails with the bucket of a key that is in both of its
    /// buckets.
    #[cfg(feature = "snapshot")]
    pub(super) fn settle(&mut self) -> Result<(), u32> {
        let table = &*self.table;
        for bucket in 0..table.buckets {
            let header = table.header(bucket);
            for slot in (0..Bucket::<K, V>::SLOTS).filter(|&slot| header.has(slot)) {
                let key = table.key(bucket, slot);
                let candidates = table.candidates(key);
                if bucket == candidates.second && table.find(candidates.home, key).is_some() {
                    return Err(bucket);
                }
            }
        }
        Ok(())
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Returns the share of occupied slots, 0 to 1.
    pub fn occupancy(&self) -> f64 {
        self.len as f64 / self.slots() as f64
    }

    /// Returns the seed of the hash function.
    pub fn seed(&self) -> u64 {
        self.table.seed
    }

    /// Returns the counts so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

impl<K: Key, V: Value> core::fmt::Debug for Writer<K, V> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Writer").field("len", &self.len).field("slots", &self.slots()).finish()
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn markers_count_down_to_nothing() {
        let mut writer = Writer::<u64, u16>::new(&Config::entries(20_000)).expect("small");
        let key = |number: u64| number << 20;
        (0..20_000).for_each(|number| assert_eq!(writer.insert(key(number), 1), Ok(None)));
        for number in 0..200_000 {
            assert!(writer.remove(key(number)).is_some());
            assert_eq!(writer.insert(key(number + 20_000), 1), Ok(None));
            writer.shuffle(2);
        }
        let second = writer
            .iter()
            .filter(|&(key, _)| {
                let candidates = writer.table.candidates(key);
                writer.table.find(candidates.second, key).is_some()
            })
            .count();
        assert_eq!(writer.stats().second, second as u64);
        (200_000..220_000).for_each(|number| assert!(writer.remove(key(number)).is_some()));
        assert!(writer.stuck_markers() < 30, "{}", writer.stuck_markers());
        writer.recount();
        for bucket in 0..writer.table.buckets {
            let header = writer.table.header(bucket);
            assert_eq!((header.words(), (0..8).any(|second| header.marked(second))), (0, false));
        }
    }

    #[test]
    fn markers_that_lost_count_are_put_right() {
        // All keys of a home: far more than a line holds, so most live elsewhere.
        let mut writer = Writer::<u64, u16>::new(&Config::buckets(1000)).expect("small");
        let keys: Vec<u64> = (0..1_000_000u64)
            .filter(|&key| {
                let candidates = writer.table.candidates(key);
                candidates.home == 7 && candidates.second % CLASSES == 3
            })
            .take(30)
            .collect();
        keys.iter().for_each(|&key| assert_eq!(writer.insert(key, 1), Ok(None)));
        assert_eq!((writer.stuck_markers(), writer.stats().second), (1, 25));
        assert_eq!(writer.recount(), 0, "there are as many");
        keys[3..].iter().for_each(|&key| assert_eq!(writer.remove(key), Some(1)));
        assert_eq!((writer.stuck_markers(), writer.stats().second), (1, 0));
        assert_eq!((writer.recount(), writer.stuck_markers()), (1, 0));
        assert!(!writer.table.header(7).marked(3));
        assert_eq!(keys.iter().filter(|&&key| writer.get(key).is_some()).count(), 3);
    }
}
