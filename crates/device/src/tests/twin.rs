//! The device beside a naive twin: maps, one frame after another.

use super::rig::{BOOT, DEVICE, Fate, PORTS, Rig, address, check, end, framed, mac};
use overbank_netcache::slots::{PASS, UNIT, VALUE_MAX, units_of};
use overbank_wire::bridge::Header;
use overbank_wire::neighbour::Question;
use overbank_wire::netcache::frame::Datagram;
use overbank_wire::netcache::{
    FLAG_ABSENT, FLAG_BYPASS, Key, Message, Op, PORT, Refused, Stamp, Status,
};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, HashMap, HashSet};

const KEYS: u128 = 12;
const HOSTS: u8 = 8;

struct Cached {
    install: u32,
    writes: u32,
    port: u16,
    room: usize,
    /// What may be handed out: a value, or its absence.
    valid: Option<Option<Vec<u8>>>,
}

impl Cached {
    fn stamp(&self) -> Stamp {
        Stamp { boot: BOOT, install: self.install, writes: self.writes }
    }

    fn write(&mut self) -> Stamp {
        (self.writes, self.valid) = (self.writes + 1, None);
        self.stamp()
    }
}

/// What becomes of a frame, before it is known by which port.
enum Decision {
    On,
    Marked(Op, Stamp),
    Answered(Op, u8, Status, Stamp, Vec<u8>),
    Introduced,
    Control,
    Dropped(&'static str),
}

use Decision::{Answered, Control, Dropped, Introduced, Marked, On};

#[derive(Default)]
struct Twin {
    stations: HashMap<([u8; 6], u16), u16>,
    cached: BTreeMap<Key, Cached>,
    /// Those of values beyond the first.
    passes: u64,
}

impl Twin {
    /// Decides what a frame is to the device.
    fn decide(&mut self, ingress: u16, frame: &[u8], header: &Header) -> Decision {
        let own = header.dst == mac(DEVICE);
        if header.src == mac(DEVICE) {
            return Dropped("own_source");
        }
        let datagram = match Datagram::of(frame, PORT) {
            Ok(Some(datagram)) => datagram,
            Err(broken) => return Dropped(broken.name()),
            Ok(None) => {
                let asked = Question::of(frame).is_some_and(|asked| address().has(asked.target));
                return match (asked && (own || header.to_group()), own) {
                    (true, _) => Introduced,
                    (false, true) => Dropped("to_device"),
                    (false, false) => On,
                };
            }
        };
        let said = match Message::parse(datagram.payload()) {
            Ok(said) => said,
            Err(refused) => return Dropped(refused.name()),
        };
        let ours = own && address().has(datagram.dst().ip);
        match said.op {
            Op::Update | Op::Fence | Op::Adopted | Op::Hello | Op::Refresh if !ours => {
                Dropped("other_device")
            }
            Op::Update | Op::Fence | Op::Adopted | Op::Hello | Op::Refresh
                if !datagram.checksum_is_right() =>
            {
                Dropped("udp_checksum")
            }
            Op::Adopted | Op::Hello | Op::Refresh => Control,
            Op::Update => self.update(ingress, &said),
            Op::Fence => match self.cached.get_mut(&said.key) {
                None => Answered(Op::FenceOk, 0, Status::Absent, Stamp::NONE, Vec::new()),
                Some(cached) if cached.port != ingress => Dropped("wrong_port"),
                Some(cached) => Answered(Op::FenceOk, 0, Status::Ok, cached.write(), Vec::new()),
            },
            _ if own => Dropped("to_device"),
            _ if header.to_group() => Dropped("to_group"),
            Op::Adopt | Op::Evicted | Op::Resume | Op::UpdateOk | Op::FenceOk => Dropped("forged"),
            Op::Get if said.flags & FLAG_BYPASS == 0 => match self.cached.get(&said.key) {
                Some(Cached { valid: Some(Some(value)), .. }) => {
                    let stamp = self.cached[&said.key].stamp();
                    self.passes += further(value);
                    Answered(Op::GetOk, 0, Status::Ok, stamp, value.clone())
                }
                Some(cached @ Cached { valid: Some(None), .. }) => {
                    let stamp = cached.stamp();
                    Answered(Op::NotFound, FLAG_ABSENT, Status::Ok, stamp, Vec::new())
                }
                _ => On,
            },
            Op::Put | Op::PutCached | Op::Delete | Op::DeleteCached => {
                let is_put = matches!(said.op, Op::Put | Op::PutCached);
                let ops =
                    if is_put { [Op::Put, Op::PutCached] } else { [Op::Delete, Op::DeleteCached] };
                match self.cached.get_mut(&said.key) {
                    Some(cached) => Marked(ops[1], cached.write()),
                    None if (said.op, said.stamp) == (ops[0], Stamp::NONE) => On,
                    None => Marked(ops[0], Stamp::NONE),
                }
            }
            _ => On,
        }
    }

    fn update(&mut self, ingress: u16, said: &Message<'_>) -> Decision {
        let answer = |status, stamp| Answered(Op::UpdateOk, 0, status, stamp, Vec::new());
        let Some(cached) = self.cached.get_mut(&said.key) else {
            return answer(Status::Absent, Stamp::NONE);
        };
        let now = cached.stamp();
        if cached.port != ingress {
            return Dropped("wrong_port");
        }
        if said.stamp != now {
            return answer(Status::Stale, now);
        }
        if cached.valid.is_none() {
            if said.value.len() > cached.room {
                return answer(Status::TooLong, now);
            }
            let absent = said.flags & FLAG_ABSENT != 0;
            cached.valid = Some((!absent).then(|| said.value.to_vec()));
            self.passes += cached.valid.iter().flatten().map(|value| further(value)).sum::<u64>();
        }
        answer(Status::Ok, now)
    }

    /// Where a frame goes that goes on.
    fn ports(&self, ingress: u16, header: &Header) -> Result<Vec<u16>, &'static str> {
        match self.stations.get(&(header.dst, header.vlan)) {
            Some(port) if !header.to_group() && *port == ingress => Err("same_port"),
            Some(port) if !header.to_group() => Ok(vec![*port]),
            _ if header.to_reserved() => Err("reserved_address"),
            _ => Ok((0..PORTS).filter(|port| *port != ingress).collect()),
        }
    }

    /// Checks what became of a frame; returns the key of a GET that went to one port, and that one.
    fn check(&mut self, ingress: u16, frame: &[u8], fate: &Fate) -> Option<(Key, u16)> {
        let Some(header) = Header::of(frame) else {
            assert_eq!(*fate, Fate::Dropped("truncated_ethernet"));
            return None;
        };
        if !header.from_station() {
            assert_eq!(*fate, Fate::Dropped("bad_source"));
            return None;
        }
        let decision = self.decide(ingress, frame, &header);
        let datagram = Datagram::of(frame, PORT).ok().flatten();
        let said = datagram.and_then(|found| Message::parse(found.payload()).ok());
        let is_right = datagram.is_some_and(|found| found.checksum_is_right());
        match decision {
            Dropped(name) => assert_eq!(*fate, Fate::Dropped(name)),
            Control => assert_eq!(*fate, Fate::Control),
            Introduced => {
                let Fate::Sent(sent) = fate else { panic!("{fate:?}") };
                assert_eq!((sent.len(), sent[0].0), (1, ingress));
                assert_eq!(sent[0].1[6..12], mac(DEVICE));
            }
            Answered(op, flags, status, stamp, value) => {
                let (datagram, said) = (datagram.expect("found"), said.expect("read"));
                let wanted = Message { op, flags, status, stamp, value: &value, ..said };
                let Fate::Sent(sent) = fate else { panic!("{fate:?} {wanted:?}") };
                assert_eq!((sent.len(), sent[0].0), (1, ingress));
                let answer = &sent[0].1;
                if is_right {
                    check(answer);
                }
                let found =
                    Datagram::of(answer, datagram.src().port).expect("right").expect("found");
                assert_eq!((found.src(), found.dst()), (datagram.dst(), datagram.src()));
                assert_eq!(Header::of(answer).expect("whole").vlan, header.vlan);
                assert_eq!(Message::parse(found.payload()), Ok(wanted));
            }
            On | Marked(..) => {
                let wanted = match self.ports(ingress, &header) {
                    Ok(ports) => ports,
                    Err(name) => {
                        assert_eq!(*fate, Fate::Dropped(name));
                        return None;
                    }
                };
                let Fate::Sent(sent) = fate else { panic!("{fate:?}") };
                let ports: Vec<u16> = sent.iter().map(|(port, _)| *port).collect();
                assert_eq!(ports, wanted);
                for (_, bytes) in sent {
                    let Marked(op, stamp) = decision else {
                        assert_eq!(bytes, frame);
                        continue;
                    };
                    if is_right {
                        check(bytes);
                    }
                    let found = Datagram::of(bytes, PORT).expect("right").expect("found");
                    let wanted = Message { op, stamp, ..said.expect("read") };
                    assert_eq!(Message::parse(found.payload()), Ok(wanted));
                    let changed = bytes.iter().zip(frame).filter(|(a, b)| a != b).count();
                    // Operation, stamp, checksum.
                    assert!(changed <= 1 + 12 + 2 && bytes.len() == frame.len());
                }
                if let (On, Some(said), [port]) = (decision, said, &wanted[..])
                    && said.op == Op::Get
                {
                    return Some((said.key, *port));
                }
            }
        }
        None
    }
}

/// Passes of a value beyond the first.
fn further(value: &[u8]) -> u64 {
    (value.len().max(1) as u64 - 1) / 128
}

/// Makes frames of all kinds.
struct Source {
    random: Pcg64Mcg,
    /// Ports of the hosts.
    home: [u16; HOSTS as usize],
}

const OPS: [Op; 26] = [
    Op::Get,
    Op::Get,
    Op::Get,
    Op::Get,
    Op::Get,
    Op::Put,
    Op::Delete,
    Op::PutCached,
    Op::DeleteCached,
    Op::GetOk,
    Op::NotFound,
    Op::WriteOk,
    Op::Update,
    Op::Update,
    Op::Update,
    Op::Update,
    Op::Update,
    Op::UpdateOk,
    Op::Fence,
    Op::FenceOk,
    Op::Adopt,
    Op::Adopted,
    Op::Evicted,
    Op::Hello,
    Op::Resume,
    Op::Refresh,
];

impl Source {
    fn frame(&mut self, ingress: u16, twin: &Twin) -> Vec<u8> {
        let random = &mut self.random;
        let here: Vec<u8> =
            (0..HOSTS).filter(|host| self.home[usize::from(*host)] == ingress).collect();
        let from = match here.len() {
            0 => 100 + ingress as u8,
            hosts => here[random.random_range(0..hosts)],
        };
        let vlan = if random.random_ratio(1, 4) { 9 } else { 0 };
        let is_ip4 = random.random();
        let other = random.random_range(0..HOSTS + 2);
        let mut frame = match random.random_range(0..10) {
            0 => [&mac(other)[..], &mac(from), &[0x88, 0xb5], &[7; 46]].concat(),
            1 => question(random, from, other),
            _ => {
                let op = OPS[random.random_range(0..OPS.len())];
                let for_device =
                    matches!(op, Op::Update | Op::Fence | Op::Adopted | Op::Hello | Op::Refresh);
                let to = if for_device != random.random_ratio(1, 16) { DEVICE } else { other };
                let port = if random.random_ratio(1, 16) { 53 } else { PORT };
                // Mostly a key whose server this may be.
                let near = |key: &Key| twin.cached.get(key).is_some_and(|it| it.port == ingress);
                let mut key = random.random_range(0..KEYS);
                if for_device && random.random_ratio(7, 8) {
                    key = (0..KEYS).map(|n| (key + n) % KEYS).find(near).unwrap_or(key);
                }
                let stamp = match twin.cached.get(&key) {
                    Some(cached) if random.random_ratio(7, 8) => cached.stamp(),
                    _ => Stamp::NONE,
                };
                let flags = [0, 0, 0, FLAG_BYPASS, FLAG_ABSENT][random.random_range(0..5)];
                let mut value = vec![0; length(random)];
                random.fill(&mut value[..]);
                let value = if op.has_value() { &value[..] } else { &[] };
                let names = (random.random(), random.random());
                let message = Message::new(op, names.0, names.1, key);
                let message = Message { flags, stamp, value, ..message };
                framed(&message, &end(from, is_ip4, 4000), &end(to, is_ip4, port), vlan)
            }
        };
        if random.random_ratio(1, 5) {
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..frame.len());
                frame[at] = random.random();
            }
            if random.random_ratio(1, 4) {
                frame.truncate(random.random_range(0..frame.len()));
            }
        }
        frame
    }
}

/// Returns a length of a value; of one pass mostly.
fn length(random: &mut Pcg64Mcg) -> usize {
    let most = if random.random_ratio(1, 4) { VALUE_MAX } else { PASS + 8 };
    random.random_range(0..=most)
}

fn question(random: &mut Pcg64Mcg, from: u8, about: u8) -> Vec<u8> {
    let dst = [[0xff; 6], mac(DEVICE)][random.random_range(0..2)];
    let target = if random.random() { DEVICE } else { about };
    let head = [&dst[..], &mac(from), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    [&head[..], &mac(from), &[10, 0, 0, from], &[0; 6], &[10, 0, 0, target], &[0; 18]].concat()
}

#[test]
fn the_device_does_what_its_twin_does() {
    let mut rig = Rig::new(1, 1 << 16);
    let mut twin = Twin::default();
    let mut source = Source { random: Pcg64Mcg::seed_from_u64(11), home: [0; HOSTS as usize] };
    for host in 0..HOSTS {
        source.home[usize::from(host)] = u16::from(host) % PORTS;
    }
    let (mut sent, mut reported) = (HashMap::<&'static str, u64>::new(), 0);
    for round in 0..3000 {
        change(&mut rig, &mut twin, &mut source, round);
        let ingress = source.random.random_range(0..PORTS);
        let count = source.random.random_range(1..100);
        let frames: Vec<Vec<u8>> = (0..count).map(|_| source.frame(ingress, &twin)).collect();
        let fates = rig.pass(ingress, &frames);
        let mut gets = HashSet::new();
        for (frame, fate) in frames.iter().zip(&fates) {
            gets.extend(twin.check(ingress, frame, fate));
            let name = match fate {
                Fate::Dropped(name) => name,
                Fate::Sent(_) => "sent",
                Fate::Control => "control",
            };
            *sent.entry(name).or_default() += 1;
        }
        for frame in &frames {
            if let Some(header) = Header::of(frame).filter(Header::from_station)
                && header.src != mac(DEVICE)
            {
                twin.stations.insert((header.src, header.vlan), ingress);
            }
        }
        assert_eq!(rig.stations.len(), twin.stations.len());
        while let Some((key, server)) = rig.news.hot.pop() {
            assert!(gets.contains(&(key, server.port)), "{key} {server:?}");
            reported += 1;
        }
        while rig.news.said.pop().is_some() {}
    }
    let totals = rig.device.counted();
    let seen = [totals.kv_hits, totals.kv_writes, totals.kv_fences, totals.kv_neighbours];
    assert!(seen.iter().all(|count| *count > 500), "{totals:?}");
    assert_eq!(totals.kv_passes, twin.passes);
    assert!(twin.passes > 100 && reported > 100, "{} {reported}", twin.passes);
    // All that can happen has happened.
    let refused = [Refused::Magic, Refused::UnknownOp, Refused::Length].map(Refused::name);
    let own = ["own_source", "to_device", "to_group", "other_device", "forged", "wrong_port"];
    let broken = ["broken_ip", "udp_length", "unusual_packet", "udp_checksum"];
    let ethernet = ["truncated_ethernet", "bad_source", "same_port"];
    for name in refused.iter().chain(&own).chain(&broken).chain(&ethernet) {
        assert!(sent.contains_key(name), "{name}: {sent:?}");
    }
}

/// The controller's work between two bursts.
fn change(rig: &mut Rig, twin: &mut Twin, source: &mut Source, round: u32) {
    let random = &mut source.random;
    if round.is_multiple_of(64) {
        let host = random.random_range(0..usize::from(HOSTS));
        source.home[host] = random.random_range(0..PORTS);
        assert!(rig.keeper.turn(overbank::sketch::Settings { threshold: 1, sample_log2: 0 }));
    }
    if !round.is_multiple_of(8) {
        return;
    }
    let key = random.random_range(0..KEYS);
    if twin.cached.remove(&key).is_some() {
        rig.table.evict(key).expect("it is cached");
        rig.table.settle(1);
    } else {
        let (port, bytes) = (random.random_range(0..PORTS), length(random));
        let installed = rig.table.install(key, port, bytes).expect("room");
        let room = units_of(bytes) * UNIT;
        let install = installed.install;
        twin.cached.insert(key, Cached { install, writes: 0, port, room, valid: None });
    }
}
