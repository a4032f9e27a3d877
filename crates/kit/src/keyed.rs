//! A table of any geometry with random eviction, fed keys one by one: what does it hold?
//!
//! With uniform keys the share of the working set that is held is the hit rate of the next lookup,
//! without the noise of drawing it. Keys are numbers from 0 up; a key's hash depends on it and on
//! the seed, and is the same for every geometry.
//!
//! Cost: keys are probed in bursts of 32, and those that missed looked up again one by one before
//! they are put in, so that the second packet of a new flow hits as if it came alone. (In a switch
//! under load it would miss with the first one.) The value of a slot is the key, so every match is
//! verified exactly.

use crate::geometry::{AnyGeometry, Family};
use crate::models::blp_held;
use crate::workload::FlowStream;
use overbank::cache::{
    BURST, Config, Cuckoo, Design, Error, Geometry, GeometryKind, LayoutKind, MISS, PolicyKind,
    Probes, SetAssoc, SignatureCache,
};
use overbank::hash::mix;

pub struct KeyedTable {
    cache: Box<dyn SignatureCache>,
    geometry: AnyGeometry,
    seed: u64,
}

impl KeyedTable {
    /// An empty one of at least `entries` slots.
    pub fn new(kind: GeometryKind, entries: usize, seed: u64) -> Result<KeyedTable, Error> {
        let design = Design::new(kind, PolicyKind::Random);
        let design = design.expect("random eviction works on every geometry");
        let config = Config::entries(entries).seed(seed);
        let cache = design.build_from(&config, LayoutKind::Fp16V32)?;
        Ok(KeyedTable { cache, geometry: kind.into(), seed })
    }

    /// Looks each key up and inserts it when it is missing; gives the number of hits.
    pub fn lookups(&mut self, keys: &[u32]) -> u64 {
        look_up(&mut *self.cache, keys, |key| seeded(key, self.seed))
    }

    /// Looks up the next keys of a stream; gives the number of hits.
    pub fn warm(&mut self, stream: &mut FlowStream, lookups: u64) -> u64 {
        let mut keys = [0; 1024];
        let (mut left, mut hits) = (lookups, 0);
        while left > 0 {
            let chunk = left.min(keys.len() as u64) as usize;
            stream.fill(&mut keys[..chunk]);
            hits += self.lookups(&keys[..chunk]);
            left -= chunk as u64;
        }
        hits
    }

    pub fn held(&self) -> usize {
        self.cache.len()
    }

    /// The most of the keys below `keys` that can be held at a time.
    ///
    /// Exact where a key's buckets lie side by side. For cuckoo-lite an upper bound: all keys, or
    /// every bucket as full as the keys that may lie in it allow, whichever is less.
    pub fn most(&self, keys: u32) -> u64 {
        let (AnyGeometry { family, h, m }, buckets) = (self.geometry, self.cache.buckets());
        let mut wanted = vec![0u32; buckets];
        for hash in (0..keys).map(|key| seeded(key, self.seed)) {
            // Of families, not of sizes: where a bucket lies does not depend on m.
            match family {
                Family::Set | Family::Blp => wanted[SetAssoc::<4>::bucket(hash, buckets, 0)] += 1,
                Family::Cuckoo => (0..h as usize)
                    .for_each(|choice| wanted[Cuckoo::<2, 4>::bucket(hash, buckets, choice)] += 1),
            }
        }
        match family {
            Family::Set | Family::Blp => blp_held(h, m, wanted),
            Family::Cuckoo => {
                u64::from(keys).min(wanted.iter().map(|&w| u64::from(w.min(m))).sum())
            }
        }
    }
}

/// The hash of a number: another function for each seed.
#[inline(always)]
pub fn seeded(id: u32, seed: u64) -> u64 {
    mix(mix(seed) ^ u64::from(id))
}

/// Looks each key up and inserts it when it is missing; gives the number of hits.
pub fn look_up(cache: &mut dyn SignatureCache, keys: &[u32], hash: impl Fn(u32) -> u64) -> u64 {
    let mut probes = Probes::new();
    let mut hashes = [0; BURST];
    let mut hits = 0;
    for burst in keys.chunks(BURST) {
        let hashes = &mut hashes[..burst.len()];
        hashes.iter_mut().zip(burst).for_each(|(to, &key)| *to = hash(key));
        cache.probe_batch(hashes, &mut probes);
        let mut slots = [MISS; BURST];
        for (i, &key) in burst.iter().enumerate() {
            let mut matches = probes.slots(i);
            slots[i] =
                matches.find(|&slot| cache.candidate(hashes[i], slot) == key).unwrap_or(MISS);
        }
        cache.commit_hits(hashes, &slots[..burst.len()], 0);
        hits += burst.len() as u64;
        for (i, &key) in burst.iter().enumerate().filter(|(i, _)| slots[*i] == MISS) {
            if cache.lookup(hashes[i], &mut |value| value == key).is_none() {
                cache.insert(hashes[i], key).expect("a slot holds any 32 bits");
                hits -= 1;
            }
        }
    }
    hits
}
