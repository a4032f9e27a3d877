//! PCG-32, the random numbers of the paper's policies (section 7.1, footnote 5).
//!
//! PCG-XSH-RR 64/32 by Melissa O'Neill: 64 bits of state, 32 bits a draw, one multiplication. Not
//! for secrets: an observer of the draws can predict them.

/// A PCG-XSH-RR 64/32 generator.
#[derive(Clone, Debug)]
pub struct Pcg32 {
    state: u64,
    increment: u64,
}

impl Pcg32 {
    const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

    /// Returns the generator of the reference code's `pcg32_srandom(seed, stream)`.
    pub const fn new(seed: u64, stream: u64) -> Self {
        let increment = (stream << 1) | 1;
        let state = increment.wrapping_add(seed);
        let state = state.wrapping_mul(Self::MULTIPLIER).wrapping_add(increment);
        Self { state, increment }
    }

    /// Draws the next 32 random bits.
    #[inline(always)]
    pub fn draw(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(Self::MULTIPLIER).wrapping_add(self.increment);
        ((((old >> 18) ^ old) >> 27) as u32).rotate_right((old >> 59) as u32)
    }

    /// Draws a number of `0..bound`, by multiply-shift: one draw, no division, no loop. The bias is
    /// at most `bound / 2^32`. A bound of 0 or 1 returns 0 and draws nothing.
    #[inline(always)]
    pub fn below(&mut self, bound: u32) -> u32 {
        if bound < 2 {
            return 0;
        }
        ((u64::from(self.draw()) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_reference_vectors() {
        // First round of pcg32-demo in the reference distribution: seed 42, stream 54.
        let mut pcg = Pcg32::new(42, 54);
        let drawn = [0; 6].map(|_| pcg.draw());
        let expected =
            [0xa15c_02b7, 0x7b47_f409, 0xba1d_3330, 0x83d2_f293, 0xbfa4_784b, 0xcbed_606e];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn below_is_even_and_in_range() {
        let mut pcg = Pcg32::new(1, 1);
        for bound in [2, 3, 8, 31, 32] {
            let mut seen = [0u32; 32];
            (0..bound * 1000).for_each(|_| seen[pcg.below(bound) as usize] += 1);
            let (inside, outside) = seen.split_at(bound as usize);
            assert!(inside.iter().all(|&n| (850..1150).contains(&n)), "{bound}: {seen:?}");
            assert!(outside.iter().all(|&n| n == 0));
        }
        assert_eq!((pcg.below(0), pcg.below(1)), (0, 0));
    }
}
