//! Rolling digests: finds copies of tables that differ silently, and mends them.
//!
//! The members together announce the digest of one block a millisecond, each of its partitions in
//! turn. A digest is of a block as of a batch, and is compared by the copies that have applied
//! exactly that batch. So a partition at rest has its digests in its owner's beats. One that
//! changes has them in its batches: each copy compares when it has applied the batch. A copy that
//! differs asks the owner, which logs the block as it is.

use super::{Actions, Node};
use crate::message::Message;
use crate::table::Gpt;
use crate::{Member, Micros, Partition, Sequence};

/// A digest of a block of a partition, as of a batch.
pub(crate) type Announced = (Partition, Sequence, u32, u64);

/// Blocks that an owner logs again, or has digests due for, at a time: some 100 KB.
pub(super) const BLOCKS_MAX: usize = 32;

impl<T: Gpt> Node<T> {
    /// Returns the digests of the next blocks of partitions at rest; those of the others go with
    /// their next batches.
    pub(super) fn announce(&mut self) -> Vec<Announced> {
        let members = self.view.members.len().max(1) as u64;
        let (mut announced, mut first) = (Vec::new(), None);
        // A thousand microseconds a block.
        for _ in 0..(self.settings.beat_us / 1000 / members).max(1) {
            let (own, block) = self.digested;
            let owner = self.owners.range_mut(own..).find(|(_, owner)| owner.reigns());
            let Some((&own, owner)) = owner else {
                self.digested = (Partition(0), 0);
                continue;
            };
            let block = if own == self.digested.0 { block } else { 0 };
            if first == Some((own, block)) {
                break; // All of them, in this beat.
            }
            first = first.or(Some((own, block)));
            match owner.announce(block) {
                Some((digest, next)) => {
                    announced.extend(digest.map(|(at, digest)| (own, at, block, digest)));
                    self.digested = if next > 0 { (own, next) } else { (Partition(own.0 + 1), 0) };
                }
                None => self.digested = (Partition(own.0 + 1), 0),
            }
        }
        announced
    }

    /// Compares digests with this node's copies.
    pub(super) fn compare(&mut self, now: Micros, digests: &[Announced], out: &mut Actions<T>) {
        for &(partition, sequence, block, digest) in digests {
            let Some(replica) = self.replicas.get_mut(partition.index()) else { continue };
            let compares = replica.applied == sequence && !replica.needs_image;
            if !compares || replica.table.digest(block) == Some(digest) {
                continue;
            }
            self.differences += 1;
            if let Some(owner) = self.view.owner(partition) {
                self.send(now, owner.node, Message::Differs { partition, block }, out);
            }
        }
    }

    /// A copy differs from what this node's table has announced.
    pub(super) fn differs(&mut self, from: Member, partition: Partition, block: u32) {
        let owner = self.owners.get_mut(&partition).filter(|owner| owner.reigns());
        if let Some(owner) = owner.filter(|_| self.view.state(from).is_some()) {
            owner.republish(block);
        }
    }

    /// Returns how many blocks of its copies were found to differ from their owners'.
    pub fn differences(&self) -> u64 {
        self.differences
    }
}
