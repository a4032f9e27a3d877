//! What can go wrong when a cache is made or named.

use alloc::string::String;

use thiserror::Error;

use crate::isa::IsaError;
use crate::memory::MemoryError;

/// A cache could not be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// No buckets or no entries were asked for.
    #[error("a cache needs at least one entry")]
    Empty,
    /// The geometry needs more buckets than this.
    #[error("{geometry} needs at least {min} buckets, not {buckets}")]
    TooFewBuckets {
        /// Name of the geometry.
        geometry: &'static str,
        /// What was asked for.
        buckets: usize,
        /// What it needs.
        min: usize,
    },
    /// More buckets than the index bits of a hash can tell apart.
    #[error("a cache has at most {max} buckets, not {buckets}")]
    TooManyBuckets {
        /// What was asked for.
        buckets: usize,
        /// The most that there may be.
        max: usize,
    },
    /// The table's size in bytes does not fit the address space.
    #[error("{buckets} buckets of {bucket_bytes} bytes are more than this machine can address")]
    SizeOverflow {
        /// What was asked for.
        buckets: usize,
        /// Bytes of one bucket.
        bucket_bytes: usize,
    },
    /// The system gave no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// PBLRU's promotion probability 1/n with an n out of range.
    #[error("a promotion every {every} hits is out of range (1 to {max})")]
    PromotionOutOfRange {
        /// The n that was asked for.
        every: u32,
        /// The largest n.
        max: u32,
    },
    /// The instruction set cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
}

/// A design's name that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DesignError {
    /// No geometry has this name.
    #[error("unknown cache design \"{name}\"; known: {}", super::design::KNOWN)]
    UnknownGeometry {
        /// The whole name as given.
        name: String,
    },
    /// No policy has this name.
    #[error("unknown policy in cache design \"{name}\"; known: {}", super::design::KNOWN)]
    UnknownPolicy {
        /// The whole name as given.
        name: String,
    },
    /// `pblru/N` with an N that is no number or out of range.
    #[error("\"{name}\": pblru/N takes a number N from 1 to {max}")]
    Promotion {
        /// The whole name as given.
        name: String,
        /// The largest N.
        max: u32,
    },
    /// The policy does not work on this geometry.
    #[error("{policy} works on set-4, set-8 and set-16 only, not on {geometry}")]
    Combination {
        /// Name of the geometry.
        geometry: &'static str,
        /// Name of the policy.
        policy: &'static str,
    },
}

/// A value that does not fit the layout's slots; nothing was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the value {value} does not fit in {bits} bits")]
pub struct ValueTooWide {
    /// What was given.
    pub value: u32,
    /// What a slot holds.
    pub bits: u32,
}
