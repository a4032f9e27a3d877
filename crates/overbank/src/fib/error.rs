//! What can go wrong with a forwarding table.

use thiserror::Error;

use super::config::BUCKETS_MAX;
use crate::cache::IsaError;

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
    #[error("no memory for a table of {bytes} bytes")]
    OutOfMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// 1 GiB pages were required, and the system has none left.
    #[error("no 1 GiB pages for a table of {bytes} bytes (see /sys/kernel/mm/hugepages)")]
    NoGigabytePages {
        /// What was asked for.
        bytes: usize,
    },
    /// The instruction set cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
}

impl Error {
    pub(super) fn of_memory(error: &crate::cache::Error, bytes: usize) -> Self {
        match error {
            crate::cache::Error::NoGigabytePages { bytes } => {
                Self::NoGigabytePages { bytes: *bytes }
            }
            _ => Self::OutOfMemory { bytes },
        }
    }
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
