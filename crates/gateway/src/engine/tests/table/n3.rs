//! Frames from N3 that can be read: tunnels, addresses, and the gateway itself.

use super::*;

#[test]
fn bad_inputs_from_n3() {
    let (four, six, fe80) =
        (inner(), six(), packet(ip("fe80::1"), ip("ff02::2"), 255, [1, 2], 100));
    let to_gtpu = packet(ip("10.45.0.1"), ip("192.0.2.80"), 64, [2152, 2152], 200);
    let big = packet(ip("10.45.0.1"), ip("192.0.2.80"), 64, [1, 2], 1401);
    let big = changed(big, |p| p[6] = 0x40);
    let expired = packet(ip("10.45.0.1"), ip("192.0.2.80"), 1, [1, 2], 100);
    let nested = gtpu(0, 255, 2, &[], &v4([10, 45, 0, 2], [192, 0, 2, 80]));
    let nested =
        changed(to_gtpu.clone(), |p| p.splice(28..28 + nested.len(), nested).for_each(drop));
    let to_n4 = packet(ip("10.45.0.1"), ip("192.0.2.80"), 64, [8805, 8805], 100);
    let routing = to_n3(of(3).peer, of(3).n3, &gtpu(0, 255, 3, &[], &four)).tap(|f| {
        (f[20], f[54], f[55], f[56], f[57]) = (43, 17, 0, 0, 1);
    });
    let of_six = to_n3(of(3).peer, of(3).n3, &gtpu(0, 255, 3, &[], &four));
    let indication = [16, 0, 0, 0x10, 1, 133, 0, 4, 198, 51, 100, 7];
    let rows: &[Row] = &[
        ("", "a packet of a session", tunnelled(&four), "n6", UP),
        ("", "the same over IPv6 inside", tunnelled(&six), "n6", UP),
        ("#4762", "TEID of another session", g_pdu(&of(2), true, &four), "spoofed_source", NONE),
        (
            "#4767",
            "address of another session",
            tunnelled(&v4([10, 45, 0, 2], [192, 0, 2, 80])),
            "spoofed_source",
            NONE,
        ),
        (
            "#4767",
            "prefix of another session",
            tunnelled(&packet(ip("2001:db8:45:3::5"), ip("2001:db8:80::80"), 64, [1, 2], 100)),
            "spoofed_source",
            NONE,
        ),
        (
            "#4767",
            "address of no pool",
            tunnelled(&v4([192, 0, 2, 80], [192, 0, 2, 81])),
            "spoofed_source",
            NONE,
        ),
        (
            "#4492",
            "TEID of another N3 address",
            g_pdu(&Session { teid: 3, ..of(1) }, true, &four),
            "unknown_teid",
            INDICATION,
        ),
        (
            "#4492",
            "the last TEID",
            g_pdu(&Session { teid: u32::MAX, ..of(1) }, true, &four),
            "unknown_teid",
            INDICATION,
        ),
        ("#4492", "TEID 0", g_pdu(&Session { teid: 0, ..of(1) }, true, &four), "teid_zero", NONE),
        ("#4492", "an Echo Request", message(2, 1, 0, &[0, 1, 0, 0], &[]), "n3", ECHO),
        (
            "#4492",
            "an Echo Request of a group",
            to_n3(ip("224.0.0.1"), of(1).n3, &gtpu(2, 1, 0, &[0, 1, 0, 0], &[])),
            "echo_limited",
            NONE,
        ),
        (
            "#4492",
            "an Echo Response",
            message(2, 2, 0, &[0, 1, 0, 0], &[14, 0]),
            "echo_stray",
            NONE,
        ),
        (
            "#4665",
            "Error Indication for a known TEID",
            message(2, 26, 0, &[0; 4], &indication),
            "error_indication",
            NONE,
        ),
        (
            "#4665",
            "the same in another's name",
            to_n3(ip("198.51.100.8"), of(1).n3, &gtpu(2, 26, 0, &[0; 4], &indication)),
            "error_indication",
            NONE,
        ),
        ("#4665", "End Marker of a session", message(0, 254, 1, &[], &[]), "end_marker", NONE),
        (
            "",
            "Supported Extension Headers",
            message(2, 31, 0, &[0, 0, 0, 0], &[141, 1, 0x85]),
            "supported_extensions",
            NONE,
        ),
        ("eUPF #595", "traffic of a terminal to port 2152", tunnelled(&to_gtpu), "n6", UP),
        ("eUPF #595", "GTP-U inside GTP-U", tunnelled(&nested), "n6", UP),
        (
            "eUPF #595",
            "GTP-U inside GTP-U, to our N3 address",
            tunnelled(&changed(nested.clone(), |p| p[16..20].copy_from_slice(&[192, 0, 2, 1]))),
            "to_control",
            NONE,
        ),
        (
            "eUPF #577",
            "a tunnel of another peer at the same local address",
            g_pdu(&Session { peer: ip("198.51.100.99"), ..of(1) }, true, &four),
            "n6",
            UP,
        ),
        (
            "eUPF #577",
            "from the local address itself",
            g_pdu(&Session { peer: of(1).n3, ..of(1) }, true, &four),
            "n6",
            UP,
        ),
        ("#4760", "to our N3 address, through the tunnel", to("192.0.2.1"), "to_control", NONE),
        (
            "#4760",
            "to our other N3 address, through the tunnel",
            to("2001:db8::1"),
            "to_control",
            NONE,
        ),
        ("#4760", "to a protected address: N4", to("10.99.0.5"), "to_control", NONE),
        ("#4760", "to a protected address of IPv6", to("2001:db8:99::5"), "to_control", NONE),
        ("#4760", "PFCP to a host behind N6", tunnelled(&to_n4), "n6", UP),
        ("", "to a group", to("224.0.0.5"), "bad_destination", NONE),
        ("", "to a group of IPv6", to("ff0e::5"), "bad_destination", NONE),
        ("", "to all hosts", to("255.255.255.255"), "bad_destination", NONE),
        ("", "to no address", to("0.0.0.0"), "bad_destination", NONE),
        ("", "to a loopback address", to("127.0.0.1"), "bad_destination", NONE),
        ("", "to the loopback address of IPv6", to("::1"), "bad_destination", NONE),
        ("", "router solicitation of a terminal", tunnelled(&fe80), "link_local", NONE),
        (
            "",
            "gate closed",
            g_pdu(&of(5), true, &v4([10, 45, 0, 5], [192, 0, 2, 80])),
            "gate_closed",
            NONE,
        ),
        ("", "TTL 1", tunnelled(&expired), "ttl_expired", ICMP),
        ("", "longer than the MTU of N6", tunnelled(&big), "too_big", ICMP),
        ("", "no route", to("203.0.113.1"), "no_next_hop", NONE),
        ("", "outer fragment", summed(tunnelled(&four).tap(|f| f[20] = 0x20)), "fragment", NONE),
        (
            "",
            "a later outer fragment",
            summed(tunnelled(&four).tap(|f| f[21] = 9)),
            "fragment",
            NONE,
        ),
        (
            "",
            "outer fragment of IPv6",
            of_six.clone().tap(|f| (f[20], f[54], f[56], f[57]) = (44, 17, 0, 1)),
            "fragment",
            NONE,
        ),
        ("", "outer routing header with segments left", routing, "routed", NONE),
        ("", "wrong outer checksum", tunnelled(&four).tap(|f| f[24] ^= 1), "broken_ip", NONE),
        (
            "",
            "outer length beyond the frame",
            summed(tunnelled(&four).tap(|f| f[16] = 9)),
            "broken_ip",
            NONE,
        ),
        ("", "not UDP", summed(tunnelled(&four).tap(|f| f[23] = 6)), "not_udp", NONE),
        (
            "",
            "to another address",
            to_n3(of(1).peer, ip("192.0.2.99"), &[0; 8]),
            "other_address",
            NONE,
        ),
        ("", "UDP to another port", tunnelled(&four).tap(|f| f[37] = 0), "other_port", NONE),
        ("", "to another station", tunnelled(&four).tap(|f| f[5] = 9), "other_mac", NONE),
        ("", "to all stations", tunnelled(&four).tap(|f| f[..6].fill(0xff)), "other_mac", NONE),
        (
            "",
            "a VLAN tag",
            tunnelled(&four).tap(|f| f[12..14].copy_from_slice(&[0x81, 0])),
            "vlan",
            NONE,
        ),
        ("", "ARP", tunnelled(&four).tap(|f| f[13] = 6), "not_ip", NONE),
        ("", "a runt", vec![2; 13], "truncated_ethernet", NONE),
        ("", "an empty frame", vec![], "truncated_ethernet", NONE),
    ];
    check_rows(0, rows);
}
