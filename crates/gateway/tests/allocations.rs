//! The gateway allocates for no packet, answers included: counted by the allocator itself.

use overbank_gateway::engine::{Answers, From, Mtu, Roles, Sink, View};
use overbank_gateway::next_hops::{NextHops, PortHops};
use overbank_gateway::prefix::Prefix;
use overbank_gateway::session::{Gate, Prefix64, Session};
use overbank_gateway::sessions::{Addresses, Origin, Sessions};
use overbank_gateway::{DropReason, Gateway};
use overbank_testing::allocations::{Counting, allocations};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Counts {
    sent: [u64; 2],
    dropped: u64,
    made: u64,
}

impl Sink for Counts {
    fn output(&mut self, _: usize, port: u16, _: &[u8]) {
        self.sent[usize::from(port)] += 1;
    }

    fn output_parts(&mut self, _: usize, port: u16, _: &[u8], _: &[u8]) {
        self.sent[usize::from(port)] += 1;
    }

    fn drop(&mut self, _: usize, _: DropReason) {
        self.dropped += 1;
    }

    fn originate(&mut self, _: u16, _: &[u8]) {
        self.made += 1;
    }
}

/// Returns an IPv4 packet of UDP.
fn packet(src: [u8; 4], dst: [u8; 4], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let builder = etherparse::PacketBuilder::ipv4(src, dst, ttl).udp(2152, 2152);
    builder.write(&mut bytes, payload).expect("written");
    bytes
}

fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0], packet].concat()
}

fn g_pdu(teid: u8, inner: &[u8]) -> Vec<u8> {
    let [a, b] = (inner.len() as u16).to_be_bytes();
    let message = [&[0x30, 255, a, b, 0, 0, 0, teid], inner].concat();
    frame(&packet([198, 51, 100, 7], [192, 0, 2, 1], 64, &message))
}

#[test]
fn no_packet_allocates() {
    let pool = Prefix::parse("10.45.0.0/16").expect("a prefix");
    let addresses = Addresses {
        n3: [[192, 0, 2, 1].into()].into(),
        pools: [pool, Prefix::parse("2001:db8::/32").expect("a prefix")].into_iter().collect(),
        ..Addresses::default()
    };
    let (mut sessions, mut readers) = Sessions::new(10, addresses.clone(), 1, 1).expect("memory");
    let session = Session {
        id: 1,
        n3: [192, 0, 2, 1].into(),
        teid: 1,
        peer: [198, 51, 100, 7].into(),
        peer_teid: 7,
        qfi: Some(9),
        ipv4: Some([10, 45, 0, 1].into()),
        ipv6: Some(Prefix64(0x2001_0db8_0000_0001)),
        gate: Gate::Open,
        rate_up: Some(1_000_000),
        rate_down: None,
    };
    sessions.add(session, Origin::File, 0).expect("free");
    let all = Prefix::parse("0.0.0.0/0").expect("a prefix");
    let hops = |mac: u8| PortHops::new([2, 0, 0, 0, 0, 1], [(all, Some([2, 0, 0, 0, 0, mac]))]);
    let view = View {
        addresses,
        hops: NextHops { n3: hops(3), n6: hops(6) },
        mtu: Mtu { n3: 1500, n6: 1400 },
        from: From { v4: Some([192, 0, 2, 1].into()), v6: None },
        ..View::default()
    };
    let (roles, answers) = (Roles { n3: 0, n6: 1 }, Arc::new(Answers::new(1)));
    let mut gateway = Gateway::new(readers.remove(0), Arc::new(view), roles, answers);
    let (terminal, host) = ([10, 45, 0, 1], [192, 0, 2, 80]);
    let big = |bytes: &mut Vec<u8>| bytes[6] = 0x40;
    let mut too_big = packet(terminal, host, 64, &[0; 1400]);
    big(&mut too_big);
    let echo = [0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0];
    let from_n3: Vec<Vec<u8>> = vec![
        g_pdu(1, &packet(terminal, host, 64, &[0; 100])),
        g_pdu(2, &packet(terminal, host, 64, &[0; 100])),
        g_pdu(1, &packet(host, terminal, 64, &[0; 100])),
        g_pdu(1, &packet(terminal, host, 1, &[0; 100])),
        g_pdu(1, &too_big),
        frame(&packet([198, 51, 100, 7], [192, 0, 2, 1], 64, &echo)),
        vec![0; 20],
    ];
    let mut large = packet(host, terminal, 64, &[0; 1470]);
    big(&mut large);
    let from_n6: Vec<Vec<u8>> = vec![
        frame(&packet(host, terminal, 64, &[0; 100])),
        frame(&packet(host, [10, 45, 0, 2], 64, &[0; 100])),
        frame(&packet(host, terminal, 1, &[0; 100])),
        frame(&large),
    ];
    let bursts = [from_n3, from_n6]
        .map(|frames| -> Vec<Vec<u8>> { frames.iter().cycle().take(128).cloned().collect() });
    let bursts: [Vec<&[u8]>; 2] =
        [0, 1].map(|port: usize| bursts[port].iter().map(Vec::as_slice).collect());
    let mut counts = Counts::default();
    let mut run = |rounds: std::ops::Range<u64>| {
        for round in rounds {
            for (port, burst) in bursts.iter().enumerate() {
                gateway.forward(burst, port as u16, round * 40, &mut counts);
            }
        }
    };
    run(0..1);
    let before = allocations();
    run(1..1000);
    assert_eq!(allocations() - before, 0);
    let Counts { sent, dropped, made } = counts;
    assert!(sent[0] > 32_000 && sent[1] > 1000 && dropped > 90_000 && made > 1000);
    assert_eq!(sent[0] + sent[1] + dropped, 2 * 128 * 1000);
}
