//! Edits any bytes as a frame: only tags change its length, written values read back, nothing
//! panics.
//!
//! Input: number of edits (1 byte), edits (18 bytes each: edit, field, value), frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_wire::{Field, FlowKey, FrameBuf, edit_key, extract};

const EDIT_LEN: usize = 18;
const EDITS_MAX: usize = 40;

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else { return };
    let count = (usize::from(count) % (EDITS_MAX + 1)).min(rest.len() / EDIT_LEN);
    let (edits, frame) = rest.split_at(count * EDIT_LEN);
    let mut key = FlowKey::default();
    let Ok(offsets) = extract(frame, 1, &mut key) else { return };
    let mut buf = FrameBuf::new();
    buf.load(frame, offsets).expect("a fuzz input is shorter than the longest frame");
    let mut len = frame.len();
    for edit in edits.chunks_exact(EDIT_LEN) {
        let value = u128::from_be_bytes(edit[2..].try_into().expect("16 bytes"));
        match edit[0] % 5 {
            0 => {
                len += 4 * usize::from(buf.push_vlan(if value & 1 == 0 { 0x8100 } else { 0x88a8 }))
            }
            1 => len -= 4 * usize::from(buf.pop_vlan()),
            2 => {
                let _ = buf.dec_ttl(); // An expired TTL is a result, not a fault.
            }
            _ => {
                let field = Field::ALL[usize::from(edit[1]) % Field::ALL.len()];
                let before = buf.as_slice().to_vec();
                if !buf.set_field(field, value, field.all_ones()) {
                    assert_eq!(buf.as_slice(), before, "{field:?} refused, and the frame changed");
                } else if let Some(mask) = read_back(field) {
                    let mut now = FlowKey::default();
                    let found = extract(buf.as_slice(), 1, &mut now).expect("still a frame");
                    // A third tag hides the headers from extraction, not from the buffer.
                    if found == buf.offsets() {
                        assert_eq!(field.get(&now) & mask, value & mask, "{field:?}");
                    }
                }
            }
        }
        assert_eq!(buf.as_slice().len(), len);
    }
});

/// Returns the bits of a field that extraction must read back. Fields that change the meaning of
/// the rest of the frame have none.
fn read_back(field: Field) -> Option<u128> {
    match field {
        Field::Icmp6Type | Field::Icmp6Code => None,
        _ => Some(edit_key::write_mask(field)),
    }
}
