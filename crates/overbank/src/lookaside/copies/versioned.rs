//! Copies in front of a database with one writer and many snapshots.
//!
//! A stamp is the newest commit that changed a key of the bucket, so *all entries of a bucket hold
//! for every snapshot from its stamp on*. A reader at snapshot s hits or fills only where the stamp
//! is at most s. The writer raises the stamps of what it changes, then commits, then publishes the
//! commit's number. A snapshot's number is the newest published when it was taken or more, so no
//! reader has the number of a commit that may still be aborted.

use alloc::collections::BTreeMap;
use core::fmt;
use core::marker::PhantomData;

use super::super::config::{Config, Counters, Error, VersionError};
use super::super::gate::Gate;
use super::super::plain::{KEY_WORDS_MAX, Plain, WORDS_MAX};
use super::bucket::VERSION;
use super::table::{Place, Table};
use super::ticket::{Found, Ticket};
use crate::memory::HugePages;
use crate::sync::{AtomicU64, Ordering};

/// Largest number of a commit.
pub const VERSION_MAX: u64 = VERSION;

/// Most values that a commit keeps for its keys in the table. Further ones stay without an entry.
pub const KEPT_MAX: usize = 1 << 16;

/// A look-aside table for a database whose commits have increasing numbers, one writer at a time,
/// and whose readers each see a snapshot.
///
/// ```
/// use overbank::lookaside::{Config, Found, Versioned};
///
/// let table = Versioned::<u64, u64>::new(&Config::entries(1000))?;
/// let old = table.at(0); // A reader of the empty database.
///
/// let mut commit = table.commit(1)?;
/// commit.change(7, Some(70)); // Before the database commits …
/// commit.publish(); // … and after.
///
/// let new = table.at(1); // A reader that began its transaction now.
/// let Found::Miss(ticket) = new.get(7) else { panic!() };
/// assert!(new.fill(ticket, Some(70))); // What its snapshot has.
/// assert!(matches!(new.get(7), Found::Hit(70)));
/// assert!(matches!(old.get(7), Found::Miss(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Versioned<K, V> {
    table: Table<K, V>,
    /// Newest commit that is known to be in the database.
    published: AtomicU64,
    /// Number of the open commit, 0 without one. This and `opened` change `alone`.
    pending: AtomicU64,
    /// Commits opened; the newest is the open one.
    opened: AtomicU64,
}

impl<K: Plain, V: Plain> Versioned<K, V> {
    /// Allocates an empty table, before the first commit or after any.
    ///
    /// # Errors
    /// The size is zero or too large, or the system lacks the memory.
    pub fn new(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            table: Table::new(config)?,
            published: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        })
    }

    /// Returns the newest published commit. A reader that takes this number *before* it begins its
    /// transaction may use it for its snapshot.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Returns the table as of the newest published commit: for reads that need no transaction
    /// unless they miss. Then begin one, and fill through this view; where commits may pass by this
    /// table, through [`Versioned::at`] its number instead, since it may be newer.
    #[inline]
    pub fn latest(&self) -> At<'_, K, V> {
        self.view(self.published())
    }

    /// Returns the table as of a snapshot: the number of its newest commit, or a lower one that was
    /// published before the transaction began.
    ///
    /// A number above the newest published one comes from a commit that did not pass by this table
    /// (another process, another handle): everything is taken out. A number that an open commit
    /// has, or above [`VERSION_MAX`], answers nothing and takes nothing in. This waits for a
    /// handful of stores of another thread when it takes everything out, otherwise for nothing.
    pub fn at(&self, version: u64) -> At<'_, K, V> {
        if version > self.published() {
            if version > VERSION_MAX || version <= self.pending.load(Ordering::Acquire) {
                return self.void();
            }
            self.table.alone_now(|| {
                if version > self.published() && version > self.pending.load(Ordering::Relaxed) {
                    self.table.begin_epoch(version);
                    self.published.store(version, Ordering::Release);
                }
            });
            if version > self.published() {
                return self.void();
            }
        }
        self.view(version)
    }

    /// The lot first: with a new one comes its era. With an old lot the view ends soon.
    #[inline]
    fn view(&self, version: u64) -> At<'_, K, V> {
        let lot = self.table.lot.load(Ordering::Acquire);
        let era = self.table.era.load(Ordering::Acquire);
        At { table: &self.table, version, lot, era }
    }

    fn void(&self) -> At<'_, K, V> {
        At { table: &self.table, version: 0, lot: 0, era: 0 }
    }

    /// Opens the commit of the transaction that is about to get this number. One that is still open
    /// was aborted, and ends.
    ///
    /// Numbers follow one another. All below this one count as published from now on, whatever
    /// becomes of it. With a gap, commits did not pass by this table: everything is taken out.
    ///
    /// # Errors
    /// The number is not above the newest published one, or above [`VERSION_MAX`].
    pub fn commit(&self, version: u64) -> Result<Commit<'_, K, V>, VersionError> {
        self.table.alone(|| {
            let published = self.published();
            if version <= published || version > VERSION_MAX {
                return Err(VersionError { version, published });
            }
            if version > published + 1 {
                // Commits between did not pass by this table.
                self.table.begin_epoch(version - 1);
                self.published.store(version - 1, Ordering::Release);
            }
            self.pending.store(version, Ordering::Release);
            let number = self.opened.load(Ordering::Relaxed) + 1;
            self.opened.store(number, Ordering::Relaxed);
            let lot = self.table.lot.load(Ordering::Relaxed);
            Ok(Commit { of: self, version, lot, number, kept: BTreeMap::new(), types: PhantomData })
        })
    }

    /// Takes everything out, in the time of one bucket in 32,768. For changes by a commit see
    /// [`Commit::clear`].
    pub fn clear(&self) {
        self.table.alone(|| self.table.begin_epoch(self.newest()));
    }

    /// Returns the newest number that a change may have.
    fn newest(&self) -> u64 {
        self.published().max(self.pending.load(Ordering::Relaxed))
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

impl<K: Plain, V: Plain> fmt::Debug for Versioned<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Versioned");
        shown.field("slots", &self.slots()).field("published", &self.published());
        shown.finish_non_exhaustive()
    }
}

/// A table as of one snapshot. After a clear it answers nothing.
pub struct At<'t, K, V> {
    table: &'t Table<K, V>,
    version: u64,
    lot: u64,
    era: u64,
}

impl<K, V> Clone for At<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for At<'_, K, V> {}

impl<K: Plain, V: Plain> At<'_, K, V> {
    /// Looks up a key. Never waits; reads one bucket.
    #[inline(always)]
    pub fn get(&self, key: K) -> Found<K, V> {
        self.look(key, self.table.place(self.table.hash(key)))
    }

    #[inline(always)]
    fn look(&self, key: K, place: Place) -> Found<K, V> {
        if self.table.lot.load(Ordering::Acquire) != self.lot {
            return Found::Miss(Ticket::void(key));
        }
        let admits = |stamp| stamp & VERSION <= self.version;
        match self.table.look(key, place, self.era, admits) {
            Found::Miss(ticket) if !ticket.is_void() => {
                Found::Miss(Ticket { stamp: self.version, lot: self.lot, ..ticket })
            }
            found => found,
        }
    }

    /// Looks up keys, in bursts of [`BURST`](super::BURST) whose waits for memory overlap. Calls
    /// `each` with the number of a key in the list and what was found, in order.
    #[inline(always)]
    pub fn get_batch(&self, keys: &[K], mut each: impl FnMut(usize, Found<K, V>)) {
        self.table.places(keys, |at, key, place| each(at, self.look(key, place)));
    }

    /// Looks up a key, asks `snapshot` if the table has no answer, and puts that in.
    #[inline(always)]
    pub fn get_or(&self, key: K, snapshot: impl FnOnce(&K) -> Option<V>) -> Option<V> {
        match self.get(key).answer() {
            Ok(value) => value,
            Err(ticket) => {
                let value = snapshot(&key);
                self.fill(ticket, value);
                value
            }
        }
    }

    /// Puts in what the snapshot has for the ticket's key. Returns whether it did: it declines if a
    /// later commit changed a key of the bucket, after a clear, with a ticket of a view of another
    /// snapshot or table, and if the entries there are asked for more often. Never waits.
    #[inline]
    pub fn fill(&self, ticket: Ticket<K>, value: Option<V>) -> bool {
        let (version, same) =
            (self.version, (ticket.stamp, ticket.lot) == (self.version, self.lot));
        self.table.fill(&ticket, value, |_, stamp| same && stamp & VERSION <= version)
    }

    /// Returns the number of the snapshot, or 0 for a view that answers nothing.
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl<K, V> fmt::Debug for At<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("At").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The changes of a transaction that is about to commit. Dropped without
/// [`publish`](Commit::publish), the transaction is taken to be aborted, whose number the next one
/// may have again. Drop it before another transaction can begin, where another process may write.
#[must_use = "tell it each key that the transaction changes, then publish"]
pub struct Commit<'t, K: Plain, V: Plain> {
    of: &'t Versioned<K, V>,
    version: u64,
    lot: u64,
    number: u64,
    /// New values of keys that the table had, put in at the end: an aborted one must never be.
    kept: BTreeMap<[u64; KEY_WORDS_MAX], Kept>,
    types: PhantomData<(K, V)>,
}

/// A value to put in, as the bucket has it.
struct Kept {
    bucket: u32,
    value: Option<[u64; WORDS_MAX]>,
}

impl<K: Plain, V: Plain> Commit<'_, K, V> {
    /// Notes that the transaction gives the key this value, or removes it (`None`): before the
    /// database commits. A key that the table had will have its new value there once published.
    /// Waits for at most a handful of stores of another thread.
    pub fn change(&mut self, key: K, value: Option<V>) {
        let (bucket, words) = self.place(key);
        let had = self.take_out(bucket, &words);
        let room = had && self.kept.len() < KEPT_MAX;
        let value = value.map(V::to_words);
        match self.kept.get_mut(&words[..KEY_WORDS_MAX]) {
            Some(kept) => kept.value = value,
            None if room => _ = self.kept.insert(Self::short(&words), Kept { bucket, value }),
            None => {}
        }
    }

    /// Notes that the transaction changes the key, to a value that the caller does not know.
    pub fn touch(&mut self, key: K) {
        let (bucket, words) = self.place(key);
        self.take_out(bucket, &words);
        self.kept.remove(&words[..KEY_WORDS_MAX]);
    }

    /// Notes that the transaction changes any number of keys: a range, a drop, a restore. Takes
    /// everything out, as [`Versioned::clear`] does; no snapshot before this commit has answers any
    /// more.
    pub fn clear(&mut self) {
        let Versioned { table, .. } = self.of;
        self.lot = table.alone(|| table.begin_epoch(self.of.newest().max(self.version)));
        self.kept.clear();
    }

    /// Returns the key's bucket and its words: before any lock, since they are the caller's code.
    fn place(&self, key: K) -> (u32, [u64; WORDS_MAX]) {
        let table = &self.of.table;
        (table.place(table.hash(key)).bucket, key.to_words())
    }

    fn short(words: &[u64; WORDS_MAX]) -> [u64; KEY_WORDS_MAX] {
        core::array::from_fn(|word| words[word])
    }

    fn take_out(&self, bucket: u32, words: &[u64; WORDS_MAX]) -> bool {
        let locked = self.of.table.lock(bucket);
        let slot = locked.find(words);
        slot.into_iter().for_each(|slot| locked.remove(slot));
        let stamp = locked.stamp();
        locked.set_stamp(stamp & !VERSION | (stamp & VERSION).max(self.version));
        slot.is_some()
    }

    /// Ends the commit after the database has committed: readers of this number get answers.
    pub fn publish(self) {
        let Versioned { table, published, opened, .. } = self.of;
        table.alone(|| {
            if opened.load(Ordering::Relaxed) == self.number {
                self.kept.iter().for_each(|(key, kept)| self.bring_in(key, kept));
            } else {
                // Another commit was opened meanwhile: nothing is known about their order.
                table.begin_epoch(self.of.newest().max(self.version));
            }
            published.store(self.of.published().max(self.version), Ordering::Release);
        });
    }

    fn bring_in(&self, key: &[u64; KEY_WORDS_MAX], Kept { bucket, value }: &Kept) {
        let Versioned { table, .. } = self.of;
        let words = core::array::from_fn(|word| key.get(word).copied().unwrap_or(0));
        let locked = table.lock(*bucket);
        let current = table.lot.load(Ordering::Acquire) == self.lot
            && locked.stamp() & VERSION == self.version;
        if let (true, None, Some(slot)) = (current, locked.find(&words), locked.free()) {
            locked.put(slot, &words, value.as_ref());
        }
    }
}

impl<K: Plain, V: Plain> fmt::Debug for Commit<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Commit");
        shown.field("version", &self.version).field("kept", &self.kept.len());
        shown.finish_non_exhaustive()
    }
}

impl<K: Plain, V: Plain> Drop for Commit<'_, K, V> {
    fn drop(&mut self) {
        self.of.table.alone(|| {
            if self.of.opened.load(Ordering::Relaxed) == self.number {
                self.of.pending.store(0, Ordering::Release);
            }
        });
    }
}

#[cfg(any(test, feature = "internals"))]
impl<K: Plain, V: Plain> Versioned<K, V> {
    pub(super) fn shared(&self) -> &Table<K, V> {
        &self.table
    }

    pub(super) fn assume_published(&self, version: u64) {
        self.published.store(version, Ordering::Release);
    }
}

#[cfg(all(test, feature = "loom"))]
impl<K: Plain, V: Plain> Commit<'_, K, V> {
    /// Puts a value in before the commit: a rule that fails.
    pub(super) fn put_in_at_once(&mut self, key: K, value: V) {
        let (bucket, words) = self.place(key);
        self.take_out(bucket, &words);
        let kept = Kept { bucket, value: Some(value.to_words()) };
        self.bring_in(&Self::short(&words), &kept);
    }
}
