//! The face of a table: one writer that owns the keys, readers that only ask, replicas that follow.

use core::borrow::Borrow;
use core::fmt;

use alloc::vec::Vec;

use super::build::{BuildError, BuildStats, Config, Plan};
use super::delta::Delta;
use super::fallback::FallbackFull;
use super::owner::{Block, Owner};
use super::shape::{Form, Place, RowBits};
use super::table::{ApplyError, BURST_MAX, Shared};
use crate::hash::mix;
use crate::memory::MemoryError;
use crate::prefetch::prefetch_at;

/// Looks values up; any number of them, on any threads.
///
/// A lookup waits for nothing but the few stores of a change that has begun, and writes nothing.
#[derive(Clone)]
pub struct Reader {
    table: Shared,
}

impl Reader {
    /// Returns the value of a key by its hash; an arbitrary value if it was never inserted.
    #[inline]
    pub fn lookup(&self, hash: u64) -> u8 {
        let mut value = [0];
        self.table.lookup_batch(&[hash], &mut value);
        value[0]
    }

    /// Asks for the first line of a lookup. For bursts over several tables; within one,
    /// [`Reader::lookup_batch`] asks for all lines.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Looks up a burst of [`BURST_MAX`] hashes at most, whose lines are asked for together. Each
    /// value was current at some instant of the call.
    ///
    /// # Panics
    /// If there are more hashes, or not as many places for values.
    #[inline]
    pub fn lookup_batch(&self, hashes: &[u64], values: &mut [u8]) {
        self.table.lookup_batch(hashes, values);
    }

    /// Looks up any number of hashes, burst by burst.
    ///
    /// # Panics
    /// If there are not as many places for values.
    pub fn lookup_all(&self, hashes: &[u64], values: &mut [u8]) {
        assert_eq!(hashes.len(), values.len(), "one place for each value");
        let bursts = hashes.chunks(BURST_MAX).zip(values.chunks_mut(BURST_MAX));
        bursts.for_each(|(hashes, values)| self.table.lookup_batch(hashes, values));
    }

    /// Returns the bytes that lookups read: choices, groups, versions and fallback.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Returns the keys of the fallback table: those of groups without a solution.
    pub fn fallback_len(&self) -> usize {
        self.table.fallback_entries().count()
    }

    /// Returns the bits of a value.
    pub fn value_bits(&self) -> usize {
        self.table.shape.planes
    }

    /// Returns the bits of a row.
    pub fn row(&self) -> RowBits {
        self.table.shape.row
    }

    /// Returns the number of partitions.
    pub fn partitions(&self) -> usize {
        self.table.partitions()
    }

    /// Returns the number of blocks in use.
    pub fn blocks(&self) -> usize {
        self.table.blocks()
    }

    /// Returns the number of groups with each seed; the last number is that of groups whose keys
    /// are in the fallback table.
    pub fn seeds(&self) -> [usize; 16] {
        let mut counts = [0; 16];
        let blocks = (0..self.partitions()).flat_map(|partition| self.table.run(partition));
        for block in blocks {
            for group in 0..self.table.shape.groups {
                counts[self.table.seed(block, group)] += 1;
            }
        }
        counts
    }

    /// Returns a digest of a block of a partition, by which copies can be compared at equal
    /// sequence numbers; `None` if there is no such block. Only while the table does not change.
    pub fn digest(&self, partition: usize, block: usize) -> Option<u64> {
        let image = self.table.image(self.table.block(place(partition, block)?)?);
        let words = image.choices.iter().chain(&image.words).copied();
        let keys = image.fallback.iter().map(|&(hash, value)| mix(hash ^ mix(u64::from(value))));
        Some(words.chain(keys).fold(0, |digest, word| mix(digest ^ word)))
    }
}

/// A block by its numbers; `None` if no table has it.
fn place(partition: usize, block: usize) -> Option<Place> {
    let known = partition < super::build::PARTITIONS_MAX && block < Place::BLOCKS_MAX;
    known.then(|| Place::new(partition, block))
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = &self.table.shape;
        f.debug_struct("Reader")
            .field("row", &shape.row)
            .field("value_bits", &shape.planes)
            .field("partitions", &self.partitions())
            .field("blocks", &self.blocks())
            .field("groups_per_block", &shape.groups)
            .field("isa", &self.table.isa)
            .finish_non_exhaustive()
    }
}

/// A key is not inserted; the table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The table has all the keys that it is for.
    #[error("the table is full: {keys} keys, as many as it is for")]
    Full {
        /// Keys of the table.
        keys: usize,
    },
    /// The value has more bits than the table.
    #[error("value {value} has more than {bits} bits")]
    Value {
        /// The value.
        value: u8,
        /// What the table holds.
        bits: usize,
    },
    /// Too many keys are in groups without a solution.
    #[error(transparent)]
    Fallback(#[from] FallbackFull),
    /// The system gives no memory for the key, or for a partition that grows.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

enum Inner {
    R64(Owner<u64>),
    R128(Owner<u128>),
}

macro_rules! each {
    ($self:expr, $owner:ident => $do:expr) => {
        match $self {
            Inner::R64($owner) => $do,
            Inner::R128($owner) => $do,
        }
    };
}

/// Owns the keys of a table and changes it; one at a time.
pub struct Writer {
    inner: Inner,
    keys_max: usize,
    seed: u64,
}

impl Writer {
    /// Builds a table of `(hash, value)` pairs; the same pair twice counts once.
    ///
    /// # Errors
    /// See [`BuildError`]; nothing is left then.
    pub fn build(
        config: &Config,
        entries: impl IntoIterator<Item = (u64, u8)>,
    ) -> Result<(Writer, BuildStats), BuildError> {
        let plan = Plan::new(config)?;
        let piece = plan.pieces(1).remove(0).build(entries)?;
        plan.writer([piece])
    }

    /// Owns a table that was built with these blocks.
    pub(super) fn new(
        table: Shared,
        id: u64,
        blocks: Vec<Block>,
        config: &Config,
        block_keys: usize,
    ) -> Result<Writer, MemoryError> {
        let id = (id, config.generation);
        let inner = match table.shape.row {
            RowBits::R64 => Inner::R64(Owner::new(table, id, blocks, block_keys)?),
            RowBits::R128 => Inner::R128(Owner::new(table, id, blocks, block_keys)?),
        };
        Ok(Writer { inner, keys_max: config.keys_max, seed: config.seed })
    }

    /// Inserts a key by its hash, or gives it another value. Returns what replicas must do; nothing
    /// if the key had that value.
    ///
    /// # Errors
    /// The table is full, the value too wide, or there is no memory; nothing is changed.
    pub fn insert(&mut self, hash: u64, value: u8) -> Result<Option<Delta>, InsertError> {
        let bits = self.table().shape.planes;
        if bits < 8 && value >> bits != 0 {
            return Err(InsertError::Value { value, bits });
        }
        if self.len() >= self.keys_max && self.get(hash).is_none() {
            return Err(InsertError::Full { keys: self.len() });
        }
        each!(&mut self.inner, owner => owner.insert(hash, value))
    }

    /// Removes a key; returns its value. Readers and replicas go on to answer something for it.
    pub fn remove(&mut self, hash: u64) -> Option<u8> {
        each!(&mut self.inner, owner => owner.remove(hash))
    }

    /// Returns the value of a key; exact, unlike that of a [`Reader`].
    pub fn get(&self, hash: u64) -> Option<u8> {
        each!(&self.inner, owner => owner.get(hash))
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        each!(&self.inner, owner => owner.len())
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `each` with every key's hash and value.
    pub fn for_each(&self, each: impl FnMut((u64, u8))) {
        each!(&self.inner, owner => owner.iter().for_each(each));
    }

    fn table(&self) -> &Shared {
        each!(&self.inner, owner => owner.table())
    }

    /// Returns a reader of this table.
    pub fn reader(&self) -> Reader {
        Reader { table: self.table().clone() }
    }

    /// Returns the sequence number of the last change.
    pub fn sequence(&self) -> u64 {
        each!(&self.inner, owner => owner.sequence())
    }

    /// Publishes a block as it is: a delta that restores the block of a copy whose
    /// [`digest`](Reader::digest) differs. `None`: there is no such block.
    pub fn republish(&mut self, partition: usize, block: usize) -> Option<Delta> {
        each!(&mut self.inner, owner => owner.republish(place(partition, block)?))
    }

    /// Copies the table. The copy follows this one by the deltas of later changes.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn replica(&self) -> Result<Replica, MemoryError> {
        let (id, generation) = each!(&self.inner, owner => owner.id());
        let table = Shared::new(self.table().copy()?);
        let mut replica = Replica::new(table, id, generation, self.seed, self.len());
        replica.sequence = self.sequence();
        Ok(replica)
    }
}

/// A delta is not applied; the replica is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// It belongs to another table, or to another building of this one.
    #[error("a delta of table {found:#018x}; this is a copy of {expected:#018x}")]
    Table {
        /// Of the delta.
        found: u64,
        /// Of the replica.
        expected: u64,
    },
    /// It belongs to another generation of this table.
    #[error("a delta of generation {found}; this copy has generation {expected}")]
    Generation {
        /// Of the delta.
        found: u32,
        /// Of the replica.
        expected: u32,
    },
    /// Earlier deltas are missing, or it was applied before.
    #[error("delta {found} comes where {expected} is due")]
    Sequence {
        /// Of the delta.
        found: u64,
        /// The next one.
        expected: u64,
    },
    /// It names a group or block that this copy does not have.
    #[error("delta {sequence} does not fit the shape of this copy")]
    Shape {
        /// Of the delta.
        sequence: u64,
    },
    /// The copy has no free blocks for the grown partition: its room is less than the writer's.
    #[error("delta {sequence} needs more blocks than this copy has")]
    Room {
        /// Of the delta.
        sequence: u64,
    },
    /// No room for keys without a solution.
    #[error(transparent)]
    Fallback(#[from] FallbackFull),
}

/// A copy of a table without its keys: applies the writer's deltas in their order.
pub struct Replica {
    pub(super) table: Shared,
    pub(super) id: u64,
    pub(super) generation: u32,
    pub(super) sequence: u64,
    pub(super) seed: u64,
    /// Keys when it was copied or built.
    pub(super) keys: usize,
}

impl Replica {
    pub(super) fn new(table: Shared, id: u64, generation: u32, seed: u64, keys: usize) -> Self {
        Self { table, id, generation, sequence: 0, seed, keys }
    }

    /// Builds a table that follows no writer, of `(hash, value)` pairs; the same pair twice counts
    /// once. It keeps no keys: a fifth of the memory of [`Writer::build`].
    ///
    /// # Errors
    /// See [`BuildError`]; nothing is left then.
    pub fn build(
        config: &Config,
        entries: impl IntoIterator<Item = (u64, u8)>,
    ) -> Result<(Replica, BuildStats), BuildError> {
        let plan = Plan::new(config)?;
        let piece = plan.pieces(1).remove(0).build_watched(entries, false, |_| {})?;
        plan.replica([piece])
    }

    /// Applies the next delta.
    ///
    /// # Errors
    /// It is not the next one of this table; nothing is changed.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), DeltaError> {
        if delta.table != self.id {
            return Err(DeltaError::Table { found: delta.table, expected: self.id });
        }
        if delta.generation != self.generation {
            let (found, expected) = (delta.generation, self.generation);
            return Err(DeltaError::Generation { found, expected });
        }
        let (sequence, expected) = (delta.sequence, self.sequence.wrapping_add(1));
        if sequence != expected {
            return Err(DeltaError::Sequence { found: sequence, expected });
        }
        if delta.form != self.form() {
            return Err(DeltaError::Shape { sequence });
        }
        delta.apply(&self.table).map_err(|error| match error {
            ApplyError::Place => DeltaError::Shape { sequence },
            ApplyError::Room => DeltaError::Room { sequence },
            ApplyError::Fallback(full) => DeltaError::Fallback(full),
        })?;
        self.sequence = expected;
        Ok(())
    }

    /// Applies consecutive deltas, and asks for the lines of later ones meanwhile.
    ///
    /// # Errors
    /// One is not the next one of this table. Those before it are applied, as
    /// [`sequence`](Replica::sequence) says; it and those after it are not.
    pub fn apply_all(&mut self, deltas: &[impl Borrow<Delta>]) -> Result<(), DeltaError> {
        /// How many deltas ahead: what they take is a few times that of a line from memory.
        const AHEAD: usize = 24;
        deltas.iter().take(AHEAD).for_each(|delta| delta.borrow().prefetch(&self.table));
        for (at, delta) in deltas.iter().enumerate() {
            prefetch_at::<false>(deltas.as_ptr().wrapping_add(at + 3 * AHEAD).cast());
            if let Some(later) = deltas.get(at + AHEAD) {
                later.borrow().prefetch(&self.table);
            }
            self.apply(delta.borrow())?;
        }
        Ok(())
    }

    /// Copies the table, with its sequence number.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn copy(&self) -> Result<Replica, MemoryError> {
        let table = Shared::new(self.table.copy()?);
        Ok(Replica { table, ..*self })
    }

    pub(super) fn form(&self) -> Form {
        self.table.shape.form()
    }

    /// Returns a reader of this copy.
    pub fn reader(&self) -> Reader {
        Reader { table: self.table.clone() }
    }

    /// Returns the identity of the table, which the writer's deltas carry.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the generation of the table.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the sequence number of the last delta that it contains.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the seed that the caller hashes keys with, from [`Config::seed`].
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of keys when the copy was made or built. Deltas do not say which keys
    /// left.
    pub fn keys(&self) -> usize {
        self.keys
    }
}
