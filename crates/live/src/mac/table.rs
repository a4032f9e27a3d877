//! Learnt addresses as the workers read them: without locks, beside the one thread that writes.
//!
//! ```text
//!   bucket, two cache lines    │ 7 keys of 64 bits │ version │ 7 ports │ 7 times of last use │
//!   key                        │ used 1 │ 0 │ VLAN 12 bits │ address 48 bits │   0: empty
//! ```
//!
//! Two buckets are possible for a key; both are searched. Each is guarded by a version (sequence
//! lock): odd while the writer is at it, so that a reader never pairs the key of one station with
//! the port of another. A reader that meets a writer tries again, [`TRIES`] times; after that, and
//! for keys that are not there, the answer is "unknown", which floods and is never wrong.
//!
//! Only the time of last use is written by workers: a plain store, at most once a second for each
//! station and worker. It may hit a station that has just taken the slot, which then lives a little
//! longer.
//!
//! Cost: two to four cache lines for a lookup. Bytes: 128 for 7 stations. Panics: none.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, pause};

/// Slots of a bucket.
pub(crate) const WAYS: usize = 7;
/// How often a reader tries to catch a bucket at rest.
const TRIES: usize = 8;
/// Marks a slot that is in use.
const USED: u64 = 1 << 63;

/// A station's VLAN and address in one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    pub(crate) fn new(vlan: u16, mac: [u8; 6]) -> Key {
        let mac = mac.into_iter().fold(0, |word, byte| word << 8 | u64::from(byte));
        Key(USED | u64::from(vlan & 0xfff) << 48 | mac)
    }

    pub(crate) fn vlan(self) -> u16 {
        (self.0 >> 48) as u16 & 0xfff
    }

    pub(crate) fn mac(self) -> [u8; 6] {
        let bytes = self.0.to_be_bytes();
        [bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]
    }

    /// Well-mixed bits; the seed keeps strangers from filling one bucket on purpose.
    pub(crate) fn hash(self, seed: u64) -> u64 {
        let product = u128::from(self.0 ^ seed) * u128::from(0x9e37_79b9_7f4a_7c15 ^ seed << 1);
        let folded = product as u64 ^ (product >> 64) as u64;
        folded.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ folded >> 32
    }
}

/// A slot: bucket and place in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) bucket: usize,
    pub(crate) way: usize,
}

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) port: u32,
    /// Seconds of the switch's clock.
    pub(crate) used_s: u32,
}

#[repr(align(128))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    version: AtomicU32,
    ports: [AtomicU32; WAYS],
    used_s: [AtomicU32; WAYS],
}

impl Bucket {
    fn new() -> Bucket {
        Bucket {
            keys: std::array::from_fn(|_| AtomicU64::new(0)),
            version: AtomicU32::new(0),
            ports: std::array::from_fn(|_| AtomicU32::new(0)),
            used_s: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Way and port of a key.
    #[inline]
    fn find(&self, key: Key) -> Option<(usize, u32)> {
        for _ in 0..TRIES {
            // Acquire: pairs with the writer's Release at the end, so that what follows is at least
            // as new as this version.
            let before = self.version.load(Ordering::Acquire);
            if before & 1 == 0 {
                let way = self.keys.iter().position(|k| k.load(Ordering::Relaxed) == key.0);
                let found = way.map(|way| (way, self.ports[way].load(Ordering::Relaxed)));
                // Acquire fence: pairs with the Release fence of the writer. Had one of the loads
                // above seen a newer value, the load below would see its odd version.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == before {
                    return found;
                }
            }
            pause();
        }
        None
    }

    /// Writes a slot; one thread only.
    fn write(&self, way: usize, key: u64, port: u32, used_s: u32) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // Release fence: pairs with the readers' Acquire fence.
        fence(Ordering::Release);
        self.keys[way].store(key, Ordering::Relaxed);
        self.ports[way].store(port, Ordering::Relaxed);
        self.used_s[way].store(used_s, Ordering::Relaxed);
        // Release: pairs with the Acquire of `find`.
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// The table; see the module.
pub struct MacTable {
    buckets: Box<[Bucket]>,
    seed: u64,
}

impl MacTable {
    /// Room for `stations` with a third to spare, at least.
    pub(crate) fn new(stations: usize, seed: u64) -> MacTable {
        let buckets = (stations * 3 / 2).div_ceil(WAYS).max(2).next_power_of_two();
        MacTable { buckets: (0..buckets).map(|_| Bucket::new()).collect(), seed }
    }

    #[inline]
    fn homes(&self, key: Key) -> [usize; 2] {
        let hash = key.hash(self.seed);
        let mask = self.buckets.len() - 1;
        [hash as usize & mask, (hash >> 32) as usize & mask]
    }

    /// Port and place of a station.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<(u32, Place)> {
        self.homes(key).into_iter().find_map(|bucket| {
            let (way, port) = self.buckets[bucket].find(key)?;
            Some((port, Place { bucket, way }))
        })
    }

    /// The port behind which a station is.
    #[inline]
    pub fn lookup(&self, vlan: u16, mac: [u8; 6]) -> Option<u32> {
        self.find(Key::new(vlan, mac)).map(|found| found.0)
    }

    /// Whether a station is known behind `port`; notes that it was heard of.
    #[inline]
    pub(crate) fn refresh(&self, key: Key, port: u32, now_s: u32) -> bool {
        match self.find(key) {
            Some((known, place)) if known == port => {
                let used_s = &self.buckets[place.bucket].used_s[place.way];
                if used_s.load(Ordering::Relaxed) != now_s {
                    used_s.store(now_s, Ordering::Relaxed);
                }
                true
            }
            _ => false,
        }
    }

    /// What is at a place; for the writer.
    pub(crate) fn entry(&self, place: Place) -> Option<Entry> {
        let bucket = &self.buckets[place.bucket];
        let key = bucket.keys[place.way].load(Ordering::Relaxed);
        (key != 0).then(|| Entry {
            key: Key(key),
            port: bucket.ports[place.way].load(Ordering::Relaxed),
            used_s: bucket.used_s[place.way].load(Ordering::Relaxed),
        })
    }

    /// The places that a key may have, those of the emptier bucket first.
    pub(crate) fn places(&self, key: Key) -> impl Iterator<Item = Place> {
        let homes = self.homes(key);
        homes.into_iter().flat_map(|bucket| (0..WAYS).map(move |way| Place { bucket, way }))
    }

    /// Every place, from bucket `from` on and around.
    pub(crate) fn all(&self, from: usize) -> impl Iterator<Item = Place> {
        let (n, mask) = (self.buckets.len(), self.buckets.len() - 1);
        (0..n).flat_map(move |i| (0..WAYS).map(move |way| Place { bucket: (from + i) & mask, way }))
    }

    /// Writes or (`None`) empties a place; one thread only.
    pub(crate) fn write(&self, place: Place, entry: Option<Entry>) {
        let bucket = &self.buckets[place.bucket];
        match entry {
            Some(Entry { key, port, used_s }) => bucket.write(place.way, key.0, port, used_s),
            None => bucket.write(place.way, 0, 0, 0),
        }
    }

    /// Bytes of the table.
    pub fn memory_bytes(&self) -> usize {
        std::mem::size_of_val(&*self.buckets)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// One station leaves a slot and another takes it: no reader sees the old one's address with
    /// the new one's port, or the other way round.
    #[test]
    fn mac_table_never_mixes_two_stations() {
        loom::model(|| {
            let bucket = Arc::new(Bucket::new());
            bucket.write(0, 11, 1, 0);
            let writer = {
                let bucket = bucket.clone();
                thread::spawn(move || bucket.write(0, 22, 2, 0))
            };
            if let Some(found) = bucket.find(Key(11)) {
                assert_eq!(found, (0, 1));
            }
            writer.join().unwrap();
            assert_eq!(bucket.find(Key(22)), Some((0, 2)));
            assert_eq!(bucket.find(Key(11)), None);
        });
    }
}
