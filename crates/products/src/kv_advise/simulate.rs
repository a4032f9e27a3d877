//! What a proxy of some size would have answered: its rules on the commands in their order.
//!
//! ```text
//!   read ─▶ cached? ── no ──▶ hot? ── yes ──▶ promoted, or displaces a colder one ─▶ fill
//!             └ yes ─▶ filled? ── no ──▶ the server answers, and a fill beside it
//!                        └ yes ─▶ answered
//!   write ─▶ unfilled         close ─▶ all unfilled
//! ```
//!
//! The rules and figures are the proxy's ([`overbank_kv::proxy::heat`]). What differs: counts are
//! exact where it has sketches; a fill takes no time; a key that waits for a colder one is compared
//! at each of its reads, not every 10 ms; the bound of bytes is never met, as sizes of values are
//! unknown; a value lives until a write or `--max-age`, as expiry is unknown.
//!
//! Cost: a hash look-up for each key and size. Memory: about 150 bytes an entry, and 24 for each
//! key of a second, of which [`COUNTED_MAX`] are counted; others stay cold.

use overbank::random::Pcg32;
use overbank_kv::proxy::heat::{
    BARRED, CANDIDATES, COUNTING, EPOCH, HOTTER_LEAST, HOTTER_PERCENT, REPORTS, STAYS, WAITING_MAX,
    WRITES_EPOCHS, WRITES_PERCENT,
};
use overbank_kv::proxy::slots::VARIANTS_MAX;
use std::collections::HashMap;

/// Keys that are counted in a second.
pub const COUNTED_MAX: usize = 1 << 20;
/// Default of the proxy's `--max-age`, in nanoseconds.
const MAX_AGE: u64 = 60_000_000_000;

/// Reads of keys in this second.
#[derive(Debug)]
pub(super) struct Counts {
    reads: HashMap<u64, u32>,
    most: usize,
}

impl Counts {
    fn add(&mut self, key: u64) {
        let is_room = self.reads.len() < self.most;
        match self.reads.get_mut(&key) {
            Some(count) => *count += 1,
            None if is_room => drop(self.reads.insert(key, 1)),
            None => {}
        }
    }

    fn get(&self, key: u64) -> u32 {
        self.reads.get(&key).copied().unwrap_or(0)
    }
}

/// What a size has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    pub hits: u64,
    pub fills: u64,
    pub promoted: u64,
    pub evicted: u64,
}

/// A cached key.
#[derive(Debug)]
struct Slot {
    key: u64,
    /// Forms of requests that have a reply, and since when.
    forms: Vec<(u64, u64)>,
    generation: u64,
    promoted_in: u64,
    /// Times that a value was written in this second, and seconds with too many of them.
    writes: u32,
    written: u8,
}

/// A proxy of one size.
#[derive(Debug)]
struct Proxy {
    entries: usize,
    slots: Vec<Slot>,
    places: HashMap<u64, usize>,
    barred: HashMap<u64, u64>,
    /// Keys that were written in this second, or too often in the last.
    written: Vec<u64>,
    random: Pcg32,
    threshold: u32,
    /// Seconds before it may fall.
    stays: u32,
    reports: u64,
    generation: u64,
    answered: Answered,
}

impl Proxy {
    fn new(entries: usize, seed: u64) -> Proxy {
        Proxy {
            entries,
            slots: Vec::new(),
            places: HashMap::new(),
            barred: HashMap::new(),
            written: Vec::new(),
            random: Pcg32::new(seed, 1),
            threshold: u32::from(COUNTING.threshold),
            stays: 0,
            reports: 0,
            generation: 0,
            answered: Answered::default(),
        }
    }

    /// Reads a key; returns whether its value is there.
    fn read(&mut self, (now, epoch): (u64, u64), key: u64, form: u64, counts: &Counts) -> bool {
        let Some(slot) = self.places.get(&key).and_then(|&at| self.slots.get_mut(at)) else {
            self.missed((now, epoch), key, form, counts);
            return false;
        };
        if slot.generation != self.generation {
            slot.generation = self.generation;
            slot.forms.clear();
        }
        match slot.forms.iter_mut().find(|(other, _)| *other == form) {
            Some((_, filled)) if now.saturating_sub(*filled) < MAX_AGE => return true,
            Some((_, filled)) => *filled = now,
            None => {
                if slot.forms.len() >= VARIANTS_MAX {
                    slot.forms.remove(0);
                }
                slot.forms.push((form, now));
            }
        }
        self.answered.fills += 1;
        false
    }

    /// Promotes a key that is hot.
    fn missed(&mut self, (now, epoch): (u64, u64), key: u64, form: u64, counts: &Counts) {
        let count = counts.get(key);
        self.reports += u64::from(count == self.threshold);
        if count < self.threshold || self.barred.get(&key).is_some_and(|until| now < *until) {
            return;
        }
        if self.slots.len() >= self.entries {
            let Some((coldest, cold)) = self.coldest(epoch, counts) else { return };
            let least = u64::from(cold) * (100 + HOTTER_PERCENT) + 100 * HOTTER_LEAST;
            if u64::from(count) * 100 <= least {
                return;
            }
            self.evict(coldest);
        }
        self.places.insert(key, self.slots.len());
        let (forms, generation) = (vec![(form, now)], self.generation);
        self.slots.push(Slot { key, forms, generation, promoted_in: epoch, writes: 0, written: 0 });
        self.answered.promoted += 1;
        self.answered.fills += 1;
    }

    /// Returns the coldest of some that have been cached since another second, and its reads.
    fn coldest(&mut self, epoch: u64, counts: &Counts) -> Option<(usize, u32)> {
        let len = u32::try_from(self.slots.len()).ok()?;
        let mut coldest: Option<(usize, u32)> = None;
        for _ in 0..CANDIDATES {
            let at = self.random.below(len) as usize;
            let Some(slot) = self.slots.get(at).filter(|slot| slot.promoted_in < epoch) else {
                continue;
            };
            let reads = counts.get(slot.key);
            if coldest.is_none_or(|(_, coldest)| reads < coldest) {
                coldest = Some((at, reads));
            }
        }
        coldest
    }

    fn evict(&mut self, at: usize) {
        let slot = self.slots.swap_remove(at);
        self.places.remove(&slot.key);
        if let Some(moved) = self.slots.get(at) {
            self.places.insert(moved.key, at);
        }
        self.answered.evicted += 1;
    }

    fn write(&mut self, key: u64) {
        let Some(slot) = self.places.get(&key).and_then(|&at| self.slots.get_mut(at)) else {
            return;
        };
        if slot.generation != self.generation || slot.forms.is_empty() {
            return;
        }
        slot.forms.clear();
        if slot.writes == 0 && slot.written == 0 {
            self.written.push(key);
        }
        slot.writes += 1;
    }

    /// A second ends at `now`. Others without any command may have passed since.
    fn turn(&mut self, now: u64, has_gap: bool, counts: &Counts) {
        let mut kept = Vec::new();
        let mut written = std::mem::take(&mut self.written);
        // A key that was evicted and promoted again may be in it twice.
        written.sort_unstable();
        written.dedup();
        for key in written {
            let Some(&at) = self.places.get(&key) else { continue };
            let Some(slot) = self.slots.get_mut(at) else { continue };
            let writes = u64::from(std::mem::take(&mut slot.writes));
            let too_many =
                writes > 0 && 100 * writes >= WRITES_PERCENT * u64::from(counts.get(key));
            slot.written = if too_many { slot.written + 1 } else { 0 };
            if slot.written >= WRITES_EPOCHS {
                self.evict(at);
                if self.barred.len() < WAITING_MAX {
                    self.barred.insert(key, now + BARRED);
                }
            } else if slot.written > 0 {
                if has_gap {
                    slot.written = 0;
                } else {
                    kept.push(key);
                }
            }
        }
        self.written = kept;
        if self.reports > *REPORTS.end() {
            self.threshold = self.threshold.saturating_mul(2).min(u32::from(u16::MAX));
            self.stays = STAYS;
        } else if self.stays > 0 {
            self.stays -= 1;
        } else if self.reports < *REPORTS.start() {
            self.threshold = (self.threshold / 2).max(u32::from(COUNTING.threshold));
        }
        self.reports = 0;
        self.barred.retain(|_, until| now < *until);
    }
}

/// Proxies of several sizes before the same commands.
#[derive(Debug)]
pub struct Simulation {
    proxies: Vec<Proxy>,
    counts: Counts,
    epoch: u64,
}

impl Simulation {
    pub fn new(entries: &[usize], seed: u64) -> Simulation {
        Simulation {
            proxies: entries.iter().map(|&entries| Proxy::new(entries, seed)).collect(),
            counts: Counts { reads: HashMap::new(), most: COUNTED_MAX },
            epoch: 0,
        }
    }

    /// Reads keys by a form of request, at a time in nanoseconds from the first command on, which
    /// never goes back. A proxy answers if it has all of them.
    pub fn read(&mut self, now: u64, keys: &[u64], form: u64) {
        self.at(now);
        let now = (now, self.epoch);
        for &key in keys {
            self.counts.add(key);
        }
        for proxy in &mut self.proxies {
            let mut is_hit = !keys.is_empty();
            for &key in keys {
                is_hit &= proxy.read(now, key, form, &self.counts);
            }
            proxy.answered.hits += u64::from(is_hit);
        }
    }

    /// Writes a key.
    pub fn write(&mut self, now: u64, key: u64) {
        self.at(now);
        self.proxies.iter_mut().for_each(|proxy| proxy.write(key));
    }

    /// Drops all values: a command may have written anything.
    pub fn close(&mut self, now: u64) {
        self.at(now);
        self.proxies.iter_mut().for_each(|proxy| proxy.generation += 1);
    }

    /// Returns the sizes in their order, and what each has done.
    pub fn answered(&self) -> impl Iterator<Item = (usize, Answered)> {
        self.proxies.iter().map(|proxy| (proxy.entries, proxy.answered))
    }

    fn at(&mut self, now: u64) {
        let epoch = now / EPOCH;
        if epoch > self.epoch {
            let has_gap = epoch > self.epoch + 1;
            for proxy in &mut self.proxies {
                proxy.turn((self.epoch + 1) * EPOCH, has_gap, &self.counts);
            }
            self.counts.reads.clear();
            self.epoch = epoch;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Key, forms with times, second of promotion, writes, seconds with too many.
    type Cached = (u64, Vec<(u64, u64)>, u64, u64, u8);

    /// The same rules with lists alone.
    #[derive(Default)]
    struct Twin {
        entries: usize,
        slots: Vec<Cached>,
        barred: Vec<(u64, u64)>,
        /// Keys that were read in this second.
        reads: Vec<u64>,
        epoch: u64,
        answered: Answered,
    }

    impl Twin {
        fn count(&self, key: u64) -> u64 {
            self.reads.iter().filter(|read| **read == key).count() as u64
        }

        fn at(&mut self, now: u64) {
            while self.epoch < now / EPOCH {
                let end = (self.epoch + 1) * EPOCH;
                let mut gone = Vec::new();
                for at in 0..self.slots.len() {
                    let (key, writes) = (self.slots[at].0, self.slots[at].3);
                    let too_many = writes > 0 && 100 * writes >= 25 * self.count(key);
                    self.slots[at].4 = if too_many { self.slots[at].4 + 1 } else { 0 };
                    self.slots[at].3 = 0;
                    if self.slots[at].4 >= 3 {
                        gone.push(key);
                    }
                }
                for key in gone {
                    self.slots.retain(|slot| slot.0 != key);
                    self.answered.evicted += 1;
                    self.barred.push((key, end + 10 * EPOCH));
                }
                self.reads.clear();
                self.epoch += 1;
            }
        }

        fn read(&mut self, now: u64, keys: &[u64], form: u64) {
            self.at(now);
            self.reads.extend(keys);
            let mut all = !keys.is_empty();
            for &key in keys {
                let count = self.count(key);
                if let Some(slot) = self.slots.iter_mut().find(|slot| slot.0 == key) {
                    if slot.1.iter().any(|(f, at)| *f == form && now - at < MAX_AGE) {
                        continue;
                    }
                    slot.1.retain(|(f, _)| *f != form);
                    slot.1.push((form, now));
                    self.answered.fills += 1;
                } else if count >= 2
                    && !self.barred.iter().any(|(k, until)| *k == key && now < *until)
                    && self.slots.len() < self.entries
                {
                    self.slots.push((key, vec![(form, now)], self.epoch, 0, 0));
                    self.answered.promoted += 1;
                    self.answered.fills += 1;
                }
                all = false;
            }
            self.answered.hits += u64::from(all);
        }

        fn write(&mut self, now: u64, key: u64) {
            self.at(now);
            if let Some(slot) = self.slots.iter_mut().find(|slot| slot.0 == key)
                && !slot.1.is_empty()
            {
                slot.1.clear();
                slot.3 += 1;
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read(Vec<u64>, u64),
        Write(u64),
        Close,
    }

    fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
        let read = (prop::collection::vec(0..30u64, 1..4), 0..3u64);
        let step = prop_oneof![
            12 => read.prop_map(|(keys, form)| Step::Read(keys, form)),
            5 => (0..30u64).prop_map(Step::Write),
            1 => Just(Step::Close),
        ];
        let pause = prop_oneof![
            20 => 0..EPOCH / 8,
            2 => EPOCH / 2..3 * EPOCH,
            1 => Just(MAX_AGE),
        ];
        prop::collection::vec((pause, step), 0..400)
    }

    proptest! {
        /// With room for all keys, nothing is drawn.
        #[test]
        fn a_large_proxy_does_as_its_twin(steps in steps()) {
            let mut simulation = Simulation::new(&[64], 7);
            let mut twin = Twin { entries: 64, ..Twin::default() };
            let mut now = 0;
            for (pause, step) in steps {
                now += pause;
                match step {
                    Step::Read(keys, form) => {
                        simulation.read(now, &keys, form);
                        twin.read(now, &keys, form);
                    }
                    Step::Write(key) => {
                        simulation.write(now, key);
                        twin.write(now, key);
                    }
                    Step::Close => {
                        simulation.close(now);
                        twin.at(now);
                        twin.slots.iter_mut().for_each(|slot| slot.1.clear());
                    }
                }
                let (_, answered) = simulation.answered().next().unwrap();
                prop_assert_eq!(answered, twin.answered);
            }
        }

        #[test]
        fn a_small_proxy_keeps_its_size_and_its_index(steps in steps()) {
            let mut simulation = Simulation::new(&[1, 5], 7);
            let mut now = 0;
            for (pause, step) in steps {
                now += pause;
                match step {
                    Step::Read(keys, form) => simulation.read(now, &keys, form),
                    Step::Write(key) => simulation.write(now, key),
                    Step::Close => simulation.close(now),
                }
                for proxy in &simulation.proxies {
                    prop_assert!(proxy.slots.len() <= proxy.entries);
                    prop_assert_eq!(proxy.slots.len(), proxy.places.len());
                    for (at, slot) in proxy.slots.iter().enumerate() {
                        prop_assert_eq!(proxy.places.get(&slot.key), Some(&at));
                    }
                    let Answered { promoted, evicted, .. } = proxy.answered;
                    prop_assert_eq!(promoted - evicted, proxy.slots.len() as u64);
                }
            }
        }
    }

    fn one(simulation: &Simulation) -> (u64, u64) {
        let (_, answered) = simulation.answered().next().unwrap();
        (answered.hits, answered.fills)
    }

    #[test]
    fn a_key_is_hot_from_its_second_read_in_a_second_on() {
        let mut simulation = Simulation::new(&[10], 1);
        for now in [0, EPOCH, 2 * EPOCH] {
            simulation.read(now, &[1], 0);
        }
        assert_eq!(one(&simulation), (0, 0), "once in each second");
        simulation.read(2 * EPOCH + 1, &[1], 0);
        assert_eq!(one(&simulation), (0, 1));
        simulation.read(2 * EPOCH + 2, &[1], 0);
        assert_eq!(one(&simulation), (1, 1));
        simulation.write(2 * EPOCH + 3, 1);
        simulation.read(2 * EPOCH + 4, &[1], 0);
        assert_eq!(one(&simulation), (1, 2), "the server answers once after a write");
        simulation.read(2 * EPOCH + 5, &[1], 0);
        simulation.read(2 * EPOCH + 6, &[1], 1);
        assert_eq!(one(&simulation), (2, 3), "another form is filled as well");
    }

    #[test]
    fn a_hotter_key_displaces_a_colder_one_of_another_second() {
        let mut simulation = Simulation::new(&[1], 1);
        simulation.read(0, &[1], 0);
        simulation.read(1, &[1], 0);
        for now in 2..9 {
            simulation.read(now, &[2], 0);
        }
        assert_eq!(one(&simulation), (0, 1), "of this second, none is displaced");
        for now in 0..6 {
            simulation.read(EPOCH + now, &[2], 0);
        }
        assert_eq!(one(&simulation), (2, 2));
    }

    #[test]
    fn counting_is_bounded() {
        let mut counts = Counts { reads: HashMap::new(), most: 2 };
        [1, 2, 3, 3, 2].into_iter().for_each(|key| counts.add(key));
        assert_eq!([1, 2, 3].map(|key| counts.get(key)), [1, 2, 0]);
    }
}
