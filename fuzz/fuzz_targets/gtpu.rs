//! Reads any bytes as a frame with GTP-U, and as the message and the packet inside. etherparse
//! reads the outer and the inner headers as well. What was read is written anew and reads the same.
//!
//! Input: kind (1 byte: frame, message or packet), bytes.
#![no_main]

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice, LaxSlicedPacket, NetSlice, TransportSlice};
use libfuzzer_sys::fuzz_target;
use overbank_wire::gtpu::{self, Body, EXTENSIONS_MAX, Encap, Link, Message, Outer, PORT, Refused};
use overbank_wire::icmp_error::{self, Problem, Silent};
use overbank_wire::ip::{Ends, Packet};
use std::net::IpAddr;

const OUTER: Outer = Outer {
    link: Link { dst: [2; 6], src: [4; 6], vlan: Some(7) },
    ends: Ends::V6 { src: std::net::Ipv6Addr::LOCALHOST, dst: std::net::Ipv6Addr::LOCALHOST },
    ttl: 64,
};

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    match kind % 3 {
        0 => frame(bytes),
        1 => message(bytes),
        _ => packet(bytes),
    }
});

fn frame(frame: &[u8]) {
    let Ok(datagram) = gtpu::datagram(frame) else { return };
    let lax = LaxSlicedPacket::from_ethernet(frame).expect("a whole Ethernet header");
    let Some(TransportSlice::Udp(udp)) = lax.transport else { panic!("{lax:?}") };
    assert_eq!((udp.destination_port(), udp.source_port()), (PORT, datagram.src_port));
    assert_eq!(udp.payload(), datagram.payload());
    let strict = etherparse::SlicedPacket::from_ethernet(frame);
    if let Ok(etherparse::SlicedPacket { net: Some(net), .. }) = strict {
        match (net, datagram.ends) {
            (NetSlice::Ipv4(ip), Ends::V4 { src, dst }) => {
                let ip = ip.header();
                assert_eq!((ip.source_addr(), ip.destination_addr()), (src, dst));
                assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
                let (src, dst) = (ip.source(), ip.destination());
                let sum = udp.to_header().calc_checksum_ipv4_raw(src, dst, udp.payload());
                let right = udp.checksum() == 0 || sum == Ok(udp.checksum());
                assert_eq!(datagram.checksum_is_right(), right);
            }
            (NetSlice::Ipv6(ip), Ends::V6 { src, dst }) => {
                let ip = ip.header();
                assert_eq!((ip.source_addr(), ip.destination_addr()), (src, dst));
            }
            other => panic!("{other:?}"),
        }
    }
    message(datagram.payload());
}

fn message(payload: &[u8]) {
    let Ok(message) = Message::parse(payload) else { return };
    assert!(message.emit_len() <= payload.len());
    let contents: Vec<usize> = message.extensions.iter().map(|h| h.content.len()).collect();
    assert!(contents.len() <= EXTENSIONS_MAX);
    let len: usize = contents.iter().map(|content| content + 2).sum();
    assert_eq!(len, message.extensions.bytes().len());

    let mut bytes = vec![0; Outer::LEN_MAX + message.emit_len()];
    let range = Outer::LEN_MAX..bytes.len();
    assert_eq!(message.emit(&mut bytes[range.clone()]), Some(range.len()));
    assert_eq!(Message::parse(&bytes[range.clone()]), Ok(message));
    let start = OUTER.write(&mut bytes, range, [PORT, PORT], 0, 0).expect("room");
    let again = gtpu::datagram(&bytes[start..]).expect("written");
    assert!(again.checksum_is_right());
    assert_eq!(Message::parse(again.payload()), Ok(message));
    if let Body::GPdu(inner) = message.body {
        packet(inner);
        let encap = Encap { outer: OUTER, teid: 9, session: message.extensions.session() };
        let mut bytes = [&[0; Encap::LEN_MAX][..], inner].concat();
        let range = Encap::LEN_MAX..bytes.len();
        let start = encap.write(&mut bytes, range, 1, 0).expect("shorter than before");
        let again = gtpu::datagram(&bytes[start..]).expect("written");
        let again = Message::parse(again.payload()).expect("written");
        assert_eq!((again.teid, again.body), (9, message.body));
        assert_eq!(again.extensions.session(), message.extensions.session());
    }
}

fn packet(bytes: &[u8]) {
    let packet = match Packet::parse(bytes) {
        Ok(packet) => packet,
        Err(reason) => {
            let named = [Refused::InnerVersion, Refused::InnerLength, Refused::InnerEmpty];
            assert!(named.contains(&reason), "{reason}");
            return;
        }
    };
    let (len, from) = match packet.ends {
        Ends::V4 { src, dst } => {
            let header = Ipv4HeaderSlice::from_slice(bytes).expect("a header");
            assert_eq!((header.source_addr(), header.destination_addr()), (src, dst));
            (usize::from(header.total_len()), IpAddr::V4(dst))
        }
        Ends::V6 { src, dst } => {
            let header = Ipv6HeaderSlice::from_slice(bytes).expect("a header");
            assert_eq!((header.source_addr(), header.destination_addr()), (src, dst));
            (40 + usize::from(header.payload_length()), IpAddr::V6(dst))
        }
    };
    assert_eq!(packet.bytes(), &bytes[..len]);
    packet.flow_hash();
    for problem in [Problem::TooBig { mtu: 1400 }, Problem::Prohibited] {
        let mut room = [0; icmp_error::LEN_MAX_V6];
        let Ok(len) = icmp_error::write(problem, &packet, from, &mut room) else { continue };
        let error = Packet::parse(&room[..len]).expect("written");
        assert_eq!((error.bytes().len(), error.ends.dst()), (len, packet.ends.src()));
        let answer = icmp_error::write(problem, &error, packet.ends.src(), &mut [0; 1280]);
        assert!(matches!(
            answer,
            Err(Silent::Icmp | Silent::Group | Silent::Source | Silent::MayFragment)
        ));
    }
}
