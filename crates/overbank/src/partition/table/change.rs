//! Changes of a table, of which readers do not see half: one thread at a time makes them.

use core::ops::Range;

use super::super::block::{Entry, Image};
use super::super::fallback::{self, FallbackFull};
use super::super::row::SEEDS;
use super::super::shape::CHOICE_WORDS;
use super::Table;
use crate::prefetch::prefetch_at;
use crate::sync::{AtomicU64, Ordering, fence, own};

impl Table {
    /// Takes a whole block over. One thread only.
    ///
    /// # Errors
    /// The fallback table has no room; the block is as it was.
    pub(in crate::partition) fn set_block(
        &self,
        block: usize,
        image: &Image,
    ) -> Result<(), FallbackFull> {
        let mut change = self.begin(block);
        let of_block = |hash| self.block(self.place_of(hash)) == Some(block);
        change.replace_fallback(of_block, image.fallback.iter().copied())?;
        change.set_words(block, image);
        Ok(())
    }

    /// Has `entries` in the fallback and no others. One thread only.
    ///
    /// # Errors
    /// There is no room for all; nothing changes.
    #[cfg(feature = "snapshot")]
    pub(in crate::partition) fn set_fallback(&self, entries: &[Entry]) -> Result<(), FallbackFull> {
        let mut change = self.begin_runs([0..0, 0..0]);
        change.replace_fallback(|_| true, entries.iter().copied())
    }

    /// Asks for the lines that a change of a group reads and writes. The numbers may be wrong: a
    /// hint has no effect that a program can observe.
    #[inline]
    pub(in crate::partition) fn prefetch_group(&self, block: usize, group: usize) {
        let words = self.shape.group_words();
        let first = (block * self.shape.groups).wrapping_add(group).wrapping_mul(words);
        let line = self.groups.get().as_ptr().wrapping_add(first);
        prefetch_at::<false>(line.cast());
        prefetch_at::<false>(line.wrapping_add(words - 1).cast());
        prefetch_at::<false>(self.versions.get().as_ptr().wrapping_add(1 + block).cast());
    }

    /// Starts a change of `block`; it ends when the guard is dropped. One thread only.
    // Inlined with its ranges: through memory they take half of the time of a move.
    #[inline(always)]
    pub(in crate::partition) fn begin(&self, block: usize) -> Change<'_> {
        self.begin_runs([block..block + 1, 0..0])
    }

    /// The same of two runs of blocks.
    #[inline(always)]
    pub(super) fn begin_runs(&self, blocks: [Range<usize>; 2]) -> Change<'_> {
        let change = Change { table: self, blocks };
        change.raise(Ordering::Relaxed);
        // Release fence: pairs with the Acquire fences of the lookups.
        fence(Ordering::Release);
        change
    }
}

/// A change of blocks that readers do not see half of.
pub(in crate::partition) struct Change<'a> {
    table: &'a Table,
    blocks: [Range<usize>; 2],
}

impl Change<'_> {
    /// Adds one to the versions of the blocks, and to that of the table.
    #[inline(always)]
    fn raise(&self, order: Ordering) {
        let versions = self.table.versions.get();
        let raise = |version: &AtomicU64| version.store(own(version).wrapping_add(1), order);
        for run in &self.blocks {
            versions[1..][run.start..run.end].iter().for_each(raise);
        }
        raise(&versions[0]);
    }

    /// Writes choices and groups of a block.
    pub(super) fn set_words(&mut self, block: usize, image: &Image) {
        let first = block * CHOICE_WORDS;
        for (word, bits) in self.table.choices.get()[first..].iter().zip(image.choices) {
            word.store(bits, Ordering::Relaxed);
        }
        let shape = &self.table.shape;
        let first = block * shape.groups * shape.group_words();
        for (word, bits) in self.table.groups.get()[first..].iter().zip(&image.words) {
            word.store(*bits, Ordering::Relaxed);
        }
    }

    /// Replaces the words of a group.
    pub(in crate::partition) fn set_group(&mut self, group: usize, words: &[u64]) {
        let old = self.table.group(self.blocks[0].start, group);
        old.iter().zip(words).for_each(|(old, new)| old.store(*new, Ordering::Relaxed));
    }

    /// Adds `correction` to the planes of a group that `planes` has a bit for.
    #[inline(always)]
    pub(in crate::partition) fn correct(
        &mut self,
        group: usize,
        mut planes: u8,
        correction: [u64; 2],
    ) {
        let limbs = self.table.shape.limbs();
        let words = self.table.group(self.blocks[0].start, group);
        while planes != 0 {
            let first = planes.trailing_zeros() as usize * limbs;
            for (word, change) in words[first..][..limbs].iter().zip(correction) {
                word.store(own(word) ^ change, Ordering::Relaxed);
            }
            planes &= planes - 1;
        }
    }

    /// Has a bucket take its other group.
    pub(in crate::partition) fn turn(&mut self, bucket: u16) {
        let at = self.blocks[0].start * CHOICE_WORDS + usize::from(bucket >> 6);
        let word = &self.table.choices.get()[at];
        word.store(word.load(Ordering::Relaxed) ^ 1 << (bucket & 63), Ordering::Relaxed);
    }

    /// Has `entries` in the fallback instead of the keys that are there for `groups`, before any of
    /// the block's choices or groups change.
    ///
    /// # Errors
    /// There is no room for all; nothing changes.
    pub(in crate::partition) fn fallback_of_groups(
        &mut self,
        groups: impl Iterator<Item = u16> + Clone,
        entries: &[Entry],
    ) -> Result<(), FallbackFull> {
        let (table, block) = (self.table, self.blocks[0].start);
        let was = |group: u16| table.seed(block, usize::from(group)) == SEEDS;
        if entries.is_empty() && !groups.clone().any(was) {
            return Ok(());
        }
        let gone = |hash: u64| {
            table.block(table.place_of(hash)) == Some(block)
                && groups.clone().any(|g| usize::from(g) == table.group_of(block, hash))
        };
        self.replace_fallback(gone, entries.iter().copied())
    }

    /// Removes the keys that `gone` names from the fallback and adds `entries`.
    pub(super) fn replace_fallback(
        &mut self,
        gone: impl Fn(u64) -> bool,
        entries: impl Iterator<Item = Entry> + Clone,
    ) -> Result<(), FallbackFull> {
        let most = self.table.room.fallback as usize;
        fallback::replace(self.table.fallback.get(), most, gone, entries)
    }
}

impl Drop for Change<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the lookups.
        self.raise(Ordering::Release);
    }
}

/// A change cannot be made; the table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::partition) enum ApplyError {
    #[error("there is no such partition or block")]
    Place,
    #[error("there is no room for the grown partition")]
    Room,
    #[error(transparent)]
    Fallback(#[from] FallbackFull),
}
