//! x86-64 with AVX2: 128-bit and 256-bit compares, the byte mask halved by packing.

use core::arch::x86_64::*;

use super::kernel::{self, View};
use super::{Scan, Simd, entry_points};
use crate::cache::geometry::Geometry;
use crate::cache::layout::Layout;
use crate::cache::probes::Probes;
use crate::hash::Hash64;

pub(super) struct Avx2;

/// Returns the 16-bit lanes of `equal` (all ones or zero) as one bit each.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn lanes8(equal: __m128i) -> u32 {
    // SAFETY: the caller's promise; registers only.
    unsafe { _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32 }
}

impl Simd for Avx2 {
    #[inline(always)]
    unsafe fn eq4(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX2, and 8 readable bytes.
        unsafe {
            let words = _mm_loadl_epi64(p.cast());
            lanes8(_mm_cmpeq_epi16(words, _mm_set1_epi16(fp as i16))) & 0xf
        }
    }

    #[inline(always)]
    unsafe fn eq8(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX2, and 16 readable bytes.
        unsafe {
            let words = _mm_loadu_si128(p.cast());
            lanes8(_mm_cmpeq_epi16(words, _mm_set1_epi16(fp as i16)))
        }
    }

    #[inline(always)]
    unsafe fn eq16(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX2, and 32 readable bytes.
        unsafe { Self::eq8x2(p, p.add(16), fp) }
    }

    #[inline(always)]
    unsafe fn eq4x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX2, and 8 readable bytes at each pointer.
        unsafe {
            let words = _mm_unpacklo_epi64(_mm_loadl_epi64(p.cast()), _mm_loadl_epi64(q.cast()));
            lanes8(_mm_cmpeq_epi16(words, _mm_set1_epi16(fp as i16)))
        }
    }

    #[inline(always)]
    unsafe fn eq8x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX2, and 16 readable bytes at each pointer.
        unsafe {
            let pattern = _mm_set1_epi16(fp as i16);
            let low = _mm_cmpeq_epi16(_mm_loadu_si128(p.cast()), pattern);
            let high = _mm_cmpeq_epi16(_mm_loadu_si128(q.cast()), pattern);
            _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
        }
    }

    #[inline(always)]
    unsafe fn eq16x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX2, and 32 readable bytes at each pointer.
        unsafe {
            let pattern = _mm256_set1_epi16(fp as i16);
            let low = _mm256_cmpeq_epi16(_mm256_loadu_si256(p.cast()), pattern);
            let high = _mm256_cmpeq_epi16(_mm256_loadu_si256(q.cast()), pattern);
            // The pack works per 128-bit half: p0 q0 p1 q1. Put the quarters in order.
            let packed = _mm256_packs_epi16(low, high);
            _mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(packed)) as u32
        }
    }

    #[inline(always)]
    unsafe fn eq_pair(p: *const u8, fp: u16) -> u32 {
        // One load of both buckets, the value lanes masked off (paper, section 6). PEXT would do it
        // in one step, but is slow on Zen 1 and 2: 16.1 ns a key, 3.9 without (Zen 2).
        // SAFETY: the caller's promise: AVX2, and 32 readable bytes.
        unsafe {
            let pattern = _mm256_set1_epi16(fp as i16);
            let equal = _mm256_cmpeq_epi16(_mm256_loadu_si256(p.cast()), pattern);
            // Per 128-bit half: a byte for each lane, fingerprints first, then zeros.
            let packed = _mm256_packs_epi16(equal, _mm256_setzero_si256());
            let lanes = _mm256_movemask_epi8(packed) as u32;
            lanes & 0xf | lanes >> 12 & 0xf0
        }
    }
}

entry_points!(Avx2, "avx2,bmi1,bmi2,lzcnt,popcnt");
