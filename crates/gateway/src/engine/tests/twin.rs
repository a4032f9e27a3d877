//! Random frames, valid, crafted and mutated, through the engine and its twin.

use super::frames::{frame, g_pdu, gtpu, packet, to_n3};
use super::*;
use proptest::prelude::*;

/// Addresses of terminals, hosts, groups and ours.
fn any_address() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let of_terminal =
        (0u8..10).prop_map(|n| (ip(&format!("10.45.0.{n}")), ip(&format!("2001:db8:45:{n}::77"))));
    let other = prop_oneof![
        4 => Just(("192.0.2.80", "2001:db8:80::80")),
        1 => Just(("198.18.0.1", "2001:db8:80::81")),
        1 => Just(("203.0.113.5", "fe80::1")),
        1 => Just(("192.0.2.1", "2001:db8::1")),
        1 => Just(("10.99.1.1", "2001:db8:99::1")),
        1 => Just(("224.0.0.1", "ff02::1")),
        1 => Just(("255.255.255.255", "::")),
        1 => Just(("0.0.0.0", "::1")),
    ];
    prop_oneof![2 => of_terminal, 1 => other.prop_map(|(v4, v6)| (ip(v4), ip(v6)))]
}

/// An inner packet; often of the terminal of session `id`.
fn any_packet(id: u8) -> impl Strategy<Value = Vec<u8>> {
    let ends = (any_address(), any_address(), prop::bool::weighted(0.85), any::<bool>());
    let len = prop_oneof![4 => 48usize..200, 1 => 1380usize..1500];
    let ttl = prop_oneof![8 => Just(64u8), 1 => 0u8..3];
    let ports = prop_oneof![4 => any::<[u16; 2]>(), 1 => Just([2152, 2152])];
    (ends, ttl, ports, len, any::<u8>()).prop_map(
        move |((src, dst, own, six), ttl, ports, len, tos)| {
            let own =
                own.then(|| (ip(&format!("10.45.0.{id}")), ip(&format!("2001:db8:45:{id}::5"))));
            let src = own.unwrap_or(src);
            let (src, dst) = if six { (src.1, dst.1) } else { (src.0, dst.0) };
            let mut bytes = packet(src, dst, ttl, ports, len);
            let (at, bits) = if bytes[0] >> 4 == 4 { (1, tos & 3) } else { (1, (tos & 3) << 4) };
            bytes[at] |= bits;
            if bytes[0] >> 4 == 4 && tos % 4 == 0 {
                // May be fragmented.
                bytes[6] = 0;
            }
            bytes
        },
    )
}

/// A frame to N3: of a session, of none, or another message.
fn from_n3() -> impl Strategy<Value = Vec<u8>> {
    let of_session = (1u8..10).prop_flat_map(|id| {
        (Just(id), any_packet(id), any::<bool>()).prop_map(|(id, packet, qfi)| {
            let all = all_sessions();
            let unknown = Session { teid: 99, ..all[0] };
            g_pdu(all.get(usize::from(id) - 1).unwrap_or(&unknown), qfi, &packet)
        })
    });
    let bodies: [&[u8]; 6] = [
        &[],
        &[14, 0],
        &[16, 0, 0, 0, 5, 133, 0, 4, 192, 0, 2, 1],
        &[141, 1, 0x85],
        &[255, 0, 2, 1, 2],
        &[133, 0, 3, 1, 2, 3],
    ];
    let kinds: &[u8] = &[1, 1, 1, 2, 26, 31, 254, 255, 3, 200];
    let optional: [(u8, &[u8]); 10] = [
        (0, &[]),
        (2, &[1, 2, 0, 0]),
        (4, &[0, 0, 0, 0x85, 1, 0x10, 9, 0]),
        (4, &[0, 0, 0, 0x85, 2, 0x18, 9, 0, 0, 0, 0, 0]),
        (4, &[0, 0, 0, 0x40, 1, 8, 0x68, 0x85, 1, 0, 9, 0]),
        (4, &[0, 0, 0, 0x85, 1, 0x10, 9, 0x8a, 1, 0, 0, 0]),
        (4, &[0, 0, 0, 0xc1, 1, 0, 0, 0]),
        (4, &[0, 0, 0, 0x20, 0, 0, 0, 0]),
        (5, &[0, 0, 7, 0]),
        (4, &[0, 0, 0, 0x85, 1, 0, 9, 0x85, 1, 0, 9, 0]),
    ];
    let message = (prop::sample::select(kinds), prop::sample::select(optional.to_vec()), 0u32..12);
    let message = (message, prop::sample::select(bodies.to_vec()), any_packet(1), any::<bool>());
    let message = message.prop_map(|((kind, (flags, optional), teid), body, packet, six)| {
        let body = if kind == 255 { &packet[..] } else { body };
        let (src, dst) = match six {
            true => (ip("2001:db8:7::9"), ip("2001:db8::1")),
            false => (ip("198.51.100.9"), ip("192.0.2.1")),
        };
        to_n3(src, dst, &gtpu(flags, kind, teid, optional, body))
    });
    let frame = prop_oneof![3 => of_session, 1 => message];
    (frame, prop::bool::weighted(0.3)).prop_map(|(mut frame, other_port)| {
        let udp = if frame[12] == 8 { 34 } else { 54 };
        frame[udp] ^= u8::from(other_port);
        frame
    })
}

fn from_n6() -> impl Strategy<Value = Vec<u8>> {
    let packet = (any_address(), any_address(), any::<bool>()).prop_flat_map(|(src, dst, six)| {
        let (src, dst) = if six { (src.1, dst.1) } else { (src.0, dst.0) };
        let len = prop_oneof![4 => 48usize..200, 1 => 1420usize..1500];
        let ttl = prop_oneof![8 => Just(64u8), 1 => 0u8..3];
        (len, ttl, any::<[u16; 2]>()).prop_map(move |(len, ttl, ports)| {
            frame(N6_MAC, ROUTER_MAC, &packet(src, dst, ttl, ports, len))
        })
    });
    packet.boxed()
}

/// Changes bytes, mostly of headers, and cuts or lengthens a frame.
fn mutated(frame: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let flips = prop::collection::vec((0usize..120, any::<u8>()), 0..4);
    let flips = prop_oneof![2 => Just(Vec::new()), 1 => flips];
    let cut = prop::option::weighted(0.15, 0usize..140);
    (frame, flips, cut, prop::option::weighted(0.1, 1usize..20), any::<bool>()).prop_map(
        |(mut frame, flips, cut, padding, right)| {
            for (place, byte) in flips {
                if let Some(old) = frame.get_mut(place) {
                    *old = byte;
                }
            }
            if padding.is_some_and(|n| n > 10) && frame.len() >= 34 && frame[12..14] == [8, 0] {
                frame[15] |= 3;
            }
            if right && frame.len() >= 34 && frame[12..14] == [8, 0] && frame[14] == 0x45 {
                // The outer checksum is right again, so that what changed is read.
                frame[24..26].fill(0);
                let sum = etherparse::checksum::u32_16bit_word::add_slice(0, &frame[14..34]);
                let sum = etherparse::checksum::u32_16bit_word::ones_complement(sum);
                frame[24..26].copy_from_slice(&sum.to_ne_bytes());
            }
            frame.extend(std::iter::repeat_n(0, padding.unwrap_or(0)));
            frame.truncate(cut.unwrap_or(usize::MAX));
            frame
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Burst(u16, Vec<Vec<u8>>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let up = prop::collection::vec(mutated(from_n3()), 1..70);
    let down = prop::collection::vec(mutated(from_n6()), 1..70);
    prop_oneof![
        4 => up.prop_map(|frames| Step::Burst(0, frames)),
        4 => down.prop_map(|frames| Step::Burst(1, frames)),
        2 => (1u64..3000).prop_map(Step::Wait),
    ]
}

/// Returns what differs from the twin for another reason than a limit of answers.
fn differs(ours: &[Event], twins: &[Event], limited: &mut u64) -> Option<String> {
    let mut ours = ours.iter().peekable();
    for twin in twins {
        match (ours.peek(), twin) {
            (Some(our), twin) if *our == twin => drop(ours.next()),
            (
                Some(Event::Frame(a, Verdict::Denied(Denied::EchoLimited))),
                Event::Frame(b, Verdict::Sent(0, _)),
            ) if a == b => {
                ours.next();
            }
            (_, Event::Made(..)) if *limited > 0 => *limited -= 1,
            (our, twin) => return Some(format!("ours: {our:x?}\ntwin: {twin:x?}")),
        }
    }
    ours.next().map(|our| format!("ours: {our:x?}\ntwin: nothing"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Byte for byte what a list of sessions and a reader byte by byte do.
    #[test]
    fn agrees_with_a_naive_gateway(
        steps in prop::collection::vec(step(), 1..12),
        with_peers in prop::bool::weighted(0.2),
    ) {
        let mut view = view();
        if with_peers {
            view.peers = [prefix("198.51.100.0/29"), prefix("2001:db8:7::7")].into_iter().collect();
        }
        let mut twin = naive(&view);
        let mut rig = Rig::new(view);
        for step in steps {
            let (port, frames) = match step {
                Step::Burst(port, frames) => (port, frames),
                Step::Wait(ms) => {
                    rig.now_ms += ms;
                    continue;
                }
            };
            let before = rig.totals();
            let burst: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let ours = rig.burst(port, &burst);
            check_account(&rig, &ours, burst.len(), &before);
            let all = burst.iter().enumerate();
            let twins: Vec<Event> =
                all.flat_map(|(index, frame)| twin.take(index, port, frame, rig.now_ms)).collect();
            let limits = |t: &GatewayTotals| {
                t.error_indications_limited + t.icmp_limited + t.extensions_limited
            };
            let mut limited = limits(&rig.totals()) - limits(&before);
            let difference = differs(&ours, &twins, &mut limited);
            prop_assert!(difference.is_none(), "{}", difference.unwrap_or_default());
        }
    }
}
