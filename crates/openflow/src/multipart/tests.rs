use super::*;
use crate::action::Action;
use crate::consts::port;
use crate::frames::Frames;
use crate::header::MESSAGE_LEN_MAX;
use crate::instruction::Instruction;
use crate::message::Message;
use crate::msg::flow_mod::FlowFlags;
use crate::oxm::{Oxm, OxmField};
use crate::stats::Elapsed;

fn flow(number: u32, actions: usize) -> FlowStats {
    FlowStats {
        table: 0,
        priority: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        flags: FlowFlags::default(),
        importance: 0,
        cookie: u64::from(number),
        stats: Stats {
            duration: Some(Elapsed::default()),
            packets: Some(1),
            bytes: Some(2),
            ..Stats::default()
        },
        matching: vec![Oxm::exact(OxmField::InPort, number.into())].into(),
        instructions: vec![Instruction::ApplyActions(vec![
            Action::Output {
                port: port::ALL,
                max_len: 0
            };
            actions
        ])],
    }
}

/// Returns the parts of a reply that was written to `bytes`.
fn parts(version: Version, bytes: &[u8]) -> Vec<MultipartReply> {
    let mut frames = Frames::new();
    frames.extend(bytes);
    let mut parts = Vec::new();
    while let Some(frame) = frames.next_frame().unwrap() {
        assert!(frame.bytes.len() <= MESSAGE_LEN_MAX);
        assert_eq!((frame.header.xid, frame.header.kind), (9, REPLY));
        match Message::decode(version, &frame.header, frame.body()) {
            Ok(Message::MultipartReply(reply)) => parts.push(reply),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(frames.buffered(), 0);
    parts
}

/// Checks the flags of the parts, and gives back their flows.
fn joined(parts: Vec<MultipartReply>, more: bool) -> Vec<FlowStats> {
    let last = parts.len() - 1;
    let mut flows = Vec::new();
    for (i, part) in parts.into_iter().enumerate() {
        assert_eq!(part.more, i < last || more, "part {i}");
        let Reply::Flow(some) = part.body else { panic!("{:?}", part.body) };
        assert!(i == 0 || !some.is_empty());
        flows.extend(some);
    }
    flows
}

#[test]
fn a_long_answer_is_cut_between_flows() {
    for version in Version::ALL {
        for count in [0, 1, 500, 800, 5000] {
            let flows: Vec<_> = (0..count).map(|n| flow(n, n as usize % 7)).collect();
            for more in [false, true] {
                let reply = MultipartReply { more, body: Reply::Flow(flows.clone()) };
                let mut bytes = Vec::new();
                Message::MultipartReply(reply).encode(version, 9, &mut bytes).unwrap();
                let parts = parts(version, &bytes);
                // No flow here is longer than 300 bytes, so no part but the last is much shorter.
                assert_eq!(parts.len(), bytes.len() / (MESSAGE_LEN_MAX - 300) + 1);
                assert_eq!(joined(parts, more), flows);
            }
            let mut streamed = Vec::new();
            let mut replies = FlowReplies::begin(version, 9, &mut streamed);
            flows.iter().for_each(|flow| replies.push(flow).unwrap());
            replies.finish().unwrap();
            let mut whole = Vec::new();
            let reply = MultipartReply::whole(Reply::Flow(flows));
            Message::MultipartReply(reply).encode(version, 9, &mut whole).unwrap();
            assert_eq!(streamed, whole);
        }
    }
}

#[test]
fn a_part_may_be_as_long_as_a_message_can_be() {
    // Multiples of 8 up to 65,528.
    for actions in 4080..4096 {
        let reply = MultipartReply::whole(Reply::Flow(vec![flow(1, actions), flow(2, 0)]));
        let mut bytes = vec![1, 2, 3];
        let written = Message::MultipartReply(reply.clone()).encode(Version::V13, 9, &mut bytes);
        if written.is_ok() {
            let parts = parts(Version::V13, &bytes[3..]);
            assert_eq!(joined(parts, false).len(), 2);
        } else {
            assert_eq!(bytes, [1, 2, 3], "an error leaves nothing behind");
            assert!(matches!(written, Err(EncodeError::TooLong { .. })), "{written:?}");
        }
        assert_eq!(written.is_ok(), actions <= 4090, "{actions}");
    }
}

#[test]
fn a_flow_that_is_too_long_leaves_no_trace() {
    let mut bytes = Vec::new();
    let mut replies = FlowReplies::begin(Version::V13, 9, &mut bytes);
    replies.push(&flow(1, 3)).unwrap();
    assert!(replies.push(&flow(2, 5000)).is_err());
    assert!(replies.push(&flow(3, 4093)).is_err());
    replies.push(&flow(4, 4000)).unwrap();
    replies.finish().unwrap();
    let flows = joined(parts(Version::V13, &bytes), false);
    assert_eq!(flows, [flow(1, 3), flow(4, 4000)]);
}

#[test]
fn types_belong_to_versions() {
    let request = |version: Version, kind: u16, body: &[u8]| {
        let mut bytes = kind.to_be_bytes().to_vec();
        bytes.extend([0; 6]);
        bytes.extend(body);
        let mut r = Reader::new(&bytes, 8, "multipart", BadRequest::BadLen.into());
        MultipartRequest::decode(&mut r, version).map_err(|error| error.code)
    };
    let unknown = Err(BadRequest::BadMultipart.into());
    assert_eq!(request(Version::V13, TABLE_DESC, &[]), unknown);
    assert!(request(Version::V14, TABLE_DESC, &[]).is_ok());
    assert_eq!(request(Version::V14, FLOW_STATS, &[]), unknown);
    assert_eq!(request(Version::V15, FLOW_STATS, &[]), Err(BadRequest::BadLen.into()));
    assert_eq!(request(Version::V15, 18, &[]), unknown);
    let all = request(Version::V13, PORT_DESC, &[]).unwrap();
    assert_eq!(all.body, Request::PortDesc { port: port::ANY });
    let one = request(Version::V15, PORT_DESC, &[0, 0, 0, 3, 0, 0, 0, 0]).unwrap();
    assert_eq!(one.body, Request::PortDesc { port: 3 });
    let mut out = Vec::new();
    let early = MultipartReply::whole(Reply::TableDesc(Vec::new()));
    assert!(Message::MultipartReply(early).encode(Version::V13, 1, &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn properties_that_list_extensions_stay_bytes() {
    let decode = |kind: u16, body: &[u8]| {
        let mut bytes = vec![0; 64];
        bytes
            .tlv(kind, |out| {
                out.put(body);
                Ok(())
            })
            .unwrap();
        bytes.close(0, 0).unwrap();
        let mut r = Reader::new(&bytes, 0, "table features", BadRequest::BadLen.into());
        TableFeatures::decode(&mut r, Version::V13).map(|mut table| table.properties.remove(0))
    };
    let types = TableProperty::Instructions { miss: true, types: vec![1, 4] };
    assert_eq!(decode(1, &[0, 1, 0, 4, 0, 4, 0, 4]), Ok(types));
    let other = |kind: u16, body: &[u8]| Ok(TableProperty::Other { kind, body: body.to_vec() });
    for (kind, body) in [
        (0, &[0xff, 0xff, 0, 8, 0, 0, 0x23, 0x20][..]),
        (6, &[0, 1, 0, 8, 0, 0, 0, 0]),
        (8, &[0xff, 0xff, 0x54, 6, 0x4f, 0x4e, 0x46, 0]),
        (9, &[0x80, 0, 0, 4]),
        (0xffff, &[1, 2, 3]),
    ] {
        assert_eq!(decode(kind, body), other(kind, body), "{kind}");
    }
    let short = decode(0, &[0, 1, 0]).unwrap_err();
    assert_eq!(short.code, crate::codes::TableFeaturesFailed::BadLen.into());
}
