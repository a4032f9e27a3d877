//! Errors: their bytes, their quotes, and the packets that get none.

use super::*;
use crate::testing::internet_checksum;
use etherparse::{Icmpv4Slice, Icmpv6Slice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

const HERE4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254));
const HERE6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe));

/// A UDP packet over IPv4 that must not be fragmented.
fn v4(len: usize) -> Vec<u8> {
    let mut bytes = vec![];
    let builder = PacketBuilder::ipv4([10, 45, 0, 2], [192, 0, 2, 80], 64).udp(5000, 53);
    builder.write(&mut bytes, &vec![7; len - 28]).unwrap();
    bytes[6] = 0x40;
    bytes
}

fn v6(len: usize) -> Vec<u8> {
    let (src, dst) = (0x2001_0db8_0045 << 80 | 2u128, 0x2001_0db8 << 96 | 0x80u128);
    let mut bytes = vec![];
    let builder = PacketBuilder::ipv6(src.to_be_bytes(), dst.to_be_bytes(), 64).udp(5000, 53);
    builder.write(&mut bytes, &vec![7; len - 48]).unwrap();
    bytes
}

fn answer(problem: Problem, bytes: &[u8]) -> Result<Vec<u8>, Silent> {
    let packet = Packet::parse(bytes).expect("a packet");
    let from = if bytes[0] >> 4 == 4 { HERE4 } else { HERE6 };
    let mut room = [0xaa; 2000];
    let len = write(problem, &packet, from, &mut room)?;
    assert!(room[len..].iter().all(|&byte| byte == 0xaa));
    Ok(room[..len].to_vec())
}

#[test]
fn too_big_over_ipv4() {
    for (len, quoted) in [(28, 28), (548, 548), (549, 548), (1500, 548)] {
        let bytes = v4(len);
        let error = answer(Problem::TooBig { mtu: 1400 }, &bytes).unwrap();
        let packet = SlicedPacket::from_ip(&error).unwrap();
        let Some(TransportSlice::Icmpv4(icmp)) = packet.transport else { panic!("{packet:?}") };
        let icmp = Icmpv4Slice::from_slice(icmp.slice()).unwrap();
        assert_eq!((icmp.type_u8(), icmp.code_u8()), (3, 4));
        assert_eq!(icmp.bytes5to8(), [0, 0, 0x05, 0x78]);
        assert_eq!(icmp.payload(), &bytes[..quoted]);
        assert_eq!(internet_checksum(icmp.slice()), 0);
        assert_eq!(internet_checksum(&error[..20]), 0);
        assert_eq!(error[12..20], [192, 0, 2, 254, 10, 45, 0, 2]);
        assert!(error.len() <= LEN_MAX_V4);
    }
    let error = answer(Problem::TooBig { mtu: 70_000 }, &v4(100)).unwrap();
    assert_eq!(error[24..28], [0, 0, 0xff, 0xff], "the largest that the field holds");
}

#[test]
fn too_big_over_ipv6() {
    for (len, quoted) in [(48, 48), (1232, 1232), (1233, 1232), (1500, 1232)] {
        let bytes = v6(len);
        let error = answer(Problem::TooBig { mtu: 1400 }, &bytes).unwrap();
        let packet = SlicedPacket::from_ip(&error).unwrap();
        let Some(TransportSlice::Icmpv6(icmp)) = packet.transport else { panic!("{packet:?}") };
        let icmp = Icmpv6Slice::from_slice(icmp.slice()).unwrap();
        assert_eq!((icmp.type_u8(), icmp.code_u8()), (2, 0));
        assert_eq!(icmp.bytes5to8(), [0, 0, 0x05, 0x78]);
        assert_eq!(icmp.payload(), &bytes[..quoted]);
        let here = error[8..24].try_into().unwrap();
        assert!(icmp.is_checksum_valid(here, error[24..40].try_into().unwrap()));
        assert_eq!(IpAddr::from(here), HERE6);
        assert_eq!(error[24..40], bytes[8..24]);
        assert!(error.len() <= LEN_MAX_V6);
    }
}

#[test]
fn unreachable_has_the_codes_of_the_standards() {
    for (problem, code4, code6) in [
        (Problem::NoRoute, 0, 0),
        (Problem::Host, 1, 3),
        (Problem::Port, 3, 4),
        (Problem::Prohibited, 13, 1),
    ] {
        // Fragmentation does not matter here.
        let mut bytes = v4(60);
        bytes[6] = 0;
        assert_eq!(answer(problem, &bytes).unwrap()[20..22], [3, code4], "{problem:?}");
        assert_eq!(answer(problem, &v6(60)).unwrap()[40..42], [1, code6], "{problem:?}");
    }
    let expired = answer(Problem::TtlExpired, &v4(60)).unwrap();
    assert_eq!((&expired[20..22], &expired[24..28]), (&[11, 0][..], &[0; 4][..]));
    assert_eq!(answer(Problem::TtlExpired, &v6(60)).unwrap()[40..42], [3, 0]);
}

/// Changes packets of 60 bytes, and says why no error answers them.
#[test]
fn what_is_written_is_read() {
    for bytes in [v4(100), v6(100), v4(1500), v6(1500)] {
        for problem in Problem::all(1400) {
            let mut error = answer(problem, &bytes).unwrap();
            let packet = Packet::parse(&error).unwrap();
            let told = read(&packet).unwrap();
            assert_eq!(told.problem, problem);
            assert!(bytes.starts_with(told.about) && told.about.len() >= 100);
            assert_eq!(read(&Packet::parse(&bytes).unwrap()), None, "UDP");
            *error.last_mut().unwrap() ^= 1;
            assert_eq!(read(&Packet::parse(&error).unwrap()), None, "a wrong checksum");
        }
    }
    // RFC 1191 leaves the upper half of the MTU's word unused.
    let mut error = answer(Problem::TooBig { mtu: 1400 }, &v4(100)).unwrap();
    error[24] = 9;
    error[22..24].fill(0);
    let sum = internet_checksum(&error[20..]);
    error[22..24].copy_from_slice(&sum.to_be_bytes());
    let told = read(&Packet::parse(&error).unwrap()).unwrap();
    assert_eq!(told.problem, Problem::TooBig { mtu: 1400 });
}

#[test]
fn packets_without_an_answer() {
    let big = Problem::TooBig { mtu: 1400 };
    let icmp4 = |kind| move |p: &mut Vec<u8>| (p[9], p[20]) = (1, kind);
    let icmp6 = |kind| move |p: &mut Vec<u8>| (p[6], p[40]) = (58, kind);
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let cases: Vec<(Option<Silent>, Vec<u8>, Change)> = vec![
        (Some(Silent::MayFragment), v4(60), Box::new(|p| p[6] = 0)),
        (Some(Silent::Fragment), v4(60), Box::new(|p| p[7] = 1)),
        (None, v4(60), Box::new(|p| p[6] = 0x60)), // The first fragment.
        (Some(Silent::Group), v4(60), Box::new(|p| p[16] = 224)),
        (Some(Silent::Group), v4(60), Box::new(|p| p[16..20].fill(255))),
        (Some(Silent::Source), v4(60), Box::new(|p| p[12..16].fill(0))),
        (Some(Silent::Source), v4(60), Box::new(|p| p[12] = 127)),
        (Some(Silent::Source), v4(60), Box::new(|p| p[12] = 224)),
        (Some(Silent::Source), v4(60), Box::new(|p| p[12..16].fill(255))),
        (Some(Silent::Source), v4(60), Box::new(|p| p[12] = 240)),
        (Some(Silent::Icmp), v4(60), Box::new(icmp4(3))),
        (Some(Silent::Icmp), v4(60), Box::new(icmp4(5))),
        (Some(Silent::Icmp), v4(60), Box::new(icmp4(11))),
        (Some(Silent::Icmp), v4(60), Box::new(icmp4(12))),
        (Some(Silent::Icmp), v4(60), Box::new(icmp4(200))),
        (None, v4(60), Box::new(icmp4(8))),
        (None, v4(60), Box::new(icmp4(0))),
        // ICMPv6 over IPv4 is no ICMP, and the other way round.
        (None, v4(60), Box::new(|p| (p[9], p[20]) = (58, 3))),
        (Some(Silent::Group), v6(60), Box::new(|p| p[24] = 0xff)),
        (Some(Silent::Source), v6(60), Box::new(|p| p[8] = 0xff)),
        (Some(Silent::Source), v6(60), Box::new(|p| p[8..24].fill(0))),
        (Some(Silent::Icmp), v6(60), Box::new(icmp6(1))),
        (Some(Silent::Icmp), v6(60), Box::new(icmp6(127))),
        (Some(Silent::Icmp), v6(60), Box::new(icmp6(137))),
        (None, v6(60), Box::new(icmp6(128))),
        // Fragment headers: a later one, and the first.
        (
            Some(Silent::Fragment),
            v6(60),
            Box::new(|p| {
                p[6] = 44;
                p[40..44].copy_from_slice(&[17, 0, 0, 8]);
            }),
        ),
        (
            None,
            v6(60),
            Box::new(|p| {
                p[6] = 44;
                p[40..44].copy_from_slice(&[17, 0, 0, 1]);
            }),
        ),
        // An error behind options, options cut short, and a message without a type.
        (
            Some(Silent::Icmp),
            v6(60),
            Box::new(|p| {
                p[6] = 60;
                p[40..49].copy_from_slice(&[58, 0, 1, 4, 0, 0, 0, 0, 2]);
            }),
        ),
        (
            Some(Silent::Broken),
            v6(60),
            Box::new(|p| {
                p[6] = 60;
                p[41] = 9;
            }),
        ),
        (
            Some(Silent::Icmp),
            v4(60),
            Box::new(|p| {
                p.truncate(20);
                (p[3], p[9]) = (20, 1);
            }),
        ),
    ];
    for (i, (expected, mut bytes, change)) in cases.into_iter().enumerate() {
        change(&mut bytes);
        assert_eq!(answer(big, &bytes).err(), expected, "case {i}");
    }
    let bytes = v4(60);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(write(big, &packet, HERE6, &mut [0; 600]), Err(Silent::Family));
    assert_eq!(write(big, &packet, HERE4, &mut [0; 87]), Err(Silent::NoRoom));
    assert_eq!(write(big, &packet, HERE4, &mut [0; 88]), Ok(88));
}

proptest! {
    /// Whatever comes: no panic, and nothing is quoted that is not there.
    #[test]
    fn any_bytes_are_an_error_or_none(
        mut bytes in prop::collection::vec(any::<u8>(), 1..200),
        six in any::<bool>(),
        fits in any::<bool>(),
    ) {
        let at = if six { 6 } else { 9 };
        if let (true, Some(proto)) = (fits, bytes.get_mut(at)) {
            *proto = if six { 58 } else { 1 };
        }
        bytes[0] = if six { 0x60 } else { 0x45 };
        if let Ok(packet) = Packet::parse(&bytes)
            && let Some(told) = read(&packet)
        {
            prop_assert!(packet.bytes().ends_with(told.about));
        }
    }

    /// Any packet gets a valid error or none; an error never gets one.
    #[test]
    fn no_error_answers_an_error(
        is4: bool, len in 48..1600usize, changes: [(prop::sample::Index, u8); 3], mtu: u32,
    ) {
        let mut bytes = if is4 { v4(len) } else { v6(len) };
        for (at, value) in changes {
            bytes[at.index(48)] = value;
        }
        let Ok(packet) = Packet::parse(&bytes) else { return Ok(()) };
        let from = if let Ends::V4 { .. } = packet.ends { HERE4 } else { HERE6 };
        for problem in [Problem::TooBig { mtu }, Problem::Prohibited] {
            let mut room = [0; LEN_MAX_V6];
            let Ok(len) = write(problem, &packet, from, &mut room) else { continue };
            let error = Packet::parse(&room[..len]).unwrap();
            prop_assert_eq!(error.bytes().len(), len);
            prop_assert_eq!(error.ends.dst(), packet.ends.src());
            prop_assert_eq!(
                write(Problem::Prohibited, &error, from, &mut [0; LEN_MAX_V6]),
                Err(Silent::Icmp)
            );
        }
    }
}
