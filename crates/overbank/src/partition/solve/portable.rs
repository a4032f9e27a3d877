//! Plain 64-bit arithmetic, and the same compiled for AVX2.

use super::{Bits, LIMBS, PLANES_MAX, low};
use crate::partition::row::Row;

/// Columns of a system: those of the widest row, and the right-hand sides.
const COLUMNS: usize = 128 + PLANES_MAX;

/// # Safety
/// None is needed: unsafe as a [`Solver`](super::Solver).
pub(super) unsafe fn solve<R: Row>(
    rows: &[R],
    values: &[u8],
    unknowns: usize,
    to: &mut [Bits],
) -> bool {
    body(rows, values, unknowns, to)
}

/// # Safety
/// The CPU has AVX2.
#[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn avx2<R: Row>(
    rows: &[R],
    values: &[u8],
    unknowns: usize,
    to: &mut [Bits],
) -> bool {
    body(rows, values, unknowns, to)
}

#[inline(always)]
fn body<R: Row>(rows: &[R], values: &[u8], unknowns: usize, to: &mut [Bits]) -> bool {
    let mut columns = [[0; COLUMNS]; LIMBS];
    load(&mut columns, rows, values, to.len());
    let mut pivots = [[0; 128]; LIMBS];
    if !eliminate::<R>(&mut columns, &mut pivots, rows.len(), unknowns, to.len()) {
        return false;
    }
    for (plane, words) in to.iter_mut().enumerate() {
        let side = [columns[0][R::BITS + plane], columns[1][R::BITS + plane]];
        *words = solution(&pivots, side);
    }
    true
}

/// Columns from rows.
#[inline(always)]
fn load<R: Row>(columns: &mut [[u64; COLUMNS]; LIMBS], rows: &[R], values: &[u8], planes: usize) {
    for (limb, columns) in columns.iter_mut().enumerate() {
        for half in 0..R::BITS / 64 {
            let mut square = [0; 64];
            for (word, row) in square.iter_mut().zip(rows.iter().skip(64 * limb)) {
                *word = row.limb(half);
            }
            transpose(&mut square);
            columns[64 * half..][..64].copy_from_slice(&square);
        }
        let mut sides = [0; PLANES_MAX];
        for (i, &value) in values.iter().skip(64 * limb).take(64).enumerate() {
            for (plane, side) in sides.iter_mut().enumerate() {
                *side |= u64::from(value >> plane & 1) << i;
            }
        }
        columns[R::BITS..][..planes].copy_from_slice(&sides[..planes]);
    }
}

/// Eliminates; the pivot row of each column, if it has one, is a bit of its words in `pivots`.
#[inline(always)]
fn eliminate<R: Row>(
    columns: &mut [[u64; COLUMNS]; LIMBS],
    pivots: &mut [[u64; 128]; LIMBS],
    rows: usize,
    unknowns: usize,
    planes: usize,
) -> bool {
    let mut unused: Bits = [low(rows), low(rows.saturating_sub(64))];
    let (mut rank, end) = (0, R::BITS + planes);
    for column in 0..unknowns {
        if rank == rows {
            break;
        }
        let own: Bits = [columns[0][column], columns[1][column]];
        let free: Bits = [own[0] & unused[0], own[1] & unused[1]];
        let limb = usize::from(free[0] == 0);
        if free[limb] == 0 {
            continue;
        }
        let bit = free[limb].trailing_zeros();
        let one = 1u64 << bit;
        unused[limb] &= !one;
        pivots[limb][column] = one;
        rank += 1;
        let mut added = own;
        added[limb] &= !one;
        let [first, second] = &mut *columns;
        let (first, second) = (&mut first[column + 1..end], &mut second[column + 1..end]);
        if limb == 0 {
            add(first, second, bit, added[0], added[1]);
        } else {
            add(second, first, bit, added[1], added[0]);
        }
    }
    rank == rows
}

/// The unknowns of an eliminated right-hand side: that of a column is the bit of its pivot row.
#[inline(always)]
fn solution(pivots: &[[u64; 128]; LIMBS], side: Bits) -> Bits {
    let mut words = [0; LIMBS];
    for (at, word) in words.iter_mut().enumerate() {
        for bit in 0..64 {
            let column = 64 * at + bit;
            let own = pivots[0][column] & side[0] | pivots[1][column] & side[1];
            *word |= u64::from(own != 0) << bit;
        }
    }
    words
}

/// Adds a column to those that have bit `bit` in `with`; both halves.
#[inline(always)]
fn add(with: &mut [u64], other: &mut [u64], bit: u32, to_with: u64, to_other: u64) {
    for (a, b) in with.iter_mut().zip(other.iter_mut()) {
        let mask = (*a >> bit & 1).wrapping_neg();
        *a ^= to_with & mask;
        *b ^= to_other & mask;
    }
}

/// Transposes 64 rows of 64 bits in place: bit j of word i becomes bit i of word j.
#[inline(always)]
fn transpose(square: &mut [u64; 64]) {
    let mut width = 32;
    let mut mask = 0x0000_0000_ffff_ffffu64;
    while width != 0 {
        let mut base = 0;
        while base < 64 {
            for i in base..base + width {
                let moved = (square[i] >> width ^ square[i + width]) & mask;
                square[i] ^= moved << width;
                square[i + width] ^= moved;
            }
            base += 2 * width;
        }
        width /= 2;
        mask ^= mask << width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Pcg32;

    #[test]
    fn a_square_is_transposed() {
        let mut pcg = Pcg32::new(1, 1);
        let rows: [u64; 64] =
            [(); 64].map(|()| u64::from(pcg.draw()) << 32 | u64::from(pcg.draw()));
        let mut square = rows;
        transpose(&mut square);
        for (i, row) in rows.iter().enumerate() {
            for (j, column) in square.iter().enumerate() {
                assert_eq!(row >> j & 1, column >> i & 1);
            }
        }
    }
}
