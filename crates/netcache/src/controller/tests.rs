use super::*;
use crate::pipeline::{BURST_MAX, Config, Counts, Packet, Pipeline, Verdict};
use crate::slots::VALUE_MAX;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

const PORT: u16 = 7;
/// A key whose value takes eight passes.
const LONG: Key = 99;
const COUNTING: sketch::Settings = sketch::Settings { threshold: 4, sample_log2: 0 };

/// A device with its controller, and servers that answer at once.
struct Bench {
    now: Micros,
    pipeline: Pipeline,
    controller: Controller<u8>,
    /// Lengths of the servers' values, but for [`LONG`].
    len: usize,
    /// Servers that do not answer.
    silent: bool,
    told: Vec<(Op, Key)>,
}

impl Bench {
    fn new(settings: Settings, config: Config) -> Bench {
        let table = Table::new(config, 1).expect("memory");
        let (counts, hits) = Counts::new(config.items);
        let (counter, keeper) = sketch::Config::default().build(1, COUNTING).expect("memory");
        let pipeline = Pipeline::new(table.reader(), table.arrays(), counts, counter, 3);
        let watch = vec![Watch { keeper, hits }];
        let controller = Controller::new(settings, table, watch, COUNTING, (1, 3));
        Bench { now: 0, pipeline, controller, len: 8, silent: false, told: Vec::new() }
    }

    /// Passes GETs, and PUTs of the keys that are negative; returns how many the device answered.
    fn pass(&mut self, keys: &[i64]) -> usize {
        let mut hits = 0;
        for keys in keys.chunks(BURST_MAX) {
            let message = |key: &i64| {
                let op = if *key < 0 { Op::Put } else { Op::Get };
                Message::new(op, 1, 1, key.unsigned_abs().into())
            };
            let packets: Vec<Packet<'_>> =
                keys.iter().map(|key| Packet { message: message(key), port: 1 }).collect();
            let mut verdicts = [Verdict::Control; BURST_MAX];
            let mut room = [[0; VALUE_MAX]; BURST_MAX];
            let hot = self.pipeline.burst(&packets, &mut verdicts, &mut room);
            let mut out = Vec::new();
            for (nth, packet) in packets.iter().enumerate() {
                let key = packet.message.key;
                if hot >> nth & 1 == 1 {
                    self.controller.report(self.now, key, (PORT, key as u8), &mut out);
                }
                hits += usize::from(matches!(verdicts[nth], Verdict::Answer { .. }));
                if let Verdict::Mark(_, stamp) = verdicts[nth] {
                    self.update(key, stamp);
                }
            }
            self.serve(out);
        }
        hits
    }

    fn len(&self, key: Key) -> usize {
        if key == LONG { 1024 } else { self.len }
    }

    fn update(&mut self, key: Key, stamp: Stamp) -> Status {
        let value = vec![1; self.len(key)];
        let message = Message { stamp, value: &value, ..Message::new(Op::Update, 0, 0, key) };
        let (mut verdicts, mut room) = ([Verdict::Control], [[0; VALUE_MAX]]);
        let packet = Packet { message, port: PORT };
        self.pipeline.burst(&[packet], &mut verdicts, &mut room);
        match verdicts[0] {
            Verdict::Answer { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    /// Hands messages to the servers, and their answers back.
    fn serve(&mut self, out: Vec<(u8, Letter)>) {
        let mut more = Vec::new();
        for (server, Letter { head, .. }) in out {
            self.told.push((head.op, head.key));
            if self.silent {
                continue;
            }
            let status = match head.op {
                Op::Adopt if self.update(head.key, head.stamp) == Status::TooLong => {
                    let refresh = Message::new(Op::Refresh, self.len(head.key) as u64, 0, head.key);
                    let refresh = Message { status: Status::TooLong, stamp: head.stamp, ..refresh };
                    self.controller.message(self.now, (PORT, server), &refresh, &mut more);
                    continue;
                }
                Op::Adopt => Status::Ok,
                Op::Evicted => Status::Absent,
                _ => continue,
            };
            let answer = head.answer(Op::Adopted, status);
            self.controller.message(self.now, (PORT, server), &answer, &mut more);
        }
        if !more.is_empty() {
            self.serve(more);
        }
    }

    fn tick(&mut self, after: Micros) {
        self.now += after;
        self.controller.settle(usize::MAX);
        let mut out = Vec::new();
        self.controller.tick(self.now, &mut out);
        self.serve(out);
    }

    /// Passes these before each of the decisions.
    fn run(&mut self, decisions: usize, keys: &[i64]) -> usize {
        (0..decisions).fold(0, |_, _| {
            let hits = self.pass(keys);
            self.tick(100_000);
            hits
        })
    }
}

fn small(items: usize) -> Config {
    Config { items, indexes_log2: items.ilog2(), passes: 1 }
}

#[test]
fn the_hottest_keys_are_cached_as_a_full_sort_has_them() {
    const ITEMS: usize = 128;
    let mut bench = Bench::new(Settings::default(), small(ITEMS));
    let mut random = Pcg64Mcg::seed_from_u64(1);
    // Zipf .99 over 20,000 keys, whose hottest ones change half way.
    let weights: Vec<f64> = (1..=20_000).map(|rank| f64::powf(rank.into(), -0.99)).collect();
    let sums: Vec<f64> = weights
        .iter()
        .scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect();
    for shift in [0, 10_000] {
        let (mut hits, mut ideal, mut all) = (0, 0, 0);
        for decision in 0..60 {
            let mut draw = || {
                let at = random.random_range(0.0..sums[sums.len() - 1]);
                (sums.partition_point(|sum| *sum < at) as i64 + shift) % 20_000
            };
            let keys: Vec<i64> = (0..4000).map(|_| draw()).collect();
            let answered = bench.pass(&keys);
            bench.tick(100_000);
            if decision >= 30 {
                let mut counts = BTreeMap::<i64, usize>::new();
                keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
                let best = |key: i64| (key + 20_000 - shift) % 20_000 < ITEMS as i64;
                ideal += counts.iter().filter(|(key, _)| best(**key)).map(|of| of.1).sum::<usize>();
                (hits, all) = (hits + answered, all + keys.len());
            }
        }
        let share = hits as f64 / ideal as f64;
        assert!(share > 0.9, "{hits} hits of {all}, the best keys have {ideal}");
    }
    let totals = bench.controller.totals();
    assert!(totals.evicted < 3000 && totals.installed > ITEMS as u64, "{totals:?}");
}

#[test]
fn a_key_that_is_written_often_is_left_out() {
    let mut bench = Bench::new(Settings::default(), small(4));
    let often = [vec![5; 40], vec![-5; 20], vec![6; 40]].concat();
    bench.run(5, &often);
    assert!(bench.controller.table().entry(5).is_some());
    bench.run(40, &often);
    assert!(bench.controller.table().entry(5).is_none());
    assert!(bench.controller.table().entry(6).is_some());
    // It comes back once it is written seldom.
    bench.run(120, &[vec![5; 40], vec![-5; 1]].concat());
    assert!(bench.controller.table().entry(5).is_some());
    assert_eq!(bench.controller.totals().barred, 1);
}

#[test]
fn changes_are_bounded_in_time() {
    let settings = Settings { changes_a_second: 100, ..Settings::default() };
    let mut bench = Bench::new(settings, small(64));
    let keys: Vec<i64> = (1..=50).flat_map(|key| [key; 9]).collect();
    bench.run(1, &keys);
    assert_eq!(bench.controller.table().len(), 10);
    bench.run(1, &keys);
    assert_eq!(bench.controller.table().len(), 20);
}

#[test]
fn a_server_that_starts_has_no_cached_keys() {
    let mut bench = Bench::new(Settings::default(), small(16));
    bench.run(3, &[vec![1; 9], vec![2; 9]].concat());
    assert_eq!(bench.controller.table().len(), 2);
    let mut out = Vec::new();
    let hello = Message::new(Op::Hello, 0, 77, 0);
    bench.controller.message(bench.now, (PORT, 1), &hello, &mut out);
    assert!(bench.controller.table().entry(1).is_none());
    assert!(bench.controller.table().entry(2).is_some());
    let [(1, letter)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((letter.head.op, letter.head.request), (Op::Resume, 77));
}

#[test]
fn a_longer_value_gets_more_room_and_one_that_is_too_long_none() {
    let settings = Settings { first_bytes: 16, ..Settings::default() };
    let mut bench = Bench::new(settings, small(16));
    bench.len = 100;
    bench.run(4, &[1; 9]);
    let entry = bench.controller.table().entry(1).expect("cached");
    assert_eq!(entry.place.units, 7);
    assert!(bench.pass(&[1]) == 1, "valid");
    // Of another port: nothing. Of an installation that is gone: its server learns that.
    let stamp = Stamp { boot: 1, install: 2, writes: 0 };
    let refresh = |len, stamp| {
        let refresh = Message::new(Op::Refresh, len, 0, 1);
        Message { status: Status::Refused, stamp, ..refresh }
    };
    let mut out = Vec::new();
    let now = bench.now;
    for (port, stamp) in [(PORT + 1, stamp), (PORT, Stamp { install: 1, ..stamp })] {
        bench.controller.message(now, (port, 1), &refresh(200, stamp), &mut out);
        assert!(bench.controller.table().entry(1).is_some());
    }
    let [(1, Letter { head, .. })] = out[..] else { panic!("{out:?}") };
    assert_eq!((head.op, head.stamp), (Op::Evicted, Stamp { install: 1, ..stamp }));
    bench.controller.message(now, (PORT, 1), &refresh(200, stamp), &mut out);
    assert!(bench.controller.table().entry(1).is_none());
    bench.run(4, &[1; 9]);
    assert!(bench.controller.table().entry(1).is_none(), "left out for a while");
}

#[test]
fn a_silent_server_has_its_keys_evicted_and_a_lost_value_is_asked_for() {
    let mut bench = Bench::new(Settings::default(), small(16));
    bench.silent = true;
    bench.run(1, &[1; 9]);
    assert!(bench.controller.table().entry(1).is_some());
    for _ in 0..400 {
        bench.tick(2_000);
    }
    assert!(bench.controller.table().entry(1).is_none());
    let totals = bench.controller.totals();
    assert!(totals.silent >= 1, "{totals:?}");
    assert!(bench.told.iter().filter(|told| told.0 == Op::Evicted).count() <= 30);
    // A write that passes and is lost leaves the key invalid, until it is hot again.
    let mut bench = Bench::new(Settings::default(), small(16));
    bench.run(12, &[1; 9]);
    let message = Message::new(Op::Put, 1, 1, 1);
    let (mut verdicts, mut room) = ([Verdict::Control], [[0; VALUE_MAX]]);
    bench.pipeline.burst(&[Packet { message, port: 1 }], &mut verdicts, &mut room);
    bench.told.clear();
    bench.pass(&[1; 9]);
    assert_eq!(bench.told, [(Op::Adopt, 1)]);
    assert_eq!(bench.controller.totals().invalid, 1);
}

#[test]
fn values_are_moved_where_units_are_scattered() {
    let settings = Settings { first_bytes: 64, ..Settings::default() };
    let mut bench = Bench::new(settings, Config { items: 64, indexes_log2: 3, passes: 1 });
    bench.len = 64;
    let keys: Vec<i64> = (1..=16).flat_map(|key| [key; 9]).collect();
    bench.run(3, &keys);
    assert_eq!(bench.controller.table().len(), 16);
    // Half of each index goes, then values of a whole index come.
    let mut out = Vec::new();
    for key in (1..=16).step_by(2) {
        bench.controller.tell_evicted(bench.now, key, &mut out);
    }
    bench.serve(out);
    bench.controller.settle(usize::MAX);
    bench.controller.settings.first_bytes = 128;
    bench.run(8, &[101; 9]);
    assert!(bench.controller.table().entry(101).is_some());
    assert!(bench.controller.totals().moved > 0);
}

#[test]
fn a_long_value_that_is_hotter_gets_whole_indexes() {
    let mut bench =
        Bench::new(Settings::default(), Config { items: 64, indexes_log2: 4, passes: 8 });
    bench.len = 128;
    let cold: Vec<i64> = (1..=16).flat_map(|key| [key; 6]).collect();
    bench.run(12, &cold);
    assert_eq!(bench.controller.table().free_units(), 0);
    // Others are reported meanwhile, and would take what comes free.
    let others = (1..60).flat_map(|key| [key; 6]);
    bench.run(30, &others.chain([LONG as i64; 200]).collect::<Vec<_>>());
    let entry = bench.controller.table().entry(LONG);
    assert_eq!(entry.map(|entry| entry.place.units), Some(64));
}
