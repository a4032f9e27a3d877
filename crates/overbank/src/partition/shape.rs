//! The shape of a table: what follows from row width, value bits and groups a block, and nothing
//! else.
//!
//! ```text
//!   hash  63     63-p        32-p           10       0
//!         │ partition │  block  │           │ bucket │    block = 32 bits × blocks >> 32
//!                                               │
//!   candidates[bucket] = two groups of the block, one bit of the block's choices picks one
//! ```
//!
//! Tables of one shape read each other's block images.

use alloc::vec::Vec;

use crate::partition::solve::PLANES_MAX;
use crate::random::Pcg32;

/// Buckets of a block; under the model checker one word of choices, as each word that is written
/// multiplies the orders.
pub(super) const BUCKETS: usize = if cfg!(feature = "loom") { 64 } else { 2048 };
/// Words with the choices of a block.
pub(super) const CHOICE_WORDS: usize = BUCKETS / 64;
/// Keys of a block on average: eight a bucket.
pub(super) const BLOCK_KEYS: usize = 8 * BUCKETS;
/// Keys of a block of a packed table at most: ten a bucket, as more keys then
/// share a choice bit.
pub(super) const PACKED_KEYS: usize = 10 * BUCKETS;
/// Most groups of a block.
pub(super) const GROUPS_MAX: usize = 512;

/// Bits of a row. Wider rows need fewer bits a key and more time for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowBits {
    /// 64: changes take half the time, 0.1 to 0.2 bits a key more.
    R64,
    /// 128: the smallest tables.
    #[default]
    R128,
}

impl RowBits {
    /// As a number.
    pub const fn get(self) -> usize {
        match self {
            RowBits::R64 => 64,
            RowBits::R128 => 128,
        }
    }
}

/// The numbers that a shape follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) row: RowBits,
    /// Bits of a value, 1 to 8.
    pub(super) planes: u8,
    /// Groups of a block, 2 to [`GROUPS_MAX`].
    pub(super) groups: u16,
}

impl Form {
    /// Words of a group.
    #[cfg(feature = "snapshot")]
    pub(super) const fn group_words(self) -> usize {
        self.planes as usize * (self.row.get() / 64)
    }
}

/// Most bits of a partition's number.
pub(super) const PARTITION_BITS_MAX: u32 = 10;

/// A block by its partition (high 10 bits) and its number there (low 22 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(pub(super) u32);

impl Place {
    const NTH_BITS: u32 = 32 - PARTITION_BITS_MAX;
    /// Most blocks of a partition.
    pub(super) const BLOCKS_MAX: usize = 1 << Self::NTH_BITS;

    pub(super) const fn new(partition: usize, nth: usize) -> Self {
        Self((partition as u32) << Self::NTH_BITS | nth as u32)
    }

    pub(super) const fn partition(self) -> usize {
        (self.0 >> Self::NTH_BITS) as usize
    }

    pub(super) const fn nth(self) -> usize {
        self.0 as usize & (Self::BLOCKS_MAX - 1)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) row: RowBits,
    /// Bits of a value: a plane of words each.
    pub(super) planes: usize,
    /// Groups of a block.
    pub(super) groups: usize,
    /// Bits of a plane that keys may use: the others hold the seed.
    unknowns: usize,
    /// By bucket: the groups that it may be in.
    candidates: Vec<[u16; 2]>,
    /// Buckets by group that they may be in; group g has those from `starts[g]` to `starts[g + 1]`.
    members: Vec<u16>,
    starts: Vec<u16>,
}

impl Shape {
    /// `planes` from 1 to 8, `groups` from 2 to [`GROUPS_MAX`].
    pub(super) fn new(row: RowBits, planes: usize, groups: usize) -> Self {
        debug_assert!((1..=PLANES_MAX).contains(&planes) && (2..=GROUPS_MAX).contains(&groups));
        // Every group as often as any other, in an order that depends on nothing but their number.
        let mut slots: Vec<u16> = (0..2 * BUCKETS).map(|i| (i % groups) as u16).collect();
        let mut pcg = Pcg32::new(groups as u64, 0x6461);
        for last in (1..slots.len()).rev() {
            slots.swap(last, pcg.below(last as u32 + 1) as usize);
        }
        for bucket in 0..BUCKETS {
            // The same group twice is no choice: exchange one with any bucket that has none of it.
            let (a, b) = (2 * bucket, 2 * bucket + 1);
            while slots[a] == slots[b] {
                let other = pcg.below(2 * BUCKETS as u32) as usize;
                if slots[other] != slots[a] && slots[other ^ 1] != slots[a] {
                    slots.swap(b, other);
                }
            }
        }
        let candidates: Vec<[u16; 2]> = slots.chunks_exact(2).map(|c| [c[0], c[1]]).collect();
        let mut lists: Vec<Vec<u16>> = (0..groups).map(|_| Vec::new()).collect();
        for (bucket, both) in candidates.iter().enumerate() {
            both.iter().for_each(|&group| lists[usize::from(group)].push(bucket as u16));
        }
        let mut starts = Vec::with_capacity(groups + 1);
        let mut members = Vec::with_capacity(slots.len());
        for list in &lists {
            starts.push(members.len() as u16);
            members.extend_from_slice(list);
        }
        starts.push(members.len() as u16);
        let unknowns = unknowns(row, planes);
        Self { row, planes, groups, unknowns, candidates, members, starts }
    }

    /// The same with fewer unknowns. The other bits of its planes are zero: lookups stay the same.
    #[cfg(all(test, not(feature = "loom")))]
    pub(super) fn with_unknowns(self, unknowns: usize) -> Self {
        debug_assert!(unknowns <= self.unknowns);
        Self { unknowns, ..self }
    }

    /// Groups a block for `keys` keys a block. `packed` leaves no room for changes.
    pub(super) fn groups_for(row: RowBits, planes: usize, keys: usize, packed: bool) -> usize {
        // Per mille of the unknowns. More would leave the fullest blocks (their keys differ by the
        // square root of their number, 0.8 %) with groups that no choice of candidates relieves.
        let fill = match (row, packed) {
            (RowBits::R64, false) => 900,
            (RowBits::R64, true) => 915,
            (RowBits::R128, false) => 930,
            // 955 left 5 to 12 groups of 16 M keys without a solution.
            (RowBits::R128, true) => 945,
        };
        (keys * 1000).div_ceil(unknowns(row, planes) * fill).clamp(2, GROUPS_MAX)
    }

    /// Words of a block with this many groups: choices, groups, version.
    pub(super) fn block_words(row: RowBits, planes: usize, groups: usize) -> usize {
        CHOICE_WORDS + groups * planes * row.get() / 64 + 1
    }

    /// The numbers that it follows from.
    pub(super) fn form(&self) -> Form {
        Form { row: self.row, planes: self.planes as u8, groups: self.groups as u16 }
    }

    /// The two groups of a bucket.
    #[inline(always)]
    pub(super) fn candidates(&self) -> &[[u16; 2]] {
        &self.candidates
    }

    /// Buckets that may be in `group`.
    pub(super) fn members(&self, group: usize) -> &[u16] {
        &self.members[usize::from(self.starts[group])..usize::from(self.starts[group + 1])]
    }

    /// Unknowns of a group in each plane.
    pub(super) fn unknowns(&self) -> usize {
        self.unknowns
    }

    /// Words of a plane.
    pub(super) fn limbs(&self) -> usize {
        self.row.get() / 64
    }

    /// Words of a group.
    pub(super) fn group_words(&self) -> usize {
        self.planes * self.limbs()
    }
}

const fn unknowns(row: RowBits, planes: usize) -> usize {
    row.get() - seed_bits(planes)
}

/// Top bits of each of the first planes that hold the seed.
pub(super) const fn seed_bits(planes: usize) -> usize {
    match planes {
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

/// Planes that hold bits of the seed.
const fn seed_planes(planes: usize) -> usize {
    match planes {
        1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// The seed in the words of a group. `top(plane)` is the plane's last word.
#[inline(always)]
pub(super) fn seed_of(planes: usize, top: impl Fn(usize) -> u64) -> usize {
    let bits = seed_bits(planes);
    let mut seed = 0;
    for plane in 0..seed_planes(planes) {
        seed |= (top(plane) >> (64 - bits)) << (plane * bits);
    }
    seed as usize
}

/// The bits of `seed` in the last word of `plane`.
pub(super) const fn seed_part(planes: usize, plane: usize, seed: usize) -> u64 {
    let bits = seed_bits(planes);
    if plane >= seed_planes(planes) {
        return 0;
    }
    ((seed >> (plane * bits)) as u64 & ((1 << bits) - 1)) << (64 - bits)
}

/// Which bucket of its block a hash belongs to.
#[inline(always)]
pub(super) const fn bucket_of(hash: u64) -> usize {
    hash as usize & (BUCKETS - 1)
}

/// Which of `1 << bits` partitions a hash belongs to.
#[inline(always)]
pub(super) const fn partition_of(hash: u64, bits: u32) -> usize {
    (hash >> 1 >> (63 - bits)) as usize
}

/// Which of the `blocks` blocks of its partition a hash belongs to.
#[inline(always)]
pub(super) const fn block_of(hash: u64, bits: u32, blocks: u32) -> usize {
    ((((hash << bits) >> 32) * blocks as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_has_two_groups_and_every_group_as_many_buckets() {
        for groups in [2, 3, 5, 40, 128, 137, 300, GROUPS_MAX] {
            let shape = Shape::new(RowBits::R128, 2, groups);
            assert_eq!(shape.candidates().len(), BUCKETS);
            assert!(shape.candidates().iter().all(|both| both[0] != both[1]), "{groups}");
            let sizes: Vec<usize> = (0..groups).map(|g| shape.members(g).len()).collect();
            let (min, max) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(max - min <= 1, "{groups}: {min} to {max}");
            for group in 0..groups {
                for &bucket in shape.members(group) {
                    let both = shape.candidates()[usize::from(bucket)];
                    assert!(both.contains(&(group as u16)));
                }
            }
        }
    }

    #[test]
    fn seeds_are_kept_beside_the_unknowns() {
        for planes in 1..=PLANES_MAX {
            for seed in 0..16 {
                let words: Vec<u64> = (0..planes).map(|p| seed_part(planes, p, seed)).collect();
                assert_eq!(seed_of(planes, |plane| words[plane]), seed, "{planes} planes");
                for row in [RowBits::R64, RowBits::R128] {
                    let unknowns = unknowns(row, planes) - (row.get() - 64);
                    assert!(words.iter().all(|word| word & (u64::MAX >> (64 - unknowns)) == 0));
                }
            }
        }
    }

    #[test]
    fn blocks_share_the_hashes_evenly() {
        let mut counts = [0; 7];
        for i in 0..70_000u64 {
            counts[block_of(crate::hash::mix(i), 0, 7)] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
        let mut counts = [0; 12];
        for i in 0..120_000u64 {
            let hash = crate::hash::mix(i);
            counts[partition_of(hash, 2) * 3 + block_of(hash, 2, 3)] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
    }
}
