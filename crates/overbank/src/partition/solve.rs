//! Linear systems over GF(2) of the size of a group: rows of 64 or 128 bits, one right-hand side
//! for each value bit.
//!
//! ```text
//!   rows of the keys          columns: bit i of a column is row i        right-hand sides: columns
//!   k0  1 0 1 1 …             c0 c1 c2 …                                 b0 … b(v−1)
//!   k1  0 1 1 0 …   ─ 64 × 64 transposition ─▶
//! ```
//!
//! Gauss–Jordan by columns: the pivot of column c is an unused row r; the other rows with a one in
//! column c get row r added. By columns that is: every later column with bit r set is XORed with
//! column c less bit r. A step is a test, a mask and an XOR for each column, with no branch, so it
//! runs at the width of the machine's vectors and hardly depends on the number of value bits.
//!
//! Full rank is demanded: a solution must exist for *every* right-hand side, so that any later
//! change of one value has a correction of the words (specification of the partition table, 3.1 and
//! 3.2).
//!
//! Panics: none, for counts within [`System`]'s bounds.

use super::row::Row;

/// Most value bits of a table.
pub(super) const PLANES_MAX: usize = 8;
/// Columns of a system: those of the widest row, and the right-hand sides.
const COLUMNS: usize = 128 + PLANES_MAX;
/// Words of the widest column.
const LIMBS: usize = 2;

/// Bits of a column or a solution, low limb first.
pub(super) type Bits = [u64; LIMBS];

/// The columns of a system, and which row each pivot column belongs to.
pub(super) struct System {
    columns: [[u64; COLUMNS]; LIMBS],
    /// Columns with a pivot, in order, and their rows.
    pivots: [(u8, u8); 128],
    rank: usize,
}

impl System {
    pub(super) const fn new() -> Self {
        Self { columns: [[0; COLUMNS]; LIMBS], pivots: [(0, 0); 128], rank: 0 }
    }

    /// Solves `rows` for `planes` right-hand sides: bit `i` of `values[i]`'s plane j belongs to row
    /// `i`. Returns whether the rows are independent; only then is [`System::solution`] defined.
    ///
    /// `rows.len() <= unknowns <= R::BITS`, `planes <= PLANES_MAX`; values beyond the planes do not
    /// count.
    #[inline(always)]
    pub(super) fn solve<R: Row>(
        &mut self,
        rows: &[R],
        values: &[u8],
        unknowns: usize,
        planes: usize,
    ) -> bool {
        debug_assert!(rows.len() <= unknowns && unknowns <= R::BITS && planes <= PLANES_MAX);
        debug_assert_eq!(rows.len(), values.len());
        self.load(rows, values, planes);
        self.eliminate::<R>(rows.len(), unknowns, planes)
    }

    /// The same with one right-hand side, one in row `key` and zero elsewhere.
    #[inline(always)]
    pub(super) fn solve_unit<R: Row>(&mut self, rows: &[R], key: usize, unknowns: usize) -> bool {
        let mut values = [0; 128];
        values[key] = 1;
        self.solve(rows, &values[..rows.len()], unknowns, 1)
    }

    /// Columns from rows.
    #[inline(always)]
    fn load<R: Row>(&mut self, rows: &[R], values: &[u8], planes: usize) {
        for limb in 0..LIMBS {
            for half in 0..R::BITS / 64 {
                let mut square = [0; 64];
                for (word, row) in square.iter_mut().zip(rows.iter().skip(64 * limb)) {
                    *word = row.limb(half);
                }
                transpose(&mut square);
                self.columns[limb][64 * half..][..64].copy_from_slice(&square);
            }
            let mut sides = [0; PLANES_MAX];
            for (i, &value) in values.iter().skip(64 * limb).take(64).enumerate() {
                for (plane, side) in sides.iter_mut().enumerate() {
                    *side |= u64::from(value >> plane & 1) << i;
                }
            }
            self.columns[limb][R::BITS..][..planes].copy_from_slice(&sides[..planes]);
        }
    }

    #[inline(always)]
    fn eliminate<R: Row>(&mut self, rows: usize, unknowns: usize, planes: usize) -> bool {
        let mut unused: Bits = [low(rows), low(rows.saturating_sub(64))];
        self.rank = 0;
        let end = R::BITS + planes;
        for column in 0..unknowns {
            let own: Bits = [self.columns[0][column], self.columns[1][column]];
            let free: Bits = [own[0] & unused[0], own[1] & unused[1]];
            let limb = usize::from(free[0] == 0);
            if free[limb] == 0 {
                continue;
            }
            let bit = free[limb].trailing_zeros();
            let one = 1u64 << bit;
            unused[limb] &= !one;
            self.pivots[self.rank] = (column as u8, (64 * limb) as u8 + bit as u8);
            self.rank += 1;
            let mut added = own;
            added[limb] &= !one;
            let [first, second] = &mut self.columns;
            let (first, second) = (&mut first[column + 1..end], &mut second[column + 1..end]);
            if limb == 0 {
                add(first, second, bit, added[0], added[1]);
            } else {
                add(second, first, bit, added[1], added[0]);
            }
            if self.rank == rows {
                return true;
            }
        }
        rows == 0
    }

    /// The solution of right-hand side `plane` of a system of `R`: bits of the unknowns.
    #[inline(always)]
    pub(super) fn solution<R: Row>(&self, plane: usize) -> Bits {
        let side: Bits = [self.columns[0][R::BITS + plane], self.columns[1][R::BITS + plane]];
        let mut words = [0; LIMBS];
        for &(column, row) in &self.pivots[..self.rank] {
            let bit = side[usize::from(row >> 6)] >> (row & 63) & 1;
            words[usize::from(column >> 6)] |= bit << (column & 63);
        }
        words
    }
}

/// The lowest `count` bits, all from 64 on.
const fn low(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
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
    use std::vec::Vec;

    fn word(pcg: &mut Pcg32) -> u64 {
        let mut half = || u64::from(pcg.below(1 << 16)) << 16 | u64::from(pcg.below(1 << 16));
        half() << 32 | half()
    }

    #[test]
    fn a_square_is_transposed() {
        let mut pcg = Pcg32::new(1, 1);
        let rows: [u64; 64] = [(); 64].map(|()| word(&mut pcg));
        let mut square = rows;
        transpose(&mut square);
        for (i, row) in rows.iter().enumerate() {
            for (j, column) in square.iter().enumerate() {
                assert_eq!(row >> j & 1, column >> i & 1);
            }
        }
    }

    /// The rank by rows, one bit at a time.
    fn rank<R: Row>(rows: &[R], unknowns: usize) -> usize {
        let mut rows: Vec<R> = rows.to_vec();
        let mut rank = 0;
        for bit in 0..unknowns {
            let one = |row: &R| row.limb(bit / 64) >> (bit % 64) & 1 == 1;
            let Some(at) = rows[rank..].iter().position(one) else { continue };
            rows.swap(rank, rank + at);
            let pivot = rows[rank];
            for row in rows[rank + 1..].iter_mut().filter(|row| one(row)) {
                *row = row.xor(pivot);
            }
            rank += 1;
        }
        rank
    }

    fn solves<R: Row>(unknowns: usize) {
        let mut pcg = Pcg32::new(7, unknowns as u64);
        let mut system = System::new();
        let (mut full, mut short) = (0, 0);
        for round in 0..400 {
            let count = match round % 4 {
                0 => unknowns,
                1 => unknowns - 1,
                2 => 0,
                _ => pcg.below(unknowns as u32 + 1) as usize,
            };
            let row = |pcg: &mut Pcg32| R::new(word(pcg), 0).masked(unknowns);
            let rows: Vec<R> = (0..count).map(|_| row(&mut pcg)).collect();
            let planes = 1 + pcg.below(PLANES_MAX as u32) as usize;
            let values: Vec<u8> = rows.iter().map(|_| pcg.below(1 << planes) as u8).collect();
            let solved = system.solve(&rows, &values, unknowns, planes);
            assert_eq!(solved, rank(&rows, unknowns) == count);
            full += usize::from(solved);
            short += usize::from(!solved);
            if !solved {
                continue;
            }
            for plane in 0..planes {
                let words = system.solution::<R>(plane);
                let outside = [words[0] & !low(unknowns), words[1] & !low(unknowns.max(64) - 64)];
                assert_eq!(outside, [0, 0], "only unknowns are set");
                for (row, value) in rows.iter().zip(&values) {
                    assert_eq!(row.parity(words), u64::from(value >> plane & 1));
                }
            }
        }
        assert!(full > 100 && short > 20, "{full} of full rank, {short} not");
    }

    #[test]
    fn what_is_solved_is_right_and_rank_is_known() {
        solves::<u64>(60);
        solves::<u64>(63);
        solves::<u128>(124);
        solves::<u128>(127);
    }
}
