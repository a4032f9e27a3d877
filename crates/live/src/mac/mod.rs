//! MAC learning for NORMAL: which station is behind which port.
//!
//! ```text
//!   worker ── source unknown or moved ──▶ bounded queue ──▶ core: learn, age, bound
//!     ▲  └─── source known: time of last use ──┐               │ writes
//!     └────── where is the destination? ◀── MacTable ◀─────────┘
//! ```
//!
//! Stations are known by VLAN and address. Group addresses are never learnt. One that shows up
//! behind another port has moved: the newest word counts. Those not heard of for the ageing time
//! go, and so do all of a port that goes down or away.
//!
//! **Bounds.** [`Limits::entries_max`] stations; when they are all there, a new one takes the place
//! of the one that was silent longest of the port with the most, among [`SAMPLE`] places, so that
//! one port with invented addresses cannot push out the stations of the others. Each worker reports
//! at most [`Limits::learn_per_s`] stations a second. All of it is counted in [`MacCounters`].

#[cfg(not(loom))]
mod learn;
mod table;

#[cfg(not(loom))]
pub use learn::{Learner, QUEUE_MAX, Sighting};
pub use table::MacTable;

#[cfg(not(loom))]
mod control {
    use super::table::{Entry, Key, MacTable, Place};
    use std::collections::HashMap;
    use std::sync::Arc;

    /// Places that are looked at to find a station that has to go.
    pub const SAMPLE: usize = 512;

    /// The bounds of learning.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Most stations.
        pub entries_max: usize,
        /// Seconds after which a silent station is forgotten.
        pub age_s: u32,
        /// Most reports of a worker in a second.
        pub learn_per_s: u32,
    }

    impl Default for Limits {
        /// 8192 stations, 300 seconds, 4096 reports a second.
        fn default() -> Self {
            Limits { entries_max: 8192, age_s: 300, learn_per_s: 4096 }
        }
    }

    /// What happened to the table.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub struct MacCounters {
        /// Stations that were new.
        pub learned: u64,
        /// Stations that were known behind another port.
        pub moved: u64,
        /// Stations forgotten because they were silent.
        pub aged: u64,
        /// Stations forgotten because their port went.
        pub flushed: u64,
        /// Stations that made room for new ones, because the table was full.
        pub evicted: u64,
    }

    /// A station.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MacEntry {
        /// VLAN, 0 without a tag.
        pub vlan: u16,
        /// Its address.
        pub mac: [u8; 6],
        /// Its port.
        pub port: u32,
        /// Seconds since it was heard of.
        pub idle_s: u32,
    }

    /// The writing side of the table; one of it exists.
    pub struct MacControl {
        table: Arc<MacTable>,
        limits: Limits,
        per_port: HashMap<u32, usize>,
        len: usize,
        counters: MacCounters,
    }

    impl MacControl {
        /// An empty table.
        pub fn new(limits: Limits, seed: u64) -> MacControl {
            MacControl {
                table: Arc::new(MacTable::new(limits.entries_max, seed)),
                limits,
                per_port: HashMap::new(),
                len: 0,
                counters: MacCounters::default(),
            }
        }

        /// What the workers read.
        pub fn table(&self) -> Arc<MacTable> {
            self.table.clone()
        }

        /// How many stations are known.
        pub fn len(&self) -> usize {
            self.len
        }

        /// Whether none is.
        pub fn is_empty(&self) -> bool {
            self.len == 0
        }

        /// What happened so far.
        pub fn counters(&self) -> MacCounters {
            self.counters
        }

        /// A station was heard of behind `port`.
        pub fn learn(&mut self, vlan: u16, mac: [u8; 6], port: u32, now_s: u32) {
            if mac[0] & 1 != 0 || self.limits.entries_max == 0 {
                return;
            }
            let key = Key::new(vlan, mac);
            let entry = Entry { key, port, used_s: now_s };
            if let Some((known, place)) = self.table.find(key) {
                if known != port {
                    self.counters.moved += 1;
                    self.count(known, -1);
                    self.count(port, 1);
                }
                self.table.write(place, Some(entry));
                return;
            }
            let full = self.len >= self.limits.entries_max;
            if full && !self.make_room(key) {
                return;
            }
            let empty = self.table.places(key).find(|&place| self.table.entry(place).is_none());
            // Two full buckets in a table that is not: the one that was silent longest goes.
            let place = empty.or_else(|| {
                let oldest = self.oldest(self.table.places(key).collect(), None)?;
                self.remove(oldest);
                self.counters.evicted += 1;
                Some(oldest)
            });
            let Some(place) = place else { return };
            self.table.write(place, Some(entry));
            self.count(port, 1);
            self.len += 1;
            self.counters.learned += 1;
        }

        /// Forgets one station of the port that has the most, as far as the sample shows.
        fn make_room(&mut self, key: Key) -> bool {
            let from = key.hash(0) as usize;
            let sample: Vec<Place> = self.table.all(from).take(SAMPLE).collect();
            let largest = self.per_port.iter().max_by_key(|(port, n)| (**n, **port));
            let largest = largest.map(|(port, _)| *port);
            let victim = self.oldest(sample.clone(), largest);
            let victim = victim.or_else(|| self.oldest(sample, None));
            let victim = victim.or_else(|| self.oldest(self.table.all(0).collect(), None));
            let Some(victim) = victim else { return false };
            self.remove(victim);
            self.counters.evicted += 1;
            true
        }

        fn oldest(&self, places: Vec<Place>, port: Option<u32>) -> Option<Place> {
            let entries = places.into_iter().filter_map(|p| Some((p, self.table.entry(p)?)));
            let wanted = entries.filter(|(_, entry)| port.is_none_or(|port| entry.port == port));
            wanted.min_by_key(|(_, entry)| entry.used_s).map(|(place, _)| place)
        }

        fn remove(&mut self, place: Place) {
            if let Some(entry) = self.table.entry(place) {
                self.table.write(place, None);
                self.count(entry.port, -1);
                self.len -= 1;
            }
        }

        fn count(&mut self, port: u32, by: isize) {
            let n = self.per_port.entry(port).or_default();
            *n = n.saturating_add_signed(by);
            if *n == 0 {
                self.per_port.remove(&port);
            }
        }

        fn remove_if(&mut self, gone: impl Fn(&Entry) -> bool) -> u64 {
            let places = self.table.all(0);
            let places: Vec<Place> =
                places.filter(|&p| self.table.entry(p).is_some_and(|e| gone(&e))).collect();
            for &place in &places {
                self.remove(place);
            }
            places.len() as u64
        }

        /// Forgets who was silent for too long; to be called about once a second.
        pub fn expire(&mut self, now_s: u32) {
            let age_s = self.limits.age_s;
            self.counters.aged += self.remove_if(|e| now_s.saturating_sub(e.used_s) >= age_s);
        }

        /// Forgets all stations of a port.
        pub fn flush_port(&mut self, port: u32) {
            self.counters.flushed += self.remove_if(|e| e.port == port);
        }

        /// All stations, by VLAN and address.
        pub fn entries(&self, now_s: u32) -> Vec<MacEntry> {
            let entries = self.table.all(0).filter_map(|place| self.table.entry(place));
            let mut entries: Vec<MacEntry> = entries
                .map(|e| MacEntry {
                    vlan: e.key.vlan(),
                    mac: e.key.mac(),
                    port: e.port,
                    idle_s: now_s.saturating_sub(e.used_s),
                })
                .collect();
            entries.sort_unstable_by_key(|e| (e.vlan, e.mac));
            entries
        }
    }
}

#[cfg(not(loom))]
pub use control::{Limits, MacControl, MacCounters, MacEntry, SAMPLE};

#[cfg(all(test, not(loom)))]
mod tests;
