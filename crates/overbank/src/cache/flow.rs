//! The flow cache: geometry × policy × layout.

use core::fmt;

use super::config::Config;
use super::counters::Counters;
use super::design::Design;
use super::error::CacheError;
use super::geometry::{Fingerprint, Geometry, fingerprint};
use super::layout::{Fp16V16, Layout};
use super::policy::{Policy, Random};
use super::probes::{BURST, Hits, Probes, Slot, Slots, keys};
use super::table::{Entry, Place, Table};
use crate::hash::Hash64;
use crate::isa::Isa;
use crate::memory::HugePages;

/// Outcome of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The entry took an empty slot.
    Fresh,
    /// It replaced an entry with the same fingerprint in a candidate slot: usually an older value
    /// of the same key, rarely (candidates / 65536) another key.
    Replaced {
        /// The old value.
        value: u32,
    },
    /// All candidate slots were taken, and the policy evicted one entry.
    Evicted {
        /// Fingerprint of the lost entry.
        fingerprint: Fingerprint,
        /// Its value.
        value: u32,
    },
}

/// Outcome of one step of a [`sweep`](FlowCache::sweep).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Entries removed.
    pub removed: usize,
    /// Bucket to continue at; 0 at the end of the table.
    pub next: usize,
}

/// A value found by its fingerprint alone. About one lookup of an absent key in 65536 / candidates
/// returns another key's value; [`FlowCache::lookup`] is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unverified(pub u32);

/// A bounded table from 64-bit hashes to small values, which evicts what it cannot hold.
///
/// It stores 16-bit fingerprints, no keys. A match is a hint: the caller's `verify` decides whether
/// the value belongs to its key. After construction nothing panics, allocates or blocks, whatever
/// the hashes are. One owner, no locks: shared references only read.
///
/// A hash says where its bits come from: [`Hash64`].
///
/// ```
/// use overbank::cache::{Blp, Config, FlowCache, Fp16V16, Pblru};
/// use overbank::hash::Hash64;
///
/// let mut cache = FlowCache::<Blp<2, 16>, Pblru, Fp16V16>::new(&Config::entries(4096))?;
/// let flows = ["web", "dns"];
/// let hash = Hash64::mix(7);
/// cache.insert(hash, 1);
/// assert_eq!(cache.lookup(hash, |value| flows[value as usize] == "dns"), Some(1));
/// assert_eq!(cache.lookup(hash, |value| flows[value as usize] == "web"), None);
/// assert_eq!(cache.counters().false_positives, 1);
/// # Ok::<(), overbank::cache::CacheError>(())
/// ```
pub struct FlowCache<G, P = Random, L = Fp16V16> {
    table: Table<G, L>,
    policy: P,
    counters: Counters,
    design: Design,
}

impl<G: Geometry, P: Policy<G>, L: Layout> FlowCache<G, P, L> {
    /// Allocates, zeroes and touches the table. Later calls allocate nothing.
    pub fn new(config: &Config) -> Result<Self, CacheError> {
        let table = Table::new(config)?;
        let policy = P::new(table.buckets(), config)?;
        let design = Design::of(G::KIND, policy.kind());
        Ok(Self { table, policy, counters: Counters::default(), design })
    }

    /// Looks for the fingerprints of up to [`BURST`] hashes. A longer slice is cut; [`Probes::len`]
    /// is the number probed.
    ///
    /// Prefetches all cache lines before it reads the first. Changes and counts nothing. The caller
    /// verifies the matches ([`Probes::resolve`]) and reports them ([`Self::commit`]).
    #[inline]
    pub fn probe_batch(&self, hashes: &[Hash64], out: &mut Probes) {
        self.table.probe(hashes, None, out);
    }

    /// Probes a burst and meanwhile prefetches the lines of the `next` hashes, at most [`BURST`]. A
    /// single burst waits for its first lines; this hides the wait.
    ///
    /// Expects that `hashes` were `next` in the previous call (for the first burst, a call without
    /// hashes), and does not prefetch their lines again. Otherwise the result is the same, but
    /// slower.
    #[inline]
    pub fn probe_batch_ahead(&self, hashes: &[Hash64], next: &[Hash64], out: &mut Probes) {
        self.table.probe(hashes, Some(next), out);
    }

    /// Returns the value now in a candidate slot of `hash`. Slots count modulo
    /// [`Self::candidates`].
    #[inline]
    pub fn candidate(&self, hash: Hash64, slot: Slot) -> u32 {
        self.table.value(self.table.candidate(hash, usize::from(slot.get()))).into()
    }

    /// Returns all candidate slots with the fingerprint of `hash`, first to last: also those in
    /// second buckets, which a probe may omit.
    #[inline]
    pub fn matches(&self, hash: Hash64) -> Slots {
        Slots::of(self.table.scan(hash).matching)
    }

    /// Reports a burst whose matches were verified.
    ///
    /// Counts, and lets the policy promote. A promotion first checks that the slot still has the
    /// fingerprint, since an earlier one of the same burst may have moved the entry. Of hashes and
    /// hits, those count that both have.
    #[inline]
    pub fn commit(&mut self, hashes: &[Hash64], hits: &Hits<'_>) {
        let count = hashes.len().min(hits.len());
        let hit = hits.hit & keys(count);
        self.counters.lookups = self.counters.lookups.wrapping_add(count as u64);
        self.counters.hits = self.counters.hits.wrapping_add(hit.count_ones().into());
        self.counters.false_positives = self.counters.false_positives.wrapping_add(hits.refused);
        self.policy.report(&mut self.table, &hashes[..count], &hits.masks[..count], hit);
    }

    /// Returns the value that `verify` accepts, among those whose fingerprint matches. Calls
    /// `verify` once per match, in the order of the candidate slots, until it returns true.
    #[inline]
    pub fn lookup(&mut self, hash: Hash64, mut verify: impl FnMut(u32) -> bool) -> Option<u32> {
        let (mut mask, mut refused, mut found) = (0, 0, None);
        for slot in self.matches(hash) {
            let value = self.candidate(hash, slot);
            if verify(value) {
                mask = 1 << slot.get();
                found = Some(value);
                break;
            }
            refused += 1;
        }
        let hit = found.is_some().into();
        self.commit(&[hash], &Hits { masks: &[mask], hit, refused });
        found
    }

    /// Returns the value that `verify` accepts, as [`Self::lookup`] does, but counts and promotes
    /// nothing.
    pub fn get(&self, hash: Hash64, mut verify: impl FnMut(u32) -> bool) -> Option<u32> {
        self.matches(hash).map(|slot| self.candidate(hash, slot)).find(|&value| verify(value))
    }

    /// Iterates over all entries, bucket by bucket. Reads the whole table.
    pub fn iter(&self) -> impl Iterator<Item = (Fingerprint, u32)> + '_ {
        let places = (0..self.table.buckets_with_buffer())
            .flat_map(|bucket| (0..G::SLOTS).map(move |index| Place { bucket, index }));
        places.filter_map(|place| {
            let Entry { fingerprint, value } = self.table.entry(place);
            (fingerprint != 0).then(|| (Fingerprint(fingerprint), value.into()))
        })
    }

    /// Returns the value in the first slot whose fingerprint matches, right or wrong.
    #[inline]
    pub fn lookup_unverified(&mut self, hash: Hash64) -> Option<Unverified> {
        self.lookup(hash, |_| true).map(Unverified)
    }

    /// Looks up many keys: calls `verify(i, value)` for the key of `hashes[i]`, and sets `out[i]`
    /// to the accepted value. Works in bursts of [`BURST`]; the promotions of a burst follow its
    /// last lookup. Slices of different lengths are cut to the shorter one.
    pub fn lookup_batch(
        &mut self,
        hashes: &[Hash64],
        mut verify: impl FnMut(usize, u32) -> bool,
        out: &mut [Option<u32>],
    ) {
        let mut probes = Probes::new();
        let count = hashes.len().min(out.len());
        let (hashes, out) = (&hashes[..count], &mut out[..count]);
        let mut next = hashes.chunks(BURST);
        self.probe_batch_ahead(&[], next.next().unwrap_or_default(), &mut probes);
        for (b, (hashes, out)) in hashes.chunks(BURST).zip(out.chunks_mut(BURST)).enumerate() {
            let (mut hit, mut refused) = (0, 0);
            self.probe_batch_ahead(hashes, next.next().unwrap_or_default(), &mut probes);
            for (i, &hash) in hashes.iter().enumerate() {
                out[i] = None;
                let mut left = probes.mask[i];
                while let Some(slot) = Slots::of(left).next() {
                    let value = self.candidate(hash, slot);
                    if verify(b * BURST + i, value) {
                        probes.mask[i] = left;
                        hit |= 1 << i;
                        out[i] = Some(value);
                        break;
                    }
                    refused += 1;
                    // A probe may omit second buckets after a match in the first.
                    left = self.table.scan(hash).matching & (u32::MAX - 1) << slot.get();
                }
            }
            self.commit(hashes, &Hits { masks: probes.masks(), hit, refused });
        }
    }

    /// Inserts an entry: over one with the same fingerprint, else in the first empty candidate
    /// slot, else in the slot that the policy evicts.
    #[inline]
    pub fn insert(&mut self, hash: Hash64, value: L::Value) -> Inserted {
        let scan = self.table.scan(hash);
        let fingerprint = fingerprint(hash);
        self.counters.inserts = self.counters.inserts.wrapping_add(1);
        let (slot, inserted) = if scan.matching != 0 {
            let slot = self.table.candidate(hash, scan.matching.trailing_zeros() as usize);
            self.counters.replacements = self.counters.replacements.wrapping_add(1);
            (slot, Inserted::Replaced { value: self.table.value(slot).into() })
        } else if scan.empty != 0 {
            self.table.len += 1;
            (self.table.candidate(hash, scan.empty.trailing_zeros() as usize), Inserted::Fresh)
        } else {
            let (slot, victim) = self.policy.evict(&mut self.table, hash);
            self.counters.evictions = self.counters.evictions.wrapping_add(1);
            let Entry { fingerprint, value } = victim;
            (slot, Inserted::Evicted { fingerprint: Fingerprint(fingerprint), value: value.into() })
        };
        self.table.set(slot, Entry { fingerprint, value });
        self.policy.inserted(&self.table, hash);
        inserted
    }

    /// Removes the entry that `verify` accepts and returns its value.
    pub fn remove(&mut self, hash: Hash64, mut verify: impl FnMut(u32) -> bool) -> Option<u32> {
        let (slot, value) = self
            .matches(hash)
            .map(|slot| (slot, self.candidate(hash, slot)))
            .find(|&(_, value)| verify(value))?;
        self.table.set_fingerprint(self.table.candidate(hash, usize::from(slot.get())), 0);
        self.removed(1);
        Some(value)
    }

    /// Keeps the entries for which `keep(fingerprint, value)` is true; returns the number removed.
    pub fn retain(&mut self, keep: impl FnMut(Fingerprint, u32) -> bool) -> usize {
        self.sweep(0, usize::MAX, keep).removed
    }

    /// Runs [`Self::retain`] in steps: visits `buckets` buckets from `start` on, and returns where
    /// to continue. A start past the end does nothing.
    pub fn sweep(
        &mut self,
        start: usize,
        buckets: usize,
        mut keep: impl FnMut(Fingerprint, u32) -> bool,
    ) -> Swept {
        let all = self.table.buckets_with_buffer();
        let end = start.saturating_add(buckets).min(all);
        let mut removed = 0;
        for bucket in start..end {
            for index in 0..G::SLOTS {
                let slot = Place { bucket, index };
                let fingerprint = self.table.fingerprint(slot);
                if fingerprint != 0
                    && !keep(Fingerprint(fingerprint), self.table.value(slot).into())
                {
                    self.table.set_fingerprint(slot, 0);
                    removed += 1;
                }
            }
        }
        self.removed(removed);
        Swept { removed, next: if end < all && start < all { end } else { 0 } }
    }

    /// Removes all entries and iterates over them, bucket by bucket. Those that were not asked for
    /// are removed when it is dropped.
    pub fn drain(&mut self) -> Drain<'_, G, P, L> {
        Drain { cache: self, slot: 0 }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.table.clear();
        self.policy.cleared();
        self.removed(self.table.len);
    }

    fn removed(&mut self, count: usize) {
        self.table.len -= count;
        self.counters.removals = self.counters.removals.wrapping_add(count as u64);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.table.len
    }

    /// Returns whether the cache has no entries.
    pub fn is_empty(&self) -> bool {
        self.table.len == 0
    }

    /// Returns the slots that can be occupied, those of BLP's buffer buckets included:
    /// (buckets + H − 1) × m. [`Self::len`] never exceeds it.
    pub fn capacity(&self) -> usize {
        self.table.capacity()
    }

    /// Returns the number of buckets, without BLP's buffer buckets.
    pub fn buckets(&self) -> usize {
        self.table.buckets()
    }

    /// Returns the number of candidate slots of a key: H × m.
    pub const fn candidates(&self) -> usize {
        G::CANDIDATES
    }

    /// Returns the bytes of the table, buffer buckets included, and of the policy's state that
    /// grows with it, without the struct itself.
    pub fn memory_bytes(&self) -> usize {
        self.table.bytes() + self.policy.state_bytes()
    }

    /// Returns whether the table lies on 2 MiB pages, as the kernel reports now. Reads
    /// `/proc/self/smaps`: not for the packet path.
    pub fn huge_pages(&self) -> HugePages {
        self.table.huge_pages()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sets the counters to zero; entries stay.
    pub fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }

    /// Returns the instruction set of the probes.
    pub fn isa(&self) -> Isa {
        self.table.isa()
    }

    /// Returns whether probes prefetch only into the second-level cache.
    pub fn prefetches_far(&self) -> bool {
        self.table.prefetches_far()
    }

    /// Returns geometry and policy as a value.
    pub fn design(&self) -> Design {
        self.design
    }

    /// Returns the entry in a slot of a bucket, buffer buckets included: `(fingerprint, value)`.
    /// Returns `None` if the slot is empty or out of range.
    #[cfg(any(test, feature = "internals"))]
    pub fn peek(&self, bucket: usize, slot: usize) -> Option<(Fingerprint, u32)> {
        if bucket >= self.table.buckets_with_buffer() || slot >= G::SLOTS {
            return None;
        }
        let Entry { fingerprint, value } = self.table.entry(Place { bucket, index: slot });
        (fingerprint != 0).then(|| (Fingerprint(fingerprint), value.into()))
    }
}

/// The entries of a cache, each removed as it is handed out; made by [`FlowCache::drain`].
#[derive(Debug)]
pub struct Drain<'a, G: Geometry, P: Policy<G>, L: Layout> {
    cache: &'a mut FlowCache<G, P, L>,
    /// The next slot of the table, counted over all buckets.
    slot: usize,
}

impl<G: Geometry, P: Policy<G>, L: Layout> Iterator for Drain<'_, G, P, L> {
    type Item = (Fingerprint, u32);

    fn next(&mut self) -> Option<Self::Item> {
        while self.slot < self.cache.capacity() {
            let place = Place { bucket: self.slot / G::SLOTS, index: self.slot % G::SLOTS };
            let Entry { fingerprint, value } = self.cache.table.entry(place);
            self.slot += 1;
            if fingerprint != 0 {
                self.cache.table.set_fingerprint(place, 0);
                self.cache.removed(1);
                return Some((Fingerprint(fingerprint), value.into()));
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.cache.len(), Some(self.cache.len()))
    }
}

impl<G: Geometry, P: Policy<G>, L: Layout> ExactSizeIterator for Drain<'_, G, P, L> {}

impl<G: Geometry, P: Policy<G>, L: Layout> Drop for Drain<'_, G, P, L> {
    fn drop(&mut self) {
        self.cache.clear();
    }
}

impl<G, P: Clone, L> Clone for FlowCache<G, P, L> {
    /// Copies the whole table. Without memory for it, ends as every allocation of that kind does.
    fn clone(&self) -> Self {
        let Self { table, policy, counters, design } = self;
        Self { table: table.clone(), policy: policy.clone(), counters: *counters, design: *design }
    }
}

impl<G, P, L> fmt::Debug for FlowCache<G, P, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowCache")
            .field("design", &format_args!("{}", self.design))
            .field("len", &self.table.len)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
