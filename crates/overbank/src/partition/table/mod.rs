//! The words of a table.
//!
//! ```text
//!   directory  one word a partition: first block, number of blocks
//!   choices    32 words a block (256 bytes): one bit a bucket
//!   groups     groups × planes × R/64 words a block
//!   versions   one word a block, and one for the table in front: odd while the writer works
//!   fallback   keys of groups without a solution, with their values: see `fallback`
//! ```
//!
//! [`lookup`] reads, [`change`] writes under the versions, [`directory`] places partitions. Why a
//! reader sees what was there is said in `lookup`; why also while the table grows, in `directory`.

use alloc::vec::Vec;

use super::block::{Entry, Image};
use super::fallback;
use super::shape::{CHOICE_WORDS, Shape, bucket_of, seed_of};
use crate::isa::{Isa, IsaError};
use crate::memory::{MemoryError, Pages};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::words::Words;

mod change;
mod directory;
mod lookup;

pub(super) use change::ApplyError;
pub use lookup::BURST_MAX;
use lookup::Kernel;

/// How much a table can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Bits of a partition's number, up to
    /// [`PARTITION_BITS_MAX`](super::shape::PARTITION_BITS_MAX).
    pub(super) partition_bits: u32,
    /// Blocks, those that are free for growth included.
    pub(super) blocks: u32,
    /// Keys of the fallback table.
    pub(super) fallback: u32,
}

/// See the module.
pub(super) struct Table {
    pub(super) shape: Shape,
    pub(super) room: Room,
    directory: Words,
    choices: Words,
    groups: Words,
    versions: Words,
    fallback: Words,
    kernel: Kernel,
    pub(super) isa: Isa,
    pages: Pages,
}

impl Table {
    /// Makes a table whose keys all have value 0. `sizes` are the blocks of each partition, one at
    /// least and `room.blocks` in total at most.
    pub(super) fn new(
        shape: Shape,
        room: Room,
        sizes: &[u32],
        isa: Isa,
        pages: Pages,
    ) -> Result<Self, TableError> {
        debug_assert_eq!(sizes.len(), 1 << room.partition_bits);
        let count = room.blocks as usize;
        let kernel = lookup::kernel(isa, shape.row, shape.planes)?;
        let directory = Words::zeroed(sizes.len(), Pages::Small)?;
        let mut first = 0;
        for (word, &blocks) in directory.get().iter().zip(sizes) {
            word.store(directory::run(first, blocks), Ordering::Relaxed);
            first += blocks;
        }
        debug_assert!(first <= room.blocks && !sizes.contains(&0));
        Ok(Self {
            directory,
            choices: Words::zeroed(count * CHOICE_WORDS, pages)?,
            groups: Words::zeroed(count * shape.groups * shape.group_words(), pages)?,
            versions: Words::zeroed(count + 1, Pages::Small)?,
            fallback: Words::zeroed(fallback::words_for(room.fallback as usize), Pages::Small)?,
            kernel,
            isa,
            pages,
            shape,
            room,
        })
    }

    /// Bytes of everything that lookups read: blocks in use, directory, versions, fallback.
    pub(super) fn bytes(&self) -> usize {
        let block = CHOICE_WORDS + self.shape.groups * self.shape.group_words() + 1;
        let others = self.directory.get().len() + 1 + self.fallback.get().len();
        8 * (self.blocks() * block + others)
    }

    /// The group of a key of `block`, by the choices as they are.
    fn group_of(&self, block: usize, hash: u64) -> usize {
        let bucket = bucket_of(hash);
        let word = &self.choices.get()[block * CHOICE_WORDS + (bucket >> 6)];
        let choice = word.load(Ordering::Relaxed) >> (bucket & 63) & 1;
        usize::from(self.shape.candidates()[bucket][choice as usize])
    }

    /// Choices and groups of a block as they are. One thread only.
    pub(super) fn words(&self, block: usize) -> ([u64; CHOICE_WORDS], Vec<u64>) {
        let mut choices = [0; CHOICE_WORDS];
        let words = &self.choices.get()[block * CHOICE_WORDS..][..CHOICE_WORDS];
        for (bits, word) in choices.iter_mut().zip(words) {
            *bits = word.load(Ordering::Relaxed);
        }
        let count = self.shape.groups * self.shape.group_words();
        let words = &self.groups.get()[block * count..][..count];
        (choices, words.iter().map(|word| word.load(Ordering::Relaxed)).collect())
    }

    /// The image of a block as it is. One thread only.
    pub(super) fn image(&self, block: usize) -> Image {
        let (choices, words) = self.words(block);
        let of_block = |hash| self.block(self.place_of(hash)) == Some(block);
        let mut fallback: Vec<Entry> = self.fallback_entries().collect();
        fallback.retain(|entry| of_block(entry.0));
        fallback.sort_unstable();
        Image { choices, words, fallback }
    }

    /// Another table with the same words, for a machine that follows this one.
    pub(super) fn copy(&self) -> Result<Self, MemoryError> {
        // Free blocks have no words yet, and their pages no memory: they are left alone.
        let runs = (0..self.partitions()).map(|partition| self.run(partition).end);
        let used = runs.max().unwrap_or(0);
        let copy = |words: &Words, pages, used| {
            let new = Words::zeroed(words.get().len(), pages)?;
            for (new, old) in new.get().iter().zip(&words.get()[..used]) {
                new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Ok(new)
        };
        let group_words = self.shape.groups * self.shape.group_words();
        let (directory, fallback) = (self.directory.get().len(), self.fallback.get().len());
        Ok(Self {
            shape: self.shape.clone(),
            directory: copy(&self.directory, Pages::Small, directory)?,
            choices: copy(&self.choices, self.pages, used * CHOICE_WORDS)?,
            groups: copy(&self.groups, self.pages, used * group_words)?,
            versions: Words::zeroed(self.versions.get().len(), Pages::Small)?,
            fallback: copy(&self.fallback, Pages::Small, fallback)?,
            ..*self
        })
    }

    /// The keys of the fallback table.
    pub(super) fn fallback_entries(&self) -> impl Iterator<Item = Entry> + '_ {
        fallback::entries(self.fallback.get())
    }

    /// The words of a group as they are.
    pub(super) fn group(&self, block: usize, group: usize) -> &[AtomicU64] {
        let words = self.shape.group_words();
        &self.groups.get()[(block * self.shape.groups + group) * words..][..words]
    }

    /// The seed that a group was solved with.
    pub(super) fn seed(&self, block: usize, group: usize) -> usize {
        let (words, limbs) = (self.group(block, group), self.shape.limbs());
        seed_of(self.shape.planes, |plane| words[plane * limbs + limbs - 1].load(Ordering::Relaxed))
    }
}

/// A table cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The system gave no memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The instruction set cannot be used.
    #[error(transparent)]
    Isa(#[from] IsaError),
}

/// A table that its owner and its readers share.
pub(super) type Shared = Arc<Table>;
