//! Overbank's signature caches, used as in a data plane: probe, verify, commit.

use anyhow::Result;
use overbank::cache::{Design, LayoutKind, MISS, Probes, SignatureCache};
use overbank::hash::mix;

use super::{BURST, Key, Table};

struct Signatures {
    cache: Box<dyn SignatureCache>,
    probes: Probes,
}

/// Returns the cache of the design of that name.
pub fn make(name: &'static str, entries: u32) -> Result<Box<dyn Table>> {
    let design: Design = name.parse()?;
    let cache = design.build(entries as usize, LayoutKind::Fp16V16, 1, None)?;
    Ok(Box::new(Signatures { cache, probes: Probes::new() }))
}

#[inline]
fn hash(key: &Key) -> u64 {
    let word = u128::from_ne_bytes(*key);
    mix(word as u64 ^ mix((word >> 64) as u64))
}

impl Table for Signatures {
    fn lookup(&mut self, keys: &[Key], values: &[u16]) -> u32 {
        let (mut hashes, mut slots) = ([0; BURST], [MISS; BURST]);
        for (out, key) in hashes.iter_mut().zip(keys) {
            *out = hash(key);
        }
        let hashes = &hashes[..keys.len()];
        let (mut found, mut refused) = (0, 0);
        self.cache.probe_batch(hashes, &mut self.probes);
        for (i, &value) in values.iter().enumerate() {
            let want = u32::from(value);
            if self.probes.mask[i] != 0 && self.probes.value[i] == want {
                slots[i] = self.probes.mask[i].trailing_zeros() as u8;
                found |= 1 << i;
                continue;
            }
            for slot in self.probes.slots(i) {
                if self.cache.candidate(hashes[i], slot) == want {
                    slots[i] = slot;
                    found |= 1 << i;
                    break;
                }
                refused += 1;
            }
        }
        self.cache.commit_hits(hashes, &slots[..keys.len()], refused);
        found
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
