//! One block from its keys: which bucket is in which group, and the words of each group.
//!
//! A group whose keys have dependent rows under every seed, or more keys than unknowns, goes to the
//! fallback: its words are zero but for the last seed, and its keys are listed.

use alloc::vec;
use alloc::vec::Vec;

use super::balance::Balance;
use super::keys::Keys;
use super::row::{Row, SEEDS};
use super::shape::{BUCKETS, CHOICE_WORDS, Shape, bucket_of, seed_part};
use super::solve::System;
use crate::isa::Isa;
use crate::memory::{MemoryError, filled, reserve};

/// A key's hash and its value.
pub(super) type Entry = (u64, u8);

/// What a table keeps of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) choices: [u64; CHOICE_WORDS],
    /// The words of the groups, one after another; planes within.
    pub(super) words: Vec<u64>,
    /// Keys of groups that could not be solved.
    pub(super) fallback: Vec<Entry>,
}

/// A block that was built: its image, and what its owner keeps.
pub(super) struct BuiltBlock {
    pub(super) image: Image,
    pub(super) keys: Keys,
    pub(super) balance: Balance,
    /// Seeds tried, over all groups.
    pub(super) seeds_tried: usize,
}

/// Memory that the blocks of a thread use one after another.
pub(super) struct Workshop<R> {
    system: System<R>,
    rows: Vec<R>,
    values: Vec<u8>,
    keys: Vec<Entry>,
}

/// Two keys of one hash with different values: no table of hashes can hold both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) hash: u64,
    pub(super) values: [u8; 2],
}

/// A block is not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockError {
    Conflict(Conflict),
    Memory(MemoryError),
}

impl From<MemoryError> for BlockError {
    fn from(error: MemoryError) -> Self {
        BlockError::Memory(error)
    }
}

impl<R: Row> Workshop<R> {
    pub(super) fn new(isa: Isa) -> Self {
        Self {
            system: System::new(isa),
            rows: Vec::with_capacity(R::BITS),
            values: Vec::with_capacity(R::BITS),
            keys: Vec::new(),
        }
    }

    /// Builds the block of `entries`. The same key with the same value twice counts once.
    ///
    /// # Errors
    /// One hash has two values, or there is no memory.
    pub(super) fn block(
        &mut self,
        shape: &Shape,
        entries: &[Entry],
    ) -> Result<BuiltBlock, BlockError> {
        let keys = self.sort(entries)?;
        let balance = Balance::new(shape, keys.sizes(), shape.unknowns() - 1);
        let mut image = Image {
            choices: balance.choices,
            words: filled(shape.groups * shape.group_words(), 0)?,
            fallback: Vec::new(),
        };
        let mut seeds_tried = 0;
        let mut group_keys: Vec<Entry> = Vec::with_capacity(R::BITS);
        for group in 0..shape.groups {
            group_keys.clear();
            reserve(&mut group_keys, balance.loads[group] as usize)?;
            for bucket in balance.buckets(shape, group) {
                group_keys.extend(keys.bucket(usize::from(bucket)));
            }
            let words = &mut image.words[group * shape.group_words()..][..shape.group_words()];
            let tried = self.group(shape, &group_keys, 0, words);
            seeds_tried += tried.min(SEEDS);
            if tried > SEEDS {
                reserve(&mut image.fallback, group_keys.len())?;
                image.fallback.extend_from_slice(&group_keys);
            }
        }
        Ok(BuiltBlock { image, keys, balance, seeds_tried })
    }

    /// Solves a group, from seed `first` on, and writes its words. Returns how many seeds were
    /// tried; more than [`SEEDS`]: none will do, and the words say that the keys are elsewhere.
    pub(super) fn group(
        &mut self,
        shape: &Shape,
        keys: &[Entry],
        first: usize,
        words: &mut [u64],
    ) -> usize {
        let (unknowns, planes, limbs) = (shape.unknowns(), shape.planes, shape.limbs());
        if keys.len() <= unknowns {
            self.values.clear();
            self.values.extend(keys.iter().map(|key| key.1));
            for nth in 0..SEEDS {
                let seed = (first + nth) % SEEDS;
                self.rows.clear();
                self.rows.extend(keys.iter().map(|key| R::new(key.0, seed).masked(unknowns)));
                if let Some(found) = self.system.solve(&self.rows, &self.values, unknowns, planes) {
                    for (plane, solution) in found.iter().enumerate() {
                        let words = &mut words[plane * limbs..][..limbs];
                        words.copy_from_slice(&solution[..limbs]);
                        words[limbs - 1] |= seed_part(planes, plane, seed);
                    }
                    return nth + 1;
                }
            }
        }
        words.fill(0);
        for plane in 0..planes {
            words[plane * limbs + limbs - 1] = seed_part(planes, plane, SEEDS);
        }
        SEEDS + 1
    }

    /// The correction of a group's words that changes the value of key `key` and of no other:
    /// to be added (XOR) to each plane whose bit changes. The group was solved with `seed`.
    pub(super) fn correction(
        &mut self,
        shape: &Shape,
        hashes: &[u64],
        key: usize,
        seed: usize,
    ) -> Option<[u64; 2]> {
        let unknowns = shape.unknowns();
        self.rows.clear();
        self.rows.extend(hashes.iter().map(|&hash| R::new(hash, seed).masked(unknowns)));
        self.system.solve_unit(&self.rows, key, unknowns)
    }

    /// The entries by bucket, each once.
    fn sort(&mut self, entries: &[Entry]) -> Result<Keys, BlockError> {
        let mut starts = vec![0u32; BUCKETS + 1];
        entries.iter().for_each(|entry| starts[bucket_of(entry.0) + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        self.keys.clear();
        reserve(&mut self.keys, entries.len())?;
        self.keys.resize(entries.len(), (0, 0));
        for &entry in entries {
            let at = &mut next[bucket_of(entry.0)];
            self.keys[*at as usize] = entry;
            *at += 1;
        }
        let mut keys = Keys::with_capacity(entries.len())?;
        for range in starts.windows(2) {
            let bucket = &mut self.keys[range[0] as usize..range[1] as usize];
            let kept = unique(bucket).map_err(BlockError::Conflict)?;
            keys.push_bucket(&bucket[..kept]);
        }
        Ok(keys)
    }
}

/// Moves the first of each hash to the front; how many they are.
fn unique(keys: &mut [Entry]) -> Result<usize, Conflict> {
    /// From here on sorting costs less than comparing each with each; no usual bucket is so large.
    const CROWDED: usize = 64;
    if keys.len() > CROWDED {
        keys.sort_unstable();
    }
    let mut kept = 0usize;
    for at in 0..keys.len() {
        let key = keys[at];
        let before = if keys.len() > CROWDED { kept.saturating_sub(1) } else { 0 };
        match keys[before..kept].iter().find(|other| other.0 == key.0) {
            Some(other) if other.1 != key.1 => {
                return Err(Conflict { hash: key.0, values: [other.1, key.1] });
            }
            Some(_) => {}
            None => {
                keys[kept] = key;
                kept += 1;
            }
        }
    }
    Ok(kept)
}
