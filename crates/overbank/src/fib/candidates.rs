//! The two buckets that may hold a key: its home and its second one.
//!
//! ```text
//!  hash, 64 bits   │ home: high 32 bits × buckets / 2³² │ second: low 32 bits × buckets / 2³² │
//! ```
//!
//! The hash is that of [`Hasher`](crate::hash::Hasher).

/// The two buckets that may hold a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidates {
    pub(super) home: u32,
    pub(super) second: u32,
}

#[inline(always)]
fn scale(bits: u64, buckets: u32) -> u32 {
    (((bits & 0xffff_ffff) * u64::from(buckets)) >> 32) as u32
}

/// A key's home, and the part of its hash that determines its second bucket.
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

    /// Returns the key's second bucket, which differs from its home.
    #[inline(always)]
    pub(super) fn second(self, buckets: u32) -> u32 {
        let second = scale(u64::from(self.rest), buckets);
        let next = if second + 1 == buckets { 0 } else { second + 1 };
        if second == self.bucket { next } else { second }
    }
}

impl Candidates {
    /// Returns the buckets of a key with this hash. Both are below `buckets`, which is at least 2,
    /// and they differ.
    #[inline(always)]
    pub(super) fn of(hash: u64, buckets: u32) -> Candidates {
        let home = Home::of(hash, buckets);
        Candidates { home: home.bucket, second: home.second(buckets) }
    }

    /// Returns the other one of the key's buckets.
    #[inline(always)]
    pub(super) fn other(self, bucket: u32) -> u32 {
        if bucket == self.home { self.second } else { self.home }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::hash::Hasher;

    #[test]
    fn both_buckets_are_in_range_and_differ() {
        let hasher = Hasher::new(1);
        for buckets in [2, 3, 5, 64, 1000, 1 << 29] {
            for key in 0..5000 {
                let key = Candidates::of(hasher.hash(1, key, 0), buckets);
                assert!(key.home < buckets && key.second < buckets);
                assert_ne!(key.home, key.second);
                assert_eq!(key.other(key.home), key.second);
                assert_eq!(key.other(key.second), key.home);
            }
        }
        assert_eq!(Candidates::of(u64::MAX, 7), Candidates { home: 6, second: 0 });
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
                    let p = Candidates::of(hasher.hash(1, key(i), 0), 256);
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
    }
}
