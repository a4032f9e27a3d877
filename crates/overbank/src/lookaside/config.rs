//! Size and options of a look-aside table, its errors and its counters.

use thiserror::Error;

use super::copies::Shape;
use super::gate::Costs;
use super::plain::Plain;
use crate::memory::{MemoryError, Pages};
use crate::prefetch::Prefetch;

/// Most buckets of a table: 128 GiB of the smallest.
pub const BUCKETS_MAX: usize = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Entries(usize),
    Bytes(usize),
}

/// The parameters of a table. The constructor checks them.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    size: Size,
    pub(super) seed: u64,
    pub(super) pages: Pages,
    pub(super) prefetch: Prefetch,
    pub(super) gate: Option<Option<Costs>>,
}

impl Config {
    /// Asks for room for at least this many entries, in the fewest buckets.
    pub const fn entries(entries: usize) -> Self {
        Self::sized(Size::Entries(entries))
    }

    /// Asks for as many buckets as these bytes hold.
    pub const fn bytes(bytes: usize) -> Self {
        Self::sized(Size::Bytes(bytes))
    }

    const fn sized(size: Size) -> Self {
        Self { size, seed: 0, pages: Pages::Huge, prefetch: Prefetch::Automatic, gate: None }
    }

    /// Sets the seed of the hash function. Use a random one if strangers choose the keys.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the pages to use.
    #[must_use]
    pub const fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Sets the cache level that bursts prefetch lines to.
    #[must_use]
    pub const fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// Lets the table step aside where it does not pay ([`Gate`](super::Gate)): by these costs, or
    /// with `None` as soon as some are measured. Without this call the table always works.
    #[must_use]
    pub const fn gate(mut self, costs: Option<Costs>) -> Self {
        self.gate = Some(costs);
        self
    }

    /// Returns the number of buckets for these types.
    ///
    /// # Errors
    /// No entry fits, or the table has more than [`BUCKETS_MAX`] buckets.
    pub(super) fn buckets<K: Plain, V: Plain>(&self) -> Result<usize, Error> {
        let bucket_bytes = Shape::<K, V>::BYTES;
        let buckets = match self.size {
            Size::Entries(entries) => entries.div_ceil(Shape::<K, V>::WAYS),
            Size::Bytes(bytes) if bytes < bucket_bytes => {
                return Err(Error::Bytes { bytes, bucket_bytes });
            }
            Size::Bytes(bytes) => bytes / bucket_bytes,
        };
        match buckets {
            0 => Err(Error::Empty),
            1..=BUCKETS_MAX => Ok(buckets),
            _ => Err(Error::TooManyBuckets { buckets }),
        }
    }
}

/// Why a table cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Zero entries.
    #[error("a table needs at least one entry")]
    Empty,
    /// The bytes hold no bucket.
    #[error("{bytes} bytes hold no bucket: a table needs at least {bucket_bytes}")]
    Bytes {
        /// Number asked for.
        bytes: usize,
        /// Bytes of one bucket.
        bucket_bytes: usize,
    },
    /// More buckets than a table can have.
    #[error("a table has at most {BUCKETS_MAX} buckets, not {buckets}")]
    TooManyBuckets {
        /// Number asked for.
        buckets: usize,
    },
    /// The system is out of memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// The number of a commit that a table cannot accept; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("commit {version}: must be above {published}, the newest published, and below 2^48")]
pub struct VersionError {
    /// Number given.
    pub version: u64,
    /// The newest published commit.
    pub published: u64,
}

/// Counts of one bucket in [`SAMPLE`](super::SAMPLE) since construction. Counting every hit would
/// write to memory that all threads share. The sample has some hot keys or none, so its hit rate
/// may be ten points beside the table's: count results where that matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lookups that the table answered, absent keys included.
    pub hits: u64,
    /// Lookups that it did not answer.
    pub misses: u64,
    /// Answers that were put in.
    pub fills: u64,
    /// Answers that were not, since a writer may have changed them since the lookup.
    pub declined: u64,
    /// Answers that were not, since the bucket's entries are asked for more often.
    pub outdone: u64,
    /// Lookups that missed because a writer changed the bucket meanwhile.
    pub raced: u64,
    /// Lookups and fills that met a writer in the bucket.
    pub busy: u64,
}

impl Counters {
    /// Returns hits per lookup in the sample, 0 to 1; 0 before the first one.
    pub fn hit_rate(&self) -> f64 {
        let lookups = self.hits + self.misses;
        if lookups == 0 { 0.0 } else { self.hits as f64 / lookups as f64 }
    }
}
