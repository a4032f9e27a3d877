//! x86-64 with AVX-512 (F, BW, VL, DQ, VPOPCNTDQ): all planes of a group at once.
//!
//! ```text
//!   R = 64    p0    p1    p2    p3   …            one vector, AND the row in every lane
//!   R = 128   p0 lo p0 hi p1 lo p1 hi …           four planes a vector, AND both words of the row,
//!                                                 low XOR high
//!   value     the lowest bits of the lanes' counts, by a test into a mask
//! ```
//!
//! From four planes on, the signs of the words are the seed. One plane or two are read by the
//! plain code, compiled for AVX2: while lines come from memory, its fewer steps a key let the core
//! reach further ahead (16 M keys, R = 128, v = 1: 6.3 against 8.7 ns; at 1 M as fast).

use core::arch::x86_64::*;

use super::super::super::row::{Row, SEEDS};
use super::super::super::shape::{seed_bits, seed_of};
use super::{Kernel, View, avx2, burst};
use crate::sync::Ordering;

/// Lanes with the low words, and with the high ones, of rows of 128 bits.
const LOW: u32 = 0x55;
const HIGH: u32 = 0xaa;

/// # Safety
/// See [`burst`]; the CPU has the instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn lookup<R: Row, const PLANES: usize>(view: &View<'_>, hashes: &[u64], values: &mut [u8]) {
    let limbs = R::BITS / 64;
    // Planes of the first vector.
    let planes = PLANES.min(8 / limbs);
    // SAFETY: `burst` asks for groups of the table, which have PLANES · limbs words; lanes beyond
    // them are not read. Words are read whole, as by relaxed loads (see the module above).
    let value = |start: usize, hash: u64| unsafe {
        let words = view.groups.as_ptr().add(start).cast::<i64>();
        let first = _mm512_maskz_loadu_epi64(lanes(planes * limbs), words);
        let seed = if PLANES >= 4 {
            let signs = u32::from(_mm512_movepi64_mask(first));
            (if limbs == 2 { _pext_u32(signs, HIGH) } else { signs & 0xf }) as usize
        } else {
            seed_of(PLANES, |plane| {
                let word = view.groups.get_unchecked(start + plane * limbs + limbs - 1);
                word.load(Ordering::Relaxed)
            })
        };
        if seed == SEEDS {
            return None;
        }
        let row = R::new(hash, seed).masked(R::BITS - seed_bits(PLANES));
        let row = match limbs {
            2 => {
                let row = _mm_set_epi64x(row.limb(1) as i64, row.limb(0) as i64);
                _mm512_broadcast_i64x2(row)
            }
            _ => _mm512_set1_epi64(row.limb(0) as i64),
        };
        let mut bits = parities(first, row, limbs);
        if PLANES > planes {
            let rest = _mm512_maskz_loadu_epi64(lanes((PLANES - planes) * limbs), words.add(8));
            bits |= parities(rest, row, limbs) << planes;
        }
        Some(bits as u8)
    };
    // SAFETY: the caller's promises, passed on.
    unsafe { burst::<R, PLANES>(view, hashes, values, value) }
}

/// The first `count` lanes.
const fn lanes(count: usize) -> u8 {
    (0xffu16 >> (8 - count)) as u8
}

/// The parities of the planes of a vector and the row, a bit each.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vpopcntdq,bmi2")]
fn parities(words: __m512i, row: __m512i, limbs: usize) -> u32 {
    let both = _mm512_and_si512(words, row);
    let one = _mm512_set1_epi64(1);
    let odd = |lanes| u32::from(_mm512_test_epi64_mask(_mm512_popcnt_epi64(lanes), one));
    if limbs == 2 {
        let swapped = _mm512_shuffle_epi32::<0b01_00_11_10>(both);
        _pext_u32(odd(_mm512_xor_si512(both, swapped)), LOW)
    } else {
        odd(both)
    }
}

pub(super) const R64: [Kernel; 8] = [
    avx2::R64[0],
    avx2::R64[1],
    lookup::<u64, 3>,
    lookup::<u64, 4>,
    lookup::<u64, 5>,
    lookup::<u64, 6>,
    lookup::<u64, 7>,
    lookup::<u64, 8>,
];
pub(super) const R128: [Kernel; 8] = [
    avx2::R128[0],
    avx2::R128[1],
    lookup::<u128, 3>,
    lookup::<u128, 4>,
    lookup::<u128, 5>,
    lookup::<u128, 6>,
    lookup::<u128, 7>,
    lookup::<u128, 8>,
];
