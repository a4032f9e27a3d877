//! The allocator itself counts: no packet of a warm flow allocates, and a change of rules copies
//! little.

use arrayvec::ArrayVec;
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::{BURST, MegaflowCache, NO_ENTRY};
use overbank_switch::parse::parse_rules;
use overbank_switch::ports::SwitchPort;
use overbank_switch::rule::{Action, Match, Rule};
use overbank_switch::tables::{Filter, Tables};
use overbank_testing::allocations::{Counting, allocations, bytes};
use overbank_wire::{Field, FlowKey};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Count {
    outputs: u64,
    edited: u64,
    drops: u64,
}

impl Sink for Count {
    fn output(&mut self, _index: usize, _port: u32, _frame: &[u8], edited: bool) {
        self.outputs += 1;
        self.edited += u64::from(edited);
    }

    fn drop(&mut self, _index: usize, _reason: DropReason) {
        self.drops += 1;
    }
}

const RULES: &str = "
table=0,priority=10,udp,tp_dst=1,actions=output:2
table=0,priority=10,udp,tp_dst=2,actions=mod_nw_dst:10.9.9.9,mod_tp_dst:99,dec_ttl,output:2
table=0,priority=10,udp,tp_dst=3,actions=push_vlan:0x8100,mod_vlan_vid:7,output:2,output:3
table=0,priority=10,udp,tp_dst=4,actions=drop
table=0,priority=10,udp,tp_dst=5,actions=flood
table=0,priority=10,udp,tp_dst=6,actions=resubmit(,1),output:3
table=1,actions=mod_dl_dst:02:00:00:00:00:99,output:2
";

/// Returns frames of `flows` UDP flows that use all rules in turn, with one flow in seven
/// unmatched.
fn frames(flows: u16) -> Vec<Vec<u8>> {
    let frame = |flow: u16| {
        let mut bytes = Vec::new();
        let [high, low] = flow.to_be_bytes();
        etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4([10, 0, high, low], [10, 1, 0, 1], 64)
            .udp(1000, 1 + flow % 7)
            .write(&mut bytes, &[0; 18])
            .expect("writing to a vector works");
        bytes
    };
    (0..flows).map(frame).collect()
}

#[test]
fn a_warm_packet_allocates_nothing_in_any_tier() {
    let rules = parse_rules(RULES).expect("the rules are right");
    // A cache of 64 entries for 700 flows: hits, misses and evictions all the time.
    let small = ["none", "set-4", "cuckoo-2-4", "blp-2-4+pblru", "blp-2-16", "set-4+dc-bubble"];
    // One of 2 MiB, with which a list of frames goes two bursts deep.
    let large = [("blp-2-16", 1 << 19)];
    for (design, entries) in small.map(|design| (design, 64)).into_iter().chain(large) {
        let cache = (design != "none").then(|| CacheConfig {
            design: design.parse().expect("a known design"),
            entries,
            isa: None,
        });
        let ports = [1, 2, 3].map(SwitchPort::from).to_vec();
        let config = Config { cache, megaflows: 1024, ports, seed: 1 };
        let tables = Tables::new(rules.clone()).expect("few rules");
        let mut datapath = Datapath::new(&config, tables).expect("sizes are right");
        let owned = frames(700);
        let frames: Vec<&[u8]> = owned.iter().map(|bytes| &bytes[..]).collect();
        let mut sink = Count::default();
        for _ in 0..3 {
            datapath.process(&frames, 1, 0, &mut sink);
        }
        let mut sink = Count::default();
        let before = allocations();
        for _ in 0..5 {
            datapath.process(&frames, 1, 0, &mut sink);
            datapath.flush_stats(0);
        }
        let allocations = allocations() - before;
        // Per seven flows: outputs 1, 1, 2, 0, 2, 2, 0 and two drops.
        assert_eq!(
            (sink.outputs, sink.edited, sink.drops),
            (8 * 500, 5 * 500, 2 * 500),
            "{design}"
        );
        assert_eq!(allocations, 0, "{design}: {} packets", 5 * frames.len());
        let counters = datapath.counters();
        let tier_2 = counters.megaflow.lookups;
        assert!(tier_2 > 1000 || entries > 64, "{design}: tier 2 was at work");
    }
}

/// Returns rules of one shape, the worst case: all in one subtable, with all stages and two tries,
/// each with a different priority.
fn many_rules(count: u32) -> Tables {
    let rule = |i: u32| {
        let address = u128::from(i.wrapping_mul(0x9e37_79b1));
        let matching = Match::default()
            .with(Field::DlType, 0x0800, 0xffff)
            .with(Field::DlDst, u128::from(i), 0xffff_ffff_ffff)
            .with(Field::NwDst, address, 0xffff_ffff)
            .with(Field::NwProto, 17, 0xff)
            .with(Field::TpDst, u128::from(i % 60_000), 0xffff);
        let actions = vec![Action::Output(i % 7)];
        Rule { priority: (i % 50_000) as u16, matching, actions, ..Rule::default() }
    };
    Tables::new((0..count).map(rule).collect()).expect("few rules")
}

/// Returns the bytes allocated while `work` ran.
fn bytes_of<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = bytes();
    let out = work();
    (bytes() - before, out)
}

#[test]
fn a_snapshot_and_a_change_after_it_copy_little_of_many_rules() {
    const RULES: u32 = 100_000;
    let (whole, mut tables) = bytes_of(|| many_rules(RULES));
    assert!(whole > 50_000_000, "{whole} bytes");
    let rules: Vec<Rule> = tables.rules().into_iter().cloned().collect();

    let (clone, snapshot) = bytes_of(|| tables.clone());
    assert!(clone < 1000, "a snapshot: {clone} bytes");
    let new = Rule {
        matching: rules[7].matching.with(Field::DlDst, 1 << 40, 0xffff_ffff_ffff),
        ..rules[7].clone()
    };
    let (add, _) = bytes_of(|| tables.add(new.clone(), 0).expect("room"));
    assert!(add < 1_000_000, "the first change after it: {add} bytes");
    let (again, _) = bytes_of(|| tables.remove(0, new.priority, &new.matching).expect("there"));
    assert!(again < 20_000, "the next one: {again} bytes");
    // The snapshot is what it was.
    assert_eq!(snapshot.len(), RULES as usize);
    assert!(snapshot.get(0, new.priority, &new.matching).is_none());

    let (_, snapshot) = bytes_of(|| tables.clone());
    let filter = Filter { table: Some(0), matching: rules[9].matching, ..Filter::default() };
    let (deleted, gone) = bytes_of(|| tables.delete(&filter));
    assert_eq!(gone.len(), 1);
    assert!(deleted < 1_000_000, "named by its whole match: {deleted} bytes");
    assert_eq!((snapshot.len(), tables.len()), (RULES as usize, RULES as usize - 1));
    let (all, gone) = bytes_of(|| tables.delete(&Filter::default()));
    assert_eq!((gone.len(), tables.len(), snapshot.len()), (99_999, 0, 100_000));
    assert!(all < 5_000_000, "the list of what went: {all} bytes");
}

/// Prints what changes cost: `cargo test --release -p overbank-switch --test datapath -- \
/// --ignored --nocapture`.
#[test]
#[ignore = "prints times"]
fn a_change_copies_little() {
    for rules in [1_000, 10_000, 100_000, 900_000] {
        let mut tables = many_rules(rules);
        let names: Vec<Rule> = tables.rules().into_iter().take(200).cloned().collect();
        let mut us = [const { Vec::new() }; 4];
        let mut kept = Vec::new();
        for (i, rule) in names.into_iter().enumerate() {
            let mut time = |at: usize, work: &mut dyn FnMut()| {
                let start = Instant::now();
                work();
                us[at].push(start.elapsed().as_nanos() as f64 / 1000.0);
            };
            time(0, &mut || kept.push(tables.clone()));
            let matching = rule.matching.with(Field::DlDst, (i as u128 + 1) << 32, u128::MAX >> 80);
            let new = Rule { matching, ..rule.clone() };
            time(1, &mut || drop(tables.add(new.clone(), 0)));
            time(2, &mut || drop(tables.remove(0, new.priority, &new.matching)));
            time(3, &mut || kept.clear());
        }
        let median = us.each_mut().map(|us| {
            us.sort_by(f64::total_cmp);
            (us[us.len() / 2], us[us.len() - 1])
        });
        println!(
            "{rules} rules, µs (median, most): snapshot {:?}, first change {:?}, next {:?}, \
             snapshot freed {:?}",
            median[0], median[1], median[2], median[3]
        );
    }
}

/// A stable sort of this many subtables would allocate.
#[test]
fn sorting_many_subtables_allocates_nothing() {
    const MASKS: u32 = 3000;
    let mut cache = MegaflowCache::new(MASKS as usize, 1).expect("a valid size");
    let key = |i: u32| FlowKey { in_port: i, ..FlowKey::default() };
    for i in 0..MASKS {
        let mut mask = FlowKey { in_port: u32::MAX, ..FlowKey::default() };
        Field::NwSrc.set(&mut mask, u128::from(i));
        cache.install(&key(i), &mask, i, 0).expect("room");
    }
    assert_eq!(cache.masks(), MASKS as usize);
    let mut look_up = |i: u32| {
        let mut pending: ArrayVec<u8, BURST> = ArrayVec::from_iter([0]);
        let mut found = [NO_ENTRY; BURST];
        cache.lookup_batch(&[key(i)], &mut pending, &mut found);
        assert!(pending.is_empty());
        cache.counters().subtables_searched
    };
    let before = allocations();
    // Ever more hits of the last ones: each sort has something to do.
    for n in 0..20_000 {
        look_up(if n % 16 == 0 { MASKS - 1 - n / 16 % 64 } else { MASKS - 1 });
    }
    let searched = look_up(MASKS - 1);
    assert_eq!(allocations() - before, 0);
    assert_eq!(look_up(MASKS - 1) - searched, 1, "it was sorted to the front");
}

#[test]
fn the_counter_counts() {
    let before = allocations();
    let boxed = std::hint::black_box(Box::new(7u64));
    assert!(allocations() > before, "{boxed}");
}
