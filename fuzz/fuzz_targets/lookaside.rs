//! Runs bytes as operations on a look-aside table, beside a naive index that must answer the same.
//!
//! Input: which table and types (1 byte), then what the twin reads: size and start (1 byte), then
//! operations.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank::lookaside::twin::{Types, live, versioned};

const NARROW: Types<u64, u64> =
    Types { key: |key| u64::from(key), value: |value| u64::from(value) };
const WIDE: Types<[u64; 4], [u64; 8]> = Types {
    key: |key| [7, u64::from(key), 0, u64::from(key) << 60],
    value: |value| core::array::from_fn(|word| u64::from(value) << word),
};

fuzz_target!(|data: &[u8]| {
    let [which, bytes @ ..] = data else { return };
    match which % 4 {
        0 => live(&NARROW, bytes),
        1 => versioned(&NARROW, bytes),
        2 => live(&WIDE, bytes),
        _ => versioned(&WIDE, bytes),
    };
});
