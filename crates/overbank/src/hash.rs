//! Hash functions that the tables share.
//!
//! - [`Hash64`] is a hash whose 64 bits are all good: what a cache asks for.
//! - [`Seed`] makes them of anything that is [`Hash`], and hashes maps.
//! - [`mix`] spreads a hash that the caller computed; without a seed.
//! - `Hasher` hashes keys of one or two words with a table's seed.
//!
//! All are a few multiplications, in registers.

use core::hash::{BuildHasher, Hash};

/// Step between the states of SplitMix64: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads a hash over all 64 bits: the finaliser of SplitMix64, a bijection.
///
/// See [`Hash64::mix`] for what it gives a cache.
#[inline(always)]
pub const fn mix(hash: u64) -> u64 {
    let hash = hash.wrapping_add(STEP);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// A hash of a key, good in all of its 64 bits: each depends on the whole key, and keys that differ
/// have hashes that look random to each other.
///
/// A cache takes the fingerprint from the low 16 bits and the buckets from the high ones. A hash
/// that is poor in either costs no correctness: the hit rate falls, and nothing says why. So a
/// caller says here where its bits come from.
///
/// ```
/// use overbank::hash::{Hash64, Seed};
///
/// let seed = Seed::new(7);
/// let flow = seed.hash64(&([10u8, 0, 0, 1], [10u8, 0, 0, 2], 443u16));
/// let rss = Hash64::mix(0x5ca1_ab1e); // 32 good bits, from a NIC
/// let good = Hash64::new(u64::MAX / 3); // 64 good bits, by the caller's word
/// assert_ne!((flow, rss), (good, good));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Hash64(u64);

impl Hash64 {
    /// Takes a hash as it is, by the caller's word that all its bits are good.
    #[inline(always)]
    pub const fn new(hash: u64) -> Hash64 {
        Hash64(hash)
    }

    /// Spreads a hash over all bits ([`mix`]), for one that is good in fewer: a NIC's RSS hash, a
    /// CRC-32C, a number. What two keys share they go on sharing: of 32 good bits, each key of a
    /// million meets another of the same hash with a chance of 1 in 4,300.
    #[inline(always)]
    pub const fn mix(hash: u64) -> Hash64 {
        Hash64(mix(hash))
    }

    /// Takes many hashes as they are, as [`Hash64::new`] does, without a copy.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub const fn slice(hashes: &[u64]) -> &[Hash64] {
        // SAFETY: the type is transparent, so both have one layout, and any bits are a hash.
        unsafe { core::slice::from_raw_parts(hashes.as_ptr().cast(), hashes.len()) }
    }

    /// Returns the bits.
    #[inline(always)]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A hash function of any [`Hash`]: the one of this seed.
///
/// Folds each word with a 128-bit product, as the tables of the crate do. A sender without the seed
/// cannot choose keys that crowd one bucket; it is no cryptographic guarantee. As a [`BuildHasher`]
/// it serves the maps of the standard library too. The hashes of one seed are the same in every
/// process of a machine's byte order and pointer size, but may change with a version of the crate.
#[derive(Clone, Copy, Debug)]
pub struct Seed(Hasher);

impl Seed {
    /// Derives the function of a seed.
    pub const fn new(seed: u64) -> Seed {
        Seed(Hasher::new(seed))
    }

    /// Hashes a key.
    #[inline]
    pub fn hash64<T: Hash + ?Sized>(&self, key: &T) -> Hash64 {
        Hash64(self.hash_one(key))
    }
}

impl BuildHasher for Seed {
    type Hasher = Folds;

    #[inline]
    fn build_hasher(&self) -> Folds {
        Folds { state: self.0.secrets[0], last: self.0.secrets[1] }
    }
}

/// The state of a [`Seed`]'s function while a key is written to it.
#[derive(Clone, Copy, Debug)]
pub struct Folds {
    state: u64,
    last: u64,
}

macro_rules! words {
    ($($write:ident $word:ty),*) => {
        $(#[inline]
        fn $write(&mut self, word: $word) {
            self.write_u64(u64::from(word));
        })*
    };
}

impl core::hash::Hasher for Folds {
    /// Whole words, then the rest with its length above it.
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&word| self.write_u64(u64::from_le_bytes(word)));
        if !rest.is_empty() {
            let last = rest.iter().rev().fold(rest.len() as u64, |all, &b| all << 8 | u64::from(b));
            self.write_u64(last);
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.state = fold(self.state ^ word, K[0]).wrapping_add(K[2]);
    }

    words!(write_u8 u8, write_u16 u16, write_u32 u32);

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state ^ self.last, K[1])
    }
}

/// The hash function of one table, from its seed.
///
/// Folds two or three 128-bit products with secrets derived from the seed. A sender without the
/// seed cannot choose keys that crowd one bucket; it is no cryptographic guarantee.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher {
    secrets: [u64; 2],
}

/// Odd, and without visible pattern (digits of π).
const K: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1];

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher {
    /// Derives the secrets by two draws of SplitMix64 from the seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { secrets: [mix(seed), mix(seed.wrapping_add(STEP))] }
    }

    /// Hashes a key of `words` words: one or two.
    #[inline(always)]
    pub(crate) fn hash(&self, words: usize, low: u64, high: u64) -> u64 {
        let [a, b] = self.secrets;
        let mut hash = fold(low ^ a, K[0]);
        if words == 2 {
            hash = fold(hash ^ high, K[2]);
        }
        fold(hash ^ b, K[1])
    }

    /// Hashes a key of any number of words, at least one. One or two words hash as in
    /// [`Hasher::hash`].
    #[inline(always)]
    pub(crate) fn hash_words(&self, words: &[u64]) -> u64 {
        let [a, b] = self.secrets;
        let folded =
            words[1..].iter().fold(fold(words[0] ^ a, K[0]), |hash, &word| fold(hash ^ word, K[2]));
        fold(folded ^ b, K[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_has_no_collision_here_and_moves_half_of_the_bits() {
        let flips: u32 = (0..1000u64)
            .flat_map(|i| (0..64).map(move |bit| (mix(i) ^ mix(i ^ (1 << bit))).count_ones()))
            .sum();
        assert!((1_900_000..2_150_000).contains(&flips), "{flips}");
    }

    /// Each is a one in half of the keys, and another in half of them if a bit of the key is.
    #[test]
    fn every_bit_of_a_seeded_hash_depends_on_every_bit_of_the_key() {
        let seed = Seed::new(1);
        for bit in 0..104 {
            let (mut ones, mut flips) = ([0u32; 64], [0u32; 64]);
            for i in 0..4000u64 {
                let mut key = [0; 13];
                key[..8].copy_from_slice(&i.to_le_bytes());
                let one = seed.hash64(&key).get();
                key[bit / 8] ^= 1 << (bit % 8);
                let other = seed.hash64(&key).get();
                for at in 0..64 {
                    ones[at] += (one >> at & 1) as u32;
                    flips[at] += ((one ^ other) >> at & 1) as u32;
                }
            }
            let even = |count: &u32| (1750..2250).contains(count);
            assert!(ones.iter().chain(&flips).all(even), "{bit}: {ones:?} {flips:?}");
        }
    }

    #[test]
    fn seeded_hashes_differ_by_seed_by_length_and_by_order() {
        let hash = |seed, key: &[u8]| Seed::new(seed).hash64(key);
        let keys: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\0\0",
            b"\0\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0",
            b"ab",
            b"ba",
            b"abcdefgh12345678",
            b"12345678abcdefgh",
        ];
        for (i, a) in keys.iter().enumerate() {
            assert_ne!(hash(1, a), hash(2, a));
            keys[..i].iter().for_each(|b| assert_ne!(hash(1, a), hash(1, b), "{a:?} {b:?}"));
        }
        assert_ne!(Seed::new(1).hash64(&(1u32, 2u32)), Seed::new(1).hash64(&(2u32, 1u32)));
    }

    #[test]
    fn slices_are_the_same_bits() {
        let bits = [0, 1, u64::MAX];
        let hashes = Hash64::slice(&bits);
        assert!(hashes.iter().map(|hash| hash.get()).eq(bits));
        assert_eq!(hashes[1], Hash64::new(1));
        assert_eq!(Hash64::mix(1).get(), mix(1));
        assert!(Hash64::slice(&[]).is_empty());
    }

    #[test]
    fn both_words_of_a_wide_key_count_and_the_seed_does() {
        let hasher = Hasher::new(1);
        assert_ne!(hasher.hash(2, 1, 2), hasher.hash(2, 2, 1));
        assert_ne!(hasher.hash(2, 1, 2), hasher.hash(2, 1, 3));
        assert_ne!(hasher.hash(1, 1, 0), Hasher::new(2).hash(1, 1, 0));
        assert_eq!(hasher.hash(1, 7, 0), hasher.hash_words(&[7]));
        assert_eq!(hasher.hash(2, 7, 8), hasher.hash_words(&[7, 8]));
        assert_ne!(hasher.hash_words(&[1, 2, 3, 4]), hasher.hash_words(&[1, 2, 3, 5]));
    }

    #[test]
    fn files_written_before_hash_alike() {
        // An image of a table keeps its seed and the slots of its entries: these may not change.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(Hasher::new(0).secrets, [mix(0), 0x6e78_9e6a_a1b9_65f4]);
    }
}
