//! Addresses and ports computed from numbers: no list of keys in memory, and no pattern for a hash
//! to exploit.

use overbank::random::Pcg32;

const BITS: u64 = (1 << 48) - 1;
/// Odd factors of the two rounds.
const FACTORS: [u64; 2] = [0x5851_f42d_4c95, 0xda94_2042_e4dd];

/// Returns the Ethernet address of a number below 2⁴⁸: a bijection that looks random.
#[inline]
pub fn address(number: u64) -> u64 {
    let mut x = number & BITS;
    for factor in FACTORS {
        x ^= x >> 24;
        x = x.wrapping_mul(factor) & BITS;
    }
    x ^ x >> 24
}

/// Returns the port of that address.
#[inline]
pub fn port(number: u64) -> u16 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u16
}

/// Draws addresses of a table that holds the numbers below `entries`.
pub struct Draws {
    pcg: Pcg32,
    entries: u64,
}

impl Draws {
    /// Returns the sequence of a seed.
    pub fn new(entries: u64, seed: u64) -> Draws {
        Draws { pcg: Pcg32::new(seed, 48), entries }
    }

    /// Draws a number that the table holds.
    #[inline]
    pub fn present(&mut self) -> u64 {
        // 64 bits: the share of a number is even to one in 2³⁰.
        ((u128::from(self.draw()) * u128::from(self.entries)) >> 64) as u64
    }

    /// Draws a number that the table does not hold, out of 2⁴⁰.
    #[inline]
    pub fn absent(&mut self) -> u64 {
        self.entries + (self.draw() >> 24)
    }

    #[inline]
    fn draw(&mut self) -> u64 {
        u64::from(self.pcg.draw()) << 32 | u64::from(self.pcg.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Backwards through the rounds.
    fn number(address: u64) -> u64 {
        let mut x = address ^ address >> 24;
        for factor in FACTORS.into_iter().rev() {
            // Newton: each step doubles the bits that are right, from three on.
            let inverse = (0..5).fold(factor, |inverse, _| {
                inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse)))
            });
            x = x.wrapping_mul(inverse) & BITS;
            x ^= x >> 24;
        }
        x
    }

    #[test]
    fn addresses_have_one_number_each() {
        for x in (0..100_000).chain((0..100_000).map(|i| BITS - i * 0x7fff_ffff)) {
            assert!(address(x) <= BITS);
            assert_eq!(number(address(x)), x);
        }
    }

    #[test]
    fn addresses_spread() {
        // Neighbours differ in about half of their bits, at both ends of the address.
        let bits = |mask: u64| -> u32 {
            (0..1000).map(|x| ((address(x) ^ address(x + 1)) & mask).count_ones()).sum()
        };
        assert!((10_500..13_500).contains(&bits(0xff_ffff)));
        assert!((10_500..13_500).contains(&bits(0xff_ffff << 24)));
    }

    #[test]
    fn draws_keep_to_their_side() {
        let mut draws = Draws::new(1000, 7);
        let present: Vec<u64> = (0..10_000).map(|_| draws.present()).collect();
        assert!(present.iter().all(|&n| n < 1000));
        assert!((0..1000).all(|n| present.contains(&n)));
        assert!((0..10_000).all(|_| (1000..=1000 + (1 << 40)).contains(&draws.absent())));
    }
}
