//! Entries by block, of a table or of a piece of one.

use alloc::vec::Vec;
use core::ops::Range;

use super::block::Entry;
use crate::hash::mix;
use crate::memory::{MemoryError, filled, reserve};

/// Entries of a range of blocks, by block.
pub(super) struct Sorted {
    entries: Vec<Entry>,
    starts: Vec<usize>,
    /// Entries, those of other blocks included.
    pub(super) all: usize,
    /// A sum that other entries hardly have.
    pub(super) sum: u64,
}

/// An entry that no table of this size holds, or no memory for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadEntry {
    /// One more than the table is for.
    TooMany,
    /// A value with more bits.
    Value {
        hash: u64,
        value: u8,
    },
    Memory(MemoryError),
}

impl From<MemoryError> for BadEntry {
    fn from(error: MemoryError) -> Self {
        BadEntry::Memory(error)
    }
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
        let mut starts = filled(blocks.len() + 1, 0usize)?;
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
                reserve(&mut own, 1)?;
                own.push((hash, value));
            }
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut entries = filled(own.len(), (0, 0))?;
        for entry in own {
            let at = &mut starts[block_of(entry.0) - blocks.start];
            entries[*at] = entry;
            *at += 1;
        }
        // Each start has become the next one.
        starts.rotate_right(1);
        starts[0] = 0;
        Ok(Sorted { entries, starts, all, sum })
    }

    /// The entries of each block.
    pub(super) fn by_block(&self) -> impl Iterator<Item = &[Entry]> {
        self.starts.windows(2).map(|range| &self.entries[range[0]..range[1]])
    }
}
