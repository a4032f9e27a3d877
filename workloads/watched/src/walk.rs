//! Reads of an array: a loop that touches nothing else, so that other simulators count the same.

/// Reads as many words as `accesses`, and returns their sum. The words are a power of two, at least
/// two.
///
/// The state is a number of 64 bits, at first 0, then `state × multiplier + step`; its highest bits
/// are the index of the word.
#[inline(never)]
pub fn walk(words: &[u64], multiplier: u64, step: u64, accesses: u64) -> u64 {
    let shift = 64 - words.len().trailing_zeros();
    let (mut state, mut sum) = (0u64, 0u64);
    for _ in 0..accesses {
        sum = sum.wrapping_add(words[(state >> shift) as usize]);
        state = state.wrapping_mul(multiplier).wrapping_add(step);
    }
    sum
}
