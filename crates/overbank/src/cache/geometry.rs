//! Geometry: the slots in which a key may lie.
//!
//! ```text
//!  64 bits of hash, from the caller
//!  63                              32 31            16 15             0
//! ┌──────────────────────────────────┬────────────────┬────────────────┐
//! │ index: i1 = (these × n) >> 32    │ (second choice)│ fingerprint    │
//! └──────────────────────────────────┴────────────────┴────────────────┘
//!
//!  n buckets of m slots           i1              i2
//!  set-m        ·   ·   ·   ·   [ m ]   ·   ·   ·   ·   ·   ·
//!  cuckoo-H-m   ·   ·   ·   ·   [ m ]   ·   ·   · [ m ]  ·   ·   (H = 2)
//!  blp-H-m      ·   ·   ·   ·   [ m ][ m ]  ·   ·   ·   ·   ·  | H−1 buffer buckets
//! ```
//!
//! The candidate slots of a key are numbered `0..H*m`, bucket by bucket; slot 0 of a bucket has the
//! highest priority for policies with priorities. The number of buckets need not be a power of two.
//! The second bucket of cuckoo-lite comes from a multiplication that mixes all 64 bits. It is drawn
//! from `n−1` values and steps over the first, so the two always differ. BLP does not wrap around:
//! the last bucket spills into buffer buckets after the table (paper, section 6).

use super::design::GeometryKind;
use crate::hash::Hash64;

/// What a slot knows of its key: 16 bits of the hash, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub(crate) u16);

impl Fingerprint {
    /// Returns the fingerprint of a hash.
    pub const fn of(hash: Hash64) -> Fingerprint {
        Fingerprint(fingerprint(hash))
    }

    /// Returns its bits.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Returns the fingerprint of a hash: its low 16 bits, with 0 mapped to 1 because 0 marks an empty
/// slot.
#[inline(always)]
pub(crate) const fn fingerprint(hash: Hash64) -> u16 {
    let low = hash.get() as u16;
    low | (low == 0) as u16
}

/// Returns the first (or only) bucket of a hash among `buckets`, by multiply-shift.
#[inline(always)]
pub(crate) const fn home(hash: Hash64, buckets: usize) -> usize {
    (((hash.get() >> 32) * buckets as u64) >> 32) as usize
}

/// Returns the second bucket of cuckoo-lite: any but `first`. Needs at least two buckets.
#[inline(always)]
pub(crate) const fn second(hash: Hash64, buckets: usize, first: usize) -> usize {
    let stirred = hash.get().wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
    let other = ((stirred * (buckets as u64 - 1)) >> 32) as usize;
    other + (other >= first) as usize
}

mod sealed {
    pub trait Sealed {}
}

/// The buckets in which a key may lie. Implemented by [`SetAssoc`], [`Cuckoo`] and [`Blp`] in the
/// sizes that have a probe kernel.
pub trait Geometry: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The geometry as a value.
    const KIND: GeometryKind;
    /// H: the number of buckets in which a key may lie.
    const CHOICES: usize;
    /// m: slots of a bucket.
    const SLOTS: usize;
    /// H × m, a power of two and at most 32: one bit each in a probe's mask.
    const CANDIDATES: usize = Self::CHOICES * Self::SLOTS;
    /// Whether a key's buckets are adjacent.
    const ADJACENT: bool;
    /// Buckets after the table, into which the last ones spill.
    const BUFFER_BUCKETS: usize;
    /// Smallest number of buckets.
    const BUCKETS_MIN: usize;

    /// Returns the bucket that holds candidate slots `choice*m .. (choice+1)*m` of a hash, in a
    /// table of `buckets` (without buffer buckets).
    fn bucket(hash: Hash64, buckets: usize, choice: usize) -> usize;
}

/// m-way set-associative: one bucket of `M` slots (paper, section 4.2).
#[derive(Clone, Copy, Debug)]
pub struct SetAssoc<const M: usize>;

/// H-m cuckoo-lite: `H` buckets anywhere in the table, without relocation (section 4.3).
#[derive(Clone, Copy, Debug)]
pub struct Cuckoo<const H: usize, const M: usize>;

/// H-m bounded linear probing: `H` adjacent buckets (section 4.4).
#[derive(Clone, Copy, Debug)]
pub struct Blp<const H: usize, const M: usize>;

macro_rules! geometry {
    ($type:ty, $kind:ident, $h:literal x $m:literal, adjacent $adjacent:literal,
     buffer $buffer:literal, min $min:literal, |$hash:ident, $n:ident, $choice:ident| $bucket:expr) => {
        impl sealed::Sealed for $type {}
        impl Geometry for $type {
            const KIND: GeometryKind = GeometryKind::$kind;
            const CHOICES: usize = $h;
            const SLOTS: usize = $m;
            const ADJACENT: bool = $adjacent;
            const BUFFER_BUCKETS: usize = $buffer;
            const BUCKETS_MIN: usize = $min;

            #[inline(always)]
            fn bucket($hash: Hash64, $n: usize, $choice: usize) -> usize {
                $bucket
            }
        }
        const _: () = assert!(<$type>::CANDIDATES <= 32 && <$type>::CANDIDATES.is_power_of_two());
    };
}

macro_rules! set_assoc {
    ($m:literal, $kind:ident) => {
        geometry!(SetAssoc<$m>, $kind, 1 x $m, adjacent true, buffer 0, min 1,
            |hash, n, _choice| home(hash, n));
    };
}

macro_rules! cuckoo {
    ($m:literal, $kind:ident) => {
        geometry!(Cuckoo<2, $m>, $kind, 2 x $m, adjacent false, buffer 0, min 2,
            |hash, n, choice| {
                let first = home(hash, n);
                if choice == 0 { first } else { second(hash, n, first) }
            });
    };
}

macro_rules! blp {
    ($h:literal, $m:literal, $buffer:literal, $kind:ident) => {
        geometry!(Blp<$h, $m>, $kind, $h x $m, adjacent true, buffer $buffer, min 1,
            |hash, n, choice| home(hash, n) + choice);
    };
}

set_assoc!(4, Set4);
set_assoc!(8, Set8);
set_assoc!(16, Set16);
cuckoo!(4, Cuckoo2x4);
cuckoo!(8, Cuckoo2x8);
cuckoo!(16, Cuckoo2x16);
blp!(2, 4, 1, Blp2x4);
blp!(2, 8, 1, Blp2x8);
blp!(2, 16, 1, Blp2x16);
blp!(4, 4, 3, Blp4x4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_fingerprint() {
        assert_eq!(fingerprint(Hash64::new(0xffff_0000)), 1);
        assert_eq!(fingerprint(Hash64::new(1)), 1);
        assert_eq!(fingerprint(Hash64::new(0xabcd_ffff)), 0xffff);
    }

    #[test]
    fn buckets_stay_in_the_table_and_fill_it_evenly() {
        for n in [1usize, 2, 3, 5, 7, 64, 97, 1021] {
            let mut seen = std::vec![[0u32; 2]; n];
            let draws = n * 2000;
            for i in 0..draws as u64 {
                let hash = Hash64::mix(i);
                let first = home(hash, n);
                seen[first][0] += 1;
                if n > 1 {
                    let other = second(hash, n, first);
                    assert_ne!(first, other);
                    seen[other][1] += 1;
                }
            }
            let even = |count: u32| (1700..2300).contains(&count);
            assert!(seen.iter().all(|s| even(s[0]) && (n == 1 || even(s[1]))), "{n}");
        }
        // The extremes of the index bits.
        assert_eq!(home(Hash64::new(u64::MAX), 7), 6);
        assert_eq!(home(Hash64::new(0xffff_ffff), 7), 0);
        for hash in [0, u64::MAX, 1 << 63, 0xffff_ffff].map(Hash64::new) {
            for n in [2, 3, 1 << 31] {
                let first = home(hash, n);
                let other = second(hash, n, first);
                assert!(other < n && other != first);
            }
        }
    }
}
