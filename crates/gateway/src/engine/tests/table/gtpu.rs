//! Crafted GTP-U.

use super::*;

#[test]
fn bad_gtp_u() {
    const CRAFTED: &str = "#4491, #1767";
    let chain = |optional: &[u8]| message(4, 255, 1, optional, &inner());
    let long: Vec<u8> =
        [0, 0, 0].into_iter().chain([0x40, 1, 8, 0x68].repeat(9)).chain([0]).collect();
    let list = |elements: &[u8]| message(2, 26, 0, &[0; 4], elements);
    let rows: &[Row] = &[
        (
            CRAFTED,
            "length beyond the datagram",
            message(0, 255, 1, &[], &[]).tap(|f| f[45] = 9),
            "length",
            NONE,
        ),
        (
            CRAFTED,
            "length shorter than the packet inside",
            message(0, 255, 1, &[], &inner()).tap(|f| f[45] -= 1),
            "inner_length",
            NONE,
        ),
        (CRAFTED, "length 0 with a sequence number", message(2, 255, 1, &[], &[]), "length", NONE),
        (
            CRAFTED,
            "seven bytes",
            to_n3(of(1).peer, of(1).n3, &[0x30, 255, 0, 0, 0, 0, 0]),
            "short_header",
            NONE,
        ),
        (CRAFTED, "no bytes", to_n3(of(1).peer, of(1).n3, &[]), "short_header", NONE),
        (
            CRAFTED,
            "E set, chain cut short",
            message(4, 255, 1, &[0, 0, 0, 0x85], &[]),
            "short_extension",
            NONE,
        ),
        (
            CRAFTED,
            "extension longer than the message",
            chain(&[0, 0, 0, 0x85, 255, 0, 9, 0]),
            "short_extension",
            NONE,
        ),
        (CRAFTED, "extension of length 0", chain(&[0, 0, 0, 0x85, 0]), "empty_extension", NONE),
        (CRAFTED, "a chain of nine extensions", chain(&long), "too_many_extensions", NONE),
        (
            CRAFTED,
            "an unknown extension that must be understood",
            chain(&[0, 0, 0, 0xc1, 1, 0, 0, 0]),
            "unknown_extension",
            NOTICE,
        ),
        (
            CRAFTED,
            "the same to TEID 0",
            message(4, 255, 0, &[0, 0, 0, 0xc1, 1, 0, 0, 0], &inner()),
            "unknown_extension",
            NONE,
        ),
        (
            CRAFTED,
            "the same in a notification",
            message(6, 31, 1, &[0, 0, 0, 0xc1, 1, 0, 0, 0], &[141, 1, 0x85]),
            "unknown_extension",
            NONE,
        ),
        (
            CRAFTED,
            "two PDU Session Containers",
            chain(&[0, 0, 0, 0x85, 1, 0x10, 9, 0x85, 1, 0x10, 9, 0]),
            "repeated_container",
            NONE,
        ),
        (
            CRAFTED,
            "a PDU Session Container of unknown type",
            chain(&[0, 0, 0, 0x85, 1, 0x30, 9, 0]),
            "broken_container",
            NONE,
        ),
        (
            CRAFTED,
            "version 2",
            message(0, 255, 1, &[], &inner()).tap(|f| f[42] = 0x50),
            "version",
            NONE,
        ),
        (CRAFTED, "GTP'", message(0, 255, 1, &[], &inner()).tap(|f| f[42] = 0x20), "version", NONE),
        (CRAFTED, "unknown message type", message(0, 240, 1, &[], &[]), "unknown_message", NONE),
        (CRAFTED, "no inner packet", message(0, 255, 1, &[], &[]), "inner_version", NONE),
        (
            CRAFTED,
            "inner version 5",
            tunnelled(&inner().tap(|p| p[0] = 0x55)),
            "inner_version",
            NONE,
        ),
        (
            CRAFTED,
            "an inner IPv4 header of 16 bytes",
            tunnelled(&inner().tap(|p| p[0] = 0x44)),
            "inner_length",
            NONE,
        ),
        (
            CRAFTED,
            "an inner IPv4 header beyond the packet",
            message(0, 255, 1, &[], &inner()[..24]).tap(|f| (f[50], f[53]) = (0x4f, 24)),
            "inner_length",
            NONE,
        ),
        (
            CRAFTED,
            "UDP length 7",
            message(0, 255, 1, &[], &inner()).tap(|f| f[38..40].copy_from_slice(&[0, 7])),
            "udp_length",
            NONE,
        ),
        (
            CRAFTED,
            "UDP length beyond the packet",
            message(0, 255, 1, &[], &inner()).tap(|f| f[38] = 9),
            "udp_length",
            NONE,
        ),
        (CRAFTED, "an Error Indication without elements", list(&[]), "missing_element", NONE),
        (
            CRAFTED,
            "an element of length 0",
            list(&[16, 0, 0, 0x10, 1, 133, 0, 0]),
            "broken_element",
            NONE,
        ),
        (
            CRAFTED,
            "an element beyond the message",
            list(&[16, 0, 0, 0x10, 1, 133, 0, 200, 1]),
            "broken_element",
            NONE,
        ),
        (
            "#4180",
            "inner IPv4 of length 0",
            tunnelled(&inner().tap(|p| p[2..4].fill(0))),
            "inner_length",
            NONE,
        ),
        (
            "#4180",
            "inner IPv6 of length 0",
            tunnelled(&six().tap(|p| p[4..6].fill(0))),
            "inner_empty",
            NONE,
        ),
        (
            "#4180",
            "inner IPv6 of length 0 with a jumbo option",
            tunnelled(&six().tap(|p| (p[4], p[5], p[6]) = (0, 0, 0))),
            "inner_empty",
            NONE,
        ),
        (
            "#4180",
            "inner IPv6 longer than the tunnel's packet",
            tunnelled(&six().tap(|p| p[5] += 1)),
            "inner_length",
            NONE,
        ),
        (
            "#4180",
            "inner IPv6 with an extension header beyond it",
            tunnelled(&six().tap(|p| (p[6], p[40], p[41]) = (0, 17, 255))),
            "broken_inner",
            NONE,
        ),
    ];
    check_rows(0, rows);
}
