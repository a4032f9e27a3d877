//! How large a forwarding table shall be, and what can be chosen at run time.

use super::bucket::Bucket;
use super::key::{Key, Value};
use crate::isa::Isa;
use crate::memory::Pages;
use crate::prefetch::Prefetch;

/// The most buckets of a table: 32 GiB of lines, and 8 values of the hash for each.
pub const BUCKETS_MAX: usize = 1 << 29;

/// Occupancy that [`Config::entries`] leaves room for, in percent.
pub const OCCUPANCY_PERCENT: usize = 95;

/// The most buckets that one insertion may be told to look at.
pub const SEARCH_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Buckets(usize),
    Entries(usize),
}

/// What a table is constructed from. Checked by the construction, not here.
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
    /// A table of exactly this many buckets, 2 to [`BUCKETS_MAX`].
    pub const fn buckets(buckets: usize) -> Self {
        Self::sized(Size::Buckets(buckets))
    }

    /// A table that this many entries fill to 95 %, or less if there are few.
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

    /// Seed of the hash function. A table that strangers fill should have a random one.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Forces an instruction set. Otherwise `OVERBANK_SIMD` decides, or the best that there is.
    #[must_use]
    pub const fn isa(mut self, isa: Option<Isa>) -> Self {
        self.isa = isa;
        self
    }

    /// The pages to lie on. [`Reader::huge_pages`](super::Reader::huge_pages) says which it got.
    #[must_use]
    pub const fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Where lookups prefetch lines to. Decided at construction;
    /// [`Reader::prefetches_far`](super::Reader::prefetches_far) reports it.
    #[must_use]
    pub const fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// How many buckets an insertion looks at before it is refused (2 to [`SEARCH_MAX`]; values
    /// outside are brought inside). The default fills a table past 95 %.
    #[must_use]
    pub const fn search_max(mut self, buckets: usize) -> Self {
        self.search_max = Some(buckets);
        self
    }

    /// The same, of another size.
    #[cfg(feature = "std")]
    pub(super) const fn resized(&self, buckets: usize) -> Self {
        Self { size: Size::Buckets(buckets), ..*self }
    }

    /// Bytes of a table of these types, without constructing it.
    pub fn bytes<K: Key, V: Value>(&self) -> usize {
        self.bucket_count::<K, V>().saturating_mul(Bucket::<K, V>::STRIDE * 8)
    }

    /// Buckets of a table of these types.
    pub(super) fn bucket_count<K: Key, V: Value>(&self) -> usize {
        match self.size {
            Size::Buckets(buckets) => buckets,
            // Two more: with a handful of buckets luck decides, and a refusal would surprise.
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
