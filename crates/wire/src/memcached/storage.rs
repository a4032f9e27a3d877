//! Which data follows the line of a storage command: what memcached 1.6 reads, by its rules.

use super::{KEY_MAX, Verb, words};

/// Most words of an `ms` line.
const META_WORDS_MAX: usize = 19;

/// Returns the bytes of data that follow the line, with their line end. Returns nothing if
/// memcached refuses the line and reads on behind it.
pub(super) fn data_len(verb: Verb, line: &[u8]) -> Option<u64> {
    let count = words(line).take(META_WORDS_MAX + 1).count();
    let word = |at| words(line).nth(at).unwrap_or_default();
    let len_at = match verb {
        Verb::MetaSet => {
            (3..=META_WORDS_MAX).contains(&count).then_some(())?;
            2
        }
        _ => {
            let cas = usize::from(verb == Verb::Cas);
            (5 + cas..=6 + cas).contains(&count).then_some(())?;
            flags(word(2))?;
            integer(word(3))?;
            if cas == 1 {
                flags(word(5))?;
            }
            4
        }
    };
    if word(1).len() > KEY_MAX {
        return None;
    }
    // The server keeps the lower 32 bits.
    let len = integer(word(len_at))? as i32;
    (0..=i32::MAX - 2).contains(&len).then(|| len as u64 + 2)
}

/// C's `strtol`, of a word that ends behind the digits or goes on with space.
fn integer(word: &[u8]) -> Option<i64> {
    let (negative, digits) = digits(word)?;
    if negative { 0i64.checked_sub_unsigned(digits) } else { i64::try_from(digits).ok() }
}

/// C's `strtoul`, which negates; memcached refuses what is large and was negative.
fn flags(word: &[u8]) -> Option<u64> {
    let (negative, digits) = digits(word)?;
    let number = if negative { digits.wrapping_neg() } else { digits };
    (!negative || (number as i64) >= 0).then_some(number)
}

/// Returns whether a minus is in front, and the number.
fn digits(word: &[u8]) -> Option<(bool, u64)> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = word.iter().position(|byte| !is_space(byte))?;
    let (negative, word) = match &word[start..] {
        [b'-', word @ ..] => (true, word),
        [b'+', word @ ..] | word => (false, word),
    };
    let len = word.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(word.len());
    let ends = len > 0 && word.get(len).is_none_or(is_space);
    let number = std::str::from_utf8(&word[..len]).ok()?.parse().ok()?;
    ends.then_some((negative, number))
}
