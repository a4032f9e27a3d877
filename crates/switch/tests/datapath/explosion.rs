//! Packets made to have a mask each (tuple space explosion): masks stay few, verdicts right.

use overbank_switch::datapath::{Config, Datapath, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::{MASKS_BOUND, MegaflowCache};
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

/// A packet that differs from each of the four values in one bit, counted from the highest.
fn frame([src, dst]: [u32; 2], [from, to]: [u16; 2]) -> Vec<u8> {
    let address = |value: u32, bit: u32| (value ^ 0x8000_0000 >> bit).to_be_bytes();
    let mut bytes = Vec::new();
    etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4(address(0x0a00_0001, src), address(0x0a00_0002, dst), 64)
        .tcp(1000 ^ 0x8000 >> from, 80 ^ 0x8000 >> to, 1, 1024)
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

#[test]
fn crafted_packets_make_few_masks_and_get_what_the_rules_say() {
    let rules = parse_rules(RULES).expect("right");
    let oracle = Oracle::new(rules.clone());
    let ports: Vec<u32> = (1..=5).collect();
    let config = Config {
        cache: None,
        megaflows: 1 << 16,
        ports: ports.iter().map(|&port| port.into()).collect(),
        seed: 1,
    };
    let mut datapath = Datapath::new(&config, Tables::new(rules).expect("few")).expect("sizes");
    let mut packets = 0;
    // Twice, so that each meets the megaflow that it made. 33 and 17: the value itself.
    for round in 0..2 {
        for (src, dst) in (0..33).step_by(2).flat_map(|s| (0..33).step_by(3).map(move |d| (s, d))) {
            for (from, to) in
                (0..17).step_by(2).flat_map(|f| (0..17).step_by(4).map(move |t| (f, t)))
            {
                let bytes = frame([src.min(31), dst.min(31)], [from.min(15), to.min(15)]);
                let mut left = Left::default();
                datapath.process(&[&bytes], 1, 0, &mut left);
                let expected = oracle.process(&bytes, 1, &ports);
                let expected: Vec<u32> = expected.outputs.iter().map(|(port, _)| *port).collect();
                assert_eq!(left.0, expected, "round {round}: {src} {dst} {from} {to}");
                packets += 1;
            }
        }
        let masks = datapath.megaflows().masks();
        assert!((100..=MASKS_BOUND).contains(&masks), "{masks} masks of {packets} packets");
    }
    let asked = datapath.counters().classifier_lookups;
    assert!(asked <= packets / 2, "{asked} of {packets} packets were translated");
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
    for mask in &wanted {
        let wider = cache.bounded(mask, 0, |_| panic!("all are in use now"));
        assert!(mask.and_not(&wider).is_zero());
        assert_eq!(cache.bounded(&wider, 0, |_| {}), wider, "one that is there, or fits, stays");
        let (id, _) = cache.install(&key, &wider, 1, 0).expect("room");
        assert!(cache.verify(id, &key));
        assert!(cache.masks() <= MASKS_BOUND);
    }
    assert_eq!(cache.masks(), MASKS_BOUND, "the last one has every bit");
    // The first ones were taken as they are, and still are.
    assert_eq!(cache.bounded(&wanted[0], 0, |_| {}), wanted[0]);
    assert_ne!(cache.bounded(&wanted[4000], 0, |_| {}), wanted[4000]);
    // Later, the longest unused makes room; not the first ones, which tier 1 has used since.
    for mask in &wanted[..100] {
        let mut pending = arrayvec::ArrayVec::from_iter([0]);
        let mut found = [overbank_switch::megaflow::NO_ENTRY; overbank_switch::megaflow::BURST];
        cache.lookup_batch(&[key], &mut pending, &mut found);
        let (id, _) = cache.install(&key, mask, 1, 5).expect("room");
        cache.use_entry(id, 9);
    }
    let (masks, mut gone) = (cache.masks(), 0);
    // It looks at a few at a time, going round.
    assert!((0..20).any(|_| cache.bounded(&wanted[4000], 9, |v| gone += v) == wanted[4000]));
    assert_eq!((gone, cache.masks()), (1, masks - 1));
    assert_eq!(cache.bounded(&wanted[0], 9, |_| {}), wanted[0]);
}
