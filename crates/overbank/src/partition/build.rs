//! Building a table from its keys.

#![allow(unsafe_code)] // Calls of functions with target features.

use alloc::vec;
use alloc::vec::Vec;

use super::block::{Conflict, Entry, Image, Workshop};
use super::row::Row;
use super::shape::{BLOCK_KEYS, RowBits, Shape, block_of};
use super::solve::PLANES_MAX;
use super::table::{FallbackFull, Table, TableError};
use crate::hash::mix;
use crate::isa::Isa;
use crate::memory::Pages;

/// The most keys of a table: as many blocks as the hash can tell apart with room to spare.
pub const KEYS_MAX: usize = 1 << 36;

/// What a table is built for. Checked by the construction, not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) keys: usize,
    pub(super) value_bits: usize,
    pub(super) row: RowBits,
    pub(super) isa: Option<Isa>,
    pub(super) pages: Pages,
}

impl Config {
    /// For `keys` keys with values of `value_bits` bits, 1 to 8.
    pub const fn new(keys: usize, value_bits: usize) -> Self {
        Self { keys, value_bits, row: RowBits::R128, isa: None, pages: Pages::Huge }
    }

    /// Bits of a row.
    #[must_use]
    pub const fn row(mut self, row: RowBits) -> Self {
        self.row = row;
        self
    }

    /// Forces an instruction set. Otherwise `OVERBANK_SIMD` decides, or the best that there is.
    #[must_use]
    pub const fn isa(mut self, isa: Option<Isa>) -> Self {
        self.isa = isa;
        self
    }

    /// The pages to lie on.
    #[must_use]
    pub const fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }
}

/// A table cannot be built; nothing is left of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Value bits outside of 1 to 8.
    #[error("values have 1 to 8 bits, not {bits}")]
    ValueBits {
        /// What was asked for.
        bits: usize,
    },
    /// More keys than the configuration names.
    #[error("more keys than the {keys} that the table is for")]
    Keys {
        /// What was planned.
        keys: usize,
    },
    /// A value has more bits than the table.
    #[error("value {value} of hash {hash:#018x} has more than {bits} bits")]
    Value {
        /// The key's hash.
        hash: u64,
        /// Its value.
        value: u8,
        /// What the table holds.
        bits: usize,
    },
    /// One hash has two values.
    #[error("hash {hash:#018x} has two values, {first} and {second}")]
    Conflict {
        /// The hash.
        hash: u64,
        /// One value.
        first: u8,
        /// The other.
        second: u8,
    },
    /// Too many keys in groups that have no solution: the hash is poor, or strangers chose the keys.
    #[error(transparent)]
    Fallback(#[from] FallbackFull),
    /// No memory, or no such instruction set.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// What a build found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildStats {
    /// Groups.
    pub groups: usize,
    /// Seeds tried, over all groups.
    pub seeds_tried: usize,
    /// Keys in the fallback table.
    pub fallback: usize,
}

/// Keys in front of their blocks.
pub(super) struct Plan {
    table: Table,
    sorted: Sorted,
}

/// Entries by block.
pub(super) struct Sorted {
    entries: Vec<Entry>,
    starts: Vec<usize>,
}

impl Sorted {
    /// The entries of each block.
    pub(super) fn by_block(&self) -> impl Iterator<Item = &[Entry]> {
        self.starts.windows(2).map(|range| &self.entries[range[0]..range[1]])
    }

    /// A number that another set of entries hardly has: the name of a table built of them.
    pub(super) fn id(&self) -> u64 {
        let sum =
            |sum: u64, &(hash, value): &Entry| sum.wrapping_add(mix(hash ^ mix(u64::from(value))));
        self.entries.iter().fold(mix(self.entries.len() as u64), sum)
    }
}

impl Plan {
    pub(super) fn new(
        config: &Config,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<Plan, BuildError> {
        let (keys, bits) = (config.keys.max(1), config.value_bits);
        if !(1..=PLANES_MAX).contains(&bits) {
            return Err(BuildError::ValueBits { bits });
        }
        if keys > KEYS_MAX {
            return Err(BuildError::Keys { keys: KEYS_MAX });
        }
        let isa = Isa::choose(config.isa).map_err(TableError::from)?;
        let blocks = ((keys + BLOCK_KEYS / 2) / BLOCK_KEYS).max(1);
        let groups = Shape::groups_for(config.row, bits, keys, blocks);
        let shape = Shape::new(config.row, bits, groups);
        let fallback = 2 * shape.unknowns() + keys / 65536;
        let table = Table::new(shape, blocks as u32, fallback, isa, config.pages)?;
        let mut all: Vec<Entry> = Vec::new();
        let mut starts = vec![0; blocks + 1];
        for (hash, value) in entries {
            if all.len() == config.keys {
                return Err(BuildError::Keys { keys: config.keys });
            }
            if bits < 8 && value >> bits != 0 {
                return Err(BuildError::Value { hash, value, bits });
            }
            starts[block_of(hash, blocks as u32) + 1] += 1;
            all.push((hash, value));
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut sorted = vec![(0, 0); all.len()];
        for entry in all {
            let at = &mut next[block_of(entry.0, blocks as u32)];
            sorted[*at] = entry;
            *at += 1;
        }
        Ok(Plan { table, sorted: Sorted { entries: sorted, starts } })
    }

    /// Builds all blocks; the entries come back.
    pub(super) fn build(self) -> Result<(Table, BuildStats, Sorted), BuildError> {
        let mut stats = BuildStats::default();
        match self.table.shape.row {
            RowBits::R64 => self.blocks::<u64>(&mut stats)?,
            RowBits::R128 => self.blocks::<u128>(&mut stats)?,
        }
        Ok((self.table, stats, self.sorted))
    }

    fn blocks<R: Row>(&self, stats: &mut BuildStats) -> Result<(), BuildError> {
        let shape = &self.table.shape;
        let mut workshop = Workshop::<R>::new();
        for (block, entries) in self.sorted.by_block().enumerate() {
            let image =
                build_block(self.table.isa, &mut workshop, shape, entries).map_err(|c| {
                    BuildError::Conflict { hash: c.hash, first: c.values[0], second: c.values[1] }
                })?;
            stats.groups += shape.groups;
            stats.seeds_tried += image.seeds_tried;
            stats.fallback += image.fallback.len();
            self.table.set_block(block, &image)?;
        }
        Ok(())
    }
}

/// [`Workshop::block`] with the vectors of the machine.
fn build_block<R: Row>(
    isa: Isa,
    workshop: &mut Workshop<R>,
    shape: &Shape,
    entries: &[Entry],
) -> Result<Image, Conflict> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn avx2<R: Row>(w: &mut Workshop<R>, s: &Shape, e: &[Entry]) -> Result<Image, Conflict> {
            w.block(s, e)
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn avx512<R: Row>(w: &mut Workshop<R>, s: &Shape, e: &[Entry]) -> Result<Image, Conflict> {
            w.block(s, e)
        }
        match isa {
            // SAFETY: `isa` was chosen for this machine (`Isa::choose`).
            Isa::Avx2 => return unsafe { avx2(workshop, shape, entries) },
            // SAFETY: as above.
            Isa::Avx512 => return unsafe { avx512(workshop, shape, entries) },
            _ => {}
        }
    }
    let _ = isa;
    workshop.block(shape, entries)
}
