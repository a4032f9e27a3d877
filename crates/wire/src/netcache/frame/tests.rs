use super::*;
use crate::netcache::{PORT, Status};
use crate::testing::frames::{mutated, valid};
use etherparse::{SlicedPacket, TransportSlice};
use proptest::prelude::*;

const ROOM: usize = 2048;

fn end(n: u8, is_ip4: bool, port: u16) -> End {
    let ip = if is_ip4 {
        Ipv4Addr::new(10, 0, 0, n).into()
    } else {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into()
    };
    End { mac: [2, 0, 0, 0, 0, n], ip, port }
}

fn written(message: &Message<'_>, is_ip4: bool, vlan: u16) -> Vec<u8> {
    let mut room = [0xa5; ROOM];
    let (from, to) = (end(1, is_ip4, 4000), end(2, is_ip4, PORT));
    let len = write(message, &from, &to, vlan, &mut room).expect("room");
    room[..len].to_vec()
}

/// Whether all checksums and lengths of a frame are right; a UDP checksum over IPv4 may be absent.
fn is_right(frame: &[u8]) -> bool {
    let packet = SlicedPacket::from_ethernet(frame).expect("headers that can be read");
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("UDP") };
    let (header, payload) = (udp.to_header(), udp.payload());
    assert_eq!(usize::from(header.length), 8 + payload.len());
    match packet.net.as_ref().expect("IP") {
        etherparse::NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            let sum = header.calc_checksum_ipv4(&ip, payload).expect("short enough");
            ip.header_checksum == ip.calc_header_checksum() && [0, sum].contains(&header.checksum)
        }
        etherparse::NetSlice::Ipv6(ip) => {
            let ip = ip.header().to_header();
            header.checksum == header.calc_checksum_ipv6(&ip, payload).expect("short enough")
        }
        _ => panic!("IP"),
    }
}

fn message(op: Op, value: &[u8]) -> Message<'_> {
    let stamp = Stamp { boot: 1, install: 2, writes: 3 };
    Message { stamp, value, ..Message::new(op, 5, 6, 7) }
}

#[test]
fn what_is_written_is_found() {
    for (is_ip4, vlan) in [(true, 0), (true, 9), (false, 0), (false, 9)] {
        for len in [0, 1, 16, 127, 128, 1408] {
            let value = vec![7; len];
            let said = message(Op::Put, &value);
            let mut frame = written(&said, is_ip4, vlan);
            assert!(is_right(&frame), "{is_ip4} {vlan} {len}");
            frame.extend([0xa5; 5]); // Padding.
            let found = Datagram::of(&frame, PORT).expect("right").expect("to the port");
            assert_eq!(Message::parse(found.payload()), Ok(said));
            assert_eq!(found.src(), end(1, is_ip4, 4000));
            assert_eq!(found.dst(), end(2, is_ip4, PORT));
            assert!(found.checksum_is_right());
            assert_eq!(Datagram::of(&frame, PORT + 1), Ok(None));
            let last = frame.len() - 6;
            frame[last] ^= 1;
            let found = Datagram::of(&frame, PORT).expect("right").expect("to the port");
            assert!(!found.checksum_is_right());
        }
    }
    let mixed = write(&message(Op::Get, &[]), &end(1, true, 1), &end(2, false, 1), 0, &mut [0; 99]);
    assert_eq!(mixed, None);
}

#[test]
fn contradictions_and_hidden_datagrams_are_refused() {
    let plain = written(&message(Op::Get, &[]), true, 0);
    let over_ip6 = written(&message(Op::Get, &[]), false, 0);
    let of = |frame: &[u8]| Datagram::of(frame, PORT).map(|found| found.is_some());
    // The header's checksum follows.
    let of_ip4 = |edits: &[(usize, u8)]| {
        let mut frame = plain.clone();
        edits.iter().for_each(|&(at, to)| frame[at] = to);
        frame[24..26].fill(0);
        let sum = crate::testing::internet_checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    assert_eq!(of(&plain), Ok(true));
    assert_eq!(of(&plain[..plain.len() - 1]), Err(Broken::Ip));
    assert_eq!(of(&of_ip4(&[(17, 27)])), Err(Broken::Ip), "shorter than a UDP header");
    assert_eq!(of(&of_ip4(&[(17, 79)])), Err(Broken::UdpLength));
    assert_eq!(of(&of_ip4(&[(39, 59)])), Err(Broken::UdpLength));
    assert_eq!(of(&of_ip4(&[(20, 0x20)])), Err(Broken::Unusual), "a first fragment");
    assert_eq!(of(&of_ip4(&[(21, 1)])), Ok(false), "a later one has no ports");
    let mut wrong = plain.clone();
    wrong[24] ^= 1;
    assert_eq!(of(&wrong), Err(Broken::Ip));
    let mut options = [&plain[..34], &[1; 4], &plain[34..]].concat();
    (options[14], options[17]) = (0x46, options[17] + 4);
    assert_eq!(of(&options), Err(Broken::Unusual));
    let tags = [&plain[..12], &[0x81, 0, 0, 1, 0x88, 0xa8, 0, 2], &plain[12..]].concat();
    assert_eq!(of(&tags), Err(Broken::Unusual));
    let mut hops = [&over_ip6[..54], &[17, 0, 1, 4, 0, 0, 0, 0], &over_ip6[54..]].concat();
    (hops[20], hops[19]) = (0, hops[19] + 8);
    assert_eq!(of(&hops), Err(Broken::Unusual));
    let mut absent = over_ip6.clone();
    absent[60..62].fill(0);
    assert_eq!(of(&absent), Err(Broken::Checksum));
    assert_eq!(of(&over_ip6[..over_ip6.len() - 1]), Err(Broken::Ip));
}

proptest! {
    /// Answers go back, and have the checksum that they must have; one that was wrong stays so.
    #[test]
    fn answers_and_marks_keep_checksums(
        is_ip4: bool, vlan in 0..3u16, put: bool, asked: Vec<u8>,
        value in prop::collection::vec(any::<u8>(), 0..=crate::netcache::VALUE_MAX), tos: u8,
        spoil in prop_oneof![Just(0), any::<u16>()], absent: bool,
    ) {
        let (op, asked) = if put { (Op::Update, &asked[..]) } else { (Op::Get, &[][..]) };
        let mut frame = written(&message(op, asked), is_ip4, vlan);
        let l3 = 14 + if vlan == 0 { 0 } else { 4 };
        let l4 = l3 + if is_ip4 { 20 } else { 40 };
        if is_ip4 {
            frame[l3 + 1] = tos;
            frame[l3 + 10..l3 + 12].fill(0);
            let sum = crate::testing::internet_checksum(&frame[l3..l4]);
            frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let at = l4 + 6;
        let sum = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let stored = if absent && is_ip4 { 0 } else { sum ^ spoil };
        // 0 is none over IPv4, and refused over IPv6.
        prop_assume!(stored != 0 || absent && is_ip4);
        frame[at..at + 2].copy_from_slice(&stored.to_be_bytes());
        let was_right = is_right(&frame);
        let found = Datagram::of(&frame, PORT).expect("right").expect("to the port");
        prop_assert_eq!(found.checksum_is_right(), was_right);
        let said = message(Op::GetOk, &value);
        let mut head = [0; HEAD_MAX];
        let len = found.answer(&said, &mut head).expect("a message");
        let answer = &[&head[..len], &value].concat()[..];
        prop_assert_eq!(is_right(answer), was_right);
        let answered = Datagram::of(answer, 4000).expect("right").expect("to the client");
        prop_assert_eq!(Message::parse(answered.payload()), Ok(said));
        prop_assert_eq!((answered.src(), answered.dst()), (found.dst(), found.src()));
        prop_assert_eq!(&answer[12..l3], &frame[12..l3]);
        prop_assert!(!is_ip4 || answer[l3 + 1] == tos & DSCP);

        let stamp = Stamp { boot: 9, install: 8, writes: 7 };
        let mut head = [0; HEAD_MAX];
        let len = found.mark(Op::PutCached, stamp, &mut head).expect("a message");
        let marked = [&head[..len], &frame[len..]].concat();
        prop_assert_eq!(is_right(&marked), was_right);
        let read = Datagram::of(&marked, PORT).expect("right").expect("to the port");
        let head = Message { op: Op::PutCached, status: Status::Ok, stamp, ..message(op, asked) };
        prop_assert_eq!(Message::parse(read.payload()), Ok(head));
    }

    /// No frame that a receiver would read a datagram to the port from passes unseen.
    #[test]
    fn nothing_to_the_port_passes_unseen(
        frame in prop_oneof![valid().prop_map(|built| built.frame), mutated()], other: u16,
    ) {
        let mut key = FlowKey::default();
        // Mostly a port that the frame has.
        let port = match extract(&frame, 0, &mut key) {
            Ok(_) if key.tp_dst != 0 => key.tp_dst,
            _ => other,
        };
        let offsets = extract(&frame, 0, &mut key);
        let seen = offsets.is_ok_and(|o| o.transport == Transport::Udp) && key.tp_dst == port;
        let found = Datagram::of(&frame, port);
        prop_assert!(!seen || found != Ok(None), "{:?}", found);
        prop_assert!(seen || !matches!(found, Ok(Some(_))), "{:?}", found);
    }
}
