//! Errors of a tree.

use thiserror::Error;

use crate::lookaside::hints::CacheError;
use crate::memory::MemoryError;

/// Why a tree cannot be constructed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A capacity of zero.
    #[error("a tree needs a capacity of at least one entry")]
    Empty,
    /// More entries than positions can name.
    #[error("a tree of these nodes has at most {max} entries, not {capacity}")]
    TooLarge {
        /// Number asked for.
        capacity: usize,
        /// Largest number.
        max: usize,
    },
    /// The system is out of memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The hints cannot be constructed.
    #[error("hints of the tree: {0}")]
    Hints(#[from] CacheError),
}

/// The tree has as many entries as its capacity; nothing was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the tree is full: it has {capacity} entries")]
pub struct Full {
    /// Entries that it was made for.
    pub capacity: usize,
}
