//! Overbank's signature caches, used as in a data plane: probe, verify, commit.

use anyhow::Result;
use overbank::cache::{Config, Design, DynCache, Probes};
use overbank::hash::{Hash64, mix};

use super::{BURST, Key, Table};

struct Signatures {
    cache: Box<dyn DynCache>,
    probes: Probes,
}

/// Returns the cache of the design of that name.
pub fn make(name: &'static str, entries: u32) -> Result<Box<dyn Table>> {
    let design: Design = name.parse()?;
    let cache = design.build(&Config::entries(entries as usize).seed(1))?;
    Ok(Box::new(Signatures { cache, probes: Probes::new() }))
}

#[inline]
fn hash(key: &Key) -> Hash64 {
    let word = u128::from_ne_bytes(*key);
    Hash64::mix(word as u64 ^ mix((word >> 64) as u64))
}

impl Table for Signatures {
    fn lookup(&mut self, keys: &[Key], values: &[u16]) -> u32 {
        let mut hashes = [Hash64::default(); BURST];
        for (out, key) in hashes.iter_mut().zip(keys) {
            *out = hash(key);
        }
        let hashes = &hashes[..keys.len()];
        self.cache.probe_batch(hashes, &mut self.probes);
        let is_right = |i: usize, value: u32| value == u32::from(values[i]);
        let hits = self.probes.resolve(&*self.cache, hashes, is_right);
        self.cache.commit(hashes, &hits);
        hits.found().bits()
    }

    fn insert(&mut self, key: &Key, value: u16) {
        let inserted = self.cache.insert(hash(key), u32::from(value));
        debug_assert!(inserted.is_ok(), "16 bits fit into the layout");
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.cache.memory_bytes() as u64)
    }

    fn note(&self) -> String {
        format!("{}, huge pages: {}", self.cache.isa(), self.cache.huge_pages())
    }
}
