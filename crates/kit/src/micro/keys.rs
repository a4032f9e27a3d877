//! The keys of a measurement: pre-generated, chunk by chunk, outside the clock.
//!
//! A key is a flow's id; what a table gets is a hash of it that depends on the seed, and, as the
//! value to insert, the id's low 16 bits. A lookup is *verified* by comparing the value found with
//! those bits: the cheapest check that still separates flows (a wrong one passes it
//! once in 2¹⁶ fingerprint matches, so once in about 2³² / candidates lookups). Fetching an entry
//! and comparing its key costs more in a switch; `replay` measures that.

use crate::workload::FlowStream;
use overbank::hash::{Hash64, mix};

/// Hashes of keys, and for each the value that belongs to it. The default has one fixed hash
/// function, [`Keys::seeded`] one of many.
#[derive(Clone, Default)]
pub struct Keys {
    /// `mix(salt ^ id)`.
    pub hashes: Vec<Hash64>,
    /// Low 16 bits of the id.
    pub values: Vec<u16>,
    ids: Vec<u32>,
    /// `mix(seed)`; 0 by default.
    salt: u64,
}

impl Keys {
    /// Starts without keys; they will be hashed as `seed` says.
    pub fn seeded(seed: u64) -> Keys {
        Keys { salt: mix(seed), ..Keys::default() }
    }

    /// Replaces the keys by the next `count` of `stream`.
    pub fn draw(&mut self, stream: &mut FlowStream, count: usize) {
        self.ids.resize(count, 0);
        stream.fill(&mut self.ids);
        self.hash();
    }

    /// Replaces the keys by these flows.
    pub fn set(&mut self, ids: impl IntoIterator<Item = u32>) {
        self.ids.clear();
        self.ids.extend(ids);
        self.hash();
    }

    /// Replaces the keys by these flows with their hashes.
    pub fn set_hashed(&mut self, flows: impl IntoIterator<Item = (u32, Hash64)>) {
        (self.ids, self.hashes) = flows.into_iter().unzip();
        self.values.clear();
        self.values.extend(self.ids.iter().map(|&id| id as u16));
    }

    fn hash(&mut self) {
        self.hashes.clear();
        self.hashes.extend(self.ids.iter().map(|&id| Hash64::mix(self.salt ^ u64::from(id))));
        self.values.clear();
        self.values.extend(self.ids.iter().map(|&id| id as u16));
    }

    pub fn ids(&self) -> &[u32] {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_flow() {
        let mut stream = FlowStream::uniform(1 << 20, 3).unwrap();
        let mut keys = Keys::default();
        keys.draw(&mut stream.clone(), 500);
        let mut again = vec![0; 500];
        stream.fill(&mut again);
        assert_eq!(keys.ids(), again);
        for (i, &id) in again.iter().enumerate() {
            assert_eq!((keys.hashes[i], keys.values[i]), (Hash64::mix(u64::from(id)), id as u16));
        }
        let mut hashed = Keys::default();
        hashed.set_hashed(again.iter().map(|&id| (id, Hash64::mix(u64::from(id)))));
        let same = |a: &Keys, b: &Keys| {
            assert_eq!((a.ids(), &a.hashes, &a.values), (b.ids(), &b.hashes, &b.values));
        };
        same(&hashed, &keys);
        let mut set = Keys::default();
        set.set(again.iter().copied());
        same(&set, &keys);
    }

    /// Other seeds collide elsewhere; the flows and their values stay.
    #[test]
    fn the_seed_chooses_the_hash_function() {
        let of = |mut keys: Keys| {
            keys.set(0..100);
            keys
        };
        let (one, again, two) = (of(Keys::seeded(1)), of(Keys::seeded(1)), of(Keys::seeded(2)));
        assert_eq!(one.hashes, again.hashes);
        assert!(one.hashes.iter().all(|hash| !two.hashes.contains(hash)));
        assert_eq!((one.ids(), &one.values), (two.ids(), &two.values));
        assert_eq!(one.hashes[7], Hash64::mix(mix(1) ^ 7));
    }
}
