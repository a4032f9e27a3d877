//! Runs bytes as operations on a cache, on every instruction set of the machine, against a map.
//!
//! The map holds the entries that the cache must hold. An entry stays from its insertion until the
//! cache reports it replaced, evicted or removed; until then a lookup must find it. All instruction
//! sets run the same operations and must report the same.
//!
//! Input: design, layout, buckets (1 byte each), then operations (2 bytes each: operation, key).
#![no_main]

use std::collections::HashMap;

use libfuzzer_sys::fuzz_target;
use overbank::cache::{BURST, Config, Design, DynCache, Fingerprint, Inserted, LayoutKind, Probes};
use overbank::hash::{Hash64, mix};
use overbank::isa::Isa;

/// Hash of each live value. Values are given out once.
type Model = HashMap<u32, Hash64>;

fuzz_target!(|data: &[u8]| {
    let [design, layout, buckets, ops @ ..] = data else { return };
    let designs: Vec<Design> = Design::all().collect();
    let design = designs[usize::from(*design) % designs.len()];
    let layout = LayoutKind::ALL[usize::from(*layout) % LayoutKind::ALL.len()];
    let buckets = usize::from(*buckets % 32) + 4;
    let mut answers = Isa::available().map(|isa| {
        let config = Config::buckets(buckets).layout(layout).seed(7).isa(Some(isa));
        let cache = design.build(&config).expect("the size is in range");
        (isa, run(cache, ops))
    });
    let (_, first) = answers.next().expect("the portable one is always there");
    for (isa, answer) in answers {
        assert_eq!(answer, first, "{isa} and portable differ on {design}");
    }
});

/// Returns one of few keys, so that they meet: some spread, some share a fingerprint or a bucket.
fn hash_of(key: u8) -> Hash64 {
    Hash64::new(match key >> 6 {
        0 | 1 => mix(u64::from(key)),
        2 => mix(u64::from(key)) & !0xffff | u64::from(key & 1),
        _ => u64::from(key).wrapping_mul(0x0001_0001),
    })
}

/// Reports of the cache, in order.
fn run(mut cache: Box<dyn DynCache>, ops: &[u8]) -> Vec<u64> {
    let mut model = Model::new();
    let mut said = Vec::new();
    for (value, op) in ops.chunks_exact(2).enumerate() {
        let (what, hash) = (op[0] % 16, hash_of(op[1]));
        match what {
            0..=5 => said.push(insert(cache.as_mut(), &mut model, hash, value as u32)),
            6..=9 => {
                let found = cache.lookup(hash, &mut |value| belongs(&model, value, hash));
                check_found(&model, hash, found);
                said.push(found.map_or(u64::MAX, u64::from));
            }
            10..=12 => said.extend(burst(cache.as_mut(), &model, op[1])),
            13 => {
                let gone = cache.remove(hash, &mut |value| belongs(&model, value, hash));
                check_found(&model, hash, gone);
                if let Some(value) = gone {
                    model.remove(&value);
                }
                said.push(gone.map_or(u64::MAX, u64::from));
            }
            14 => {
                let keep = |value: u32| value % 7 != u32::from(op[1]) % 7;
                let removed = cache.retain(&mut |print, value| {
                    assert_eq!(print, Fingerprint::of(model[&value]));
                    keep(value)
                });
                let before = model.len();
                model.retain(|&value, _| keep(value));
                assert_eq!(removed, before - model.len());
            }
            _ if op[1] == 0 => {
                cache.clear();
                model.clear();
            }
            _ => said.push(cache.counters().hits),
        }
        assert_eq!(cache.len(), model.len());
    }
    let counters = cache.counters();
    assert!(counters.hits <= counters.lookups);
    assert!(cache.len() <= cache.capacity());
    said
}

fn belongs(model: &Model, value: u32, hash: Hash64) -> bool {
    *model.get(&value).expect("the cache offers a value that it no longer holds") == hash
}

fn check_found(model: &Model, hash: Hash64, found: Option<u32>) {
    let there = model.values().any(|&other| other == hash);
    assert_eq!(found.is_some(), there, "hash {hash:?}");
}

fn insert(cache: &mut dyn DynCache, model: &mut Model, hash: Hash64, value: u32) -> u64 {
    let Ok(inserted) = cache.insert(hash, value) else {
        assert!(value > cache.layout().value_max());
        return 0;
    };
    let lost = match inserted {
        Inserted::Fresh => None,
        Inserted::Replaced { value } => Some((Fingerprint::of(hash), value)),
        Inserted::Evicted { fingerprint, value } => Some((fingerprint, value)),
    };
    if let Some((print, lost)) = lost {
        let owner = model.remove(&lost).expect("the cache lost an entry that it did not have");
        assert_eq!(print, Fingerprint::of(owner));
    }
    model.insert(value, hash);
    lost.map_or(1, |(print, value)| u64::from(print.get()) << 32 | u64::from(value))
}

/// Looks up a burst of neighbouring keys by probe, verify and commit, as the datapath does.
fn burst(cache: &mut dyn DynCache, model: &Model, first: u8) -> Vec<u64> {
    let len = usize::from(first) % (BURST + 1);
    let hashes: Vec<Hash64> = (0..len).map(|i| hash_of(first.wrapping_add(i as u8))).collect();
    let mut probes = Probes::new();
    cache.probe_batch_ahead(&hashes, &[Hash64::new(u64::from(first)); 3], &mut probes);
    let ahead = probes.clone();
    cache.probe_batch(&hashes, &mut probes);
    assert_eq!((ahead.matched(), ahead.values()), (probes.matched(), probes.values()));
    assert_eq!(probes.len(), len);
    let mut resolved = probes.clone();
    let mut found = [None; BURST];
    let hits = resolved.resolve(&*cache, &hashes, |i, value| {
        let is_right = belongs(model, value, hashes[i]);
        found[i] = is_right.then_some(value);
        is_right
    });
    for (i, &hash) in hashes.iter().enumerate() {
        assert_eq!(hits.found().contains(i), found[i].is_some());
        assert_eq!(probes.matched().contains(i), probes.slots(i).next().is_some());
        assert!(ahead.slots(i).eq(probes.slots(i)));
        if let Some(first) = probes.slots(i).next() {
            assert_eq!(probes.values()[i], cache.candidate(hash, first));
        }
        // A probe may leave out the second bucket after another key's match in the first.
        if found[i].is_some() || !probes.matched().contains(i) {
            check_found(model, hash, found[i]);
        }
    }
    cache.commit(&hashes, &hits);
    for (i, value) in found.iter().enumerate().filter_map(|(i, found)| Some((i, (*found)?))) {
        assert_eq!(resolved.values()[i], value);
    }
    found[..len].iter().map(|found| found.map_or(u64::MAX, u64::from)).collect()
}
