//! The megaflow cache against a list of megaflows that is scanned.

use arrayvec::ArrayVec;
use overbank_switch::megaflow::{BURST, MEGAFLOWS_MAX, MegaflowCache, NO_ENTRY, STALE_MS};
use overbank_wire::{Field, FlowKey};
use proptest::prelude::*;

/// A megaflow of the twin.
#[derive(Clone, Copy, Debug)]
struct Flow {
    key: FlowKey,
    mask: FlowKey,
    verdict: u32,
    used_ms: u32,
    stale: bool,
}

/// The naive twin. Unbounded: the test removes from it what the cache evicted.
#[derive(Default)]
struct Twin(Vec<Flow>);

impl Twin {
    /// Returns the verdicts of all megaflows that match.
    fn matching(&self, key: &FlowKey) -> Vec<u32> {
        let matches = self.0.iter().filter(|f| !f.stale && key.matches(&f.key, &f.mask));
        matches.map(|f| f.verdict).collect()
    }
}

/// A key from a small domain, so that keys meet.
fn key(seed: u32) -> FlowKey {
    let mut key = FlowKey { in_port: 1, dl_type: 0x0800, ..FlowKey::default() };
    Field::NwSrc.set(&mut key, u128::from(seed & 3) << 24 | u128::from(seed >> 2 & 1));
    Field::TpDst.set(&mut key, u128::from(seed >> 3 & 3));
    Field::Ipv6Dst.set(&mut key, u128::from(seed >> 5 & 1) << 100);
    Field::ArpTha.set(&mut key, u128::from(seed >> 6 & 1));
    key
}

/// One of eight masks, from none of the fields to all of them.
fn mask(seed: u32) -> FlowKey {
    let mut mask = Field::DlType.key_mask();
    if seed & 1 != 0 {
        Field::NwSrc.set(&mut mask, 0xff00_0000);
    }
    if seed & 2 != 0 {
        Field::TpDst.set(&mut mask, 0xffff);
    }
    if seed & 4 != 0 {
        mask = mask.or(&Field::Ipv6Dst.key_mask()).or(&Field::ArpTha.key_mask());
    }
    mask
}

fn find(cache: &mut MegaflowCache, keys: &[FlowKey], now_ms: u32) -> Vec<Option<u32>> {
    let mut pending: ArrayVec<u8, BURST> = (0..keys.len() as u8).collect();
    let mut found = [NO_ENTRY; BURST];
    cache.lookup_batch(keys, &mut pending, &mut found);
    for (i, key) in keys.iter().enumerate() {
        let hit = found[i] != NO_ENTRY;
        assert_eq!(hit, !pending.contains(&(i as u8)));
        assert!(!hit || cache.verify(found[i], key), "what a lookup finds can be verified");
    }
    let verdict = |&id: &u32| (id != NO_ENTRY).then(|| cache.use_entry(id, now_ms));
    found[..keys.len()].iter().map(verdict).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Install(u32, u32),
    Lookup(Vec<u32>),
    Expire(u32),
    Revalidate(u32),
    NextEpoch,
    Sweep(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..128u32, 0..8u32).prop_map(|(k, m)| Step::Install(k, m)),
        4 => prop::collection::vec(0..128u32, 1..BURST).prop_map(Step::Lookup),
        1 => (0..40u32).prop_map(Step::Expire),
        1 => (1..5u32).prop_map(Step::Revalidate),
        1 => Just(Step::NextEpoch),
        1 => (0..4000u32).prop_map(Step::Sweep),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_list_that_is_scanned(
        capacity in 1..40usize,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut cache = MegaflowCache::new(capacity, 7).expect("a valid size");
        let mut twin = Twin::default();
        for (now, step) in steps.into_iter().enumerate() {
            let now_ms = now as u32 * 100;
            match step {
                Step::Install(k, m) => {
                    let (key, mask, verdict) = (key(k), mask(m), now_ms);
                    let masked = key.masked(&mask);
                    let full = cache.len() == capacity;
                    let (id, replaced) =
                        cache.install(&key, &mask, verdict, now_ms).expect("few masks");
                    prop_assert!(cache.verify(id, &key));
                    let same = twin.0.iter().position(|f| (f.key, f.mask) == (masked, mask));
                    match (same, replaced) {
                        (Some(at), Some(old)) => {
                            let was = twin.0.remove(at);
                            prop_assert_eq!(was.verdict, old);
                        }
                        (None, Some(old)) => {
                            prop_assert!(full, "evicts only when full");
                            // So few are all looked at.
                            let gone = twin.0.iter().find(|f| f.verdict == old).expect("there");
                            let any_stale = twin.0.iter().any(|f| f.stale);
                            prop_assert!(capacity > 16 || gone.stale == any_stale);
                            twin.0.retain(|f| f.verdict != old);
                        }
                        (None, None) => prop_assert!(!full),
                        (Some(_), None) => prop_assert!(false, "an equal megaflow was there"),
                    }
                    let stale = false;
                    twin.0.push(Flow { key: masked, mask, verdict, used_ms: now_ms, stale });
                }
                Step::Lookup(seeds) => {
                    let keys: Vec<FlowKey> = seeds.iter().map(|&s| key(s)).collect();
                    for (key, got) in keys.iter().zip(find(&mut cache, &keys, now_ms)) {
                        let expected = twin.matching(key);
                        match got {
                            Some(verdict) => {
                                prop_assert!(expected.contains(&verdict));
                                let used = twin.0.iter_mut().find(|f| f.verdict == verdict);
                                used.expect("it matches").used_ms = now_ms;
                            }
                            None => prop_assert!(expected.is_empty()),
                        }
                    }
                }
                Step::Expire(idle_ms) => {
                    let mut gone = Vec::new();
                    cache.expire(now_ms, idle_ms, |verdict| gone.push(verdict));
                    let idle = |used: u32| now_ms - used > idle_ms;
                    let mut expected: Vec<u32> =
                        twin.0.iter().filter(|f| idle(f.used_ms)).map(|f| f.verdict).collect();
                    gone.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(gone, expected);
                    twin.0.retain(|f| !idle(f.used_ms));
                }
                Step::Revalidate(modulus) => {
                    cache.revalidate(|_, _, verdict| verdict % modulus == 0, |_| ());
                    twin.0.retain(|f| f.verdict % modulus == 0);
                    twin.0.iter_mut().for_each(|f| f.stale = false);
                }
                Step::NextEpoch => {
                    cache.next_epoch(|_| unreachable!("no epoch comes twice"));
                    twin.0.iter_mut().for_each(|f| f.stale = true);
                }
                Step::Sweep(idle_ms) => {
                    // In slices; the last one goes round.
                    let mut gone = Vec::new();
                    for budget in [capacity / 3, capacity / 2, capacity] {
                        let before = gone.len();
                        let count =
                            cache.sweep(now_ms, idle_ms, budget, |verdict| gone.push(verdict));
                        prop_assert_eq!(count, gone.len() - before);
                        prop_assert!(count <= budget);
                    }
                    let goes = |f: &Flow| {
                        let age_ms = now_ms - f.used_ms;
                        age_ms > idle_ms || f.stale && age_ms > STALE_MS
                    };
                    let mut expected: Vec<u32> =
                        twin.0.iter().filter(|f| goes(f)).map(|f| f.verdict).collect();
                    gone.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(gone, expected);
                    twin.0.retain(|f| !goes(f));
                }
            }
            let mut list: Vec<_> = cache.iter().collect();
            let mut expected: Vec<_> = twin
                .0
                .iter()
                .filter(|f| !f.stale)
                .map(|f| (f.key, f.mask, f.verdict))
                .collect();
            list.sort_unstable_by_key(|e| e.2);
            expected.sort_unstable_by_key(|e| e.2);
            prop_assert_eq!(list, expected);
            let masks: std::collections::HashSet<_> = twin.0.iter().map(|f| f.mask).collect();
            prop_assert_eq!((cache.masks(), cache.len()), (masks.len(), twin.0.len()));
        }
    }
}

#[test]
fn an_idle_megaflow_expires_and_a_used_one_stays() {
    let mut cache = MegaflowCache::new(8, 1).expect("a valid size");
    let (idle, used) = (key(0), key(8));
    cache.install(&idle, &mask(2), 10, 0).expect("room");
    cache.install(&used, &mask(2), 11, 0).expect("room");
    assert_eq!(find(&mut cache, &[used], 9_000), [Some(11)]);
    assert_eq!(cache.expire(10_001, 10_000, |verdict| assert_eq!(verdict, 10)), 1);
    assert_eq!(find(&mut cache, &[idle, used], 10_001), [None, Some(11)]);
    assert_eq!(cache.counters().expirations, 1);
}

#[test]
fn a_full_cache_evicts_what_was_not_used() {
    let mut cache = MegaflowCache::new(2, 1).expect("a valid size");
    cache.install(&key(0), &mask(2), 10, 0).expect("room");
    cache.install(&key(8), &mask(2), 11, 0).expect("room");
    assert_eq!(find(&mut cache, &[key(0)], 5), [Some(10)]);
    let (_, evicted) = cache.install(&key(16), &mask(2), 12, 6).expect("few masks");
    assert_eq!(evicted, Some(11));
    assert_eq!((cache.len(), cache.counters().evictions), (2, 1));
}

#[test]
fn subtables_that_hit_come_first() {
    let mut cache = MegaflowCache::new(8, 1).expect("a valid size");
    for m in 0..4 {
        let mut key = key(0);
        key.in_port = m;
        let mut mask = mask(m);
        mask.in_port = u32::MAX;
        cache.install(&key, &mask, m, 0).expect("room");
    }
    let mut wanted = key(0);
    wanted.in_port = 3;
    for _ in 0..5000 {
        assert_eq!(find(&mut cache, &[wanted], 0), [Some(3)]);
    }
    let before = *cache.counters();
    find(&mut cache, &[wanted], 0);
    assert_eq!(cache.counters().subtables_searched - before.subtables_searched, 1);
}

/// Old hits count less and less: new ones are soon in front.
#[test]
fn old_hits_are_forgotten() {
    let mut cache = MegaflowCache::new(8, 1).expect("a valid size");
    let keys = [1, 2].map(|in_port| FlowKey { in_port, ..key(0) });
    for (verdict, key) in keys.iter().enumerate() {
        let mut mask = mask(verdict as u32);
        mask.in_port = u32::MAX;
        cache.install(key, &mask, verdict as u32, 0).expect("room");
    }
    for lookups in [100_000, 5 * 4096] {
        for key in &keys {
            let mut searched = 0;
            for _ in 0..lookups {
                let before = cache.counters().subtables_searched;
                assert!(find(&mut cache, &[*key], 0)[0].is_some());
                searched = cache.counters().subtables_searched - before;
            }
            assert_eq!(searched, 1, "{lookups} lookups of port {}", key.in_port);
        }
    }
}

/// A removed megaflow must not match, not even a packet without a bit.
#[test]
fn a_removed_megaflow_matches_no_packet() {
    let mut cache = MegaflowCache::new(2, 1).expect("a valid size");
    let (zero, mask) = (FlowKey::default(), Field::NwSrc.key_mask());
    let (id, _) = cache.install(&zero, &mask, 7, 0).expect("room");
    assert!(cache.verify(id, &zero) && cache.is_live(id));
    assert_eq!(cache.revalidate(|_, _, _| false, |verdict| assert_eq!(verdict, 7)), 1);
    assert!(!cache.verify(id, &zero) && !cache.is_live(id));
    assert_eq!(find(&mut cache, &[zero], 0), [None]);
}

#[test]
fn impossible_sizes_are_refused() {
    for wanted in [0, MEGAFLOWS_MAX + 1, usize::MAX] {
        let error = MegaflowCache::new(wanted, 1).expect_err("impossible");
        assert!(error.to_string().contains(&wanted.to_string()));
    }
}
