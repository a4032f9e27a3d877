//! Keys and values: functions of a number, so that no list of them is kept while lookups are
//! measured.

use overbank::hash::mix;

/// Returns the key of a number: random, and another one for each number.
pub fn key(number: u64) -> u64 {
    mix(number ^ 0x7061_7274_6974_696f)
}

/// Returns its value of `bits` bits.
pub fn value(number: u64, bits: u32) -> u8 {
    (mix(!number) & ((1 << bits) - 1)) as u8
}

/// Returns the hash of a key, as a data plane computes it for Overbank's tables: under a seed.
#[inline(always)]
pub fn hash(key: u64) -> u64 {
    mix(key ^ 0x6f76_6572_6261_6e6b)
}

/// Numbers of random keys.
pub struct Draws {
    keys: u64,
    state: u64,
}

impl Draws {
    pub fn new(keys: u64, seed: u64) -> Draws {
        Draws { keys, state: mix(seed) }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        ((u128::from(mix(self.state)) * u128::from(self.keys)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn keys_differ_and_values_are_spread() {
        let keys: HashSet<u64> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
        let ones = (0..100_000).filter(|&number| value(number, 4) >> 3 == 1).count();
        assert!((49_000..51_000).contains(&ones) && (0..1000).all(|n| value(n, 4) < 16));
        let mut draws = Draws::new(10, 1);
        let drawn: HashSet<u64> = (0..1000).map(|_| draws.next()).collect();
        assert_eq!(drawn, (0..10).collect());
    }
}
