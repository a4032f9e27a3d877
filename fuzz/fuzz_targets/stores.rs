//! Any bytes as a batch, a snapshot or a message of a cluster: an error of one line, or a value
//! that has the same bytes again after a second reading.
//!
//! Input: which of them (1 byte), bytes behind the version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_stores::bytes::{
    BytesError, of_batch, of_message, of_snapshot, to_batch, to_message, to_snapshot,
};

const PARTITIONS: u16 = 8;

fuzz_target!(|data: &[u8]| {
    let [what, rest @ ..] = data else { return };
    let mut bytes = vec![1];
    bytes.extend(rest);
    let again: fn(&[u8]) -> Result<Vec<u8>, BytesError> = match what % 3 {
        0 => |bytes| to_batch(bytes, PARTITIONS).and_then(|(n, batch)| of_batch(n, &batch)),
        1 => |bytes| to_snapshot(bytes, PARTITIONS).and_then(|(s, at)| of_snapshot(&s, at)),
        _ => |bytes| to_message(bytes).and_then(|(from, message)| of_message(from, &message)),
    };
    match again(&bytes) {
        Ok(first) => assert_eq!(again(&first).expect("its own bytes"), first),
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && message.lines().count() == 1, "{message:?}");
        }
    }
});
