//! The engine beside its naive twin, and the table of bad inputs.

mod cluster;
mod dissect;
mod flood;
mod naive;
mod table;
mod twin;

use super::*;
use crate::next_hops::{Mac, PortHops};
use crate::prefix::Prefix;
use crate::session::{Gate, Prefix64, Session};
use crate::sessions::{Origin, Sessions};
use naive::Naive;
use overbank_cluster::{NodeId, Tag};
use std::collections::HashMap;

const N3_MAC: Mac = [2, 0, 0, 0, 0, 3];
const N6_MAC: Mac = [2, 0, 0, 0, 0, 6];
const PEER_MAC: Mac = [2, 0, 0, 0, 1, 3];
const ROUTER_MAC: Mac = [2, 0, 0, 0, 1, 6];

/// What happened to a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// It cannot be read, for whatever reason.
    Refused,
    Denied(Denied),
    Sent(u16, Vec<u8>),
}

/// Something that happened, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Frame(usize, Verdict),
    /// A frame that the gateway made.
    Made(u16, Vec<u8>),
}

/// Collects events.
#[derive(Default)]
struct Events(Vec<Event>);

impl Sink for Events {
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        self.0.push(Event::Frame(index, Verdict::Sent(port, bytes.to_vec())));
    }

    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]) {
        self.output(index, port, &[head, rest].concat());
    }

    fn drop(&mut self, index: usize, reason: DropReason) {
        let verdict = match reason {
            DropReason::Frame(_) => Verdict::Refused,
            DropReason::Denied(denied) => Verdict::Denied(denied),
        };
        self.0.push(Event::Frame(index, verdict));
    }

    fn originate(&mut self, port: u16, bytes: &[u8]) {
        self.0.push(Event::Made(port, bytes.to_vec()));
    }
}

fn prefix(text: &str) -> Prefix {
    Prefix::parse(text).expect("a prefix")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Sessions of all kinds, ids 1 to 8.
fn all_sessions() -> Vec<Session> {
    let plain = |id: u64| Session {
        id,
        n3: ip("192.0.2.1"),
        teid: id as u32,
        peer: ip("198.51.100.7"),
        peer_teid: 0x1000 + id as u32,
        qfi: Some(9),
        ipv4: Some([10, 45, 0, id as u8].into()),
        ipv6: Some(Prefix64(0x2001_0db8_0045_0000 | id)),
        gate: Gate::Open,
        rate_up: None,
        rate_down: None,
    };
    let six = (ip("2001:db8::1"), ip("2001:db8:7::7"));
    vec![
        plain(1),
        Session { qfi: None, ipv6: None, ..plain(2) },
        Session { n3: six.0, peer: six.1, ..plain(3) },
        Session { n3: six.0, peer: six.1, qfi: None, ipv4: None, ..plain(4) },
        Session { gate: Gate::Downlink, ..plain(5) },
        Session { gate: Gate::Uplink, ..plain(6) },
        // Exactly 1000 ns a byte.
        Session { rate_up: Some(8_000_000), rate_down: Some(8_000_000), ..plain(7) },
        // Of a peer without a route.
        Session { peer: ip("203.0.113.9"), ..plain(8) },
    ]
}

fn view() -> View {
    let mut addresses = crate::sessions::tests::addresses();
    addresses.pools = [prefix("10.45.0.0/16"), prefix("2001:db8:45::/48")].into_iter().collect();
    let n3 = ["198.51.100.0/24", "2001:db8:7::/48"].map(|text| (prefix(text), Some(PEER_MAC)));
    let n6 = [
        (prefix("0.0.0.0/1"), Some(ROUTER_MAC)),
        (prefix("192.0.0.0/5"), Some(ROUTER_MAC)),
        (prefix("198.18.0.0/15"), Some([2, 0, 0, 0, 2, 6])),
        (prefix("::/0"), Some(ROUTER_MAC)),
    ];
    View {
        addresses,
        hops: NextHops { n3: PortHops::new(N3_MAC, n3), n6: PortHops::new(N6_MAC, n6) },
        peers: Prefixes::default(),
        protected: [prefix("10.99.0.0/16"), prefix("2001:db8:99::/48")].into_iter().collect(),
        mtu: Mtu { n3: 1500, n6: 1400 },
        from: From { v4: Some(ip("192.0.2.6")), v6: Some(ip("2001:db8::6")) },
        limits: AnswerLimits::default(),
        lost: Arc::default(),
        echoes: Arc::default(),
        fabric: None,
    }
}

fn naive(view: &View) -> Naive {
    let n6 = ["0.0.0.0/1", "192.0.0.0/5", "198.18.0.0/15", "::/0"].map(prefix);
    let n6 = n6.into_iter().zip([ROUTER_MAC, ROUTER_MAC, [2, 0, 0, 0, 2, 6], ROUTER_MAC]);
    let n3 = ["198.51.100.0/24", "2001:db8:7::/48"].map(|text| (prefix(text), PEER_MAC));
    Naive {
        sessions: all_sessions(),
        n3: view.addresses.n3.to_vec(),
        pools: view.addresses.pools.iter().copied().collect(),
        peers: view.peers.iter().copied().collect(),
        protected: view.protected.iter().copied().collect(),
        mtu: [view.mtu.n3, view.mtu.n6],
        hops: [(N3_MAC, n3.to_vec()), (N6_MAC, n6.collect())],
        from: [ip("192.0.2.6"), ip("2001:db8::6")],
        admitted: HashMap::new(),
    }
}

/// An engine with sessions.
struct Rig {
    sessions: Sessions,
    gateway: Gateway,
    now_ms: u64,
}

impl Rig {
    fn new(view: View) -> Rig {
        let (mut sessions, mut readers) =
            Sessions::new(100, view.addresses.clone(), 1, 3).expect("memory");
        for session in all_sessions() {
            sessions.add(session, Origin::File, 0).expect("valid");
        }
        let roles = Roles { n3: 0, n6: 1 };
        let answers = Arc::new(Answers::new(5));
        let gateway = Gateway::new(readers.remove(0), Arc::new(view), roles, answers);
        Rig { sessions, gateway, now_ms: 0 }
    }

    fn burst(&mut self, port: u16, frames: &[&[u8]]) -> Vec<Event> {
        let mut events = Events::default();
        self.gateway.forward(frames, port, self.now_ms, &mut events);
        events.0
    }

    fn totals(&self) -> GatewayTotals {
        self.gateway.totals()
    }
}

/// Builders of frames.
mod frames {
    use super::*;
    use etherparse::PacketBuilder;

    /// Returns a UDP packet of `len` bytes that must not be fragmented.
    pub(super) fn packet(
        src: IpAddr,
        dst: IpAddr,
        ttl: u8,
        ports: [u16; 2],
        len: usize,
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let builder = PacketBuilder::ipv4(src.octets(), dst.octets(), ttl);
                let payload = vec![0x5a; len.saturating_sub(28)];
                builder.udp(ports[0], ports[1]).write(&mut bytes, &payload).expect("written");
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let builder = PacketBuilder::ipv6(src.octets(), dst.octets(), ttl);
                let payload = vec![0x5a; len.saturating_sub(48)];
                builder.udp(ports[0], ports[1]).write(&mut bytes, &payload).expect("written");
            }
            _ => panic!("two families"),
        }
        bytes
    }

    /// Returns a frame with a packet.
    pub(super) fn frame(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
        let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        [&to[..], &from, &kind, packet].concat()
    }

    /// Returns a frame to N3 with a UDP payload, from port 2152.
    pub(super) fn to_n3(src: IpAddr, dst: IpAddr, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let builder = PacketBuilder::ipv4(src.octets(), dst.octets(), 64);
                builder.udp(2152, 2152).write(&mut bytes, payload).expect("written");
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let builder = PacketBuilder::ipv6(src.octets(), dst.octets(), 64);
                builder.udp(2152, 2152).write(&mut bytes, payload).expect("written");
            }
            _ => panic!("two families"),
        }
        frame(N3_MAC, PEER_MAC, &bytes)
    }

    /// Returns a GTP-U message; `optional` are its bytes from the ninth on, with the flags.
    pub(super) fn gtpu(flags: u8, kind: u8, teid: u32, optional: &[u8], body: &[u8]) -> Vec<u8> {
        let len = (optional.len() + body.len()) as u16;
        let mut message = vec![0x30 | flags, kind];
        message.extend(len.to_be_bytes());
        message.extend(teid.to_be_bytes());
        message.extend(optional);
        message.extend(body);
        message
    }

    /// Returns a G-PDU of session `id` to N3, with a PDU Session Container if `qfi`.
    pub(super) fn g_pdu(session: &Session, qfi: bool, packet: &[u8]) -> Vec<u8> {
        let container = [0, 0, 0, 0x85, 1, 0x10, 9, 0];
        let message = match qfi {
            true => gtpu(4, 255, session.teid, &container, packet),
            false => gtpu(0, 255, session.teid, &[], packet),
        };
        to_n3(session.peer, session.n3, &message)
    }
}

/// A caller that drives bursts sees each frame once, and all counters add up.
fn check_account(rig: &Rig, events: &[Event], frames: usize, before: &GatewayTotals) {
    let fates: Vec<usize> = events
        .iter()
        .filter_map(|event| match event {
            Event::Frame(index, _) => Some(*index),
            Event::Made(..) => None,
        })
        .collect();
    assert!(fates.iter().copied().eq(0..frames), "in order, each once: {fates:?}");
    let sent = events.iter().filter(|e| matches!(e, Event::Frame(_, Verdict::Sent(..)))).count();
    let made = events.iter().filter(|e| matches!(e, Event::Made(..))).count();
    let now = rig.totals();
    let moved = |f: fn(&GatewayTotals) -> u64| f(&now) - f(before);
    assert_eq!(moved(|t| t.uplink + t.downlink + t.echo_answered), sent as u64);
    let answers = |t: &GatewayTotals| t.error_indications + t.icmp_errors + t.extensions_notified;
    assert_eq!(moved(answers), made as u64);
}

#[test]
fn an_answer_without_a_route_goes_back_to_its_sender_but_to_no_node() {
    let (peer, elsewhere) = (ip("198.51.100.1"), ip("203.0.113.9"));
    let of = |src: Mac| [&N3_MAC[..], &src, &[8, 0]].concat();
    let other = [2, 0, 0, 0, 9, 9];
    let node = crate::fabric::source(Tag { hops: 1, moved: 0 }, NodeId(1));
    let link = |to, src| answer::link_back(&view(), to, &of(src)).map(|link| link.dst);
    assert_eq!((link(peer, other), link(peer, node)), (Some(PEER_MAC), Some(PEER_MAC)));
    assert_eq!((link(elsewhere, other), link(elsewhere, node)), (Some(other), None));
}
