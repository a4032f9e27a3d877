//! The search with an index in each lane of a vector.
//!
//! ```text
//!   lanes              index 1   index 2   …   index 8 or 16
//!   key 0 has a 1:     places, a bit set each ──▶ ones
//!   key 1 has a 0:     places                 ──▶ zeros
//!   …                  an index fits where zeros and ones have no place in common
//! ```
//!
//! The loop over keys is made for each number of value bits, so that zeros and ones stay in
//! registers.

use super::{Function, Functions, Group};
use crate::partition::solve::PLANES_MAX;

/// Keys of the largest group that vectors search.
pub(super) const KEYS_MAX: usize = 64;

/// Keys between two looks whether any lane is left.
const STRIDE: usize = 4;

/// Lanes of 32 bits.
///
/// # Safety
/// All methods need the instruction set of their file.
pub(super) trait Vector: Copy {
    /// Their number, at most 16.
    const LANES: u32;

    unsafe fn splat(value: u32) -> Self;
    /// 0, 1, 2 …
    unsafe fn count() -> Self;
    /// The hashes of a key under the indices of the lanes.
    unsafe fn hashes(g1: u32, g2: u32, indices: Self) -> Self;
    /// The bit of the place among `m` that each hash leads to.
    unsafe fn places(self, m: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    /// Adds the bits of `places & mask`.
    unsafe fn gather(self, places: Self, mask: Self) -> Self;
    /// Adds the bits of `places & !mask`.
    unsafe fn gather_not(self, places: Self, mask: Self) -> Self;
    /// Returns a bit for each lane: whether the two have none in common.
    unsafe fn apart(self, other: Self) -> u32;
    unsafe fn lane(self, lane: u32) -> u32;
}

/// What the search of a group needs.
struct Search<'a, V> {
    group: Group<'a>,
    /// For each key and value bit, all ones if the bit is set.
    masks: [[u32; PLANES_MAX]; KEYS_MAX],
    m: V,
}

/// Lanes of each value bit that fit, and what its array is in each lane.
type Fits<V, const PLANES: usize> = [(u32, V); PLANES];

impl<V: Vector> Search<'_, V> {
    /// Tries the indices of one vector for the value bits `open`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn step<const PLANES: usize>(&self, indices: V, open: &[usize]) -> Fits<V, PLANES> {
        // SAFETY: passed on.
        unsafe {
            let none = V::splat(0);
            let (mut zeros, mut ones) = ([none; PLANES], [none; PLANES]);
            let (keys, masks) = (self.group.keys, &self.masks[..self.group.keys.len()]);
            for (keys, masks) in keys.chunks(STRIDE).zip(masks.chunks(STRIDE)) {
                for (key, masks) in keys.iter().zip(masks) {
                    let places = V::hashes(key.g1, key.g2, indices).places(self.m);
                    for at in 0..PLANES {
                        let mask = V::splat(masks[open[at]]);
                        ones[at] = ones[at].gather(places, mask);
                        zeros[at] = zeros[at].gather_not(places, mask);
                    }
                }
                let mut left = 0;
                for at in 0..PLANES {
                    left |= zeros[at].apart(ones[at]);
                }
                if left == 0 {
                    return [(0, none); PLANES];
                }
            }
            core::array::from_fn(|at| (zeros[at].apart(ones[at]), ones[at]))
        }
    }

    /// Searches vector by vector for all value bits without an index, until one of them has one.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`; `open` has `PLANES` value bits.
    #[inline(always)]
    unsafe fn until_one<const PLANES: usize>(
        &self,
        first: &mut u32,
        open: &mut [usize],
        functions: &mut Functions,
        trials: &mut u64,
    ) -> usize {
        // SAFETY: passed on.
        unsafe {
            while *first <= self.group.last {
                let indices = V::splat(*first).add(V::count());
                let fits = self.step::<PLANES>(indices, open);
                // Lanes beyond the last index.
                let lanes = (self.group.last - *first + 1).min(V::LANES);
                let valid = u32::MAX >> (32 - lanes);
                let mut kept = 0;
                for (at, (fits, ones)) in fits.into_iter().enumerate() {
                    let fits = fits & valid;
                    if fits != 0 {
                        let lane = fits.trailing_zeros();
                        let index = *first + lane;
                        functions[open[at]] = Function { index, array: ones.lane(lane) };
                        *trials += u64::from(index);
                    } else {
                        open[kept] = open[at];
                        kept += 1;
                    }
                }
                *first += V::LANES;
                if kept < PLANES {
                    return kept;
                }
            }
            PLANES
        }
    }
}

/// Does what [`plain`](super::plain) does, for a group of at most [`KEYS_MAX`] keys.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn search<V: Vector>(
    group: Group<'_>,
    functions: &mut Functions,
    trials: &mut u64,
) -> bool {
    // SAFETY: passed on.
    unsafe {
        let mut masks = [[0; PLANES_MAX]; KEYS_MAX];
        for (masks, &value) in masks.iter_mut().zip(group.values) {
            *masks = core::array::from_fn(|plane| u32::from(value >> plane & 1).wrapping_neg());
        }
        let this = Search { group, masks, m: V::splat(group.m) };
        let mut open: [usize; PLANES_MAX] = core::array::from_fn(|plane| plane);
        let (mut first, mut left) = (1, group.planes);
        while left > 0 && first <= group.last {
            let (first, open) = (&mut first, &mut open[..left]);
            left = match left {
                1 => this.until_one::<1>(first, open, functions, trials),
                2 => this.until_one::<2>(first, open, functions, trials),
                3 => this.until_one::<3>(first, open, functions, trials),
                4 => this.until_one::<4>(first, open, functions, trials),
                5 => this.until_one::<5>(first, open, functions, trials),
                6 => this.until_one::<6>(first, open, functions, trials),
                7 => this.until_one::<7>(first, open, functions, trials),
                _ => this.until_one::<8>(first, open, functions, trials),
            };
        }
        *trials += u64::from(group.last) * left as u64;
        left == 0
    }
}
