//! What a change of the owner's table is to the other copies.

use alloc::vec::Vec;

use super::block::Entry;
use super::table::{FallbackFull, Table};

/// A change to be applied once, in order, to every copy of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The table that it belongs to.
    pub table: u64,
    /// Its number: one more than that of the change before it.
    pub sequence: u64,
    pub(super) block: u32,
    pub(super) change: Change,
}

/// What changes in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// One key has another value: a word is added to planes of its group.
    Move { group: u16, planes: u8, correction: [u64; 2] },
    /// Buckets take their other group, and groups have other words.
    Groups { turns: Vec<u16>, groups: Vec<(u16, Vec<u64>)>, fallback: Vec<Entry> },
}

impl Delta {
    /// Bytes of the change itself; table and sequence are shared by all of a batch.
    pub fn bytes(&self, row_bytes: usize) -> usize {
        let place = 4 + 2;
        match &self.change {
            Change::Move { .. } => place + 1 + row_bytes,
            Change::Groups { turns, groups, fallback } => {
                let words: usize = groups.iter().map(|(_, words)| 2 + 8 * words.len()).sum();
                place + 2 * turns.len() + words + 9 * fallback.len()
            }
        }
    }

    /// Does it to `table`.
    pub(super) fn apply(&self, table: &Table) -> Result<(), FallbackFull> {
        let mut change = table.begin(self.block as usize);
        match &self.change {
            Change::Move { group, planes, correction } => {
                change.correct(usize::from(*group), *planes, *correction);
            }
            Change::Groups { turns, groups, fallback } => {
                change.fallback(fallback)?;
                turns.iter().for_each(|&bucket| change.turn(bucket));
                for (group, words) in groups {
                    change.set_group(usize::from(*group), words);
                }
            }
        }
        Ok(())
    }
}
