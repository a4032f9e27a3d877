//! Tables that step aside, and do not.

use std::string::ToString;

use crate::lookaside::{Config, Copies, Costs, Meter, Versioned, Way};
use crate::random::Pcg32;

type Table = Copies<u64, u64>;

const BUCKETS: usize = 320;
const ENTRIES: usize = 3 * BUCKETS;
/// Costs of a tree, and of a hash table.
const TREE: Costs = Costs { hit: 40.0, miss: 60.0, index: 400.0 };
const HASH: Costs = Costs { hit: 60.0, miss: 90.0, index: 40.0 };

/// Reads through the table 200,000 times, keys below `bound`. Returns the hits, and the tickets
/// that are not void.
fn read(table: &Table, bound: u32) -> (u64, u64) {
    let (mut pcg, mut hits, mut tickets) = (Pcg32::new(5, 5), 0, 0);
    for _ in 0..200_000 {
        let key = u64::from(pcg.below(bound));
        match table.get(key).answer() {
            Ok(value) => {
                assert_eq!(value, Some(key));
                hits += 1;
            }
            Err(ticket) => {
                tickets += u64::from(!ticket.is_void());
                table.fill(ticket, Some(key));
            }
        }
    }
    (hits, tickets)
}

fn table(config: Config) -> Table {
    Table::new(&config).expect("small")
}

#[test]
fn a_table_whose_keys_do_not_return_steps_aside_until_they_do() {
    let table = table(Config::entries(ENTRIES).gate(Some(TREE)));
    assert_eq!(table.gate().report().to_string(), "open: too few lookups to decide yet");
    read(&table, 1 << 30);
    let report = table.gate().report();
    assert!(!report.open && report.decisions > 0, "{report}");
    let (hits, tickets) = read(&table, 1 << 30);
    let sampled = 200_000 / 32;
    assert!(hits < 100 && (sampled * 8 / 10..sampled * 12 / 10).contains(&tickets), "{tickets}");
    // A window of the sample is 65,536 lookups.
    read(&table, ENTRIES as u32 / 2);
    assert!(table.gate().is_open(), "{}", table.gate().report());
    assert!(read(&table, ENTRIES as u32 / 2).0 > 180_000);
    let text = table.gate().report().to_string();
    assert!(text.starts_with("open: ") && text.ends_with("ns a lookup saved"), "{text}");
}

#[test]
fn a_table_has_time_to_fill() {
    let table = table(Config::entries(120_000).gate(Some(HASH)));
    read(&table, 1 << 30);
    let report = table.gate().report();
    assert!(report.open && report.decisions > 0 && report.hit_rate < Some(0.1), "{report}");
    assert!(report.to_string().ends_with("ns a lookup lost while it fills"), "{report}");
    read(&table, 1 << 30);
    assert!(!table.gate().is_open());
}

#[test]
fn a_table_that_always_hits_steps_aside_before_a_faster_index() {
    let table = table(Config::entries(ENTRIES).gate(Some(HASH)));
    let first = read(&table, ENTRIES as u32 / 2).0;
    assert!(!table.gate().is_open() && first < 110_000);
    // The sampled buckets go on working.
    let second = read(&table, ENTRIES as u32 / 2).0;
    assert!((1000..20_000).contains(&second), "{second}");
    let text = table.gate().report().to_string();
    assert!(text.starts_with("closed: ") && text.ends_with("ns a lookup lost"), "{text}");
    // What lies in the others must not go stale meanwhile, and is there again.
    let written = (0..ENTRIES as u64 / 2).find(|key| !key.is_multiple_of(2)).expect("some");
    table.write(written).keep(written);
    table.gate().set_costs(TREE);
    read(&table, ENTRIES as u32 / 2);
    assert!(table.gate().is_open());
}

#[test]
fn without_a_gate_or_without_costs_a_table_always_works() {
    let without = table(Config::entries(ENTRIES));
    without.gate().set_costs(HASH);
    let unknown = table(Config::entries(ENTRIES).gate(None));
    for (table, why) in
        [(&without, "open: it has no gate"), (&unknown, "open: costs are not measured yet")]
    {
        let (_, tickets) = read(table, 1 << 30);
        assert_eq!((table.gate().is_open(), tickets), (true, 200_000));
        assert_eq!(table.gate().report().to_string(), why);
    }
}

/// Lookups of `key` take `costs` on a clock that the test moves, but each of `stalls` of 5000 a
/// millisecond. Returns how many went around, how many of the last 2^18 did, and how often the gate
/// changed its mind.
fn metered(
    table: &Table,
    costs: Costs,
    stalls: u32,
    key: impl Fn(&mut Pcg32) -> u64,
) -> (u32, u32, u32) {
    const LOOKUPS: u32 = 1_600_000;
    let (mut meter, mut now, mut pcg) = (Meter::new(), 0.0, Pcg32::new(6, 6));
    let (mut around, mut late, mut calls, mut open, mut changes) = (0, 0, 0, true, 0);
    for lookup in 0..LOOKUPS {
        let key = key(&mut pcg);
        if pcg.below(5000) < stalls {
            now += 1e6;
        }
        let way = meter.way(table.gate(), 1, || {
            calls += 1;
            now as u64
        });
        if way == Way::Around {
            around += 1;
            late += u32::from(lookup >= LOOKUPS - (1 << 18));
            now += f64::from(costs.index);
            continue;
        }
        match table.get(key).answer() {
            Ok(_) => {
                meter.hits(1);
                now += f64::from(costs.hit);
            }
            Err(ticket) => {
                let miss = if ticket.is_void() { 0.0 } else { costs.miss };
                now += f64::from(costs.index + miss);
                table.fill(ticket, Some(key));
            }
        }
        changes += u32::from(table.gate().is_open() != open);
        open = table.gate().is_open();
    }
    assert!(calls < 4000);
    (around, late, changes)
}

#[test]
fn costs_follow_from_windows_through_the_table_and_around_it() {
    // Four of five from few keys.
    let key = |pcg: &mut Pcg32| {
        let bound = if pcg.below(5) == 0 { 1 << 30 } else { 500 };
        u64::from(pcg.below(bound))
    };
    for (costs, pays) in [(TREE, true), (HASH, false)] {
        for stalls in [0, 1] {
            let table = table(Config::entries(ENTRIES).gate(None));
            let (around, late, _) = metered(&table, costs, stalls, key);
            assert_eq!((around == 512 * 512, table.gate().is_open()), (pays, pays), "{around}");
            assert_eq!(late, if pays { 0 } else { 15 << 14 });
            let seen = table.gate().report().costs.expect("measured");
            assert!((seen.index / costs.index - 1.0).abs() < 0.1, "{seen:?}");
        }
    }
}

/// Half of the lookups are of one key whose bucket is in the sample: it would have 97 % hits.
#[test]
fn a_sample_that_has_the_hot_key_does_not_open_the_gate_again() {
    let table = table(Config::entries(ENTRIES).gate(None));
    let bucket = |key| table.table.place(table.hash(key)).bucket;
    let hot = (0..).find(|&key| bucket(key) == 0).expect("one of 320");
    let key = |pcg: &mut Pcg32| if pcg.below(2) == 0 { hot } else { u64::from(pcg.draw()) };
    let costs = Costs { hit: 40.0, miss: 90.0, index: 60.0 };
    let (.., changes) = metered(&table, costs, 0, key);
    let report = table.gate().report();
    assert!(changes <= 5 && !report.open, "{changes}, {report}");
}

/// Once the hot key is another, the sample has no luck any more: that must be found out.
#[test]
fn a_closed_gate_forgets_what_luck_its_sample_had() {
    let table = table(Config::entries(ENTRIES).gate(None));
    let hot = (0..).find(|&key| table.table.place(table.hash(key)).bucket == 0).expect("one");
    let key = |pcg: &mut Pcg32| if pcg.below(2) == 0 { hot } else { u64::from(pcg.draw()) };
    metered(&table, Costs { hit: 40.0, miss: 90.0, index: 60.0 }, 0, key);
    assert!(!table.gate().is_open());
    table.gate().set_costs(TREE);
    let mut pcg = Pcg32::new(7, 7);
    (0..20_000_000).find(|_| {
        // Three of ten are never asked for again.
        let key = u64::from(if pcg.below(10) < 3 { pcg.draw() } else { pcg.below(400) });
        table.get_or(key, |&key| Some(key));
        table.gate().is_open()
    });
    assert!(table.gate().is_open(), "{}", table.gate().report());
}

#[test]
fn more_hits_than_lookups_are_as_many() {
    let table = table(Config::entries(ENTRIES).gate(None));
    let (mut meter, mut now) = (Meter::new(), 0);
    for _ in 0..1_000_000 {
        let way = meter.way(table.gate(), 1, || now);
        now += if way == Way::Around { 400 } else { 50 };
        meter.hits(u32::MAX);
    }
    let Costs { hit, index, .. } = table.gate().report().costs.expect("measured");
    assert!((hit / 50.0 - 1.0).abs() < 0.1 && (index / 400.0 - 1.0).abs() < 0.1, "{hit} {index}");
}

/// A machine that is slow for a while makes the table seem dear: that must pass.
#[test]
fn a_gate_that_closed_by_mistake_opens_again() {
    let table = table(Config::entries(ENTRIES).gate(None));
    let (mut meter, mut now, mut pcg) = (Meter::new(), 0.0, Pcg32::new(6, 6));
    let mut lookup = |slower: f64| {
        let bound = if pcg.below(5) == 0 { 1 << 30 } else { 500 };
        let key = u64::from(pcg.below(bound));
        let way = meter.way(table.gate(), 1, || now as u64);
        let answered = way == Way::Through && {
            let found = table.get(key).answer();
            let hit = found.is_ok();
            meter.hits(u32::from(hit));
            found.into_iter().for_each(|value| assert_eq!(value, Some(key)));
            if !hit && let Err(ticket) = table.get(key).answer() {
                table.fill(ticket, Some(key));
            }
            hit
        };
        let index = f64::from(TREE.index + if way == Way::Through { TREE.miss } else { 0.0 });
        now += slower * if answered { f64::from(TREE.hit) } else { index };
    };
    (0..1_000_000).for_each(|_| lookup(1.0));
    assert!(table.gate().is_open());
    (0..200_000).for_each(|_| lookup(20.0));
    assert!(!table.gate().is_open(), "{}", table.gate().report());
    (0..60_000_000).find(|_| {
        lookup(1.0);
        table.gate().is_open()
    });
    assert!(table.gate().is_open(), "{}", table.gate().report());
}

#[test]
fn snapshots_have_a_gate_too() {
    let config = Config::entries(ENTRIES).gate(Some(TREE));
    let table = Versioned::<u64, u64>::new(&config).expect("small");
    let at = table.at(0);
    for key in 0..200_000 {
        assert_eq!(at.get_or(key, |&key| Some(key)), Some(key));
    }
    assert!(!table.gate().is_open() && table.counters().hits == 0);
    assert!(at.get(7).answer().is_err());
}
