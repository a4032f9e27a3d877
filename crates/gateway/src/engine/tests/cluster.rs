//! Engines of several nodes with a fabric between them, beside [`Node::decide`] over maps.
//!
//! The cluster's engine runs in one process. Between two of its beats, packets of every session
//! come in at every node: what becomes of each must be what the engine's maps say.

use super::frames::{frame, g_pdu, gtpu, packet, to_n3};
use super::*;
use crate::fabric::Seed;
use crate::local::{Plan, Site, mac_of};
use crate::session::Key;
use overbank_cluster::message::Request;
use overbank_cluster::table::Dense;
use overbank_cluster::{Heard, Memory, NodeId, Settings};

const SEED: Seed = Seed(0x5eed);
const FABRIC: u16 = 2;
const BEAT: u64 = 50_000;

/// What became of a packet: the node and its port, or why it was dropped.
type Fate = Result<(NodeId, u16), &'static str>;

struct Cluster {
    memory: Memory<Dense>,
    sites: Vec<Option<Site>>,
    now: u64,
    /// Hops of packets so far, by their number.
    hops: [u64; 4],
    refused: u64,
}

impl Cluster {
    fn new(nodes: u8) -> Cluster {
        let settings = Settings { partitions: 8, node_bits: 3, ..Settings::default() };
        let info = |node: NodeId| Arc::from(mac_of(node));
        let memory = Memory::with_info(settings, nodes, info);
        let (sessions_max, unknown_percent) = (100, 10);
        let (running, seed) = (nodes, SEED.0);
        let plan = Plan { nodes, running, sessions_max, seed, view: view(), unknown_percent };
        let site = |node| Site::of(&plan, NodeId(node)).expect("memory");
        let sites = (0..nodes).map(|node| Some(site(node))).collect();
        let mut cluster = Cluster { memory, sites, now: 0, hops: [0; 4], refused: 0 };
        cluster.beats(20);
        cluster
    }

    fn beats(&mut self, count: u64) {
        for _ in 0..count {
            self.begin();
            while self.step() {}
        }
    }

    fn begin(&mut self) {
        self.now += BEAT;
        self.memory.begin(self.now);
    }

    fn step(&mut self) -> bool {
        let mut heard = Vec::new();
        let more = self.memory.step(&mut heard);
        for heard in heard {
            match heard {
                Heard::Session(NodeId(node), change) => {
                    let site = self.sites[usize::from(node)].as_mut().expect("it runs");
                    site.change(&change, self.now / 1000);
                    assert_eq!(site.refused(), 0);
                    assert_eq!(site.shown_serving(), site.serving());
                }
                Heard::Answer(_, answer) => self.refused += u64::from(answer.is_err()),
                Heard::Note(..) => {}
                Heard::Ended(NodeId(node)) => self.sites[usize::from(node)] = None,
            }
        }
        for (id, site) in (0..).map(NodeId).zip(&mut self.sites) {
            let node = self.memory.node(id);
            if let (Some(site), Some(node)) = (site, node) {
                site.look(node, self.now / 1000);
            }
        }
        more
    }

    /// Sends a frame in at a node.
    fn packet(&mut self, ingress: NodeId, port: u16, frame: &[u8]) -> Fate {
        let (mut at, mut port, mut frame) = (ingress, port, frame.to_vec());
        for hops in 0.. {
            let site = self.sites[usize::from(at.0)].as_mut().ok_or("gone")?;
            let mut events = Events::default();
            site.forward(&[&frame], port, self.now / 1000, &mut events);
            let frames = events.0.into_iter().filter(|event| matches!(event, Event::Frame(..)));
            let [Event::Frame(0, verdict)] = &frames.collect::<Vec<_>>()[..] else {
                panic!("a frame has one fate");
            };
            match verdict {
                Verdict::Refused => panic!("it can be read"),
                Verdict::Denied(denied) => return Err(denied.name()),
                Verdict::Sent(FABRIC, bytes) => {
                    assert_eq!(frame[12..], bytes[12..], "only the addresses change");
                    assert_eq!(bytes[11], ingress.0, "it says where it came in");
                    let to = (0..8).map(NodeId).find(|node| mac_of(*node) == bytes[..6]);
                    (at, port, frame) = (to.expect("a node"), FABRIC, bytes.clone());
                }
                Verdict::Sent(port, _) => {
                    self.hops[hops] += 1;
                    return Ok((at, *port));
                }
            }
        }
        unreachable!("a packet does not go on for ever")
    }

    /// Packets of all sessions at all of these nodes go where the engine's maps say.
    fn compare(&mut self, nodes: &[u8]) -> Vec<Fate> {
        let addresses = view().addresses;
        let mut fates = Vec::new();
        for session in sessions() {
            let up = g_pdu(&session, false, &inner_of(&session));
            for &ingress in nodes {
                for key in session.keys() {
                    let (port, frame, out) = match key {
                        Key::Tunnel(..) => (0, up.clone(), 1),
                        Key::Ipv4(to) => (1, down(to.into()), 0),
                        Key::Ipv6(to) => (1, down(to.address().into()), 0),
                    };
                    let ingress = NodeId(ingress);
                    let of_key = SEED.of_key(&addresses, key).expect("our N3 address");
                    let theirs = match self.memory.packet(ingress, of_key) {
                        Ok((node, _)) => Ok((node, out)),
                        Err(None) => Err("gone"),
                        Err(Some(overbank_cluster::DropReason::Unknown)) if out == 1 => {
                            Err(Denied::UnknownTeid.name())
                        }
                        Err(Some(overbank_cluster::DropReason::Unknown)) => {
                            Err(Denied::UnknownTerminal.name())
                        }
                        Err(Some(reason)) => Err(reason.name()),
                    };
                    // To the engine's maps, a number that never was a member is one that is gone.
                    let ours = self.packet(ingress, port, &frame).map_err(|why| {
                        if why == Denied::NoSuchNode.name() { Denied::NodeDown.name() } else { why }
                    });
                    assert_eq!(ours, theirs, "{key} in at {ingress:?}");
                    fates.push(ours);
                }
            }
        }
        fates
    }

    fn establish(&mut self, nodes: u8) {
        let addresses = view().addresses;
        for (nth, session) in (0..).zip(sessions()) {
            let request = SEED.establish(&addresses, &session, &[], None).expect("valid");
            self.memory.request(NodeId(nth as u8 % nodes), nth, request);
        }
        self.beats(10);
    }

    /// Packets that were handled, by the account of the sites.
    fn handled(&self) -> u64 {
        let totals = self.sites.iter().flatten().map(|site| site.totals());
        totals.map(|totals| totals.uplink + totals.downlink).sum()
    }
}

/// Sessions whose packets all pass.
fn sessions() -> impl Iterator<Item = Session> {
    let open = |session| Session { gate: Gate::Open, rate_up: None, rate_down: None, ..session };
    let hops = view().hops.n3;
    let reached = move |session: &Session| hops.link(session.peer).is_some();
    all_sessions().into_iter().filter(reached).map(open)
}

fn inner_of(session: &Session) -> Vec<u8> {
    let v6 = || session.ipv6.expect("an address").address().to_bits() | 7;
    match session.ipv4 {
        Some(src) => packet(src.into(), ip("192.0.2.80"), 64, [1000, 53], 100),
        None => packet(v6_of(v6()), ip("2001:db8:ff::80"), 64, [1000, 53], 100),
    }
}

fn v6_of(bits: u128) -> IpAddr {
    std::net::Ipv6Addr::from_bits(bits).into()
}

fn down(to: IpAddr) -> Vec<u8> {
    let from = if to.is_ipv4() { ip("192.0.2.80") } else { ip("2001:db8:ff::80") };
    frame(N6_MAC, ROUTER_MAC, &packet(from, to, 64, [53, 1000], 100))
}

#[test]
fn any_node_takes_any_packet() {
    let mut cluster = Cluster::new(4);
    let fates = cluster.compare(&[0, 1, 2, 3]);
    assert!(fates.iter().all(Result::is_err), "no session yet");
    cluster.establish(4);
    let fates = cluster.compare(&[0, 1, 2, 3]);
    assert!(fates.iter().all(Result::is_ok), "{fates:?}");
    assert_eq!(cluster.handled(), fates.len() as u64);
    let [none, one, two, _] = cluster.hops;
    assert!(none * 2 < one && one * 2 > fates.len() as u64 && two == 0, "{:?}", cluster.hops);
}

#[test]
fn moves_lose_no_packet() {
    // Packets come in between any three steps of the cluster.
    let mut cluster = Cluster::new(4);
    cluster.establish(4);
    let mut number = 100;
    for round in 0..6 {
        for (nth, session) in sessions().enumerate() {
            if (nth + round) % 2 == 0 {
                let session = SEED.session(session.id);
                let request = Request::Move { session, to: None };
                cluster.memory.request(NodeId(round as u8 % 4), number, request);
                number += 1;
            }
        }
        for _ in 0..6 {
            cluster.begin();
            let mut steps = 0;
            while cluster.step() {
                steps += 1;
                if steps % 3 == 0 {
                    let fates = cluster.compare(&[0, 1, 2, 3]);
                    assert!(fates.iter().all(Result::is_ok), "{fates:?}");
                }
            }
        }
    }
    assert!(cluster.hops[2] > 0, "stubs were in use: {:?}", cluster.hops);
    assert_eq!((cluster.hops[3], cluster.refused), (0, 0));
}

#[test]
fn a_node_leaves_without_a_loss_and_another_one_dies() {
    let mut cluster = Cluster::new(4);
    cluster.establish(4);
    cluster.memory.drain(NodeId(2));
    for _ in 0..60 {
        cluster.beats(1);
        let fates = cluster.compare(&[0, 1, 3]);
        assert!(fates.iter().all(Result::is_ok), "{fates:?}");
    }
    assert!(cluster.sites[2].is_none(), "it has left");
    cluster.memory.kill(NodeId(1));
    cluster.sites[1] = None;
    let fates = cluster.compare(&[0, 3]);
    assert!(fates.contains(&Err("gone")), "its sessions are lost until the lease is over");
    for _ in 0..3_000_000 / BEAT + 10 {
        cluster.beats(1);
        cluster.compare(&[0, 3]);
    }
    let fates = cluster.compare(&[0, 3]);
    assert!(fates.iter().all(Result::is_ok), "{fates:?}");
}

#[test]
fn a_node_whose_lease_is_over_stops() {
    let mut cluster = Cluster::new(3);
    cluster.establish(3);
    cluster.now += 4_000_000;
    let session = sessions().next().expect("one");
    let up = g_pdu(&session, false, &inner_of(&session));
    for node in 0..3 {
        assert_eq!(cluster.packet(NodeId(node), 0, &up), Err("fenced"));
    }
}

#[test]
fn frames_that_no_node_sent_are_dropped() {
    let mut cluster = Cluster::new(2);
    cluster.establish(2);
    let session = sessions().next().expect("one");
    let up = g_pdu(&session, false, &inner_of(&session));
    let home = cluster.packet(NodeId(0), 0, &up).expect("handled").0;
    let from = |source: Mac| [&mac_of(home), &source[..], &up[12..]].concat();
    let cases: [(Mac, Fate); 6] = [
        ([0x02, 0x4f, 0x42, 1, 0, 1], Ok((home, 1))),
        ([0x02, 0x4f, 0x42, 2, 0, 0], Ok((home, 1))),
        ([0x02, 0x4f, 0x42, 0, 0, 1], Err("foreign_fabric")),
        ([0x02, 0x4f, 0x42, 3, 0, 1], Err("foreign_fabric")),
        ([0x02, 0x4f, 0x42, 1, 0, 2], Err("foreign_fabric")),
        ([0x02, 0x4f, 0x43, 1, 0, 1], Err("foreign_fabric")),
    ];
    for (source, fate) in cases {
        let site = cluster.sites[usize::from(home.0)].as_mut().expect("it runs");
        let mut events = Events::default();
        let frame = from(source);
        site.forward(&[&frame], FABRIC, cluster.now / 1000, &mut events);
        let ours = match &events.0[..] {
            [Event::Frame(0, Verdict::Denied(denied))] => Err(denied.name()),
            [Event::Frame(0, Verdict::Sent(port, _))] => Ok((home, *port)),
            other => panic!("{other:?}"),
        };
        assert_eq!(ours, fate, "{source:?}");
    }
}

#[test]
fn a_peer_may_answer_any_node() {
    let mut cluster = Cluster::new(4);
    cluster.establish(4);
    let now_ms = cluster.now / 1000;
    let mut requests = Vec::new();
    for (node, site) in (0..).zip(&mut cluster.sites) {
        let (site, mut events) = (site.as_mut().expect("it runs"), Events::default());
        site.look_at_peers(60_000, now_ms, &mut events);
        site.look_at_peers(60_000, now_ms + 60_000, &mut events);
        let made = events.0.into_iter().map(|event| match event {
            Event::Made(0, frame) => (node, frame),
            other => panic!("{other:?}"),
        });
        requests.extend(made);
    }
    let askers: std::collections::HashSet<u8> = requests.iter().map(|(node, _)| *node).collect();
    assert!(askers.len() > 1 && requests.len() > askers.len(), "{}", requests.len());
    for (node, request) in &requests {
        let request = overbank_wire::gtpu::datagram(request).expect("GTP-U");
        let [n3, peer] = [request.ends.src(), request.ends.dst()];
        let sequence = [request.payload()[8], request.payload()[9], 0, 0];
        let response = |sequence: &[u8]| to_n3(peer, n3, &gtpu(2, 2, 0, sequence, &[14, 0]));
        let ingress = NodeId((node + 1) % 4);
        let stray = [sequence[0], sequence[1] ^ 1, 0, 0];
        assert_eq!(cluster.packet(ingress, 0, &response(&stray)), Err("echo_stray"));
        assert_eq!(cluster.packet(ingress, 0, &response(&sequence)), Err("echo_response"));
        // A flood of them takes no more of the fabric than it may.
        let sent = |cluster: &Cluster| {
            cluster.sites.iter().flatten().map(|site| site.totals().fabric_sent).sum::<u64>()
        };
        let before = sent(&cluster);
        if *node == 0 {
            let flood = (0..6000).map(|_| cluster.packet(ingress, 0, &response(&sequence)));
            assert_eq!(flood.last(), Some(Err("echo_limited")));
            assert!(sent(&cluster) - before <= 5000);
        }
        // A second on, as the limit has it.
        cluster.now += 1_000_000;
        cluster.memory.begin(cluster.now);
        while cluster.step() {}
    }
    for site in cluster.sites.iter_mut().flatten() {
        site.look_at_peers(60_000, now_ms, &mut Events::default());
        let totals = site.peers().totals();
        assert_eq!((totals.peers_up, totals.peers_down), (totals.paths, 0));
    }
}
