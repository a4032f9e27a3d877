//! Size and run-time options of a cache.

use super::design::LayoutKind;
use crate::isa::Isa;
use crate::prefetch::Prefetch;

/// Most buckets of a cache: half of what 32 bits of index can distinguish, so that every bucket is
/// home to at least two index values.
pub const BUCKETS_MAX: usize = 1 << 31;

/// Default n of PBLRU, which promotes one hit in n on average. The paper gives no number.
pub const PROMOTE_EVERY: u32 = 16;

/// Largest n of PBLRU's promotion probability 1/n.
pub const PROMOTE_EVERY_MAX: u32 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Buckets(usize),
    Entries(usize),
}

/// The parameters of a cache. The constructor checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) size: Size,
    pub(crate) seed: u64,
    pub(crate) isa: Option<Isa>,
    pub(crate) prefetch: Prefetch,
    pub(crate) promote_every: u32,
    pub(crate) layout: LayoutKind,
}

impl Config {
    /// Asks for exactly this many buckets (BLP adds its buffer buckets).
    pub const fn buckets(buckets: usize) -> Self {
        Self::sized(Size::Buckets(buckets))
    }

    /// Asks for at least this many slots, in the fewest buckets.
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
            layout: LayoutKind::Fp16V16,
        }
    }

    /// Sets the seed of the policy's random numbers. Equal seeds and operations give equal
    /// contents.
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

    /// Sets the cache level that probes prefetch lines to. Decided at construction;
    /// [`FlowCache::prefetches_far`](super::FlowCache::prefetches_far) reports it.
    #[must_use]
    pub const fn prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// Sets the widths of a slot's fields, for [`Design::build`](super::Design::build). Where a
    /// type names the layout, that counts.
    #[must_use]
    pub const fn layout(mut self, layout: LayoutKind) -> Self {
        self.layout = layout;
        self
    }

    /// Sets PBLRU's n: one hit in `every` is promoted, on average. Other policies ignore it.
    #[must_use]
    pub const fn promote_every(mut self, every: u32) -> Self {
        self.promote_every = every;
        self
    }
}
