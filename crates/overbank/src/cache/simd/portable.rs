//! Any machine: four fingerprints at a time in one 64-bit word.
//!
//! A lane of `word ^ pattern` is zero if the fingerprint matches. `((x & 0x7fff) + 0x7fff) | x`
//! sets a lane's top bit exactly if the lane is not zero, and never carries into the next lane. So
//! it has no false matches, unlike the shorter well-known trick. Two shifts then bring the four top
//! bits together. A multiplication would do so too, but compilers turn several of them into long
//! sequences of narrow vector multiplications.

use super::kernel::{self, View};
use super::{Scan, Simd, entry_points};
use crate::cache::geometry::Geometry;
use crate::cache::layout::Layout;
use crate::cache::probes::Probes;
use crate::hash::Hash64;

pub(super) struct Portable;

impl Simd for Portable {
    #[inline(always)]
    unsafe fn eq4(p: *const u8, fp: u16) -> u32 {
        const LOW15: u64 = 0x7fff_7fff_7fff_7fff;
        // SAFETY: the caller's promise: 8 readable bytes.
        let word = u64::from_le(unsafe { p.cast::<u64>().read_unaligned() });
        let x = word ^ (u64::from(fp) * 0x0001_0001_0001_0001);
        let nonzero = ((x & LOW15) + LOW15) | x;
        let equal = (!nonzero >> 15) & 0x0001_0001_0001_0001;
        // Bits 0, 16, 32, 48 to 0, 1, 2, 3: first 16 and 48 move next to 0 and 32, then those to 2.
        let pairs = equal | equal >> 15;
        (pairs | pairs >> 30) as u32 & 0xf
    }

    #[inline(always)]
    unsafe fn eq8(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: 16 readable bytes.
        unsafe { Self::eq4x2(p, p.add(8), fp) }
    }

    #[inline(always)]
    unsafe fn eq16(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: 32 readable bytes.
        unsafe { Self::eq8x2(p, p.add(16), fp) }
    }
}

entry_points!(Portable);
