//! The search for a function that separates the keys of a group.
//!
//! Two of them find the same index: the plain one, as the paper describes it, and one that tries
//! [`LANES`] indices at a time in the lanes of a vector. The paper's figures are of the first.

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

/// The first index from 1 to `last` that gives every key its bit, by trying one after another.
/// `bits[i]` is 0 or 1. Adds the indices tried to `trials`.
pub(super) fn plain(
    keys: &[Pair],
    bits: &[u8],
    m: u32,
    last: u32,
    trials: &mut u64,
) -> Option<Function> {
    for index in 1..=last {
        let (mut array, mut taken) = (0u32, 0u32);
        let fits = keys.iter().zip(bits).all(|(key, &bit)| {
            let place = key.place(index, m);
            let free = taken >> place & 1 == 0;
            taken |= 1 << place;
            array |= u32::from(free && bit == 1) << place;
            free || array >> place & 1 == u32::from(bit)
        });
        if fits {
            *trials += u64::from(index);
            return Some(Function { index, array });
        }
    }
    *trials += u64::from(last);
    None
}

/// As [`plain`], [`LANES`] indices at a time: places of zeros and of ones are collected apart, and an
/// index fits where they have none in common.
#[inline(always)]
pub(super) fn lanes(
    keys: &[Pair],
    bits: &[u8],
    m: u32,
    last: u32,
    trials: &mut u64,
) -> Option<Function> {
    /// Keys between two looks whether any lane is left.
    const STRIDE: usize = 4;
    let mut first = 1;
    while first <= last {
        let indices: [u32; LANES] = core::array::from_fn(|lane| first + lane as u32);
        let (mut zeros, mut ones) = ([0u32; LANES], [0u32; LANES]);
        for (keys, bits) in keys.chunks(STRIDE).zip(bits.chunks(STRIDE)) {
            for (key, &bit) in keys.iter().zip(bits) {
                let (to_ones, to_zeros) =
                    (u32::from(bit).wrapping_neg(), u32::from(bit).wrapping_sub(1));
                for lane in 0..LANES {
                    let one = 1u32 << key.place(indices[lane], m);
                    zeros[lane] |= one & to_zeros;
                    ones[lane] |= one & to_ones;
                }
            }
            if (0..LANES).all(|lane| zeros[lane] & ones[lane] != 0) {
                break;
            }
        }
        let fits = |lane: &usize| zeros[*lane] & ones[*lane] == 0 && indices[*lane] <= last;
        if let Some(lane) = (0..LANES).find(fits) {
            *trials += u64::from(indices[lane]);
            return Some(Function { index: indices[lane], array: ones[lane] });
        }
        first += LANES as u32;
    }
    *trials += u64::from(last);
    None
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
            let m = [2, 3, 8, 12, 16, 30][round as usize % 6];
            let last = if round % 5 == 0 { 254 } else { 65_534 };
            let count = pcg.below(if m < 8 { 12 } else { 21 }) as usize;
            let keys: Vec<Pair> =
                (0..count as u64).map(|i| Pair::new(crate::hash::mix(round << 20 | i))).collect();
            let bits: Vec<u8> = keys.iter().map(|_| pcg.below(2) as u8).collect();
            let (mut by_plain, mut by_lanes) = (0, 0);
            let function = plain(&keys, &bits, m, last, &mut by_plain);
            assert_eq!(function, lanes(&keys, &bits, m, last, &mut by_lanes));
            assert_eq!(by_plain, by_lanes);
            let Some(Function { index, array }) = function else {
                none += 1;
                continue;
            };
            found += 1;
            for (key, &bit) in keys.iter().zip(&bits) {
                assert_eq!(array >> key.place(index, m) & 1, u32::from(bit));
            }
        }
        assert!(found > 400 && none > 3, "{found}, {none} without");
    }
}
