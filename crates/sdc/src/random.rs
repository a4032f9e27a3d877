//! Random choices that a seed determines.

/// Marsaglia's xorshift generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator; any seed is fine.
    pub fn new(seed: u64) -> Random {
        // Zero would stay zero.
        Random(crate::address::hash64shift(seed) | 1)
    }

    /// Returns the next number, uniform from 0 to n − 1; 0 if n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = crate::address::xorshift(self.0);
        ((u128::from(self.0) * n as u128) >> 64) as usize
    }
}
