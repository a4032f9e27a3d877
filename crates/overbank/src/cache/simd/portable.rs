//! Any machine: four fingerprints at a time in one 64-bit word.
//!
//! A lane of `word ^ pattern` is zero where the fingerprint matches. `((x & 0x7fff) + 0x7fff) | x`
//! has a lane's top bit set exactly when the lane is not zero, and never carries into the next
//! lane, so there are no false matches as in the shorter well-known trick. One multiplication then
//! brings the four top bits side by side.

use super::kernel::{self, View};
use super::{Scan, Simd, entry_points};
use crate::cache::geometry::Geometry;
use crate::cache::layout::Layout;
use crate::cache::probes::Probes;

pub(super) struct Portable;

impl Simd for Portable {
    #[inline(always)]
    unsafe fn eq4(p: *const u8, fp: u16) -> u32 {
        const LOW15: u64 = 0x7fff_7fff_7fff_7fff;
        const GATHER: u64 = 1 << 48 | 1 << 33 | 1 << 18 | 1 << 3;
        // SAFETY: the caller's promise: 8 readable bytes.
        let word = u64::from_le(unsafe { p.cast::<u64>().read_unaligned() });
        let x = word ^ (u64::from(fp) * 0x0001_0001_0001_0001);
        let nonzero = ((x & LOW15) + LOW15) | x;
        let equal = (!nonzero >> 15) & 0x0001_0001_0001_0001;
        // Bit 16i times 2^(48 − 15i) is bit 48 + i; all other products fall below 48 or above 63.
        (equal.wrapping_mul(GATHER) >> 48) as u32 & 0xf
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

    #[inline(always)]
    unsafe fn prefetch(p: *const u8) {
        // SSE is part of x86-64, so this is portable enough; other machines do without.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch of any address is harmless.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(p.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = p;
    }
}

entry_points!(Portable);
