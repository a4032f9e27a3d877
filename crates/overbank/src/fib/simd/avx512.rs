//! x86-64 with AVX-512 (F, BW, VL): a line in one load, the result in a mask register.

use core::arch::asm;
use core::arch::x86_64::*;

use super::kernel::{self, View};
use super::{Simd, entry_points};
use crate::fib::key::{Key, Value};
use crate::fib::table::BURST_MAX;
use crate::sync::AtomicU64;

pub(super) struct Avx512;

/// # Safety
/// As [`Simd`].
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64) -> u32 {
    let words;
    // SAFETY: the caller's promise. Stands for eight relaxed loads (see the module above).
    unsafe {
        asm!("vmovdqa64 {v}, zmmword ptr [{p}]", v = out(zmm_reg) words, p = in(reg) line,
             options(nostack, preserves_flags, readonly));
    }
    let different = _mm512_xor_si512(words, _mm512_set1_epi64(pattern as i64));
    u32::from(_mm512_testn_epi64_mask(different, _mm512_set1_epi64(mask as i64)))
}

/// Returns the bytes that are not zero, one bit each.
#[inline]
#[target_feature(enable = "avx512bw")]
fn nonzero(bytes: &[u8; BURST_MAX]) -> u64 {
    // SAFETY: 64 bytes.
    let bytes = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    _mm512_test_epi8_mask(bytes, bytes)
}

impl Simd for Avx512 {
    #[inline(always)]
    unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64, _: usize) -> u32 {
        // SAFETY: the caller's promises.
        unsafe { equal(line, pattern, mask) }
    }

    #[inline(always)]
    unsafe fn nonzero(bytes: &[u8; BURST_MAX]) -> u64 {
        // SAFETY: the CPU has AVX-512 by the caller's promise.
        unsafe { nonzero(bytes) }
    }
}

entry_points!(Avx512, "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt");
