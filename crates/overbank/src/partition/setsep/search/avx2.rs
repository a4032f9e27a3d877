//! x86-64 with AVX2: eight lanes.

#![allow(unsafe_op_in_unsafe_fn)] // Every method is instructions of the set that the trait demands.

use core::arch::x86_64::*;

use super::lanes::{Vector, search};
use super::{Functions, Group};

/// See [`Searcher`](super::Searcher).
///
/// # Safety
/// The CPU has AVX2, BMI1 and BMI2.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lanes(group: Group<'_>, functions: &mut Functions, trials: &mut u64) -> bool {
    // SAFETY: passed on.
    unsafe { search::<__m256i>(group, functions, trials) }
}

impl Vector for __m256i {
    const LANES: u32 = 8;

    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        _mm256_set1_epi32(value as i32)
    }

    #[inline(always)]
    unsafe fn count() -> Self {
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
    }

    #[inline(always)]
    unsafe fn hashes(g1: u32, g2: u32, indices: Self) -> Self {
        _mm256_add_epi32(Self::splat(g1), _mm256_mullo_epi32(Self::splat(g2), indices))
    }

    #[inline(always)]
    unsafe fn places(self, m: Self) -> Self {
        // The upper halves of the products: even lanes are shifted down, odd ones stand right.
        let even = _mm256_srli_epi64::<32>(_mm256_mul_epu32(self, m));
        let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(self), m);
        let places = _mm256_blend_epi32::<0b1010_1010>(even, odd);
        _mm256_sllv_epi32(Self::splat(1), places)
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        _mm256_add_epi32(self, other)
    }

    #[inline(always)]
    unsafe fn gather(self, places: Self, mask: Self) -> Self {
        _mm256_or_si256(self, _mm256_and_si256(places, mask))
    }

    #[inline(always)]
    unsafe fn gather_not(self, places: Self, mask: Self) -> Self {
        _mm256_or_si256(self, _mm256_andnot_si256(mask, places))
    }

    #[inline(always)]
    unsafe fn apart(self, other: Self) -> u32 {
        let none = _mm256_cmpeq_epi32(_mm256_and_si256(self, other), _mm256_setzero_si256());
        _mm256_movemask_ps(_mm256_castsi256_ps(none)) as u32
    }

    #[inline(always)]
    unsafe fn lane(self, lane: u32) -> u32 {
        let at = _mm256_set1_epi32(lane as i32);
        _mm256_cvtsi256_si32(_mm256_permutevar8x32_epi32(self, at)) as u32
    }
}
