//! Checksums, updated from the change rather than recomputed; those of new headers in full.
//!
//! - The Internet checksum after RFC 1624, equation 3: `~(~sum + ~old + new)`. A checksum that was
//!   wrong stays wrong by the same amount.
//! - SCTP's CRC32c. A CRC is linear: the checksums of two messages of equal length differ by the
//!   raw CRC of their difference. The cost does not depend on the message, and a wrong checksum
//!   stays wrong.

use crate::proto::array;

/// Returns the change of the ones' complement sum by a write: each old word's complement plus the
/// new word, folded to 16 bits. `old` and `new` are big-endian numbers of whole 16-bit words.
#[inline]
pub(crate) fn delta(mut old: u128, mut new: u128) -> u16 {
    let mut sum = 0u32;
    // At most eight words; most writes differ in the lowest one or two.
    while old != new {
        let (old_word, new_word) = (old as u16, new as u16);
        // Equal words add nothing: a sum of zero must mean "all words zero".
        if old_word != new_word {
            sum += u32::from(!old_word) + u32::from(new_word);
        }
        (old, new) = (old >> 16, new >> 16);
    }
    fold(sum)
}

/// Returns the stored checksum after a write that changed the sum by `delta`.
#[inline]
pub(crate) fn update(stored: u16, delta: u16) -> u16 {
    !fold(u32::from(!stored) + u32::from(delta))
}

/// Returns the ones' complement sum of big-endian words, unfolded; a last odd byte is padded with
/// zero. Sums add up, if all but the last are over an even number of bytes.
#[inline]
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    // 32-bit words into 64 bits: no carry is lost below 16 GiB, and the loop vectorises. The sum
    // does not depend on the byte order, and each part is folded before it is swapped.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum();
    if !rest.is_empty() {
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_ne_bytes(last));
    }
    u64::from(u16::from_be(fold_wide(sum)))
}

/// Returns whether the checksum of an IPv4 header without options is right.
#[inline(always)]
pub(crate) fn is_right(header: &[u8; 20]) -> bool {
    remainder(header) == 0
}

/// Returns the bytes of the checksum of an IPv4 header without options, in which it is 0.
#[inline(always)]
pub(crate) fn of_header(header: &[u8; 20]) -> [u8; 2] {
    // The folded sum of a header is never 0, so 0 stands for 0xffff.
    let sum = match remainder(header) {
        0 => 0xffff,
        sum => sum,
    };
    (!sum).to_ne_bytes()
}

/// Returns the sum of a header's words modulo 0xffff, in the machine's byte order: folding keeps
/// that number.
#[inline(always)]
fn remainder(header: &[u8; 20]) -> u16 {
    let word = |at| u64::from_ne_bytes(array(header, at));
    let last = u64::from(u32::from_ne_bytes(array(header, 16)));
    // 2^64 is 1 modulo 0xffff, so a carry counts 1. The last word leaves room for the first carry.
    let (sum, carry) = word(0).overflowing_add(word(8));
    let (sum, more) = sum.overflowing_add(last + u64::from(carry));
    ((sum % 0xffff + u64::from(more)) % 0xffff) as u16
}

/// Returns the checksum to store for a sum.
#[inline]
pub(crate) fn finish(sum: u64) -> u16 {
    !fold_wide(sum)
}

#[inline]
fn fold_wide(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    fold(sum as u32)
}

#[inline]
fn fold(mut sum: u32) -> u16 {
    sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Castagnoli's polynomial, bit-reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^(8·2^k) modulo the polynomial, for messages of up to 2^17 bytes.
const POWERS: [u32; 17] = {
    let mut powers = [0; 17];
    // Bit-reversed: bit 31 is x^0, so x^8 is bit 23.
    powers[0] = 1 << 23;
    let mut k = 1;
    while k < powers.len() {
        powers[k] = multiply(powers[k - 1], powers[k - 1]);
        k += 1;
    }
    powers
};

/// Returns the product of two bit-reversed polynomials, modulo Castagnoli's.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, 1 << 31);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
        bit >>= 1;
    }
    product
}

/// Returns the change of a message's CRC32c if a 32-bit big-endian word, followed by `following`
/// bytes, changes by `difference` (exclusive or). At most 17 multiplications.
pub(crate) fn crc32c_delta(difference: u32, following: usize) -> u32 {
    // A CRC takes bytes in order, each with its low bit first.
    let mut crc = multiply(difference.swap_bytes(), POWERS[2]);
    for (k, &power) in POWERS.iter().enumerate() {
        if following >> k & 1 != 0 {
            crc = multiply(crc, power);
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{crc32c, internet_checksum};
    use proptest::prelude::*;

    #[test]
    fn the_crc_of_the_standard_test_string() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn crc_deltas_agree_with_two_whole_crcs(
            before in prop::collection::vec(any::<u8>(), 0..20),
            old: u32, new: u32,
            after in prop::collection::vec(any::<u8>(), 0..3000),
        ) {
            let message = |word: u32| [&before[..], &word.to_be_bytes(), &after].concat();
            let expected = crc32c(&message(old)) ^ crc32c(&message(new));
            prop_assert_eq!(crc32c_delta(old ^ new, after.len()), expected);
        }

        #[test]
        fn sums_agree_with_word_by_word(
            first in prop::collection::vec(any::<u16>(), 0..40),
            last in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let first: Vec<u8> = first.iter().flat_map(|word| word.to_be_bytes()).collect();
            let expected = internet_checksum(&[&first[..], &last].concat());
            prop_assert_eq!(finish(sum(&first) + sum(&last)), expected);
        }

        #[test]
        fn headers_are_right_if_their_sum_is(mut header: [u8; 20], seal: bool, ones: u8) {
            header[0] |= 1;
            // Carries of either step.
            header.iter_mut().skip(1).take(usize::from(ones % 32)).for_each(|byte| *byte = 0xff);
            if seal {
                header[10..12].fill(0);
                let sum = internet_checksum(&header);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            prop_assert_eq!(is_right(&header), internet_checksum(&header) == 0);
            prop_assert_eq!(of_header(&header), internet_checksum(&header).to_be_bytes());
        }

        #[test]
        fn internet_updates_agree_with_a_recomputation(words: [u16; 8], old: u128, new: u128) {
            let message = |v: u128| {
                let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
                bytes[0] |= 1; // Like every real header, not all zero.
                bytes.extend(v.to_be_bytes());
                bytes
            };
            let stored = internet_checksum(&message(old));
            prop_assert_eq!(update(stored, delta(old, new)), internet_checksum(&message(new)));
        }
    }
}
