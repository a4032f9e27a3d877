//! Extracts any bytes as a frame: a key or a named reason, and offsets within the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_wire::{DropReason, FlowKey, extract};

fuzz_target!(|frame: &[u8]| {
    // The key's old content must not show.
    let mut key = FlowKey { reserved: 7, nw_src: 7, nd_target: [7; 16], ..FlowKey::default() };
    match extract(frame, 3, &mut key) {
        Err(reason) => {
            assert_eq!(reason, DropReason::TruncatedEthernet);
            assert!(frame.len() < 14);
        }
        Ok(offsets) => {
            assert!(frame.len() >= 14);
            let l3 = usize::from(offsets.l3);
            let (l4, end) = (offsets.l4 as usize, offsets.end as usize);
            assert!(l3 <= frame.len() && end <= frame.len(), "{offsets:?}");
            assert!(l4 == 0 || (l3 < l4 && l4 <= end), "{offsets:?}");
            assert!(offsets.tags <= 2, "{offsets:?}");
            assert_eq!(key.in_port, 3);
        }
    }
    assert_eq!(key.reserved, 0);
    let mut again = FlowKey::default();
    let _ = extract(frame, 3, &mut again); // Only the key is compared.
    assert_eq!(again, key);
});
