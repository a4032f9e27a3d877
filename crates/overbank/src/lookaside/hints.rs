//! Hints: where in an index a key was found last.
//!
//! ```text
//!  key ─ hash ─▶ flow cache: fingerprint 16 | position 32 ─▶ index: does this key lie there now?
//!                  │ no match, or another key lies there         │ yes: the answer
//!                  └──────────────▶ search of the index ─────────┴─▶ its position becomes the hint
//! ```
//!
//! Keys are unique, so the key that lies at a position is the proof. A hint needs no version, and
//! a write to the index nothing to invalidate. A stale hint costs one access and is replaced. 6
//! bytes an entry; a hit touches 1 to 2 lines of the cache and those of the position.
//!
//! The effect is that of Ni, Jiang, Jiang, Huang, Wu: *SDC: A Software Defined Cache for Efficient
//! Data Indexing* (ICS 2019), in software: the cache keeps the answer of a search, not the path to
//! it.

use core::fmt;
use core::hash::Hash;

pub(super) use crate::cache::{BURST, CacheError, Config, Mask};
#[cfg(test)]
use crate::cache::{Blp, HalfBubble};
use crate::cache::{
    Counters, Design, FlowCache, Fp16V32, Geometry, Pblru, Policy, Probes, SetAssoc,
};
use crate::hash::{Hash64, Seed};
use crate::memory::HugePages;

#[cfg(test)]
mod tests;

/// An index whose positions can be asked: slabs, sorted vectors, index maps, trees in an arena.
///
/// A position is any number that [`find`](Self::find) returns. It may go stale with every write;
/// [`holds`](Self::holds) says so.
pub trait Positions<K: ?Sized> {
    /// Returns whether this very key lies at the position now. False for positions that are none.
    fn holds(&self, at: u32, key: &K) -> bool;

    /// Searches the index for the position of a key.
    fn find(&self, key: &K) -> Option<u32>;

    /// Prefetches what [`holds`](Self::holds) reads, for any number. Does nothing unless
    /// implemented.
    #[inline]
    fn prefetch(&self, at: u32) {
        let _ = at;
    }

    /// Searches for the positions of those of up to [`BURST`] keys that `which` names: sets their
    /// elements of `found` and no others. One search after another unless implemented.
    #[inline]
    fn find_burst(&self, keys: &[K], which: Mask, found: &mut [Option<u32>])
    where
        K: Sized,
    {
        for i in which {
            if let (Some(key), Some(found)) = (keys.get(i), found.get_mut(i)) {
                *found = self.find(key);
            }
        }
    }
}

/// A flow cache from keys to positions, in front of an index whose positions can be asked.
///
/// All lookups are exact, whatever the index did in between, if each of its calls gets the same
/// index or an index of the same answers. Another index costs time only. No panic, no allocation
/// after construction.
///
/// The default design is the best of the measured ones; docs/results.md has the figures.
///
/// ```
/// use overbank::lookaside::{Hints, Positions};
///
/// struct Sorted(Vec<(String, u32)>);
///
/// impl Positions<str> for Sorted {
///     fn holds(&self, at: u32, key: &str) -> bool {
///         self.0.get(at as usize).is_some_and(|(there, _)| there == key)
///     }
///     fn find(&self, key: &str) -> Option<u32> {
///         self.0.binary_search_by(|(there, _)| there.as_str().cmp(key)).ok().map(|at| at as u32)
///     }
/// }
///
/// let mut ports = Sorted(vec![("dns".into(), 53), ("https".into(), 443), ("ssh".into(), 22)]);
/// let mut hints = Hints::new(&Hints::entries(1000))?;
/// assert_eq!(hints.get(&ports, "ssh"), Some(2)); // A search.
/// assert_eq!(hints.get(&ports, "ssh"), Some(2)); // A hint.
/// ports.0.remove(0);
/// assert_eq!(hints.get(&ports, "ssh"), Some(1)); // No key lies at 2: a search.
/// assert_eq!(hints.get(&ports, "dns"), None);
/// assert_eq!((hints.counters().hits, hints.counters().false_positives), (1, 1));
/// # Ok::<(), overbank::cache::CacheError>(())
/// ```
pub struct Hints<G = SetAssoc<8>, P = Pblru> {
    cache: FlowCache<G, P, Fp16V32>,
    seed: Seed,
}

impl Hints {
    /// Returns the configuration of at least this many hints, 6 bytes each.
    pub const fn entries(entries: usize) -> Config {
        Config::entries(entries)
    }

    /// Allocates and touches the table. Later calls allocate nothing.
    ///
    /// # Errors
    /// No table has this size, or there is no memory.
    pub fn new(config: &Config) -> Result<Self, CacheError> {
        Self::with_design(config)
    }
}

impl<G: Geometry, P: Policy<G>> Hints<G, P> {
    /// Allocates a table of another design than the default one, as [`Hints::new`].
    ///
    /// # Errors
    /// As there.
    pub fn with_design(config: &Config) -> Result<Self, CacheError> {
        Ok(Self { cache: FlowCache::new(config)?, seed: Seed::new(config.seed) })
    }

    /// Returns the position of a key in the index: the hinted one if the key lies there, else that
    /// of a search, which becomes the hint.
    #[inline]
    pub fn get<K: Hash + ?Sized>(&mut self, index: &impl Positions<K>, key: &K) -> Option<u32> {
        let hash = self.seed.hash64(key);
        if let Some(at) = self.cache.lookup(hash, |at| index.holds(at, key)) {
            return Some(at);
        }
        let at = index.find(key)?;
        self.cache.insert(hash, at);
        Some(at)
    }

    /// Returns the position of a key as [`get`](Self::get) does, but changes and counts nothing.
    pub fn peek<K: Hash + ?Sized>(&self, index: &impl Positions<K>, key: &K) -> Option<u32> {
        let hash = self.seed.hash64(key);
        self.cache.get(hash, |at| index.holds(at, key)).or_else(|| index.find(key))
    }

    /// Returns the positions of many keys, in bursts of [`BURST`]: prefetches their hints, then
    /// the positions, then asks for all, and searches for those that are left together. Slices of
    /// different lengths are cut to the shorter one.
    pub fn get_batch<K: Hash>(
        &mut self,
        index: &impl Positions<K>,
        keys: &[K],
        out: &mut [Option<u32>],
    ) {
        let count = keys.len().min(out.len());
        self.bursts(index, &keys[..count], |first, found| {
            out[first..first + found.len()].copy_from_slice(found);
        });
    }

    /// Looks up many keys and hands out the positions of each burst with the number of its first
    /// key.
    #[inline(always)]
    pub(super) fn bursts<K: Hash>(
        &mut self,
        index: &impl Positions<K>,
        keys: &[K],
        mut each: impl FnMut(usize, &[Option<u32>]),
    ) {
        let hash = |keys: &[K]| {
            let mut hashes = [Hash64::default(); BURST];
            hashes.iter_mut().zip(keys).for_each(|(hash, key)| *hash = self.seed.hash64(key));
            (hashes, keys.len())
        };
        let mut probes = Probes::new();
        let mut bursts = keys.chunks(BURST);
        let mut next = hash(bursts.next().unwrap_or_default());
        self.cache.probe_batch_ahead(&[], &next.0[..next.1], &mut probes);
        for (b, keys) in keys.chunks(BURST).enumerate() {
            let (hashes, len) = next;
            let hashes = &hashes[..len];
            next = hash(bursts.next().unwrap_or_default());
            self.cache.probe_batch_ahead(hashes, &next.0[..next.1], &mut probes);
            probes.values().iter().for_each(|&at| index.prefetch(at));
            let mut found = [None; BURST];
            let hits = probes.resolve_branchless(&self.cache, hashes, |i, at| {
                let right = index.holds(at, &keys[i]);
                found[i] = right.then_some(at);
                right
            });
            self.cache.commit(hashes, &hits);
            let missed = hits.missed();
            if !missed.is_empty() {
                index.find_burst(keys, missed, &mut found[..len]);
                for i in missed {
                    if let Some(at) = found[i] {
                        self.cache.insert(hashes[i], at);
                    }
                }
            }
            each(b * BURST, &found[..len]);
        }
    }

    /// Removes all hints; no answer changes.
    pub fn clear(&mut self) {
        self.cache.clear();
    }

    /// Keeps the hints for which `keep(position)` is true; no answer changes.
    pub fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        self.cache.retain(|_, at| keep(at));
    }

    /// Returns the number of hints, stale ones included.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns whether there is no hint.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// Returns the number of hints that fit.
    pub fn capacity(&self) -> usize {
        self.cache.capacity()
    }

    /// Returns the bytes of the table.
    pub fn memory_bytes(&self) -> usize {
        self.cache.memory_bytes()
    }

    /// See [`FlowCache::huge_pages`].
    pub fn huge_pages(&self) -> HugePages {
        self.cache.huge_pages()
    }

    /// Returns the counters: lookups, hits, hints refused by the index (stale ones, and those of
    /// keys with the same fingerprint), insertions.
    pub fn counters(&self) -> &Counters {
        self.cache.counters()
    }

    /// Sets the counters to zero; hints stay.
    pub fn reset_counters(&mut self) {
        self.cache.reset_counters();
    }

    /// Returns geometry and policy as a value.
    pub fn design(&self) -> Design {
        self.cache.design()
    }
}

impl<G, P> fmt::Debug for Hints<G, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hints").field(&self.cache).finish()
    }
}
