//! Optimistic concurrent cuckoo hashing, as CuckooSwitch found it and changed it step by step: what
//! figure 5 begins with.
//!
//! ```text
//!  words      │ slot │ slot │ slot │ slot │    a bucket: half a cache line, 4 entries of 8 bytes
//!             key, 48 bits · value, 16 bits    an empty slot is 0, which is no address
//!  versions   │ v │ v │ v │ … 4096            a separate array, 16 KiB; bucket b has v[b % 4096]
//! ```
//!
//! A key may be in either of two buckets, and a lookup reads both unless the first has it. The one
//! writer makes the versions of the buckets that it changes odd, changes them, and makes them even
//! again; a reader that saw an odd version, or another one afterwards, starts again. The lookups
//! are in [`reads`]; the writer's part here, a search breadth first, is the same for all of them
//! and measured by none.

mod reads;

pub(super) use reads::LOOK_UPS;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use overbank::fib::MacAddr;
use overbank::hash::mix;
use overbank::memory::{HugePages, Pages, Words};
use overbank::prefetch::Prefetch;
use overbank_kit::naive::Search;

const SLOTS: usize = 4;
/// Version counters: "a few thousand counters in total" (section 3.2).
const VERSIONS: usize = 4096;
/// Buckets that an insertion looks at. Fills a table past 95 %.
const SEARCH_MAX: usize = 2048;
pub(super) const BATCH_MAX: usize = 64;

pub(super) struct Optimistic {
    words: Words,
    versions: Box<[AtomicU32]>,
    buckets: u32,
    seed: u64,
    /// As `overbank::fib` decides for a table of this size.
    far: bool,
    /// Zero, which the compiler does not know. An addition of a zero that it sees becomes a fence
    /// and a load.
    nothing: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Optimistic {
    /// Returns an empty table that `entries` entries fill to 95 %. `None`: no memory, or too many.
    pub(super) fn new(entries: usize, huge: bool, seed: u64) -> Option<Optimistic> {
        let buckets = u32::try_from(Self::buckets(entries)).ok()?;
        let pages = if huge { Pages::Huge } else { Pages::Small };
        let words = Words::zeroed(buckets as usize * SLOTS, pages).ok()?;
        Some(Self::over(words, buckets, seed))
    }

    fn over(words: Words, buckets: u32, seed: u64) -> Optimistic {
        let versions = (0..VERSIONS).map(|_| AtomicU32::new(0)).collect();
        let far = Prefetch::Automatic.is_far(size_of_val(words.get()));
        Optimistic { words, versions, buckets, seed, far, nothing: std::hint::black_box(0) }
    }

    fn buckets(entries: usize) -> usize {
        // Two more: with a handful of buckets luck decides.
        (entries * 100).div_ceil(95 * SLOTS) + 2
    }

    pub(super) fn bytes_for(entries: usize) -> usize {
        Self::buckets(entries) * SLOTS * 8
    }

    /// Returns the same entries on other pages.
    pub(super) fn copy(&self, huge: bool) -> Option<Optimistic> {
        let pages = if huge { Pages::Huge } else { Pages::Small };
        let words = Words::zeroed(self.words.get().len(), pages).ok()?;
        for (to, from) in words.get().iter().zip(self.words.get()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Some(Self::over(words, self.buckets, self.seed))
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.get().len() * 8
    }

    pub(super) fn huge_pages(&self) -> HugePages {
        self.words.huge_pages()
    }

    /// Returns both buckets of a key, which differ.
    #[inline(always)]
    fn places(&self, key: MacAddr) -> (u32, u32) {
        let hash = mix(key.get() ^ self.seed);
        let scale = |bits: u64| ((bits * u64::from(self.buckets)) >> 32) as u32;
        let (first, second) = (scale(hash >> 32), scale(hash & 0xffff_ffff));
        let next = if second + 1 == self.buckets { 0 } else { second + 1 };
        (first, if first == second { next } else { second })
    }

    #[inline(always)]
    fn slots(&self, bucket: u32) -> &[AtomicU64] {
        let at = bucket as usize * SLOTS;
        &self.words.get()[at..at + SLOTS]
    }

    #[inline(always)]
    fn version(&self, bucket: u32) -> &AtomicU32 {
        &self.versions[bucket as usize % VERSIONS]
    }

    #[inline(always)]
    fn find(&self, bucket: u32, key: MacAddr) -> Option<u16> {
        let (mut bits, mut value) = (0u32, 0u64);
        // All four, without a branch between them.
        for (i, slot) in self.slots(bucket).iter().enumerate() {
            let word = slot.load(Ordering::Relaxed);
            let here = word >> 16 == key.get();
            bits |= u32::from(here) << i;
            value |= word & u64::from(here).wrapping_neg();
        }
        (bits != 0).then_some(value as u16)
    }

    fn free(&self, bucket: u32) -> Option<usize> {
        self.slots(bucket).iter().position(|slot| slot.load(Ordering::Relaxed) == 0)
    }

    fn key(&self, bucket: u32, slot: usize) -> Option<MacAddr> {
        MacAddr::new(self.slots(bucket)[slot].load(Ordering::Relaxed) >> 16)
    }

    /// Returns the entries of the first buckets, at most `buckets_max`, and those of them in their
    /// second bucket, whose lookup reads two.
    pub(super) fn census(&self, buckets_max: u32) -> (u64, u64) {
        let buckets = 0..self.buckets.min(buckets_max);
        let slots = buckets.flat_map(|bucket| (0..SLOTS).map(move |slot| (bucket, slot)));
        let entries = slots.filter_map(|(bucket, slot)| Some((bucket, self.key(bucket, slot)?)));
        entries.filter(|(_, key)| key.get() != 0).fold((0, 0), |(all, second), (bucket, key)| {
            (all + 1, second + u64::from(self.places(key).0 != bucket))
        })
    }

    /// Changes buckets `a` and `b` (which may be one) so that no reader believes what it saw of
    /// them meanwhile: Algorithms 1 and 2, "displace".
    fn change(&self, a: u32, b: u32, stores: impl FnOnce()) {
        let (first, second) = (self.version(a), self.version(b));
        // Two buckets may share a counter, which twice one would leave even.
        let both = !std::ptr::eq(first, second);
        let step = || {
            first.fetch_add(1, Ordering::SeqCst);
            if both {
                second.fetch_add(1, Ordering::SeqCst);
            }
        };
        step();
        // A reader that sees a store below sees the odd versions afterwards.
        fence(Ordering::Release);
        stores();
        step();
    }

    fn put(&self, bucket: u32, slot: usize, word: u64) {
        self.slots(bucket)[slot].store(word, Ordering::Relaxed);
    }

    fn displace(&self, from: u32, slot: usize, to: u32, free: usize) {
        let word = self.slots(from)[slot].load(Ordering::Relaxed);
        self.change(from, to, || {
            self.put(from, slot, 0);
            self.put(to, free, word);
        });
    }
}

pub(super) struct Filler<'a> {
    table: &'a Optimistic,
    search: Search,
}

impl Filler<'_> {
    /// Returns the only filler of a table.
    pub(super) fn of(table: &Optimistic) -> Filler<'_> {
        Filler { table, search: Search::at_most(SEARCH_MAX) }
    }

    pub(super) fn prefetch(&self, key: MacAddr) {
        let (first, second) = self.table.places(key);
        overbank::prefetch::prefetch(&self.table.slots(first)[0]);
        overbank::prefetch::prefetch(&self.table.slots(second)[0]);
    }

    /// Inserts a key that is not there yet and is not 0. An error changes nothing.
    pub(super) fn insert(&mut self, key: MacAddr, value: u16) -> Result<(), Full> {
        let table = self.table;
        let places = |key| <[_; 2]>::from(table.places(key)).into_iter().map(|b| b as usize);
        let others = |bucket, slot| places(table.key(bucket as u32, slot).expect("a full bucket"));
        let empty = |bucket| table.free(bucket as u32);
        let limits = (u32::MAX, SLOTS);
        let found = self.search.nearest(places(key), limits, empty, others).ok_or(Full)?;
        let (bucket, slot) = self.search.make_room(found, |from, to| {
            table.displace(from.0 as u32, from.1, to.0 as u32, to.1);
        });
        let word = key.get() << 16 | u64::from(value);
        table.change(bucket as u32, bucket as u32, || table.put(bucket as u32, slot, word));
        Ok(())
    }

    /// Moves entries drawn at random to their other bucket, where that has room.
    #[cfg(test)]
    fn shuffle(&mut self, attempts: usize, pcg: &mut overbank::random::Pcg32) {
        let table = self.table;
        for _ in 0..attempts {
            let (from, slot) = (pcg.below(table.buckets), pcg.below(SLOTS as u32) as usize);
            let Some(key) = table.key(from, slot).filter(|key| key.get() != 0) else { continue };
            let (first, second) = table.places(key);
            let to = if first == from { second } else { first };
            let Some(free) = table.free(to) else { continue };
            table.displace(from, slot, to, free);
        }
    }
}

#[cfg(test)]
mod tests;
