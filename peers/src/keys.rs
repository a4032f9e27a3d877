//! Keys: flow ids as a table sees them.

use overbank_kit::traffic::Traffic;

use crate::table::Key;

/// Returns the 5-tuple of a built-in flow, padded with zeros.
#[inline]
pub fn key_of(id: u32) -> Key {
    let flow = Traffic::default().flow_tuple(id);
    let mut key = [0; 16];
    key[0..4].copy_from_slice(&flow.nw_src.to_be_bytes());
    key[4..8].copy_from_slice(&flow.nw_dst.to_be_bytes());
    key[8..10].copy_from_slice(&flow.tp_src.to_be_bytes());
    key[10..12].copy_from_slice(&flow.tp_dst.to_be_bytes());
    key[12] = 17;
    key
}

/// Returns the value of a flow: 1 to 32767, which `rte_member` can hold.
#[inline]
pub fn value_of(id: u32) -> u16 {
    (id % 0x7fff) as u16 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn flows_have_keys_of_their_own() {
        let keys: HashSet<Key> = (0..100_000).map(key_of).collect();
        assert_eq!(keys.len(), 100_000);
        assert!((0..200_000).all(|id| (1..0x8000).contains(&value_of(id))));
        assert_eq!((value_of(0), value_of(0x7ffe), value_of(0x7fff)), (1, 0x7fff, 1));
    }
}
