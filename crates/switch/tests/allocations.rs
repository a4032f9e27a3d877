//! No packet of a warm flow allocates: counted by the allocator itself.

#![allow(unsafe_code)] // A global allocator is an unsafe trait; this one counts and passes on.

use arrayvec::ArrayVec;
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Frame, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::{BURST, MegaflowCache, NO_ENTRY};
use overbank_switch::parse::parse_rules;
use overbank_switch::ports::SwitchPort;
use overbank_switch::tables::Tables;
use overbank_wire::{Field, FlowKey};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator with the arguments that came in.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

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

/// Frames of `flows` UDP flows that take all the rules in turn, one without a rule among them.
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
    for design in ["none", "set-4", "cuckoo-2-4", "blp-2-4+pblru", "blp-2-16", "set-4+dc-bubble"] {
        // A cache of 64 entries for 700 flows: hits, misses and evictions all the time.
        let cache = (design != "none").then(|| CacheConfig {
            design: design.parse().expect("a known design"),
            entries: 64,
            isa: None,
        });
        let ports = [1, 2, 3].map(SwitchPort::from).to_vec();
        let config = Config { cache, megaflows: 1024, ports, seed: 1 };
        let tables = Tables::new(rules.clone()).expect("few rules");
        let mut datapath = Datapath::new(&config, tables).expect("sizes are right");
        let owned = frames(700);
        let frames: Vec<Frame<'_>> =
            owned.iter().map(|bytes| Frame { bytes, in_port: 1 }).collect();
        let mut sink = Count::default();
        for _ in 0..3 {
            datapath.process(&frames, 0, &mut sink);
        }
        let mut sink = Count::default();
        let before = ALLOCATIONS.with(Cell::get);
        for _ in 0..5 {
            datapath.process(&frames, 0, &mut sink);
        }
        let allocations = ALLOCATIONS.with(Cell::get) - before;
        // Per seven flows: outputs 1, 1, 2, 0, 2, 2, 0 and two drops.
        assert_eq!(
            (sink.outputs, sink.edited, sink.drops),
            (8 * 500, 5 * 500, 2 * 500),
            "{design}"
        );
        assert_eq!(allocations, 0, "{design}: {} packets", 5 * frames.len());
        let counters = datapath.counters();
        assert!(counters.megaflow.lookups > 1000, "{design}: tier 2 was at work");
    }
}

/// A sort that keeps the order of equals would take memory from the heap for so many.
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
    let before = ALLOCATIONS.with(Cell::get);
    // Ever more hits of the last ones: each sort has something to do.
    for n in 0..20_000 {
        look_up(if n % 16 == 0 { MASKS - 1 - n / 16 % 64 } else { MASKS - 1 });
    }
    let searched = look_up(MASKS - 1);
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert_eq!(look_up(MASKS - 1) - searched, 1, "it was sorted to the front");
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.with(Cell::get);
    let boxed = std::hint::black_box(Box::new(7u64));
    assert!(ALLOCATIONS.with(Cell::get) > before, "{boxed}");
}
