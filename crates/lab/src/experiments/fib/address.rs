//! Addresses of numbers, all different, so that a billion of them need not be kept.
//!
//! ```text
//!  46 bits of the number, scattered by a bijection     6 bits │ 1 0 │ 40 bits
//!                                                             local, not a group
//! ```

use overbank::fib::MacAddr;

/// Numbers below this have addresses, all different.
const NUMBERS: u64 = 1 << 46;
/// From here on, numbers are of addresses that no table has.
const ABSENT: u64 = 1 << 45;

/// Returns the unicast address of a number below 2⁴⁵. Never zero.
#[inline(always)]
pub(in crate::experiments) fn address(number: u64) -> MacAddr {
    let mask = NUMBERS - 1;
    // Each step can be undone: odd factors, and shifts by half of the bits.
    let x = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
    let x = x ^ x >> 23;
    let x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
    let x = x ^ x >> 23;
    let (high, low) = (x >> 40, x & ((1 << 40) - 1));
    let [_, _, a, b, c, d, e, f] = (high << 42 | 0b10 << 40 | low).to_be_bytes();
    MacAddr::from_bytes([a, b, c, d, e, f])
}

/// Returns the address of a number below 2⁴⁵ that no table has.
#[inline(always)]
pub(super) fn absent(number: u64) -> MacAddr {
    address(number + ABSENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_and_are_unicast() {
        let numbers = (0..200_000).chain((1 << 45) - 200_000..1 << 45);
        let mut all: Vec<MacAddr> = numbers.flat_map(|n| [address(n), absent(n)]).collect();
        assert!(all.iter().all(|key| key.to_bytes()[0] & 3 == 2));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        // Every bit that may vary does, about half of the time.
        for bit in (0..48).filter(|bit| ![40, 41].contains(bit)) {
            let ones = all.iter().filter(|key| key.get() >> bit & 1 == 1).count();
            assert!((count * 49 / 100..count * 51 / 100).contains(&ones), "bit {bit}: {ones}");
        }
    }
}
