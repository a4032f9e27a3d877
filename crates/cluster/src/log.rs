//! The log (JetStream) as the machine sees it: a subject for each partition, and snapshots.
//!
//! A batch is appended under the expected last sequence number of its subject. Batches may be
//! delivered late, twice or never; what a fetch returns is exact.

use std::sync::Arc;

use crate::rib::{Change, Rib};
use crate::table::Gpt;
use crate::{Epoch, Member, Partition, Sequence};

/// A message of a partition's log: changes of the RIB, and the deltas that they made.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Batch<T: Gpt> {
    /// The reign of its writer.
    pub epoch: Epoch,
    /// The writer.
    pub owner: Member,
    /// In their order.
    pub changes: Vec<Change>,
    /// In their order.
    pub deltas: Vec<T::Delta>,
    /// Digests of blocks of the table, after the deltas.
    pub digests: Vec<(u32, u64)>,
    /// The first batch of a reign: the partition's table, built anew.
    pub image: Option<T::Image>,
}

impl<T: Gpt> Batch<T> {
    /// Returns a batch that changes nothing.
    pub fn empty(epoch: Epoch, owner: Member) -> Self {
        let (changes, deltas, digests) = (Vec::new(), Vec::new(), Vec::new());
        Self { epoch, owner, changes, deltas, digests, image: None }
    }
}

/// A partition as of a sequence number.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Snapshot<T: Gpt> {
    /// The last batch that it contains.
    pub sequence: Sequence,
    /// The reign in which it was made.
    pub epoch: Epoch,
    /// Sessions and keys.
    pub rib: Rib,
    /// Their table.
    pub image: T::Image,
}

/// A request.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Request<T: Gpt> {
    /// Appends if the last sequence number is `expected`; `None`: in any case.
    Append { partition: Partition, expected: Option<Sequence>, batch: Arc<Batch<T>> },
    /// Asks for the batches from `from` on.
    Fetch { partition: Partition, from: Sequence },
    /// Keeps a snapshot; the log may purge what the one before it contains.
    Put { partition: Partition, snapshot: Arc<Snapshot<T>> },
    /// Asks for the last snapshot.
    Get { partition: Partition },
}

/// A reply, or a batch that a subscription delivers.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Reply<T: Gpt> {
    /// A batch was appended as `sequence`.
    Appended { partition: Partition, sequence: Sequence, batch: Arc<Batch<T>> },
    /// A batch was refused: the last sequence number is another.
    Refused { partition: Partition, last: Sequence },
    /// Batches from the one that was asked for, without a gap; `last` is the end of the log.
    Fetched { partition: Partition, batches: Vec<(Sequence, Arc<Batch<T>>)>, last: Sequence },
    /// The batches that were asked for are purged.
    Purged { partition: Partition, first: Sequence },
    /// The last snapshot, if there is one.
    Snapshot { partition: Partition, snapshot: Option<Arc<Snapshot<T>>> },
    /// A batch was appended by some node.
    Batch { partition: Partition, sequence: Sequence, batch: Arc<Batch<T>> },
}

// Not derived: a batch is shared, whether or not its table can be copied.
impl<T: Gpt> Clone for Reply<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Appended { partition, sequence, batch } => Self::Appended {
                partition: *partition,
                sequence: *sequence,
                batch: Arc::clone(batch),
            },
            Self::Refused { partition, last } => {
                Self::Refused { partition: *partition, last: *last }
            }
            Self::Fetched { partition, batches, last } => {
                Self::Fetched { partition: *partition, batches: batches.clone(), last: *last }
            }
            Self::Purged { partition, first } => {
                Self::Purged { partition: *partition, first: *first }
            }
            Self::Snapshot { partition, snapshot } => {
                Self::Snapshot { partition: *partition, snapshot: snapshot.clone() }
            }
            Self::Batch { partition, sequence, batch } => {
                Self::Batch { partition: *partition, sequence: *sequence, batch: Arc::clone(batch) }
            }
        }
    }
}
