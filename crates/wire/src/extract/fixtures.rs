//! Extraction, by fixtures: what it is, the frame, its key and headers.

use super::*;
use crate::key::{DL_TYPE_NONE, FRAG_ANY, FRAG_LATER};

const DST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SRC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// 10.0.0.1 to 10.0.0.2, and a TCP header from port 1 to port 2 with flags 0xe12.
const ADDRESSES: &str = "0a000001 0a000002";
const TCP: &str = "0001 0002 00000001 00000002 5e12 0100 0000 0000";
/// fd00::1 to fd00::2.
const ADDRESSES6: &str = "fd000000000000000000000000000001 fd000000000000000000000000000002";

/// Returns addresses, then the bytes given as hex.
pub(super) fn frame(parts: &[&str]) -> Vec<u8> {
    let hex: String = parts.concat().split_whitespace().collect();
    let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    [&DST[..], &SRC].concat().into_iter().chain((0..hex.len()).step_by(2).map(byte)).collect()
}

/// Returns the key of a frame of this type, changed by `with`.
fn key(dl_type: u16, with: impl Fn(&mut FlowKey)) -> FlowKey {
    let mut key = FlowKey { in_port: 9, dl_dst: DST, dl_src: SRC, dl_type, ..FlowKey::default() };
    with(&mut key);
    key
}

/// Returns the key of an IPv4 packet between the usual addresses, TTL 64.
fn key4(nw_proto: u8, with: impl Fn(&mut FlowKey)) -> FlowKey {
    key(0x0800, |k| {
        (k.nw_src, k.nw_dst, k.nw_ttl, k.nw_proto) = (0x0a00_0001, 0x0a00_0002, 64, nw_proto);
        with(k);
    })
}

/// Returns the key of an IPv6 packet between the usual addresses, hop limit 64, class 0xb8, label
/// 0x12345.
fn key6(nw_proto: u8, with: impl Fn(&mut FlowKey)) -> FlowKey {
    key(0x86dd, |k| {
        (k.ipv6_src[0], k.ipv6_src[1], k.ipv6_src[15]) = (0xfd, 0, 1);
        (k.ipv6_dst[0], k.ipv6_dst[1], k.ipv6_dst[15]) = (0xfd, 0, 2);
        (k.ipv6_label, k.nw_tos, k.nw_ttl, k.nw_proto) = (0x1_2345, 0xb8, 64, nw_proto);
        with(k);
    })
}

fn check(cases: &[(&str, Vec<u8>, FlowKey, Network, Transport)]) {
    for (what, frame, expected, network, transport) in cases {
        let mut key = FlowKey::default();
        let offsets = extract(frame, 9, &mut key).unwrap();
        assert_eq!(&key, expected, "{what}");
        assert_eq!((offsets.network, offsets.transport), (*network, *transport), "{what}");
    }
}

#[test]
fn link_layer() {
    let tag = |k: &mut FlowKey| (k.vlan_tpid, k.vlan_tci) = (0x8100, 0x7005);
    let no = (Network::None, Transport::None);
    check(&[
        ("type only", frame(&["88b5"]), key(0x88b5, |_| ()), no.0, no.1),
        ("a tag", frame(&["8100 6005 88b5"]), key(0x88b5, tag), no.0, no.1),
        ("a tag with DEI", frame(&["8100 7005 88b5"]), key(0x88b5, tag), no.0, no.1),
        ("a tag cut short is a type", frame(&["8100 6005 88"]), key(0x8100, |_| ()), no.0, no.1),
        (
            "QinQ",
            frame(&["88a8 0064 8100 6005 88b5"]),
            key(0x88b5, |k| {
                (k.vlan_tpid, k.vlan_tci) = (0x88a8, 0x1064);
                (k.inner_tpid, k.inner_tci) = (0x8100, 0x7005);
            }),
            no.0,
            no.1,
        ),
        (
            "a third tag is a type",
            frame(&["8100 6005 8100 0006 8100 0007 0800", "4500"]),
            key(0x8100, |k| {
                tag(k);
                (k.inner_tpid, k.inner_tci) = (0x8100, 0x1006);
            }),
            no.0,
            no.1,
        ),
        ("0x9100 is a type", frame(&["9100 6005 0800"]), key(0x9100, |_| ()), no.0, no.1),
        ("LLC", frame(&["0026 424203 0000000000"]), key(DL_TYPE_NONE, |_| ()), no.0, no.1),
        ("802.3, nothing more", frame(&["0000"]), key(DL_TYPE_NONE, |_| ()), no.0, no.1),
        ("SNAP", frame(&["0008 aaaa03 000000 88b5"]), key(0x88b5, |_| ()), no.0, no.1),
        (
            "SNAP of another organisation",
            frame(&["0008 aaaa03 00000c 2000"]),
            key(DL_TYPE_NONE, |_| ()),
            no.0,
            no.1,
        ),
        (
            "SNAP, no type",
            frame(&["0008 aaaa03 000000 05ff"]),
            key(DL_TYPE_NONE, |_| ()),
            no.0,
            no.1,
        ),
        (
            "tag, then SNAP",
            frame(&["8100 6005 0024 aaaa03 000000 88b5"]),
            key(0x88b5, tag),
            no.0,
            no.1,
        ),
    ]);
    for len in 0..14 {
        let short = &frame(&["0800 4500"])[..len];
        let mut key = FlowKey { nw_src: 7, ..FlowKey::default() };
        assert_eq!(extract(short, 9, &mut key), Err(DropReason::TruncatedEthernet), "{len} bytes");
        assert_eq!(key, FlowKey { in_port: 9, ..FlowKey::default() });
    }
}

#[test]
fn arp_and_rarp() {
    let body = "020000000002 0a000001 000000000000 0a000002";
    let arp = |k: &mut FlowKey| {
        (k.arp_sha, k.nw_src, k.nw_dst) = (SRC, 0x0a00_0001, 0x0a00_0002);
    };
    let request = |k: &mut FlowKey| {
        arp(k);
        k.nw_proto = 1;
    };
    check(&[
        (
            "request",
            frame(&["0806 0001 0800 06 04 0001", body]),
            key(0x0806, request),
            Network::Arp,
            Transport::None,
        ),
        (
            "RARP",
            frame(&["8035 0001 0800 06 04 0003", body, "0000"]),
            key(0x8035, |k| {
                arp(k);
                k.nw_proto = 3;
            }),
            Network::Arp,
            Transport::None,
        ),
        (
            "opcode that does not fit",
            frame(&["0806 0001 0800 06 04 0101", body]),
            key(0x0806, arp),
            Network::Arp,
            Transport::None,
        ),
        (
            "other hardware",
            frame(&["0806 0006 0800 06 04 0001", body]),
            key(0x0806, |_| ()),
            Network::None,
            Transport::None,
        ),
        (
            "cut short",
            frame(&["0806 0001 0800 06 04 0001", &body[..body.len() - 2]]),
            key(0x0806, |_| ()),
            Network::None,
            Transport::None,
        ),
    ]);
}

#[test]
fn ipv4_headers() {
    let (ip4, broken) = (Network::Ip4, Network::BrokenIp);
    let tcp = |k: &mut FlowKey| (k.tp_src, k.tp_dst, k.tcp_flags) = (1, 2, 0xe12);
    let full = |header: &str| frame(&["0800", header, ADDRESSES, TCP]);
    let good = full("4500 0028 0000 4000 4006 0000");
    let padded = |len: usize| [good.clone(), vec![0; len]].concat();
    let nothing = || key(0x0800, |_| ());
    check(&[
        ("TCP", good.clone(), key4(6, tcp), ip4, Transport::Tcp),
        ("padding of 65,535 bytes", padded(65_535), key4(6, tcp), ip4, Transport::Tcp),
        ("padding of 65,536 bytes", padded(65_536), nothing(), broken, Transport::None),
        ("one byte missing", good[..53].to_vec(), nothing(), broken, Transport::None),
        ("nothing but the type", good[..14].to_vec(), nothing(), broken, Transport::None),
        ("19 bytes", good[..33].to_vec(), nothing(), broken, Transport::None),
        ("version 5", full("5500 0028 0000 4000 4006 0000"), nothing(), broken, Transport::None),
        ("header of 16", full("4400 0028 0000 4000 4006 0000"), nothing(), broken, Transport::None),
        ("total of 19", full("4500 0013 0000 4000 4006 0000"), nothing(), broken, Transport::None),
        (
            "header > total",
            full("4b00 0028 0000 4000 4006 0000"),
            nothing(),
            broken,
            Transport::None,
        ),
        (
            "options",
            frame(&["0800 4700 0030 0000 4000 4006 0000", ADDRESSES, "0101010101010101", TCP]),
            key4(6, tcp),
            ip4,
            Transport::Tcp,
        ),
        (
            "first fragment",
            full("4500 0028 0000 2000 4006 0000"),
            key4(6, |k| {
                tcp(k);
                k.nw_frag = FRAG_ANY;
            }),
            ip4,
            Transport::Tcp,
        ),
        (
            "later fragment",
            full("4500 0028 0000 0001 4006 0000"),
            key4(6, |k| k.nw_frag = FRAG_ANY | FRAG_LATER),
            ip4,
            Transport::None,
        ),
        (
            "the reserved bit makes no fragment",
            full("4500 0028 0000 8000 4006 0000"),
            key4(6, tcp),
            ip4,
            Transport::Tcp,
        ),
        (
            "TCP with a data offset of 4",
            frame(&["0800 4500 0028 0000 4000 4006 0000", ADDRESSES, &TCP.replace("5e12", "4e12")]),
            key4(6, |_| ()),
            ip4,
            Transport::None,
        ),
        (
            "TCP with options beyond the packet's end",
            frame(&["0800 4500 0028 0000 4000 4006 0000", ADDRESSES, &TCP.replace("5e12", "6e12")]),
            key4(6, |_| ()),
            ip4,
            Transport::None,
        ),
        (
            "TCP cut short by the total length, not by the frame",
            full("4500 0027 0000 4000 4006 0000"),
            key4(6, |_| ()),
            ip4,
            Transport::None,
        ),
    ]);
}

#[test]
fn transports() {
    let ip4 = |header: &str, body: &str| frame(&["0800", header, ADDRESSES, body]);
    let ports = |k: &mut FlowKey| (k.tp_src, k.tp_dst) = (0x1234, 0x0035);
    let echo = |k: &mut FlowKey| (k.tp_src, k.tp_dst) = (8, 0);
    let n = Network::Ip4;
    check(&[
        (
            "UDP",
            ip4("45b9 001c 0000 4000 4011 0000", "1234 0035 0008 0000"),
            key4(17, |k| {
                ports(k);
                k.nw_tos = 0xb9;
            }),
            n,
            Transport::Udp,
        ),
        (
            "UDP of 7 bytes",
            ip4("4500 001b 0000 4000 4011 0000", "1234 0035 0008 0000"),
            key4(17, |_| ()),
            n,
            Transport::None,
        ),
        (
            "SCTP",
            ip4("4500 0020 0000 4000 4084 0000", "1234 0035 00000000 00000000"),
            key4(132, ports),
            n,
            Transport::Sctp,
        ),
        (
            "SCTP of 11 bytes",
            ip4("4500 001f 0000 4000 4084 0000", "1234 0035 00000000 00000000"),
            key4(132, |_| ()),
            n,
            Transport::None,
        ),
        (
            "ICMP",
            ip4("4500 001c 0000 4000 4001 0000", "0800 0000 0001 0001"),
            key4(1, echo),
            n,
            Transport::Icmp,
        ),
        (
            "ICMP of 7 bytes",
            ip4("4500 001b 0000 4000 4001 0000", "0800 0000 0001 0001"),
            key4(1, |_| ()),
            n,
            Transport::None,
        ),
        (
            "ICMPv6 over IPv4",
            ip4("4500 001c 0000 4000 403a 0000", "8000 0000 0001 0001"),
            key4(58, |_| ()),
            n,
            Transport::None,
        ),
        (
            "another protocol",
            ip4("4500 001c 0000 4000 402f 0000", "1234 0035 0008 0000"),
            key4(47, |_| ()),
            n,
            Transport::None,
        ),
    ]);
}

#[test]
fn ipv6_headers() {
    let (ip6, broken) = (Network::Ip6, Network::BrokenIp);
    let ip = |lens: &str, rest: &[&str]| {
        frame(&[&["86dd 6b812345", lens, "40", ADDRESSES6], rest].concat())
    };
    let udp = "1234 0035 0008 0000";
    let ports = |k: &mut FlowKey| (k.tp_src, k.tp_dst) = (0x1234, 0x0035);
    let addresses_only = || key6(0, |k| (k.nw_tos, k.nw_ttl, k.ipv6_label) = (0, 0, 0));
    let nothing = || key(0x86dd, |_| ());
    let version4 = frame(&["86dd 4b812345 0008 11 40", ADDRESSES6, udp]);
    check(&[
        ("UDP", ip("0008 11", &[udp]), key6(17, ports), ip6, Transport::Udp),
        ("padded", ip("0008 11", &[udp, "0000"]), key6(17, ports), ip6, Transport::Udp),
        ("no payload", ip("0000 3b", &[]), key6(59, |_| ()), ip6, Transport::None),
        ("payload cut short", ip("0009 11", &[udp]), nothing(), broken, Transport::None),
        ("version 4", version4, nothing(), broken, Transport::None),
        (
            "hop-by-hop, routing, options, authentication",
            ip(
                "0038 00",
                &[
                    "2b00 010400000000",
                    "3c00 0000 00000000",
                    "3301 0000000000000000 0000 00000000",
                    "1102 0000 00000000 00000000 00000000",
                    udp,
                ],
            ),
            key6(17, ports),
            ip6,
            Transport::Udp,
        ),
        (
            "atomic fragment is none",
            ip("0010 2c", &["1100 0000 00000007", udp]),
            key6(17, ports),
            ip6,
            Transport::Udp,
        ),
        (
            "first fragment",
            ip("0010 2c", &["1100 0001 00000007", udp]),
            key6(17, |k| {
                ports(k);
                k.nw_frag = FRAG_ANY;
            }),
            ip6,
            Transport::Udp,
        ),
        (
            "later fragment",
            ip("0010 2c", &["1100 0009 00000007", udp]),
            key6(44, |k| k.nw_frag = FRAG_ANY | FRAG_LATER),
            ip6,
            Transport::None,
        ),
        (
            "options that run past the payload",
            ip("0010 00", &["1102 010400000000", udp]),
            addresses_only(),
            broken,
            Transport::None,
        ),
        (
            "seven bytes of an options header",
            ip("0007 3c", &["1100 0104000000", ""]),
            addresses_only(),
            broken,
            Transport::None,
        ),
    ]);
    let mut key = FlowKey::default();
    let routed = ip("0010 2b", &["1100 0001 00000000", udp]);
    assert!(extract(&routed, 9, &mut key).unwrap().routed);
    let arrived = ip("0010 2b", &["1100 0000 00000000", udp]);
    assert!(!extract(&arrived, 9, &mut key).unwrap().routed);
}

#[test]
fn neighbour_discovery() {
    let message = |len: &str, rest: &[&str]| {
        frame(&[&["86dd 6b812345", len, "3a 40", ADDRESSES6], rest].concat())
    };
    let target = "fe80000000000000 0000000000000007";
    let nd = |kind: u16, sha: [u8; 6], tha: [u8; 6]| {
        key6(58, |k| {
            (k.tp_src, k.arp_sha, k.arp_tha) = (kind, sha, tha);
            (k.nd_target[0], k.nd_target[1], k.nd_target[15]) = (0xfe, 0x80, 7);
        })
    };
    let (mac, none) = ([2, 0, 0, 0, 0, 5], [0; 6]);
    let kind = |kind: u16| key6(58, |k| k.tp_src = kind);
    let solicit = "8700 0000 00000000";
    let sll = "0101 020000000005";
    let (ip6, icmp6) = (Network::Ip6, Transport::Icmp6);
    let cases = [
        ("echo", message("0008", &["8000 0000 00010001"]), kind(128)),
        ("solicitation", message("0020", &[solicit, target, sll]), nd(135, mac, none)),
        (
            "advertisement",
            message("0020", &["8800 0000 60000000", target, "0201 020000000005"]),
            nd(136, none, mac),
        ),
        ("no options", message("0018", &[solicit, target]), nd(135, none, none)),
        (
            "after an unknown option",
            message("0030", &[solicit, target, "0e02 0000 00000000 00000000 00000000", sll]),
            nd(135, mac, none),
        ),
        ("the same option twice", message("0028", &[solicit, target, sll, sll]), kind(135)),
        (
            "an option of no length ends them",
            message("0028", &[solicit, target, "0100 000000000000", sll]),
            nd(135, none, none),
        ),
        (
            "an option that runs past the end",
            message("0020", &[solicit, target, "0102 020000000005"]),
            nd(135, none, none),
        ),
        ("no whole target", message("0010", &[solicit, "fe80000000000000"]), kind(135)),
        (
            "another code",
            message("0020", &["8701 0000 00000000", target, sll]),
            key6(58, |k| (k.tp_src, k.tp_dst) = (135, 1)),
        ),
    ];
    check(&cases.map(|(what, frame, key)| (what, frame, key, ip6, icmp6)));
}

#[test]
fn offsets_count_tags_and_leave_padding_out() {
    let tagged = frame(&["8100 0001 0800 4600 0020 0000 4000 4011 0000", ADDRESSES, "01010101"]);
    let tagged = [tagged, vec![0; 30]].concat();
    let expected = Offsets {
        l3: 18,
        network: Network::Ip4,
        transport: Transport::Udp,
        l4: 42,
        end: 50,
        tags: 1,
        ..Offsets::default()
    };
    assert_eq!(extract(&tagged, 9, &mut FlowKey::default()), Ok(expected));
    assert!(size_of::<Offsets>() <= 16);
}

#[test]
fn extension_headers_beyond_16_bits() {
    let mut bytes = frame(&["86dd 6b812345 ffff 3c 40", ADDRESSES6]);
    let headers = 0xffff / 2048;
    for _ in 0..headers {
        bytes.extend([60, 255]);
        bytes.extend([0; 2046]);
    }
    bytes.resize(14 + 40 + 0xffff, 0);
    let mut key = FlowKey::default();
    let offsets = extract(&bytes, 9, &mut key).unwrap();
    // Options all the way down: the last ones are cut short.
    assert_eq!(offsets.network, Network::BrokenIp);
    let last = 14 + 40 + 2048 * (headers - 1);
    bytes[last] = 17;
    let offsets = extract(&bytes, 9, &mut key).unwrap();
    assert_eq!((offsets.l4 as usize, offsets.transport), (last + 2048, Transport::Udp));
    assert_eq!(offsets.end, 14 + 40 + 0xffff);
}
