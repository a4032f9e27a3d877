//! Packets made to have a mask each (tuple space explosion): masks stay few, verdicts right.

use arrayvec::ArrayVec;
use overbank_switch::datapath::{CacheConfig, Config, Datapath, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::{BURST, MASKS_BOUND, MegaflowCache, NO_ENTRY};
use overbank_switch::oracle::Oracle;
use overbank_switch::parse::parse_rules;
use overbank_switch::tables::Tables;
use overbank_wire::{Field, FlowKey};

/// Four fields, a rule each, and nothing else.
const RULES: &str = "priority=9,tcp,nw_src=10.0.0.1,actions=output:2\n\
                     priority=9,tcp,nw_dst=10.0.0.2,actions=output:3\n\
                     priority=9,tcp,tp_src=1000,actions=output:4\n\
                     priority=9,tcp,tp_dst=80,actions=output:5\n\
                     priority=0,actions=drop\n";

/// A packet that differs from each of the four values first in one bit, counted from the highest;
/// past the last bit, it has the value itself. The bits below are those of `noise`.
fn frame([src, dst]: [u32; 2], [from, to]: [u32; 2], noise: u32) -> Vec<u8> {
    let differs = |highest: u32, bit: u32| {
        let first = highest.checked_shr(bit).unwrap_or(0);
        first | noise & first.saturating_sub(1)
    };
    let address = |value: u32, bit: u32| (value ^ differs(1 << 31, bit)).to_be_bytes();
    let port = |value: u16, bit: u32| value ^ differs(1 << 15, bit) as u16;
    let mut bytes = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4(address(0x0a00_0001, src), address(0x0a00_0002, dst), 64)
        .tcp(port(1000, from), port(80, to), 1, 1024)
        .write(&mut bytes, &[])
        .expect("writing to a vector works");
    bytes
}

/// Ports that packets left by.
#[derive(Default)]
struct Left(Vec<u32>);

impl Sink for Left {
    fn output(&mut self, _index: usize, port: u32, _frame: &[u8], _edited: bool) {
        self.0.push(port);
    }

    fn drop(&mut self, _index: usize, _reason: DropReason) {}
}

/// Returns packets with many combinations of masks.
fn crafted(noise: u32) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (src, dst) in (0..33).step_by(2).flat_map(|s| (0..33).step_by(3).map(move |d| (s, d))) {
        for (from, to) in (0..17).step_by(2).flat_map(|f| (0..17).step_by(4).map(move |t| (f, t))) {
            frames.push(frame([src, dst], [from, to], noise));
        }
    }
    frames
}

#[test]
fn crafted_packets_make_few_masks_and_get_what_the_rules_say() {
    let rules = parse_rules(RULES).expect("right");
    let oracle = Oracle::new(rules.clone());
    let ports: Vec<u32> = (1..=5).collect();
    for entries in [None, Some(1 << 10)] {
        let design = "cuckoo-2-16".parse().expect("a design");
        let config = Config {
            cache: entries.map(|entries| CacheConfig { design, entries, isa: None }),
            megaflows: 1 << 16,
            ports: ports.iter().map(|&port| port.into()).collect(),
            seed: 1,
        };
        let tables = Tables::new(rules.clone()).expect("few");
        let mut datapath = Datapath::new(&config, tables).expect("sizes");
        // The first packet of a flow installs nothing beyond the cap, the second does. The last
        // round sends other packets with the same masks.
        for (round, noise) in [0, 0, 0, 0, 0x5a5a_5a5a].into_iter().enumerate() {
            let (frames, before) = (crafted(noise), datapath.counters().classifier_lookups);
            // Short and full bursts: later packets may meet what earlier ones installed.
            for burst in frames.chunks([1, 2, 32, 32, 32][round]) {
                let burst: Vec<&[u8]> = burst.iter().map(|bytes| &bytes[..]).collect();
                let mut left = Left::default();
                datapath.process(&burst, 1, 0, &mut left);
                let outputs = |&bytes: &&[u8]| oracle.process(bytes, 1, &ports).outputs;
                let expected: Vec<u32> =
                    burst.iter().flat_map(outputs).map(|(port, _)| port).collect();
                assert_eq!(left.0, expected, "round {round}");
            }
            let masks = datapath.megaflows().masks();
            assert!((100..=MASKS_BOUND).contains(&masks), "{masks} masks");
            let installs = datapath.megaflows().counters().installs as usize;
            let translated = (datapath.counters().classifier_lookups - before) as usize;
            match round {
                0 => assert!(installs < frames.len() / 4, "{installs} of packets seen once"),
                1 => assert!(installs > frames.len() / 2, "{installs} of packets seen twice"),
                // Lookups search again the masks that now repay it.
                2 => {}
                3 => assert!(translated < frames.len() / 4, "{translated} of known packets"),
                _ => assert!(translated > frames.len() / 2, "{translated} of unknown packets"),
            }
        }
    }
}

fn key(port: u32) -> FlowKey {
    FlowKey { in_port: port, ..FlowKey::default() }
}

/// Returns a separate mask for each port.
fn mask(port: u32) -> FlowKey {
    FlowKey { nw_src: 1 << port, ..Field::InPort.key_mask() }
}

/// Packets that no megaflow matches make a lookup search few masks, until the masks repay it.
#[test]
fn a_lookup_searches_the_masks_that_repay_it() {
    let mut cache = MegaflowCache::new(1 << 10, 1).expect("a valid size");
    for port in 0..32 {
        cache.install(&key(port), &mask(port), port, 0).expect("room");
    }
    let mut lookups = |ports: std::ops::Range<u32>, missed: fn(&mut MegaflowCache, u32)| {
        cache.reset_counters();
        for port in ports.cycle().take(5 * 4096) {
            let mut pending = ArrayVec::from_iter([0]);
            let mut found = [NO_ENTRY; BURST];
            cache.lookup_batch(&[key(port)], &mut pending, &mut found);
            assert!(!pending.is_empty() || cache.verify(found[0], &key(port)));
            if !pending.is_empty() {
                cache.note_miss(64);
                missed(&mut cache, port);
            }
        }
        *cache.counters()
    };
    let misses = lookups(100..200, |_, _| {});
    assert!(misses.subtables_searched < misses.lookups * 10, "{misses:?}");
    // The classifier's answers meet the megaflows, which counts as if lookups had found them.
    let hits = lookups(0..32, |cache, port| {
        cache.install(&key(port), &mask(port), port, 0).expect("room");
    });
    assert!(hits.hits > hits.lookups / 2, "{hits:?}");
    assert_eq!(hits.installs, 0);
}

/// The mask for a flow that was refused before.
fn bounded(cache: &mut MegaflowCache, mask: &FlowKey) -> Option<FlowKey> {
    (0..2).map(|_| cache.bounded(mask, 1 << 40, 0, |_| {})).last()?
}

#[test]
fn a_wider_mask_has_all_bits_of_the_one_asked_for() {
    let mut cache = MegaflowCache::new(1 << 14, 1).expect("a valid size");
    let key = FlowKey { in_port: 7, nw_src: 0x1234_5678, tp_dst: 80, ..FlowKey::default() };
    let mut wanted = Vec::new();
    for i in 1..5000u32 {
        let mut mask = Field::InPort.key_mask();
        Field::NwSrc.set(&mut mask, u128::from(i.wrapping_mul(0x9e37_79b9)));
        if i % 3 == 0 {
            Field::Ipv6Dst.set(&mut mask, u128::from(i) << (i % 96));
        }
        if i % 5 == 0 {
            Field::ArpTha.set(&mut mask, u128::from(i));
        }
        // More sets of words than whole masks are allowed.
        let words = mask.words_mut().iter_mut().enumerate();
        words.filter(|(at, _)| i >> (at % 13) & 1 == 1).for_each(|(at, word)| *word |= 1 << at);
        wanted.push(mask);
    }
    for (mask, flow) in wanted.iter().zip(0..) {
        let all_in_use = |_| panic!("all are in use now");
        let first = cache.bounded(mask, flow, 0, all_in_use);
        let wider = cache.bounded(mask, flow, 0, all_in_use).expect("the second packet");
        assert!(first.is_none() || first == Some(*mask), "the first packet");
        assert!(mask.and_not(&wider).is_zero());
        assert_eq!(bounded(&mut cache, &wider), Some(wider), "one that is there, or fits, stays");
        let (id, _) = cache.install(&key, &wider, 1, 0).expect("room");
        assert!(cache.verify(id, &key));
        assert!(cache.masks() <= MASKS_BOUND);
    }
    assert_eq!(cache.masks(), MASKS_BOUND, "the last one has every bit");
    // The first ones were taken as they are, and still are.
    assert_eq!(bounded(&mut cache, &wanted[0]), Some(wanted[0]));
    assert_ne!(bounded(&mut cache, &wanted[4000]), Some(wanted[4000]));
    // Later, the longest unused makes room; not the first ones, which tier 1 has used since.
    for mask in &wanted[..100] {
        let mut pending = ArrayVec::from_iter([0]);
        let mut found = [NO_ENTRY; BURST];
        cache.lookup_batch(&[key], &mut pending, &mut found);
        let (id, _) = cache.install(&key, mask, 1, 5).expect("room");
        cache.use_entry(id, 9);
    }
    let (masks, mut gone) = (cache.masks(), 0);
    // It looks at a few at a time, going round, and at most once in 16 packets.
    let wanted_later = (0..320).take_while(|_| {
        cache.bounded(&wanted[4000], 1 << 40, 9, |v| gone += v) != Some(wanted[4000])
    });
    assert!((15..319).contains(&wanted_later.count()));
    assert_eq!((gone, cache.masks()), (1, masks - 1));
    assert_eq!(bounded(&mut cache, &wanted[0]), Some(wanted[0]));
}
