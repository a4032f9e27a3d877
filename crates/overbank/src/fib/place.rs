//! Where a key may live: its home bucket and its second bucket.
//!
//! ```text
//!  hash, 64 bits   │ home: high 32 bits × buckets / 2³² │ second: low 32 bits × buckets / 2³² │
//! ```
//!
//! The hash folds two or three 128-bit products with secrets made from the table's seed. Whoever
//! does not know the seed cannot choose keys that crowd one bucket; it is no cryptographic promise.

/// The hash function of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    secrets: [u64; 2],
}

/// Where a key may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) home: u32,
    pub(super) second: u32,
}

/// Odd, and without visible pattern (digits of π).
const K: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1];

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Hasher {
    pub(super) fn new(seed: u64) -> Self {
        // Two steps of SplitMix64.
        let secret = |step: u64| {
            let mut z = seed.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        Self { secrets: [secret(1), secret(2)] }
    }

    /// The hash of a key of `words` words.
    #[inline(always)]
    pub(super) fn hash(&self, words: usize, low: u64, high: u64) -> u64 {
        let [a, b] = self.secrets;
        let mut hash = fold(low ^ a, K[0]);
        if words == 2 {
            hash = fold(hash ^ high, K[2]);
        }
        fold(hash ^ b, K[1])
    }
}

#[inline(always)]
fn scale(bits: u64, buckets: u32) -> u32 {
    (((bits & 0xffff_ffff) * u64::from(buckets)) >> 32) as u32
}

/// A key's home, and what of its hash says where its second bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) bucket: u32,
    rest: u32,
}

impl Home {
    #[inline(always)]
    pub(super) fn of(hash: u64, buckets: u32) -> Home {
        Home { bucket: scale(hash >> 32, buckets), rest: hash as u32 }
    }

    /// The key's second bucket, another one than its home.
    #[inline(always)]
    pub(super) fn second(self, buckets: u32) -> u32 {
        let second = scale(u64::from(self.rest), buckets);
        let next = if second + 1 == buckets { 0 } else { second + 1 };
        if second == self.bucket { next } else { second }
    }
}

/// The buckets of a key with this hash. Both are less than `buckets`, which is 2 at least, and they
/// differ.
#[inline(always)]
pub(super) fn place(hash: u64, buckets: u32) -> Place {
    let home = Home::of(hash, buckets);
    Place { home: home.bucket, second: home.second(buckets) }
}

impl Place {
    /// The other one of the key's buckets.
    #[inline(always)]
    pub(super) fn other(self, bucket: u32) -> u32 {
        if bucket == self.home { self.second } else { self.home }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn both_buckets_are_in_range_and_differ() {
        let hasher = Hasher::new(1);
        for buckets in [2, 3, 5, 64, 1000, 1 << 29] {
            for key in 0..5000 {
                let place = place(hasher.hash(1, key, 0), buckets);
                assert!(place.home < buckets && place.second < buckets);
                assert_ne!(place.home, place.second);
                assert_eq!(place.other(place.home), place.second);
                assert_eq!(place.other(place.second), place.home);
            }
        }
        assert_eq!(place(u64::MAX, 7), Place { home: 6, second: 0 });
    }

    #[test]
    fn keys_in_a_row_spread_evenly() {
        // Keys that differ in few bits, each kind over 256 buckets of 64 keys on average.
        let kinds: [fn(u64) -> u64; 4] = [|i| i, |i| i << 12, |i| i << 34, |i| i * 0x0101_0101];
        for (kind, key) in kinds.into_iter().enumerate() {
            for seed in 0..4 {
                let hasher = Hasher::new(seed);
                let (mut homes, mut seconds, mut pairs) = ([0u32; 256], [0u32; 256], [0u32; 256]);
                for i in 0..256 * 64 {
                    let p = place(hasher.hash(1, key(i), 0), 256);
                    homes[p.home as usize] += 1;
                    seconds[p.second as usize] += 1;
                    pairs[(p.home ^ p.second.rotate_left(4) ^ p.second >> 4) as usize % 256] += 1;
                }
                for counts in [homes, seconds, pairs] {
                    // Chi squared over 255 degrees of freedom: 255 ± 23.
                    let chi: f64 =
                        counts.iter().map(|&n| (f64::from(n) - 64.0).powi(2) / 64.0).sum();
                    assert!(chi < 400.0, "kind {kind}, seed {seed}: {chi}");
                }
            }
        }
        // Both words of a wide key count, and the seed does.
        let hasher = Hasher::new(1);
        assert_ne!(hasher.hash(2, 1, 2), hasher.hash(2, 2, 1));
        assert_ne!(hasher.hash(2, 1, 2), hasher.hash(2, 1, 3));
        assert_ne!(hasher.hash(1, 1, 0), Hasher::new(2).hash(1, 1, 0));
    }
}
