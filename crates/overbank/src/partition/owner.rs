//! The one writer of a table: it has the keys, solves what changes, and says so in deltas.
//!
//! | operation | what changes |
//! |---|---|
//! | a key has another value | one word a changed value bit; no other key changes its value |
//! | a key is new | its group is solved anew; if that is full, buckets take their other group, by the shortest chain |
//! | a key goes | nothing: it drops out when its group is solved next |

use alloc::vec;
use alloc::vec::Vec;

use super::balance::Balance;
use super::block::{Entry, Workshop};
use super::delta::{Change, Delta};
use super::keys::Keys;
use super::row::{Row, SEEDS};
use super::shape::{CHOICE_WORDS, block_of, bucket_of};
use super::table::{FallbackFull, Shared};

/// Groups that a search for room looks at before the keys of a full group go to the fallback.
const SEARCH_GROUPS: usize = 64;

struct Block {
    keys: Keys,
    balance: Balance,
}

/// See the module.
pub(super) struct Owner<R> {
    table: Shared,
    id: u64,
    sequence: u64,
    len: usize,
    blocks: Vec<Block>,
    workshop: Workshop<R>,
    group_keys: Vec<Entry>,
}

impl<R: Row> Owner<R> {
    /// Owns a table that was built of `entries` (by block), each hash once.
    pub(super) fn new<'a>(
        table: Shared,
        id: u64,
        entries: impl Iterator<Item = &'a [Entry]>,
    ) -> Self {
        let shape = &table.shape;
        let mut blocks = Vec::with_capacity(table.blocks as usize);
        for (block, entries) in entries.enumerate() {
            let mut keys = Keys::new();
            for &(hash, value) in entries {
                if keys.find(hash).is_none() {
                    keys.insert(hash, value);
                }
            }
            let sizes = (0..super::shape::BUCKETS).map(|b| keys.bucket(b).count() as u32).collect();
            let mut choices = [0; CHOICE_WORDS];
            table.choices(block, &mut choices);
            blocks.push(Block { keys, balance: Balance::of(shape, sizes, choices) });
        }
        let len = blocks.iter().map(|block| block.keys.len()).sum();
        Self {
            id,
            sequence: 0,
            len,
            blocks,
            workshop: Workshop::new(),
            group_keys: Vec::new(),
            table,
        }
    }

    pub(super) fn table(&self) -> &Shared {
        &self.table
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, hash: u64) -> Option<u8> {
        let keys = &self.blocks[block_of(hash, self.table.blocks)].keys;
        keys.find(hash).map(|at| keys.value(at))
    }

    /// Every key with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.blocks.iter().flat_map(|block| block.keys.iter())
    }

    pub(super) fn remove(&mut self, hash: u64) -> Option<u8> {
        let at = block_of(hash, self.table.blocks);
        let Block { keys, balance } = &mut self.blocks[at];
        let at = keys.find(hash)?;
        let value = keys.value(at);
        keys.remove(at);
        self.len -= 1;
        balance.grow(&self.table.shape, bucket_of(hash) as u16, -1);
        Some(value)
    }

    /// Inserts a key or gives it another value; `None`: it had that value already.
    pub(super) fn insert(&mut self, hash: u64, value: u8) -> Result<Option<Delta>, FallbackFull> {
        let block = block_of(hash, self.table.blocks);
        let keys = &mut self.blocks[block].keys;
        let before = keys.find(hash).map(|at| keys.value(at));
        let change = match keys.find(hash) {
            Some(at) if keys.value(at) == value => return Ok(None),
            Some(at) => {
                let changed = keys.value(at) ^ value;
                keys.set(at, value);
                self.moved(block, hash, changed)
            }
            None => {
                keys.insert(hash, value);
                let shape = &self.table.shape;
                self.blocks[block].balance.grow(shape, bucket_of(hash) as u16, 1);
                self.len += 1;
                self.inserted(block, bucket_of(hash) as u16)
            }
        };
        let sequence = self.sequence + 1;
        let delta = Delta { table: self.id, sequence, block: block as u32, change };
        if let Err(full) = delta.apply(&self.table) {
            self.undo(&delta, hash, before);
            return Err(full);
        }
        self.sequence = sequence;
        Ok(Some(delta))
    }

    /// Takes back what [`Owner::insert`] noted of a change that the table has no room for.
    fn undo(&mut self, delta: &Delta, hash: u64, before: Option<u8>) {
        if let Change::Groups { turns, .. } = &delta.change {
            let balance = &mut self.blocks[delta.block as usize].balance;
            turns.iter().for_each(|&bucket| balance.turn(&self.table.shape, bucket));
        }
        match before {
            None => drop(self.remove(hash)),
            Some(value) => {
                let keys = &mut self.blocks[delta.block as usize].keys;
                let at = keys.find(hash);
                at.into_iter().for_each(|at| keys.set(at, value));
            }
        }
    }

    /// The keys of a group into `self.group_keys`.
    fn gather(&mut self, block: usize, group: usize) {
        let Block { keys, balance } = &self.blocks[block];
        self.group_keys.clear();
        for bucket in balance.buckets(&self.table.shape, group) {
            self.group_keys.extend(keys.bucket(usize::from(bucket)));
        }
    }

    fn moved(&mut self, block: usize, hash: u64, changed: u8) -> Change {
        let shape = &self.table.shape;
        let group = self.blocks[block].balance.group(shape, bucket_of(hash) as u16);
        self.gather(block, group);
        let seed = self.table.seed(block, group);
        let key = self.group_keys.iter().position(|key| key.0 == hash);
        if let Some(key) = key
            && seed != SEEDS
            && let Some(correction) =
                self.workshop.correction(&self.table.shape, &self.group_keys, key, seed)
        {
            return Change::Move { group: group as u16, planes: changed, correction };
        }
        self.solved(block, Vec::new(), &[group])
    }

    fn inserted(&mut self, block: usize, bucket: u16) -> Change {
        let shape = &self.table.shape;
        let balance = &mut self.blocks[block].balance;
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
        self.solved(block, turns, &groups)
    }

    /// Solves groups anew.
    fn solved(&mut self, block: usize, turns: Vec<u16>, groups: &[usize]) -> Change {
        let mut changed = Vec::with_capacity(groups.len());
        let mut fallback = Vec::new();
        for &group in groups {
            self.gather(block, group);
            let seed = self.table.seed(block, group) % SEEDS;
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
