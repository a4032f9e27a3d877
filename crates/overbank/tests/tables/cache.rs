//! The flow cache by example: collisions, spills, limits, errors, names, counters.

use std::process::Command;

use overbank::cache::*;
use overbank::hash::Hash64;
use overbank::isa::Isa;
use overbank::memory::HugePages;
use overbank::prefetch::{FAR_L2S, Prefetch, l2_bytes};
use overbank::random::Pcg32;

/// Fingerprint and value in a slot.
fn peek(cache: &dyn DynCache, bucket: usize, slot: usize) -> Option<(u16, u32)> {
    cache.peek(bucket, slot).map(|(fingerprint, value)| (fingerprint.get(), value))
}

/// A probe's matching slots, by key.
fn matches(probes: &Probes) -> Vec<Vec<Slot>> {
    (0..probes.len()).map(|i| probes.slots(i).collect()).collect()
}

/// A hash with its parts chosen: the home bucket of `buckets`, the fingerprint, and the bits
/// between, which only the second choice of cuckoo looks at.
fn hash(home: usize, buckets: usize, fingerprint: u16, between: u16) -> Hash64 {
    let high = ((home as u64) << 32).div_ceil(buckets as u64);
    Hash64::new(high << 32 | u64::from(between) << 16 | u64::from(fingerprint))
}

#[test]
fn a_collision_in_one_bucket_gives_the_right_key_or_none() {
    for isa in Isa::available() {
        let config = Config::buckets(3).isa(Some(isa));
        let mut cache = FlowCache::<SetAssoc<8>>::new(&config).unwrap();
        let (a, b) = (hash(1, 3, 77, 1), hash(1, 3, 77, 2));
        assert_eq!(cache.insert(a, 10), Inserted::Fresh);
        assert_eq!(cache.lookup(b, |value| value == 20), None);
        assert_eq!(cache.counters().false_positives, 1);
        // One bucket cannot tell the two apart: the later one replaces the earlier.
        assert_eq!(cache.insert(b, 20), Inserted::Replaced { value: 10 });
        assert_eq!(cache.lookup(a, |value| value == 10), None);
        assert_eq!(cache.lookup(b, |value| value == 20), Some(20));
        assert_eq!(cache.lookup_unverified(a), Some(Unverified(20)));
        assert_eq!(cache.remove(a, |value| value == 10), None);
        assert_eq!(cache.len(), 1);
    }
}

#[test]
fn two_matches_are_both_offered_until_one_holds() {
    for isa in Isa::available() {
        let config = Config::buckets(4).isa(Some(isa));
        let mut cache = FlowCache::<Blp<2, 4>, Random, Fp16V32>::new(&config).unwrap();
        // Bucket 1 full of others: b, at home there, spills to bucket 2.
        for i in 0..4 {
            cache.insert(hash(1, 4, 100 + i, 0), u32::from(i));
        }
        let (a, b) = (hash(0, 4, 7, 0), hash(1, 4, 7, 0));
        cache.insert(b, 2_000_000);
        // A hole in bucket 1, bucket 0 full: a, at home in 0, spills into the hole.
        cache.remove(hash(1, 4, 102, 0), |_| true);
        for i in 0..4 {
            cache.insert(hash(0, 4, 200 + i, 0), u32::from(i));
        }
        assert_eq!(cache.insert(a, 1_000_000), Inserted::Fresh);
        assert_eq!(
            (peek(&cache, 1, 2), peek(&cache, 2, 0)),
            (Some((7, 1_000_000)), Some((7, 2_000_000)))
        );

        let mut offered = Vec::new();
        let found = cache.lookup(b, |value| {
            offered.push(value);
            value == 2_000_000
        });
        assert_eq!((found, offered), (Some(2_000_000), vec![1_000_000, 2_000_000]));
        assert_eq!(cache.counters().false_positives, 1);
        let mut found = [None; 2];
        let wanted = [2_000_000, 1_000_000];
        cache.lookup_batch(&[b, a], |i, value| value == wanted[i], &mut found);
        assert_eq!(found, [Some(2_000_000), Some(1_000_000)]);
        assert_eq!(cache.counters().false_positives, 2);
        // The right one of the two goes.
        assert_eq!(cache.remove(b, |value| value == 2_000_000), Some(2_000_000));
        assert_eq!(cache.lookup(a, |value| value == 1_000_000), Some(1_000_000));
    }
}

#[test]
fn the_last_bucket_spills_into_the_buffer() {
    fn spill<G: Geometry>(isa: Isa) {
        const BUCKETS: usize = 5;
        let config = Config::buckets(BUCKETS).isa(Some(isa));
        let mut cache = FlowCache::<G>::new(&config).unwrap();
        let key = |i: usize| Hash64::new(u64::MAX << 32 | (i as u64 + 1));
        for i in 0..G::CANDIDATES {
            assert_eq!(cache.insert(key(i), i as u16), Inserted::Fresh);
            let (bucket, slot) = (BUCKETS - 1 + i / G::SLOTS, i % G::SLOTS);
            assert_eq!(peek(&cache, bucket, slot), Some((i as u16 + 1, i as u32)));
        }
        for i in 0..G::CANDIDATES {
            assert_eq!(cache.lookup(key(i), |_| true), Some(i as u32));
        }
        assert!(matches!(cache.insert(key(40), 40), Inserted::Evicted { .. }));
        assert_eq!(cache.len(), G::CANDIDATES);
        // And the sweep reaches them.
        assert_eq!(cache.retain(|_, _| false), G::CANDIDATES);
        assert!(cache.is_empty());
    }
    for isa in Isa::available() {
        spill::<Blp<2, 4>>(isa);
        spill::<Blp<2, 8>>(isa);
        spill::<Blp<2, 16>>(isa);
        spill::<Blp<4, 4>>(isa);
    }
}

#[test]
fn the_best_policy_keeps_hit_entries() {
    let mut cache = FlowCache::<SetAssoc<4>, BubbleLru>::new(&Config::buckets(1)).unwrap();
    (1..=4).for_each(|key| _ = cache.insert(Hash64::new(key), key as u16));
    // Three hits bring the last one to the top; then strangers pass through the last slot.
    (0..3).for_each(|_| _ = cache.lookup(Hash64::new(4), |_| true));
    assert_eq!(peek(&cache, 0, 0), Some((4, 4)));
    let lost = (5..50).map(|key| cache.insert(Hash64::new(key), key as u16)).collect::<Vec<_>>();
    assert_eq!(
        lost[0],
        Inserted::Evicted { fingerprint: Fingerprint::of(Hash64::new(3)), value: 3 }
    );
    assert!((0..3).all(|slot| peek(&cache, 0, slot).is_some_and(|(fp, _)| fp < 5)));
    assert_eq!(cache.counters().evictions, 45);
}

#[test]
fn dc_bubble_evicts_the_last_after_a_hit_and_the_first_after_a_miss() {
    let mut cache = FlowCache::<SetAssoc<4>, DcBubble>::new(&Config::buckets(1)).unwrap();
    let bucket = |cache: &FlowCache<SetAssoc<4>, DcBubble>| {
        [0, 1, 2, 3].map(|slot| peek(cache, 0, slot).map_or(0, |(fp, _)| fp))
    };
    (1..=4).for_each(|key| _ = cache.insert(Hash64::new(key), 0));
    // The last access was an insertion, a miss: the first leaves, the others move up.
    cache.insert(Hash64::new(5), 0);
    assert_eq!(bucket(&cache), [2, 3, 4, 5]);
    // A hit bubbles 4 and sets the bit; the miss report in between is no access.
    assert!(cache.lookup(Hash64::new(4), |_| true).is_some());
    assert!(cache.lookup(Hash64::new(6), |_| true).is_none());
    cache.insert(Hash64::new(6), 0);
    assert_eq!(bucket(&cache), [2, 4, 3, 6]);
    cache.insert(Hash64::new(7), 0);
    assert_eq!(bucket(&cache), [4, 3, 6, 7]);
}

#[test]
fn a_promotion_looks_again() {
    for isa in Isa::available() {
        let config = Config::buckets(1).isa(Some(isa));
        let mut cache = FlowCache::<SetAssoc<4>, BubbleLru>::new(&config).unwrap();
        (1..=4).for_each(|key| _ = cache.insert(Hash64::new(key), key as u16));
        // The same key three times in one burst: found in slot 3 each time, promoted once.
        let mut found = [None; 3];
        cache.lookup_batch(&[Hash64::new(4); 3], |_, _| true, &mut found);
        assert_eq!(found, [Some(4); 3]);
        assert_eq!([0, 1, 2, 3].map(|slot| peek(&cache, 0, slot).unwrap().0), [1, 2, 4, 3]);
        // A report of a slot that holds something else, or nothing, changes nothing.
        let hashes = [9, 1].map(Hash64::new);
        let mut probes = Probes::new();
        cache.probe_batch(&hashes, &mut probes);
        probes.replace(0, Some((Slot::new(2).unwrap(), 0)));
        probes.replace(1, Some((Slot::new(31).unwrap(), 0)));
        probes.replace(2, Some((Slot::new(0).unwrap(), 0)));
        cache.commit(&hashes, &probes.first_matches(Mask::new(7)));
        assert_eq!([0, 1, 2, 3].map(|slot| peek(&cache, 0, slot).unwrap().0), [1, 2, 4, 3]);
        assert_eq!((cache.counters().lookups, cache.counters().hits), (5, 5));
    }
}

#[test]
fn pblru_promotes_one_hit_in_n() {
    for every in [1, 4, 16, 100] {
        let config = Config::buckets(1).promote_every(every);
        let mut cache = FlowCache::<SetAssoc<16>, Pblru>::new(&config).unwrap();
        (1..=16).for_each(|key| _ = cache.insert(Hash64::new(key), 0));
        let hits = 20_000;
        let mut moved = 0;
        for _ in 0..hits {
            // Always the key in the second slot, so that each promotion shows.
            let (fp, _) = peek(&cache, 0, 1).unwrap();
            cache.lookup(Hash64::new(u64::from(fp)), |_| true);
            moved += u32::from(peek(&cache, 0, 0).unwrap().0 == fp);
        }
        let expected = f64::from(hits) / f64::from(every);
        let off = (f64::from(moved) - expected).abs() / expected;
        assert!(off < 0.2, "1/{every}: {moved} of {hits}");
    }
}

#[test]
fn bursts_of_any_length_are_safe() {
    for design in Design::all() {
        for isa in Isa::available() {
            let mut cache = design.build(&Config::entries(64).seed(1).isa(Some(isa))).unwrap();
            let hashes: Vec<Hash64> = (0..100).map(Hash64::mix).collect();
            let mut probes = Probes::new();
            for n in 0..=hashes.len() {
                cache.probe_batch(&hashes[..n], &mut probes);
                assert_eq!(probes.len(), n.min(BURST), "{design} {isa}");
                cache.probe_batch_ahead(&hashes[n..], &hashes[..n], &mut probes);
                assert_eq!(probes.len(), (hashes.len() - n).min(BURST), "{design} {isa}");
            }
            assert_eq!(probes.slots(BURST).next(), None);
            cache.probe_batch(&hashes[..7], &mut probes);
            cache.commit(&hashes, &probes.first_matches(Mask::new(u32::MAX)));
            cache.probe_batch(&hashes, &mut probes);
            let mut none = probes.first_matches(Mask::default());
            none.refuse(5);
            cache.commit(&hashes[..3], &none);
            assert_eq!((none.len(), cache.counters().false_positives), (BURST, 5));
            assert_eq!(cache.counters().lookups, 10);
            for slot in (0..=u8::MAX).filter_map(Slot::new) {
                assert_eq!(cache.candidate(Hash64::new(u64::MAX), slot), 0);
            }
            for (start, count) in [(0, 0), (usize::MAX, usize::MAX), (1, usize::MAX), (500, 1)] {
                assert_eq!(cache.sweep(start, count, &mut |_, _| true).removed, 0);
            }
        }
    }
}

#[test]
fn a_sweep_in_steps_visits_every_bucket_once() {
    let design: Design = "blp-4-4".parse().unwrap();
    let mut cache =
        design.build(&Config::entries(200).layout(LayoutKind::Fp16V32).seed(1)).unwrap();
    (0..150).for_each(|key| _ = cache.insert(Hash64::mix(key), key as u32).unwrap());
    let before = cache.len();
    let (mut start, mut steps, mut visited) = (0, 0, 0);
    loop {
        let swept = cache.sweep(start, 7, &mut |_, value| {
            visited += 1;
            value % 3 != 0
        });
        steps += 1;
        start = swept.next;
        if start == 0 {
            break;
        }
    }
    assert_eq!((steps, visited), ((50 + 3_usize).div_ceil(7), before));
    assert_eq!(cache.len() as u64 + cache.counters().removals, before as u64);
    assert_eq!(cache.retain(&mut |_, value| value % 3 != 0), 0);
}

#[test]
fn no_cache_holds_more_than_its_capacity() {
    for design in Design::all() {
        let config = Config::buckets(8).seed(1);
        let mut cache = design.build(&config).unwrap();
        let mut most = 0;
        for hash in (1..=20_000).map(Hash64::mix) {
            cache.insert(hash, 1).unwrap();
            most = most.max(cache.len());
        }
        assert!(most <= cache.capacity(), "{design}: {most} of {}", cache.capacity());
        // The last buffer bucket fills up as well.
        assert!(most > cache.capacity() - 2, "{design}: {most} of {}", cache.capacity());
    }
}

#[test]
fn sizes_are_exact() {
    // Buckets, buffer buckets and DC-Bubble's bitmap; slots of 4 and of 6 bytes.
    let cases = [
        ("set-4", 1000, [4000, 6000], 1000),
        ("set-16", 1000, [4032, 6048], 1008),
        ("set-8+dc-bubble", 1000, [4016, 6016], 1000),
        ("cuckoo-2-8", 1, [64, 96], 16),
        ("blp-2-4", 1000, [4016, 6024], 1004),
        ("blp-2-16+pblru", 1 << 20, [4_194_368, 6_291_552], (1 << 20) + 16),
        ("blp-4-4+bubble", 97, [448, 672], 112),
    ];
    for (name, entries, bytes, capacity) in cases {
        for (layout, bytes) in LayoutKind::ALL.iter().copied().zip(bytes) {
            let design: Design = name.parse().unwrap();
            let cache = design.build(&Config::entries(entries).layout(layout)).unwrap();
            assert_eq!((cache.memory_bytes(), cache.capacity()), (bytes, capacity), "{name}");
            assert_eq!((cache.design(), cache.layout()), (design, layout));
            if bytes < 2 << 20 {
                assert_eq!(cache.huge_pages(), HugePages::No);
            }
        }
    }
}

#[test]
fn impossible_sizes_are_errors() {
    for design in Design::all() {
        let build = |config: Config| design.build(&config).err();
        assert_eq!(build(Config::buckets(0)), Some(CacheError::Empty));
        assert_eq!(build(Config::entries(0)), Some(CacheError::Empty));
        let buckets = BUCKETS_MAX + 1;
        let too_many = CacheError::TooManyBuckets { buckets, max: BUCKETS_MAX };
        assert_eq!(build(Config::buckets(buckets)), Some(too_many));
        for config in [Config::entries(usize::MAX), Config::buckets(usize::MAX)] {
            assert!(matches!(build(config), Some(CacheError::TooManyBuckets { .. })), "{design}");
        }
        let one = build(Config::buckets(1));
        if design.geometry().name().starts_with("cuckoo") {
            let geometry = design.geometry().name();
            assert_eq!(one, Some(CacheError::TooFewBuckets { geometry, buckets: 1, min: 2 }));
        } else {
            assert_eq!(one, None);
        }
        assert_eq!(build(Config::entries(1)), None);
    }
    for every in [0, PROMOTE_EVERY_MAX + 1] {
        let config = Config::entries(64).promote_every(every);
        let error = FlowCache::<SetAssoc<4>, Pblru>::new(&config).err();
        assert_eq!(error, Some(CacheError::PromotionOutOfRange { every, max: PROMOTE_EVERY_MAX }));
        assert!(FlowCache::<SetAssoc<4>, Random>::new(&config).is_ok());
        let policy = PolicyKind::Pblru { every };
        assert!(matches!(Design::new(GeometryKind::Set4, policy), Err(DesignError::Promotion)));
    }
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let design: Design = "blp-2-16".parse().unwrap();
    let mut narrow = design.build(&Config::entries(64).seed(0)).unwrap();
    assert_eq!(
        narrow.insert(Hash64::new(1), 65_536),
        Err(ValueTooWide { value: 65_536, bits: 16 })
    );
    assert_eq!((narrow.len(), narrow.counters().inserts), (0, 0));
    assert_eq!(narrow.insert(Hash64::new(1), 65_535), Ok(Inserted::Fresh));
    assert_eq!(narrow.lookup(Hash64::new(1), &mut |_| true), Some(65_535));
    let mut wide = design.build(&Config::entries(64).layout(LayoutKind::Fp16V32).seed(0)).unwrap();
    assert_eq!(wide.insert(Hash64::new(1), u32::MAX), Ok(Inserted::Fresh));
    assert_eq!(wide.lookup(Hash64::new(1), &mut |_| true), Some(u32::MAX));
    assert_eq!([narrow.layout(), wide.layout()].map(LayoutKind::value_max), [65_535, u32::MAX]);
}

#[test]
fn counters_count() {
    let mut cache = FlowCache::<SetAssoc<4>>::new(&Config::buckets(1)).unwrap();
    for key in [1, 2, 3, 4, 5, 5] {
        cache.insert(Hash64::new(key), key as u16);
    }
    cache.lookup(Hash64::new(5), |value| value == 5);
    cache.lookup(Hash64::new(5), |_| false);
    cache.lookup(Hash64::new(99), |_| true);
    cache.remove(Hash64::new(5), |_| true);
    cache.remove(Hash64::new(5), |_| true);
    cache.clear();
    let expected = Counters {
        lookups: 3,
        hits: 1,
        false_positives: 1,
        inserts: 6,
        replacements: 1,
        evictions: 1,
        removals: 4,
    };
    assert_eq!(*cache.counters(), expected);
    assert_eq!((expected.misses(), expected.hit_rate()), (2, 1.0 / 3.0));
    cache.reset_counters();
    assert_eq!((*cache.counters(), cache.counters().hit_rate()), (Counters::default(), 0.0));
}

#[test]
fn names_are_canonical_and_unknown_ones_list_the_known() {
    let names: Vec<String> = Design::all().map(|design| design.to_string()).collect();
    assert_eq!(names.len(), 10 * 4 + 3);
    for (design, name) in Design::all().zip(&names) {
        assert_eq!(name.parse(), Ok(design));
        assert!(
            design
                .build(&Config::entries(100).layout(LayoutKind::Fp16V32).seed(1))
                .unwrap()
                .design()
                == design
        );
    }
    for name in ["set-4", "cuckoo-2-4", "blp-2-4", "blp-2-4+pblru", "blp-2-16+pblru"] {
        assert!(names.iter().any(|known| known == name));
    }
    let canonical = |name: &str| name.parse::<Design>().map(|design| design.to_string());
    assert_eq!(canonical("blp-2-16+pblru/16"), Ok("blp-2-16+pblru".into()));
    assert_eq!(canonical("blp-2-16+pblru/64"), Ok("blp-2-16+pblru/64".into()));
    for name in ["", "blp", "blp-2-5", "BLP-2-4", "set-4 ", "+pblru", "set-4+", "set-4+lru"] {
        let message = name.parse::<Design>().unwrap_err().to_string();
        assert!(message.contains("blp-2-16"), "{name}: {message}");
    }
    for name in ["set-4+pblru/", "set-4+pblru/0", "set-4+pblru/+5", "set-4+pblru/99999999999"] {
        let error = name.parse::<Design>().unwrap_err();
        assert_eq!(error, DesignError::Promotion, "{name}");
    }
    assert!(matches!(canonical("blp-2-4+dc-bubble"), Err(DesignError::Combination { .. })));
    assert_eq!(format!("{:<10}|", "set-4".parse::<Design>().unwrap()), "set-4     |");
}

#[test]
fn the_same_seed_gives_the_same_table_on_every_instruction_set() {
    for design in Design::all() {
        let contents = |isa: Isa, seed: u64| {
            let mut cache = design.build(&Config::entries(97).seed(seed).isa(Some(isa))).unwrap();
            let mut pcg = Pcg32::new(5, 5);
            for _ in 0..2000 {
                let key = u64::from(pcg.below(300));
                if cache.lookup(Hash64::mix(key), &mut |value| u64::from(value) == key).is_none() {
                    cache.insert(Hash64::mix(key), key as u32).unwrap();
                }
            }
            let slots = (0..cache.buckets() + 3).flat_map(|b| (0..16).map(move |s| (b, s)));
            slots.map(|(b, s)| peek(&*cache, b, s)).collect::<Vec<_>>()
        };
        let first = contents(Isa::Portable, 1);
        assert!(Isa::available().all(|isa| contents(isa, 1) == first), "{design}");
        // DC-Bubble draws nothing, nor does bubble LRU with one bucket to choose from.
        let draws = match design.policy() {
            PolicyKind::Random | PolicyKind::Pblru { .. } | PolicyKind::HalfBubble => true,
            PolicyKind::Bubble => !design.geometry().is_set_associative(),
            _ => false,
        };
        assert_eq!(contents(Isa::Portable, 2) != first, draws, "{design}");
    }
}

/// Run as a child with `OVERBANK_SIMD` set, by the test below; without it, the best is chosen.
#[test]
fn env_child() {
    let built = FlowCache::<SetAssoc<4>>::new(&Config::buckets(1)).map(|cache| cache.isa());
    println!("chosen: {built:?}");
}

#[test]
fn the_environment_forces_an_instruction_set() {
    let child = |value: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cache::env_child", "--nocapture"])
            .env(Isa::VARIABLE, value)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for &isa in Isa::ALL {
        let output = child(isa.name());
        if isa.is_available() {
            assert!(output.contains(&format!("chosen: Ok({isa:?})")), "{output}");
        } else {
            assert!(output.contains("chosen: Err(Isa(Unavailable"), "{output}");
        }
    }
    assert!(child("").contains(&format!("chosen: Ok({:?})", Isa::best())));
    assert!(child("sse9").contains("chosen: Err(Isa(Variable))"));
    // A choice in the program is stronger than the environment's; the rest of this file shows it.
    assert_eq!(Isa::choose(Some(Isa::Portable)), Ok(Isa::Portable));
}

/// Near, far and automatic, decided at construction and by the table's size alone.
#[test]
fn the_prefetch_is_used_as_requested() {
    let build = |entries: usize, prefetch| {
        let config = Config::entries(entries).prefetch(prefetch);
        let design: Design = "blp-2-16+bubble".parse().unwrap();
        design.build(&config).unwrap()
    };
    // The first size at which automatic is far, with a bucket to spare for BLP's buffer.
    let large = FAR_L2S * l2_bytes() / 4;
    for (entries, automatic) in [(64, false), (large - 64, false), (large, true)] {
        let far = |prefetch| build(entries, prefetch).prefetches_far();
        let found = [Prefetch::Near, Prefetch::Far, Prefetch::Automatic].map(far);
        assert_eq!(found, [false, true, automatic], "{entries}");
    }
    // The same answers.
    let mut caches = [Prefetch::Near, Prefetch::Far].map(|prefetch| build(1 << 12, prefetch));
    for cache in &mut caches {
        (0..3000).for_each(|i| assert!(cache.insert(Hash64::mix(i), i as u32).is_ok()));
    }
    for first in (0..6000).step_by(BURST) {
        let hashes: Vec<Hash64> = (first..first + BURST as u64).map(Hash64::mix).collect();
        let [near, far] = [&caches[0], &caches[1]].map(|cache| {
            let mut probes = Probes::new();
            cache.probe_batch(&hashes, &mut probes);
            probes
        });
        assert_eq!((matches(&near), near.values()), (matches(&far), far.values()));
    }
}

/// Tables larger than the second-level cache have separate kernels.
#[test]
fn large_tables_answer_as_they_must() {
    const ENTRIES: usize = 1 << 21;
    const FLOWS: u64 = 3000;
    let flow = Hash64::mix;
    for (kind, isa) in
        GeometryKind::ALL.iter().copied().flat_map(|g| Isa::available().map(move |i| (g, i)))
    {
        let design = Design::new(kind, PolicyKind::Random).unwrap();
        let config = Config::entries(ENTRIES).seed(1).isa(Some(isa)).prefetch(Prefetch::Far);
        let mut cache = design.build(&config).unwrap();
        assert!(cache.prefetches_far(), "{design}");
        for i in 0..FLOWS {
            cache.insert(flow(i), i as u32).unwrap();
        }
        let hashes: Vec<Hash64> = (0..2 * FLOWS).map(flow).collect();
        let (mut alone, mut ahead) = (Probes::new(), Probes::new());
        let mut next = hashes.chunks(BURST).skip(1);
        cache.probe_batch_ahead(&[], &hashes[..BURST], &mut ahead);
        for (nth, burst) in hashes.chunks(BURST).enumerate() {
            cache.probe_batch(burst, &mut alone);
            cache.probe_batch_ahead(burst, next.next().unwrap_or_default(), &mut ahead);
            for (i, &hash) in burst.iter().enumerate() {
                let [one, two] = [&alone, &ahead].map(|probes| probes.slots(i).collect::<Vec<_>>());
                assert_eq!((&one, alone.values()[i]), (&two, ahead.values()[i]), "{design}");
                let number = (nth * BURST + i) as u64;
                let found = cache.lookup(hash, &mut |value| value == number as u32);
                assert_eq!(found.is_some(), number < FLOWS, "{design}, {isa}: {number}");
                assert_eq!(alone.matched().contains(i), !one.is_empty(), "{design}, {isa}");
                assert!(number >= FLOWS || !one.is_empty(), "{design}, {isa}: {number}");
            }
        }
    }
}

/// A copy goes on as the original does, each by itself, and both outlive the other.
#[test]
fn a_copy_has_the_same_entries_policy_and_counters() {
    for design in Design::all() {
        let mut cache = design.build(&Config::entries(512).seed(3)).unwrap();
        (0..2000).for_each(|i| _ = cache.insert(Hash64::mix(i), i as u32).unwrap());
        let mut copy = cache.clone();
        let contents = |cache: &dyn DynCache| {
            let mut all = Vec::new();
            cache.for_each(&mut |fingerprint, value| all.push((fingerprint, value)));
            (all, *cache.counters(), cache.len())
        };
        assert_eq!(contents(&*copy), contents(&*cache), "{design}");
        // The same evictions and promotions: the policy's state was copied too.
        for i in 2000..4000 {
            for cache in [&mut cache, &mut copy] {
                cache.lookup(Hash64::mix(i - 300), &mut |value| u64::from(value) == i - 300);
                cache.insert(Hash64::mix(i), i as u32).unwrap();
            }
        }
        let before = contents(&*copy);
        assert_eq!(before, contents(&*cache), "{design}");
        cache.clear();
        drop(cache);
        assert_eq!(contents(&*copy), before);
    }
}

#[test]
fn drain_hands_out_each_entry_once_and_the_rest_goes_when_it_is_dropped() {
    let mut cache = FlowCache::<Blp<2, 4>, Pblru>::new(&Config::entries(64)).unwrap();
    let fill = |cache: &mut FlowCache<Blp<2, 4>, Pblru>| {
        (0..300).for_each(|i| _ = cache.insert(Hash64::mix(i), i as u16));
        cache.iter().collect::<Vec<_>>()
    };
    let all = fill(&mut cache);
    assert!(all.len() > 50);
    let removals = cache.counters().removals;
    let drain = cache.drain();
    assert_eq!(drain.len(), all.len());
    assert_eq!(drain.collect::<Vec<_>>(), all);
    assert_eq!((cache.len(), cache.iter().count()), (0, 0));
    assert_eq!(cache.counters().removals, removals + all.len() as u64);
    let all = fill(&mut cache);
    assert_eq!(cache.drain().take(3).collect::<Vec<_>>(), all[..3]);
    assert!(cache.is_empty() && cache.iter().next().is_none());
    let mut dynamic: Box<dyn DynCache> = Box::new(cache);
    dynamic.insert(Hash64::mix(1), 7).unwrap();
    let mut out = Vec::new();
    dynamic.drain(&mut |_, value| out.push(value));
    assert_eq!((out, dynamic.len()), (vec![7], 0));
}
