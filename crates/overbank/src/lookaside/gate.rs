//! The gate: whether a table works, or steps aside because it does not pay.
//!
//! A hit rate alone does not say. In front of a hash table 79 % of hits may cost more than they
//! save. So two things are measured: how often the table answers, in one bucket of
//! [`SAMPLE`](super::SAMPLE) which works always, and what a hit, a miss and a search of the index
//! cost. Buckets are sampled and not keys: sampled keys, spread over all buckets, would meet a
//! table that is empty but for them, and seem to hit.
//!
//! The crate has no clock. The costs are the caller's ([`Gate::set_costs`]), or a [`Meter`] derives
//! them from the caller's clock.

use core::fmt;
// Counts and costs order nothing, so the model checker need not see them.
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::config::Counters;
use super::copies::SAMPLE;

/// Sampled lookups between two decisions.
const WINDOW: u64 = 2048;
/// Lines of counters, so that threads seldom meet in one.
const STRIPES: usize = 16;
/// A closed gate opens if hits save this many times what misses cost.
const OPEN_AT: f64 = 1.1;
/// An open gate closes if hits save less than this many times what misses cost.
const CLOSE_AT: f64 = 0.95;

/// What closed a gate may be over, so the gate forgets it: by a factor of e in the time in which
/// the table could fill so often: its sample's luck by the lookups that go through it, what a meter
/// measured by all of the meter's. Then it opens, and is measured again.
const FORGETS: u64 = 64;

/// What lookups cost, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A lookup that the table answers.
    pub hit: f32,
    /// What a lookup that it does not answer, and the fill, add to the search.
    pub miss: f32,
    /// A search of the index alone.
    pub index: f32,
}

/// What is counted, by its place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Hit,
    Miss,
    Fill,
    Declined,
    Outdone,
    Raced,
    Busy,
}

const EVENTS: usize = 7;

#[derive(Default)]
#[repr(align(64))]
struct Stripe([AtomicU64; EVENTS]);

/// Decides whether a table works. See [`Config::gate`](super::Config::gate).
pub struct Gate {
    open: AtomicBool,
    /// Whether it may close.
    swings: bool,
    /// Whether the costs are known.
    known: AtomicBool,
    /// Bits of the costs: hit, miss, index.
    costs: [AtomicU32; 3],
    /// Held by a thread that decides.
    deciding: AtomicBool,
    /// Hits and misses at the last decision, by sample and by meters, and those of its window.
    seen: [AtomicU64; 4],
    metered: [AtomicU64; 2],
    window: [AtomicU64; 2],
    /// Bits of the misses that meters counted for each that the sample would have had, last time.
    luck: AtomicU64,
    decisions: AtomicU64,
    /// Sampled lookups in which a table fills.
    filling: u64,
    /// The sampled lookup until which it stays open.
    open_until: AtomicU64,
    stripes: [Stripe; STRIPES],
}

impl Gate {
    /// For a table of `slots` entries. A table that is empty, or has what was asked for long ago,
    /// has few hits, which says nothing: after each opening it has two lookups an entry to fill.
    pub(super) fn new(config: Option<Option<Costs>>, slots: usize) -> Self {
        let filling = 2 * slots as u64 / u64::from(SAMPLE);
        let gate = Self {
            open: AtomicBool::new(true),
            swings: config.is_some(),
            known: AtomicBool::new(false),
            costs: Default::default(),
            deciding: AtomicBool::new(false),
            seen: Default::default(),
            metered: Default::default(),
            window: Default::default(),
            luck: AtomicU64::new(1f64.to_bits()),
            decisions: AtomicU64::new(0),
            filling,
            open_until: AtomicU64::new(filling),
            stripes: Default::default(),
        };
        config.flatten().into_iter().for_each(|costs| gate.set_costs(costs));
        gate
    }

    /// Returns whether the table works. Otherwise only one bucket in [`SAMPLE`] does.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.open.load(Relaxed)
    }

    /// Sets what lookups cost, from the next decision on.
    pub fn set_costs(&self, costs: Costs) {
        let all = [costs.hit, costs.miss, costs.index];
        self.costs.iter().zip(all).for_each(|(place, cost)| place.store(cost.to_bits(), Relaxed));
        self.known.store(true, Release);
    }

    fn costs(&self) -> Option<Costs> {
        let [hit, miss, index] = &self.costs;
        let [hit, miss, index] = [hit, miss, index].map(|bits| f32::from_bits(bits.load(Relaxed)));
        self.known.load(Acquire).then_some(Costs { hit, miss, index })
    }

    #[inline(never)]
    pub(super) fn count(&self, bucket: u32, event: Event) {
        let Stripe(counts) = &self.stripes[(bucket / SAMPLE) as usize % STRIPES];
        let count = counts[event as usize].fetch_add(1, Relaxed);
        if self.swings && matches!(event, Event::Hit | Event::Miss) && count % 64 == 63 {
            self.decide();
        }
    }

    /// Returns the counts of all stripes.
    pub(super) fn counters(&self) -> Counters {
        let sum = |event: Event| {
            self.stripes.iter().map(|stripe| stripe.0[event as usize].load(Relaxed)).sum()
        };
        Counters {
            hits: sum(Event::Hit),
            misses: sum(Event::Miss),
            fills: sum(Event::Fill),
            declined: sum(Event::Declined),
            outdone: sum(Event::Outdone),
            raced: sum(Event::Raced),
            busy: sum(Event::Busy),
        }
    }

    fn is_filling(&self) -> bool {
        let Counters { hits, misses, .. } = self.counters();
        self.is_open() && hits + misses < self.open_until.load(Relaxed)
    }

    /// Opens or closes, once a window is full.
    fn decide(&self) {
        if self.deciding.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return;
        }
        let Counters { hits, misses, .. } = self.counters();
        let [metered_hits, metered_misses] = &self.metered;
        let now = [hits, misses, metered_hits.load(Relaxed), metered_misses.load(Relaxed)];
        let since = |at: usize| now[at] - self.seen[at].load(Relaxed);
        let (sampled, metered) = ([since(0), since(1)], [since(2), since(3)]);
        if sampled[0] + sampled[1] >= WINDOW {
            let filling = self.is_filling();
            let new = self.corrected(sampled, metered, filling);
            self.seen.iter().zip(now).for_each(|(place, count)| place.store(count, Relaxed));
            self.window.iter().zip(new).for_each(|(place, count)| place.store(count, Relaxed));
            self.decisions.fetch_add(1, Relaxed);
            if let Some(costs) = self.costs() {
                let (saved, spent) = balance(&costs, new[0] as f64, new[1] as f64);
                let factor = if self.is_open() { CLOSE_AT } else { OPEN_AT };
                let opens = saved > spent * factor;
                if opens && !self.is_open() {
                    self.open_until.store(hits + misses + self.filling, Relaxed);
                }
                self.open.store(filling || opens, Relaxed);
            }
        }
        self.deciding.store(false, Release);
    }

    /// Returns hits and misses of a window. What meters counted is all of their lookups. The sample
    /// has hot keys by luck, or not. While the table is closed there is only the sample, and its
    /// luck is taken to be what it was. That is forgotten by and by, so that it is found anew.
    fn corrected(&self, sampled: [u64; 2], metered: [u64; 2], filling: bool) -> [u64; 2] {
        let misses = |[hits, misses]: [u64; 2]| misses as f64 / (hits + misses) as f64;
        if self.is_open() && metered[0] + metered[1] >= WINDOW {
            if !filling {
                let one = 1.0 / WINDOW as f64;
                let luck = misses(metered).max(one) / misses(sampled).max(one);
                self.luck.store(luck.to_bits(), Relaxed);
            }
            return metered;
        }
        let all = sampled[0] + sampled[1];
        let luck = f64::from_bits(self.luck.load(Relaxed));
        let forgotten = WINDOW as f64 / (FORGETS * self.filling.max(WINDOW)) as f64;
        self.luck.store((luck + forgotten * (1.0 - luck)).to_bits(), Relaxed);
        let misses = (sampled[1] as f64 * luck).min(all as f64) as u64;
        [all - misses, misses]
    }

    /// Reports whether the table works, and why.
    pub fn report(&self) -> Report {
        let [hits, misses] = &self.window;
        let (hits, misses) = (hits.load(Relaxed), misses.load(Relaxed));
        let decided = self.decisions.load(Relaxed);
        Report {
            open: self.is_open(),
            filling: self.is_filling(),
            swings: self.swings,
            hit_rate: (decided > 0).then(|| hits as f64 / (hits + misses).max(1) as f64),
            costs: self.costs(),
            decisions: decided,
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.report(), f)
    }
}

/// Returns what hits save and what misses cost.
fn balance(costs: &Costs, hits: f64, misses: f64) -> (f64, f64) {
    (hits * f64::from(costs.index - costs.hit), misses * f64::from(costs.miss))
}

/// Why a table works or steps aside: [`Gate::report`]. Its text is one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Whether the table works.
    pub open: bool,
    /// Whether it does so whether or not it pays, since it had no time to fill yet.
    pub filling: bool,
    /// Whether the gate may close, by configuration.
    pub swings: bool,
    /// Answered share of the lookups of the last window; `None` before the first decision.
    pub hit_rate: Option<f64>,
    /// What lookups cost, if given or measured.
    pub costs: Option<Costs>,
    /// Decisions so far.
    pub decisions: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.open { "open: " } else { "closed: " })?;
        match (self.swings, self.hit_rate, self.costs) {
            (false, ..) => f.write_str("it has no gate"),
            (true, _, None) => f.write_str("costs are not measured yet"),
            (true, None, Some(_)) => f.write_str("too few lookups to decide yet"),
            (true, Some(hit_rate), Some(costs)) => {
                let (saved, spent) = balance(&costs, hit_rate, 1.0 - hit_rate);
                let Costs { hit, miss, index } = costs;
                write!(
                    f,
                    "{:.1} % of lookups hit, for {hit:.0} ns instead of {index:.0} ns, the others \
                     cost {miss:.0} ns more: {:.0} ns a lookup {}{}",
                    100.0 * hit_rate,
                    (saved - spent).abs(),
                    if saved > spent { "saved" } else { "lost" },
                    if self.filling { " while it fills" } else { "" },
                )
            }
        }
    }
}

/// Which way lookups go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the table.
    Through,
    /// Past the table, to the index alone: neither `get` nor `fill`.
    Around,
}

/// Lookups that a [`Meter`] times together.
const METERED: u32 = 512;
/// Windows from one turn around the table to the next: 17 million lookups.
const CYCLE: u32 = 1 << 15;
/// Windows that go around: 262,144 lookups. The caches of the CPU hold the table's lines at first,
/// and the index's only after a while, so the last ones count.
const AROUND: core::ops::Range<u32> = 256..768;
const TIMED: core::ops::Range<u32> = 640..768;
/// One window in 16 goes through a closed table, for its sample.
const CLOSED_THROUGH: u32 = 16;
/// Share by which a window moves what is known. Times move by no more, however long the window
/// took, and so come to their median: a thread that is interrupted for milliseconds now and then
/// measures the same.
const STEP: f32 = 1.0 / 32.0;
/// The same in the first windows, since the very first may have taken any time.
const FIRST_STEP: f32 = 1.0 / 8.0;
const FIRST: u32 = 32;
/// Largest share of the time through a closed table that a window forgets: see [`FORGETS`].
const FORGOTTEN_MAX: f32 = 1.0 / 65536.0;

/// Derives [`Costs`] from the time that one thread's lookups take: windows of lookups, most of them
/// through the table and one in 64 around it, in long turns. While the gate is closed, 15 in 16 go
/// around.
///
/// A window through the table with hit rate h takes h · hit + (1 − h) · (miss + index) a lookup.
/// Two unknowns need a second equation: miss = 2 · hit, a lookup and a fill. For a gate that is
/// open this is no assumption, since the decision compares the two windows.
#[derive(Clone, Debug)]
pub struct Meter {
    windows: u32,
    /// Lookups of the window that are still to come, below zero if it had more.
    left: i32,
    /// What `left` was at first.
    of: i32,
    hits: u32,
    start: u64,
    way: Way,
    /// Whether the window counts.
    timed: bool,
    through: Option<f32>,
    hit_rate: f32,
    around: Option<f32>,
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter {
    /// Lookups after which a new meter has measured both ways, and goes through the table again.
    pub const SETTLED: u64 = (TIMED.end * METERED) as u64;

    /// Begins with a window through the table, which is not timed: the table is empty.
    pub const fn new() -> Self {
        Self {
            windows: 0,
            left: 0,
            of: 0,
            hits: 0,
            start: 0,
            way: Way::Through,
            timed: false,
            through: None,
            hit_rate: 0.0,
            around: None,
        }
    }

    /// Returns which way the next lookups go. `now` returns nanoseconds of any monotonic clock; it
    /// is called once in 512 lookups, and again while a coarse one stands still.
    #[inline(always)]
    pub fn way(&mut self, gate: &Gate, lookups: u32, now: impl FnOnce() -> u64) -> Way {
        if self.left <= 0 {
            self.turn(gate, now());
        }
        // One change of memory: lookups of a fast index notice each.
        self.left = self.left.saturating_sub_unsigned(lookups);
        self.way
    }

    /// Notes how many of those lookups hit.
    #[inline]
    pub fn hits(&mut self, hits: u32) {
        self.hits = self.hits.saturating_add(hits);
    }

    #[cold]
    fn turn(&mut self, gate: &Gate, now: u64) {
        let nanoseconds = now.saturating_sub(self.start);
        if self.windows > 0 && nanoseconds == 0 {
            // A coarse clock: the window goes on until its time has moved.
            self.of = self.of.saturating_add(METERED as i32);
            self.left = self.left.saturating_add(METERED as i32);
            return;
        }
        let lookups = self.of.abs_diff(self.left).max(1);
        // A caller can say anything.
        let hits = self.hits.min(lookups);
        let each = nanoseconds as f32 / lookups as f32;
        let past = self.windows.wrapping_sub(1) % CYCLE;
        let first = self.windows < FIRST || (TIMED.start..TIMED.start + FIRST).contains(&past);
        let step = if first { FIRST_STEP } else { STEP };
        let median = |old: Option<f32>| match old {
            None => each,
            Some(old) => old * if each > old { 1.0 + step } else { 1.0 - step },
        };
        if self.timed {
            // The window that ends.
            if self.way == Way::Around {
                self.around = Some(median(self.around));
            } else if gate.is_open() {
                let missed = lookups - hits;
                gate.metered[0].fetch_add(hits.into(), Relaxed);
                gate.metered[1].fetch_add(missed.into(), Relaxed);
                let hit_rate = hits as f32 / lookups as f32;
                let weight = if self.through.is_some() { step } else { 1.0 };
                self.hit_rate += weight * (hit_rate - self.hit_rate);
                self.through = Some(median(self.through));
            }
        }
        if !gate.is_open() {
            let filling = gate.filling * u64::from(SAMPLE);
            let forgotten = METERED as f32 / (FORGETS * filling).max(1) as f32;
            let keep = 1.0 - forgotten.min(FORGOTTEN_MAX);
            self.through = self.through.map(|through| through * keep);
        }
        if let (Some(through), Some(index)) = (self.through, self.around) {
            let missed = 1.0 - self.hit_rate;
            let hit = (through - missed * index) / (self.hit_rate + 2.0 * missed);
            let hit = hit.max(0.0);
            gate.set_costs(Costs { hit, miss: 2.0 * hit, index });
        }
        let (at, closed) = (self.windows % CYCLE, !gate.is_open());
        let around = AROUND.contains(&at) || closed && !at.is_multiple_of(CLOSED_THROUGH);
        self.way = if around { Way::Around } else { Way::Through };
        self.timed = match self.way {
            Way::Around => closed || TIMED.contains(&at),
            Way::Through => !closed && self.windows > 0,
        };
        self.windows = self.windows.wrapping_add(1).max(1);
        (self.left, self.of, self.hits, self.start) = (METERED as i32, METERED as i32, 0, now);
    }
}
