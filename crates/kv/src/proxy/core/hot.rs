//! Which keys are hot: the NetCache controller's decisions (section 4.3), for slots.
//!
//! ```text
//!   wanted: reported keys of this epoch ─ hotter than the coldest of some? ─▶ promote
//!                                                          └─▶ evict that one
//! ```
//!
//! A key's heat is its count in the workers' sketches and its hits, both since the epoch began. Of
//! keys that are written at least once for every four reads over three epochs, the cache would be
//! empty most of the time: they are evicted and left out for a while (section 7.3).

use crate::proxy::slots::{self, SlotId};
use overbank::random::Pcg32;
use overbank::sketch::{self, Keeper};
use std::collections::HashMap;

/// Nanoseconds.
pub type Nanos = u64;
pub const SECOND: Nanos = 1_000_000_000;

/// Time in which counts begin anew.
pub const EPOCH: Nanos = SECOND;
/// Cached keys that are drawn to find a cold one.
pub const CANDIDATES: u32 = 8;
/// By how much a key must be hotter than one that it displaces.
pub const HOTTER_PERCENT: u64 = 25;
/// And at least: keys of a flat law, asked for two or three times, displace nothing.
pub const HOTTER_LEAST: u64 = 3;
/// Keys that wait are decided at once if they are few, otherwise ten times a second.
const FEW: usize = 256;
const DECIDE: Nanos = SECOND / 10;
/// Epochs that the threshold stays where too many reports have put it.
pub const STAYS: u32 = 10;
/// Reports in an epoch that the threshold aims at.
pub const REPORTS: std::ops::RangeInclusive<u64> = 200..=2000;
/// Writes to 100 reads from which on a key is left out, after how many epochs, and how long.
pub const WRITES_PERCENT: u64 = 25;
pub const WRITES_EPOCHS: u8 = 3;
pub const BARRED: Nanos = 10 * SECOND;
/// Keys that wait or are left out: at most, each.
pub const WAITING_MAX: usize = 1 << 13;
/// Promotions of a decision.
const PROMOTIONS: usize = 1000;
/// Keys that are shown: at most.
pub const HOTTEST_MAX: usize = 1000;

/// A key that was reported, and what it was asked by.
#[derive(Debug)]
struct Wanted<F> {
    key: Box<[u8]>,
    forms: Vec<F>,
}

/// What is known of a cached key.
#[derive(Debug)]
struct Cached {
    /// Epochs since its promotion.
    epochs: u32,
    /// Hits of this epoch.
    hits: u64,
    /// Times that it was written or invalidated in this epoch, and epochs with too many.
    writes: u64,
    written: u8,
    /// Its place among those that are drawn from.
    at: usize,
}

/// A hot key, to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hottest {
    pub key: Box<[u8]>,
    /// Reads in the last epoch of a second, about, and those of them that were hits.
    pub reads: u64,
    pub hits: u64,
    /// Times that it was written or invalidated while it had a value.
    pub writes: u64,
    /// Otherwise it was only reported.
    pub is_cached: bool,
}

/// The hottest keys of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Heat {
    /// The hottest one first.
    pub keys: Vec<Hottest>,
    /// Reads of all keys.
    pub reads: u64,
}

/// What is to be done with keys.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision<F> {
    /// A key has a slot now; it was asked for by these forms.
    Promoted(SlotId, Vec<F>),
    Evicted(SlotId),
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub promoted: u64,
    pub evicted: u64,
}

/// See the module. `F` is a form of a request.
pub struct Hot<F> {
    keepers: Vec<Keeper>,
    counting: sketch::Settings,
    random: Pcg32,
    epoch_end: Nanos,
    decide_at: Nanos,
    /// Epochs before the threshold may fall.
    stays: u32,
    reports: u64,
    wanted: HashMap<u128, Wanted<F>>,
    cached: HashMap<SlotId, Cached>,
    barred: HashMap<u128, Nanos>,
    /// Slots of cached keys, to draw from.
    drawn: Vec<SlotId>,
    hottest: Option<Vec<Hottest>>,
    totals: Totals,
}

/// What sketches begin with: a key that is asked for twice in an epoch is reported.
pub const COUNTING: sketch::Settings = sketch::Settings { threshold: 2, sample_log2: 0 };

impl<F: PartialEq> Hot<F> {
    /// Returns what decides by these sketches, which began with [`COUNTING`].
    pub fn new(keepers: Vec<Keeper>, seed: u64) -> Hot<F> {
        Hot {
            keepers,
            counting: COUNTING,
            random: Pcg32::new(seed, 1),
            epoch_end: EPOCH,
            decide_at: 0,
            stays: 0,
            reports: 0,
            wanted: HashMap::new(),
            cached: HashMap::new(),
            barred: HashMap::new(),
            drawn: Vec::new(),
            hottest: None,
            totals: Totals::default(),
        }
    }

    /// Returns what was counted.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// A key that is not cached was reported, asked for by this form.
    pub fn report(&mut self, now: Nanos, hash: u128, key: &[u8], form: F) {
        self.reports += 1;
        if self.barred.get(&hash).is_some_and(|until| now < *until) {
            return;
        }
        let room = self.wanted.len() < WAITING_MAX;
        match self.wanted.get_mut(&hash) {
            Some(wanted)
                if wanted.forms.len() < slots::VARIANTS_MAX && !wanted.forms.contains(&form) =>
            {
                wanted.forms.push(form);
            }
            Some(_) => {}
            None if room => {
                self.wanted.insert(hash, Wanted { key: key.into(), forms: vec![form] });
            }
            None => {}
        }
    }

    /// A cached key was written or invalidated.
    pub fn written(&mut self, slot: SlotId) {
        if let Some(cached) = self.cached.get_mut(&slot) {
            cached.writes += 1;
        }
    }

    /// Leaves a key out for a while.
    pub fn bar(&mut self, now: Nanos, hash: u128) {
        self.wanted.remove(&hash);
        if self.barred.len() < WAITING_MAX {
            self.barred.insert(hash, now + BARRED);
        }
    }

    /// Evicts and forgets the keys that may not be cached any more.
    pub fn retain(
        &mut self,
        core: &mut slots::Core,
        may: impl Fn(&[u8]) -> bool,
        out: &mut Vec<Decision<F>>,
    ) {
        self.wanted.retain(|_, wanted| may(&wanted.key));
        let cached = self.cached.keys().copied();
        let denied: Vec<SlotId> =
            cached.filter(|slot| core.key(*slot).is_some_and(|key| !may(key))).collect();
        for slot in denied {
            core.evict(slot);
            self.forget(slot);
            out.push(Decision::Evicted(slot));
        }
    }

    /// A key was evicted for another reason.
    pub fn forget(&mut self, slot: SlotId) {
        self.totals.evicted += 1;
        let Some(Cached { at, .. }) = self.cached.remove(&slot) else { return };
        self.drawn.swap_remove(at);
        let moved = self.drawn.get(at).and_then(|moved| self.cached.get_mut(moved));
        if let Some(moved) = moved {
            moved.at = at;
        }
    }

    /// Returns the hottest keys of the epoch that has ended, the hottest first, once.
    pub fn take_hottest(&mut self) -> Option<Vec<Hottest>> {
        self.hottest.take()
    }

    /// Decides what is due; with `observe` nothing is promoted.
    pub fn decide(
        &mut self,
        now: Nanos,
        core: &mut slots::Core,
        observe: bool,
        out: &mut Vec<Decision<F>>,
    ) {
        // Few are decided at once: a new hot key waits for nothing.
        let is_due = self.wanted.len() <= FEW || now >= self.decide_at;
        if !observe && is_due {
            self.decide_at = now + DECIDE;
            self.promote(core, out);
        }
        if now >= self.epoch_end {
            self.turn(now, core, out);
        }
    }

    fn promote(&mut self, core: &mut slots::Core, out: &mut Vec<Decision<F>>) {
        let heat = |hash: &u128| samples(&self.keepers, self.counting, *hash);
        let mut wanted: Vec<(u64, u128)> =
            self.wanted.keys().map(|hash| (heat(hash), *hash)).collect();
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        for (count, hash) in wanted.into_iter().take(PROMOTIONS) {
            let Some(Wanted { key, .. }) = self.wanted.get(&hash) else { continue };
            let mut slot = core.promote(hash, key);
            if slot.is_none()
                && core.slot(hash).is_none()
                && let Some((coldest, cold)) = self.coldest(core)
                && count * 100 > cold * (100 + HOTTER_PERCENT) + 100 * HOTTER_LEAST
            {
                core.evict(coldest);
                self.forget(coldest);
                out.push(Decision::Evicted(coldest));
                slot = self.wanted.get(&hash).and_then(|wanted| core.promote(hash, &wanted.key));
            }
            let Some(slot) = slot else { continue };
            let Some(Wanted { forms, .. }) = self.wanted.remove(&hash) else { continue };
            self.totals.promoted += 1;
            let at = self.drawn.len();
            self.drawn.push(slot);
            self.cached.insert(slot, Cached { epochs: 0, hits: 0, writes: 0, written: 0, at });
            out.push(Decision::Promoted(slot, forms));
        }
    }

    /// Returns the coldest of some that have been cached for an epoch, and its heat.
    pub fn coldest(&mut self, core: &mut slots::Core) -> Option<(SlotId, u64)> {
        let mut coldest: Option<(SlotId, u64)> = None;
        let count = u32::try_from(self.drawn.len()).ok().filter(|count| *count > 0)?;
        for _ in 0..CANDIDATES {
            let at = self.random.below(count) as usize;
            let Some(slot) = self.drawn.get(at).copied() else { continue };
            let Some(cached) = self.cached.get_mut(&slot).filter(|cached| cached.epochs > 0) else {
                continue;
            };
            let heat = heat_of(cached, (&self.keepers, self.counting), slot, core);
            if coldest.is_none_or(|(_, coldest)| heat < coldest) {
                coldest = Some((slot, heat));
            }
        }
        coldest
    }

    /// Returns the heat of a cached key in this epoch.
    pub fn heat(&mut self, slot: SlotId, core: &mut slots::Core) -> u64 {
        let cached = self.cached.get_mut(&slot);
        cached.map_or(0, |cached| heat_of(cached, (&self.keepers, self.counting), slot, core))
    }

    /// An epoch ends.
    fn turn(&mut self, now: Nanos, core: &mut slots::Core, out: &mut Vec<Decision<F>>) {
        let mut often = Vec::new();
        let mut hottest = Vec::new();
        for (hash, wanted) in &self.wanted {
            let reads = samples(&self.keepers, self.counting, *hash);
            hottest.push(Hottest { key: wanted.key.clone(), reads, ..Hottest::default() });
        }
        for (slot, cached) in &mut self.cached {
            let hash = core.hash(*slot);
            let hits = cached.hits + u64::from(core.hits(*slot));
            let missed = hash.map_or(0, |hash| samples(&self.keepers, self.counting, hash));
            hottest.push(Hottest {
                key: core.key(*slot).unwrap_or_default().into(),
                reads: hits + missed,
                hits,
                writes: cached.writes,
                is_cached: true,
            });
            let too_many =
                cached.writes > 0 && 100 * cached.writes >= WRITES_PERCENT * (hits + missed);
            cached.written = if too_many { cached.written + 1 } else { 0 };
            if cached.written >= WRITES_EPOCHS {
                often.extend(hash.map(|hash| (*slot, hash)));
            }
            cached.epochs = cached.epochs.saturating_add(1);
            (cached.hits, cached.writes) = (0, 0);
        }
        hottest.sort_unstable_by(|a, b| b.reads.cmp(&a.reads).then_with(|| a.key.cmp(&b.key)));
        hottest.truncate(HOTTEST_MAX);
        self.hottest = Some(hottest);
        for (slot, hash) in often {
            core.evict(slot);
            self.forget(slot);
            self.bar(now, hash);
            out.push(Decision::Evicted(slot));
        }
        let largest = self.keepers.iter().map(|keeper| keeper.live().largest()).max();
        self.steer(largest.unwrap_or(0));
        let counting = self.counting;
        self.keepers.iter_mut().for_each(|keeper| {
            keeper.turn(counting);
        });
        self.epoch_end = now + EPOCH;
        self.reports = 0;
        // What is still hot is reported again.
        self.wanted.clear();
        self.barred.retain(|_, until| now < *until);
    }

    /// Sets what the next epoch counts by.
    fn steer(&mut self, largest: u16) {
        let sketch::Settings { threshold, sample_log2 } = &mut self.counting;
        if self.reports > *REPORTS.end() {
            *threshold = threshold.saturating_mul(2);
            self.stays = STAYS;
        } else if self.stays > 0 {
            self.stays -= 1;
        } else if self.reports < *REPORTS.start() {
            *threshold = (*threshold / 2).max(COUNTING.threshold);
        }
        if largest >= 1 << 15 && *sample_log2 < 32 {
            (*sample_log2, *threshold) = (*sample_log2 + 1, (*threshold / 2).max(1));
        } else if largest < 1 << 13 && *sample_log2 > 0 {
            (*sample_log2, *threshold) = (*sample_log2 - 1, threshold.saturating_mul(2));
        }
    }
}

/// Returns the hits and the misses of a cached key in this epoch.
fn heat_of(
    cached: &mut Cached,
    (keepers, counting): (&[Keeper], sketch::Settings),
    slot: SlotId,
    core: &mut slots::Core,
) -> u64 {
    cached.hits += u64::from(core.hits(slot));
    cached.hits + core.hash(slot).map_or(0, |hash| samples(keepers, counting, hash))
}

/// Returns the requests of a hash that the sketches have counted in this epoch.
fn samples(keepers: &[Keeper], counting: sketch::Settings, hash: u128) -> u64 {
    let counts = keepers.iter().map(|keeper| u64::from(keeper.live().estimate(hash)));
    counts.sum::<u64>() << counting.sample_log2.min(32)
}
