//! Extraction against the frames' builder, against etherparse, and on hostile bytes.

use super::fixtures::frame;
use super::*;
use crate::testing::frames::{Built, mutated, valid};
use etherparse::{IpNumber, PacketBuilder, VlanId};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn generated_frames_give_the_key_that_they_were_built_from(built in valid()) {
        let mut key = FlowKey { nw_src: 1, ..FlowKey::default() };
        extract(&built.frame, 1, &mut key).unwrap();
        prop_assert_eq!(key, built.key);
    }

    #[test]
    fn the_short_path_agrees_with_the_general_one(frame in mutated(), in_port: u32) {
        let (mut a, mut b) = (FlowKey::default(), FlowKey::default());
        prop_assert_eq!(extract(&frame, in_port, &mut a), extract_general(&frame, in_port, 2, &mut b));
        prop_assert_eq!(a, b);
    }

    /// The frames that the short path is for, with its conditions just met and just missed.
    #[test]
    fn the_short_path_agrees_around_its_conditions(
        proto in prop::sample::select(vec![6u8, 17, 1]),
        first in prop::sample::select(vec![0x45u8, 0x46, 0x44, 0x55]),
        fragment in prop::sample::select(vec![0u16, 0x4000, 0x8000, 0x2000, 1, 0x1000]),
        total in 18..70u16,
        len in 0..400usize,
        rest: [u8; 32],
    ) {
        let mut frame = frame(&["0800"]);
        frame.extend([first, rest[0]]);
        frame.extend([total.to_be_bytes(), [0, 0], fragment.to_be_bytes()].concat());
        frame.extend([rest[1], proto]);
        frame.extend(&rest[2..]);
        frame.resize(len.max(14), 0x11);
        let (mut a, mut b) = (FlowKey::default(), FlowKey::default());
        prop_assert_eq!(extract(&frame, 1, &mut a), extract_general(&frame, 1, 2, &mut b));
        prop_assert_eq!(a, b);
    }

    #[test]
    fn random_bytes_never_panic_and_offsets_stay_inside(
        frame in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), mutated()],
    ) {
        let mut key = FlowKey::default();
        match extract(&frame, 1, &mut key) {
            Ok(o) => {
                prop_assert!(usize::from(o.l3) <= frame.len());
                prop_assert!(o.l4 <= o.end && o.end as usize <= frame.len());
                prop_assert_eq!(o.l4 == 0, !matches!(o.network, Network::Ip4 | Network::Ip6));
            }
            Err(_) => prop_assert!(frame.len() < 14),
        }
    }

    #[test]
    fn packets_of_etherparse(
        src: [u8; 6], dst: [u8; 6], tags in prop::collection::vec((0..4096u16, 0..8u8), 0..=2),
        v4 in prop::option::of(any::<([u8; 4], [u8; 4])>()), v6: ([u8; 16], [u8; 16]),
        ttl: u8, ports: (u16, u16), transport in 0..4u8, payload: Vec<u8>,
    ) {
        let mut expected = FlowKey {
            in_port: 1, dl_src: src, dl_dst: dst, nw_ttl: ttl, ..FlowKey::default()
        };
        let builder = PacketBuilder::ethernet2(src, dst);
        let vid = |i: usize| VlanId::try_new(tags[i].0).unwrap();
        let tci = |i: usize| tags[i].0 | 0x1000;
        macro_rules! network { ($builder:expr) => { match v4 {
            Some((from, to)) => {
                expected.dl_type = 0x0800;
                expected.nw_src = u32::from_be_bytes(from);
                expected.nw_dst = u32::from_be_bytes(to);
                $builder.ipv4(from, to, ttl)
            }
            None => {
                expected.dl_type = 0x86dd;
                (expected.ipv6_src, expected.ipv6_dst) = v6;
                $builder.ipv6(v6.0, v6.1, ttl)
            }
        } } }
        let builder = match tags.len() {
            0 => network!(builder),
            1 => {
                (expected.vlan_tpid, expected.vlan_tci) = (0x8100, tci(0));
                network!(builder.single_vlan(vid(0)))
            }
            _ => {
                (expected.vlan_tpid, expected.vlan_tci) = (0x88a8, tci(0));
                (expected.inner_tpid, expected.inner_tci) = (0x8100, tci(1));
                network!(builder.double_vlan(vid(0), vid(1)))
            }
        };
        let mut frame = vec![];
        (expected.tp_src, expected.tp_dst) = ports;
        match (transport, v4.is_some()) {
            (0, _) => {
                (expected.nw_proto, expected.tcp_flags) = (6, 0x012);
                let tcp = builder.tcp(ports.0, ports.1, 5, 100).syn().ack(7);
                tcp.write(&mut frame, &payload).unwrap();
            }
            (1, _) => {
                expected.nw_proto = 17;
                builder.udp(ports.0, ports.1).write(&mut frame, &payload).unwrap();
            }
            (2, true) => {
                (expected.nw_proto, expected.tp_src, expected.tp_dst) = (1, 8, 0);
                let echo = builder.icmpv4_echo_request(ports.0, ports.1);
                echo.write(&mut frame, &payload).unwrap();
            }
            (2, false) => {
                (expected.nw_proto, expected.tp_src, expected.tp_dst) = (58, 128, 0);
                let echo = builder.icmpv6_echo_request(ports.0, ports.1);
                echo.write(&mut frame, &payload).unwrap();
            }
            _ => {
                (expected.nw_proto, expected.tp_src, expected.tp_dst) = (47, 0, 0);
                builder.write(&mut frame, IpNumber::GRE, &payload).unwrap();
            }
        }
        let mut key = FlowKey::default();
        let offsets = extract(&frame, 1, &mut key).unwrap();
        prop_assert_eq!(key, expected);
        // The naive checksums, on which the tests of the editor stand, are those of etherparse.
        let built = Built {
            key,
            l3: offsets.l3.into(),
            end: offsets.end as usize,
            l4: Some((offsets.l4 as usize, key.nw_proto)),
            ..Built::default()
        };
        prop_assert_eq!(built.reseal(&frame, 0), frame);
    }
}
