//! The words of a table, and the lookups on them.
//!
//! ```text
//!   choices    32 words a block (256 bytes): one bit a bucket
//!   groups     groups × planes × R/64 words a block
//!   versions   one word a block, and one for the table in front: odd while the writer changes something
//!   fallback   (hash, value + 1) pairs, open addressing
//! ```
//!
//! A lookup reads one choice and one group: two lines, the second of which depends on the first.
//! Bursts ask for all choices, then for all groups, then compute.
//!
//! **Consistency.** The version of the table is read before a burst and after it: unchanged and even,
//! no word that the burst read was written meanwhile, and every value was current at that time. Else
//! each key is read again under the version of its block, alone: its value was current at an instant
//! of that reading. Writers raise both versions to odd, then write, then raise them to even; readers
//! write nothing.

#![allow(unsafe_code)] // Unchecked indices, calls of functions with target features.

use super::block::{Entry, Image};
use super::row::{Row, SEEDS};
use super::shape::{CHOICE_WORDS, RowBits, Shape, block_of, bucket_of, seed_of};
use crate::isa::{Isa, IsaError};
use crate::memory::{MemoryError, Pages};
use crate::prefetch::prefetch_at;
use crate::sync::{Arc, AtomicU64, Ordering, fence, pause};
use crate::words::Words;

/// The longest burst of a lookup.
pub const BURST_MAX: usize = 64;

/// What the lookups need of a table.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    choices: &'a [AtomicU64],
    groups: &'a [AtomicU64],
    fallback: &'a [AtomicU64],
    candidates: &'a [[u16; 2]],
    blocks: u32,
    block_groups: u32,
}

type Kernel = unsafe fn(&View<'_>, &[u64], &mut [u8]);

/// See the module.
pub(super) struct Table {
    pub(super) shape: Shape,
    pub(super) blocks: u32,
    choices: Words,
    groups: Words,
    versions: Words,
    fallback: Words,
    kernel: Kernel,
    pub(super) isa: Isa,
    pages: Pages,
}

impl Table {
    /// All keys have value 0.
    pub(super) fn new(
        shape: Shape,
        blocks: u32,
        fallback_max: usize,
        isa: Isa,
        pages: Pages,
    ) -> Result<Self, TableError> {
        let count = blocks as usize;
        let kernel = kernel(isa, shape.row, shape.planes)?;
        Ok(Self {
            choices: Words::zeroed(count * CHOICE_WORDS, pages)?,
            groups: Words::zeroed(count * shape.groups * shape.group_words(), pages)?,
            versions: Words::zeroed(count + 1, Pages::Small)?,
            // Half full at most, so that a search for an absent key ends soon.
            fallback: Words::zeroed(
                2 * (2 * fallback_max.max(1)).next_power_of_two(),
                Pages::Small,
            )?,
            kernel,
            isa,
            pages,
            shape,
            blocks,
        })
    }

    #[inline(always)]
    fn view(&self) -> View<'_> {
        View {
            choices: self.choices.get(),
            groups: self.groups.get(),
            fallback: self.fallback.get(),
            candidates: self.shape.candidates(),
            blocks: self.blocks,
            block_groups: self.shape.groups as u32,
        }
    }

    /// Bytes of everything that lookups read.
    pub(super) fn bytes(&self) -> usize {
        [&self.choices, &self.groups, &self.versions, &self.fallback]
            .iter()
            .map(|words| 8 * words.get().len())
            .sum()
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
            let version = &self.versions.get()[1 + block_of(*hash, self.blocks)];
            loop {
                // As in `lookup_batch`.
                let before = version.load(Ordering::Acquire);
                if before & 1 == 0 {
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
        change.fallback(&image.fallback)?;
        let first = block * CHOICE_WORDS;
        for (word, bits) in self.choices.get()[first..].iter().zip(image.choices) {
            word.store(bits, Ordering::Relaxed);
        }
        let first = block * self.shape.groups * self.shape.group_words();
        for (word, bits) in self.groups.get()[first..].iter().zip(&image.words) {
            word.store(*bits, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Starts a change of `block`; it ends when the guard is dropped. One thread only.
    pub(super) fn begin(&self, block: usize) -> Change<'_> {
        let versions = self.versions.get();
        for version in [&versions[0], &versions[1 + block]] {
            version.store(version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        // Release fence: pairs with the Acquire fences of the lookups.
        fence(Ordering::Release);
        Change { table: self, block }
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
            choices: copy(&self.choices, self.pages)?,
            groups: copy(&self.groups, self.pages)?,
            versions: Words::zeroed(self.versions.get().len(), Pages::Small)?,
            fallback: copy(&self.fallback, Pages::Small)?,
            ..*self
        })
    }

    /// The choices of a block as they are.
    pub(super) fn choices(&self, block: usize, choices: &mut [u64; CHOICE_WORDS]) {
        let words = &self.choices.get()[block * CHOICE_WORDS..][..CHOICE_WORDS];
        for (bits, word) in choices.iter_mut().zip(words) {
            *bits = word.load(Ordering::Relaxed);
        }
    }

    /// Places of the fallback table that are taken.
    pub(super) fn fallback_used(&self) -> usize {
        let values = self.fallback.get().iter().skip(1).step_by(2);
        values.filter(|value| value.load(Ordering::Relaxed) != 0).count()
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

/// A change of one block that readers do not see half of.
pub(super) struct Change<'a> {
    table: &'a Table,
    block: usize,
}

impl Change<'_> {
    /// Replaces the words of a group.
    pub(super) fn set_group(&mut self, group: usize, words: &[u64]) {
        let old = self.table.group(self.block, group);
        old.iter().zip(words).for_each(|(old, new)| old.store(*new, Ordering::Relaxed));
    }

    /// Adds `correction` to the planes of a group that `planes` has a bit for.
    pub(super) fn correct(&mut self, group: usize, planes: u8, correction: [u64; 2]) {
        let limbs = self.table.shape.limbs();
        let words = self.table.group(self.block, group);
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
        let word = &self.table.choices.get()[self.block * CHOICE_WORDS + usize::from(bucket >> 6)];
        word.store(word.load(Ordering::Relaxed) ^ 1 << (bucket & 63), Ordering::Relaxed);
    }

    /// Adds keys to the fallback, or gives them other values there.
    ///
    /// # Errors
    /// There is no room for all; none is added.
    pub(super) fn fallback(&mut self, entries: &[Entry]) -> Result<(), FallbackFull> {
        let words = self.table.fallback.get();
        let most = words.len() / 4;
        let new = entries
            .iter()
            .filter(|entry| words[2 * place(words, entry.0) + 1].load(Ordering::Relaxed) == 0);
        let keys = self.table.fallback_used() + new.count();
        if !entries.is_empty() && keys > most {
            return Err(FallbackFull { keys, most });
        }
        for &(hash, value) in entries {
            let at = place(words, hash);
            words[2 * at].store(hash, Ordering::Relaxed);
            words[2 * at + 1].store(u64::from(value) + 1, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let versions = self.table.versions.get();
        for version in [&versions[1 + self.block], &versions[0]] {
            // Release: pairs with the Acquire of the lookups.
            version.store(version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        }
    }
}

/// Where `hash` is in the fallback, or the free place where it would be. There is one.
fn place(words: &[AtomicU64], hash: u64) -> usize {
    let pairs = words.len() / 2;
    let mut at = crate::hash::mix(hash) as usize & (pairs - 1);
    // Bounded, should a reader see a table that is being written.
    for _ in 0..pairs {
        let value = words[2 * at + 1].load(Ordering::Relaxed);
        if value == 0 || words[2 * at].load(Ordering::Relaxed) == hash {
            break;
        }
        at = (at + 1) & (pairs - 1);
    }
    at
}

/// The value of a key of a group that is in the fallback; any value if it is no key.
#[cold]
fn in_fallback(words: &[AtomicU64], hash: u64) -> u8 {
    let at = place(words, hash);
    words[2 * at + 1].load(Ordering::Relaxed).saturating_sub(1) as u8
}

/// No room for keys whose groups cannot be solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{keys} keys need the fallback table, which holds {most}: plan the table for more keys")]
pub struct FallbackFull {
    /// Keys that would be there.
    pub keys: usize,
    /// The most that it holds.
    pub most: usize,
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
    for &hash in hashes {
        let word = block_of(hash, view.blocks) * CHOICE_WORDS + (bucket_of(hash) >> 6);
        prefetch_at::<false>(view.choices.as_ptr().wrapping_add(word).cast());
    }
    for (start, &hash) in starts.iter_mut().zip(hashes) {
        let (block, bucket) = (block_of(hash, view.blocks), bucket_of(hash));
        // SAFETY: `block < blocks` by its multiplication and `bucket < BUCKETS` by its mask; the
        // table has CHOICE_WORDS words for each block and a pair for each bucket.
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
        // SAFETY: `start` is that of a group of the table, and a group has so many words.
        let word =
            |at: usize| unsafe { view.groups.get_unchecked(start + at).load(Ordering::Relaxed) };
        let seed = seed_of(PLANES, |plane| word(plane * limbs + limbs - 1));
        if seed == SEEDS {
            *value = in_fallback(view.fallback, hash);
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
        // NEON has no parity of its own: the plain code is what it would be.
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
