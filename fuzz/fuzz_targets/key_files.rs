//! Any bytes as a file of keys for `overbank aside`, beside a naive reader of lines. What is broken
//! is named, by a text of bounded length.
//!
//! Input: the file.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The file alone: its crate has databases in C.
#[path = "../../crates/products/src/aside/keys.rs"]
mod keys;

use keys::{KeysError, SHOWN_MAX, binary, text};

fuzz_target!(|data: &[u8]| {
    let lines = || data.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let meant = || lines().filter(|line| !line.is_empty() && line[0] != b'#');
    let right: Vec<u64> = meant().filter_map(number).collect();
    let wrong = meant().count() - right.len();
    match text(data) {
        Ok(read) => assert_eq!((read, wrong), (right, 0)),
        Err(error) => {
            check(&error);
            match error {
                KeysError::Empty => assert_eq!(meant().count(), 0),
                KeysError::Lines { total, shown } => {
                    assert_eq!((total, shown.len()), (wrong, wrong.min(SHOWN_MAX)));
                    for (at, _) in shown {
                        let line = lines().nth(at - 1).expect("a line");
                        assert!(number(line).is_none(), "{line:?}");
                    }
                }
                KeysError::Length(_) => panic!("not of text"),
            }
        }
    }
    match binary(data) {
        Ok(read) => {
            assert_eq!(read.iter().flat_map(|key| key.to_le_bytes()).collect::<Vec<_>>(), data)
        }
        Err(error) => check(&error),
    }
});

/// A number digit by digit.
fn number(line: &[u8]) -> Option<u64> {
    let (digits, radix) = line.strip_prefix(b"0x").map_or((line, 10), |digits| (digits, 16u64));
    let (first, rest) = digits.split_first()?;
    rest.iter().chain([first]).all(u8::is_ascii_hexdigit).then_some(())?;
    let digit = |byte: &u8| char::from(*byte).to_digit(radix as u32).map(u64::from);
    rest.iter()
        .try_fold(digit(first)?, |sum, byte| sum.checked_mul(radix)?.checked_add(digit(byte)?))
}

fn check(error: &KeysError) {
    let shown = error.to_string();
    assert!(!shown.is_empty() && shown.len() < 10_000 && shown.lines().count() <= SHOWN_MAX + 2);
}
