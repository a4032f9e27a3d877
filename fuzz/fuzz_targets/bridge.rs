//! Parses any bytes as a frame: the bridge, a naive twin and the full extraction must agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_wire::bridge::Header;
use overbank_wire::{FlowKey, extract};

fuzz_target!(|frame: &[u8]| {
    let header = Header::of(frame);
    let mut key = FlowKey::default();
    assert_eq!(extract(frame, 0, &mut key).is_ok(), header.is_some());
    assert_eq!(header.is_some(), frame.len() >= 14);
    let Some(header) = header else { return };
    assert_eq!((header.dst, header.src), (key.dl_dst, key.dl_src));
    assert_eq!(header.vlan, key.vlan_tci & 0xfff);

    assert_eq!(header.dst, frame[..6]);
    assert_eq!(header.src, frame[6..12]);
    // A truncated tag, type of the payload included, does not count.
    let tagged =
        frame.len() >= 18 && [[0x81, 0x00], [0x88, 0xa8]].iter().any(|t| *t == frame[12..14]);
    let vlan = if tagged { u16::from(frame[14] % 16) * 256 + u16::from(frame[15]) } else { 0 };
    assert_eq!(header.vlan, vlan);
    assert_eq!(header.to_group(), frame[0] % 2 == 1);
    let reserved = (0..16).any(|last| frame[..6] == [0x01, 0x80, 0xc2, 0x00, 0x00, last]);
    assert_eq!(header.to_reserved(), reserved);
    assert!(header.to_group() || !reserved);
    let zero = frame[6..12].iter().all(|&byte| byte == 0);
    assert_eq!(header.from_station(), frame[6] & 1 == 0 && !zero);
});
