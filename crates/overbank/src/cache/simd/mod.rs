//! The seam between the tables and the machine's vectors.
//!
//! Each instruction set has one file with the same short list of methods ([`Simd`]) and the same
//! entry points, made by the macro `entry_points`. [`kernel`] has the loops, written once and
//! generic over instruction set, geometry and layout. An entry point carries `#[target_feature]`
//! and everything below it is `#[inline(always)]`, so each combination becomes one straight loop.
//!
//! The choice is made once, when a table is constructed ([`Isa::choose`]), and stored in the table
//! as function pointers ([`Kernels`]): a burst of 32 keys costs one indirect call.
//!
//! A new instruction set needs a file beside `avx2.rs`, a variant of [`Isa`], an arm in
//! `isa::detect`, and an arm in [`Kernels::of`].

#![allow(unsafe_code)] // Vector loads, and calls of functions with target features.

mod kernel;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

use super::geometry::Geometry;
use super::layout::Layout;
use super::probes::Probes;
use crate::hash::Hash64;
use crate::isa::{Isa, IsaError};

pub(crate) use kernel::View;

/// The operations of an instruction set: compare packed fingerprints, with one bit per slot in the
/// result.
///
/// # Safety
/// All methods: the CPU has the instruction set. `eq*`: each pointer is valid for reading the
/// bytes that the method names, at any alignment.
pub(crate) trait Simd {
    /// Compares 4 fingerprints at `p` (8 bytes).
    unsafe fn eq4(p: *const u8, fp: u16) -> u32;
    /// Compares 8 fingerprints at `p` (16 bytes).
    unsafe fn eq8(p: *const u8, fp: u16) -> u32;
    /// Compares 16 fingerprints at `p` (32 bytes).
    unsafe fn eq16(p: *const u8, fp: u16) -> u32;

    /// Compares 4 at `p`, then 4 at `q`.
    #[inline(always)]
    unsafe fn eq4x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Self::eq4(p, fp) | Self::eq4(q, fp) << 4 }
    }

    /// Compares 8 at `p`, then 8 at `q`.
    #[inline(always)]
    unsafe fn eq8x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Self::eq8(p, fp) | Self::eq8(q, fp) << 8 }
    }

    /// Compares 16 at `p`, then 16 at `q`.
    #[inline(always)]
    unsafe fn eq16x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Self::eq16(p, fp) | Self::eq16(q, fp) << 16 }
    }

    /// Compares two adjacent 4-slot buckets of 16-bit values (32 bytes at `p`).
    #[inline(always)]
    unsafe fn eq_pair(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: 32 bytes, the second bucket at byte 16.
        unsafe { Self::eq4x2(p, p.add(16), fp) }
    }

    /// Compares four adjacent 4-slot buckets of 16-bit values (64 bytes at `p`).
    #[inline(always)]
    unsafe fn eq_quad(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: 64 bytes, the third bucket at byte 32.
        unsafe { Self::eq_pair(p, fp) | Self::eq_pair(p.add(32), fp) << 8 }
    }
}

/// Candidate slots with the fingerprint, and empty candidate slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) matching: u32,
    pub(crate) empty: u32,
}

/// The loops of a table, for its geometry, layout and instruction set.
///
/// # Safety
/// For each call, the view is of a table of the geometry and layout of the kernels.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Probes up to a burst of hashes; given the next burst, prefetches its lines instead of this
    /// one's.
    pub(crate) probe: unsafe fn(View, &[Hash64], Option<&[Hash64]>, &mut Probes),
    /// Probes second buckets only if the first have no match.
    pub(crate) probe_home_first: unsafe fn(View, &[Hash64], Option<&[Hash64]>, &mut Probes),
    /// Scans all candidate slots of one hash.
    pub(crate) scan: unsafe fn(View, Hash64) -> Scan,
}

impl Kernels {
    /// Returns the kernels for `isa`, if the machine has it. `far` selects those that prefetch only
    /// into the second-level cache.
    pub(crate) fn of<G: Geometry, L: Layout>(isa: Isa, far: bool) -> Result<Self, IsaError> {
        macro_rules! kernels_as {
            ($isa:ident, $far:literal) => {
                Self {
                    probe: $isa::probe::<G, L, $far>,
                    probe_home_first: $isa::probe_home_first::<G, L, $far>,
                    scan: $isa::scan::<G, L>,
                }
            };
        }
        macro_rules! kernels {
            ($isa:ident) => {
                if far { kernels_as!($isa, true) } else { kernels_as!($isa, false) }
            };
        }
        Ok(match isa.checked()? {
            Isa::Portable => kernels!(portable),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => kernels!(avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => kernels!(avx512),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => kernels!(neon),
            // Sets of other machines.
            isa => return Err(IsaError::Unavailable { name: isa.name() }),
        })
    }
}

/// The entry points of one instruction set: the generic loops with its features enabled.
macro_rules! entry_points {
    ($simd:ty $(, $features:literal)?) => {
        /// # Safety
        /// See [`Kernels`](super::Kernels); the CPU has the instruction set.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn probe<G: Geometry, L: Layout, const FAR: bool>(
            view: View,
            hashes: &[Hash64],
            next: Option<&[Hash64]>,
            out: &mut Probes,
        ) {
            // SAFETY: the caller's promises, passed on.
            unsafe { kernel::probe::<$simd, G, L, FAR>(view, hashes, next, out) }
        }

        /// # Safety
        /// See [`Kernels`](super::Kernels); the CPU has the instruction set.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn probe_home_first<G: Geometry, L: Layout, const FAR: bool>(
            view: View,
            hashes: &[Hash64],
            next: Option<&[Hash64]>,
            out: &mut Probes,
        ) {
            // SAFETY: the caller's promises, passed on.
            unsafe { kernel::probe_home_first::<$simd, G, L, FAR>(view, hashes, next, out) }
        }

        /// # Safety
        /// See [`Kernels`](super::Kernels); the CPU has the instruction set.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn scan<G: Geometry, L: Layout>(view: View, hash: Hash64) -> Scan {
            // SAFETY: the caller's promises, passed on.
            unsafe { kernel::scan::<$simd, G, L>(view, hash) }
        }
    };
}
use entry_points;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Every method of `S` against a plain loop, on fingerprints full of near misses.
    fn agrees<S: Simd>() {
        let mut pcg = crate::random::Pcg32::new(7, 7);
        for round in 0..5000 {
            let pool = [1u16, 0x0100, 0x8000, 0x8001, 0xffff, 0x7fff, 0, 0x00ff];
            let words: Vec<u16> = (0..32).map(|_| pool[pcg.below(8) as usize]).collect();
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let fp = pool[round % 8];
            let plain = |at: &[usize]| {
                at.iter().enumerate().fold(0u32, |m, (i, &w)| m | u32::from(words[w] == fp) << i)
            };
            let range = |from: usize, n: usize| (from..from + n).collect::<Vec<_>>();
            let p = bytes.as_ptr();
            // SAFETY: 64 bytes are readable at p; the callers of `agrees` checked the CPU.
            unsafe {
                assert_eq!(S::eq4(p.add(2), fp), plain(&range(1, 4)));
                assert_eq!(S::eq8(p.add(2), fp), plain(&range(1, 8)));
                assert_eq!(S::eq16(p.add(2), fp), plain(&range(1, 16)));
                let q = p.add(32);
                assert_eq!(S::eq4x2(q, p, fp), plain(&[range(16, 4), range(0, 4)].concat()));
                assert_eq!(S::eq8x2(q, p, fp), plain(&[range(16, 8), range(0, 8)].concat()));
                assert_eq!(S::eq16x2(q, p, fp), plain(&[range(16, 16), range(0, 16)].concat()));
                let buckets = [range(0, 4), range(8, 4), range(16, 4), range(24, 4)];
                assert_eq!(S::eq_pair(p, fp), plain(&buckets[..2].concat()));
                assert_eq!(S::eq_quad(p, fp), plain(&buckets.concat()));
            }
        }
    }

    #[test]
    fn every_instruction_set_compares_alike() {
        agrees::<portable::Portable>();
        #[cfg(target_arch = "x86_64")]
        {
            if Isa::Avx2.is_available() {
                agrees::<avx2::Avx2>();
            }
            if Isa::Avx512.is_available() {
                agrees::<avx512::Avx512>();
            }
        }
        #[cfg(target_arch = "aarch64")]
        if Isa::Neon.is_available() {
            agrees::<neon::Neon>();
        }
    }
}
