//! AArch64 with NEON: 128-bit compares. Each equal lane keeps a different bit, and additions
//! combine the bits (NEON has no instruction that makes a mask of lanes).

use core::arch::aarch64::*;

use super::kernel::{self, View};
use super::{Scan, Simd, entry_points};
use crate::cache::geometry::Geometry;
use crate::cache::layout::Layout;
use crate::cache::probes::Probes;
use crate::hash::Hash64;

pub(super) struct Neon;

/// The bit of each lane of 8.
const BITS16: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The bit of each byte, in two halves of 8.
const BITS8: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

/// # Safety
/// The CPU has NEON, and 8 bytes are readable at `p`.
#[inline(always)]
unsafe fn load4(p: *const u8) -> uint16x4_t {
    // SAFETY: the caller's promise; loads of bytes need no alignment.
    unsafe { vreinterpret_u16_u8(vld1_u8(p)) }
}

/// # Safety
/// The CPU has NEON, and 16 bytes are readable at `p`.
#[inline(always)]
unsafe fn load8(p: *const u8) -> uint16x8_t {
    // SAFETY: the caller's promise; loads of bytes need no alignment.
    unsafe { vreinterpretq_u16_u8(vld1q_u8(p)) }
}

/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn equal8(words: uint16x8_t, fp: u16) -> u32 {
    // SAFETY: the caller's promise; the constant has 16 bytes.
    unsafe {
        let equal = vceqq_u16(words, vdupq_n_u16(fp));
        u32::from(vaddvq_u16(vandq_u16(equal, vld1q_u16(BITS16.as_ptr()))))
    }
}

/// Returns 16 lanes as a byte each: the lane's bit if it is equal, else zero.
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn equal16(low: uint16x8_t, high: uint16x8_t, fp: u16) -> uint8x16_t {
    // SAFETY: the caller's promise; the constant has 16 bytes.
    unsafe {
        let pattern = vdupq_n_u16(fp);
        let low = vreinterpretq_u8_u16(vceqq_u16(low, pattern));
        let high = vreinterpretq_u8_u16(vceqq_u16(high, pattern));
        vandq_u8(vuzp1q_u8(low, high), vld1q_u8(BITS8.as_ptr()))
    }
}

/// Returns the bits of 16 bytes of [`equal16`].
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn bits16(bytes: uint8x16_t) -> u32 {
    // SAFETY: the caller's promise; registers only.
    unsafe {
        let quarters = vpaddq_u8(bytes, bytes);
        let eighths = vpaddq_u8(quarters, quarters);
        let halves = vpaddq_u8(eighths, eighths);
        u32::from(vgetq_lane_u16::<0>(vreinterpretq_u16_u8(halves)))
    }
}

impl Simd for Neon {
    #[inline(always)]
    unsafe fn eq4(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: NEON, and 8 readable bytes; the constant has 8 at least.
        unsafe {
            let equal = vceq_u16(load4(p), vdup_n_u16(fp));
            u32::from(vaddv_u16(vand_u16(equal, vld1_u16(BITS16.as_ptr()))))
        }
    }

    #[inline(always)]
    unsafe fn eq8(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: NEON, and 16 readable bytes.
        unsafe { equal8(load8(p), fp) }
    }

    #[inline(always)]
    unsafe fn eq16(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: NEON, and 32 readable bytes.
        unsafe { Self::eq8x2(p, p.add(16), fp) }
    }

    #[inline(always)]
    unsafe fn eq4x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: NEON, and 8 readable bytes at each pointer.
        unsafe { equal8(vcombine_u16(load4(p), load4(q)), fp) }
    }

    #[inline(always)]
    unsafe fn eq8x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: NEON, and 16 readable bytes at each pointer.
        unsafe { bits16(equal16(load8(p), load8(q), fp)) }
    }

    #[inline(always)]
    unsafe fn eq16x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: NEON, and 32 readable bytes at each pointer.
        unsafe {
            let low = equal16(load8(p), load8(p.add(16)), fp);
            let high = equal16(load8(q), load8(q.add(16)), fp);
            let pairs = vpaddq_u8(low, high);
            let quarters = vpaddq_u8(pairs, pairs);
            let bytes = vpaddq_u8(quarters, quarters);
            vgetq_lane_u32::<0>(vreinterpretq_u32_u8(bytes))
        }
    }

    #[inline(always)]
    unsafe fn eq_quad(p: *const u8, fp: u16) -> u32 {
        // The first halves of four buckets of 16 bytes: no load of the values.
        // SAFETY: the caller's promise: NEON, and 64 readable bytes.
        unsafe {
            let low = vcombine_u16(load4(p), load4(p.add(16)));
            let high = vcombine_u16(load4(p.add(32)), load4(p.add(48)));
            bits16(equal16(low, high, fp))
        }
    }
}

entry_points!(Neon, "neon");
