//! The search for a free slot: breadth first, so that the fewest entries move.
//!
//! ```text
//!   0: home      1: second          buckets of the new key
//!    │ │ … │        │ │ … │         one child a slot: the other bucket of the entry there
//!    2 3 … 8        9 …             the first bucket with a free slot ends the search
//! ```
//!
//! A path visits no bucket twice: otherwise its end would be reachable from the first visit too, by
//! a shorter path that was queued before. So moving entries from the end of the path to its
//! beginning always finds what the search saw.

use alloc::vec::Vec;

use super::bucket::Bucket;
use super::candidates::Candidates;
use super::key::{Key, Value};
use super::table::Table;

/// A bucket on the path.
#[derive(Clone, Copy, Debug)]
struct Node {
    bucket: u32,
    /// Index of the node whose entry in `slot` would move here; unused in the two roots.
    parent: u32,
    slot: u8,
}

/// The queue of a search; allocated once.
pub(super) struct Search {
    queue: Vec<Node>,
    max: usize,
}

impl Search {
    /// Allocates a queue for `max` buckets, at least 2.
    pub(super) fn new(max: usize) -> Self {
        Self { queue: Vec::with_capacity(max), max }
    }

    /// Returns the number of buckets that the last search examined or queued.
    pub(super) fn searched(&self) -> usize {
        self.queue.len()
    }

    /// Finds a path to a free slot and moves the entries on it, the last one first. Returns the
    /// bucket of `candidates` that now has a free slot, and the number of moves; `None` changes
    /// nothing. `second` tracks the number of entries in their second bucket.
    ///
    /// Both candidates must be full.
    pub(super) fn make_room<K: Key, V: Value>(
        &mut self,
        table: &Table<K, V>,
        candidates: Candidates,
        second: &mut u64,
    ) -> Option<(u32, usize)> {
        let mut at = self.find(table, candidates)?;
        let mut moves = 0;
        while at >= 2 {
            let Node { bucket, parent, slot } = self.queue[at];
            let free = table.free_slot(bucket)?;
            at = parent as usize;
            let from = self.queue[at].bucket;
            *second = table.displace(from, usize::from(slot), free, *second);
            moves += 1;
        }
        Some((self.queue[at].bucket, moves))
    }

    /// Returns the index of a node whose bucket has a free slot.
    fn find<K: Key, V: Value>(
        &mut self,
        table: &Table<K, V>,
        candidates: Candidates,
    ) -> Option<usize> {
        self.queue.clear();
        for bucket in [candidates.home, candidates.second] {
            self.queue.push(Node { bucket, parent: 0, slot: 0 });
        }
        let mut at = 0;
        while at < self.queue.len() {
            let bucket = self.queue[at].bucket;
            if at >= 2 && table.free_slot(bucket).is_some() {
                return Some(at);
            }
            for slot in 0..Bucket::<K, V>::SLOTS {
                if self.queue.len() == self.max {
                    break;
                }
                let other = table.candidates(table.key(bucket, slot)).other(bucket);
                table.prefetch(other);
                self.queue.push(Node { bucket: other, parent: at as u32, slot: slot as u8 });
            }
            at += 1;
        }
        None
    }
}
