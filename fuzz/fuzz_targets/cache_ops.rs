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
use overbank::cache::{
    BURST, Config, Design, Inserted, LayoutKind, MISS, Probes, SignatureCache, fingerprint,
};
use overbank::hash::mix;
use overbank::isa::Isa;

/// Hash of each live value. Values are given out once.
type Model = HashMap<u32, u64>;

fuzz_target!(|data: &[u8]| {
    let [design, layout, buckets, ops @ ..] = data else { return };
    let designs: Vec<Design> = Design::all().collect();
    let design = designs[usize::from(*design) % designs.len()];
    let layout = LayoutKind::ALL[usize::from(*layout) % LayoutKind::ALL.len()];
    let buckets = usize::from(*buckets % 32) + 4;
    let mut answers = Isa::available().map(|isa| {
        let config = Config::buckets(buckets).seed(7).isa(Some(isa));
        let cache = design.build_from(&config, layout).expect("the size is in range");
        (isa, run(cache, ops))
    });
    let (_, first) = answers.next().expect("the portable one is always there");
    for (isa, answer) in answers {
        assert_eq!(answer, first, "{isa} and portable differ on {design}");
    }
});

/// Returns one of few keys, so that they meet: some spread, some share a fingerprint or a bucket.
fn hash_of(key: u8) -> u64 {
    match key >> 6 {
        0 | 1 => mix(u64::from(key)),
        2 => mix(u64::from(key)) & !0xffff | u64::from(key & 1),
        _ => u64::from(key).wrapping_mul(0x0001_0001),
    }
}

/// Reports of the cache, in order.
fn run(mut cache: Box<dyn SignatureCache>, ops: &[u8]) -> Vec<u64> {
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
                    assert_eq!(print, fingerprint(model[&value]));
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

fn belongs(model: &Model, value: u32, hash: u64) -> bool {
    *model.get(&value).expect("the cache offers a value that it no longer holds") == hash
}

fn check_found(model: &Model, hash: u64, found: Option<u32>) {
    let there = model.values().any(|&other| other == hash);
    assert_eq!(found.is_some(), there, "hash {hash:#x}");
}

fn insert(cache: &mut dyn SignatureCache, model: &mut Model, hash: u64, value: u32) -> u64 {
    let Ok(inserted) = cache.insert(hash, value) else {
        assert!(value > cache.layout().value_max());
        return 0;
    };
    let lost = match inserted {
        Inserted::Fresh => None,
        Inserted::Replaced { value } => Some((fingerprint(hash), value)),
        Inserted::Evicted { fingerprint, value } => Some((fingerprint, value)),
    };
    if let Some((print, lost)) = lost {
        let owner = model.remove(&lost).expect("the cache lost an entry that it did not have");
        assert_eq!(print, fingerprint(owner));
    }
    model.insert(value, hash);
    lost.map_or(1, |(print, value)| u64::from(print) << 32 | u64::from(value))
}

/// Looks up a burst of neighbouring keys by probe, verify and commit, as the datapath does.
fn burst(cache: &mut dyn SignatureCache, model: &Model, first: u8) -> Vec<u64> {
    let len = usize::from(first) % (BURST + 1);
    let hashes: Vec<u64> = (0..len).map(|i| hash_of(first.wrapping_add(i as u8))).collect();
    let mut probes = Probes::new();
    cache.probe_batch_ahead(&hashes, &[u64::from(first); 3], &mut probes);
    let ahead = probes.clone();
    cache.probe_batch(&hashes, &mut probes);
    assert_eq!((ahead.matched, &ahead.mask[..len]), (probes.matched, &probes.mask[..len]));
    assert_eq!(ahead.value[..len], probes.value[..len]);
    assert_eq!(probes.len, len);
    let (mut slots, mut refused) = ([MISS; BURST], 0);
    let mut said = Vec::new();
    for (i, &hash) in hashes.iter().enumerate() {
        assert_eq!(probes.matched >> i & 1 == 1, probes.mask[i] != 0);
        if let Some(first) = probes.slots(i).next() {
            assert_eq!(probes.value[i], cache.candidate(hash, first));
        }
        let mut found = None;
        for slot in probes.slots(i) {
            let value = cache.candidate(hash, slot);
            if belongs(model, value, hash) {
                (slots[i], found) = (slot, Some(value));
                break;
            }
            refused += 1;
        }
        // A probe may leave out the second bucket after another key's match in the first.
        if found.is_some() || probes.mask[i] == 0 {
            check_found(model, hash, found);
        }
        said.push(found.map_or(u64::MAX, u64::from));
    }
    cache.commit_hits(&hashes, &slots[..len], refused);
    said
}
