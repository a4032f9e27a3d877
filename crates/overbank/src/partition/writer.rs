//! The face of a table: one writer that owns the keys, readers that only ask, replicas that follow.

use core::fmt;

use super::build::{BuildError, BuildStats, Config, Plan};
use super::delta::Delta;
use super::owner::Owner;
use super::shape::RowBits;
use super::table::{BURST_MAX, FallbackFull, Shared};
use crate::memory::MemoryError;

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

    /// Returns the keys of the fallback table that are or were in groups without a solution.
    pub fn fallback_len(&self) -> usize {
        self.table.fallback_used()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = &self.table.shape;
        f.debug_struct("Reader")
            .field("row", &shape.row)
            .field("value_bits", &shape.planes)
            .field("blocks", &self.table.blocks)
            .field("groups_per_block", &shape.groups)
            .field("isa", &self.table.isa)
            .finish_non_exhaustive()
    }
}

/// A key is not inserted; the table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError {
    /// The table has all the keys that it was built for.
    #[error("the table is full: {keys} keys, as many as it was built for")]
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
        let plan = Plan::new(config, entries)?;
        let (table, stats, plan) = plan.build()?;
        let (id, blocks) = (plan.id(), plan.by_block());
        let inner = match table.shape.row {
            RowBits::R64 => Inner::R64(Owner::new(Shared::new(table), id, blocks)),
            RowBits::R128 => Inner::R128(Owner::new(Shared::new(table), id, blocks)),
        };
        Ok((Writer { inner, keys_max: config.keys }, stats))
    }

    /// Inserts a key by its hash, or gives it another value. Returns what replicas must do; nothing
    /// if the key had that value.
    ///
    /// # Errors
    /// The table is full, or the value too wide; nothing is changed.
    pub fn insert(&mut self, hash: u64, value: u8) -> Result<Option<Delta>, InsertError> {
        let bits = self.table().shape.planes;
        if bits < 8 && value >> bits != 0 {
            return Err(InsertError::Value { value, bits });
        }
        if self.len() >= self.keys_max && self.get(hash).is_none() {
            return Err(InsertError::Full { keys: self.len() });
        }
        Ok(each!(&mut self.inner, owner => owner.insert(hash, value))?)
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

    /// Copies the table for somebody who follows it by deltas from here on.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn replica(&self) -> Result<Replica, MemoryError> {
        let (table, id) = (self.table().copy()?, each!(&self.inner, owner => owner.id()));
        let sequence = each!(&self.inner, owner => owner.sequence());
        Ok(Replica { table: Shared::new(table), id, sequence })
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
    /// Deltas before it are missing, or it was applied before.
    #[error("delta {found} comes where {expected} is due")]
    Sequence {
        /// Of the delta.
        found: u64,
        /// The next one.
        expected: u64,
    },
    /// No room for keys without a solution.
    #[error(transparent)]
    Fallback(#[from] FallbackFull),
}

/// A copy of a table without its keys: applies the writer's deltas in their order.
pub struct Replica {
    table: Shared,
    id: u64,
    sequence: u64,
}

impl Replica {
    /// Applies the next delta.
    ///
    /// # Errors
    /// It is not the next one of this table; nothing is changed.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), DeltaError> {
        if delta.table != self.id {
            return Err(DeltaError::Table { found: delta.table, expected: self.id });
        }
        let expected = self.sequence + 1;
        if delta.sequence != expected {
            return Err(DeltaError::Sequence { found: delta.sequence, expected });
        }
        delta.apply(&self.table)?;
        self.sequence = expected;
        Ok(())
    }

    /// Returns a reader of this copy.
    pub fn reader(&self) -> Reader {
        Reader { table: self.table.clone() }
    }
}
