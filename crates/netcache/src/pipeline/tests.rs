use super::*;
use crate::slots::{PASS, PASSES_MAX, VALUE_MAX};
use overbank::sketch;
use overbank_wire::netcache::{FLAG_ABSENT, FLAG_BYPASS, Key, Message, Op, Stamp, Status as Said};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

const BOOT: u32 = 3;
const KEYS: u128 = 24;

/// The device as maps.
#[derive(Default)]
struct Naive {
    cached: BTreeMap<Key, Cached>,
    hits: BTreeMap<Key, u16>,
}

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
        self.writes += 1;
        self.valid = None;
        self.stamp()
    }
}

/// A verdict with the value of its answer.
type Seen = (Verdict, Vec<u8>);

fn answered(op: Op, flags: u8, status: Said, stamp: Stamp, value: &[u8]) -> Seen {
    (Verdict::Answer { op, flags, status, stamp, len: value.len() as u16 }, value.to_vec())
}

impl Naive {
    fn take(&mut self, Packet { message, port }: &Packet<'_>) -> Seen {
        let plain = |verdict| (verdict, Vec::new());
        let cached = self.cached.get_mut(&message.key);
        let wrong = cached.as_ref().is_some_and(|cached| cached.port != *port);
        let absent = |op| answered(op, 0, Said::Absent, Stamp::NONE, &[]);
        match (message.op, cached) {
            (Op::Get, Some(cached)) if message.flags & FLAG_BYPASS == 0 => {
                if let Some(valid) = &cached.valid {
                    let hits = self.hits.entry(message.key).or_default();
                    *hits = hits.saturating_add(1);
                    return match valid {
                        Some(value) => answered(Op::GetOk, 0, Said::Ok, cached.stamp(), value),
                        None => answered(Op::NotFound, FLAG_ABSENT, Said::Ok, cached.stamp(), &[]),
                    };
                }
                plain(Verdict::Forward)
            }
            (Op::Put | Op::PutCached, Some(cached)) => {
                plain(Verdict::Mark(Op::PutCached, cached.write()))
            }
            (Op::Delete | Op::DeleteCached, Some(cached)) => {
                plain(Verdict::Mark(Op::DeleteCached, cached.write()))
            }
            (Op::PutCached, None) => plain(Verdict::Mark(Op::Put, Stamp::NONE)),
            (Op::DeleteCached, None) => plain(Verdict::Mark(Op::Delete, Stamp::NONE)),
            (op @ (Op::Put | Op::Delete), None) if message.stamp != Stamp::NONE => {
                plain(Verdict::Mark(op, Stamp::NONE))
            }
            (Op::Fence, None) => absent(Op::FenceOk),
            (Op::Update, None) => absent(Op::UpdateOk),
            (Op::Fence | Op::Update, Some(_)) if wrong => plain(Verdict::Drop(Unread::WrongPort)),
            (Op::Fence, Some(cached)) => answered(Op::FenceOk, 0, Said::Ok, cached.write(), &[]),
            (Op::Update, Some(cached)) if message.stamp != cached.stamp() => {
                answered(Op::UpdateOk, 0, Said::Stale, cached.stamp(), &[])
            }
            (Op::Update, Some(cached))
                if message.value.len() > cached.room && cached.valid.is_none() =>
            {
                answered(Op::UpdateOk, 0, Said::TooLong, cached.stamp(), &[])
            }
            (Op::Update, Some(cached)) => {
                let value = (message.flags & FLAG_ABSENT == 0).then(|| message.value.to_vec());
                cached.valid.get_or_insert(value);
                answered(Op::UpdateOk, 0, Said::Ok, cached.stamp(), &[])
            }
            (Op::UpdateOk | Op::FenceOk | Op::Adopt | Op::Evicted | Op::Resume, _) => {
                plain(Verdict::Drop(Unread::Forged))
            }
            (Op::Adopted | Op::Hello | Op::Refresh, _) => plain(Verdict::Control),
            _ => plain(Verdict::Forward),
        }
    }
}

/// The device, and its twin.
struct Pair {
    table: Table,
    pipeline: Pipeline,
    tally: Tally,
    keeper: sketch::Keeper,
    naive: Naive,
}

const COUNTED: sketch::Settings = sketch::Settings { threshold: 3, sample_log2: 0 };

impl Pair {
    fn new(items: usize, indexes_log2: u32, passes: usize) -> Pair {
        let table = Table::new(Config { items, indexes_log2, passes }, BOOT).expect("memory");
        let (counts, tally) = Counts::new(items);
        let (sketch, keeper) = sketch::Config::default().build(5, COUNTED).expect("memory");
        let pipeline = Pipeline::new(table.reader(), table.arrays(), counts, sketch, 9);
        Pair { table, pipeline, tally, keeper, naive: Naive::default() }
    }

    fn install(&mut self, key: Key, port: u16, bytes: usize) -> Result<(), TableError> {
        let Installed { entry, install } = self.table.install(key, port, bytes)?;
        let room = 16 * usize::from(entry.place.units);
        assert!(room >= bytes);
        let cached = Cached { install, writes: 0, port, room, valid: None };
        assert!(self.naive.cached.insert(key, cached).is_none());
        Ok(())
    }

    fn evict(&mut self, key: Key) {
        let before = self.naive.cached.remove(&key);
        assert_eq!(self.table.evict(key), before.map(|before| before.install));
    }

    fn repack(&mut self, bytes: usize) -> bool {
        let Some((key, Installed { install, .. })) = self.table.repack(bytes) else { return false };
        let cached = self.naive.cached.get_mut(&key).expect("cached");
        assert!(install > cached.install);
        (cached.install, cached.writes, cached.valid) = (install, 0, None);
        true
    }

    /// Passes a burst; returns verdicts, and what is reported.
    fn burst(&mut self, packets: &[Packet<'_>]) -> (Vec<Seen>, u64) {
        let mut verdicts = vec![Verdict::Control; packets.len()];
        let mut values = vec![[0xa5; VALUE_MAX]; packets.len()];
        let hot = self.pipeline.burst(packets, &mut verdicts, &mut values);
        let value = |verdict: &Verdict, value: &[u8]| match verdict {
            Verdict::Answer { len, .. } => value[..usize::from(*len)].to_vec(),
            _ => Vec::new(),
        };
        let seen = verdicts.iter().zip(&values);
        (seen.map(|(verdict, room)| (*verdict, value(verdict, room))).collect(), hot)
    }
}

fn operations() -> usize {
    let asked = std::env::var("OVERBANK_PIPELINE_OPERATIONS").ok();
    asked.map_or(300_000, |text| text.parse().expect("a number"))
}

#[test]
fn every_message_gets_what_maps_would_give_it() {
    each_message(1, 3);
    // In several passes.
    each_message(PASSES_MAX, 5);
}

fn each_message(passes: usize, indexes_log2: u32) {
    let most = |random: &mut Pcg64Mcg| match random.random_range(0..4) {
        0 => passes * PASS,
        _ => PASS,
    };
    let mut random = Pcg64Mcg::seed_from_u64(1);
    // Fewer items than keys, and little room for values.
    let mut pair = Pair::new(16, indexes_log2, passes);
    let (mut hits, mut stored, mut moves, mut left) = (0, 0, 0, operations() / 2);
    while left > 0 {
        let key = random.random_range(0..KEYS);
        let most_bytes = most(&mut random);
        let bytes = random.random_range(0..=most_bytes);
        match random.random_range(0..16) {
            0 => {
                let _ = pair.install(key, random.random_range(0..3), bytes);
            }
            1 => pair.evict(key),
            2 => {
                pair.table.settle(pair.table.resting());
                moves += u32::from(pair.repack(bytes));
            }
            _ => {}
        }
        let value: Vec<u8> = (0..VALUE_MAX).map(|_| random.random()).collect();
        let ops: Vec<Op> = (0..=u8::MAX).filter_map(op).collect();
        let any = |random: &mut Pcg64Mcg| {
            let op = match random.random_range(0..8) {
                0 => ops[random.random_range(0..ops.len())],
                1 => Op::Put,
                2..5 => Op::Update,
                _ => Op::Get,
            };
            let key = random.random_range(0..KEYS);
            let known = pair.naive.cached.get(&key);
            let room = known.map_or(64, |known| known.room + 16).min(VALUE_MAX);
            let bytes = if op == Op::Update { random.random_range(0..=room) } else { 0 };
            let flags = match random.random_range(0..16) {
                0 => FLAG_BYPASS,
                1 => FLAG_ABSENT,
                _ => 0,
            };
            let mut stamp = known.map_or(Stamp::NONE, Cached::stamp);
            if random.random_range(0..8) == 0 {
                stamp.writes = stamp.writes.wrapping_sub(random.random_range(0..2));
                stamp.install = stamp.install.wrapping_add(random.random_range(0..2));
            }
            let port = match known {
                Some(known) if random.random_range(0..8) > 0 => known.port,
                _ => random.random_range(0..3),
            };
            let value = &value[..bytes];
            Packet { message: Message { flags, stamp, value, ..Message::new(op, 1, 2, key) }, port }
        };
        let packets: Vec<Packet<'_>> =
            (0..random.random_range(1..=8)).map(|_| any(&mut random)).collect();
        left = left.saturating_sub(packets.len());
        let (seen, _) = pair.burst(&packets);
        for (packet, seen) in packets.iter().zip(seen) {
            assert_eq!(seen, pair.naive.take(packet), "{packet:?}");
            hits += u32::from(matches!(seen.0, Verdict::Answer { op: Op::GetOk, .. }));
            let is_stored = Verdict::Answer {
                op: Op::UpdateOk,
                flags: 0,
                status: Said::Ok,
                stamp: packet.message.stamp,
                len: 0,
            };
            stored += u32::from(seen.0 == is_stored);
        }
    }
    let listed: BTreeMap<Key, u16> = pair.table.iter().map(|(key, of)| (key, of.port)).collect();
    let known = pair.naive.cached.iter().map(|(key, cached)| (*key, cached.port));
    assert_eq!(listed, known.collect());
    assert!(hits > 10_000 && stored > 1000 && moves > 10, "{hits} {stored} {moves}");
}

/// Returns the operation of this number.
fn op(number: u8) -> Option<Op> {
    let mut bytes = [0; overbank_wire::netcache::HEADER_LEN];
    Message::new(Op::Get, 0, 0, 0).emit(&mut bytes)?;
    bytes[3] = number;
    Message::parse(&bytes).ok().map(|message| message.op)
}

fn packet(op: Op, key: Key) -> Packet<'static> {
    Packet { message: Message::new(op, 1, 1, key), port: 7 }
}

#[test]
fn hot_keys_are_reported_once_and_hits_are_counted() {
    let mut pair = Pair::new(4, 2, 1);
    let gets = [packet(Op::Get, 1), packet(Op::Put, 1), packet(Op::Get, 2), packet(Op::Get, 1)];
    assert_eq!(pair.burst(&gets).1, 0);
    assert_eq!(pair.burst(&gets).1, 1, "the third GET of key 1");
    assert_eq!(pair.burst(&gets).1, 1 << 2, "the third GET of key 2");
    assert_eq!(pair.burst(&gets).1, 0, "once an epoch");
    // Not while it bypasses the device.
    let mut around = packet(Op::Get, 3);
    around.message.flags = FLAG_BYPASS;
    assert_eq!(pair.burst(&[around; 9]).1, 0);
    // A cached key's hits are counted; its misses are those of any key.
    pair.install(1, 7, 16).expect("room");
    let item = pair.table.entry(1).expect("cached").item;
    let stamp = Stamp { boot: BOOT, install: 1, writes: 0 };
    let mut update = packet(Op::Update, 1);
    (update.message.stamp, update.message.value) = (stamp, b"value");
    pair.burst(&[update]);
    let (seen, _) = pair.burst(&[packet(Op::Get, 1); 5]);
    assert_eq!(seen[4], answered(Op::GetOk, 0, Said::Ok, stamp, b"value"));
    assert_eq!(pair.tally.count(item, pair.keeper.epoch()), 5);
    // One hit in 2^k counts in an epoch that samples.
    assert!(pair.keeper.turn(sketch::Settings { sample_log2: 4, ..COUNTED }));
    for _ in 0..1000 {
        pair.burst(&[packet(Op::Get, 1); 16]);
    }
    let hits = pair.tally.count(item, pair.keeper.epoch());
    assert!((800..1200).contains(&hits), "{hits} of 16,000");
}

#[test]
fn an_item_rests_before_another_key_has_it() {
    let mut pair = Pair::new(1, 0, 1);
    pair.install(1, 7, 0).expect("room");
    pair.evict(1);
    assert_eq!(pair.table.install(2, 7, 0), Err(TableError::Items(1)));
    assert_eq!(pair.table.begin(4), Err(1));
    pair.table.settle(1);
    pair.install(2, 7, 0).expect("settled");
    assert_eq!(pair.table.install(2, 7, 0), Err(TableError::Present));
    pair.evict(2);
    pair.table.settle(pair.table.resting());
    assert_eq!((pair.table.begin(4), pair.table.is_empty()), (Ok(()), true));
    assert_eq!(pair.table.install(2, 7, 0).map(|installed| installed.install), Ok(1));
}

#[test]
fn a_place_is_made_by_moving_one() {
    let mut pair = Pair::new(8, 1, 1);
    for (key, bytes) in [(0, 32), (1, 96), (2, 96)] {
        pair.install(key, 7, bytes).expect("room");
    }
    pair.evict(1);
    assert!(!pair.repack(128), "what rests may make room");
    pair.table.settle(1);
    // Six units are free beside key 0, and two in the other index.
    assert!(matches!(pair.table.install(3, 7, 128), Err(TableError::Slots(_))));
    assert!(pair.repack(128));
    pair.table.settle(1);
    pair.install(3, 7, 128).expect("room");
    assert_eq!(pair.table.len(), 3);
}

#[test]
fn a_switch_would_have_these_bits() {
    let table = Table::new(Config::default(), 1).expect("memory");
    let bits: BTreeMap<_, _> = table.resources().into_iter().collect();
    let mib = |bits: u64| bits >> 23;
    assert_eq!(
        bits.keys().copied().collect::<Vec<_>>(),
        ["length", "lookup", "next", "status", "value"]
    );
    assert_eq!(mib(bits["value"]), 8, "the paper's 8 MB (section 6)");
    assert_eq!(bits["lookup"], 184 << 16);
}
