//! The headers that an Ethernet bridge reads: the two addresses and the outer VLAN tag.
//!
//! ```text
//!  0         6         12     14    16
//!  | dl_dst  | dl_src  | tpid | tci | …      tpid: 0x8100 or 0x88a8, or there is no tag
//! ```
//!
//! Reads only the first 18 bytes of a frame, where [`crate::extract()`] reads all headers; both
//! agree on every frame. Cost: one cache line. Panics: none.

use crate::proto::ethernet::{HEADER_LEN, TYPE, is_tpid};
use crate::proto::{array, be16, chunk};

/// Addresses that no bridge forwards, 01:80:c2:00:00:0x (IEEE 802.1D, table 7-10).
const RESERVED: [u8; 5] = [0x01, 0x80, 0xc2, 0, 0];

/// Addresses and VLAN of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Destination.
    pub dst: [u8; 6],
    /// Source.
    pub src: [u8; 6],
    /// VLAN of the outer tag, 0 to 4095; 0 if untagged or priority-tagged.
    pub vlan: u16,
}

impl Header {
    /// Reads a frame; returns `None` without a whole Ethernet header.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Header> {
        let header: &[u8; HEADER_LEN] = frame.first_chunk()?;
        let vlan = match chunk::<6>(frame, TYPE) {
            Some(tag) if is_tpid(be16(tag, 0)) => be16(tag, 2) & 0xfff,
            _ => 0,
        };
        Some(Header { dst: array(header, 0), src: array(header, 6), vlan })
    }

    /// Returns whether the destination is a group: multicast or broadcast.
    #[inline]
    pub const fn to_group(&self) -> bool {
        self.dst[0] & 1 != 0
    }

    /// Returns whether no bridge forwards the destination: spanning tree, pause, link aggregation,
    /// LLDP and others of one link.
    #[inline]
    pub fn to_reserved(&self) -> bool {
        self.dst[..5] == RESERVED && self.dst[5] < 16
    }

    /// Returns whether the source can be that of a station: no group, and not zero.
    #[inline]
    pub fn from_station(&self) -> bool {
        self.src[0] & 1 == 0 && self.src != [0; 6]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowKey, extract};
    use proptest::prelude::*;

    proptest! {
        /// The same addresses and VLAN as the full extraction, whatever the bytes.
        #[test]
        fn agrees_with_extraction(
            mut frame in proptest::collection::vec(any::<u8>(), 0..40),
            tpid in prop_oneof![Just(0x8100u16), Just(0x88a8), Just(0x9100), Just(0x0800)],
        ) {
            if let Some(at) = frame.get_mut(12..14) {
                at.copy_from_slice(&tpid.to_be_bytes());
            }
            let mut key = FlowKey::default();
            match (Header::of(&frame), extract(&frame, 0, &mut key)) {
                (Some(header), Ok(_)) => {
                    prop_assert_eq!((header.dst, header.src), (key.dl_dst, key.dl_src));
                    prop_assert_eq!(header.vlan, key.vlan_tci & 0xfff);
                }
                (None, Err(_)) => {}
                (header, offsets) => prop_assert!(false, "{header:?} {offsets:?}"),
            }
        }
    }

    #[test]
    fn groups_and_reserved_addresses() {
        let mut frame = [0; 60];
        let mut of = |dst: [u8; 6], src: [u8; 6]| {
            frame[..6].copy_from_slice(&dst);
            frame[6..12].copy_from_slice(&src);
            Header::of(&frame).expect("long enough")
        };
        let host = [2, 0, 0, 0, 0, 1];
        for (dst, group, reserved) in [
            ([0xff; 6], true, false),
            ([1, 0x80, 0xc2, 0, 0, 0], true, true),
            ([1, 0x80, 0xc2, 0, 0, 15], true, true),
            ([1, 0x80, 0xc2, 0, 0, 16], true, false),
            ([1, 0x80, 0xc2, 0, 1, 0], true, false),
            (host, false, false),
        ] {
            let header = of(dst, host);
            assert_eq!((header.to_group(), header.to_reserved()), (group, reserved), "{dst:?}");
        }
        assert!(of(host, host).from_station());
        assert!(!of(host, [3, 0, 0, 0, 0, 1]).from_station() && !of(host, [0; 6]).from_station());
        assert_eq!(Header::of(&[0; 13]), None);
    }
}
