//! The search for a function that separates the keys of a group.
//!
//! Two of them find the same index: the plain one, as the paper describes it, and one that tries an
//! index in each lane of a vector, with a file for each instruction set. The paper's figures are of
//! the first.

#![allow(unsafe_code)] // Vector instructions, calls of functions with target features.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod portable;

use super::super::solve::PLANES_MAX;
use crate::isa::Isa;

/// Which search builds a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// One index after another, and the next one at the first conflict.
    Plain,
    /// Eight or sixteen indices at a time.
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

/// A group to find functions for.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) keys: &'a [Pair],
    /// A value for each key.
    pub(super) values: &'a [u8],
    /// Bits of an array, and the last index to try.
    pub(super) m: u32,
    pub(super) last: u32,
    /// Value bits.
    pub(super) planes: usize,
}

/// Does what [`plain`] does, for a group of at most [`lanes::KEYS_MAX`] keys.
///
/// # Safety
/// The CPU has the instruction set of the function's file.
type Searcher = unsafe fn(group: Group<'_>, functions: &mut Functions, trials: &mut u64) -> bool;

/// Does what [`plain`] does, with the vectors of `isa`, or portably if the machine lacks it.
pub(super) fn by_lanes(
    isa: Isa,
    group: Group<'_>,
    functions: &mut Functions,
    trials: &mut u64,
) -> bool {
    if group.keys.len() > lanes::KEYS_MAX {
        return plain(group, functions, trials);
    }
    let searcher: Searcher = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if isa.is_available() => avx2::lanes,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if isa.is_available() => avx512::lanes,
        _ => portable::lanes,
    };
    // SAFETY: the machine has the instruction set, as just asked.
    unsafe { searcher(group, functions, trials) }
}

/// Finds for each of `planes` value bits the first index from 1 to `last` that gives every key its
/// bit. All bits are tested under an index before the next one is tried, as in the paper (`001`,
/// section 4.5.1): places are computed once for all of them. `false`: some bit has no index. The
/// indices tried for each bit are added to `trials`.
pub(super) fn plain(group: Group<'_>, functions: &mut Functions, trials: &mut u64) -> bool {
    let Group { keys, values, m, last, planes } = group;
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
            // Also in the middle of a vector.
            let last = [254, 65_534, 5, 65_534, 19][round as usize % 5];
            let count = pcg.below(if m < 8 { 12 } else { 21 }) as usize;
            let keys: Vec<Pair> =
                (0..count as u64).map(|i| Pair::new(crate::hash::mix(round << 20 | i))).collect();
            let planes = 1 + round as usize % PLANES_MAX;
            let values: Vec<u8> = keys.iter().map(|_| pcg.below(1 << planes) as u8).collect();
            let group = Group { keys: &keys, values: &values, m, last, planes };
            let (mut functions, mut trials) = (Functions::default(), 0);
            let solved = plain(group, &mut functions, &mut trials);
            for isa in Isa::available() {
                let (mut found, mut tried) = (Functions::default(), 0);
                assert_eq!(by_lanes(isa, group, &mut found, &mut tried), solved, "{isa}");
                assert_eq!((found, tried), (functions, trials), "{isa}");
            }
            if !solved {
                none += 1;
                continue;
            }
            found += 1;
            for (plane, Function { index, array }) in functions[..planes].iter().enumerate() {
                assert!((1..=last).contains(index));
                for (key, &value) in keys.iter().zip(&values) {
                    assert_eq!(array >> key.place(*index, m) & 1, u32::from(value >> plane & 1));
                }
            }
        }
        assert!(found > 400 && none > 3, "{found}, {none} without");
    }
}
