//! x86-64 with AVX-512 (F, BW, VL): compares that answer in a mask register, one bit per slot.

use core::arch::x86_64::*;

use super::kernel::{self, View};
use super::{Scan, Simd, entry_points};
use crate::cache::geometry::Geometry;
use crate::cache::layout::Layout;
use crate::cache::probes::Probes;
use crate::hash::Hash64;

pub(super) struct Avx512;

impl Simd for Avx512 {
    #[inline(always)]
    unsafe fn eq4(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX-512, and 8 readable bytes.
        unsafe {
            let words = _mm_loadl_epi64(p.cast());
            u32::from(_mm_mask_cmpeq_epi16_mask(0xf, words, _mm_set1_epi16(fp as i16)))
        }
    }

    #[inline(always)]
    unsafe fn eq8(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX-512, and 16 readable bytes.
        unsafe {
            let words = _mm_loadu_si128(p.cast());
            u32::from(_mm_cmpeq_epi16_mask(words, _mm_set1_epi16(fp as i16)))
        }
    }

    #[inline(always)]
    unsafe fn eq16(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX-512, and 32 readable bytes.
        unsafe {
            let words = _mm256_loadu_si256(p.cast());
            u32::from(_mm256_cmpeq_epi16_mask(words, _mm256_set1_epi16(fp as i16)))
        }
    }

    #[inline(always)]
    unsafe fn eq4x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX-512, and 8 readable bytes at each pointer.
        unsafe {
            let words = _mm_unpacklo_epi64(_mm_loadl_epi64(p.cast()), _mm_loadl_epi64(q.cast()));
            u32::from(_mm_cmpeq_epi16_mask(words, _mm_set1_epi16(fp as i16)))
        }
    }

    #[inline(always)]
    unsafe fn eq8x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX-512, and 16 readable bytes at each pointer.
        unsafe {
            let low = _mm256_castsi128_si256(_mm_loadu_si128(p.cast()));
            let words = _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(q.cast()));
            u32::from(_mm256_cmpeq_epi16_mask(words, _mm256_set1_epi16(fp as i16)))
        }
    }

    #[inline(always)]
    unsafe fn eq16x2(p: *const u8, q: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX-512, and 32 readable bytes at each pointer.
        unsafe {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(p.cast()));
            let words = _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(q.cast()));
            _mm512_cmpeq_epi16_mask(words, _mm512_set1_epi16(fp as i16))
        }
    }

    #[inline(always)]
    unsafe fn eq_pair(p: *const u8, fp: u16) -> u32 {
        // One load of both buckets, the value lanes masked off (paper, section 6).
        // SAFETY: the caller's promise: AVX-512, BMI2, and 32 readable bytes.
        unsafe {
            let pattern = _mm256_set1_epi16(fp as i16);
            let equal = _mm256_cmpeq_epi16_mask(_mm256_loadu_si256(p.cast()), pattern);
            _pext_u32(u32::from(equal), 0x0f0f)
        }
    }

    #[inline(always)]
    unsafe fn eq_quad(p: *const u8, fp: u16) -> u32 {
        // SAFETY: the caller's promise: AVX-512, BMI2, and 64 readable bytes.
        unsafe {
            let pattern = _mm512_set1_epi16(fp as i16);
            let equal = _mm512_cmpeq_epi16_mask(_mm512_loadu_si512(p.cast()), pattern);
            _pext_u32(equal, 0x0f0f_0f0f)
        }
    }
}

entry_points!(Avx512, "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt");
