//! The search for a function that separates the keys of a group.
//!
//! Two of them find the same index: the plain one, as the paper describes it, and one that tries
//! [`LANES`] indices at a time in the lanes of a vector. The paper's figures are of the first.

use super::super::solve::PLANES_MAX;

/// Indices that the second search tries at a time.
pub(super) const LANES: usize = 8;

/// Which search builds a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// One index after another, and the next one at the first conflict.
    Plain,
    /// Eight indices at a time.
    #[default]
    Lanes,
}

/// The two hashes of a key that all functions are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    g1: u32,
    g2: u32,
}

impl Pair {
    #[inline(always)]
    pub(super) const fn new(hash: u64) -> Self {
        let mixed = crate::hash::mix(hash);
        Self { g1: (mixed >> 32) as u32, g2: mixed as u32 | 1 }
    }

    /// The place in an array of `m` bits that function `index` leads to.
    #[inline(always)]
    pub(super) const fn place(self, index: u32, m: u32) -> u32 {
        let hash = self.g1.wrapping_add(index.wrapping_mul(self.g2));
        ((hash as u64 * m as u64) >> 32) as u32
    }
}

/// A function: its index, and its array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) index: u32,
    pub(super) array: u32,
}

/// The functions of a group, one for each value bit.
pub(super) type Functions = [Function; PLANES_MAX];

/// Finds for each of `planes` value bits the first index from 1 to `last` that gives every key its
/// bit. All bits are tested under an index before the next one is tried, as in the paper (`001`,
/// section 4.5.1): places are computed once for all of them. `false`: some bit has no index. The
/// indices tried for each bit are added to `trials`.
pub(super) fn plain(
    keys: &[Pair],
    values: &[u8],
    (m, last): (u32, u32),
    planes: usize,
    functions: &mut Functions,
    trials: &mut u64,
) -> bool {
    // Bits without an index.
    let mut open = (0xffu16 >> (8 - planes)) as u8;
    for index in 1..=last {
        // What each place of the arrays has been taken with, a bit for each array.
        let (mut cells, mut taken, mut fits) = ([0u8; 32], 0u32, open);
        for (key, &value) in keys.iter().zip(values) {
            let place = key.place(index, m) as usize;
            if taken >> place & 1 == 0 {
                taken |= 1 << place;
                cells[place] = value;
            } else {
                fits &= !(cells[place] ^ value);
                if fits == 0 {
                    break;
                }
            }
        }
        for plane in (0..planes).filter(|plane| fits >> plane & 1 == 1) {
            let bit = |place: usize| u32::from(cells[place] >> plane & 1) << place;
            let array = (0..m as usize).map(bit).sum();
            functions[plane] = Function { index, array };
            *trials += u64::from(index);
        }
        open &= !fits;
        if open == 0 {
            return true;
        }
    }
    *trials += u64::from(last) * u64::from(open.count_ones());
    false
}

/// As [`plain`], [`LANES`] indices at a time: places of zeros and of ones are collected apart, and
/// an index fits where they have none in common.
#[inline(always)]
pub(super) fn lanes(
    keys: &[Pair],
    values: &[u8],
    (m, last): (u32, u32),
    planes: usize,
    functions: &mut Functions,
    trials: &mut u64,
) -> bool {
    /// Keys between two looks whether any lane is left.
    const STRIDE: usize = 4;
    let mut open: [usize; PLANES_MAX] = core::array::from_fn(|plane| plane);
    let mut left = planes;
    for first in (1..=last).step_by(LANES) {
        let indices: [u32; LANES] = core::array::from_fn(|lane| first + lane as u32);
        let mut sides = [[[0u32; LANES]; 2]; PLANES_MAX];
        for (keys, values) in keys.chunks(STRIDE).zip(values.chunks(STRIDE)) {
            for (key, &value) in keys.iter().zip(values) {
                let places: [u32; LANES] =
                    core::array::from_fn(|lane| 1 << key.place(indices[lane], m));
                for (plane, [zeros, ones]) in open[..left].iter().zip(&mut sides) {
                    let to_ones = u32::from(value >> plane & 1).wrapping_neg();
                    for lane in 0..LANES {
                        zeros[lane] |= places[lane] & !to_ones;
                        ones[lane] |= places[lane] & to_ones;
                    }
                }
            }
            let none = |[zeros, ones]: &[[u32; LANES]; 2]| {
                zeros.iter().zip(ones).all(|(zeros, ones)| zeros & ones != 0)
            };
            if sides[..left].iter().all(none) {
                break;
            }
        }
        let mut kept = 0;
        for at in 0..left {
            let [zeros, ones] = sides[at];
            let fits = |lane: &usize| zeros[*lane] & ones[*lane] == 0 && indices[*lane] <= last;
            if let Some(lane) = (0..LANES).find(fits) {
                functions[open[at]] = Function { index: indices[lane], array: ones[lane] };
                *trials += u64::from(indices[lane]);
            } else {
                open[kept] = open[at];
                kept += 1;
            }
        }
        left = kept;
        if left == 0 {
            return true;
        }
    }
    *trials += u64::from(last) * left as u64;
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Pcg32;
    use std::vec::Vec;

    #[test]
    fn both_searches_find_the_same_and_it_is_right() {
        let mut pcg = Pcg32::new(2, 2);
        let (mut found, mut none) = (0, 0);
        for round in 0..600u64 {
            let m = [2, 3, 8, 12, 16, 30, 9][round as usize % 7];
            let last = if round % 5 == 0 { 254 } else { 65_534 };
            let count = pcg.below(if m < 8 { 12 } else { 21 }) as usize;
            let keys: Vec<Pair> =
                (0..count as u64).map(|i| Pair::new(crate::hash::mix(round << 20 | i))).collect();
            let planes = 1 + round as usize % PLANES_MAX;
            let values: Vec<u8> = keys.iter().map(|_| pcg.below(1 << planes) as u8).collect();
            let mut functions = [[Function::default(); PLANES_MAX]; 2];
            let (mut by_plain, mut by_lanes) = (0, 0);
            let [a, b] = &mut functions;
            let solved = plain(&keys, &values, (m, last), planes, a, &mut by_plain);
            let by_vectors = lanes(&keys, &values, (m, last), planes, b, &mut by_lanes);
            assert_eq!((solved, by_plain), (by_vectors, by_lanes));
            assert_eq!(functions[0], functions[1]);
            if !solved {
                none += 1;
                continue;
            }
            found += 1;
            for (plane, Function { index, array }) in functions[0][..planes].iter().enumerate() {
                assert!((1..=last).contains(index));
                for (key, &value) in keys.iter().zip(&values) {
                    assert_eq!(array >> key.place(*index, m) & 1, u32::from(value >> plane & 1));
                }
            }
        }
        assert!(found > 400 && none > 3, "{found}, {none} without");
    }
}
