//! Tunnels end to end: headers written in front of a packet, the packet found again, and etherparse
//! on both.

use super::*;
use crate::gtpu::{Downlink, datagram};
use crate::ip::Packet;
use crate::testing::frames;
use crate::testing::gtpu::containers;
use crate::udp::Datagram;
use crate::{FlowKey, FrameBuf, extract};
use etherparse::{LaxSlicedPacket, NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

fn ends() -> impl Strategy<Value = Ends> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>()
            .prop_map(|(src, dst)| Ends::V4 { src: src.into(), dst: dst.into() }),
        any::<([u8; 16], [u8; 16])>()
            .prop_map(|(src, dst)| Ends::V6 { src: src.into(), dst: dst.into() }),
    ]
}

fn link() -> impl Strategy<Value = Link> {
    // No frame check on the priority bits: any tag control information is valid.
    any::<([u8; 6], [u8; 6], Option<u16>)>().prop_map(|(dst, src, vlan)| Link { dst, src, vlan })
}

fn encap() -> impl Strategy<Value = Encap> {
    (link(), ends(), any::<(u8, u32)>(), prop::option::of(containers())).prop_map(
        |(link, ends, (ttl, teid), session)| Encap {
            outer: Outer { link, ends, ttl },
            teid,
            session,
        },
    )
}

/// A UDP packet without a frame.
fn packet(ends: Ends, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![];
    match ends {
        Ends::V4 { src, dst } => {
            let builder = PacketBuilder::ipv4(src.octets(), dst.octets(), 64).udp(5000, 53);
            builder.write(&mut bytes, payload).unwrap();
        }
        Ends::V6 { src, dst } => {
            let builder = PacketBuilder::ipv6(src.octets(), dst.octets(), 64).udp(5000, 53);
            builder.write(&mut bytes, payload).unwrap();
        }
    }
    bytes
}

/// Checks a tunnelled frame with etherparse alone, and returns the UDP payload.
fn outer(frame: &[u8], encap: &Encap, dscp: u8) -> Vec<u8> {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    assert_eq!(frame[..6], encap.outer.link.dst);
    assert_eq!(frame[6..12], encap.outer.link.src);
    let tags = sliced.vlan_ids();
    assert_eq!(tags.first().map(|id| id.value()), encap.outer.link.vlan.map(|tci| tci & 0xfff));
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP") };
    assert_eq!(udp.destination_port(), 2152);
    assert!(udp.source_port() >= 49_152);
    match (sliced.net.unwrap(), encap.outer.ends) {
        (NetSlice::Ipv4(ip), Ends::V4 { src, dst }) => {
            let header = ip.header();
            assert_eq!((header.source_addr(), header.destination_addr()), (src, dst));
            assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
            assert_eq!(
                (header.ttl(), header.dcp().value(), header.ecn().value()),
                (encap.outer.ttl, dscp, 0)
            );
            assert!(header.dont_fragment() && !header.more_fragments());
            assert_eq!(udp.checksum(), 0);
        }
        (NetSlice::Ipv6(ip), Ends::V6 { src, dst }) => {
            let header = ip.header();
            assert_eq!((header.source_addr(), header.destination_addr()), (src, dst));
            assert_eq!((header.hop_limit(), header.traffic_class()), (encap.outer.ttl, dscp << 2));
            let sum = udp.to_header().calc_checksum_ipv6(&header.to_header(), udp.payload());
            assert_eq!(udp.checksum(), sum.unwrap());
        }
        other => panic!("{other:?}"),
    }
    udp.payload().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn what_goes_in_comes_out(
        encap in encap(), inner in ends(), payload in prop::collection::vec(any::<u8>(), 0..200),
        flow: u64, dscp in 0..64u8, room in 0..40usize, behind in 0..9usize,
    ) {
        let inner = packet(inner, &payload);
        let at = Encap::LEN_MAX + room;
        let mut bytes = vec![0xaa; at];
        bytes.extend(&inner);
        bytes.extend(vec![0xaa; behind]);
        let range = at..at + inner.len();
        let start = encap.write(&mut bytes, range.clone(), flow, dscp).unwrap();
        prop_assert!(bytes[..start].iter().chain(&bytes[range.end..]).all(|&byte| byte == 0xaa));
        let frame = &bytes[start..range.end];
        let gtpu = outer(frame, &encap, dscp);

        let found = datagram(frame).unwrap();
        prop_assert_eq!(found.ends, encap.outer.ends);
        prop_assert_eq!(found.l3, encap.outer.link.header_len());
        prop_assert_eq!(found.tos, dscp << 2);
        prop_assert_eq!(found.src_port, 0xc000 | flow as u16);
        prop_assert!(found.checksum_is_right());
        prop_assert_eq!(found.payload(), &gtpu[..]);
        let message = Message::parse(found.payload()).unwrap();
        prop_assert_eq!((message.teid, message.extensions.session()), (encap.teid, encap.session));
        prop_assert_eq!(message.body, Body::GPdu(&inner));

        // The same packet in a buffer for frames, whose offsets must be those of extraction.
        let mut buffer = FrameBuf::with_frame_len(0);
        let packet = Packet::parse(&inner).unwrap();
        let link = Link { vlan: Some(5), ..Link::default() };
        buffer.load_packet(&packet, &link).unwrap();
        prop_assert_eq!(&buffer.as_slice()[link.header_len()..], &inner[..]);
        buffer.encapsulate(&encap, flow, dscp).unwrap();
        prop_assert_eq!(buffer.as_slice(), frame);
        let offsets = extract(buffer.as_slice(), 0, &mut FlowKey::default()).unwrap();
        prop_assert_eq!(buffer.offsets(), offsets);

        // A changed bit is found, if there is a checksum.
        if let Ends::V6 { .. } = encap.outer.ends {
            let mut broken = frame.to_vec();
            let last = broken.len() - 1;
            broken[last] ^= 1;
            prop_assert!(!datagram(&broken).unwrap().checksum_is_right());
        }
    }

    /// The short paths say what the general ones say, of whole, changed and truncated frames.
    #[test]
    fn short_paths_agree_with_the_general_ones(
        encap in encap(), plain: bool, qfi: Option<u8>, inner in ends(),
        flow: u64, dscp in 0u8..64,
        changes: [(prop::sample::Index, u8); 3], changed in 0..4usize, reseal_it: bool,
        keep in prop::option::of(any::<prop::sample::Index>()), more in 0..9usize,
        noise in frames::mutated(),
    ) {
        let mut encap = encap;
        if plain {
            encap.outer.link.vlan = None;
            encap.session = qfi.map(Container::downlink);
        }
        let inner = packet(inner, b"payload");
        let mut bytes = [&[0; Encap::LEN_MAX][..], &inner].concat();
        let mut twin = bytes.clone();
        let range = Encap::LEN_MAX..bytes.len();
        let start = encap.write(&mut bytes, range.clone(), flow, dscp).unwrap();
        prop_assert_eq!(encap.general(&mut twin, range, flow, dscp), Some(start));
        prop_assert_eq!(&bytes, &twin);

        let mut frame = bytes[start..].to_vec();
        frame.resize(frame.len() + more, 0);
        let headers = frame.len() - inner.len() - more;
        changes[..changed].iter().for_each(|(at, value)| frame[at.index(headers)] = *value);
        if reseal_it {
            reseal(&mut frame);
        }
        if let Some(keep) = keep {
            frame.truncate(keep.index(frame.len()));
        }
        for frame in [&frame, &noise] {
            let found = datagram(frame);
            prop_assert_eq!(&found, &Datagram::general(frame, PORT).map_err(Refused::from));
            let payload = found.map(|datagram| datagram.payload());
            let Some((long, rest)) = payload.unwrap_or_default().split_first_chunk::<12>() else {
                continue;
            };
            let first = long[11];
            prop_assert_eq!(Extensions::parse(first, rest), Extensions::walk(first, rest));
        }
    }

    #[test]
    fn messages_of_paths(encap in encap(), ports: [u16; 2], sequence: u16, label: u32) {
        let outer = encap.outer;
        let mut bytes = [0xaa; Outer::LEN_MAX + 100];
        let len = Message::echo_response(sequence).emit(&mut bytes[Outer::LEN_MAX..]).unwrap();
        let range = Outer::LEN_MAX..Outer::LEN_MAX + len;
        let start = outer.write(&mut bytes, range.clone(), ports, 46, label).unwrap();
        let before = bytes;
        let sliced = SlicedPacket::from_ethernet(&before[start..range.end]).unwrap();
        let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("no UDP") };
        prop_assert_eq!([udp.source_port(), udp.destination_port()], ports);
        prop_assert_eq!(udp.payload(), &before[range.clone()]);
        if let Some(NetSlice::Ipv6(ip)) = sliced.net {
            prop_assert_eq!(ip.header().flow_label().value(), label & 0xfffff);
            let header = ip.header().to_header();
            let sum = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap();
            prop_assert_eq!(udp.checksum(), sum);
        }
        let too_small = range.start - start - 1..range.end;
        let refused = outer.write(&mut bytes, too_small, ports, 46, label);
        prop_assert_eq!((refused, bytes), (Err(Refused::TooLong), before));
    }

    #[test]
    fn every_truncation_of_a_frame_is_refused(encap in encap(), inner in ends()) {
        let inner = packet(inner, b"payload");
        let mut bytes = [&[0; Encap::LEN_MAX][..], &inner].concat();
        let range = Encap::LEN_MAX..bytes.len();
        let start = encap.write(&mut bytes, range, 1, 0).unwrap();
        let frame = &bytes[start..];
        for len in 0..frame.len() {
            let reason = datagram(&frame[..len]).unwrap_err();
            prop_assert!(matches!(reason, Refused::NotIp | Refused::BrokenIp), "{len}: {reason:?}");
        }
        for len in 0..inner.len() {
            let reason = Packet::parse(&inner[..len]).unwrap_err();
            let expected = if len == 0 { Refused::InnerVersion } else { Refused::InnerLength };
            prop_assert_eq!(reason, expected, "{}", len);
        }
    }

    /// Every frame that is taken for a datagram is one for etherparse as well.
    #[test]
    fn hostile_frames(
        frame in prop_oneof![
            frames::mutated(),
            (encap(), ends(), any::<[(prop::sample::Index, u8); 3]>()).prop_map(
                |(encap, inner, changes)| {
                    let inner = packet(inner, b"payload");
                    let mut bytes = [&[0; Encap::LEN_MAX][..], &inner].concat();
                    let range = Encap::LEN_MAX..bytes.len();
                    let start = encap.write(&mut bytes, range, 1, 0).unwrap();
                    let mut frame = bytes[start..].to_vec();
                    changes.iter().for_each(|(at, value)| frame[at.index(inner.len())] = *value);
                    frame
                }
            ),
        ],
    ) {
        if let Ok(datagram) = datagram(&frame) {
            let sliced = LaxSlicedPacket::from_ethernet(&frame).unwrap();
            let Some(TransportSlice::Udp(udp)) = sliced.transport else { panic!("{sliced:?}") };
            prop_assert_eq!(udp.destination_port(), 2152);
            prop_assert_eq!(udp.payload(), datagram.payload());
        }
    }

    /// Packets inside: addresses and length as etherparse reads them, or a reason.
    #[test]
    fn hostile_packets(
        inner in ends(), changes: [(prop::sample::Index, u8); 2], more in 0..9usize,
    ) {
        let mut bytes = packet(inner, b"payload");
        for (at, value) in changes {
            let len = bytes.len().min(24);
            bytes[at.index(len)] = value;
        }
        bytes.resize(bytes.len() + more, 0);
        let version = bytes[0] >> 4;
        match Packet::parse(&bytes) {
            Ok(packet) if version == 4 => {
                let header = etherparse::Ipv4HeaderSlice::from_slice(&bytes).unwrap();
                let (src, dst) = (header.source_addr(), header.destination_addr());
                prop_assert_eq!(packet.ends, Ends::V4 { src, dst });
                prop_assert_eq!(packet.bytes().len(), usize::from(header.total_len()));
                prop_assert_eq!(packet.dscp(), header.dcp().value());
            }
            Ok(packet) => {
                let header = etherparse::Ipv6HeaderSlice::from_slice(&bytes).unwrap();
                let (src, dst) = (header.source_addr(), header.destination_addr());
                prop_assert_eq!(packet.ends, Ends::V6 { src, dst });
                prop_assert_eq!(packet.bytes().len(), 40 + usize::from(header.payload_length()));
                prop_assert_eq!(packet.tos, header.traffic_class());
            }
            Err(Refused::InnerVersion) => prop_assert!(version != 4 && version != 6),
            Err(Refused::InnerEmpty) => {
                prop_assert_eq!((version, &bytes[4..6]), (6, &[0, 0][..]));
            }
            Err(reason) => {
                prop_assert_eq!(reason, Refused::InnerLength);
                let len = match version {
                    4 => usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
                    _ => 40 + usize::from(u16::from_be_bytes([bytes[4], bytes[5]])),
                };
                let header_len = 4 * usize::from(bytes[0] & 15);
                let short = version == 4 && (header_len < 20 || header_len > len);
                prop_assert!(len > bytes.len() || short, "{}", len);
            }
        }
    }

    #[test]
    fn flows_keep_their_hash(
        inner in ends(), other in ends(), payload: [u8; 8], ttl: u8, id: [u8; 2],
    ) {
        let base = packet(inner, &payload);
        let hash = |bytes: &[u8]| Packet::parse(bytes).unwrap().flow_hash();
        let mut same = packet(inner, b"another payload");
        let mut ports = base.clone();
        let mut fragments = [base.clone(), base.clone()];
        match inner {
            Ends::V4 { .. } => {
                (same[8], same[4], same[5], ports[20]) = (ttl, id[0], id[1], 0x14);
                // Fragments have no ports, the first one neither.
                (fragments[0][6], fragments[1][7], fragments[1][20]) = (0x20, 1, 9);
            }
            Ends::V6 { .. } => (same[7], ports[40]) = (ttl, 0x14),
        }
        prop_assert_eq!(hash(&same), hash(&base));
        prop_assert!(hash(&ports) != hash(&base));
        prop_assert_eq!(hash(&fragments[0]), hash(&fragments[1]));
        if other != inner {
            prop_assert!(hash(&packet(other, &payload)) != hash(&base));
        }
    }
}

const ENDS: Ends = Ends::V4 {
    src: std::net::Ipv4Addr::new(192, 0, 2, 1),
    dst: std::net::Ipv4Addr::new(192, 0, 2, 2),
};

fn tunnel(ends: Ends) -> Encap {
    let session = Some(Container::Downlink(Downlink { qfi: 9, ..Downlink::default() }));
    Encap { outer: Outer { link: Link::default(), ends, ttl: 64 }, teid: 1, session }
}

/// A tunnelled frame with `change` applied to it.
fn frame(ends: Ends, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let inner = packet(ENDS, b"payload");
    let mut bytes = [&[0; Encap::LEN_MAX][..], &inner].concat();
    let range = Encap::LEN_MAX..bytes.len();
    let start = tunnel(ends).write(&mut bytes, range, 1, 0).unwrap();
    let mut frame = bytes[start..].to_vec();
    change(&mut frame);
    frame
}

/// Corrects the checksum of the outer IPv4 header.
fn reseal(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = crate::testing::internet_checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn every_reason_by_name() {
    let v6 = Ends::V6 { src: 1.into(), dst: 2.into() };
    type Change = fn(&mut Vec<u8>);
    let cases: [(Refused, Ends, Change); 13] = [
        (Refused::NotIp, ENDS, |frame| frame.truncate(13)),
        (Refused::NotIp, ENDS, |frame| frame[13] = 6),
        (Refused::BrokenIp, ENDS, |frame| frame[14] = 0x65),
        (Refused::BrokenIp, ENDS, |frame| frame[22] = 1), // TTL, and not the checksum.
        (Refused::BrokenIp, v6, |frame| frame[18] = 0xff),
        (Refused::Fragment, ENDS, |frame| {
            frame[20] = 0x20;
            reseal(frame);
        }),
        (Refused::Fragment, ENDS, |frame| {
            frame[21] = 1;
            reseal(frame);
        }),
        (Refused::NotUdp, ENDS, |frame| {
            frame[23] = 6;
            reseal(frame);
        }),
        (Refused::NotUdp, v6, |frame| frame[20] = 6),
        (Refused::OtherPort, ENDS, |frame| frame[37] = 0),
        (Refused::UdpLength, ENDS, |frame| frame[38] = 1),
        (Refused::UdpLength, ENDS, |frame| frame[38..40].copy_from_slice(&[0, 7])),
        // A routing header with a segment left.
        (Refused::Routed, v6, |frame| {
            frame[20] = 43;
            frame[19] += 8;
            frame.splice(54..54, [17, 0, 0, 1, 0, 0, 0, 0]);
        }),
    ];
    for (reason, ends, change) in cases {
        assert_eq!(datagram(&frame(ends, change)), Err(reason), "{reason:?}");
    }
    assert!(datagram(&frame(ENDS, |_| ())).is_ok());
    // Padding of the frame, and bytes of the packet after the datagram, are no payload.
    let padded = frame(ENDS, |frame| {
        let len = frame.len() - 14 + 5;
        frame[16..18].copy_from_slice(&(len as u16).to_be_bytes());
        reseal(frame);
        frame.extend([9; 11]);
    });
    let plain = frame(ENDS, |_| ());
    assert_eq!(
        datagram(&padded).map(|datagram| datagram.payload().to_vec()),
        datagram(&plain).map(|datagram| datagram.payload().to_vec())
    );
    // Zero is no checksum, over IPv6 too; any other must be right.
    for (sum, right) in [([0, 0], true), ([1, 2], false)] {
        for (ends, at) in [(ENDS, 40), (v6, 60)] {
            let frame = frame(ends, |frame| frame[at..at + 2].copy_from_slice(&sum));
            assert_eq!(datagram(&frame).map(|d| d.checksum_is_right()), Ok(right), "{ends:?}");
        }
    }
}

#[test]
fn a_computed_checksum_is_never_none() {
    let tunnel = tunnel(Ends::V6 { src: 1.into(), dst: 2.into() });
    let packet = packet(ENDS, b"payload!");
    let mut bytes = [&[0; Encap::LEN_MAX][..], &packet].concat();
    let (range, last) = (Encap::LEN_MAX..bytes.len(), bytes.len() - 2);
    let mut largest = 0;
    for word in 0..=u16::MAX {
        bytes[last..].copy_from_slice(&word.to_be_bytes());
        let start = tunnel.write(&mut bytes, range.clone(), 1, 0).unwrap();
        let sum = start + 14 + 40 + 6;
        let sum = u16::from_be_bytes([bytes[sum], bytes[sum + 1]]);
        assert_ne!(sum, 0, "word {word:#x}");
        largest += u32::from(sum == 0xffff);
        assert!(datagram(&bytes[start..]).unwrap().checksum_is_right());
    }
    assert!(largest > 0, "one of the words makes it 0");
}

#[test]
fn inner_lengths() {
    let v6 = Ends::V6 { src: 1.into(), dst: 2.into() };
    let with = |ends, at: usize, value: [u8; 2]| {
        let mut bytes = packet(ends, b"payload");
        bytes[at..at + 2].copy_from_slice(&value);
        Packet::parse(&bytes).map(|packet| packet.bytes().len())
    };
    assert_eq!(with(ENDS, 2, [0, 35]), Ok(35));
    assert_eq!(with(ENDS, 2, [0, 34]), Ok(34), "what follows the packet is cut off");
    assert_eq!(with(ENDS, 2, [0, 36]), Err(Refused::InnerLength));
    assert_eq!(with(ENDS, 2, [0, 19]), Err(Refused::InnerLength));
    assert_eq!(with(ENDS, 2, [0, 0]), Err(Refused::InnerLength));
    assert_eq!(with(v6, 4, [0, 15]), Ok(55));
    assert_eq!(with(v6, 4, [0, 16]), Err(Refused::InnerLength));
    assert_eq!(with(v6, 4, [0, 0]), Err(Refused::InnerEmpty));
    let mut empty = packet(v6, b"");
    (empty[5], empty[6]) = (0, 59);
    assert_eq!(Packet::parse(&empty).map(|packet| packet.bytes().len()), Ok(40));
    for (bytes, reason) in [
        (&[][..], Refused::InnerVersion),
        (&[0x45], Refused::InnerLength),
        (&[0x60; 39], Refused::InnerLength),
        (&[0x50; 60], Refused::InnerVersion),
        (&[0x44; 60], Refused::InnerLength),
    ] {
        assert_eq!(Packet::parse(bytes), Err(reason), "{bytes:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused_without_a_change() {
    let v6 = Ends::V6 { src: 1.into(), dst: 2.into() };
    for (ends, len) in [(ENDS, 14 + 20 + 8 + 16), (v6, 14 + 40 + 8 + 16)] {
        let tunnel = tunnel(ends);
        let mut bytes = vec![0xaa; 70_000];
        assert_eq!(tunnel.write(&mut bytes, len - 1..len + 9, 1, 0), Err(Refused::TooLong));
        assert_eq!(tunnel.write(&mut bytes, len..70_001, 1, 0), Err(Refused::TooLong));
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = 100..99;
        assert_eq!(tunnel.write(&mut bytes, reversed, 1, 0), Err(Refused::TooLong));
        // The outer packet has at most 65,535 bytes.
        let most = 65_535 - (len - 14);
        assert_eq!(tunnel.write(&mut bytes, len..len + most + 1, 1, 0), Err(Refused::TooLong));
        assert!(bytes.iter().all(|&byte| byte == 0xaa));
        assert_eq!(tunnel.write(&mut bytes, len..len + most, 1, 0), Ok(0));
    }
    let mut buffer = FrameBuf::new();
    let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
    let offsets = extract(&arp, 0, &mut FlowKey::default()).unwrap();
    buffer.load(&arp, offsets).unwrap();
    assert_eq!(buffer.encapsulate(&tunnel(ENDS), 1, 0), Err(Refused::NotIp));
    assert_eq!(buffer.as_slice(), arp);
}

/// RFC 6040, figure 4: the mark inside by those inside and outside; `None`: drop.
#[test]
fn congestion_marks_leave_the_tunnel() {
    let v6 = Ends::V6 { src: 1.into(), dst: 2.into() };
    // Rows: inside not capable, ECT(1), ECT(0), CE. Columns: the same outside.
    let table = [
        [Some(0), Some(0), Some(0), None],
        [Some(1), Some(1), Some(1), Some(3)],
        [Some(2), Some(1), Some(2), Some(3)],
        [Some(3), Some(3), Some(3), Some(3)],
    ];
    for ends in [ENDS, v6] {
        for (inside, row) in (0u8..).zip(table) {
            for (outside, expected) in (0u8..).zip(row) {
                let bytes = packet(ends, b"payload");
                let inner = Packet::parse(&bytes).unwrap();
                let mut buffer = FrameBuf::new();
                buffer.load_packet(&inner, &Link::default()).unwrap();
                assert!(buffer.set_field(crate::Field::NwEcn, inside.into(), 3));
                let before = buffer.as_slice().to_vec();
                let merged = buffer.merge_ecn(46 << 2 | outside);
                assert_eq!(merged.is_ok(), expected.is_some(), "{inside} in {outside}");
                let frame = buffer.as_slice();
                assert_eq!(frame == before, expected.is_none_or(|mark| mark == inside));
                let sliced = SlicedPacket::from_ethernet(frame).unwrap();
                let mark = match sliced.net.unwrap() {
                    NetSlice::Ipv4(ip) => {
                        let header = ip.header().to_header();
                        assert_eq!(header.calc_header_checksum(), header.header_checksum);
                        header.ecn.value()
                    }
                    NetSlice::Ipv6(ip) => ip.header().traffic_class() & 3,
                    other => panic!("{other:?}"),
                };
                assert_eq!(mark, expected.unwrap_or(inside), "{inside} in {outside}");
            }
        }
    }
    // Without IP, nothing happens.
    let mut buffer = FrameBuf::new();
    let arp = [&[2; 12][..], &[8, 6], &[0; 28]].concat();
    buffer.load(&arp, extract(&arp, 0, &mut FlowKey::default()).unwrap()).unwrap();
    assert_eq!(buffer.merge_ecn(3), Ok(()));
    assert_eq!(buffer.as_slice(), arp);
}
