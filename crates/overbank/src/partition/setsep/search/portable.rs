//! Eight lanes of plain arithmetic.

use super::lanes::{Vector, search};
use super::{Functions, Group};

/// See [`Searcher`](super::Searcher).
///
/// # Safety
/// None needed.
pub(super) unsafe fn lanes(group: Group<'_>, functions: &mut Functions, trials: &mut u64) -> bool {
    // SAFETY: the lanes need no instruction set.
    unsafe { search::<[u32; 8]>(group, functions, trials) }
}

impl Vector for [u32; 8] {
    const LANES: u32 = 8;

    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        [value; 8]
    }

    #[inline(always)]
    unsafe fn count() -> Self {
        [0, 1, 2, 3, 4, 5, 6, 7]
    }

    #[inline(always)]
    unsafe fn hashes(g1: u32, g2: u32, indices: Self) -> Self {
        indices.map(|index| g1.wrapping_add(index.wrapping_mul(g2)))
    }

    #[inline(always)]
    unsafe fn places(self, m: Self) -> Self {
        self.map(|hash| 1 << ((u64::from(hash) * u64::from(m[0])) >> 32))
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        core::array::from_fn(|lane| self[lane].wrapping_add(other[lane]))
    }

    #[inline(always)]
    unsafe fn gather(self, places: Self, mask: Self) -> Self {
        core::array::from_fn(|lane| self[lane] | places[lane] & mask[lane])
    }

    #[inline(always)]
    unsafe fn gather_not(self, places: Self, mask: Self) -> Self {
        core::array::from_fn(|lane| self[lane] | places[lane] & !mask[lane])
    }

    #[inline(always)]
    unsafe fn apart(self, other: Self) -> u32 {
        (0..8).map(|lane| u32::from(self[lane] & other[lane] == 0) << lane).sum()
    }

    #[inline(always)]
    unsafe fn lane(self, lane: u32) -> u32 {
        self[lane as usize]
    }
}
