//! Maps and caches from crates.io, one key at a time: none of them has a lookup for bursts.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use overbank::random::Pcg32;

use super::{Key, Table};

fn each(keys: &[Key], values: &[u16], mut get: impl FnMut(&Key) -> Option<u16>) -> u32 {
    let mut found = 0;
    for (i, (key, &value)) in keys.iter().zip(values).enumerate() {
        found |= u32::from(get(key) == Some(value)) << i;
    }
    found
}

/// hashbrown with a bound; `keys` holds every key of the map once, so that a random one can be
/// evicted.
pub struct RandomMap {
    map: HashMap<Key, u16, FixedState>,
    keys: Vec<Key>,
    entries: u32,
    random: Pcg32,
}

impl RandomMap {
    /// Returns a map of at most `entries` entries.
    pub fn new(entries: u32) -> RandomMap {
        RandomMap {
            map: HashMap::with_capacity_and_hasher(entries as usize, FixedState::default()),
            keys: Vec::with_capacity(entries as usize),
            entries,
            random: Pcg32::new(1, 1),
        }
    }
}

impl Table for RandomMap {
    fn lookup(&mut self, keys: &[Key], values: &[u16]) -> u32 {
        each(keys, values, |key| self.map.get(key).copied())
    }

    fn insert(&mut self, key: &Key, value: u16) {
        if let Some(old) = self.map.get_mut(key) {
            *old = value;
            return;
        }
        if self.keys.len() < self.entries as usize {
            self.keys.push(*key);
        } else {
            let victim = &mut self.keys[self.random.below(self.entries) as usize];
            self.map.remove(victim);
            *victim = *key;
        }
        self.map.insert(*key, value);
    }
}

/// quick_cache for one thread.
pub struct Quick(quick_cache::unsync::Cache<Key, u16, quick_cache::UnitWeighter, FixedState>);

impl Quick {
    /// Returns a map of at most `entries` entries.
    pub fn new(entries: u32) -> Quick {
        Quick(quick_cache::unsync::Cache::with(
            entries as usize,
            u64::from(entries),
            quick_cache::UnitWeighter,
            FixedState::default(),
            Default::default(),
        ))
    }
}

impl Table for Quick {
    fn lookup(&mut self, keys: &[Key], values: &[u16]) -> u32 {
        each(keys, values, |key| self.0.get(key).copied())
    }

    fn insert(&mut self, key: &Key, value: u16) {
        self.0.insert(*key, value);
    }
}

/// moka for many threads.
pub struct Moka(moka::sync::Cache<Key, u16, FixedState>);

impl Moka {
    /// Returns a map of at most `entries` entries.
    pub fn new(entries: u32) -> Moka {
        let builder = moka::sync::Cache::builder().max_capacity(u64::from(entries));
        Moka(builder.build_with_hasher(FixedState::default()))
    }
}

impl Table for Moka {
    fn lookup(&mut self, keys: &[Key], values: &[u16]) -> u32 {
        each(keys, values, |key| self.0.get(key))
    }

    fn insert(&mut self, key: &Key, value: u16) {
        self.0.insert(*key, value);
    }
}
