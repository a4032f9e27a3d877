use super::table::{Key, WAYS};
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn station(n: u32) -> [u8; 6] {
    let b = n.to_be_bytes();
    [2, 0, b[0], b[1], b[2], b[3]]
}

fn control(entries_max: usize) -> MacControl {
    MacControl::new(Limits { entries_max, age_s: 10, learn_per_s: 100 }, 7)
}

#[test]
fn a_bucket_is_two_cache_lines() {
    let table = MacTable::new(8192, 1);
    assert_eq!(table.memory_bytes() % 128, 0);
    assert!(table.memory_bytes() / 128 * WAYS >= 8192 * 3 / 2);
    let key = Key::new(0xfff, [1, 2, 3, 4, 5, 6]);
    assert_eq!((key.vlan(), key.mac()), (0xfff, [1, 2, 3, 4, 5, 6]));
}

#[test]
fn groups_are_never_learnt_and_vlans_are_apart() {
    let mut macs = control(8);
    macs.learn(0, [0xff; 6], 1, 0);
    macs.learn(0, [1, 0, 0x5e, 0, 0, 1], 1, 0);
    assert!(macs.is_empty());
    macs.learn(1, station(5), 1, 0);
    macs.learn(2, station(5), 2, 0);
    let table = macs.table();
    assert_eq!(table.lookup(1, station(5)), Some(1));
    assert_eq!(table.lookup(2, station(5)), Some(2));
    assert_eq!(table.lookup(0, station(5)), None);
    let (mut learner, queue) = Learner::new(table, 10);
    assert!(!learner.saw(0, [0xff; 6], 3, 0) && queue.is_empty());
}

#[test]
fn a_full_table_takes_from_the_port_that_has_the_most() {
    let mut macs = control(100);
    macs.learn(0, station(0), 1, 0);
    for n in 1..5000 {
        macs.learn(0, station(n), 2, n);
    }
    assert_eq!(macs.len(), 100);
    assert_eq!(macs.table().lookup(0, station(0)), Some(1), "the quiet port kept its station");
    assert_eq!(macs.table().lookup(0, station(4999)), Some(2), "the newest is there");
    assert_eq!(macs.counters().evicted, 4900);
}

#[test]
fn a_worker_reports_what_is_new_or_moved_and_not_too_often() {
    let mut macs = control(100);
    let (mut learner, queue) = Learner::new(macs.table(), 3);
    assert!(learner.saw(0, station(1), 1, 0));
    assert!(!learner.saw(0, station(1), 1, 5), "the core has not come to it yet");
    assert!(learner.saw(0, station(1), 1, 50), "it was lost");
    let seen = queue.pop().expect("reported");
    macs.learn(seen.vlan, seen.mac, seen.port, 0);
    assert!(!learner.saw(0, station(1), 1, 100), "known");
    assert!(learner.saw(0, station(1), 2, 100), "moved");
    assert!(!learner.saw(0, station(2), 1, 100), "three a second");
    assert_eq!(learner.suppressed(), 1);
    assert!(learner.saw(0, station(2), 1, 1000), "the next second");
    // Being heard of keeps a station.
    assert!(!learner.saw(0, station(1), 1, 9000));
    macs.expire(10);
    assert_eq!(macs.len(), 1);
    macs.expire(19);
    assert_eq!((macs.len(), macs.counters().aged), (0, 1));
}

/// Readers beside the writer: every station has one port for good, so no reader may see another.
#[test]
fn readers_see_no_other_port_than_that_of_the_station() {
    let mut macs = control(64);
    let stop = AtomicBool::new(false);
    let table = macs.table();
    let hits = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut hits = 0u64;
            while !stop.load(Ordering::Relaxed) || hits == 0 {
                for n in 0..256 {
                    if let Some(port) = table.lookup(0, station(n)) {
                        assert_eq!(port, n + 1000);
                        hits += 1;
                    }
                }
            }
            hits
        });
        for round in 0..100_000u32 {
            let n = round.wrapping_mul(2_654_435_761) >> 24;
            macs.learn(0, station(n), n + 1000, round);
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().expect("no assertion failed")
    });
    assert!(hits > 0);
}

#[derive(Clone, Debug)]
enum Step {
    Learn(u16, u32, u32),
    Expire,
    Flush(u32),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u16..3, 0u32..60, 1u32..5).prop_map(|(v, n, p)| Step::Learn(v, n, p)),
        1 => Just(Step::Expire),
        1 => (1u32..5).prop_map(Step::Flush),
        2 => (0u32..6).prop_map(Step::Wait),
    ]
}

proptest! {
    /// With room for all, the table is a map with times.
    #[test]
    fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..200)) {
        let mut macs = control(400);
        let mut map: HashMap<(u16, u32), (u32, u32)> = HashMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Learn(vlan, n, port) => {
                    macs.learn(vlan, station(n), port, now);
                    map.insert((vlan, n), (port, now));
                }
                Step::Expire => {
                    macs.expire(now);
                    map.retain(|_, (_, at)| now - *at < 10);
                }
                Step::Flush(port) => {
                    macs.flush_port(port);
                    map.retain(|_, (p, _)| *p != port);
                }
                Step::Wait(s) => now += s,
            }
            prop_assert_eq!(macs.len(), map.len());
            prop_assert_eq!(macs.counters().evicted, 0);
        }
        let mut want: Vec<_> = map
            .into_iter()
            .map(|((vlan, n), (port, at))| MacEntry { vlan, mac: station(n), port, idle_s: now - at })
            .collect();
        want.sort_unstable_by_key(|e| (e.vlan, e.mac));
        prop_assert_eq!(macs.entries(now), want);
    }

    /// With room for few, it stays within its bound and never tells a wrong port.
    #[test]
    fn stays_within_its_bound(max in 0usize..20, steps in prop::collection::vec(step(), 1..200)) {
        let mut macs = control(max);
        let mut last: HashMap<(u16, u32), u32> = HashMap::new();
        for step in steps {
            if let Step::Learn(vlan, n, port) = step {
                macs.learn(vlan, station(n), port, 0);
                last.insert((vlan, n), port);
            }
            prop_assert!(macs.len() <= max);
            prop_assert_eq!(macs.entries(0).len(), macs.len());
            for entry in macs.entries(0) {
                let n = u32::from_be_bytes([entry.mac[2], entry.mac[3], entry.mac[4], entry.mac[5]]);
                prop_assert_eq!(last.get(&(entry.vlan, n)), Some(&entry.port));
            }
        }
        prop_assert_eq!(Arc::strong_count(&macs.table()), 2);
    }
}
