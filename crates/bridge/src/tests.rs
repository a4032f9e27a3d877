//! The Ethernet switch without threads: beside a naive twin, and under a flood of invented
//! addresses.

use super::*;
use overbank::fib::{Config, MacAddr, MacVlan, Writer};
use overbank_stations::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// What happened to frames: number, port or reason, bytes.
type Happened = Vec<(usize, Result<u16, DropReason>, Vec<u8>)>;

/// Notes everything, and hands reports to a learner.
struct Notes<'a> {
    happened: Happened,
    frames: &'a [&'a [u8]],
    learner: &'a mut Learner,
    now_ms: u32,
}

impl Sink for Notes<'_> {
    fn output(&mut self, index: usize, port: u16, frame: &[u8]) {
        self.happened.push((index, Ok(port), frame.to_vec()));
    }

    fn drop(&mut self, index: usize, reason: DropReason) {
        self.happened.push((index, Err(reason), self.frames[index].to_vec()));
    }

    fn saw(&mut self, sighting: Sighting) {
        self.learner.report(sighting, self.now_ms);
    }
}

/// A switch of one worker or more, moved on by hand.
struct Rig {
    stations: Stations,
    workers: Vec<(Forwarder, Learner, std::sync::Arc<Reports>)>,
    now_ms: u32,
}

impl Rig {
    fn new(limits: Limits, roles: &[Role], workers: usize) -> Rig {
        let stations = Stations::new(limits, roles.len(), 8, 3).expect("memory");
        let worker = |_| {
            let forwarder = Forwarder::new(stations.reader(), roles).learning(stations.epoch());
            let (learner, reports) = Learner::new(roles.len(), &limits);
            (forwarder, learner, reports)
        };
        let workers = (0..workers).map(worker).collect();
        Rig { stations, workers, now_ms: 0 }
    }

    /// Forwards a burst through one worker; its reports wait.
    fn forward(&mut self, worker: usize, ingress: u16, frames: &[&[u8]]) -> Happened {
        let (forwarder, learner, _) = &mut self.workers[worker];
        let now_ms = self.now_ms;
        let mut notes = Notes { happened: Vec::new(), frames, learner, now_ms };
        forwarder.forward(ingress, frames, &mut notes);
        notes.happened
    }

    /// Lets the writer take what the workers report.
    fn hear(&mut self) {
        for (_, _, reports) in &self.workers {
            self.stations.hear(reports);
        }
    }
}

fn frame(dst: [u8; 6], src: [u8; 6], vlan: Option<u16>, fill: u8) -> Vec<u8> {
    let mut frame = [dst, src].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        // The priority is no part of the VLAN.
        frame.extend((vlan | u16::from(fill) << 13).to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    frame.extend([fill; 46]);
    frame
}

fn host(n: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, n]
}

/// The naive twin: a map, one frame after another.
struct Twin {
    roles: Vec<Role>,
    /// Port, and the epoch in which it was heard of; none if it is static.
    map: HashMap<([u8; 6], u16), (u16, Option<u64>)>,
    epoch: u64,
}

impl Twin {
    fn parse(frame: &[u8]) -> Option<([u8; 6], [u8; 6], u16)> {
        let dst = frame.get(..6)?.try_into().ok()?;
        let src = frame.get(6..12)?.try_into().ok()?;
        let tpid = frame.get(12..14)?;
        let tagged = frame.len() >= 18 && [[0x81, 0], [0x88, 0xa8]].iter().any(|t| t == tpid);
        let vlan = if tagged { u16::from_be_bytes([frame[14], frame[15]]) % 4096 } else { 0 };
        Some((dst, src, vlan))
    }

    /// Decides where a frame goes, by what is known before its burst.
    fn decide(&self, ingress: u16, frame: &[u8]) -> Result<Vec<u16>, DropReason> {
        let (dst, src, vlan) = Self::parse(frame).ok_or(DropReason::Truncated)?;
        if src[0] % 2 == 1 || src == [0; 6] {
            return Err(DropReason::BadSource);
        }
        if let Some((port, None)) = self.map.get(&(src, vlan))
            && *port != ingress
        {
            return Err(DropReason::StaticElsewhere);
        }
        if dst[..5] == [1, 0x80, 0xc2, 0, 0] && dst[5] < 16 {
            return Err(DropReason::Reserved);
        }
        let isolated = |port: u16| self.roles[usize::from(port)].isolated;
        let known = self.map.get(&(dst, vlan)).filter(|_| dst[0] % 2 == 0);
        if let Some((port, _)) = known {
            if *port == ingress {
                return Err(DropReason::SamePort);
            }
            if isolated(*port) && isolated(ingress) {
                return Err(DropReason::Isolated);
            }
            return Ok(vec![*port]);
        }
        let all = 0..self.roles.len() as u16;
        let ports = all.filter(|&port| {
            port != ingress
                && self.roles[usize::from(port)].flood
                && !(isolated(port) && isolated(ingress))
        });
        let ports: Vec<u16> = ports.collect();
        if ports.is_empty() { Err(DropReason::NoPort) } else { Ok(ports) }
    }

    fn learn(&mut self, ingress: u16, frame: &[u8]) {
        let Some((_, src, vlan)) = Self::parse(frame) else { return };
        if src[0] % 2 == 1 || src == [0; 6] {
            return;
        }
        let entry = self.map.entry((src, vlan)).or_insert((ingress, Some(self.epoch)));
        if entry.1.is_some() {
            *entry = (ingress, Some(self.epoch));
        }
    }

    fn forward(&mut self, ingress: u16, frames: &[&[u8]]) -> Happened {
        let mut happened = Vec::new();
        for (i, frame) in frames.iter().enumerate() {
            match self.decide(ingress, frame) {
                Ok(ports) => happened.extend(ports.iter().map(|p| (i, Ok(*p), frame.to_vec()))),
                Err(reason) => happened.push((i, Err(reason), frame.to_vec())),
            }
        }
        frames.iter().for_each(|frame| self.learn(ingress, frame));
        happened
    }
}

#[derive(Clone, Debug)]
enum Step {
    Burst { worker: usize, ingress: u16, frames: Vec<Vec<u8>> },
    Down(usize),
    Wait(u64),
    Role(usize, Role),
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let station = (0u8..6).prop_map(host);
    let dst = prop_oneof![
        8 => station.clone(),
        1 => Just([0xff; 6]),
        1 => Just([1, 0, 0x5e, 0, 0, 1]),
        1 => (0u8..18).prop_map(|n| [1, 0x80, 0xc2, 0, 0, n]),
        1 => Just([0; 6]),
    ];
    let src = prop_oneof![12 => station, 1 => Just([3, 0, 0, 0, 0, 1]), 1 => Just([0; 6])];
    let vlan = prop::option::of(0u16..3);
    let whole = (dst, src, vlan, any::<u8>()).prop_map(|(d, s, v, fill)| frame(d, s, v, fill % 8));
    // Some are cut, some have another type of tag.
    (whole, prop::option::weighted(0.1, 0usize..20), prop::bool::weighted(0.2)).prop_map(
        |(mut frame, cut, service)| {
            if service && frame[12..14] == [0x81, 0] {
                frame[12..14].copy_from_slice(&[0x88, 0xa8]);
            }
            frame.truncate(cut.unwrap_or(usize::MAX));
            frame
        },
    )
}

fn role() -> impl Strategy<Value = Role> {
    (prop::bool::weighted(0.4), prop::bool::weighted(0.9))
        .prop_map(|(isolated, flood)| Role { isolated, flood })
}

const PORTS: usize = 5;

fn step() -> impl Strategy<Value = Step> {
    // Bursts as ports give them, and longer lists.
    let lengths = prop_oneof![3 => 0..40usize, 1 => 65..140usize];
    let frames = lengths.prop_flat_map(|length| prop::collection::vec(any_frame(), length));
    let burst = (0usize..2, 0..PORTS as u16, frames);
    prop_oneof![
        12 => burst.prop_map(|(worker, ingress, frames)| Step::Burst { worker, ingress, frames }),
        1 => (0..PORTS).prop_map(Step::Down),
        2 => (1u64..6).prop_map(Step::Wait),
        1 => (0..PORTS, role()).prop_map(|(port, role)| Step::Role(port, role)),
    ]
}

proptest! {
    /// Byte for byte and port for port what a map and a loop do, frame after frame.
    #[test]
    fn agrees_with_a_naive_switch(
        roles in prop::collection::vec(role(), PORTS),
        fixed in prop::collection::hash_map((0u8..6, 0u16..3), 0..PORTS as u16, 0..4),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let limits = Limits { age_s: 8, learn_per_s: 1 << 20, ..Limits::default() };
        let mut rig = Rig::new(limits, &roles, 2);
        let mut twin = Twin { roles: roles.clone(), map: HashMap::new(), epoch: 0 };
        for ((n, vlan), port) in fixed {
            rig.stations.add_static(MacVlan::new(host(n), vlan), port).expect("room");
            twin.map.insert((host(n), vlan), (port, None));
        }
        for step in steps {
            match step {
                Step::Burst { worker, ingress, frames } => {
                    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
                    let happened = rig.forward(worker, ingress, &frames);
                    prop_assert_eq!(happened, twin.forward(ingress, &frames));
                    rig.hear();
                }
                Step::Down(port) => {
                    rig.stations.set_up(port, false);
                    rig.stations.set_up(port, true);
                    twin.map.retain(|_, (p, at)| at.is_none() || usize::from(*p) != port);
                }
                Step::Wait(epochs) => {
                    for _ in 0..epochs {
                        twin.epoch += 1;
                        for part in 0..10 {
                            rig.stations.tick(twin.epoch * 1000 + part * 100);
                        }
                    }
                    let now = twin.epoch;
                    let old = |at: u64| now - at > u64::from(AGE_EPOCHS);
                    twin.map.retain(|_, (_, at)| !at.is_some_and(old));
                }
                Step::Role(port, role) => {
                    twin.roles[port] = role;
                    for (forwarder, ..) in &mut rig.workers {
                        forwarder.set_roles(&twin.roles);
                    }
                }
            }
            // What is reported again in a moment is not reported.
            rig.now_ms += QUIET_MS;
            prop_assert_eq!(rig.stations.len(), twin.map.len());
        }
    }
}

#[test]
fn a_flood_of_invented_sources_leaves_known_addresses() {
    let limits =
        Limits { entries_max: 200, age_s: 8, learn_per_s: 500, queue: 64, ..Limits::default() };
    let mut rig = Rig::new(limits, &[Role::default(); 4], 2);
    // Ten hosts behind each of the ports 1 to 3, which each send one broadcast first.
    let hosts: Vec<(u16, u8)> = (0..30).map(|n| (u16::from(n % 3) + 1, n + 1)).collect();
    for &(port, n) in &hosts {
        rig.forward(0, port, &[&frame([0xff; 6], host(n), None, 0)]);
    }
    rig.hear();
    let mut invented = 0u64;
    let mut told = 0;
    for now_ms in (0..40_000u32).step_by(10) {
        rig.now_ms = now_ms;
        rig.stations.tick(u64::from(now_ms));
        // Port 1 has hosts as well; the flood comes from there, through both workers.
        for worker in 0..2 {
            let flood: Vec<Vec<u8>> = (0..32)
                .map(|_| {
                    invented += 1;
                    let mut source = invented.to_be_bytes();
                    source[2] = 0x0a;
                    let source = source[2..].try_into().expect("six bytes");
                    frame(host(2), source, None, 0)
                })
                .collect();
            let flood: Vec<&[u8]> = flood.iter().map(Vec::as_slice).collect();
            let happened = rig.forward(worker, 1, &flood);
            assert!(happened.iter().all(|(_, to, _)| *to == Ok(2)), "host 2 is behind port 2");
        }
        // One host after the other talks to the next one, as it does twice in a second.
        let (port, n) = hosts[now_ms as usize / 10 % hosts.len()];
        let (to, m) = hosts[(now_ms as usize / 10 + 1) % hosts.len()];
        let happened = rig.forward(0, port, &[&frame(host(m), host(n), None, 0)]);
        assert_eq!(happened[0].1, Ok(to), "at {now_ms} ms, from {n} to {m}");
        told += rig.workers.iter().map(|(.., reports)| reports.news.len()).sum::<usize>();
        rig.hear();
        assert!(rig.stations.len() <= 200);
    }
    let counters = rig.stations.counters();
    assert_eq!((rig.stations.len(), counters.moved, counters.aged), (200, 0, 0));
    assert!(counters.refused > 1000 && counters.evicted > 100, "{counters:?}");
    let limited: u64 = rig.workers.iter().map(|(_, learner, _)| learner.limited()).sum();
    // 256,000 frames; 500 a second of each worker were told, and what may be told at once.
    assert!((40_000..=41_000).contains(&told), "{told}");
    assert_eq!(limited + told as u64, invented);
    // A station that is new and quiet comes in beside the flood.
    rig.now_ms += 10;
    rig.forward(1, 3, &[&frame([0xff; 6], host(99), None, 0)]);
    rig.hear();
    assert_eq!(rig.forward(0, 2, &[&frame(host(99), host(2), None, 0)])[0].1, Ok(3));
}

/// From every port at once, in any VLAN, and the address of a static station among the invented
/// ones.
#[test]
fn floods_from_all_ports_and_vlans_leave_known_addresses() {
    const VLAN: u16 = 7;
    let limits =
        Limits { entries_max: 400, age_s: 8, learn_per_s: 500, queue: 64, ..Limits::default() };
    let mut rig = Rig::new(limits, &[Role::default(); 4], 2);
    let fixed = MacVlan::new(host(250), VLAN);
    rig.stations.add_static(fixed, 3).expect("room");
    let hosts: Vec<(u16, u8)> = (0..40).map(|n| (u16::from(n % 4), n + 1)).collect();
    for &(port, n) in &hosts {
        rig.forward(0, port, &[&frame([0xff; 6], host(n), Some(VLAN), 0)]);
    }
    rig.hear();
    let mut invented = 0u64;
    for now_ms in (0..20_000u32).step_by(10) {
        rig.now_ms = now_ms;
        rig.stations.tick(u64::from(now_ms));
        for port in 0..4 {
            let flood: Vec<Vec<u8>> = (0..32)
                .map(|i| {
                    invented += 1;
                    let mut source = invented.to_be_bytes();
                    source[2] = 0x0a;
                    let source = source[2..].try_into().expect("six bytes");
                    match i {
                        0 => frame(host(1), host(250), Some(VLAN), 0),
                        _ => frame(host(1), source, Some((invented % 4096) as u16), 0),
                    }
                })
                .collect();
            let flood: Vec<&[u8]> = flood.iter().map(Vec::as_slice).collect();
            let happened = rig.forward(usize::from(port) % 2, port, &flood);
            if port != 3 {
                assert_eq!(happened[0].1, Err(DropReason::StaticElsewhere));
            }
        }
        let (port, n) = hosts[now_ms as usize / 10 % hosts.len()];
        let (to, m) = hosts[(now_ms as usize / 10 + 1) % hosts.len()];
        let happened = rig.forward(0, port, &[&frame(host(m), host(n), Some(VLAN), 0)]);
        assert_eq!(happened.len(), 1, "at {now_ms} ms, from {n} to {m}");
        assert_eq!(happened[0].1, Ok(to), "at {now_ms} ms, from {n} to {m}");
        rig.hear();
        assert!(rig.stations.len() <= 401);
    }
    let counters = rig.stations.counters();
    assert_eq!((rig.stations.len(), counters.moved, counters.aged), (401, 0, 0));
    assert!(counters.refused > 1000 && counters.evicted > 100, "{counters:?}");
    let list = rig.stations.list(1, |entry| entry.is_static);
    assert_eq!((list.1, list.0[0].key, list.0[0].port), (1, fixed, 3));
}

#[test]
fn a_full_queue_blocks_no_worker() {
    let limits = Limits { queue: 4, ..Limits::default() };
    let mut rig = Rig::new(limits, &[Role::default(); 2], 1);
    for n in 0..20 {
        let happened = rig.forward(0, 0, &[&frame(host(200), host(n), None, 0)]);
        assert_eq!(happened[0].1, Ok(1));
    }
    assert_eq!(rig.workers[0].1.queue_full(), 16);
    rig.hear();
    assert_eq!(rig.stations.len(), 4);
}

/// In a table of 9 MiB, where the lines of the next chunk are asked for: lists of any length are
/// treated as their chunks are, also if chunks have no readable frame.
#[test]
fn a_long_list_is_forwarded_as_its_chunks_are() {
    struct Sent(usize, Vec<(usize, Result<u16, DropReason>)>);
    impl Sink<MacAddr> for Sent {
        fn output(&mut self, index: usize, port: u16, _: &[u8]) {
            self.1.push((self.0 + index, Ok(port)));
        }
        fn drop(&mut self, index: usize, reason: DropReason) {
            self.1.push((self.0 + index, Err(reason)));
        }
    }
    let mut fib = Writer::<MacAddr, u16>::new(&Config::entries(1_000_000)).expect("memory");
    for n in 0..100u8 {
        let station = Station::fixed(u16::from(n % 4));
        fib.insert(MacAddr::from(host(n)), station.bits()).expect("room");
    }
    assert!(fib.reader().bytes() > 8 << 20, "a large table");
    let forwarder = Forwarder::new(fib.reader(), &[Role::default(); 4]);
    let frames: Vec<Vec<u8>> = (0..200u8)
        .map(|n| match n {
            40..70 | 96..128 | 199 => vec![0; usize::from(n % 14)],
            _ => frame(host(n.wrapping_mul(7) % 120), host(1), None, 0),
        })
        .collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let expected = |n: usize| match n as u8 {
        40..70 | 96..128 | 199 => vec![Err(DropReason::Truncated)],
        n => match n.wrapping_mul(7) % 120 {
            100.. => vec![Ok(0), Ok(1), Ok(3)],
            host if host % 4 == 2 => vec![Err(DropReason::SamePort)],
            host => vec![Ok(u16::from(host % 4))],
        },
    };
    for first in [0, 71, 136, 167, 168, 199, 200] {
        let mut sent = Sent(first, Vec::new());
        forwarder.forward(2, &frames[first..], &mut sent);
        let all = (first..200).flat_map(|n| expected(n).into_iter().map(move |to| (n, to)));
        assert!(sent.1.iter().copied().eq(all), "from {first}: {:?}", sent.1);
    }
}

/// What is looked up without learning, and entries that lead nowhere.
#[test]
fn a_filled_table_forwards_without_learning() {
    struct Sent(Vec<Result<u16, DropReason>>);
    impl Sink<MacAddr> for Sent {
        fn output(&mut self, _: usize, port: u16, _: &[u8]) {
            self.0.push(Ok(port));
        }
        fn drop(&mut self, _: usize, reason: DropReason) {
            self.0.push(Err(reason));
        }
        fn saw(&mut self, _: Sighting<MacAddr>) {
            panic!("a fixed table learned an address");
        }
    }
    let mut fib = Writer::<MacAddr, u16>::new(&Config::entries(100)).expect("memory");
    for n in 0..100u8 {
        let station = Station::learnt(u16::from(n % 4), 0);
        fib.insert(MacAddr::from(host(n)), station.bits()).expect("room");
    }
    let forwarder = Forwarder::new(fib.reader(), &[Role::default(); 3]);
    let frames: Vec<Vec<u8>> =
        (0..100).map(|n| frame(host(n), host(7), Some(u16::from(n)), 0)).collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let mut sent = Sent(Vec::new());
    forwarder.prefetch(&frames);
    forwarder.forward(2, &frames, &mut sent);
    let expected = [Ok(0), Ok(1), Err(DropReason::SamePort), Err(DropReason::NoPort)];
    assert!(sent.0.iter().eq(expected.iter().cycle().take(100)), "{:?}", sent.0);
    // A group goes to all ports, also if the table has it.
    fib.insert(MacAddr::from([0xff; 6]), Station::fixed(1).bits()).expect("room");
    let mut sent = Sent(Vec::new());
    forwarder.forward(2, &[&frame([0xff; 6], host(1), None, 0)], &mut sent);
    assert_eq!(sent.0, [Ok(0), Ok(1)]);
    // There is no such ingress: nothing is known of it, and nothing panics.
    let mut sent = Sent(Vec::new());
    forwarder.forward(9, &[&frame([0xff; 6], host(1), None, 0)], &mut sent);
    assert_eq!(sent.0, [Err(DropReason::NoPort)]);
}
