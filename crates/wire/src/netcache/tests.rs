use super::*;
use crate::checksum;
use crate::ip::Ends;
use crate::proto::{number, transport::udp};
use proptest::prelude::*;

fn any_op() -> impl Strategy<Value = Op> {
    prop::sample::select((0..=u8::MAX).filter_map(Op::of).collect::<Vec<_>>())
}

fn any_status() -> impl Strategy<Value = Status> {
    prop::sample::select((0..=u8::MAX).filter_map(Status::of).collect::<Vec<_>>())
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    any::<[u32; 3]>().prop_map(|[boot, install, writes]| Stamp { boot, install, writes })
}

prop_compose! {
    fn any_head()(op in any_op(), flags in 0..=FLAGS, status in any_status(), stamp in any_stamp(),
                  client: u64, request: u64, key: u128) -> Message<'static> {
        Message { op, flags, status, client, request, key, stamp, value: &[] }
    }
}

/// Operation, flags, status, client, request, key, stamp and value.
type Fields = (u8, u8, u8, u64, u64, u128, [u32; 3], Vec<u8>);

/// A naive reader: by position, from the picture in the module's head.
fn naive(bytes: &[u8]) -> Option<Fields> {
    let number = |at: usize, len: usize| {
        let bytes = bytes.get(at..at + len)?;
        Some(bytes.iter().fold(0u128, |number, &byte| number << 8 | u128::from(byte)))
    };
    let word = |at| Some(number(at, 4)? as u32);
    let stamp = [word(40)?, word(44)?, word(48)?];
    let value = bytes.get(52..52 + number(6, 2)? as usize)?.to_vec();
    let is_message = number(0, 3)? == 0x4e_43_01 && bytes.len() == 52 + value.len();
    is_message.then_some(())?;
    let byte = |at| Some(number(at, 1)? as u8);
    let names = (number(8, 8)? as u64, number(16, 8)? as u64, number(24, 16)?);
    Some((byte(3)?, byte(4)?, byte(5)?, names.0, names.1, names.2, stamp, value))
}

proptest! {
    #[test]
    fn what_is_written_is_read(head in any_head(), value: Vec<u8>, spare in 0..9usize) {
        let value: &[u8] = if head.op.has_value() { &value } else { &[] };
        let message = Message { value, ..head };
        let mut room = vec![0xa5; message.emit_len() + spare];
        let len = message.emit(&mut room).expect("room");
        prop_assert!(room[len..].iter().all(|&byte| byte == 0xa5));
        prop_assert_eq!(Message::parse(&room[..len]), Ok(message));
        let stamp = [message.stamp.boot, message.stamp.install, message.stamp.writes];
        let bytes = (message.op as u8, message.flags, message.status as u8);
        let names = (message.client, message.request, message.key);
        let read = (bytes.0, bytes.1, bytes.2, names.0, names.1, names.2, stamp, value.to_vec());
        prop_assert_eq!(naive(&room[..len]), Some(read));
        // Every length but its own is refused, and a room that is too small.
        prop_assert!(message.emit(&mut room[..len - 1]).is_none());
        for wrong in (0..len).chain(len + 1..=room.len()) {
            prop_assert!(Message::parse(&room[..wrong]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        head in any::<[bool; 3]>(),
        op in 0..24u8,
    ) {
        // Often enough, the first fields and the length are right.
        for (at, byte) in [0x4e, 0x43, 1, op, 0, 0].into_iter().enumerate() {
            if let Some(place) = bytes.get_mut(at).filter(|_| head[0]) {
                *place = byte;
            }
        }
        let len = (bytes.len().saturating_sub(HEADER_LEN) as u16).to_be_bytes();
        if let Some(place) = bytes.get_mut(6..8).filter(|_| head[1]) {
            place.copy_from_slice(&len);
        }
        if let Ok(message) = Message::parse(&bytes) {
            let mut room = vec![0; bytes.len()];
            prop_assert_eq!(message.emit(&mut room), Some(bytes.len()));
            prop_assert_eq!(room, bytes);
        }
    }

    #[test]
    fn a_mark_keeps_the_checksum_right(
        head in any_head(), stamp in any_stamp(), op in any_op(), ports: [u8; 4], checked: bool,
    ) {
        let message = Message { op: Op::Put, value: b"odd", ..head };
        let mut bytes = vec![0; udp::HEADER_LEN + message.emit_len()];
        let len = bytes.len();
        bytes[..4].copy_from_slice(&ports);
        bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        message.emit(&mut bytes[udp::HEADER_LEN..]).expect("room");
        let ends = Ends::V4 { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into() };
        let sum = |bytes: &[u8]| ends.pseudo_sum(number::UDP, len) + checksum::sum(bytes);
        if checked {
            let right = match checksum::finish(sum(&bytes)) {
                0 => 0xffff,
                right => right,
            };
            bytes[udp::CHECKSUM..udp::HEADER_LEN].copy_from_slice(&right.to_be_bytes());
        }
        mark(&mut bytes, op, stamp).expect("a message");
        let stored = [bytes[udp::CHECKSUM], bytes[udp::CHECKSUM + 1]];
        prop_assert_eq!(stored != [0, 0], checked);
        prop_assert!(!checked || checksum::finish(sum(&bytes)) == 0);
        let read = Message { op, stamp, ..message };
        let as_read = Message::parse(&bytes[udp::HEADER_LEN..]);
        prop_assert!(as_read == Ok(read) || !op.has_value() && as_read == Err(Refused::Value));
        prop_assert_eq!(mark(&mut bytes[..udp::HEADER_LEN + HEADER_LEN - 1], op, stamp), None);
    }
}

#[test]
fn contradictions_are_refused_by_name() {
    let message = Message { value: b"12345", ..Message::new(Op::Put, 1, 2, 3) };
    let mut good = [0; HEADER_LEN + 5];
    message.emit(&mut good).expect("room");
    let refused = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Message::parse(&bytes).expect_err("a contradiction")
    };
    for (at, byte, why) in [
        (0, 0, Refused::Magic),
        (2, 2, Refused::Version),
        (3, 0, Refused::UnknownOp),
        (3, 20, Refused::UnknownOp),
        (3, Op::Get as u8, Refused::Value),
        (4, 4, Refused::UnknownFlag),
        (5, 7, Refused::UnknownStatus),
        (6, 6, Refused::ValueLength),
        (7, 4, Refused::Length),
        (7, 6, Refused::Length),
    ] {
        assert_eq!(refused(at, byte), why, "byte {at} is {byte}");
    }
    assert_eq!(Message::parse(&good[..HEADER_LEN - 1]), Err(Refused::ShortHeader));
    let long = [0; VALUE_MAX + 1];
    let long = Message { value: &long, ..message };
    assert_eq!(long.emit(&mut [0; 2000]), None);
}

#[test]
fn stamps_are_ordered_as_their_bytes() {
    let stamp = |boot, install, writes| Stamp { boot, install, writes };
    let all = [stamp(0, 0, 1), stamp(0, 1, 0), stamp(1, 0, 0), stamp(1, 0, u32::MAX)];
    for pair in all.windows(2) {
        assert!(Stamp::NONE < pair[0] && pair[0] < pair[1]);
        assert!(pair[0].bytes() < pair[1].bytes());
    }
}
