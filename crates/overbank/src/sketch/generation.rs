//! The counters of an epoch, and what both threads share.
//!
//! ```text
//!   count-min, 4 rows of 2^c × u16, four to a word │ Bloom filter, 3 rows of 2^b bits │ samples
//! ```

use super::{Config, Settings};
use crate::memory::{MemoryError, Pages};
use crate::prefetch::prefetch;
use crate::sync::{Arc, AtomicU64, Ordering, own};
use crate::words::Words;

/// Rows of the count-min sketch.
pub const COUNT_ROWS: usize = 4;
/// Rows of the Bloom filter.
pub const BLOOM_ROWS: usize = 3;
/// Value at which a counter stops.
pub const COUNT_MAX: u16 = u16::MAX;

/// Both generations, and which thread has which.
pub(super) struct Shared {
    generations: [Generation; 2],
    /// The epoch and the settings that the counter is to take, as a packed [`Turn`].
    /// Written by the keeper.
    pub(super) wanted: AtomicU64,
    /// The last one that it took. Written by the counter.
    pub(super) taken: AtomicU64,
}

impl Shared {
    pub(super) fn new(config: Config, settings: Settings) -> Result<Arc<Self>, MemoryError> {
        let first = Turn { epoch: 0, settings }.pack();
        Ok(Arc::new(Self {
            generations: [Generation::new(config)?, Generation::new(config)?],
            wanted: AtomicU64::new(first),
            taken: AtomicU64::new(first),
        }))
    }

    /// Returns the generation that an epoch is counted in: the even epochs share one, the odd ones
    /// the other.
    #[inline(always)]
    pub(super) fn generation(&self, epoch: u16) -> &Generation {
        &self.generations[usize::from(epoch & 1)]
    }
}

/// An epoch and its settings, in one word so that they change together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Wraps: the two threads are never more than one apart.
    pub(super) epoch: u16,
    pub(super) settings: Settings,
}

impl Turn {
    pub(super) fn pack(self) -> u64 {
        let Settings { threshold, sample_log2 } = self.settings;
        u64::from(self.epoch)
            | u64::from(threshold.max(1)) << 16
            | u64::from(sample_log2.min(32)) << 32
    }

    #[inline(always)]
    pub(super) fn unpack(word: u64) -> Self {
        let settings =
            Settings { threshold: (word >> 16) as u16, sample_log2: (word >> 32) as u32 };
        Self { epoch: word as u16, settings }
    }
}

/// The counters of one epoch. All accesses are relaxed: the turns order them.
pub(super) struct Generation {
    words: Words,
    counters_log2: u32,
    bloom_log2: u32,
}

impl Generation {
    fn new(config: Config) -> Result<Self, MemoryError> {
        let Config { counters_log2, bloom_log2 } = config;
        let bloom = BLOOM_ROWS << (bloom_log2 - 6);
        let words = (COUNT_ROWS << (counters_log2 - 2)) + bloom + 1;
        Ok(Self { words: Words::zeroed(words, Pages::Huge)?, counters_log2, bloom_log2 })
    }

    /// Returns the word and the shift of a key's counter in a row.
    #[inline(always)]
    fn counter(&self, hash: u128, row: usize) -> (&AtomicU64, u32) {
        let column = (hash >> (16 * row)) as usize & ((1 << self.counters_log2) - 1);
        let index = (row << self.counters_log2) + column;
        (&self.words.get()[index / 4], 16 * (index % 4) as u32)
    }

    /// Returns the word and the bit of a key in a row of the filter.
    #[inline(always)]
    fn bit(&self, hash: u128, row: usize) -> (&AtomicU64, u64) {
        let column = (hash >> (64 + 18 * row)) as usize & ((1 << self.bloom_log2) - 1);
        let index = (row << self.bloom_log2) + column;
        let first = COUNT_ROWS << (self.counters_log2 - 2);
        (&self.words.get()[first + index / 64], 1 << (index % 64))
    }

    fn samples(&self) -> &AtomicU64 {
        let words = self.words.get();
        &words[words.len() - 1]
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u128) {
        for row in 0..COUNT_ROWS {
            prefetch(self.counter(hash, row).0);
        }
    }

    /// Counts a key and returns its estimate. For the counter alone.
    #[inline(always)]
    pub(super) fn count(&self, hash: u128) -> u16 {
        let mut least = COUNT_MAX;
        for row in 0..COUNT_ROWS {
            let (place, shift) = self.counter(hash, row);
            let word = own(place);
            let count = ((word >> shift) as u16).saturating_add(1);
            let others = word & !(u64::from(COUNT_MAX) << shift);
            place.store(others | u64::from(count) << shift, Ordering::Relaxed);
            least = least.min(count);
        }
        least
    }

    /// Inserts a key into the filter; returns whether it was absent. For the counter alone.
    pub(super) fn mark(&self, hash: u128) -> bool {
        let mut absent = false;
        for row in 0..BLOOM_ROWS {
            let (place, bit) = self.bit(hash, row);
            let word = own(place);
            absent |= word & bit == 0;
            place.store(word | bit, Ordering::Relaxed);
        }
        absent
    }

    /// Adds to the number of samples. For the counter alone.
    #[inline(always)]
    pub(super) fn sampled(&self, samples: u32) {
        let place = self.samples();
        place.store(own(place) + u64::from(samples), Ordering::Relaxed);
    }

    /// For the keeper, while the counter has the other generation.
    pub(super) fn clear(&self) {
        self.words.get().iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// The counts of an epoch, for the keeper: final, or growing while it reads.
#[derive(Clone, Copy)]
pub struct Counts<'a> {
    generation: &'a Generation,
    settings: Settings,
}

impl<'a> Counts<'a> {
    pub(super) fn new(generation: &'a Generation, settings: Settings) -> Self {
        Self { generation, settings }
    }

    /// Returns how the epoch counts.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Returns a key's samples, or more ([module](super)). Multiply by 2^`sample_log2` for packets.
    pub fn estimate(&self, hash: u128) -> u16 {
        let count = |row| {
            let (place, shift) = self.generation.counter(hash, row);
            (place.load(Ordering::Relaxed) >> shift) as u16
        };
        (0..COUNT_ROWS).map(count).min().unwrap_or(0)
    }

    /// Returns whether the key has been reported, or a false positive of the filter.
    pub fn reported(&self, hash: u128) -> bool {
        (0..BLOOM_ROWS).all(|row| {
            let (place, bit) = self.generation.bit(hash, row);
            place.load(Ordering::Relaxed) & bit != 0
        })
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.generation.samples().load(Ordering::Relaxed)
    }

    /// Returns the largest counter. Reads all of them.
    pub fn largest(&self) -> u16 {
        let counters = COUNT_ROWS << (self.generation.counters_log2 - 2);
        let lanes = |word: u64| [0, 16, 32, 48].map(|shift| (word >> shift) as u16);
        let words = &self.generation.words.get()[..counters];
        words.iter().flat_map(|word| lanes(word.load(Ordering::Relaxed))).max().unwrap_or(0)
    }
}
