//! A table of any geometry with random eviction, fed keys one by one: what does it hold?
//!
//! With uniform keys the share of the working set that is held is the hit rate of the next lookup,
//! without the noise of drawing it. Keys are numbers from 0 up; a key's hash depends on it and on
//! the seed, and is the same for every geometry.
//!
//! Cost: one dynamic call per slice of keys; the lookups themselves are those of the real tables.

use crate::models::blp_held;
use crate::workload::FlowStream;
use overbank::cache::{
    Blp, Config, Cuckoo, Design, Error, FlowCache, Fp16V32, Geometry, GeometryKind, LayoutKind,
    PolicyKind, Random, SetAssoc, SignatureCache,
};
use overbank::hash::mix;

/// A table and how its keys are hashed.
pub struct KeyedTable {
    table: Box<dyn Keyed>,
    seed: u64,
}

impl KeyedTable {
    /// An empty one of at least `entries` slots.
    pub fn new(kind: GeometryKind, entries: usize, seed: u64) -> Result<KeyedTable, Error> {
        let config = Config::entries(entries).seed(seed);
        Ok(KeyedTable { table: table(kind, &config)?, seed })
    }

    /// Looks each key up and inserts it when it is missing; gives the number of hits.
    pub fn lookups(&mut self, keys: &[u32]) -> u64 {
        self.table.lookups(keys, self.seed)
    }

    /// So many lookups of the keys of a stream, in order; gives the number of hits.
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

    /// Keys held.
    pub fn held(&self) -> usize {
        self.table.len()
    }

    /// The most of the keys below `keys` that can be held at a time.
    ///
    /// Exact where a key's buckets lie side by side. For cuckoo-lite an upper bound: all keys, or
    /// every bucket as full as the keys that may lie in it allow, whichever is less.
    pub fn most(&self, keys: u32) -> u64 {
        self.table.most(keys, self.seed)
    }
}

/// The hash of a key, for all geometries.
#[inline(always)]
fn hash(key: u32, seed: u64) -> u64 {
    mix(mix(seed) ^ u64::from(key))
}

trait Keyed: Send {
    fn lookups(&mut self, keys: &[u32], seed: u64) -> u64;
    fn len(&self) -> usize;
    fn most(&self, keys: u32, seed: u64) -> u64;
}

impl<G: Geometry> Keyed for FlowCache<G, Random, Fp16V32> {
    fn lookups(&mut self, keys: &[u32], seed: u64) -> u64 {
        let mut hits = 0;
        for &key in keys {
            let hash = hash(key, seed);
            if self.lookup(hash, |value| value == key).is_some() {
                hits += 1;
            } else {
                self.insert(hash, key);
            }
        }
        hits
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn most(&self, keys: u32, seed: u64) -> u64 {
        if !G::ADJACENT {
            let mut wanted = vec![0u32; self.buckets()];
            for key in 0..keys {
                (0..G::CHOICES).for_each(|choice| {
                    wanted[G::bucket(hash(key, seed), self.buckets(), choice)] += 1;
                });
            }
            let filled = wanted.iter().map(|&w| u64::from(w.min(G::SLOTS as u32))).sum();
            return u64::from(keys).min(filled);
        }
        let mut arrivals = vec![0u32; self.buckets()];
        (0..keys).for_each(|key| arrivals[G::bucket(hash(key, seed), self.buckets(), 0)] += 1);
        blp_held(G::CHOICES as u32, G::SLOTS as u32, arrivals)
    }
}

/// Geometries without a name here: called by name, and with a coarse bound.
impl Keyed for Box<dyn SignatureCache> {
    fn lookups(&mut self, keys: &[u32], seed: u64) -> u64 {
        let mut hits = 0;
        for &key in keys {
            let hash = hash(key, seed);
            if self.lookup(hash, &mut |value| value == key).is_some() {
                hits += 1;
            } else {
                self.insert(hash, key).expect("the layout holds any 32 bits");
            }
        }
        hits
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn most(&self, keys: u32, _: u64) -> u64 {
        u64::from(keys).min(self.capacity() as u64)
    }
}

fn table(kind: GeometryKind, config: &Config) -> Result<Box<dyn Keyed>, Error> {
    fn new<G: Geometry>(config: &Config) -> Result<Box<dyn Keyed>, Error> {
        Ok(Box::new(FlowCache::<G, Random, Fp16V32>::new(config)?))
    }
    match kind {
        GeometryKind::Set4 => new::<SetAssoc<4>>(config),
        GeometryKind::Set8 => new::<SetAssoc<8>>(config),
        GeometryKind::Set16 => new::<SetAssoc<16>>(config),
        GeometryKind::Cuckoo2x4 => new::<Cuckoo<2, 4>>(config),
        GeometryKind::Cuckoo2x8 => new::<Cuckoo<2, 8>>(config),
        GeometryKind::Cuckoo2x16 => new::<Cuckoo<2, 16>>(config),
        GeometryKind::Blp2x4 => new::<Blp<2, 4>>(config),
        GeometryKind::Blp2x8 => new::<Blp<2, 8>>(config),
        GeometryKind::Blp2x16 => new::<Blp<2, 16>>(config),
        GeometryKind::Blp4x4 => new::<Blp<4, 4>>(config),
        #[allow(unreachable_patterns)] // Unless every geometry is above.
        other => {
            let design = Design::new(other, PolicyKind::Random);
            let design = design.expect("random eviction works on every geometry");
            Ok(Box::new(design.build_from(config, LayoutKind::Fp16V32)?))
        }
    }
}
