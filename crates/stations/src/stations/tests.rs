use super::super::station::Address;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn key(n: u32, vlan: u16) -> MacVlan {
    let b = n.to_be_bytes();
    MacVlan::of([2, 0, b[0], b[1], b[2], b[3]], vlan)
}

fn stations(entries_max: usize, ports: usize) -> Stations {
    let limits = Limits { entries_max, age_s: 8, ..Limits::default() };
    Stations::new(limits, ports, 4, 7).expect("memory")
}

fn unknown(n: u32, port: u16) -> Sighting {
    Sighting { key: key(n, 0), port, news: News::Unknown }
}

/// Ticks once in a tenth of a second, as an epoch of these tests takes a second.
fn pass(stations: &mut Stations, from_ms: u64, to_ms: u64) {
    for now_ms in (from_ms..=to_ms).step_by(100) {
        stations.tick(now_ms);
    }
}

#[test]
fn groups_are_never_learnt_and_vlans_are_apart() {
    let mut stations = stations(8, 4);
    for mac in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6]] {
        stations.learn(Sighting { key: MacVlan::new(mac, 0), port: 1, news: News::Unknown });
    }
    stations.learn(unknown(1, 4));
    assert!(stations.is_empty(), "nor what is behind no port");
    for vlan in [1, 2] {
        stations.learn(Sighting { key: key(5, vlan), port: vlan, news: News::Unknown });
    }
    let reader = stations.reader();
    let port = |vlan| reader.lookup(key(5, vlan)).map(|bits| Station::from_bits(bits).port());
    assert_eq!((port(0), port(1), port(2)), (None, Some(1), Some(2)));
}

#[test]
fn static_entries_stay() {
    let mut stations = stations(8, 4);
    stations.learn(unknown(1, 2));
    assert_eq!(stations.add_static(key(1, 0), 3), Ok(()));
    assert_eq!(stations.add_static(key(1, 0), 3), Err(StaticError::Twice(key(1, 0))));
    assert_eq!(stations.add_static(key(2, 0), 4), Err(StaticError::Port(key(2, 0))));
    let group = MacVlan::new([0xff; 6], 3);
    assert_eq!(stations.add_static(group, 1), Err(StaticError::Address(group)));
    assert_eq!((stations.len(), stations.fixed()), (1, 1), "it replaced what was learnt");
    stations.learn(Sighting { news: News::Moved, ..unknown(1, 2) });
    for n in 10..100 {
        stations.learn(unknown(n, 2));
    }
    stations.set_up(3, false);
    pass(&mut stations, 0, 60_000);
    let (list, count) = stations.list(10, |_| true);
    assert_eq!(list, [Entry { key: key(1, 0), port: 3, is_static: true, silent_s: 0 }]);
    assert_eq!((count, stations.counters().moved, stations.counters().flushed), (1, 0, 0));
}

#[test]
fn a_station_ages_and_a_sign_of_life_keeps_it() {
    let mut stations = stations(100, 4);
    stations.learn(unknown(1, 1));
    stations.learn(unknown(2, 1));
    let reader = stations.reader();
    let mut gone = [0; 2];
    for now_ms in (0..40_000).step_by(100) {
        stations.tick(now_ms);
        if now_ms <= 10_000 {
            stations.learn(Sighting { news: News::Silent, ..unknown(2, 1) });
        }
        for (i, gone) in gone.iter_mut().enumerate() {
            if *gone == 0 && reader.lookup(key(i as u32 + 1, 0)).is_none() {
                *gone = now_ms;
            }
        }
    }
    // Eight epochs of a second, and one and a half more at most.
    assert!((8_000..=9_500).contains(&gone[0]), "{gone:?}");
    assert!((18_000..=19_500).contains(&gone[1]), "{gone:?}");
    let counters = stations.counters();
    assert_eq!((counters.learned, counters.aged, counters.refreshed), (2, 2, 10));
    assert!(stations.is_empty());
}

#[test]
fn a_clock_that_leaps_does_not_make_old_entries_new() {
    for leap_s in [9, 30, 63, 64, 65, 1000] {
        let mut stations = stations(100, 4);
        pass(&mut stations, 0, 5_000);
        stations.learn(unknown(1, 1));
        // No tick came for long; a few ticks afterwards it is gone.
        let late_ms = 5_000 + leap_s * 1000;
        let mut ticks = 0;
        while !stations.is_empty() && ticks < 400 {
            stations.tick(late_ms + ticks * 20);
            ticks += 1;
        }
        assert_eq!(stations.counters().aged, 1, "{leap_s} s");
        assert!(ticks < 100, "{leap_s} s: {ticks}");
    }
}

/// However long no tick came: an address heard of since the epoch began stays for another one.
#[test]
fn a_clock_that_leaps_does_not_make_new_entries_old() {
    for leap_s in [8, 9, 16, 30, 1000] {
        let mut stations = stations(100, 4);
        pass(&mut stations, 0, 5_000);
        stations.learn(unknown(1, 1));
        let mut now_ms = 5_000;
        for _ in 0..10 {
            now_ms += leap_s * 1000;
            // The epoch moves on, and all of the table is looked at.
            stations.tick(now_ms);
            stations.tick(now_ms + 500);
            assert_eq!(stations.counters().aged, 0, "{leap_s} s");
            stations.learn(Sighting { news: News::Silent, ..unknown(1, 1) });
        }
        assert_eq!((stations.len(), stations.counters().refreshed), (1, 10), "{leap_s} s");
    }
}

#[test]
fn an_old_report_does_not_move_an_address_back() {
    let mut stations = stations(100, 4);
    stations.learn(unknown(1, 1));
    stations.learn(Sighting { news: News::Moved, ..unknown(1, 2) });
    stations.learn(Sighting { news: News::Silent, ..unknown(1, 1) });
    stations.learn(Sighting { news: News::Silent, ..unknown(9, 1) });
    let (list, count) = stations.list(9, |_| true);
    assert_eq!((list[0].port, count, stations.counters().moved), (2, 1, 1));
}

#[test]
fn a_port_that_goes_down_loses_its_stations_for_good() {
    let mut stations = stations(1000, 4);
    for n in 0..600 {
        stations.learn(unknown(n, (n % 3) as u16));
    }
    stations.set_up(1, false);
    assert_eq!((stations.len(), stations.counters().flushed), (400, 200));
    assert_eq!(stations.list(0, |entry| entry.port == 1).1, 0);
    stations.learn(unknown(1, 1));
    assert_eq!(stations.len(), 400, "a late report of a port that is down");
    stations.set_up(1, true);
    stations.learn(unknown(1, 1));
    assert_eq!(stations.len(), 401);
}

/// Larger than one slice, with insertions in between that move entries to and fro.
#[test]
fn a_large_table_is_flushed_while_others_are_learnt() {
    let entries = 20_000;
    let mut stations = stations(2 * entries, 3);
    stations.slice_max = 500;
    for n in 0..entries as u32 {
        stations.learn(unknown(n, (n % 2) as u16));
    }
    stations.set_up(1, false);
    assert!(stations.is_flushing() && stations.len() > entries / 2, "one slice is not all of it");
    // It is up again before that is over; what comes from it is learnt when it is.
    stations.set_up(1, true);
    let mut n = entries as u32;
    for now_ms in 0.. {
        for _ in 0..500 {
            stations.learn(unknown(n, 2));
            stations.learn(unknown(n + 1_000_000, 1));
            n += 1;
        }
        if stations.tick(now_ms).is_none() {
            break;
        }
        assert!(now_ms < 100, "it comes to an end");
    }
    let of = |port| stations.list(0, |entry| entry.port == port).1;
    assert_eq!((of(0), of(1), of(2)), (entries / 2, 0, n as usize - entries));
    assert_eq!(stations.counters().flushed, entries as u64 / 2);
}

#[test]
fn a_flood_evicts_no_address_in_use() {
    let mut stations = stations(100, 2);
    // 40 stations of each port; they are heard of again and again.
    let hosts = |stations: &mut Stations| {
        for n in 0..80 {
            stations.learn(Sighting { news: News::Silent, ..unknown(n, (n % 2) as u16) });
        }
    };
    for n in 0..80 {
        stations.learn(unknown(n, (n % 2) as u16));
    }
    let mut invented = 1000;
    for now_ms in (0..60_000).step_by(100) {
        stations.tick(now_ms);
        hosts(&mut stations);
        for _ in 0..50 {
            stations.learn(unknown(invented, 0));
            invented += 1;
        }
        assert!(stations.len() <= 100);
    }
    let here = stations.list(0, |entry| entry.key.mac()[2..] < [0, 0, 0, 80][..]).1;
    assert_eq!(here, 80, "all hosts are there, those of the flooded port too");
    let counters = stations.counters();
    assert_eq!((counters.aged, counters.moved), (0, 0));
    assert!(counters.evicted > 20, "invented addresses make room for others: {counters:?}");
    assert!(counters.refused > 10 * counters.evicted, "{counters:?}");
}

#[test]
fn a_port_under_its_share_gets_room() {
    let mut stations = stations(100, 2);
    for n in 0..100 {
        stations.learn(unknown(n, 0));
    }
    for n in 1000..1100 {
        stations.learn(unknown(n, 1));
    }
    assert_eq!(stations.share(), 25);
    assert_eq!(stations.list(0, |entry| entry.port == 1).1, 25);
    let counters = stations.counters();
    assert_eq!((stations.len(), counters.evicted, counters.refused), (100, 25, 75));
}

#[test]
fn no_entries_means_no_learning() {
    let mut stations = stations(0, 2);
    stations.learn(unknown(1, 0));
    assert_eq!(stations.add_static(key(2, 0), 1), Ok(()));
    assert_eq!((stations.len(), stations.counters().refused), (1, 0));
    // A billion stations take less than 13 GiB.
    let limits = Limits { entries_max: 1_000_000_000, ..Limits::default() };
    assert_eq!(Stations::bytes_of(limits, 0) >> 20, 12_849);
}

#[derive(Clone, Debug)]
enum Step {
    Learn(u16, u32, u16),
    Life(u16, u32, u16),
    Down(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u16..3, 0u32..60, 0u16..4).prop_map(|(v, n, p)| Step::Learn(v, n, p)),
        4 => (0u16..3, 0u32..60, 0u16..4).prop_map(|(v, n, p)| Step::Life(v, n, p)),
        1 => (0usize..4).prop_map(Step::Down),
        2 => (1u64..6).prop_map(Step::Wait),
    ]
}

proptest! {
    /// With room for all, the table is a map from keys to ports and epochs.
    #[test]
    fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..200)) {
        let mut stations = stations(400, 4);
        let mut map: HashMap<(u16, u32), (u16, u64)> = HashMap::new();
        let mut now_s = 0;
        for step in steps {
            match step {
                Step::Learn(vlan, n, port) => {
                    stations.learn(Sighting { key: key(n, vlan), ..unknown(n, port) });
                    map.insert((vlan, n), (port, now_s));
                }
                Step::Life(vlan, n, port) => {
                    let news = News::Silent;
                    stations.learn(Sighting { key: key(n, vlan), news, ..unknown(n, port) });
                    if let Some(known) = map.get_mut(&(vlan, n)).filter(|known| known.0 == port) {
                        known.1 = now_s;
                    }
                }
                Step::Down(port) => {
                    stations.set_up(port, false);
                    stations.set_up(port, true);
                    map.retain(|_, (p, _)| usize::from(*p) != port);
                }
                Step::Wait(s) => {
                    pass(&mut stations, now_s * 1000, (now_s + s) * 1000);
                    now_s += s;
                    // An entry goes in the middle of an epoch; at its end it is gone.
                    pass(&mut stations, now_s * 1000, now_s * 1000 + 900);
                    map.retain(|_, (_, at)| now_s - *at <= u64::from(AGE_EPOCHS));
                }
            }
            prop_assert_eq!(stations.len(), map.len());
        }
        let (list, count) = stations.list(1000, |_| true);
        prop_assert_eq!(count, map.len());
        for entry in list {
            let [_, _, mac @ ..] = entry.key.mac();
            let found = map.get(&(entry.key.vlan(), u32::from_be_bytes(mac)));
            prop_assert_eq!(found, Some(&(entry.port, now_s - u64::from(entry.silent_s))));
        }
        let counters = stations.counters();
        prop_assert_eq!((counters.evicted, counters.refused), (0, 0));
    }

    /// With room for few, it stays within its bound and never tells a wrong port.
    #[test]
    fn stays_within_its_bound(max in 0usize..20, steps in prop::collection::vec(step(), 1..200)) {
        let mut stations = stations(max, 4);
        let mut last: HashMap<MacVlan, u16> = HashMap::new();
        for step in steps {
            if let Step::Learn(vlan, n, port) = step {
                stations.learn(Sighting { key: key(n, vlan), ..unknown(n, port) });
                last.insert(key(n, vlan), port);
            }
            let (list, count) = stations.list(max, |_| true);
            prop_assert!(count <= max && count == stations.len());
            for entry in list {
                let stands = last.get(&entry.key) == Some(&entry.port);
                prop_assert!(stands, "{entry:?}");
            }
        }
    }
}
