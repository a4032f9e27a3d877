//! x86-64 with AVX-512 (F, BW, VL): eight columns at a time.
//!
//! ```text
//!   vector 0   columns 0 … 7     its eight pivots are found in registers (a panel), then added to
//!   vector 1   columns 8 … 15    each later vector in one pass: a test (vptestmq) and two masked
//!   …                            XORs a pivot
//!   last       right-hand sides
//! ```
//!
//! One pass for all pivots of a panel shares the loads and the stores.

use core::arch::x86_64::*;

use super::{Bits, LIMBS, low};
use crate::partition::row::Row;

/// Vectors of the widest system: sixteen of columns, one of right-hand sides.
const VECTORS: usize = 17;

/// Columns of a system; for rows of 64 bits the first limb and the first nine vectors.
type Columns = [[__m512i; VECTORS]; LIMBS];

/// A pivot column in every lane: the bit of its row, and what is added to columns that have it, to
/// the limb with the bit and to the other one.
#[derive(Clone, Copy)]
struct Pivot {
    one: __m512i,
    added: [__m512i; 2],
}

/// See [`Solver`](super::Solver).
///
/// # Safety
/// The CPU has AVX-512, `rows.len() == values.len() <= R::BITS`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn solve<R: Row>(rows: &[R], values: &[u8], _: usize, to: &mut [Bits]) -> bool {
    let vectors = R::BITS / 8;
    let zero = _mm512_setzero_si512();
    let mut columns = [[zero; VECTORS]; LIMBS];
    for (limb, columns) in columns.iter_mut().take(R::BITS / 64).enumerate() {
        load(columns, rows, limb);
        columns[vectors] = sides(values.get(64 * limb..).unwrap_or(&[]));
    }
    let mut pivots = [[zero; 16]; LIMBS];
    if !eliminate::<R>(&mut columns, &mut pivots, rows.len()) {
        return false;
    }
    for (plane, words) in to.iter_mut().enumerate() {
        let lane = _mm512_set1_epi64(plane as i64);
        let side = [0, 1].map(|limb| _mm512_permutexvar_epi64(lane, columns[limb][vectors]));
        *words = [0; LIMBS];
        for at in 0..vectors {
            let first = _mm512_and_si512(pivots[0][at], side[0]);
            // first | pivot & side
            let both = _mm512_ternarylogic_epi64::<0xf8>(first, pivots[1][at], side[1]);
            let bits = _mm512_test_epi64_mask(both, both);
            words[at / 8] |= u64::from(bits) << (8 * (at % 8));
        }
    }
    true
}

/// Rows from `64 * limb` on, as columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn load<R: Row>(columns: &mut [__m512i; VECTORS], rows: &[R], limb: usize) {
    let rows = rows.get(64 * limb..).unwrap_or(&[]);
    for half in 0..R::BITS / 64 {
        let mut words = [0u64; 64];
        words.iter_mut().zip(rows).for_each(|(word, row)| *word = row.limb(half));
        let mut square = [_mm512_setzero_si512(); 8];
        for (vector, words) in square.iter_mut().zip(words.chunks_exact(8)) {
            // SAFETY: eight words.
            *vector = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
        }
        columns[8 * half..][..8].copy_from_slice(&transpose(square));
    }
}

/// Right-hand sides of 64 values at most, side j in lane j.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn sides(values: &[u8]) -> __m512i {
    // SAFETY: reads the first 64 values, as many as there are.
    let values = unsafe { _mm512_maskz_loadu_epi8(low(values.len()), values.as_ptr().cast()) };
    let mut sides = [0u64; 8];
    for (plane, side) in sides.iter_mut().enumerate() {
        *side = _mm512_test_epi8_mask(values, _mm512_set1_epi8((1u8 << plane) as i8));
    }
    // SAFETY: eight words.
    unsafe { _mm512_loadu_si512(sides.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn eliminate<R: Row>(
    columns: &mut Columns,
    pivots: &mut [[__m512i; 16]; LIMBS],
    rows: usize,
) -> bool {
    let zero = _mm512_setzero_si512();
    let mut unused =
        [low(rows), low(rows.saturating_sub(64))].map(|bits| _mm512_set1_epi64(bits as i64));
    let mut rank = 0;
    for panel in 0..R::BITS / 8 {
        if rank == rows {
            break;
        }
        let mut own = [columns[0][panel], columns[1][panel]];
        let mut found = [Pivot { one: zero, added: [zero; 2] }; 8];
        // Bit j: column j has its pivot in the second limb.
        let (mut first, mut second) = (0u8, 0u8);
        for (at, found) in found.iter_mut().enumerate() {
            let lane = _mm512_set1_epi64(at as i64);
            let column = own.map(|own| _mm512_permutexvar_epi64(lane, own));
            let mut free = _mm512_and_si512(column[0], unused[0]);
            let mut with = 0;
            if _mm512_test_epi64_mask(free, free) == 0 {
                free = _mm512_and_si512(column[1], unused[1]);
                if R::BITS == 64 || _mm512_test_epi64_mask(free, free) == 0 {
                    continue;
                }
                with = 1;
            }
            let one = _mm512_and_si512(free, _mm512_sub_epi64(zero, free));
            unused[with] = _mm512_xor_si512(unused[with], one);
            let pivot =
                Pivot { one, added: [_mm512_xor_si512(column[with], one), column[1 - with]] };
            if with == 0 {
                first |= 1 << at;
                own = add::<R>(own, &pivot);
            } else {
                second |= 1 << at;
                let [a, b] = add::<R>([own[1], own[0]], &pivot);
                own = [b, a];
            }
            pivots[with][panel] = _mm512_mask_mov_epi64(pivots[with][panel], 1 << at, one);
            *found = pivot;
            rank += 1;
        }
        let later = panel + 1..R::BITS / 8 + 1;
        let [low, high] = columns;
        let (low, high) = (&mut low[later.clone()], &mut high[later]);
        if second == 0 {
            add_all::<R>(low, high, &found);
        } else if first == 0 {
            add_all::<R>(high, low, &found);
        } else {
            // One panel or two of a system, between the pivots of the two limbs.
            for (at, pivot) in found.iter().enumerate() {
                let pivot = core::slice::from_ref(pivot);
                if second >> at & 1 == 1 {
                    add_all::<R>(high, low, pivot);
                } else {
                    add_all::<R>(low, high, pivot);
                }
            }
        }
    }
    rank == rows
}

/// Adds a pivot to the columns of a vector, the limb with its bit first.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn add<R: Row>([a, b]: [__m512i; 2], pivot: &Pivot) -> [__m512i; 2] {
    let has = _mm512_test_epi64_mask(a, pivot.one);
    let with = _mm512_mask_xor_epi64(a, has, a, pivot.added[0]);
    if R::BITS == 64 {
        return [with, b];
    }
    [with, _mm512_mask_xor_epi64(b, has, b, pivot.added[1])]
}

/// Adds pivots, one after another, to vectors of columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn add_all<R: Row>(with: &mut [__m512i], other: &mut [__m512i], pivots: &[Pivot]) {
    for (a, b) in with.iter_mut().zip(other) {
        let mut both = [*a, *b];
        for pivot in pivots {
            both = add::<R>(both, pivot);
        }
        [*a, *b] = both;
    }
}

/// Transposes 64 rows of 64 bits: bit j of word i becomes bit i of word j.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn transpose(mut square: [__m512i; 8]) -> [__m512i; 8] {
    exchange::<32, 4>(&mut square, 0x0000_0000_ffff_ffff);
    exchange::<16, 2>(&mut square, 0x0000_ffff_0000_ffff);
    exchange::<8, 1>(&mut square, 0x00ff_00ff_00ff_00ff);
    let lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    for (width, mask) in
        [(4i64, 0x0f0f_0f0f_0f0f_0f0fu64), (2, 0x3333_3333_3333_3333), (1, 0x5555_5555_5555_5555)]
    {
        let width_all = _mm512_set1_epi64(width);
        let partner = _mm512_xor_si512(lanes, width_all);
        let upper = _mm512_test_epi64_mask(lanes, width_all);
        // The lower of two words keeps its lower bits and gets the other's moved up.
        let stays = _mm512_mask_set1_epi64(_mm512_set1_epi64(mask as i64), upper, !mask as i64);
        let turns = _mm512_mask_set1_epi64(width_all, upper, 64 - width);
        for vector in &mut square {
            let other = _mm512_permutexvar_epi64(partner, *vector);
            let other = _mm512_rolv_epi64(other, turns);
            *vector = _mm512_ternarylogic_epi64::<0xca>(stays, *vector, other);
        }
    }
    square
}

/// Exchanges the upper bits of words with the lower ones of those `APART` vectors on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn exchange<const WIDTH: u32, const APART: usize>(square: &mut [__m512i; 8], mask: u64) {
    let mask = _mm512_set1_epi64(mask as i64);
    for at in (0..8).filter(|at| at & APART == 0) {
        let (a, b) = (square[at], square[at + APART]);
        let up = _mm512_slli_epi64::<WIDTH>(b);
        let down = _mm512_srli_epi64::<WIDTH>(a);
        square[at] = _mm512_ternarylogic_epi64::<0xca>(mask, a, up);
        square[at + APART] = _mm512_ternarylogic_epi64::<0xca>(mask, down, b);
    }
}
