//! Edits of frames against full recomputation, and against the same edits of the key.

use super::*;
use crate::edit_key;
use crate::extract::extract;
use crate::key::FlowKey;
use crate::testing::frames::{Built, mutated, valid};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Set(Field, u128, u128),
    Push(u16),
    Pop,
    DecTtl,
}

fn op() -> impl Strategy<Value = Op> {
    let value = prop_oneof![Just(0), Just(1), Just(u128::MAX), any::<u128>()];
    let mask = prop_oneof![2 => Just(u128::MAX), 1 => any::<u128>()];
    prop_oneof![
        8 => (prop::sample::select(Field::ALL), value, mask).prop_map(|(f, v, m)| Op::Set(f, v, m)),
        1 => prop::sample::select(vec![0x8100u16, 0x88a8, 0x9100]).prop_map(Op::Push),
        1 => Just(Op::Pop),
        1 => Just(Op::DecTtl),
    ]
}

fn apply(buf: &mut FrameBuf, op: Op) -> bool {
    match op {
        Op::Set(field, value, mask) => buf.set_field(field, value, mask),
        Op::Push(tpid) => buf.push_vlan(tpid),
        Op::Pop => buf.pop_vlan(),
        Op::DecTtl => buf.dec_ttl().is_ok(),
    }
}

fn apply_to_key(key: &mut FlowKey, op: Op) -> bool {
    match op {
        Op::Set(field, value, mask) => edit_key::set_field(key, field, value, mask),
        Op::Push(tpid) => edit_key::push_vlan(key, tpid),
        Op::Pop => edit_key::pop_vlan(key),
        Op::DecTtl => edit_key::dec_ttl(key).is_ok(),
    }
}

fn loaded(frame: &[u8]) -> Option<(FrameBuf, FlowKey)> {
    let mut key = FlowKey::default();
    let offsets = extract(frame, 1, &mut key).ok()?;
    let mut buf = FrameBuf::with_frame_len(64);
    buf.load(frame, offsets).unwrap();
    Some((buf, key))
}

/// What key and frame cannot agree on: a third tag, options that are not there, and becoming or
/// ceasing to be neighbour discovery.
fn beyond_the_key(key: &FlowKey, op: Op) -> bool {
    let mut after = *key;
    apply_to_key(&mut after, op);
    let nd = |key: &FlowKey| edit_key::has(Field::NdTarget, key);
    match op {
        Op::Push(_) => key.inner_tci != 0,
        Op::Set(Field::NdSll, ..) => key.arp_sha == [0; 6],
        Op::Set(Field::NdTll, ..) => key.arp_tha == [0; 6],
        _ => nd(key) != nd(&after),
    }
}

fn check_edits(built: &Built, ops: &[Op]) -> Result<(), TestCaseError> {
    let (mut buf, mut key) = loaded(&built.frame).unwrap();
    prop_assert_eq!(key, built.key);
    let mut shift = 0isize;
    for &op in ops {
        if beyond_the_key(&key, op) {
            continue;
        }
        let before = buf.as_slice().to_vec();
        let done = apply(&mut buf, op);
        prop_assert_eq!(done, apply_to_key(&mut key, op), "{:?}", op);
        shift += match op {
            Op::Push(_) if done => 4,
            Op::Pop if done => -4,
            _ => 0,
        };
        let mut extracted = FlowKey::default();
        let offsets = extract(buf.as_slice(), 1, &mut extracted).unwrap();
        prop_assert_eq!(extracted, key, "after {:?}", op);
        prop_assert_eq!(offsets, buf.offsets(), "after {:?}", op);
        prop_assert_eq!(buf.as_slice().len() as isize, built.frame.len() as isize + shift);
        if done {
            let sealed = built.reseal(buf.as_slice(), shift);
            prop_assert_eq!(buf.as_slice(), &sealed[..], "checksums after {:?}", op);
        } else {
            prop_assert_eq!(buf.as_slice(), &before[..], "refused {:?}", op);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn edits_keep_checksums_right_and_agree_with_the_key(
        built in valid(), ops in prop::collection::vec(op(), 1..8),
    ) {
        check_edits(&built, &ops)?;
    }

    /// Every writable field of the frame, so that none depends on the luck of the draw.
    #[test]
    fn every_field_of_a_frame_can_be_written(built in valid(), value: u128) {
        let ops: Vec<_> = Field::ALL.iter().map(|&f| Op::Set(f, value, u128::MAX)).collect();
        check_edits(&built, &ops)?;
    }

    #[test]
    fn broken_frames_and_foreign_offsets_never_panic(
        frame in mutated(), other in mutated(), ops in prop::collection::vec(op(), 1..12),
    ) {
        for (frame, offsets_of) in [(&frame, &frame), (&frame, &other)] {
            let Some((mut buf, mut key)) = loaded(offsets_of) else { continue };
            let offsets = buf.offsets();
            buf.load(frame, offsets).unwrap();
            for &op in &ops {
                let len = buf.as_slice().len();
                let done = apply(&mut buf, op);
                apply_to_key(&mut key, op);
                let grown = match op {
                    Op::Push(_) if done => 4,
                    Op::Pop if done => -4,
                    _ => 0,
                };
                prop_assert_eq!(buf.as_slice().len() as isize, len as isize + grown);
            }
        }
    }

    #[test]
    fn has_depends_on_nothing_outside_its_mask(built in valid(), other: [u64; crate::key::WORDS]) {
        for &field in Field::ALL {
            let mask = edit_key::has_mask(field);
            let mut noise = FlowKey::default();
            *noise.words_mut() = other;
            let changed = built.key.masked(&mask).or(&noise.and_not(&mask));
            prop_assert_eq!(edit_key::has(field, &changed), edit_key::has(field, &built.key));
        }
    }
}

/// Returns Ethernet, then `rest` given as hex.
fn frame(rest: &str) -> Vec<u8> {
    let hex: String = rest.split_whitespace().collect();
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame
        .extend((0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()));
    frame
}

#[test]
fn an_icmp_message_that_becomes_all_zero_keeps_a_checksum_that_verifies() {
    // Echo request with identifier and sequence 0: type 8 is the only thing that is not zero.
    let bytes = frame("0800 4500 001c 0000 4000 4001 66cf 0a000001 0a000002 0800 f7ff 0000 0000");
    let (mut buf, _) = loaded(&bytes).unwrap();
    assert!(buf.set_field(Field::IcmpType, 0, 0xff));
    assert_eq!(buf.as_slice()[36..38], [0xff, 0xff]);
}

#[test]
fn every_value_of_a_word_gives_the_checksum_of_a_recomputation() {
    // Among all values are those that make a sum of zero, which UDP writes as 0xffff.
    let udp = frame("0800 4500 001d 0000 4000 4011 0000 0a000001 0a000002 0001 0002 0009 0001 77");
    let tcp = frame(
        "0800 4500 0029 0000 4000 4006 0000 0a000001 0a000002
         0001 0002 00000001 00000002 5e12 0100 0000 0000 77",
    );
    for (bytes, field) in [(&udp, Field::UdpSrc), (&tcp, Field::TcpDst), (&udp, Field::NwDst)] {
        let (buf, key) = loaded(bytes).unwrap();
        let (l3, l4) = (buf.offsets().l3.into(), buf.offsets().l4 as usize);
        let l4 = Some((l4, key.nw_proto));
        let built = Built { key, l3, l4, end: bytes.len(), ..Built::default() };
        let (mut buf, _) = loaded(&built.reseal(bytes, 0)).unwrap();
        let mut none = 0;
        for value in 0..=0xffff {
            assert!(buf.set_field(field, value, 0xffff));
            assert_eq!(buf.as_slice(), built.reseal(buf.as_slice(), 0), "{field:?} = {value:x}");
            none += u32::from(buf.as_slice()[40..42] == [0xff, 0xff]);
        }
        assert_eq!(none > 0, key.nw_proto == 17, "UDP meets 0xffff, bytes 6 and 7 of TCP do not");
    }
}

/// Extraction takes no TCP header whose data offset cannot be, and no ICMPv6 message cut short
/// behind its checksum. Both have a right checksum, which covers the addresses.
#[test]
fn a_broken_transport_header_keeps_a_right_checksum() {
    let tcp = frame(
        "0800 4500 0029 0000 4000 4006 0000 0a000001 0a000002
         0001 0002 00000001 00000002 5012 0100 0000 0000 77",
    );
    let icmp6 = frame(
        "86dd 60000000 0006 3a40 fd000000000000000000000000000001
         fd000000000000000000000000000002 80000000 1234",
    );
    let tcp6 = frame(
        "86dd 60000000 001c 0040 fd000000000000000000000000000001
         fd000000000000000000000000000002 0600010400000000
         0001 0002 00000001 00000002 3012 0100 0000 0000",
    );
    let offset_of = |mut tcp: Vec<u8>, words: u8| {
        tcp[46] = words << 4 | 2;
        tcp
    };
    for (bytes, l4, proto) in [
        (offset_of(tcp.clone(), 3), 34, 6),
        (offset_of(tcp, 15), 34, 6),
        (tcp6, 62, 6),
        (icmp6, 54, 58),
    ] {
        let (buf, key) = loaded(&bytes).unwrap();
        assert_eq!((key.nw_proto, buf.offsets().transport), (proto, Transport::None));
        let (l3, l4) = (buf.offsets().l3.into(), Some((l4, proto)));
        let built = Built { key, l3, l4, end: bytes.len(), ..Built::default() };
        let (mut buf, _) = loaded(&built.reseal(&bytes, 0)).unwrap();
        for field in [Field::NwSrc, Field::NwDst, Field::Ipv6Src, Field::Ipv6Dst, Field::NwTtl] {
            buf.set_field(field, 0x0102_0304_0506_0708, u128::MAX);
            assert_eq!(buf.as_slice(), built.reseal(buf.as_slice(), 0), "{field:?} over {proto}");
        }
        assert_ne!(buf.as_slice(), built.reseal(&bytes, 0));
    }
}

#[test]
fn a_tag_keeps_its_dei_bit_and_a_pushed_one_has_none() {
    let bytes = frame("8100 f005 88b5 0000");
    let (mut buf, _) = loaded(&bytes).unwrap();
    assert!(buf.set_field(Field::VlanTci, 0x2007, u128::MAX));
    assert_eq!(buf.as_slice(), frame("8100 3007 88b5 0000"));
    assert!(buf.push_vlan(0x88a8));
    assert_eq!(buf.as_slice(), frame("88a8 2007 8100 3007 88b5 0000"));
}

#[test]
fn tags_are_pushed_until_the_headroom_is_used_up() {
    let (mut buf, _) = loaded(&frame("88b5 0102")).unwrap();
    let pushed = (0..100).take_while(|_| buf.push_vlan(0x8100)).count();
    assert_eq!(pushed, HEADROOM / 4);
    assert_eq!(buf.as_slice().len(), 16 + HEADROOM);
    // Only the two that a key can know may be popped again.
    assert_eq!((0..100).take_while(|_| buf.pop_vlan()).count(), 2);
}

#[test]
fn ttl_expires_at_one_and_in_broken_headers() {
    for (ttl, expected) in [(0u8, Err(TtlExpired)), (1, Err(TtlExpired)), (2, Ok(()))] {
        let mut bytes =
            frame("0800 4500 001c 0000 4000 0011 66bf 0a000001 0a000002 0001 0002 0008 0000");
        bytes[22] = ttl;
        let (mut buf, mut key) = loaded(&bytes).unwrap();
        assert_eq!((buf.dec_ttl(), edit_key::dec_ttl(&mut key)), (expected, expected));
        bytes[14] = 0x42;
        let (mut buf, mut key) = loaded(&bytes).unwrap();
        assert_eq!(
            (buf.dec_ttl(), edit_key::dec_ttl(&mut key)),
            (Err(TtlExpired), Err(TtlExpired))
        );
    }
    let (mut buf, mut key) = loaded(&frame("88b5 0000")).unwrap();
    assert_eq!((buf.dec_ttl(), edit_key::dec_ttl(&mut key)), (Ok(()), Ok(())));
}

#[test]
fn a_frame_beyond_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let mut buf = FrameBuf::new();
    let long = vec![0; FRAME_MAX + 1];
    assert_eq!(buf.load(&long, Offsets::default()), Err(DropReason::FrameTooLong));
    assert_eq!(buf.load(&long[1..], Offsets::default()), Ok(()));
    assert_eq!(buf.as_slice().len(), FRAME_MAX);
}
