//! Reads any bytes as requests of Redis' clients, and as replies of its servers: the scanners agree
//! with naive readers of the whole, in whatever pieces the bytes arrive. What is one whole reply is
//! translated to RESP2 and then does not change any more.
//!
//! Input: kind (1 byte), room or length of a piece (2 bytes), bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_wire::resp::{Limits, Null, to_resp2};

#[path = "../../crates/wire/src/testing/resp.rs"]
mod naive;

fuzz_target!(|data: &[u8]| {
    let Some((&[kind, room, step], bytes)) = data.split_first_chunk() else { return };
    let cuts = || (0..bytes.len()).step_by(usize::from(step) + 1);
    if kind % 2 == 0 {
        let limits = Limits { bulk_len_max: 1 << 16, unauthenticated: kind & 2 != 0 };
        let whole = naive::naive_requests(bytes, limits);
        assert_eq!(naive::scan_requests(bytes, [], usize::MAX, limits), whole);
        assert_eq!(naive::scan_requests(bytes, cuts(), usize::MAX, limits), whole);
        let streamed = naive::scan_requests(bytes, cuts(), room.into(), limits);
        assert_eq!(naive::without_long(whole, &streamed), streamed);
    } else {
        let whole = naive::naive_replies(bytes);
        assert_eq!(naive::scan_replies(bytes, []), whole);
        assert_eq!(naive::scan_replies(bytes, cuts()), whole);
        if let Some(old) = to_resp2(bytes, Null::Array) {
            assert_eq!(to_resp2(&old, Null::Array).as_ref(), Some(&old));
            assert_eq!(naive::scan_replies(&old, []).replies.len(), 1);
        }
    }
});
