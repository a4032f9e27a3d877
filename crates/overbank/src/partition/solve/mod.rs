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
//! Each instruction set has one file with one function, chosen when a [`System`] is made. It
//! transposes, eliminates and reads the solutions out. AVX2 runs the portable code, four columns at
//! a time.
//!
//! Full rank is demanded: a solution must exist for *every* right-hand side, so that any later
//! change of one value has a correction of the words (specification of the partition table, 3.1 and
//! 3.2).
//!
//! Panics: none, for counts within [`System`]'s bounds.

#![allow(unsafe_code)] // Vector loads, calls of functions with target features.

#[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
mod avx512;
mod portable;

use super::row::Row;
use crate::isa::Isa;

/// Most value bits of a table.
pub(super) const PLANES_MAX: usize = 8;
/// Words of the widest column.
const LIMBS: usize = 2;

/// Bits of a column or a solution, low limb first.
pub(super) type Bits = [u64; LIMBS];

/// Solves `rows` for as many right-hand sides as there are solutions to write: bit `i` of side j is
/// bit j of `values[i]`. Returns whether the rows are independent; only then the
/// solutions are defined.
///
/// # Safety
/// The CPU has the instruction set. `rows.len() == values.len()` and at most `unknowns`, rows have
/// no bit from `unknowns` on, and there are [`PLANES_MAX`] solutions at most.
type Solver<R> = unsafe fn(rows: &[R], values: &[u8], unknowns: usize, to: &mut [Bits]) -> bool;

/// Linear systems of rows of `R`.
pub(super) struct System<R> {
    solver: Solver<R>,
    solutions: [Bits; PLANES_MAX],
}

impl<R: Row> System<R> {
    /// Solves with `isa`, or portably if the machine lacks it.
    pub(super) fn new(isa: Isa) -> Self {
        let solver = match isa {
            #[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
            Isa::Avx2 if isa.is_available() => portable::avx2::<R>,
            #[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
            Isa::Avx512 if isa.is_available() => avx512::solve::<R>,
            _ => portable::solve::<R>,
        };
        Self { solver, solutions: [[0; LIMBS]; PLANES_MAX] }
    }

    /// Solves `rows` for `planes` right-hand sides: bit `i` of side j is bit j of `values[i]`.
    /// `None` if the rows are dependent.
    ///
    /// `rows.len() <= unknowns <= R::BITS`, `planes <= PLANES_MAX`; values beyond the planes do not
    /// count.
    pub(super) fn solve(
        &mut self,
        rows: &[R],
        values: &[u8],
        unknowns: usize,
        planes: usize,
    ) -> Option<&[Bits]> {
        debug_assert!(rows.len() <= unknowns && unknowns <= R::BITS);
        assert!(rows.len() <= R::BITS && rows.len() == values.len());
        let solutions = &mut self.solutions[..planes];
        // SAFETY: `new` chose an instruction set of this machine; the counts are asserted above.
        unsafe { (self.solver)(rows, values, unknowns, solutions) }.then_some(&*solutions)
    }

    /// The same with one right-hand side, one in row `key` and zero elsewhere.
    pub(super) fn solve_unit(&mut self, rows: &[R], key: usize, unknowns: usize) -> Option<Bits> {
        let mut values = [0; 128];
        values[key] = 1;
        self.solve(rows, &values[..rows.len()], unknowns, 1).map(|solutions| solutions[0])
    }
}

/// The lowest `count` bits, all from 64 on.
const fn low(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
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

    fn solves<R: Row>(isa: Isa, unknowns: usize) {
        let mut pcg = Pcg32::new(7, unknowns as u64);
        let mut system = System::<R>::new(isa);
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
            assert_eq!(solved.is_some(), rank(&rows, unknowns) == count, "{isa}");
            let Some(solutions) = solved else {
                short += 1;
                continue;
            };
            full += 1;
            for (plane, &words) in solutions.iter().enumerate() {
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
        for isa in Isa::available() {
            [1, 60, 62, 63, 64].into_iter().for_each(|unknowns| solves::<u64>(isa, unknowns));
            [65, 124, 126, 127].into_iter().for_each(|unknowns| solves::<u128>(isa, unknowns));
        }
    }
}
