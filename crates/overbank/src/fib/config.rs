//! Size and run-time options of a forwarding table.

use super::bucket::Bucket;
use super::key::{Key, Value};
use crate::isa::Isa;
use crate::memory::Pages;
use crate::prefetch::Prefetch;

/// Most buckets of a table: 32 GiB of lines, and 8 values of the hash for each.
pub const BUCKETS_MAX: usize = 1 << 29;

/// Occupancy that [`Config::entries`] plans for, in percent.
pub const OCCUPANCY_PERCENT: usize = 95;

/// Largest [`Config::search_max`].
pub const SEARCH_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Buckets(usize),
    Entries(usize),
}

/// The parameters of a table. The constructor checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    size: Size,
    pub(super) seed: u64,
    pub(super) isa: Option<Isa>,
    pub(super) pages: Pages,
    pub(super) prefetch: Prefetch,
    search_max: Option<usize>,
}

impl Config {
    /// Asks for exactly this many buckets, 2 to [`BUCKETS_MAX`].
    pub const fn buckets(buckets: usize) -> Self {
        Self::sized(Size::Buckets(buckets))
    }

    /// Asks for a table that this many entries fill to 95 %, or less if they are few.
    pub const fn entries(entries: usize) -> Self {
        Self::sized(Size::Entries(entries))
    }

    const fn sized(size: Size) -> Self {
        Self {
            size,
            seed: 0,
            isa: None,
            pages: Pages::Huge,
            prefetch: Prefetch::Automatic,
            search_max: None,
        }
    }

    /// Sets the seed of the hash function. Use a random one if strangers choose the keys.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Forces an instruction set. Without it, the best available is used.
    #[must_use]
    pub const fn isa(mut self, isa: Option<Isa>) -> Self {
        self.isa = isa;
        self
    }

    /// Sets the pages to use. [`Reader::huge_pages`](super::Reader::huge_pages) reports which it
    /// got.
    #[must_use]
    pub const fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Sets the cache level that lookups prefetch lines to. Decided at construction;
    /// [`Reader::prefetches_far`](super::Reader::prefetches_far) reports it.
    #[must_use]
    pub const fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// Sets the number of buckets that an insertion examines before it is refused, clamped to 2 to
    /// [`SEARCH_MAX`]. The default fills a table past 95 %.
    #[must_use]
    pub const fn search_max(mut self, buckets: usize) -> Self {
        self.search_max = Some(buckets);
        self
    }

    /// Returns the configuration for another size.
    #[cfg(feature = "snapshot")]
    pub(super) const fn resized(&self, buckets: usize) -> Self {
        Self { size: Size::Buckets(buckets), ..*self }
    }

    /// Returns the bytes of a table of these types, without constructing it.
    pub fn bytes<K: Key, V: Value>(&self) -> usize {
        self.bucket_count::<K, V>().saturating_mul(Bucket::<K, V>::STRIDE * 8)
    }

    /// Returns the number of buckets of a table of these types.
    pub(super) fn bucket_count<K: Key, V: Value>(&self) -> usize {
        match self.size {
            Size::Buckets(buckets) => buckets,
            // Two more: a handful of buckets may overflow by chance, and a refusal would surprise.
            Size::Entries(entries) => {
                let slots = Bucket::<K, V>::SLOTS * OCCUPANCY_PERCENT;
                let buckets = (entries as u128 * 100).div_ceil(slots as u128) + 2;
                usize::try_from(buckets).unwrap_or(usize::MAX)
            }
        }
    }

    pub(super) fn search<K: Key, V: Value>(&self) -> usize {
        // Three slots fill to 95.9 % at best, so the last insertions before 95 % search long.
        let default = match Bucket::<K, V>::SLOTS {
            ..4 => 8192,
            4 => 2048,
            _ => 512,
        };
        self.search_max.unwrap_or(default).clamp(2, SEARCH_MAX)
    }
}
