//! Which keys are cached (section 4.3), and that their servers know.
//!
//! ```text
//!   hot key ─▶ wanted ─ hotter than the coldest of some? ─▶ install ─▶ ADOPT ─▶ server
//!                                  └─ evict that one ─▶ EVICTED; its item rests, then is free
//! ```
//!
//! The controller never has a value: a key that it installs is invalid until its server's first
//! update. It reads counters and statuses, and alone writes the [`Table`].
//!
//! # What the paper leaves open
//! - Counts are compared that began at the same time: of the key's samples in the sketch, and of
//!   the cached one's hits, both of this epoch and with the same sampling.
//! - A key displaces the coldest of [`Settings::candidates`] that are drawn, if it is hotter by
//!   [`Settings::hotter_percent`], and if that one has been cached for an epoch.
//! - A value of several passes displaces as many keys, if it is hotter than each of them; colder
//!   keys wait meanwhile.
//! - The threshold follows the number of reports, the sampling the largest counter.
//! - A key that is written often is invalid most of the time: it is left out for a while (7.3 says
//!   that the cache should be off then).
//! - A report of a key that is cached says that it is invalid: a write that passed the device may
//!   have been lost. Its server is asked for the value again.
//! - Changes of the table are bounded in time; so is all that waits.

#[cfg(test)]
mod tests;

use crate::Micros;
use crate::agent::Letter;
use crate::pipeline::{Installed, Table, TableError, Tally};
use crate::slots::{PASS, passes_of};
use overbank::random::Pcg32;
use overbank::sketch::{self, Keeper};
use overbank_wire::netcache::{Key, Message, Op, Stamp, Status};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What the controller decides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Time between two decisions, and in which counts begin anew.
    pub decide_us: Micros,
    pub epoch_us: Micros,
    /// Cached keys that are drawn to find a cold one.
    pub candidates: usize,
    /// By how much a key must be hotter than a cached one that it displaces.
    pub hotter_percent: u32,
    /// Changes of the lookup table in a second (section 4.3: more than 10,000 are possible).
    pub changes_a_second: u64,
    /// Reports in an epoch that the threshold aims at: fewer lower it, more raise it.
    pub reports: (u64, u64),
    /// Writes to 100 reads from which on a key is left out, after how many epochs, and how long.
    pub writes_percent: u64,
    pub writes_epochs: u8,
    pub barred_us: Micros,
    /// Time after which an unanswered message is repeated, and how often.
    pub retry_us: Micros,
    pub tries_max: u32,
    /// Keys that wait, that are left out, and that servers have not confirmed to be evicted: at
    /// most, each.
    pub waiting_max: usize,
    /// Room for a value whose length is not known.
    pub first_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            decide_us: 100_000,
            epoch_us: 1_000_000,
            candidates: 8,
            hotter_percent: 25,
            changes_a_second: 10_000,
            reports: (200, 2000),
            writes_percent: 25,
            writes_epochs: 3,
            barred_us: 10_000_000,
            retry_us: 2_000,
            tries_max: 10,
            waiting_max: 1 << 14,
            first_bytes: PASS,
        }
    }
}

/// What a worker counts.
pub struct Watch {
    pub keeper: Keeper,
    pub hits: Tally,
}

/// Something that is repeated until a server answers.
#[derive(Clone, Copy, Debug)]
struct Told {
    stamp: Stamp,
    due: Micros,
    tries: u32,
}

/// A key that is to be cached.
struct Wanted<S> {
    port: u16,
    server: S,
    bytes: usize,
}

struct Cached<S> {
    port: u16,
    server: S,
    install: u32,
    /// Epochs since it was installed.
    epochs: u32,
    /// Writes that had passed at the end of the last epoch, and epochs with too many.
    writes: u32,
    written: u8,
    adopt: Option<Told>,
}

/// What a controller has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub reports: u64,
    /// Reports of cached keys.
    pub invalid: u64,
    pub installed: u64,
    pub evicted: u64,
    pub moved: u64,
    /// Keys that were left out because they are written too often, or are too long.
    pub barred: u64,
    /// Keys whose server did not answer.
    pub silent: u64,
    /// Reports that found no room.
    pub dropped: u64,
}

/// A cached key, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hottest<S> {
    pub key: Key,
    /// Hits in this epoch, of those that were sampled.
    pub hits: u32,
    pub is_valid: bool,
    pub server: S,
    /// Number of its installation.
    pub install: u32,
}

/// See the module. `S` is the address of a server.
pub struct Controller<S> {
    settings: Settings,
    table: Table,
    watches: Vec<Watch>,
    /// Of the sketch's hash.
    seed: u64,
    boot: u32,
    random: Pcg32,
    counting: sketch::Settings,
    epoch_end: Micros,
    decide_at: Micros,
    /// Changes that may be made now.
    tokens: u64,
    /// Reports of this epoch.
    reports: u64,
    wanted: HashMap<Key, Wanted<S>>,
    cached: HashMap<Key, Cached<S>>,
    /// Keys whose server has been told and may not have answered: all that have an `adopt`.
    adopting: HashSet<Key>,
    leaving: HashMap<Key, (S, Told)>,
    barred: HashMap<Key, Micros>,
    /// The last run of each server that was answered: a HELLO that comes again changes nothing.
    resumed: HashMap<S, u64>,
    totals: Totals,
}

impl<S: Clone + Eq + Hash> Controller<S> {
    /// Returns the controller of an empty device in its run `boot`. `counting` is what the sketches
    /// began with, `seed` that of the pipelines' hash.
    pub fn new(
        settings: Settings,
        table: Table,
        watches: Vec<Watch>,
        counting: sketch::Settings,
        (boot, seed): (u32, u64),
    ) -> Controller<S> {
        Controller {
            settings,
            table,
            watches,
            seed,
            boot,
            random: Pcg32::new(seed, 1),
            counting,
            epoch_end: settings.epoch_us,
            decide_at: 0,
            tokens: 0,
            reports: 0,
            wanted: HashMap::new(),
            cached: HashMap::new(),
            adopting: HashSet::new(),
            leaving: HashMap::new(),
            barred: HashMap::new(),
            resumed: HashMap::new(),
            totals: Totals::default(),
        }
    }

    /// Returns what was counted.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the table, to look into.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns what the next epoch counts by.
    pub fn counting(&self) -> sketch::Settings {
        self.counting
    }

    /// Returns the cached keys with the most hits in this epoch, the hottest first: up to `most`.
    /// Looks at all that are cached.
    pub fn hottest(&self, most: usize) -> Vec<Hottest<S>> {
        let cached = self.table.iter().filter_map(|(key, entry)| {
            let Cached { server, install, .. } = self.cached.get(&key)?;
            let is_valid = self.table.status(key).is_some_and(|status| status.is_valid());
            let (server, hits) = (server.clone(), self.hits(entry.item));
            Some(Hottest { key, hits, is_valid, server, install: *install })
        });
        let mut all: Vec<Hottest<S>> = cached.collect();
        all.sort_unstable_by_key(|hot| (Reverse(hot.hits), hot.key));
        all.truncate(most);
        all
    }

    /// See [`Table::settle`].
    pub fn settle(&mut self, count: usize) {
        self.table.settle(count);
    }

    /// A worker has reported a GET of a key that became hot, and the port and server that it went
    /// to.
    pub fn report(
        &mut self,
        now: Micros,
        key: Key,
        (port, server): (u16, S),
        out: &mut Vec<(S, Letter)>,
    ) {
        self.totals.reports += 1;
        self.reports += 1;
        if let Some(cached) = self.cached.get_mut(&key) {
            self.totals.invalid += 1;
            let invalid = self.table.status(key).filter(|status| !status.is_valid());
            if let (Some(status), None) = (invalid, cached.adopt) {
                let stamp = Stamp { writes: 0, ..status.stamp(self.boot) };
                let told = Told { stamp, due: now + self.settings.retry_us, tries: 0 };
                cached.adopt = Some(told);
                self.adopting.insert(key);
                out.push(tell(Op::Adopt, key, (cached.server.clone(), stamp)));
            }
            return;
        }
        if self.barred.get(&key).is_some_and(|until| now < *until) {
            return;
        }
        if self.wanted.len() >= self.settings.waiting_max {
            self.totals.dropped += 1;
            return;
        }
        let bytes = self.settings.first_bytes;
        self.wanted.entry(key).or_insert(Wanted { port, server, bytes });
    }

    /// A server has said something, by this port.
    pub fn message(
        &mut self,
        now: Micros,
        (port, from): (u16, S),
        said: &Message<'_>,
        out: &mut Vec<(S, Letter)>,
    ) {
        let of = |stamp: Stamp| (stamp.boot, stamp.install);
        match said.op {
            Op::Adopted if said.status == Status::Absent => {
                let told = self.leaving.get(&said.key);
                if told.is_some_and(|(_, told)| of(told.stamp) == of(said.stamp)) {
                    self.leaving.remove(&said.key);
                }
            }
            Op::Adopted => {
                let cached = self.cached.get_mut(&said.key).filter(|cached| cached.port == port);
                if let Some(cached) = cached
                    && cached.adopt.is_some_and(|told| of(told.stamp) == of(said.stamp))
                {
                    cached.adopt = None;
                }
            }
            Op::Hello => {
                if self.resumed.get(&from) != Some(&said.request) {
                    self.forget(&from);
                    let is_known = self.resumed.contains_key(&from);
                    if is_known || self.resumed.len() < self.settings.waiting_max {
                        self.resumed.insert(from.clone(), said.request);
                    }
                }
                let resume = said.answer(Op::Resume, Status::Ok);
                out.push((from, Letter { head: resume, value: Arc::default() }));
            }
            Op::Refresh => self.refresh(now, (port, from), said, out),
            _ => {}
        }
    }

    /// A server has begun another run: it knows of no cached key.
    fn forget(&mut self, server: &S) {
        let own = self.cached.iter().filter(|(_, cached)| cached.server == *server);
        let own: Vec<Key> = own.map(|(key, _)| *key).collect();
        for key in own {
            self.evict(key);
        }
        self.leaving.retain(|_, (to, _)| to != server);
    }

    /// A server cannot update a key: `client` of the message has the length of the value. One that
    /// asks for a key that is not cached as it knows it learns that: until then, it holds writes.
    fn refresh(
        &mut self,
        now: Micros,
        (port, from): (u16, S),
        said: &Message<'_>,
        out: &mut Vec<(S, Letter)>,
    ) {
        let of = (said.stamp.boot, said.stamp.install);
        let cached = self.cached.get(&said.key);
        let Some(cached) = cached.filter(|cached| of == (self.boot, cached.install)) else {
            if said.stamp.boot <= self.boot {
                out.push(tell(Op::Evicted, said.key, (from, said.stamp)));
            }
            return;
        };
        if cached.port != port {
            return;
        }
        let server = cached.server.clone();
        self.tell_evicted(now, said.key, out);
        let bytes = usize::try_from(said.client).unwrap_or(usize::MAX);
        if said.status == Status::TooLong && bytes <= self.table.value_max() {
            self.wanted.insert(said.key, Wanted { port, server, bytes });
        } else if said.status != Status::Busy {
            self.bar(now, said.key);
        }
    }

    /// Decides what is due, and repeats what was not answered; returns when it is to be called
    /// next.
    pub fn tick(&mut self, now: Micros, out: &mut Vec<(S, Letter)>) -> Micros {
        if now >= self.decide_at {
            self.decide_at = now + self.settings.decide_us;
            let Settings { changes_a_second, decide_us, .. } = self.settings;
            self.tokens = (changes_a_second.saturating_mul(decide_us) / 1_000_000).max(1);
            self.decide(now, out);
        }
        if now >= self.epoch_end {
            self.turn(now, out);
        }
        self.again(now, out);
        let waits = !(self.adopting.is_empty() && self.leaving.is_empty());
        let again = if waits { now + self.settings.retry_us } else { self.epoch_end };
        self.decide_at.min(self.epoch_end).min(again)
    }

    /// Installs what is hot enough.
    fn decide(&mut self, now: Micros, out: &mut Vec<(S, Letter)>) {
        let mut wanted: Vec<(u32, Key)> =
            self.wanted.keys().map(|&key| (self.samples(key), key)).collect();
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        for (count, key) in wanted {
            if self.tokens == 0 {
                return;
            }
            let Some(Wanted { port, server, bytes }) = self.wanted.get(&key) else { continue };
            let (port, server, bytes) = (*port, server.clone(), *bytes);
            match self.table.install(key, port, bytes) {
                Ok(installed) => {
                    self.wanted.remove(&key);
                    self.installed(now, key, (port, server), installed, out);
                }
                Err(TableError::Present | TableError::Numbers) => {
                    self.wanted.remove(&key);
                }
                Err(error) => {
                    let scattered = matches!(error, TableError::Slots(_));
                    if scattered && self.repack(now, bytes, out) {
                        continue;
                    }
                    // Items and places are free at the next decision.
                    let passes = passes_of(bytes);
                    let before = self.totals.evicted;
                    for _ in 0..passes {
                        match self.coldest() {
                            Some((coldest, cold))
                                if hotter(count, cold, self.settings.hotter_percent) =>
                            {
                                self.tell_evicted(now, coldest, out);
                            }
                            _ => break,
                        }
                    }
                    // A long value needs whole indexes: colder keys would take them one by one.
                    if passes > 1 && self.totals.evicted > before {
                        return;
                    }
                }
            }
        }
    }

    fn installed(
        &mut self,
        now: Micros,
        key: Key,
        (port, server): (u16, S),
        Installed { install, .. }: Installed,
        out: &mut Vec<(S, Letter)>,
    ) {
        self.tokens = self.tokens.saturating_sub(1);
        self.totals.installed += 1;
        self.leaving.remove(&key);
        let stamp = Stamp { boot: self.boot, install, writes: 0 };
        let adopt = Some(Told { stamp, due: now + self.settings.retry_us, tries: 0 });
        out.push(tell(Op::Adopt, key, (server.clone(), stamp)));
        let cached = Cached { port, server, install, epochs: 0, writes: 0, written: 0, adopt };
        self.cached.insert(key, cached);
        self.adopting.insert(key);
    }

    /// Moves a value, if enough is free in all for one of this length.
    fn repack(&mut self, now: Micros, bytes: usize, out: &mut Vec<(S, Letter)>) -> bool {
        if self.table.free_units() < 4 * crate::slots::units_of(bytes) as u32 {
            return false;
        }
        let Some((key, installed)) = self.table.repack(bytes) else { return false };
        let Some(cached) = self.cached.remove(&key) else { return false };
        self.totals.moved += 1;
        self.installed(now, key, (cached.port, cached.server), installed, out);
        true
    }

    /// Returns the coldest of some cached keys, and its hits.
    fn coldest(&mut self) -> Option<(Key, u32)> {
        let items = self.table.items() as u32;
        let mut coldest: Option<(Key, u32)> = None;
        let mut drawn = 0;
        for _ in 0..4 * self.settings.candidates {
            let item = self.random.below(items) as u16;
            let Some(key) = self.table.key(item) else { continue };
            if self.cached.get(&key).is_none_or(|cached| cached.epochs == 0) {
                continue;
            }
            let hits = self.hits(item);
            if coldest.is_none_or(|(_, coldest)| hits < coldest) {
                coldest = Some((key, hits));
            }
            drawn += 1;
            if drawn == self.settings.candidates {
                break;
            }
        }
        coldest
    }

    /// An epoch ends.
    fn turn(&mut self, now: Micros, out: &mut Vec<(S, Letter)>) {
        self.judge_writes(now, out);
        let largest = self.watches.iter().map(|watch| watch.keeper.live().largest()).max();
        self.steer(largest.unwrap_or(0));
        let counting = self.counting;
        // A worker that has not taken the last epoch goes on with that one.
        self.watches.iter_mut().for_each(|watch| {
            watch.keeper.turn(counting);
        });
        self.epoch_end = now + self.settings.epoch_us;
        self.reports = 0;
        // What is still hot is reported again; what is not would wait for ever.
        self.wanted.clear();
        self.barred.retain(|_, until| now < *until);
        self.cached.values_mut().for_each(|cached| cached.epochs = cached.epochs.saturating_add(1));
    }

    fn judge_writes(&mut self, now: Micros, out: &mut Vec<(S, Letter)>) {
        let mut often = Vec::new();
        let Settings { writes_percent, writes_epochs, .. } = self.settings;
        for (key, entry) in self.table.iter() {
            let (Some(status), reads) = (self.table.status(key), self.hits(entry.item)) else {
                continue;
            };
            let reads = u64::from(reads + self.samples(key)) << self.counting.sample_log2;
            let Some(cached) = self.cached.get_mut(&key) else { continue };
            let writes = u64::from(status.writes().saturating_sub(cached.writes));
            cached.writes = status.writes();
            let too_many = writes > 0 && 100 * writes >= writes_percent * reads;
            cached.written = if too_many { cached.written + 1 } else { 0 };
            // A count of writes that is full is of no use either.
            if cached.written >= writes_epochs || cached.writes == crate::pipeline::WRITES_MAX {
                often.push(key);
            }
        }
        for key in often {
            self.tell_evicted(now, key, out);
            self.bar(now, key);
        }
    }

    /// Sets what the next epoch counts by.
    fn steer(&mut self, largest: u16) {
        let sketch::Settings { threshold, sample_log2 } = &mut self.counting;
        if self.reports > self.settings.reports.1 {
            *threshold = threshold.saturating_mul(2);
        } else if self.reports < self.settings.reports.0 {
            *threshold = (*threshold / 2).max(1);
        }
        if largest >= 1 << 15 && *sample_log2 < 32 {
            (*sample_log2, *threshold) = (*sample_log2 + 1, (*threshold / 2).max(1));
        } else if largest < 1 << 13 && *sample_log2 > 0 {
            (*sample_log2, *threshold) = (*sample_log2 - 1, threshold.saturating_mul(2));
        }
    }

    /// Repeats what servers have not answered.
    fn again(&mut self, now: Micros, out: &mut Vec<(S, Letter)>) {
        let Settings { retry_us, tries_max, .. } = self.settings;
        let mut silent = Vec::new();
        self.adopting.retain(|&key| {
            let Some(cached) = self.cached.get_mut(&key) else { return false };
            let Some(told) = &mut cached.adopt else { return false };
            if now >= told.due {
                if told.again(now, retry_us) >= tries_max {
                    silent.push(key);
                }
                out.push(tell(Op::Adopt, key, (cached.server.clone(), told.stamp)));
            }
            true
        });
        self.leaving.retain(|&key, (server, told)| {
            if now < told.due {
                return true;
            }
            out.push(tell(Op::Evicted, key, (server.clone(), told.stamp)));
            told.again(now, retry_us) < tries_max
        });
        for key in silent {
            self.totals.silent += 1;
            self.tell_evicted(now, key, out);
        }
    }

    fn tell_evicted(&mut self, now: Micros, key: Key, out: &mut Vec<(S, Letter)>) {
        let Some((server, stamp)) = self.evict(key) else { return };
        self.tokens = self.tokens.saturating_sub(1);
        out.push(tell(Op::Evicted, key, (server.clone(), stamp)));
        if self.leaving.len() < self.settings.waiting_max {
            let told = Told { stamp, due: now + self.settings.retry_us, tries: 0 };
            self.leaving.insert(key, (server, told));
        }
    }

    fn evict(&mut self, key: Key) -> Option<(S, Stamp)> {
        let cached = self.cached.remove(&key)?;
        let install = self.table.evict(key)?;
        self.totals.evicted += 1;
        Some((cached.server, Stamp { boot: self.boot, install, writes: 0 }))
    }

    fn bar(&mut self, now: Micros, key: Key) {
        self.totals.barred += 1;
        self.wanted.remove(&key);
        if self.barred.len() < self.settings.waiting_max {
            self.barred.insert(key, now + self.settings.barred_us);
        }
    }

    /// Returns the samples of a key in the sketches, in this epoch.
    fn samples(&self, key: Key) -> u32 {
        let hash = xxh3_128_with_seed(&key.to_le_bytes(), self.seed);
        self.watches.iter().map(|watch| u32::from(watch.keeper.live().estimate(hash))).sum()
    }

    /// Returns the hits of an item in this epoch.
    fn hits(&self, item: u16) -> u32 {
        let hits = |watch: &Watch| u32::from(watch.hits.count(item, watch.keeper.epoch()));
        self.watches.iter().map(hits).sum()
    }
}

impl Told {
    /// It is repeated now; returns how often it was.
    fn again(&mut self, now: Micros, retry_us: Micros) -> u32 {
        self.tries += 1;
        self.due = now + (retry_us << self.tries.min(6));
        self.tries
    }
}

/// Whether a count is above another one by `percent`.
const fn hotter(count: u32, than: u32, percent: u32) -> bool {
    count as u64 * 100 > than as u64 * (100 + percent) as u64
}

fn tell<S>(op: Op, key: Key, (to, stamp): (S, Stamp)) -> (S, Letter) {
    let head = Message { stamp, ..Message::new(op, 0, 0, key) };
    (to, Letter { head, value: Arc::default() })
}
