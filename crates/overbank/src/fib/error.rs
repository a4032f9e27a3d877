//! Errors of a forwarding table.

use thiserror::Error;

use super::config::BUCKETS_MAX;
use crate::isa::IsaError;
use crate::memory::MemoryError;

/// Why a table cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FibError {
    /// Fewer than two buckets, or more than the hash can distinguish.
    #[error("a table has 2 to {BUCKETS_MAX} buckets, not {buckets}")]
    Buckets {
        /// Number asked for.
        buckets: usize,
    },
    /// The system is out of memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The instruction set is unavailable.
    #[error(transparent)]
    Isa(#[from] IsaError),
}

/// A new key found no slot. The table is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the table is full: {entries} entries in {slots} slots, no free one near {searched} buckets"
)]
pub struct Full {
    /// Entries of the table.
    pub entries: usize,
    /// Slots of the table.
    pub slots: usize,
    /// Buckets examined.
    pub searched: usize,
}
