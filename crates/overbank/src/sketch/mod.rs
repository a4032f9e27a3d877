//! A sketch of which keys are hot: counts of all keys in fixed memory, and each hot key reported
//! once an epoch.
//!
//! Source: Jin et al., *NetCache*, SOSP 2017, section 4.4.3 and figure 7.
//!
//! ```text
//!   hash, 128 bits ─▶ sampler, 1 in 2^k ─▶ count-min, 4 rows ─▶ at least `threshold`?
//!                                           bits 0..64                    │
//!                     inserted, reported ◀─ not in it yet ◀─ Bloom filter ┘
//!                                                            bits 64..118
//! ```
//!
//! - [`Counter`] belongs to the thread that sees the packets. It alone counts.
//! - [`Keeper`] belongs to one other thread. It starts epochs, reads counts, and sets the threshold
//!   and the sampling.
//! - The two share two generations of counters. The counter writes one. The keeper reads or clears
//!   the other and hands it over ([`Keeper::turn`]). No packet waits, and none clears memory.
//!
//! # Cost
//!
//! A sampled key reads and writes four lines; a hot one reads up to three more. A key that is not
//! sampled reads none. The sizes of the paper, 4 × 2^16 counters of 16 bits and 3 × 2^18 bits, are
//! 608 KiB a generation. A burst prefetches the lines of its counters.
//!
//! # Guarantees
//!
//! - An estimate is never below the number of samples of the key in the epoch, up to
//!   [`COUNT_MAX`], where counters stop. Of keys chosen without knowledge of the hash, all but
//!   e⁻⁴ (1.8 %) are estimated at most e·n/w too high: n samples in rows of w counters.
//! - A key is reported at most once an epoch. A hot key stays unreported in an epoch if the Bloom
//!   filter takes it for another one; the next epoch decides anew, by the same hash.
//! - A count belongs to one epoch: none is lost between two, and none is carried over.
//!
//! Keys come as 128-bit hashes under a seed that strangers do not know (XXH3, for instance). All
//! parts take their bits from that one hash.
//!
//! ```
//! use overbank::sketch::{Config, Settings};
//! use xxhash_rust::xxh3::xxh3_128_with_seed;
//!
//! let settings = Settings { threshold: 3, sample_log2: 0 };
//! let (mut counter, mut keeper) = Config::default().build(7, settings)?;
//! let hot = xxh3_128_with_seed(b"a hot key", 7);
//! assert_eq!(counter.count_batch(&[hot, hot]), 0);
//! assert_eq!(counter.count_batch(&[hot, hot]), 1); // the third time, and not again
//! assert!(keeper.turn(settings)); // the counter's next burst is in a new epoch
//! assert_eq!(counter.count_batch(&[hot]), 0);
//! assert_eq!(keeper.finished().map(|counts| counts.estimate(hot)), Some(4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counter;
mod generation;
mod keeper;
#[cfg(all(test, feature = "loom"))]
mod model;
#[cfg(all(test, not(feature = "loom")))]
mod tests;

use thiserror::Error;

pub use self::counter::{BURST_MAX, Counter};
pub use self::generation::{BLOOM_ROWS, COUNT_MAX, COUNT_ROWS, Counts};
pub use self::keeper::Keeper;
use crate::memory::MemoryError;

/// The size of a sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Logarithm of the counters in each of the [`COUNT_ROWS`] rows: 2 to 16.
    pub counters_log2: u32,
    /// Logarithm of the bits in each of the [`BLOOM_ROWS`] rows of the filter: 6 to 18.
    pub bloom_log2: u32,
}

impl Default for Config {
    /// Returns the sizes of the paper.
    fn default() -> Self {
        Self { counters_log2: 16, bloom_log2: 18 }
    }
}

impl Config {
    /// Builds an empty sketch in its first epoch. `seed` decides which packets are sampled.
    pub fn build(self, seed: u64, settings: Settings) -> Result<(Counter, Keeper), SketchError> {
        if !(2..=16).contains(&self.counters_log2) {
            return Err(SketchError::Counters { log2: self.counters_log2 });
        }
        if !(6..=18).contains(&self.bloom_log2) {
            return Err(SketchError::Bloom { log2: self.bloom_log2 });
        }
        let shared = generation::Shared::new(self, settings)?;
        Ok((Counter::new(shared.clone(), seed), Keeper::new(shared)))
    }
}

/// How an epoch counts. Constant within it, so that its counts are comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Samples from which a key is hot, at least 1 (0 is taken as 1).
    pub threshold: u16,
    /// Logarithm of the packets per sample, at most 32 (more is taken as 32).
    pub sample_log2: u32,
}

/// Why a sketch cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SketchError {
    /// The rows of counters are too short or too long.
    #[error("a row has 2^2 to 2^16 counters, not 2^{log2}")]
    Counters {
        /// Logarithm asked for.
        log2: u32,
    },
    /// The rows of the Bloom filter are too short or too long.
    #[error("a row of the Bloom filter has 2^6 to 2^18 bits, not 2^{log2}")]
    Bloom {
        /// Logarithm asked for.
        log2: u32,
    },
    /// The system is out of memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
