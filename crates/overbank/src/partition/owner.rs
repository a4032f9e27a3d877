//! The one writer of a table: it has the keys, solves what changes, and makes the deltas.
//!
//! | operation | what changes |
//! |---|---|
//! | a key has another value | one word a changed value bit; no other key changes its value |
//! | a key is new | its group is solved again; if it is full, buckets take their other group |
//! | a key is new, its partition full | the partition is built again with an eighth more blocks |
//! | a key goes | nothing: it drops out when its group is solved next |

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::balance::Balance;
use super::block::{BlockError, BuiltBlock, Entry, Workshop};
use super::delta::{Change, Delta};
use super::keys::Keys;
use super::row::{Row, SEEDS};
use super::shape::{Place, block_of, bucket_of};
use super::sorted::{BadEntry, Sorted};
use super::table::Shared;
use super::writer::InsertError;
use crate::memory::{MemoryError, reserve};

/// Groups that a search for room looks at before the keys of a full group go to the fallback.
const SEARCH_GROUPS: usize = 64;

/// What the owner keeps of a block.
pub(super) struct Block {
    pub(super) keys: Keys,
    pub(super) balance: Balance,
}

struct Partition {
    blocks: Vec<Block>,
    len: usize,
}

/// See the module.
pub(super) struct Owner<R> {
    table: Shared,
    id: u64,
    generation: u32,
    sequence: u64,
    len: usize,
    partitions: Vec<Partition>,
    /// Keys of a block beyond which its partition grows.
    block_keys: usize,
    workshop: Workshop<R>,
    group_keys: Vec<Entry>,
    group_hashes: Vec<u64>,
    group_buckets: Vec<usize>,
}

impl<R: Row> Owner<R> {
    /// Owns a table that was built with these blocks.
    pub(super) fn new(
        table: Shared,
        (id, generation): (u64, u32),
        blocks: Vec<Block>,
        block_keys: usize,
    ) -> Result<Self, MemoryError> {
        let mut all = blocks.into_iter();
        let mut partitions = Vec::new();
        reserve(&mut partitions, table.partitions())?;
        for partition in 0..table.partitions() {
            let (count, mut blocks) = (table.run(partition).len(), Vec::new());
            reserve(&mut blocks, count)?;
            blocks.extend(all.by_ref().take(count));
            let len = blocks.iter().map(|block: &Block| block.keys.len()).sum();
            partitions.push(Partition { blocks, len });
        }
        Ok(Self {
            id,
            generation,
            sequence: 0,
            len: partitions.iter().map(|partition: &Partition| partition.len).sum(),
            partitions,
            block_keys,
            workshop: Workshop::new(table.isa),
            group_keys: Vec::new(),
            group_hashes: Vec::new(),
            group_buckets: Vec::new(),
            table,
        })
    }

    pub(super) fn table(&self) -> &Shared {
        &self.table
    }

    pub(super) fn id(&self) -> (u64, u32) {
        (self.id, self.generation)
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn block(&self, place: Place) -> &Block {
        &self.partitions[place.partition()].blocks[place.nth()]
    }

    fn block_mut(&mut self, place: Place) -> &mut Block {
        &mut self.partitions[place.partition()].blocks[place.nth()]
    }

    /// Where a block of the owner is in the table.
    fn at(&self, place: Place) -> usize {
        self.table.run(place.partition()).start + place.nth()
    }

    pub(super) fn get(&self, hash: u64) -> Option<u8> {
        let keys = &self.block(self.table.place_of(hash)).keys;
        keys.find(hash).map(|at| keys.value(at))
    }

    /// Every key with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let blocks = self.partitions.iter().flat_map(|partition| &partition.blocks);
        blocks.flat_map(|block| block.keys.iter())
    }

    pub(super) fn remove(&mut self, hash: u64) -> Option<u8> {
        let place = self.table.place_of(hash);
        let partition = &mut self.partitions[place.partition()];
        let Block { keys, balance } = &mut partition.blocks[place.nth()];
        let at = keys.find(hash)?;
        let value = keys.value(at);
        keys.remove(at);
        self.len -= 1;
        partition.len -= 1;
        balance.grow(&self.table.shape, bucket_of(hash) as u16, -1);
        Some(value)
    }

    /// Makes the next delta.
    fn delta(&self, place: Place, change: Change) -> Delta {
        Delta {
            table: self.id,
            generation: self.generation,
            sequence: self.sequence + 1,
            form: self.table.shape.form(),
            place,
            change,
        }
    }

    /// Publishes a block as it is, for copies that may differ.
    pub(super) fn republish(&mut self, place: Place) -> Option<Delta> {
        let block = self.table.block(place)?;
        let delta = self.delta(place, Change::Block(Box::new(self.table.image(block))));
        self.sequence += 1;
        Some(delta)
    }

    /// Inserts a key or gives it another value; `None`: it had that value already.
    pub(super) fn insert(&mut self, hash: u64, value: u8) -> Result<Option<Delta>, InsertError> {
        let place = self.table.place_of(hash);
        self.prefetch(place, bucket_of(hash) as u16);
        let keys = &mut self.block_mut(place).keys;
        let before = keys.find(hash).map(|at| keys.value(at));
        let change = match keys.find(hash) {
            Some(at) if keys.value(at) == value => return Ok(None),
            Some(at) => {
                let changed = keys.value(at) ^ value;
                keys.set(at, value);
                self.moved(place, hash, changed)
            }
            None => {
                if let Some(delta) = self.grown(place.partition(), (hash, value))? {
                    return Ok(Some(delta));
                }
                let shape = &self.table.shape;
                let partition = &mut self.partitions[place.partition()];
                let Block { keys, balance } = &mut partition.blocks[place.nth()];
                keys.insert(hash, value)?;
                balance.grow(shape, bucket_of(hash) as u16, 1);
                partition.len += 1;
                self.len += 1;
                self.inserted(place, bucket_of(hash) as u16)
            }
        };
        let delta = self.delta(place, change);
        if let Err(full) = delta.change.apply_to(&self.table, self.at(place)) {
            self.undo(&delta, hash, before);
            return Err(full.into());
        }
        self.sequence += 1;
        Ok(Some(delta))
    }

    /// Grows a partition that has all the keys of its blocks, with a key that it does not have yet.
    /// `None`: it has room, or cannot grow.
    ///
    /// # Errors
    /// There is no memory; nothing changes.
    fn grown(&mut self, number: usize, new: Entry) -> Result<Option<Delta>, MemoryError> {
        let Partition { blocks, len } = &self.partitions[number];
        if *len < blocks.len() * self.block_keys {
            return Ok(None);
        }
        let count = blocks.len() + blocks.len().div_ceil(8);
        if count > Place::BLOCKS_MAX || !self.table.has_run(count) {
            return Ok(None);
        }
        let bits = self.table.room.partition_bits;
        let block_of = |hash| block_of(hash, bits, count as u32);
        let entries = blocks.iter().flat_map(|block| block.keys.iter()).chain([new]);
        let limits = (usize::MAX, self.table.shape.planes);
        let sorted = match Sorted::new(entries, limits, &(0..count), block_of) {
            Err(BadEntry::Memory(error)) => return Err(error),
            // Not of entries that were checked.
            Err(BadEntry::TooMany | BadEntry::Value { .. }) => return Ok(None),
            Ok(sorted) => sorted,
        };
        let (mut images, mut blocks) = (Vec::new(), Vec::new());
        reserve(&mut images, count)?;
        reserve(&mut blocks, count)?;
        for entries in sorted.by_block() {
            let built = match self.workshop.block(&self.table.shape, entries) {
                Err(BlockError::Memory(error)) => return Err(error),
                // The keys of an owner differ.
                Err(BlockError::Conflict(_)) => return Ok(None),
                Ok(built) => built,
            };
            let BuiltBlock { image, keys, balance, .. } = built;
            images.push(image);
            blocks.push(Block { keys, balance });
        }
        let delta = self.delta(Place::new(number, 0), Change::Partition(images));
        if delta.apply(&self.table).is_err() {
            return Ok(None);
        }
        self.partitions[number] = Partition { blocks, len: len + 1 };
        self.len += 1;
        self.sequence += 1;
        Ok(Some(delta))
    }

    /// Takes back what [`Owner::insert`] noted of a change that the table has no room for.
    fn undo(&mut self, delta: &Delta, hash: u64, before: Option<u8>) {
        if let Change::Groups { turns, .. } = &delta.change {
            let partition = &mut self.partitions[delta.place.partition()];
            let balance = &mut partition.blocks[delta.place.nth()].balance;
            turns.iter().for_each(|&bucket| balance.turn(&self.table.shape, bucket));
        }
        match before {
            None => drop(self.remove(hash)),
            Some(value) => {
                let keys = &mut self.block_mut(delta.place).keys;
                let at = keys.find(hash);
                at.into_iter().for_each(|at| keys.set(at, value));
            }
        }
    }

    /// Asks for what a change of a bucket's group reads first.
    fn prefetch(&self, place: Place, bucket: u16) {
        let (shape, Block { keys, balance }) = (&self.table.shape, self.block(place));
        keys.prefetch_span(usize::from(bucket));
        let group = balance.group(shape, bucket);
        shape.members(group).iter().for_each(|&bucket| keys.prefetch_span(usize::from(bucket)));
        self.table.prefetch_group(self.at(place), group);
    }

    /// The buckets of a group, into `self.group_buckets`. Asks for their keys, and with `values`
    /// for those: read one after another, lines from memory take as long as the solver.
    fn gather_buckets(&mut self, place: Place, group: usize, values: bool) {
        let (shape, partition) = (&self.table.shape, &self.partitions[place.partition()]);
        let Block { keys, balance } = &partition.blocks[place.nth()];
        shape.members(group).iter().for_each(|&bucket| keys.prefetch_span(usize::from(bucket)));
        self.group_buckets.clear();
        self.group_buckets.extend(balance.buckets(shape, group).map(usize::from));
        self.group_buckets.iter().for_each(|&bucket| keys.prefetch_keys(bucket, values));
    }

    /// The keys of a group, into `self.group_keys`.
    fn gather(&mut self, place: Place, group: usize) {
        self.gather_buckets(place, group, true);
        let keys = &self.partitions[place.partition()].blocks[place.nth()].keys;
        self.group_keys.clear();
        self.group_keys.extend(self.group_buckets.iter().flat_map(|&bucket| keys.bucket(bucket)));
    }

    fn moved(&mut self, place: Place, hash: u64, changed: u8) -> Change {
        let shape = &self.table.shape;
        let group = self.block(place).balance.group(shape, bucket_of(hash) as u16);
        self.gather_buckets(place, group, false);
        let keys = &self.partitions[place.partition()].blocks[place.nth()].keys;
        self.group_hashes.clear();
        for &bucket in &self.group_buckets {
            self.group_hashes.extend_from_slice(keys.hashes(bucket));
        }
        let seed = self.table.seed(self.at(place), group);
        let key = self.group_hashes.iter().position(|&other| other == hash);
        if let Some(key) = key
            && seed != SEEDS
            && let Some(correction) =
                self.workshop.correction(&self.table.shape, &self.group_hashes, key, seed)
        {
            return Change::Move { group: group as u16, planes: changed, correction };
        }
        self.solved(place, Vec::new(), &[group])
    }

    fn inserted(&mut self, place: Place, bucket: u16) -> Change {
        let shape = &self.table.shape;
        let balance = &mut self.partitions[place.partition()].blocks[place.nth()].balance;
        let group = balance.group(shape, bucket);
        let cap = shape.unknowns() - 1;
        let (mut turns, mut groups) = (Vec::new(), vec![group]);
        if balance.loads[group] as usize > cap
            && let Some(chain) = balance.relief(shape, group, cap, SEARCH_GROUPS)
        {
            for bucket in chain {
                groups.push(balance.group(shape, bucket));
                balance.turn(shape, bucket);
                groups.push(balance.group(shape, bucket));
                turns.push(bucket);
            }
            groups.sort_unstable();
            groups.dedup();
        }
        self.solved(place, turns, &groups)
    }

    /// Solves groups anew.
    fn solved(&mut self, place: Place, turns: Vec<u16>, groups: &[usize]) -> Change {
        let mut changed = Vec::with_capacity(groups.len());
        let mut fallback = Vec::new();
        let at = self.at(place);
        for &group in groups {
            self.gather(place, group);
            let seed = self.table.seed(at, group) % SEEDS;
            let mut words = vec![0; self.table.shape.group_words()];
            let tried = self.workshop.group(&self.table.shape, &self.group_keys, seed, &mut words);
            if tried > SEEDS {
                fallback.extend_from_slice(&self.group_keys);
            }
            changed.push((group as u16, words));
        }
        Change::Groups { turns, groups: changed, fallback }
    }
}
