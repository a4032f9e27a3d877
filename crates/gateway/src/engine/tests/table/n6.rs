//! Frames from N6.

use super::*;

#[test]
fn bad_inputs_from_n6() {
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
    let rows: &[Row] = &[
        ("", "to a terminal", plain("10.45.0.1"), "n3", DOWN),
        ("", "to any address of a terminal's prefix", plain("2001:db8:45:1::99"), "n3", DOWN),
        (
            "eUPF #595",
            "to port 2152 of a terminal",
            to("10.45.0.1", 64, [2152, 2152], 100),
            "n3",
            DOWN,
        ),
        (
            "eUPF #595",
            "to port 2152 of our N3 address",
            to("192.0.2.1", 64, [2152, 2152], 100),
            "not_ue",
            NONE,
        ),
        ("#4760", "PFCP from behind N6", to("10.99.0.5", 64, [8805, 8805], 100), "not_ue", NONE),
        ("#4492", "to no terminal", plain("10.45.0.99"), "unknown_ue", NONE),
        ("#4492", "to no terminal's prefix", plain("2001:db8:45:99::1"), "unknown_ue", NONE),
        ("", "to no pool", plain("10.46.0.1"), "not_ue", NONE),
        ("", "gate closed", plain("10.45.0.6"), "gate_closed", NONE),
        ("", "TTL 1", to("10.45.0.1", 1, [1, 2], 100), "ttl_expired", ICMP),
        ("", "hop limit 0", to("2001:db8:45:1::1", 0, [1, 2], 100), "ttl_expired", ICMP),
        ("", "fills the MTU of N3", to("10.45.0.1", 64, [1, 2], 1456), "n3", DOWN),
        ("", "exceeds it by one", to("10.45.0.1", 64, [1, 2], 1457), "too_big", ICMP),
        ("", "exceeds it over IPv6", to("2001:db8:45:3::1", 64, [1, 2], 1437), "too_big", ICMP),
        (
            "",
            "exceeds it and may be fragmented",
            to("10.45.0.1", 64, [1, 2], 1457).tap(|f| f[20] = 0),
            "too_big",
            NONE,
        ),
        ("", "a peer without a route", plain("10.45.0.8"), "no_next_hop", NONE),
        ("", "IPv4 header cut short", plain("10.45.0.1")[..30].to_vec(), "broken_ip", NONE),
        (
            "#4180",
            "IPv6 of length 0",
            plain("2001:db8:45:1::1").tap(|f| f[18..20].fill(0)),
            "inner_empty",
            NONE,
        ),
        ("", "an empty frame", vec![], "truncated_ethernet", NONE),
    ];
    check_rows(1, rows);
}
