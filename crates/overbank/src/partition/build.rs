//! Building a table from its keys, in pieces that different threads can build.
//!
//! ```text
//!   Plan ─ pieces(n) ─▶ Piece: keys of a range of blocks ─ build(entries) ─▶ BuiltPiece ─┐
//!                       one thread each, all on the same entries                        ▼
//!                                                     Plan::writer, Plan::replica: the table
//! ```
//!
//! A piece passes over all entries and keeps its own: 1 to 3 ns an entry. So more pieces than
//! threads cost time, and bound the memory: 32 bytes for each key of a piece while it is built.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::block::{BlockError, BuiltBlock, Conflict, Image, Workshop};
use super::fallback::FallbackFull;
use super::owner::Block;
use super::row::Row;
use super::shape::{
    BLOCK_KEYS, PACKED_KEYS, PARTITION_BITS_MAX, Place, RowBits, Shape, block_of, partition_of,
};
use super::solve::PLANES_MAX;
use super::sorted::{BadEntry, Sorted};
use super::table::{Room, Shared, Table, TableError};
use super::writer::{Replica, Writer};
use crate::hash::mix;
use crate::isa::Isa;
use crate::memory::{MemoryError, Pages, reserve};

/// Maximum number of keys of a table.
pub const KEYS_MAX: usize = 1 << 35;
/// Maximum number of partitions of a table.
pub const PARTITIONS_MAX: usize = 1 << PARTITION_BITS_MAX;
/// Maximum growth of a table, as a multiple of the keys that it is planned for.
pub const GROWTH_MAX: usize = 16;

/// Configuration of a table. Checked by the construction, not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) keys: usize,
    pub(super) keys_max: usize,
    pub(super) partitions: usize,
    pub(super) value_bits: usize,
    pub(super) row: RowBits,
    pub(super) packed: bool,
    pub(super) generation: u32,
    pub(super) seed: u64,
    pub(super) isa: Option<Isa>,
    pub(super) pages: Pages,
}

impl Config {
    /// Plans for `keys` keys with values of `value_bits` bits, 1 to 8.
    pub const fn new(keys: usize, value_bits: usize) -> Self {
        Self {
            keys,
            keys_max: keys,
            partitions: 1,
            value_bits,
            row: RowBits::R128,
            packed: false,
            generation: 0,
            seed: 0,
            isa: None,
            pages: Pages::Huge,
        }
    }

    /// Sets the bits of a row.
    #[must_use]
    pub const fn row(mut self, row: RowBits) -> Self {
        self.row = row;
        self
    }

    /// Packs the groups of a table that hardly changes: 2 to 4 % less memory. Insertions into a
    /// packed table at its planned size solve more groups each, and can fill the fallback table.
    #[must_use]
    pub const fn packed(mut self) -> Self {
        self.packed = true;
        self
    }

    /// Lets the table grow to `keys_max` keys, [`GROWTH_MAX`] times the planned ones at most.
    /// Each partition grows alone, by an eighth, into memory that is reserved at construction and
    /// first touched by growth. `partitions` is a power of two up to [`PARTITIONS_MAX`]. An
    /// insertion that makes a partition grow builds it anew: some 50 ns a key.
    #[must_use]
    pub const fn growing(mut self, keys_max: usize, partitions: usize) -> Self {
        self.keys_max = keys_max;
        self.partitions = partitions;
        self
    }

    /// Sets the generation: a number that differs each time a table of the same name is built anew.
    /// Deltas apply to copies of their generation only.
    #[must_use]
    pub const fn generation(mut self, generation: u32) -> Self {
        self.generation = generation;
        self
    }

    /// Records the seed that the caller hashes keys with. Images keep it; the table does not use
    /// it.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Forces an instruction set. Without it, the best available is used.
    #[must_use]
    pub const fn isa(mut self, isa: Option<Isa>) -> Self {
        self.isa = isa;
        self
    }

    /// Sets the pages of the table's memory.
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
        /// Requested bits.
        bits: usize,
    },
    /// Partitions that are no power of two, or too many.
    #[error("{partitions} partitions: must be a power of two, 1 to {PARTITIONS_MAX}")]
    Partitions {
        /// Requested partitions.
        partitions: usize,
    },
    /// Less room than keys, or too much.
    #[error("growth to {keys_max} keys: must be between {keys} and {} keys", keys.saturating_mul(GROWTH_MAX))]
    Growth {
        /// Requested room.
        keys_max: usize,
        /// Planned keys.
        keys: usize,
    },
    /// More keys than the configuration names.
    #[error("more keys than the {keys} that the table is for")]
    Keys {
        /// Planned keys.
        keys: usize,
    },
    /// A value has more bits than the table.
    #[error("value {value} of hash {hash:#018x} has more than {bits} bits")]
    Value {
        /// The key's hash.
        hash: u64,
        /// Its value.
        value: u8,
        /// Bits of the table's values.
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
    /// The pieces are not those of one call of [`Plan::pieces`], each once and of the same entries.
    #[error("the pieces do not make a whole table")]
    Pieces,
    /// Too many keys in groups that have no solution: the hash is poor, or strangers chose the
    /// keys.
    #[error(transparent)]
    Fallback(#[from] FallbackFull),
    /// No memory, or no such instruction set.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Statistics of a build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildStats {
    /// Distinct keys.
    pub keys: usize,
    /// Entries that repeat a key and its value.
    pub repeated: usize,
    /// Groups.
    pub groups: usize,
    /// Seeds tried, over all groups.
    pub seeds_tried: usize,
    /// Keys in the fallback table.
    pub fallback: usize,
}

/// A table to be built: its configuration, checked, and its sizes.
///
/// ```
/// use overbank::hash::mix;
/// use overbank::partition::{Config, Plan};
///
/// let plan = Plan::new(&Config::new(100_000, 2))?;
/// let entries = (0..100_000).map(|key| (mix(key), (key % 4) as u8));
/// let built = std::thread::scope(|scope| {
///     let pieces = plan.pieces(2).into_iter().map(|piece| {
///         let entries = entries.clone();
///         scope.spawn(move || piece.build(entries))
///     });
///     let threads: Vec<_> = pieces.collect();
///     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
/// });
/// let built: Result<Vec<_>, _> = built;
/// let (writer, stats) = plan.writer(built?)?;
/// assert_eq!((stats.keys, writer.reader().lookup(mix(7))), (100_000, 3));
/// # Ok::<(), overbank::partition::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    config: Config,
    shape: Shape,
    room: Room,
    isa: Isa,
    /// Blocks of each partition.
    blocks: u32,
    /// Keys of a block beyond which its partition grows.
    block_keys: usize,
}

impl Plan {
    /// Checks a configuration and computes the sizes of its table.
    ///
    /// # Errors
    /// The configuration cannot be that of a table.
    pub fn new(config: &Config) -> Result<Plan, BuildError> {
        let Config { value_bits: bits, partitions, row, packed, .. } = *config;
        let (keys, keys_max) = (config.keys.max(1), config.keys_max.max(1));
        if !(1..=PLANES_MAX).contains(&bits) {
            return Err(BuildError::ValueBits { bits });
        }
        if keys_max > KEYS_MAX {
            return Err(BuildError::Keys { keys: KEYS_MAX });
        }
        if !partitions.is_power_of_two() || partitions > PARTITIONS_MAX {
            return Err(BuildError::Partitions { partitions });
        }
        if keys_max < keys || keys_max / keys > GROWTH_MAX {
            return Err(BuildError::Growth { keys_max, keys });
        }
        let isa = Isa::choose(config.isa).map_err(TableError::from)?;
        let (of_each, of_each_max) = (keys.div_ceil(partitions), keys_max.div_ceil(partitions));
        let grows = keys_max > keys;
        let (blocks, block_keys, most) = if grows {
            // Partitions differ by the square root of their keys, and round up.
            let block_keys = of_each_max.min(BLOCK_KEYS);
            let blocks = |keys: usize| (keys + keys / 16).div_ceil(block_keys);
            // As much again, as a partition grows into free blocks, and gaps are not always joined.
            let most = partitions * 2 * (blocks(of_each_max) + 1) + 2;
            (blocks(of_each), block_keys, most)
        } else {
            let blocks_of = |keys: usize| ((of_each + keys / 2) / keys).max(1);
            let (most, least) = match packed {
                true => (blocks_of(BLOCK_KEYS), blocks_of(PACKED_KEYS)),
                false => (blocks_of(BLOCK_KEYS), blocks_of(BLOCK_KEYS)),
            };
            // Whole groups fit some sizes of a block better than others.
            let words = |&blocks: &usize| {
                let keys = of_each.div_ceil(blocks);
                blocks * Shape::block_words(row, bits, Shape::groups_for(row, bits, keys, packed))
            };
            let step = (most - least) / 256 + 1;
            let blocks = (least..=most).step_by(step).min_by_key(words).unwrap_or(most);
            (blocks, of_each.div_ceil(blocks), blocks * partitions)
        };
        if blocks > Place::BLOCKS_MAX || most > u32::MAX as usize {
            return Err(BuildError::Keys { keys: KEYS_MAX });
        }
        let shape = Shape::new(row, bits, Shape::groups_for(row, bits, block_keys, packed));
        let room = Room {
            partition_bits: partitions.trailing_zeros(),
            blocks: most as u32,
            fallback: ((2 * shape.unknowns()).min(keys_max) + keys_max / 65536) as u32,
        };
        Ok(Plan { config: config.clone(), shape, room, isa, blocks: blocks as u32, block_keys })
    }

    /// Plans blocks of `block_keys` keys, whose groups have `unknowns` unknowns, and `percent` of
    /// the keys that they may have: far smaller groups than those of any configuration.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn tiny(self, unknowns: usize, block_keys: usize, percent: usize) -> Plan {
        let Shape { row, planes, .. } = self.shape;
        let groups = (100 * block_keys).div_ceil((unknowns - 1) * percent);
        let of_each = |keys: usize| keys.div_ceil(self.config.partitions);
        let blocks = of_each(self.config.keys).div_ceil(block_keys);
        let grown = match self.config.keys_max > self.config.keys {
            true => 2 * (of_each(self.config.keys_max) * 9 / 8).div_ceil(block_keys) + 2,
            false => blocks,
        };
        Plan {
            shape: Shape::new(row, planes, groups).with_unknowns(unknowns),
            room: Room { blocks: (grown * self.config.partitions) as u32, ..self.room },
            blocks: blocks as u32,
            block_keys,
            ..self
        }
    }

    /// Divides the table into `count` pieces, or as many as there are blocks.
    pub fn pieces(&self, count: usize) -> Vec<Piece<'_>> {
        let all = (self.blocks as usize) << self.room.partition_bits;
        let count = count.clamp(1, all);
        let start = |nth: usize| nth * all / count;
        (0..count).map(|nth| Piece { plan: self, blocks: start(nth)..start(nth + 1) }).collect()
    }

    /// The number of a key's block, all partitions counted.
    #[inline]
    fn block_of(&self, hash: u64) -> usize {
        let bits = self.room.partition_bits;
        partition_of(hash, bits) * self.blocks as usize + block_of(hash, bits, self.blocks)
    }

    /// Puts pieces together to a table without its keys, which follows no writer.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn replica(
        &self,
        pieces: impl IntoIterator<Item = BuiltPiece>,
    ) -> Result<(Replica, BuildStats), BuildError> {
        let (table, stats, id, _) = self.join(pieces)?;
        Ok((Replica::new(table, id, self.config.generation, self.config.seed, stats.keys), stats))
    }

    /// Puts pieces together to a table and its owner.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn writer(
        &self,
        pieces: impl IntoIterator<Item = BuiltPiece>,
    ) -> Result<(Writer, BuildStats), BuildError> {
        let (table, stats, id, blocks) = self.join(pieces)?;
        if blocks.len() != table.blocks() {
            return Err(BuildError::Pieces);
        }
        Ok((Writer::new(table, id, blocks, &self.config, self.block_keys)?, stats))
    }

    fn join(
        &self,
        pieces: impl IntoIterator<Item = BuiltPiece>,
    ) -> Result<(Shared, BuildStats, u64, Vec<Block>), BuildError> {
        let sizes = vec![self.blocks; self.config.partitions];
        let (shape, config) = (self.shape.clone(), &self.config);
        let table = Table::new(shape, self.room, &sizes, self.isa, config.pages)?;
        let (mut stats, mut entries, mut sum, mut next) = (BuildStats::default(), None, 0u64, 0);
        let mut blocks = Vec::new();
        for mut piece in pieces {
            if piece.first != next || *entries.get_or_insert(piece.all) != piece.all {
                return Err(BuildError::Pieces);
            }
            for image in &piece.images {
                table.set_block(next, image)?;
                stats.fallback += image.fallback.len();
                next += 1;
            }
            sum = sum.wrapping_add(piece.sum);
            stats.keys += piece.keys;
            stats.repeated += piece.repeated;
            stats.seeds_tried += piece.seeds_tried;
            reserve(&mut blocks, piece.owned.len())?;
            blocks.append(&mut piece.owned);
        }
        if next != table.blocks() {
            return Err(BuildError::Pieces);
        }
        stats.groups = next * self.shape.groups;
        let id = mix(entries.unwrap_or(0) as u64).wrapping_add(sum);
        Ok((Shared::new(table), stats, id, blocks))
    }
}

/// The keys of a range of blocks.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    plan: &'a Plan,
    blocks: Range<usize>,
}

impl Piece<'_> {
    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Builds the blocks, of those of all the table's `entries` that belong to them, and keeps the
    /// keys for [`Plan::writer`].
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build(
        &self,
        entries: impl IntoIterator<Item = (u64, u8)>,
    ) -> Result<BuiltPiece, BuildError> {
        self.build_watched(entries, true, |_| {})
    }

    /// The same, without the keys unless `keep`, and with a call for each block that is done.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn build_watched(
        &self,
        entries: impl IntoIterator<Item = (u64, u8)>,
        keep: bool,
        done: impl FnMut(usize),
    ) -> Result<BuiltPiece, BuildError> {
        let (config, bits) = (&self.plan.config, self.plan.config.value_bits);
        let block_of = |hash| self.plan.block_of(hash);
        let sorted = Sorted::new(entries, (config.keys, bits), &self.blocks, block_of);
        let sorted = sorted.map_err(|bad| match bad {
            BadEntry::TooMany => BuildError::Keys { keys: config.keys },
            BadEntry::Value { hash, value } => BuildError::Value { hash, value, bits },
            BadEntry::Memory(error) => error.into(),
        })?;
        let mut built = BuiltPiece {
            first: self.blocks.start,
            all: sorted.all,
            sum: sorted.sum,
            keys: 0,
            repeated: 0,
            seeds_tried: 0,
            images: Vec::new(),
            owned: Vec::new(),
        };
        reserve(&mut built.images, self.blocks())?;
        reserve(&mut built.owned, if keep { self.blocks() } else { 0 })?;
        match self.plan.shape.row {
            RowBits::R64 => self.solve::<u64>(&sorted, keep, &mut built, done)?,
            RowBits::R128 => self.solve::<u128>(&sorted, keep, &mut built, done)?,
        }
        Ok(built)
    }

    fn solve<R: Row>(
        &self,
        sorted: &Sorted,
        keep: bool,
        built: &mut BuiltPiece,
        mut done: impl FnMut(usize),
    ) -> Result<(), BuildError> {
        let mut workshop = Workshop::<R>::new(self.plan.isa);
        for (nth, entries) in sorted.by_block().enumerate() {
            let block = workshop.block(&self.plan.shape, entries)?;
            let BuiltBlock { image, keys, balance, seeds_tried } = block;
            built.keys += keys.len();
            built.repeated += entries.len() - keys.len();
            built.seeds_tried += seeds_tried;
            built.images.push(image);
            if keep {
                built.owned.push(Block { keys, balance });
            }
            done(nth + 1);
        }
        Ok(())
    }
}

/// A [`Piece`] that was built.
pub struct BuiltPiece {
    first: usize,
    all: usize,
    sum: u64,
    keys: usize,
    repeated: usize,
    seeds_tried: usize,
    images: Vec<Image>,
    owned: Vec<Block>,
}

impl From<MemoryError> for BuildError {
    fn from(error: MemoryError) -> Self {
        BuildError::Table(error.into())
    }
}

impl From<BlockError> for BuildError {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Conflict(Conflict { hash, values: [first, second] }) => {
                BuildError::Conflict { hash, first, second }
            }
            BlockError::Memory(error) => error.into(),
        }
    }
}
