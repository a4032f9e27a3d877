//! Random operations beside naive indexes.

use std::vec::Vec;

use super::super::twin::{Types, live, versioned};
use crate::lookaside::Plain;
use crate::random::Pcg32;

const TWINS: u64 = 300;
const BYTES: usize = 6000;

fn bytes(seed: u64) -> Vec<u8> {
    let mut pcg = Pcg32::new(seed, 17);
    (0..BYTES).map(|_| pcg.draw() as u8).collect()
}

fn check<K: Plain, V: Plain + PartialEq + std::fmt::Debug>(types: Types<K, V>, twins: u64) {
    let run = |twin: fn(&Types<K, V>, &[u8]) -> u64| {
        (0..twins).map(|seed| twin(&types, &bytes(seed))).sum::<u64>()
    };
    let (live, versioned) = (run(live), run(versioned));
    assert!(live > 100 * twins && versioned > 10 * twins, "hits: {live}, {versioned}");
}

#[test]
fn words_answer_as_the_index_does() {
    check::<u64, u64>(Types { key: u64::from, value: u64::from }, TWINS);
}

#[test]
fn wide_keys_and_values_answer_as_the_index_does() {
    let key = |key: u8| [7, u64::from(key), 0, u64::from(key) << 60];
    let value = |value: u16| core::array::from_fn(|word| u64::from(value) << word);
    check::<[u64; 4], [u64; 8]>(Types { key, value }, TWINS / 10);
    let value = |value: u16| core::array::from_fn(|word| u64::from(value) + word as u64);
    check::<u128, [u64; 4]>(Types { key: u128::from, value }, TWINS / 10);
}

#[test]
fn bytes_answer_as_the_index_does() {
    let key = |key: u8| [key, 1, 2];
    let value =
        |value: u16| core::array::from_fn(|i| if i < 2 { value.to_le_bytes()[i] } else { 9 });
    check::<[u8; 3], [u8; 13]>(Types { key, value }, TWINS / 10);
}
