//! AArch64 with NEON: a line in two loads of a pair of vectors.
//!
//! What is loaded here stays between the loads before and after it: those have acquire order, or an
//! acquire fence on this side, which on AArch64 orders vector loads as well.

use core::arch::aarch64::*;
use core::arch::asm;

use super::kernel::{self, View};
use super::{Simd, entry_points};
use crate::fib::key::{Key, Value};
use crate::fib::table::BURST_MAX;
use crate::sync::AtomicU64;

pub(super) struct Neon;

/// # Safety
/// `p` points to 64 bytes, 16-byte aligned, that live.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load(p: *const AtomicU64) -> [uint64x2_t; 4] {
    let (a, b, c, d);
    // SAFETY: the caller's promise. Stands for eight relaxed loads (see the module above).
    unsafe {
        asm!("ldp {a:q}, {b:q}, [{p}]", "ldp {c:q}, {d:q}, [{p}, #32]",
             a = out(vreg) a, b = out(vreg) b, c = lateout(vreg) c, d = lateout(vreg) d,
             p = in(reg) p, options(nostack, preserves_flags, readonly));
    }
    [a, b, c, d]
}

/// # Safety
/// As [`Simd`].
#[inline]
#[target_feature(enable = "neon")]
unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64) -> u32 {
    const BITS: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    let (pattern, mask) = (vdupq_n_u64(pattern), vdupq_n_u64(mask));
    // SAFETY: the caller's promise: a whole line.
    let words = unsafe { load(line) };
    // All ones or zero, so that the low half of each lane says it all.
    let [a, b, c, d] = words.map(|words| {
        let different = vandq_u64(veorq_u64(words, pattern), mask);
        vreinterpretq_u32_u64(vceqzq_u64(different))
    });
    let low = vreinterpretq_u16_u32(vuzp1q_u32(a, b));
    let high = vreinterpretq_u16_u32(vuzp1q_u32(c, d));
    // SAFETY: the constant has 16 bytes.
    let bits = unsafe { vld1q_u16(BITS.as_ptr()) };
    u32::from(vaddvq_u16(vandq_u16(vuzp1q_u16(low, high), bits)))
}

/// Returns the bytes that are not zero, one bit each.
#[inline]
#[target_feature(enable = "neon")]
fn nonzero(bytes: &[u8; BURST_MAX]) -> u64 {
    const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the constant has 16 bytes.
    let bits = unsafe { vld1q_u8(BITS.as_ptr()) };
    let [a, b, c, d] = [0, 16, 32, 48].map(|at| {
        // SAFETY: 16 of 64 bytes.
        let bytes = unsafe { vld1q_u8(bytes.as_ptr().add(at)) };
        vandq_u8(vtstq_u8(bytes, bytes), bits)
    });
    let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
}

impl Simd for Neon {
    #[inline(always)]
    unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64, _: usize) -> u32 {
        // SAFETY: the caller's promises.
        unsafe { equal(line, pattern, mask) }
    }

    #[inline(always)]
    unsafe fn nonzero(bytes: &[u8; BURST_MAX]) -> u64 {
        // SAFETY: the CPU has NEON by the caller's promise.
        unsafe { nonzero(bytes) }
    }
}

entry_points!(Neon, "neon");
