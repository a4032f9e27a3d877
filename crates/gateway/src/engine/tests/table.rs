//! Bad inputs that gateways of others fell over, and the limits of answers: description, frame in,
//! verdict, counter that moved.

use super::frames::{frame, g_pdu, gtpu, packet, to_n3};
use super::*;
use overbank_reasons::Reasons;

/// Collects what happened, by name: a reason, or `n3` and `n6` for what was sent.
#[derive(Default)]
struct Names {
    fates: Vec<&'static str>,
    made: Vec<Vec<u8>>,
}

impl Sink for Names {
    fn output(&mut self, _: usize, port: u16, _: &[u8]) {
        self.fates.push(["n3", "n6"][usize::from(port)]);
    }

    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], _: &[u8]) {
        self.output(index, port, head);
    }

    fn drop(&mut self, _: usize, reason: DropReason) {
        self.fates.push(DropReason::name_at(reason.index()));
    }

    fn originate(&mut self, _: u16, bytes: &[u8]) {
        self.made.push(bytes.to_vec());
    }
}

impl Rig {
    fn name(&mut self, port: u16, frame: &[u8]) -> (&'static str, usize) {
        let mut names = Names::default();
        self.gateway.forward(&[frame], port, self.now_ms, &mut names);
        assert_eq!(names.fates.len(), 1);
        (names.fates[0], names.made.len())
    }
}

fn of(id: usize) -> Session {
    all_sessions()[id - 1]
}

fn v4(src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
    packet(src.into(), dst.into(), 64, [1000, 53], 100)
}

/// A packet of the terminal of session 1.
fn inner() -> Vec<u8> {
    v4([10, 45, 0, 1], [192, 0, 2, 80])
}

fn message(flags: u8, kind: u8, teid: u32, optional: &[u8], body: &[u8]) -> Vec<u8> {
    to_n3(of(1).peer, of(1).n3, &gtpu(flags, kind, teid, optional, body))
}

fn changed(mut bytes: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut bytes);
    bytes
}

#[test]
fn bad_inputs_from_n3() {
    type Counted = Option<fn(&GatewayTotals) -> u64>;
    let none: Counted = None;
    let up: Counted = Some(|t| t.uplink);
    let indication: Counted = Some(|t| t.error_indications);
    let icmp: Counted = Some(|t| t.icmp_errors);
    let six = packet(ip("2001:db8:45:1::5"), ip("2001:db8:80::80"), 64, [1, 2], 100);
    let fe80 = packet(ip("fe80::1"), ip("ff02::2"), 255, [1, 2], 100);
    let to_gtpu = packet(ip("10.45.0.1"), ip("192.0.2.80"), 64, [2152, 2152], 200);
    let big = packet(ip("10.45.0.1"), ip("192.0.2.80"), 64, [1, 2], 1401);
    let big = changed(big, |p| p[6] = 0x40);
    let expired = packet(ip("10.45.0.1"), ip("192.0.2.80"), 1, [1, 2], 100);
    let nested = gtpu(0, 255, 2, &[], &v4([10, 45, 0, 2], [192, 0, 2, 80]));
    let nested =
        changed(to_gtpu.clone(), |p| p.splice(28..28 + nested.len(), nested).for_each(drop));
    let of_one_session = |packet: &[u8]| g_pdu(&of(1), true, packet);
    let fragment = changed(of_one_session(&inner()), |f| {
        f[20] = 0x20;
        let sum = u16::from_be_bytes([f[24], f[25]]);
        let (sum, carry) = sum.overflowing_add(0x2000);
        f[24..26].copy_from_slice(&(sum + u16::from(carry)).to_be_bytes());
    });
    let rows: &[(&str, Vec<u8>, &str, Counted)] = &[
        ("a packet of a session", of_one_session(&inner()), "n6", up),
        ("the same over IPv6 inside", of_one_session(&six), "n6", up),
        (
            "crafted: length beyond the datagram",
            message(0, 255, 1, &[], &[]).tap(|f| f[45] = 9),
            "length",
            none,
        ),
        (
            "crafted: E set, chain cut short",
            message(4, 255, 1, &[0, 0, 0, 0x85], &[]),
            "short_extension",
            none,
        ),
        (
            "crafted: extension of length 0",
            message(4, 255, 1, &[0, 0, 0, 0x85, 0], &inner()),
            "empty_extension",
            none,
        ),
        (
            "crafted: version 2",
            message(0, 255, 1, &[], &inner()).tap(|f| f[42] = 0x50),
            "version",
            none,
        ),
        ("unknown message type", message(0, 240, 1, &[], &[]), "unknown_message", none),
        ("End Marker of a session", message(0, 254, 1, &[], &[]), "end_marker", none),
        (
            "Supported Extension Headers",
            message(2, 31, 0, &[0, 0, 0, 0], &[141, 1, 0x85]),
            "supported_extensions",
            none,
        ),
        ("no inner packet", message(0, 255, 1, &[], &[]), "inner_version", none),
        (
            "inner IPv4 of length 0",
            of_one_session(&changed(inner(), |p| p[2..4].fill(0))),
            "inner_length",
            none,
        ),
        (
            "inner IPv6 of length 0",
            of_one_session(&changed(six.clone(), |p| p[4..6].fill(0))),
            "inner_empty",
            none,
        ),
        ("TEID of another session", g_pdu(&of(2), true, &inner()), "spoofed_source", none),
        (
            "address of another session",
            of_one_session(&v4([10, 45, 0, 2], [192, 0, 2, 80])),
            "spoofed_source",
            none,
        ),
        (
            "TEID of another N3 address",
            g_pdu(&Session { teid: 3, ..of(1) }, true, &inner()),
            "unknown_teid",
            indication,
        ),
        ("TEID 0", g_pdu(&Session { teid: 0, ..of(1) }, true, &inner()), "teid_zero", none),
        (
            "Error Indication for a known TEID",
            message(2, 26, 0, &[0; 4], &[16, 0, 0, 0x10, 1, 133, 0, 4, 198, 51, 100, 7]),
            "error_indication",
            none,
        ),
        ("traffic of a terminal to port 2152", of_one_session(&to_gtpu), "n6", up),
        ("GTP-U inside GTP-U", of_one_session(&nested), "n6", up),
        (
            "to our N3 address, through the tunnel",
            of_one_session(&v4([10, 45, 0, 1], [192, 0, 2, 1])),
            "to_control",
            none,
        ),
        (
            "to a protected address: N4",
            of_one_session(&v4([10, 45, 0, 1], [10, 99, 0, 5])),
            "to_control",
            none,
        ),
        (
            "to a group",
            of_one_session(&v4([10, 45, 0, 1], [224, 0, 0, 5])),
            "bad_destination",
            none,
        ),
        ("router solicitation of a terminal", of_one_session(&fe80), "link_local", none),
        (
            "gate closed",
            g_pdu(&of(5), true, &v4([10, 45, 0, 5], [192, 0, 2, 80])),
            "gate_closed",
            none,
        ),
        ("TTL 1", of_one_session(&expired), "ttl_expired", icmp),
        ("longer than the MTU of N6", of_one_session(&big), "too_big", icmp),
        ("no route", of_one_session(&v4([10, 45, 0, 1], [203, 0, 113, 1])), "no_next_hop", none),
        ("outer fragment", fragment, "fragment", none),
        ("wrong outer checksum", of_one_session(&inner()).tap(|f| f[24] ^= 1), "broken_ip", none),
        ("to another address", to_n3(of(1).peer, ip("192.0.2.99"), &[0; 8]), "other_address", none),
        ("UDP to another port", of_one_session(&inner()).tap(|f| f[37] = 0), "other_port", none),
        ("to another station", of_one_session(&inner()).tap(|f| f[5] = 9), "other_mac", none),
        (
            "a VLAN tag",
            of_one_session(&inner()).tap(|f| f[12..14].copy_from_slice(&[0x81, 0])),
            "vlan",
            none,
        ),
        ("ARP", of_one_session(&inner()).tap(|f| f[13] = 6), "not_ip", none),
        ("a runt", vec![2; 13], "truncated_ethernet", none),
        ("an empty frame", vec![], "truncated_ethernet", none),
    ];
    for (description, frame, verdict, counter) in rows {
        // A new gateway each, so that no limit of answers plays a part.
        let mut rig = Rig::new(view());
        let (name, made) = rig.name(0, frame);
        assert_eq!(name, *verdict, "{description}");
        let totals = rig.totals();
        assert_eq!(counter.map_or(1, |counter| counter(&totals)), 1, "{description}");
        let answers = totals.error_indications + totals.icmp_errors;
        assert_eq!(made as u64, answers, "{description}");
        let moved = totals.uplink + totals.downlink + totals.echo_answered + answers;
        assert_eq!(moved, u64::from(counter.is_some()), "{description}");
    }
}

#[test]
fn bad_inputs_from_n6() {
    type Counted = Option<fn(&GatewayTotals) -> u64>;
    let none: Counted = None;
    let down: Counted = Some(|t| t.downlink);
    let icmp: Counted = Some(|t| t.icmp_errors);
    let to = |dst: &str, ttl, ports, len| {
        let src = if dst.contains(':') { "2001:db8:80::80" } else { "192.0.2.80" };
        let packet = changed(packet(ip(src), ip(dst), ttl, ports, len), |p| {
            if p[0] >> 4 == 4 {
                p[6] = 0x40;
            }
        });
        frame(N6_MAC, ROUTER_MAC, &packet)
    };
    let plain = |dst| to(dst, 64, [53, 1000], 100);
    let rows: &[(&str, Vec<u8>, &str, Counted)] = &[
        ("to a terminal", plain("10.45.0.1"), "n3", down),
        ("to any address of a terminal's prefix", plain("2001:db8:45:1::99"), "n3", down),
        ("to port 2152 of a terminal", to("10.45.0.1", 64, [2152, 2152], 100), "n3", down),
        ("to no terminal", plain("10.45.0.99"), "unknown_ue", none),
        ("to no pool", plain("10.46.0.1"), "not_ue", none),
        ("gate closed", plain("10.45.0.6"), "gate_closed", none),
        ("TTL 1", to("10.45.0.1", 1, [1, 2], 100), "ttl_expired", icmp),
        ("hop limit 0", to("2001:db8:45:1::1", 0, [1, 2], 100), "ttl_expired", icmp),
        ("fills the MTU of N3", to("10.45.0.1", 64, [1, 2], 1456), "n3", down),
        ("exceeds it by one", to("10.45.0.1", 64, [1, 2], 1457), "too_big", icmp),
        ("exceeds it over IPv6", to("2001:db8:45:3::1", 64, [1, 2], 1437), "too_big", icmp),
        (
            "exceeds it and may be fragmented",
            to("10.45.0.1", 64, [1, 2], 1457).tap(|f| f[20] = 0),
            "too_big",
            none,
        ),
        ("a peer without a route", plain("10.45.0.8"), "no_next_hop", none),
        ("IPv4 header cut short", plain("10.45.0.1")[..30].to_vec(), "broken_ip", none),
        (
            "inner IPv6 of length 0",
            plain("2001:db8:45:1::1").tap(|f| f[18..20].fill(0)),
            "inner_empty",
            none,
        ),
    ];
    for (description, frame, verdict, counter) in rows {
        let mut rig = Rig::new(view());
        let (name, made) = rig.name(1, frame);
        assert_eq!(name, *verdict, "{description}");
        let totals = rig.totals();
        assert_eq!(counter.map_or(1, |counter| counter(&totals)), 1, "{description}");
        assert_eq!(made as u64, totals.icmp_errors, "{description}");
        let moved = totals.uplink + totals.downlink + totals.icmp_errors;
        assert_eq!(moved, u64::from(counter.is_some()), "{description}");
    }
}

/// Changes a value in passing.
trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for Vec<u8> {}

#[test]
fn answers_are_bounded() {
    let mut rig = Rig::new(view());
    let unknown = |peer: u16| {
        let [a, b] = peer.to_be_bytes();
        g_pdu(&Session { peer: [198, 51, a, b].into(), teid: 77, ..of(1) }, true, &inner())
    };
    let (mut indications, mut of_one, mut echoes) = (Vec::new(), 0, 0);
    for now_ms in 0..3000u64 {
        rig.now_ms = now_ms;
        of_one += rig.name(0, &unknown(7)).1;
        for peer in 0..3 {
            let (name, made) = rig.name(0, &unknown(1000 + (now_ms as u16 % 1000) * 3 + peer));
            assert_eq!(name, "unknown_teid");
            indications.extend((0..made).map(|_| now_ms));
        }
        let echo = message(2, 1, 0, &[0, 1, 0, 0], &[]);
        echoes += u64::from(rig.name(0, &echo).0 == "n3");
    }
    // The peer may share its place with another one.
    assert!((1..=3).contains(&of_one), "{of_one}");
    for start in 0..2000 {
        let within = indications.iter().filter(|at| (start..start + 1000).contains(*at)).count();
        assert!(within <= 100, "{within} in the second from {start} ms");
    }
    assert!(indications.len() > 150, "{}", indications.len());
    assert!((100..=250).contains(&echoes), "{echoes}");
    let totals = rig.totals();
    assert_eq!(totals.echo_answered, echoes);
    let all = totals.error_indications + totals.error_indications_limited;
    assert_eq!(all, 4 * 3000);
}

#[test]
fn a_peer_outside_the_list_gets_no_answer() {
    let peers = [prefix("198.51.100.0/29")].into_iter().collect();
    let mut rig = Rig::new(View { peers, ..view() });
    let echo = |peer: &str| to_n3(ip(peer), of(1).n3, &gtpu(2, 1, 0, &[0, 1, 0, 0], &[]));
    assert_eq!(rig.name(0, &echo("198.51.100.7")), ("n3", 0));
    assert_eq!(rig.name(0, &echo("198.51.100.8")), ("foreign_peer", 0));
    assert_eq!(rig.name(0, &g_pdu(&of(1), true, &inner())), ("n6", 0));
}

#[test]
fn an_end_marker_is_sent_on_request() {
    let mut rig = Rig::new(view());
    let mut names = Names::default();
    let ends = [of(1).n3, of(1).peer];
    rig.gateway.work.end_marker(&rig.gateway.view, ends, 0x1001, &mut names);
    assert_eq!(names.made[0][42..], [0x30, 254, 0, 0, 0, 0, 0x10, 1]);
    assert_eq!(rig.totals().end_markers, 1);
}

#[test]
fn a_session_counts_its_packets() {
    let mut rig = Rig::new(view());
    let up = g_pdu(&of(7), true, &v4([10, 45, 0, 7], [192, 0, 2, 80]));
    let sent = (0..2000).filter(|_| rig.name(0, &up).0 == "n6").count() as u64;
    // 100 ms of a megabyte a second, in packets of 100 bytes, and the one that goes beyond.
    assert_eq!(sent, 1001);
    let counts = rig.sessions.get(7).expect("it exists").counts;
    let uplink = counts.uplink;
    assert_eq!((uplink.packets, uplink.bytes, uplink.dropped), (sent, 100 * sent, 2000 - sent));
    assert_eq!(counts.downlink.packets, 0);
    // The other direction has a rate beside it.
    let down = frame(N6_MAC, ROUTER_MAC, &v4([192, 0, 2, 80], [10, 45, 0, 7]));
    assert_eq!((0..2000).filter(|_| rig.name(1, &down).0 == "n3").count(), 1001);
}
