//! Lookups, on any number of threads beside one writer.
//!
//! A lookup reads one choice and one group: two lines, the second of which depends on the first.
//! Bursts ask for all choices, then for all groups, then compute. The directory is in the L1 cache.
//!
//! **Consistency.** The version of the table is read before a burst and after it: unchanged and
//! even, no word that the burst read was written meanwhile, and every value was current at that
//! time. Else each key is read again under the version of its block, alone: its value was current
//! at an instant of that reading. Writers raise both versions to odd, then write, then raise them
//! to even; readers write nothing.

#![allow(unsafe_code)] // Unchecked indices, calls of functions with target features.

#[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
mod avx512;

use super::super::fallback;
use super::super::row::{Row, SEEDS};
use super::super::shape::{
    CHOICE_WORDS, RowBits, block_of, bucket_of, partition_of, seed_bits, seed_of,
};
use super::Table;
use crate::isa::{Isa, IsaError};
use crate::prefetch::prefetch_at;
use crate::sync::{AtomicU64, Ordering, fence, pause};

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

pub(super) type Kernel = unsafe fn(&View<'_>, &[u64], &mut [u8]);

impl Table {
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

    /// Values of `hashes`, [`BURST_MAX`] at most, into as many places of `values`.
    #[inline]
    pub(in crate::partition) fn lookup_batch(&self, hashes: &[u64], values: &mut [u8]) {
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

    /// Asks for the line of a key's choice.
    #[inline]
    pub(in crate::partition) fn prefetch(&self, hash: u64) {
        let view = self.view();
        let word = view.block(hash) * CHOICE_WORDS + (bucket_of(hash) >> 6);
        prefetch_at::<false>(view.choices.as_ptr().wrapping_add(word).cast());
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

/// The lookup of a burst. `value_of`: a key's value by the first word of its group and its hash;
/// `None`: the group's keys are in the fallback table.
///
/// # Safety
/// The view is of a table of `PLANES` planes and rows of `R`, `hashes` has as many places as
/// `values`, [`BURST_MAX`] at most.
#[inline(always)]
unsafe fn burst<R: Row, const PLANES: usize>(
    view: &View<'_>,
    hashes: &[u64],
    values: &mut [u8],
    value_of: impl Fn(usize, u64) -> Option<u8>,
) {
    let limbs = R::BITS / 64;
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
        *value = match value_of(start, hash) {
            Some(value) => value,
            None => fallback::value(view.fallback, hash),
        };
    }
}

/// Returns the value of a key whose group begins with word `start`, plane by plane.
///
/// # Safety
/// As for [`burst`]; a group of the table begins there.
#[inline(always)]
unsafe fn by_planes<R: Row, const PLANES: usize>(
    groups: &[AtomicU64],
    start: usize,
    hash: u64,
) -> Option<u8> {
    let limbs = R::BITS / 64;
    // SAFETY: the group has PLANES · limbs words.
    let word = |at: usize| unsafe { groups.get_unchecked(start + at).load(Ordering::Relaxed) };
    let seed = seed_of(PLANES, |plane| word(plane * limbs + limbs - 1));
    if seed == SEEDS {
        return None;
    }
    let row = R::new(hash, seed).masked(R::BITS - seed_bits(PLANES));
    let mut bits = 0;
    for plane in 0..PLANES {
        let high = if limbs == 2 { word(plane * limbs + 1) } else { 0 };
        bits |= (row.parity([word(plane * limbs), high]) as u8) << plane;
    }
    Some(bits)
}

macro_rules! kernels {
    ($name:ident $(, $features:literal)?) => {
        mod $name {
            use super::*;

            /// # Safety
            /// See [`burst`]; the CPU has the instruction set.
            $(#[target_feature(enable = $features)])?
            unsafe fn lookup<R: Row, const PLANES: usize>(
                view: &View<'_>,
                hashes: &[u64],
                values: &mut [u8],
            ) {
                // SAFETY: the caller's promises, passed on; `burst` asks for groups of the table.
                unsafe {
                    let groups = view.groups;
                    burst::<R, PLANES>(view, hashes, values, |start, hash| {
                        by_planes::<R, PLANES>(groups, start, hash)
                    })
                }
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

pub(super) fn kernel(isa: Isa, row: RowBits, planes: usize) -> Result<Kernel, IsaError> {
    let (narrow, wide) = match isa {
        #[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
        Isa::Avx512 if isa.is_available() && crate::isa::counts_bits_of_lanes() => {
            (avx512::R64, avx512::R128)
        }
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
