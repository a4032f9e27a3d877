//! Hash functions that the tables share.
//!
//! - [`mix`] spreads a hash that the caller computed; without a seed.
//! - `Hasher` hashes keys of one or two words with a table's seed.
//!
//! All are a few multiplications, in registers.

/// Step between the states of SplitMix64: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads a hash over all 64 bits: the finaliser of SplitMix64, a bijection.
///
/// For callers whose hash is good in only 32 bits (a NIC's RSS hash, a CRC-32C): the tables take
/// the fingerprint from the low bits and the bucket from the high half.
#[inline(always)]
pub const fn mix(hash: u64) -> u64 {
    let hash = hash.wrapping_add(STEP);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
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

    #[test]
    fn both_words_of_a_wide_key_count_and_the_seed_does() {
        let hasher = Hasher::new(1);
        assert_ne!(hasher.hash(2, 1, 2), hasher.hash(2, 2, 1));
        assert_ne!(hasher.hash(2, 1, 2), hasher.hash(2, 1, 3));
        assert_ne!(hasher.hash(1, 1, 0), Hasher::new(2).hash(1, 1, 0));
    }

    #[test]
    fn files_written_before_hash_alike() {
        // An image of a table keeps its seed and the slots of its entries: these may not change.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(Hasher::new(0).secrets, [mix(0), 0x6e78_9e6a_a1b9_65f4]);
    }
}
