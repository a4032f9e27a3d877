//! How large a cache shall be, and the little else that can be chosen at run time.

use crate::isa::Isa;
use crate::prefetch::Prefetch;

/// The most buckets of a cache: half of what 32 bits of index can tell apart, so that even then
/// every bucket is home to at least two index values.
pub const BUCKETS_MAX: usize = 1 << 31;

/// PBLRU promotes one hit in this many on average, unless told otherwise. The paper gives no
/// number.
pub const PROMOTE_EVERY: u32 = 16;

/// The largest n of PBLRU's promotion probability 1/n.
pub const PROMOTE_EVERY_MAX: u32 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Buckets(usize),
    Entries(usize),
}

/// What a cache is constructed from. Checked by the construction, not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) size: Size,
    pub(crate) seed: u64,
    pub(crate) isa: Option<Isa>,
    pub(crate) prefetch: Prefetch,
    pub(crate) promote_every: u32,
}

impl Config {
    /// A cache of exactly this many buckets (and buffer buckets behind them, with BLP).
    pub const fn buckets(buckets: usize) -> Self {
        Self::sized(Size::Buckets(buckets))
    }

    /// A cache of at least this many slots: the fewest buckets that have them.
    pub const fn entries(entries: usize) -> Self {
        Self::sized(Size::Entries(entries))
    }

    const fn sized(size: Size) -> Self {
        Self {
            size,
            seed: 0,
            isa: None,
            prefetch: Prefetch::Automatic,
            promote_every: PROMOTE_EVERY,
        }
    }

    /// Seed of the policy's random numbers. The same seed and operations give the same contents.
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

    /// Where probes prefetch lines to. Decided at construction;
    /// [`FlowCache::prefetches_far`](super::FlowCache::prefetches_far) reports it.
    #[must_use]
    pub const fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// PBLRU: one hit in `every` is promoted, on average. Other policies do not look at it.
    #[must_use]
    pub const fn promote_every(mut self, every: u32) -> Self {
        self.promote_every = every;
        self
    }
}
