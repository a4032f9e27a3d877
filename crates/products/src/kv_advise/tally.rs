//! How often each key was read and written, in bounded memory.
//!
//! Exact up to `keys_max` distinct keys. Beyond, a space-saving list: when it is full, the half
//! with the fewest accesses is dropped, and a key that comes later may have been among them. Its
//! counts are then too low by at most `missed`, the most accesses that a dropped key had. Distinct
//! keys are estimated by the 1,024 smallest hashes, within about 3 %.
//!
//! Memory: about 100 bytes a key, and its name up to [`NAME_MAX`] bytes.

use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};

/// Bytes of a name that are kept.
pub const NAME_MAX: usize = 128;
/// Smallest hashes that are kept.
const LEAST: usize = 1024;

/// What was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A read that a cache could answer.
    Read,
    OtherRead,
    Write,
}

/// A key and its accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The start of its name.
    pub name: Box<[u8]>,
    /// Bytes of the name that are not kept.
    pub cut: usize,
    pub reads: u64,
    pub other_reads: u64,
    pub writes: u64,
    /// Most accesses that were not counted.
    pub missed: u64,
}

impl Counted {
    /// Returns all accesses.
    pub fn accesses(&self) -> u64 {
        self.reads + self.other_reads + self.writes
    }
}

/// What makes hashes of names differ from those of others.
pub type Secret = [u8; 32];

/// See the module.
#[derive(Debug)]
pub struct Tally {
    keys: HashMap<u64, Counted>,
    keys_max: usize,
    /// Most accesses of a key that was dropped.
    floor: u64,
    /// What names are hashed with, instead of being kept.
    secret: Option<Secret>,
    least: BTreeSet<u64>,
    accesses: u64,
    reads: u64,
}

impl Tally {
    /// Returns an empty tally of at least two keys.
    pub fn new(keys_max: usize, secret: Option<Secret>) -> Tally {
        Tally {
            keys: HashMap::new(),
            keys_max: keys_max.max(2),
            floor: 0,
            secret,
            least: BTreeSet::new(),
            accesses: 0,
            reads: 0,
        }
    }

    /// Counts an access to a key of this hash.
    pub fn add(&mut self, hash: u64, name: &[u8], done: Done) {
        self.accesses += 1;
        self.reads += u64::from(done == Done::Read);
        if !self.keys.contains_key(&hash) {
            self.arrived(hash);
            if self.keys.len() >= self.keys_max {
                self.shrink();
            }
        }
        let (missed, secret) = (self.floor, &self.secret);
        let counted = self.keys.entry(hash).or_insert_with(|| {
            if let Some(secret) = secret {
                return Counted { name: hashed(secret, name), missed, ..Counted::default() };
            }
            let kept = name.len().min(NAME_MAX);
            let cut = name.len() - kept;
            Counted { name: name[..kept].into(), cut, missed, ..Counted::default() }
        });
        *match done {
            Done::Read => &mut counted.reads,
            Done::OtherRead => &mut counted.other_reads,
            Done::Write => &mut counted.writes,
        } += 1;
    }

    fn arrived(&mut self, hash: u64) {
        let is_small = self.least.last().is_none_or(|last| hash < *last);
        if self.least.len() < LEAST || is_small {
            self.least.insert(hash);
            if self.least.len() > LEAST {
                self.least.pop_last();
            }
        }
    }

    /// Drops the half with the fewest accesses.
    fn shrink(&mut self) {
        let most = |counted: &Counted| counted.accesses() + counted.missed;
        let mut all: Vec<(u64, u64)> =
            self.keys.iter().map(|(hash, counted)| (most(counted), *hash)).collect();
        let dropped = all.len().div_ceil(2);
        // Of keys that are alike, those with the smaller hashes: the same ones in each run.
        let (less, last, _) = all.select_nth_unstable(dropped - 1);
        self.floor = last.0;
        self.keys.remove(&last.1);
        for (_, hash) in less.iter() {
            self.keys.remove(hash);
        }
    }

    /// Returns whether all counts are exact.
    pub fn is_exact(&self) -> bool {
        self.floor == 0
    }

    /// Returns the most accesses that the count of a key lacks.
    pub fn missed(&self) -> u64 {
        self.floor
    }

    /// Returns the number of different keys, estimated unless counts are exact.
    pub fn distinct(&self) -> u64 {
        match self.least.last() {
            Some(last) if !self.is_exact() && self.least.len() == LEAST => {
                ((LEAST - 1) as f64 / (*last as f64 / u64::MAX as f64)) as u64
            }
            _ => self.keys.len() as u64,
        }
    }

    /// Returns the accesses of all keys.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Returns the reads of all keys that a cache could answer.
    pub fn read_count(&self) -> u64 {
        self.reads
    }

    /// Returns the keys with the most accesses, the hottest first.
    pub fn hottest(&self, most: usize) -> Vec<&Counted> {
        let mut all: Vec<&Counted> = self.keys.values().collect();
        let by = |a: &&Counted, b: &&Counted| {
            b.accesses().cmp(&a.accesses()).then_with(|| a.name.cmp(&b.name))
        };
        if most < all.len() {
            all.select_nth_unstable_by(most, by);
            all.truncate(most);
        }
        all.sort_unstable_by(by);
        all
    }

    /// Returns the reads of each kept key that a cache could answer, most first, without zeros.
    pub fn reads(&self) -> Vec<u32> {
        let read = self.keys.values().map(|counted| u32::try_from(counted.reads));
        let mut all: Vec<u32> =
            read.map(|reads| reads.unwrap_or(u32::MAX)).filter(|reads| *reads > 0).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all
    }
}

/// Returns the keyed hash of a name: 16 digits.
fn hashed(secret: &Secret, name: &[u8]) -> Box<[u8]> {
    let digest = Sha256::new().chain_update(secret).chain_update(name).finalize();
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    digits.into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    fn add(tally: &mut Tally, key: u64, done: Done) {
        let name = key.to_string();
        tally.add(xxh3_64(name.as_bytes()), name.as_bytes(), done);
    }

    proptest! {
        /// Counts are exact, or too low by at most what is said.
        #[test]
        fn a_count_is_within_its_bound(keys in prop::collection::vec(0..40u64, 0..500), most in 2..60usize) {
            let mut tally = Tally::new(most, None);
            let mut exact = HashMap::<u64, u64>::new();
            for key in keys {
                // The lower, the more often.
                let key = key * key / 40;
                add(&mut tally, key, Done::Read);
                *exact.entry(key).or_default() += 1;
            }
            for counted in tally.hottest(usize::MAX) {
                let key: u64 = std::str::from_utf8(&counted.name).unwrap().parse().unwrap();
                prop_assert!(counted.reads <= exact[&key]);
                prop_assert!(exact[&key] <= counted.reads + counted.missed);
            }
            prop_assert!(tally.keys.len() <= most);
            for (key, count) in &exact {
                let is_there = tally.keys.contains_key(&xxh3_64(key.to_string().as_bytes()));
                prop_assert!(is_there || *count <= tally.missed());
            }
            if exact.len() < most {
                prop_assert!(tally.is_exact() && tally.distinct() == exact.len() as u64);
            }
        }
    }

    #[test]
    fn hot_keys_survive_many_cold_ones() {
        let mut tally = Tally::new(1000, None);
        for cold in 0..50_000 {
            add(&mut tally, 1_000_000 + cold, Done::Write);
            add(&mut tally, cold % 10, Done::Read);
        }
        let hottest = tally.hottest(10);
        assert!(hottest.iter().all(|counted| counted.reads == 5000 && counted.missed == 0));
        assert!(!tally.is_exact() && tally.missed() < 200, "{}", tally.missed());
        let off = tally.distinct() as f64 / 50_010.0 - 1.0;
        assert!(off.abs() < 0.1, "{off}");
    }

    #[test]
    fn long_names_are_cut() {
        let mut tally = Tally::new(10, None);
        tally.add(1, &[b'k'; 1000], Done::OtherRead);
        let counted = tally.hottest(1)[0];
        assert_eq!((counted.name.len(), counted.cut, counted.accesses()), (128, 872, 1));
    }

    #[test]
    fn hashed_names_tell_nothing_and_differ() {
        let name = |secret: u8, name: &[u8]| {
            let mut tally = Tally::new(10, Some([secret; 32]));
            tally.add(1, name, Done::Write);
            tally.hottest(1)[0].name.clone()
        };
        assert_eq!(name(1, b"key").len(), 16);
        assert_eq!(name(1, b"key"), name(1, b"key"));
        assert!(name(1, b"key") != name(2, b"key") && name(1, b"key") != name(1, b"kex"));
    }
}
