//! Copies in front of a live index, one that every thread sees in its newest state.
//!
//! A guard is in the bucket from before its write of the index until after. It takes the key's
//! entry out, and changes the stamp when it enters and when it leaves. A ticket fills only if the
//! stamp is still that of its lookup and no guard is in the bucket. So between a lookup that missed
//! and its fill, no key of the bucket was written.

use core::fmt;

use super::super::config::{Config, Counters, Error};
use super::super::gate::Gate;
use super::super::plain::{Plain, WORDS_MAX};
use super::bucket::{VERSION, WRITERS_MAX};
use super::table::{Place, Table};
use super::ticket::{Found, Ticket};
use crate::hash::Hash64;
use crate::memory::HugePages;
use crate::sync::Ordering;

/// Version from which a bucket asks for a new epoch before it lets another guard in: so far from
/// the end that the guards inside can leave.
const VERSION_HIGH: u64 = VERSION - 2 * WRITERS_MAX as u64;

/// A look-aside table for an index that is read in its newest state: a map behind a lock, a
/// concurrent map, any index that is linearizable.
///
/// Everything takes `&self`: share it among threads. Reads through it are linearizable if the index
/// is, provided that every write of the index happens inside a guard of its key
/// ([`Copies::write`]), or of all ([`Copies::clearing`]).
///
/// A key's hash is the table's. A caller that has one already uses the methods `*_hashed`, and then
/// for every access: a key that two hashes name would have two buckets, and keep old answers in
/// one.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::RwLock;
/// use overbank::lookaside::{Config, Copies, Found};
///
/// let index = RwLock::new(BTreeMap::from([(1u64, 10u64)]));
/// let table = Copies::<u64, u64>::new(&Config::entries(1000))?;
/// let get = |key: u64| match table.get(key) {
///     Found::Hit(value) => Some(value),
///     Found::Absent => None,
///     Found::Miss(ticket) => {
///         let value = index.read().unwrap().get(&key).copied();
///         table.fill(ticket, value);
///         value
///     }
/// };
/// assert_eq!((get(1), get(1), get(2), get(2)), (Some(10), Some(10), None, None));
///
/// let guard = table.write(1); // From before the write …
/// index.write().unwrap().insert(1, 11);
/// guard.keep(11); // … until after: the entry that was there now has the new value.
/// assert!(matches!(table.get(1), Found::Hit(11)));
/// # Ok::<(), overbank::lookaside::Error>(())
/// ```
pub struct Copies<K, V> {
    pub(super) table: Table<K, V>,
}

impl<K: Plain, V: Plain> Copies<K, V> {
    /// Allocates an empty table.
    ///
    /// # Errors
    /// The size is zero or too large, or the system lacks the memory.
    pub fn new(config: &Config) -> Result<Self, Error> {
        Ok(Self { table: Table::new(config)? })
    }

    /// Returns the table's hash of a key.
    #[inline]
    pub fn hash(&self, key: K) -> Hash64 {
        self.table.hash(key)
    }

    /// Looks up a key. Never waits; reads one bucket.
    #[inline(always)]
    pub fn get(&self, key: K) -> Found<K, V> {
        self.get_hashed(self.table.hash(key), key)
    }

    /// Looks up a key by the caller's hash.
    #[inline(always)]
    pub fn get_hashed(&self, hash: Hash64, key: K) -> Found<K, V> {
        self.look(key, self.table.place(hash))
    }

    #[inline(always)]
    fn look(&self, key: K, place: Place) -> Found<K, V> {
        self.table.look(key, place, self.table.era.load(Ordering::Acquire), |_| true)
    }

    /// Looks up keys, in bursts of [`BURST`](super::BURST) whose waits for memory overlap. Calls
    /// `each` with the number of a key in the list and what was found, in order. Each key is looked
    /// up separately: a list is no snapshot.
    #[inline(always)]
    pub fn get_batch(&self, keys: &[K], mut each: impl FnMut(usize, Found<K, V>)) {
        self.table.places(keys, |at, key, place| each(at, self.look(key, place)));
    }

    /// Looks up a key, asks `index` if the table has no answer, and puts that in.
    #[inline(always)]
    pub fn get_or(&self, key: K, index: impl FnOnce(&K) -> Option<V>) -> Option<V> {
        match self.get(key).answer() {
            Ok(value) => value,
            Err(ticket) => {
                let value = index(&key);
                self.fill(ticket, value);
                value
            }
        }
    }

    /// Puts in what the index answered after the lookup that returned this ticket; `None` if it has
    /// no entry. Returns whether it did: it declines if a key of the bucket was written meanwhile,
    /// after a clear, with a ticket of another table, and if the entries there are asked for more
    /// often. Never waits.
    #[inline]
    pub fn fill(&self, ticket: Ticket<K>, value: Option<V>) -> bool {
        self.table.fill(&ticket, value, |stamp, _| stamp == ticket.stamp)
    }

    /// Enters the key's bucket for a write of the index: call it *before* the write, and keep the
    /// guard until *after*. Takes the key's entry out. Waits for at most a handful of stores of
    /// another thread. While 255 guards are in one bucket, another one there is a
    /// [`Copies::clearing`]: keep guards for the time of a write.
    pub fn write(&self, key: K) -> Writing<'_, K, V> {
        self.write_hashed(self.table.hash(key), key)
    }

    /// Enters the key's bucket by the caller's hash.
    pub fn write_hashed(&self, hash: Hash64, key: K) -> Writing<'_, K, V> {
        let (bucket, key) = (self.table.place(hash).bucket, key.to_words());
        loop {
            let locked = self.table.lock(bucket);
            let stamp = locked.stamp();
            if stamp & VERSION >= VERSION_HIGH {
                drop(locked);
                self.clear();
                continue;
            }
            let writers = locked.writers();
            if writers == WRITERS_MAX {
                drop(locked);
                let all = Some(self.clearing());
                return Writing {
                    table: &self.table,
                    bucket,
                    key,
                    stamp,
                    slot: None,
                    kept: None,
                    all,
                };
            }
            locked.set_writers(writers + 1);
            let slot = locked.find(&key);
            slot.into_iter().for_each(|slot| locked.remove(slot));
            locked.set_stamp(stamp + 1);
            let (stamp, kept, all) = (stamp + 1, None, None);
            return Writing { table: &self.table, bucket, key, stamp, slot, kept, all };
        }
    }

    /// Takes everything out and voids all tickets, in the time of one bucket in 32,768. Changes no
    /// answer by itself. After a change of the index outside the guards call it while readers of
    /// the index are still excluded. Without that, use [`Copies::clearing`].
    pub fn clear(&self) {
        self.table.alone(|| self.table.begin_epoch(0));
    }

    /// Enters all buckets for a write of any number of keys (a range, everything): as
    /// [`Copies::write`] does for one key. Until the guard is dropped the table takes nothing in.
    pub fn clearing(&self) -> Clearing<'_, K, V> {
        self.table.shut.fetch_add(1, Ordering::AcqRel);
        self.clear();
        Clearing { table: &self.table }
    }

    /// Returns what decides whether the table works.
    pub fn gate(&self) -> &Gate {
        &self.table.gate
    }

    /// Returns counts of one bucket in [`SAMPLE`](super::SAMPLE).
    pub fn counters(&self) -> Counters {
        self.table.counters()
    }

    /// Returns the number of entries that fit.
    pub fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Returns the bytes of the buckets.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the pages that the table lies on. Reads a file of the kernel: not for the fast path.
    pub fn huge_pages(&self) -> HugePages {
        self.table.huge_pages()
    }
}

impl<K: Plain, V: Plain> fmt::Debug for Copies<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("slots", &self.slots()).finish_non_exhaustive()
    }
}

/// A write of the index that is about to happen, happens, or just has: see [`Copies::write`].
/// Dropped (also by a panic), it leaves the key without an entry.
#[must_use = "keep it until the index has changed"]
pub struct Writing<'t, K: Plain, V: Plain> {
    table: &'t Table<K, V>,
    bucket: u32,
    key: [u64; WORDS_MAX],
    stamp: u64,
    /// Where the entry was. If it was, no other guard of the key was inside.
    slot: Option<usize>,
    kept: Option<Option<[u64; WORDS_MAX]>>,
    /// In its place, where the bucket could not count another guard.
    all: Option<Clearing<'t, K, V>>,
}

impl<K: Plain, V: Plain> Writing<'_, K, V> {
    /// Ends the guard after the index took this value for the key: an entry that was there now has
    /// it. Not if another guard was in the bucket at any time since: two writers may reach the
    /// index in one order and the table in the other.
    pub fn keep(mut self, value: V) {
        self.kept = Some(Some(value.to_words()));
    }

    /// Ends the guard after the index removed the key, as [`Writing::keep`]: an entry that was
    /// there now says so.
    pub fn keep_absent(mut self) {
        self.kept = Some(None);
    }
}

impl<K: Plain, V: Plain> fmt::Debug for Writing<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writing").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

impl<K: Plain, V: Plain> Drop for Writing<'_, K, V> {
    fn drop(&mut self) {
        if self.all.is_some() {
            return;
        }
        let locked = self.table.lock(self.bucket);
        let (stamp, writers) = (locked.stamp(), locked.writers());
        let alone = stamp == self.stamp && self.table.shut.load(Ordering::Acquire) == 0;
        // With the stamp of its entrance no other guard came or left, and no epoch. The slot is
        // free: nothing fills a bucket with a guard in it.
        if let (Some(slot), Some(value), true) = (self.slot, &self.kept, alone) {
            locked.put(slot, &self.key, value.as_ref());
        }
        locked.set_stamp(stamp & !VERSION | (stamp & VERSION).saturating_add(1).min(VERSION));
        locked.set_writers(writers - 1);
    }
}

/// A write of many keys of the index: see [`Copies::clearing`]. Dropped, it clears again.
#[must_use = "keep it until the index has changed"]
pub struct Clearing<'t, K: Plain, V: Plain> {
    table: &'t Table<K, V>,
}

impl<K: Plain, V: Plain> fmt::Debug for Clearing<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clearing").finish_non_exhaustive()
    }
}

impl<K: Plain, V: Plain> Drop for Clearing<'_, K, V> {
    fn drop(&mut self) {
        self.table.alone(|| self.table.begin_epoch(0));
        self.table.shut.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(all(test, feature = "loom"))]
impl<K: Plain, V: Plain> Writing<'_, K, V> {
    /// Puts the value in whether or not other guards were inside: a rule that fails.
    pub(super) fn keep_blindly(&self, value: V) {
        let locked = self.table.lock(self.bucket);
        if let Some(slot) = locked.find(&self.key).or_else(|| locked.free()) {
            locked.put(slot, &self.key, Some(&value.to_words()));
        }
    }
}
