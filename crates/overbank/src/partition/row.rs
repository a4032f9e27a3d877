//! The row of a key: the R pseudo-random bits that its value bits are parities of.
//!
//! A row is one (R = 64) or two (R = 128) folded 128-bit products of the key's hash and constants
//! of the seed: nothing linear over GF(2), so that keys with related hashes have independent rows.

/// Seeds of a group. The last one marks a group whose keys are in the fallback table.
pub(super) const SEEDS: usize = 15;

/// The row of a key, R bits.
pub(super) trait Row: Copy + Send + Sync + 'static {
    /// Bits of a row.
    const BITS: usize;

    /// The row of the key with this hash under this seed (at most [`SEEDS`]), all bits.
    fn new(hash: u64, seed: usize) -> Self;

    /// The lowest `unknowns` bits.
    fn masked(self, unknowns: usize) -> Self;

    /// Word `at` of the row, the low one first.
    fn limb(self, at: usize) -> u64;

    /// The parity of the row and the words of a plane.
    fn parity(self, words: [u64; 2]) -> u64;

    /// The sum over GF(2).
    #[cfg(test)]
    fn xor(self, other: Self) -> Self;
}

/// Secrets of the seeds: draws of SplitMix64, made odd.
const SECRETS: [[u64; 2]; SEEDS + 1] = {
    let mut secrets = [[0; 2]; SEEDS + 1];
    let mut at = 0;
    while at < secrets.len() {
        let first = crate::hash::mix(2 * at as u64 + 0x5e75);
        secrets[at] = [first | 1, crate::hash::mix(first) | 1];
        at += 1;
    }
    secrets
};

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Row for u64 {
    const BITS: usize = 64;

    #[inline(always)]
    fn new(hash: u64, seed: usize) -> u64 {
        let [a, b] = SECRETS[seed];
        fold(hash ^ a, b)
    }

    #[inline(always)]
    fn masked(self, unknowns: usize) -> u64 {
        self & u64::MAX >> (64 - unknowns)
    }

    #[inline(always)]
    fn limb(self, _: usize) -> u64 {
        self
    }

    #[inline(always)]
    fn parity(self, words: [u64; 2]) -> u64 {
        u64::from((self & words[0]).count_ones() & 1)
    }

    #[cfg(test)]
    fn xor(self, other: u64) -> u64 {
        self ^ other
    }
}

impl Row for u128 {
    const BITS: usize = 128;

    #[inline(always)]
    fn new(hash: u64, seed: usize) -> u128 {
        let [a, b] = SECRETS[seed];
        let low = fold(hash ^ a, b);
        let high = fold(hash ^ b, a);
        u128::from(high) << 64 | u128::from(low)
    }

    #[inline(always)]
    fn masked(self, unknowns: usize) -> u128 {
        self & u128::MAX >> (128 - unknowns)
    }

    #[inline(always)]
    fn limb(self, at: usize) -> u64 {
        (self >> (64 * at)) as u64
    }

    #[inline(always)]
    fn parity(self, words: [u64; 2]) -> u64 {
        let both = self as u64 & words[0] ^ (self >> 64) as u64 & words[1];
        u64::from(both.count_ones() & 1)
    }

    #[cfg(test)]
    fn xor(self, other: u128) -> u128 {
        self ^ other
    }
}
