use super::*;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;

const ASKER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn tagged(vlan: Option<u16>, dst: [u8; 6], dl_type: u16) -> Vec<u8> {
    let mut frame = [dst, ASKER].concat();
    if let Some(tci) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(dl_type.to_be_bytes());
    frame
}

fn arp_request(vlan: Option<u16>, spa: [u8; 4], tpa: [u8; 4]) -> Vec<u8> {
    let mut frame = tagged(vlan, [0xff; 6], 0x0806);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend([&ASKER[..], &spa, &[0; 6], &tpa, &[0; 18]].concat());
    frame
}

fn solicitation(vlan: Option<u16>, src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let dst = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, target.segments()[7]);
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend([1, 1]);
    message.extend(ASKER);
    let pseudo = [&src.octets()[..], &dst.octets(), &[0, 0, 0, 32, 0, 0, 0, 58]].concat();
    let sum = crate::testing::internet_checksum(&[&pseudo[..], &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = tagged(vlan, [0x33, 0x33, 0xff, 0, 0, target.octets()[15]], 0x86dd);
    frame.extend([0x60, 0, 0, 0, 0, 32, 58, 255]);
    frame.extend([&src.octets()[..], &dst.octets(), &message].concat());
    frame
}

#[test]
fn an_arp_request_has_its_reply() {
    for vlan in [None, Some(0x6009)] {
        let frame = arp_request(vlan, [10, 0, 0, 1], [10, 0, 0, 254]);
        let question = Question::of(&frame).expect("a question");
        assert_eq!(question.target, IpAddr::from([10, 0, 0, 254]));
        let mut room = [0; ANSWER_MAX];
        let len = question.answer(MAC, &mut room).expect("of one family");
        let mut wanted = tagged(vlan, ASKER, 0x0806);
        wanted[6..12].copy_from_slice(&MAC);
        wanted.extend([0, 1, 8, 0, 6, 4, 0, 2]);
        wanted.extend([&MAC[..], &[10, 0, 0, 254], &ASKER, &[10, 0, 0, 1]].concat());
        assert_eq!(room[..len], wanted);
    }
    let mut reply = arp_request(None, [10, 0, 0, 1], [10, 0, 0, 254]);
    reply[21] = 2;
    assert_eq!(Question::of(&reply), None);
}

#[test]
fn a_solicitation_has_its_advertisement() {
    let target = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 254);
    let host = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    for (vlan, src) in [(None, host), (Some(9), host), (None, Ipv6Addr::UNSPECIFIED)] {
        let frame = solicitation(vlan, src, target);
        let question = Question::of(&frame).expect("a question");
        assert_eq!(question.target, IpAddr::from(target));
        let mut room = [0; ANSWER_MAX];
        let len = question.answer(MAC, &mut room).expect("of one family");
        let none = src.is_unspecified();
        assert_eq!(room[..6], if none { ALL_NODES_MAC } else { ASKER });
        let packet = SlicedPacket::from_ethernet(&room[..len]).expect("an advertisement");
        let Some(NetSlice::Ipv6(ip)) = &packet.net else { panic!("{packet:?}") };
        let header = ip.header();
        assert_eq!((header.source_addr(), header.hop_limit()), (target, 255));
        assert_eq!(header.destination_addr(), if none { ALL_NODES } else { src });
        let Some(TransportSlice::Icmpv6(icmp)) = &packet.transport else { panic!("{packet:?}") };
        assert!(icmp.is_checksum_valid(header.source(), header.destination()));
        let bytes = icmp.slice().to_vec();
        assert_eq!(bytes[..2], [136, 0]);
        assert_eq!(bytes[4], if none { 0x20 } else { 0x60 });
        assert_eq!(bytes[8..24], target.octets());
        assert_eq!(bytes[24..], [&[2, 1][..], &MAC].concat());
    }
    let mut routed = solicitation(None, host, target);
    routed[21] = 254;
    assert_eq!(Question::of(&routed), None, "a router has forwarded it");
    let mut wrong = solicitation(None, host, target);
    wrong[60] ^= 1;
    assert_eq!(Question::of(&wrong), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read(
        is_arp: bool, tagged: bool, edits in prop::collection::vec((0..90usize, any::<u8>()), 0..6),
        len in 0..100usize,
    ) {
        let vlan = tagged.then_some(3);
        let mut frame = if is_arp {
            arp_request(vlan, [10, 0, 0, 1], [10, 0, 0, 2])
        } else {
            solicitation(vlan, Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
        };
        for (at, to) in edits {
            if let Some(byte) = frame.get_mut(at) {
                *byte = to;
            }
        }
        frame.truncate(len);
        if let Some(question) = Question::of(&frame) {
            prop_assert!(question.answer(MAC, &mut [0; ANSWER_MAX]).is_some());
        }
    }
}
