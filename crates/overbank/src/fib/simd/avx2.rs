//! x86-64 with AVX2: a line in two loads.

use core::arch::asm;
use core::arch::x86_64::*;

use super::kernel::{self, View};
use super::{Simd, entry_points};
use crate::fib::key::{Key, Value};
use crate::fib::table::BURST_MAX;
use crate::sync::AtomicU64;

pub(super) struct Avx2;

/// # Safety
/// `p` points to 32 bytes, 32-byte aligned, that live.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(p: *const AtomicU64) -> __m256i {
    let v;
    // SAFETY: the caller's promise. Stands for four relaxed loads (see the module above).
    unsafe {
        asm!("vmovdqa {v}, ymmword ptr [{p}]", v = out(ymm_reg) v, p = in(reg) p,
             options(nostack, preserves_flags, readonly));
    }
    v
}

/// # Safety
/// As [`Simd`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64) -> u32 {
    let pattern = _mm256_set1_epi64x(pattern as i64);
    let mask = _mm256_set1_epi64x(mask as i64);
    // SAFETY: the caller's promise: a whole line.
    let (a, b) = unsafe { (load(line), load(line.add(4))) };
    let bits = |v| {
        let different = _mm256_and_si256(_mm256_xor_si256(v, pattern), mask);
        let equal = _mm256_cmpeq_epi64(different, _mm256_setzero_si256());
        _mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32
    };
    bits(a) | bits(b) << 4
}

/// Returns the bytes that are not zero, one bit each.
#[inline]
#[target_feature(enable = "avx2")]
fn nonzero(bytes: &[u8; BURST_MAX]) -> u64 {
    let [low, high] = [0, 32].map(|at| {
        // SAFETY: 32 of 64 bytes.
        let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().add(at).cast()) };
        !_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, _mm256_setzero_si256())) as u32
    });
    u64::from(low) | u64::from(high) << 32
}

impl Simd for Avx2 {
    #[inline(always)]
    unsafe fn equal(line: *const AtomicU64, pattern: u64, mask: u64, _: usize) -> u32 {
        // SAFETY: the caller's promises.
        unsafe { equal(line, pattern, mask) }
    }

    #[inline(always)]
    unsafe fn nonzero(bytes: &[u8; BURST_MAX]) -> u64 {
        // SAFETY: the CPU has AVX2 by the caller's promise.
        unsafe { nonzero(bytes) }
    }
}

entry_points!(Avx2, "avx2,bmi1,bmi2,lzcnt,popcnt");
