//! Where the blocks of each partition are, and partitions that move to other blocks.
//!
//! **Growth.** A partition grows into a run of free blocks, which are written before its directory
//! word points to them; the versions of its old and of its new blocks are odd meanwhile. A reader
//! takes the version of a block, and then checks that the directory still leads there: an even
//! version that was raised by the growth leads to the new directory word (Release, Acquire). The
//! old blocks can hold another partition later. A reader that still reads them finds their versions
//! changed.

use alloc::vec::Vec;
use core::ops::Range;

use super::super::block::Image;
use super::super::shape::{Place, block_of, partition_of};
use super::{ApplyError, Table};
use crate::sync::Ordering;

impl Table {
    /// Blocks in use.
    pub(in crate::partition) fn blocks(&self) -> usize {
        (0..self.directory.get().len()).map(|partition| self.run(partition).len()).sum()
    }

    /// The blocks of a partition.
    pub(in crate::partition) fn run(&self, partition: usize) -> Range<usize> {
        let word = self.directory.get()[partition].load(Ordering::Relaxed);
        let (first, blocks) = ((word >> 32) as usize, word as u32 as usize);
        first..first + blocks
    }

    /// Partitions.
    pub(in crate::partition) fn partitions(&self) -> usize {
        self.directory.get().len()
    }

    /// Where a block is, if the table has it.
    pub(in crate::partition) fn block(&self, place: Place) -> Option<usize> {
        let run = (place.partition() < self.partitions()).then(|| self.run(place.partition()))?;
        run.clone().nth(place.nth())
    }

    /// The block of a key.
    pub(in crate::partition) fn place_of(&self, hash: u64) -> Place {
        let bits = self.room.partition_bits;
        let partition = partition_of(hash, bits);
        Place::new(partition, block_of(hash, bits, self.run(partition).len() as u32))
    }

    /// The first run of `blocks` free blocks.
    fn free_run(&self, blocks: usize) -> Option<usize> {
        let mut runs: Vec<Range<usize>> = (0..self.partitions()).map(|p| self.run(p)).collect();
        runs.sort_unstable_by_key(|run| run.start);
        runs.push(self.room.blocks as usize..usize::MAX);
        let mut end = 0;
        for run in runs {
            if run.start >= end + blocks {
                return Some(end);
            }
            end = run.end;
        }
        None
    }

    /// Whether a partition of this many blocks could be written beside those in use.
    pub(in crate::partition) fn has_run(&self, blocks: usize) -> bool {
        self.free_run(blocks).is_some()
    }

    /// Takes a partition over, with as many blocks as there are images. One thread only.
    ///
    /// # Errors
    /// The fallback table or the blocks have no room; the partition is as it was.
    pub(in crate::partition) fn set_partition(
        &self,
        partition: usize,
        images: &[Image],
    ) -> Result<(), ApplyError> {
        if partition >= self.partitions() || !(1..=Place::BLOCKS_MAX).contains(&images.len()) {
            return Err(ApplyError::Place);
        }
        let first = self.free_run(images.len()).ok_or(ApplyError::Room)?;
        let (old, new) = (self.run(partition), first..first + images.len());
        let mut change = self.begin_runs([old, new]);
        let bits = self.room.partition_bits;
        let entries = images.iter().flat_map(|image| image.fallback.iter().copied());
        change.replace_fallback(|hash| partition_of(hash, bits) == partition, entries)?;
        for (nth, image) in images.iter().enumerate() {
            change.set_words(first + nth, image);
        }
        let word = run(first as u32, images.len() as u32);
        self.directory.get()[partition].store(word, Ordering::Relaxed);
        Ok(())
    }
}

/// A directory word.
pub(super) const fn run(first: u32, blocks: u32) -> u64 {
    (first as u64) << 32 | blocks as u64
}
