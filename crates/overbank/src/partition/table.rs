//! The words of a table, and the lookups on them.
//!
//! ```text
//!   directory  one word a partition: first block, number of blocks
//!   choices    32 words a block (256 bytes): one bit a bucket
//!   groups     groups × planes × R/64 words a block
//!   versions   one word a block, and one for the table in front: odd while the writer works
//!   fallback   keys of groups without a solution, with their values: see `fallback`
//! ```
//!
//! A lookup reads one choice and one group: two lines, the second of which depends on the first.
//! Bursts ask for all choices, then for all groups, then compute. The directory is in the L1 cache.
//!
//! **Consistency.** The version of the table is read before a burst and after it: unchanged and
//! even, no word that the burst read was written meanwhile, and every value was current at that
//! time. Else each key is read again under the version of its block, alone: its value was current
//! at an instant of that reading. Writers raise both versions to odd, then write, then raise them
//! to even; readers write nothing.
//!
//! **Growth.** A partition grows into a run of free blocks, which are written before its directory
//! word points to them; the versions of its old and of its new blocks are odd meanwhile. A reader
//! takes the version of a block, and then checks that the directory still leads there: an even
//! version that was raised by the growth leads to the new directory word (Release, Acquire). The
//! old blocks can hold another partition later. A reader that still reads them finds their versions
//! changed.

#![allow(unsafe_code)] // Unchecked indices, calls of functions with target features.

use alloc::vec::Vec;
use core::ops::Range;

use super::block::{Entry, Image};
use super::fallback::{self, FallbackFull};
use super::row::{Row, SEEDS};
use super::shape::{
    CHOICE_WORDS, Place, RowBits, Shape, block_of, bucket_of, partition_of, seed_of,
};
use crate::isa::{Isa, IsaError};
use crate::memory::{MemoryError, Pages};
use crate::prefetch::prefetch_at;
use crate::sync::{Arc, AtomicU64, Ordering, fence, own, pause};
use crate::words::Words;

/// The longest burst of a lookup.
pub const BURST_MAX: usize = 64;

/// What the lookups need of a table.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    directory: &'a [AtomicU64],
    choices: &'a [AtomicU64],
    groups: &'a [AtomicU64],
    fallback: &'a [AtomicU64],
    candidates: &'a [[u16; 2]],
    partition_bits: u32,
    block_groups: u32,
}

type Kernel = unsafe fn(&View<'_>, &[u64], &mut [u8]);

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
        let kernel = kernel(isa, shape.row, shape.planes)?;
        let directory = Words::zeroed(sizes.len(), Pages::Small)?;
        let mut first = 0;
        for (word, &blocks) in directory.get().iter().zip(sizes) {
            word.store(run(first, blocks), Ordering::Relaxed);
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

    #[inline(always)]
    fn view(&self) -> View<'_> {
        View {
            directory: self.directory.get(),
            choices: self.choices.get(),
            groups: self.groups.get(),
            fallback: self.fallback.get(),
            candidates: self.shape.candidates(),
            partition_bits: self.room.partition_bits,
            block_groups: self.shape.groups as u32,
        }
    }

    /// Bytes of everything that lookups read: blocks in use, directory, versions, fallback.
    pub(super) fn bytes(&self) -> usize {
        let block = CHOICE_WORDS + self.shape.groups * self.shape.group_words() + 1;
        let others = self.directory.get().len() + 1 + self.fallback.get().len();
        8 * (self.blocks() * block + others)
    }

    /// Blocks in use.
    pub(super) fn blocks(&self) -> usize {
        (0..self.directory.get().len()).map(|partition| self.run(partition).len()).sum()
    }

    /// The blocks of a partition.
    pub(super) fn run(&self, partition: usize) -> Range<usize> {
        let word = self.directory.get()[partition].load(Ordering::Relaxed);
        let (first, blocks) = ((word >> 32) as usize, word as u32 as usize);
        first..first + blocks
    }

    /// Partitions.
    pub(super) fn partitions(&self) -> usize {
        self.directory.get().len()
    }

    /// Where a block is, if the table has it.
    pub(super) fn block(&self, place: Place) -> Option<usize> {
        let run = (place.partition() < self.partitions()).then(|| self.run(place.partition()))?;
        run.clone().nth(place.nth())
    }

    /// The block of a key.
    pub(super) fn place_of(&self, hash: u64) -> Place {
        let bits = self.room.partition_bits;
        let partition = partition_of(hash, bits);
        Place::new(partition, block_of(hash, bits, self.run(partition).len() as u32))
    }

    /// The group of a key of `block`, by the choices as they are.
    fn group_of(&self, block: usize, hash: u64) -> usize {
        let bucket = bucket_of(hash);
        let word = &self.choices.get()[block * CHOICE_WORDS + (bucket >> 6)];
        let choice = word.load(Ordering::Relaxed) >> (bucket & 63) & 1;
        usize::from(self.shape.candidates()[bucket][choice as usize])
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
    pub(super) fn has_run(&self, blocks: usize) -> bool {
        self.free_run(blocks).is_some()
    }

    /// Values of `hashes`, [`BURST_MAX`] at most, into as many places of `values`.
    #[inline]
    pub(super) fn lookup_batch(&self, hashes: &[u64], values: &mut [u8]) {
        assert!(hashes.len() <= BURST_MAX && hashes.len() == values.len(), "one burst");
        let view = self.view();
        let version = &self.versions.get()[0];
        // Acquire: pairs with the Release of `Change::end`.
        let before = version.load(Ordering::Acquire);
        if before & 1 == 0 {
            // SAFETY: the view is of this table, for whose shape and CPU the kernel was chosen.
            unsafe { (self.kernel)(&view, hashes, values) };
            // Acquire fence: had a load above seen a newer word, the load below would see its odd
            // version.
            fence(Ordering::Acquire);
            if version.load(Ordering::Relaxed) == before {
                return;
            }
        }
        self.again(&view, hashes, values);
    }

    #[cold]
    fn again(&self, view: &View<'_>, hashes: &[u64], values: &mut [u8]) {
        for (hash, value) in hashes.iter().zip(values) {
            loop {
                let block = view.block(*hash);
                let version = &self.versions.get()[1 + block];
                // As in `lookup_batch`; and the directory word, read after the version, still leads
                // to the block of that version.
                let before = version.load(Ordering::Acquire);
                if before & 1 == 0 && view.block(*hash) == block {
                    let (hash, value) = (core::slice::from_ref(hash), core::slice::from_mut(value));
                    // SAFETY: as in `lookup_batch`.
                    unsafe { (self.kernel)(view, hash, value) };
                    fence(Ordering::Acquire);
                    if version.load(Ordering::Relaxed) == before {
                        break;
                    }
                }
                pause();
            }
        }
    }

    /// Takes a whole block over. One thread only.
    ///
    /// # Errors
    /// The fallback table has no room; the block is as it was.
    pub(super) fn set_block(&self, block: usize, image: &Image) -> Result<(), FallbackFull> {
        let mut change = self.begin(block);
        let of_block = |hash| self.block(self.place_of(hash)) == Some(block);
        change.replace_fallback(of_block, image.fallback.iter().copied())?;
        change.set_words(block, image);
        Ok(())
    }

    /// Takes a partition over, with as many blocks as there are images. One thread only.
    ///
    /// # Errors
    /// The fallback table or the blocks have no room; the partition is as it was.
    pub(super) fn set_partition(
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

    /// Has `entries` in the fallback and no others. One thread only.
    ///
    /// # Errors
    /// There is no room for all; nothing changes.
    #[cfg(feature = "std")]
    pub(super) fn set_fallback(&self, entries: &[Entry]) -> Result<(), FallbackFull> {
        let mut change = self.begin_runs([0..0, 0..0]);
        change.replace_fallback(|_| true, entries.iter().copied())
    }

    /// Starts a change of `block`; it ends when the guard is dropped. One thread only.
    pub(super) fn begin(&self, block: usize) -> Change<'_> {
        self.begin_runs([block..block + 1, 0..0])
    }

    /// The same of two runs of blocks.
    fn begin_runs(&self, blocks: [Range<usize>; 2]) -> Change<'_> {
        let change = Change { table: self, blocks };
        change.versions().for_each(|version| {
            version.store(own(version).wrapping_add(1), Ordering::Relaxed);
        });
        // Release fence: pairs with the Acquire fences of the lookups.
        fence(Ordering::Release);
        change
    }

    /// Another table with the same words, for a machine that follows this one.
    pub(super) fn copy(&self) -> Result<Self, MemoryError> {
        let copy = |words: &Words, pages| {
            let new = Words::zeroed(words.get().len(), pages)?;
            for (new, old) in new.get().iter().zip(words.get()) {
                new.store(old.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            Ok(new)
        };
        Ok(Self {
            shape: self.shape.clone(),
            directory: copy(&self.directory, Pages::Small)?,
            choices: copy(&self.choices, self.pages)?,
            groups: copy(&self.groups, self.pages)?,
            versions: Words::zeroed(self.versions.get().len(), Pages::Small)?,
            fallback: copy(&self.fallback, Pages::Small)?,
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

/// A directory word.
const fn run(first: u32, blocks: u32) -> u64 {
    (first as u64) << 32 | blocks as u64
}

/// A change of blocks that readers do not see half of.
pub(super) struct Change<'a> {
    table: &'a Table,
    blocks: [Range<usize>; 2],
}

impl Change<'_> {
    /// The versions of the blocks, and that of the table.
    fn versions(&self) -> impl Iterator<Item = &AtomicU64> {
        let versions = self.table.versions.get();
        let [first, second] = self.blocks.clone();
        let of_blocks = first.chain(second).map(|block| &versions[1 + block]);
        of_blocks.chain([&versions[0]])
    }

    /// Writes choices and groups of a block.
    fn set_words(&mut self, block: usize, image: &Image) {
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
    pub(super) fn set_group(&mut self, group: usize, words: &[u64]) {
        let old = self.table.group(self.blocks[0].start, group);
        old.iter().zip(words).for_each(|(old, new)| old.store(*new, Ordering::Relaxed));
    }

    /// Adds `correction` to the planes of a group that `planes` has a bit for.
    pub(super) fn correct(&mut self, group: usize, planes: u8, correction: [u64; 2]) {
        let limbs = self.table.shape.limbs();
        let words = self.table.group(self.blocks[0].start, group);
        for (plane, words) in words.chunks_exact(limbs).enumerate() {
            if planes >> plane & 1 == 1 {
                for (word, change) in words.iter().zip(correction) {
                    word.store(word.load(Ordering::Relaxed) ^ change, Ordering::Relaxed);
                }
            }
        }
    }

    /// Has a bucket take its other group.
    pub(super) fn turn(&mut self, bucket: u16) {
        let at = self.blocks[0].start * CHOICE_WORDS + usize::from(bucket >> 6);
        let word = &self.table.choices.get()[at];
        word.store(word.load(Ordering::Relaxed) ^ 1 << (bucket & 63), Ordering::Relaxed);
    }

    /// Has `entries` in the fallback instead of the keys that are there for `groups`, before any of
    /// the block's choices or groups change.
    ///
    /// # Errors
    /// There is no room for all; nothing changes.
    pub(super) fn fallback_of_groups(
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
    fn replace_fallback(
        &mut self,
        gone: impl Fn(u64) -> bool,
        entries: impl Iterator<Item = Entry> + Clone,
    ) -> Result<(), FallbackFull> {
        let most = self.table.room.fallback as usize;
        fallback::replace(self.table.fallback.get(), most, gone, entries)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.versions().for_each(|version| {
            // Release: pairs with the Acquire of the lookups.
            version.store(own(version).wrapping_add(1), Ordering::Release);
        });
    }
}

/// A change cannot be made; the table is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("there is no such partition or block")]
    Place,
    #[error("there is no room for the grown partition")]
    Room,
    #[error(transparent)]
    Fallback(#[from] FallbackFull),
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

impl View<'_> {
    /// The block of a key.
    #[inline(always)]
    fn block(&self, hash: u64) -> usize {
        let partition = partition_of(hash, self.partition_bits);
        // SAFETY: the directory has a word for each of the 2^partition_bits partitions.
        let word = unsafe { self.directory.get_unchecked(partition) }.load(Ordering::Relaxed);
        (word >> 32) as usize + block_of(hash, self.partition_bits, word as u32)
    }
}

/// The lookup of a burst.
///
/// # Safety
/// The view is of a table of `PLANES` planes and rows of `R`, `hashes` has as many places as
/// `values`, [`BURST_MAX`] at most.
#[inline(always)]
unsafe fn burst<R: Row, const PLANES: usize>(view: &View<'_>, hashes: &[u64], values: &mut [u8]) {
    let limbs = R::BITS / 64;
    let unknowns = R::BITS - super::shape::seed_bits(PLANES);
    let mut starts = [0usize; BURST_MAX];
    for (start, &hash) in starts.iter_mut().zip(hashes) {
        *start = view.block(hash);
        let word = *start * CHOICE_WORDS + (bucket_of(hash) >> 6);
        prefetch_at::<false>(view.choices.as_ptr().wrapping_add(word).cast());
    }
    for (start, &hash) in starts.iter_mut().zip(hashes) {
        let (block, bucket) = (*start, bucket_of(hash));
        // SAFETY: each directory word is a run of blocks of the table, of which the multiplication
        // takes one; `bucket < BUCKETS` by its mask. The table has CHOICE_WORDS words for each
        // block and a pair for each bucket.
        let (word, both) = unsafe {
            let at = block * CHOICE_WORDS + (bucket >> 6);
            (view.choices.get_unchecked(at), view.candidates.get_unchecked(bucket))
        };
        let choice = word.load(Ordering::Relaxed) >> (bucket & 63) & 1;
        // SAFETY: `choice` is 0 or 1.
        let group = usize::from(unsafe { *both.get_unchecked(choice as usize) });
        *start = (block * view.block_groups as usize + group) * (PLANES * limbs);
        let line = view.groups.as_ptr().wrapping_add(*start);
        prefetch_at::<false>(line.cast());
        if PLANES * limbs > 8 || !(PLANES * limbs).is_power_of_two() {
            prefetch_at::<false>(line.wrapping_add(PLANES * limbs - 1).cast());
        }
    }
    for ((&start, &hash), value) in starts.iter().zip(hashes).zip(values) {
        // SAFETY: `start` is that of a group of the table, and a group has that many words.
        let word =
            |at: usize| unsafe { view.groups.get_unchecked(start + at).load(Ordering::Relaxed) };
        let seed = seed_of(PLANES, |plane| word(plane * limbs + limbs - 1));
        if seed == SEEDS {
            *value = fallback::value(view.fallback, hash);
            continue;
        }
        let row = R::new(hash, seed).masked(unknowns);
        let mut bits = 0;
        for plane in 0..PLANES {
            let high = if limbs == 2 { word(plane * limbs + 1) } else { 0 };
            bits |= (row.parity([word(plane * limbs), high]) as u8) << plane;
        }
        *value = bits;
    }
}

macro_rules! kernels {
    ($name:ident $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// See [`burst`](super::burst); the CPU has the instruction set.
            $(#[target_feature(enable = $features)])?
            unsafe fn lookup<R: Row, const PLANES: usize>(
                view: &View<'_>,
                hashes: &[u64],
                values: &mut [u8],
            ) {
                // SAFETY: the caller's promises, passed on.
                unsafe { burst::<R, PLANES>(view, hashes, values) }
            }

            pub(super) const R64: [Kernel; 8] = [
                lookup::<u64, 1>, lookup::<u64, 2>, lookup::<u64, 3>, lookup::<u64, 4>,
                lookup::<u64, 5>, lookup::<u64, 6>, lookup::<u64, 7>, lookup::<u64, 8>,
            ];
            pub(super) const R128: [Kernel; 8] = [
                lookup::<u128, 1>, lookup::<u128, 2>, lookup::<u128, 3>, lookup::<u128, 4>,
                lookup::<u128, 5>, lookup::<u128, 6>, lookup::<u128, 7>, lookup::<u128, 8>,
            ];
        }
    };
}
kernels!(portable);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, "avx2,bmi1,bmi2,lzcnt,popcnt");

fn kernel(isa: Isa, row: RowBits, planes: usize) -> Result<Kernel, IsaError> {
    let (narrow, wide) = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 if isa.is_available() => (avx2::R64, avx2::R128),
        // NEON has no parity instruction: the plain code is what it would be.
        _ if isa.is_available() => (portable::R64, portable::R128),
        _ => return Err(IsaError::Unavailable { name: isa.name() }),
    };
    Ok(match row {
        RowBits::R64 => narrow[planes - 1],
        RowBits::R128 => wide[planes - 1],
    })
}

/// A table that its owner and its readers share.
pub(super) type Shared = Arc<Table>;
