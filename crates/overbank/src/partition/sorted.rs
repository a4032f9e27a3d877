//! Entries by block, of a table or of a piece of one.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::block::Entry;
use crate::hash::mix;

/// Entries of a range of blocks, by block.
pub(super) struct Sorted {
    entries: Vec<Entry>,
    starts: Vec<usize>,
    /// Entries, those of other blocks included.
    pub(super) all: usize,
    /// A sum that other entries hardly have.
    pub(super) sum: u64,
}

/// An entry that no table of this size holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadEntry {
    /// One more than the table is for.
    TooMany,
    /// A value with more bits.
    Value { hash: u64, value: u8 },
}

impl Sorted {
    /// Sorts those of `entries` whose block is one of `blocks`; all of them are checked.
    pub(super) fn new(
        entries: impl IntoIterator<Item = Entry>,
        (keys_max, value_bits): (usize, usize),
        blocks: &Range<usize>,
        block_of: impl Fn(u64) -> usize,
    ) -> Result<Sorted, BadEntry> {
        let (mut own, mut all, mut sum) = (Vec::new(), 0, 0u64);
        let mut starts = vec![0usize; blocks.len() + 1];
        for (hash, value) in entries {
            if all == keys_max {
                return Err(BadEntry::TooMany);
            }
            if value_bits < 8 && value >> value_bits != 0 {
                return Err(BadEntry::Value { hash, value });
            }
            all += 1;
            let block = block_of(hash).wrapping_sub(blocks.start);
            if block < blocks.len() {
                starts[block + 1] += 1;
                sum = sum.wrapping_add(mix(hash ^ mix(u64::from(value))));
                own.push((hash, value));
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut entries = vec![(0, 0); own.len()];
        for entry in own {
            let at = &mut next[block_of(entry.0) - blocks.start];
            entries[*at] = entry;
            *at += 1;
        }
        Ok(Sorted { entries, starts, all, sum })
    }

    /// The entries of each block.
    pub(super) fn by_block(&self) -> impl Iterator<Item = &[Entry]> {
        self.starts.windows(2).map(|range| &self.entries[range[0]..range[1]])
    }
}
