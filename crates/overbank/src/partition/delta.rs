//! Changes of the owner's table, for its other copies.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::block::{Entry, Image};
use super::fallback::FallbackFull;
use super::shape::{Form, Place};
use super::table::{ApplyError, Table};

/// A change, to be applied once and in order to every copy of the table.
///
/// `Delta::encode` (feature `std`) turns consecutive deltas into checksummed bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Identifies the table.
    pub table: u64,
    /// Generation of the table, from [`Config::generation`](super::Config::generation).
    pub generation: u32,
    /// Sequence number: one more than that of the previous change.
    pub sequence: u64,
    pub(super) form: Form,
    pub(super) place: Place,
    pub(super) change: Change,
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// One key has another value: a word is added to planes of its group.
    Move { group: u16, planes: u8, correction: [u64; 2] },
    /// Buckets take their other group, and groups have other words.
    Groups { turns: Vec<u16>, groups: Vec<(u16, Vec<u64>)>, fallback: Vec<Entry> },
    /// A block as a whole.
    Block(Box<Image>),
    /// All blocks of a partition, whose number may differ from before.
    Partition(Vec<Image>),
}

impl Delta {
    /// Returns the bytes of the change itself in an encoded batch; the header is shared.
    pub fn bytes(&self) -> usize {
        let head = 4 + 2 + 1;
        let image = |image: &Image| {
            8 * (image.choices.len() + image.words.len()) + 4 + 9 * image.fallback.len()
        };
        head + match &self.change {
            Change::Move { .. } => self.form.row.get() / 8,
            Change::Groups { turns, groups, fallback } => {
                let words: usize = groups.iter().map(|(_, words)| 2 + 8 * words.len()).sum();
                2 + 2 + 4 + 2 * turns.len() + words + 9 * fallback.len()
            }
            Change::Block(block) => image(block),
            Change::Partition(blocks) => 4 + blocks.iter().map(image).sum::<usize>(),
        }
    }

    /// Returns whether the delta replaces a whole partition, because the table has grown.
    pub fn is_growth(&self) -> bool {
        matches!(self.change, Change::Partition(_))
    }

    /// Asks for the lines that a move writes.
    #[inline]
    pub(super) fn prefetch(&self, table: &Table) {
        if let (Change::Move { group, .. }, Some(block)) = (&self.change, table.block(self.place)) {
            table.prefetch_group(block, usize::from(*group));
        }
    }

    /// Applies the change to `table`, whose form is the delta's. Nothing changes on failure.
    pub(super) fn apply(&self, table: &Table) -> Result<(), ApplyError> {
        if let Change::Partition(blocks) = &self.change {
            return table.set_partition(self.place.partition(), blocks);
        }
        let block = table.block(self.place).ok_or(ApplyError::Place)?;
        Ok(self.change.apply_to(table, block)?)
    }
}

impl Change {
    /// Applies a change of one block. Nothing changes on failure.
    pub(super) fn apply_to(&self, table: &Table, block: usize) -> Result<(), FallbackFull> {
        match self {
            Change::Move { group, planes, correction } => {
                table.begin(block).correct(usize::from(*group), *planes, *correction);
            }
            Change::Groups { turns, groups, fallback } => {
                let mut change = table.begin(block);
                change.fallback_of_groups(groups.iter().map(|group| group.0), fallback)?;
                turns.iter().for_each(|&bucket| change.turn(bucket));
                for (group, words) in groups {
                    change.set_group(usize::from(*group), words);
                }
            }
            Change::Block(image) => table.set_block(block, image)?,
            // Of no single block: `Table::set_partition`.
            Change::Partition(_) => {}
        }
        Ok(())
    }
}
