//! Reads any bytes as requests of memcached's clients, and as replies of its servers: the scanners
//! agree with naive readers of the whole, in whatever pieces the bytes arrive.
//!
//! Input: kind (1 byte), room or length of a piece (2 bytes), bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_wire::memcached::{Flags, KEY_MAX, decode_key};

#[path = "../../crates/wire/src/testing/memcached.rs"]
mod naive;

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, room, step], bytes)) = data.split_first_chunk() else { return };
    let cuts = || (0..bytes.len()).step_by(usize::from(step) + 1);
    match kind % 3 {
        0 => {
            let whole = naive::naive_requests(bytes);
            assert_eq!(naive::scan_requests(bytes, [], usize::MAX), whole);
            assert_eq!(naive::scan_requests(bytes, cuts(), usize::MAX), whole);
            assert_eq!(naive::scan_requests(bytes, cuts(), room.into()), whole);
        }
        1 => {
            let whole = naive::naive_replies(bytes);
            assert_eq!(naive::scan_replies(bytes, []), whole);
            assert_eq!(naive::scan_replies(bytes, cuts()), whole);
        }
        _ => {
            let words = bytes.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
            assert!(Flags::new(bytes).map(|(flag, _)| flag).eq(words.map(|word| word[0])));
            if let Some(key) = decode_key(bytes, &mut [0; KEY_MAX]) {
                assert!(key.len() <= bytes.len() / 4 * 3);
            }
        }
    }
});
