//! x86-64 with AVX-512 (F, BW, VL): sixteen lanes.

#![allow(unsafe_op_in_unsafe_fn)] // Every method is instructions of the set that the trait demands.

use core::arch::x86_64::*;

use super::lanes::{Vector, search};
use super::{Functions, Group};

/// See [`Searcher`](super::Searcher).
///
/// # Safety
/// The CPU has AVX-512 (F, BW, VL), BMI1 and BMI2.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lanes(group: Group<'_>, functions: &mut Functions, trials: &mut u64) -> bool {
    // SAFETY: passed on.
    unsafe { search::<__m512i>(group, functions, trials) }
}

impl Vector for __m512i {
    const LANES: u32 = 16;

    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        _mm512_set1_epi32(value as i32)
    }

    #[inline(always)]
    unsafe fn count() -> Self {
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    }

    #[inline(always)]
    unsafe fn hashes(g1: u32, g2: u32, indices: Self) -> Self {
        _mm512_add_epi32(Self::splat(g1), _mm512_mullo_epi32(Self::splat(g2), indices))
    }

    #[inline(always)]
    unsafe fn places(self, m: Self) -> Self {
        // The upper halves of the products: even lanes are shifted down, odd ones stand right.
        let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(self, m));
        let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(self), m);
        let places = _mm512_mask_mov_epi32(even, 0b1010_1010_1010_1010, odd);
        _mm512_sllv_epi32(Self::splat(1), places)
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        _mm512_add_epi32(self, other)
    }

    #[inline(always)]
    unsafe fn gather(self, places: Self, mask: Self) -> Self {
        // self | places & mask
        _mm512_ternarylogic_epi32::<0xf8>(self, places, mask)
    }

    #[inline(always)]
    unsafe fn gather_not(self, places: Self, mask: Self) -> Self {
        // self | places & !mask
        _mm512_ternarylogic_epi32::<0xf4>(self, places, mask)
    }

    #[inline(always)]
    unsafe fn apart(self, other: Self) -> u32 {
        u32::from(_mm512_testn_epi32_mask(self, other))
    }

    #[inline(always)]
    unsafe fn lane(self, lane: u32) -> u32 {
        let at = _mm512_set1_epi32(lane as i32);
        _mm512_cvtsi512_si32(_mm512_permutexvar_epi32(at, self)) as u32
    }
}
