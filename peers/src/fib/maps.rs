//! Maps in Rust that threads can share, one key at a time: none has a lookup for bursts.
//!
//! An entry takes 8 bytes (6 and 2) in all of them, hashed by foldhash as one word. Work that can
//! be done once a burst (locking, pinning) is.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use anyhow::{Result, ensure};
use foldhash::fast::FixedState;
use parking_lot::RwLock;
use scc::hash_index::HashIndex;

use super::peer::{Lookup, Table, Tally};

/// An Ethernet address in 6 bytes.
#[derive(Clone, Copy)]
struct Mac([u16; 3]);

impl Mac {
    #[inline(always)]
    fn new(number: u64) -> Mac {
        Mac([number as u16, (number >> 16) as u16, (number >> 32) as u16])
    }

    #[inline(always)]
    fn word(self) -> u64 {
        let [a, b, c] = self.0.map(u64::from);
        a | b << 16 | c << 32
    }
}

impl PartialEq for Mac {
    #[inline(always)]
    fn eq(&self, other: &Mac) -> bool {
        self.word() == other.word()
    }
}

impl Eq for Mac {}

impl Hash for Mac {
    #[inline(always)]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.word());
    }
}

const _: () = assert!(size_of::<(Mac, u16)>() == 8);

/// A reader of a map; `M` knows how to look up a burst.
struct Each<M> {
    map: Arc<M>,
    keys: Vec<Mac>,
}

trait Burst: Send + Sync + 'static {
    /// Looks up each key and passes on what it finds.
    fn burst(&self, keys: &[Mac], found: impl FnMut(u16));
}

impl<M: Burst> Each<M> {
    fn reader(map: &Arc<M>) -> Box<dyn Lookup> {
        Box::new(Each { map: Arc::clone(map), keys: Vec::new() })
    }
}

impl<M: Burst> Lookup for Each<M> {
    fn prepare(&mut self, keys: &[u64]) {
        self.keys.clear();
        self.keys.extend(keys.iter().map(|&number| Mac::new(number)));
    }

    fn look_up(&mut self, _way: usize, burst: usize) -> Tally {
        let mut tally = Tally::default();
        for keys in self.keys.chunks(burst) {
            self.map.burst(keys, |value| {
                tally.hits += 1;
                tally.sum += u64::from(value);
            });
        }
        tally
    }
}

type Brown = hashbrown::HashMap<Mac, u16, FixedState>;

/// hashbrown behind a lock for readers and writers.
pub struct Locked(Arc<RwLock<Brown>>);

impl Locked {
    /// Returns a map with room for `room` entries.
    pub fn new(room: usize) -> Locked {
        let map = Brown::with_capacity_and_hasher(room, FixedState::default());
        Locked(Arc::new(RwLock::new(map)))
    }
}

impl Burst for RwLock<Brown> {
    fn burst(&self, keys: &[Mac], found: impl FnMut(u16)) {
        let map = self.read();
        keys.iter().filter_map(|key| map.get(key).copied()).for_each(found);
    }
}

impl Table for Locked {
    fn insert(&mut self, keys: &[u64], values: &[u16]) -> Result<()> {
        let mut map = self.0.write();
        for (&key, &value) in keys.iter().zip(values) {
            map.insert(Mac::new(key), value);
        }
        Ok(())
    }

    fn update(&mut self, keys: &[u64], values: &[u16]) {
        for (&key, &value) in keys.iter().zip(values) {
            self.0.write().insert(Mac::new(key), value);
        }
    }

    fn reader(&self) -> Box<dyn Lookup> {
        Each::reader(&self.0)
    }

    fn note(&self) -> String {
        let map = self.0.read();
        let buckets = (map.capacity() * 8 / 7).next_power_of_two();
        format!("{:.1} % of slots", 100.0 * map.len() as f64 / buckets as f64)
    }
}

type PapayaMap = papaya::HashMap<Mac, u16, FixedState>;

/// papaya.
pub struct Papaya(Arc<PapayaMap>);

impl Papaya {
    /// Returns a map with room for `room` entries.
    pub fn new(room: usize) -> Papaya {
        Papaya(Arc::new(PapayaMap::with_capacity_and_hasher(room, FixedState::default())))
    }
}

impl Burst for PapayaMap {
    fn burst(&self, keys: &[Mac], found: impl FnMut(u16)) {
        let map = self.pin();
        keys.iter().filter_map(|key| map.get(key).copied()).for_each(found);
    }
}

impl Table for Papaya {
    fn insert(&mut self, keys: &[u64], values: &[u16]) -> Result<()> {
        self.update(keys, values);
        Ok(())
    }

    fn update(&mut self, keys: &[u64], values: &[u16]) {
        let map = self.0.pin();
        for (&key, &value) in keys.iter().zip(values) {
            map.insert(Mac::new(key), value);
        }
    }

    fn reader(&self) -> Box<dyn Lookup> {
        Each::reader(&self.0)
    }
}

type SccIndex = HashIndex<Mac, u16, FixedState>;

/// scc's index for many readers.
pub struct Scc(Arc<SccIndex>);

impl Scc {
    /// Returns a map with room for `room` entries.
    pub fn new(room: usize) -> Scc {
        Scc(Arc::new(SccIndex::with_capacity_and_hasher(room, FixedState::default())))
    }
}

impl Burst for SccIndex {
    fn burst(&self, keys: &[Mac], found: impl FnMut(u16)) {
        let guard = scc::Guard::new();
        keys.iter().filter_map(|key| self.peek(key, &guard).copied()).for_each(found);
    }
}

impl Table for Scc {
    fn insert(&mut self, keys: &[u64], values: &[u16]) -> Result<()> {
        for (&key, &value) in keys.iter().zip(values) {
            let inserted = self.0.insert_sync(Mac::new(key), value);
            ensure!(inserted.is_ok(), "the key {key:012x} was there already");
        }
        Ok(())
    }

    fn update(&mut self, keys: &[u64], values: &[u16]) {
        for (&key, &value) in keys.iter().zip(values) {
            if let Some(mut entry) = self.0.get_sync(&Mac::new(key)) {
                entry.update(value);
            }
        }
    }

    fn reader(&self) -> Box<dyn Lookup> {
        Each::reader(&self.0)
    }

    fn note(&self) -> String {
        format!("{:.1} % of slots", 100.0 * self.0.len() as f64 / self.0.capacity() as f64)
    }
}
