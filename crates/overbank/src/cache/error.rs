//! Errors of making or naming a cache.

use thiserror::Error;

use crate::isa::IsaError;
use crate::memory::MemoryError;

/// Why a cache cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Zero buckets or entries.
    #[error("a cache needs at least one entry")]
    Empty,
    /// Fewer buckets than the geometry needs.
    #[error("{geometry} needs at least {min} buckets, not {buckets}")]
    TooFewBuckets {
        /// Name of the geometry.
        geometry: &'static str,
        /// Number asked for.
        buckets: usize,
        /// Number needed.
        min: usize,
    },
    /// More buckets than the index bits of a hash can distinguish.
    #[error("a cache has at most {max} buckets, not {buckets}")]
    TooManyBuckets {
        /// Number asked for.
        buckets: usize,
        /// Largest number.
        max: usize,
    },
    /// The table's size in bytes does not fit the address space.
    #[error("{buckets} buckets of {bucket_bytes} bytes are more than this machine can address")]
    SizeOverflow {
        /// Number asked for.
        buckets: usize,
        /// Bytes of one bucket.
        bucket_bytes: usize,
    },
    /// The system is out of memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// PBLRU's n, of the promotion probability 1/n, is out of range.
    #[error("a promotion every {every} hits is out of range (1 to {max})")]
    PromotionOutOfRange {
        /// The n asked for.
        every: u32,
        /// The largest n.
        max: u32,
    },
    /// The instruction set is unavailable.
    #[error(transparent)]
    Isa(#[from] IsaError),
}

/// Why the name of a design is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DesignError {
    /// The geometry is unknown.
    #[error("unknown geometry; known designs: {}", super::design::KNOWN)]
    UnknownGeometry,
    /// The policy is unknown.
    #[error("unknown policy; known designs: {}", super::design::KNOWN)]
    UnknownPolicy,
    /// The N of `pblru/N` is no number or out of range.
    #[error("pblru/N takes a number N from 1 to {}", super::config::PROMOTE_EVERY_MAX)]
    Promotion,
    /// The policy does not work on the geometry.
    #[error("{policy} works on set-4, set-8 and set-16 only, not on {geometry}")]
    Combination {
        /// Name of the geometry.
        geometry: &'static str,
        /// Name of the policy.
        policy: &'static str,
    },
}

/// The value does not fit the layout's slots; nothing was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the value {value} does not fit in {bits} bits")]
pub struct ValueTooWide {
    /// Value given.
    pub value: u32,
    /// Bits of a slot's value.
    pub bits: u32,
}
