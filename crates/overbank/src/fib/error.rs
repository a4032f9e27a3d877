//! What can go wrong with a forwarding table.

use thiserror::Error;

use super::config::BUCKETS_MAX;
use crate::isa::IsaError;
use crate::memory::MemoryError;

/// A table could not be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Fewer than two buckets, or more than the hash can tell apart.
    #[error("a table has 2 to {BUCKETS_MAX} buckets, not {buckets}")]
    Buckets {
        /// What was asked for.
        buckets: usize,
    },
    /// The system gave no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The instruction set cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
}

/// No place was found for a new key. The table is as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the table is full: {entries} entries in {slots} slots, no free one near {searched} buckets"
)]
pub struct Full {
    /// Entries of the table.
    pub entries: usize,
    /// Slots of the table.
    pub slots: usize,
    /// Buckets that were looked at.
    pub searched: usize,
}
