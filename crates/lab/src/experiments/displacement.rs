//! Displacement against eviction: may an insertion move other entries out of its way?
//!
//! A structure of its own, made for this question and nothing else: slots hold whole 64-bit hashes,
//! so that it is known where an entry may also lie. An insertion into full buckets looks for an
//! empty slot that can be reached by moving at most *depth* entries, fewest moves first, and evicts
//! at random only if there is none. Depth 0 is the plain eviction of the other experiments.
//!
//! ```text
//!  depth 1     new ─▶ [a b c d]      b ─▶ [e f · g]              one entry moves
//!  depth 2     new ─▶ [a b c d]      b ─▶ [e f h g]   f ─▶ [· …]   two entries move
//! ```
//!
//! The search is breadth first and looks at each bucket once. At depth 2 that is at most
//! 2 + 8 + 8·4 = 42 buckets in 2-4 cuckoo, each a line that is likely not in the cache, and 6 in 2-4
//! BLP, whose entries only reach a neighbour. It is a naive structure: its times compare its depths
//! with each other, not with the tables of `overbank::cache`.

use crate::prelude::*;
use overbank::random::Pcg32;
use overbank_kit::micro::keys::Keys;
use std::collections::HashSet;
use std::time::Instant;

pub const DISPLACEMENT: Experiment = Experiment {
    name: "displacement",
    title: "hit rate and insertion cost with 0, 1 and 2 displacements before an eviction",
    source: "dissertation, section 5.3",
    run,
};

/// Where a hash may be.
#[derive(Clone, Copy)]
pub(super) enum Reach {
    /// Two buckets anywhere.
    Cuckoo,
    /// Two buckets side by side.
    Blp,
}

/// A bucket that a search looked at.
#[derive(Clone, Copy)]
struct Looked {
    bucket: usize,
    /// The slot whose entry may move here, and the place of its bucket in the search; `None` for the
    /// homes of the new hash.
    from: Option<(usize, usize)>,
    moves: u32,
}

struct Displacing {
    reach: Reach,
    slots_per_bucket: usize,
    buckets: usize,
    /// Whole hashes; 0 is empty.
    slots: Vec<u64>,
    depth: u32,
    pcg: Pcg32,
    /// Breadth first: of the insertion under way, kept for its memory.
    search: Vec<Looked>,
    buckets_read: u64,
    moves: u64,
    evictions: u64,
}

impl Displacing {
    fn new(reach: Reach, m: usize, entries: usize, depth: u32, seed: u64) -> Displacing {
        let buckets = (entries / m).max(2);
        Displacing {
            reach,
            slots_per_bucket: m,
            buckets,
            // BLP's last bucket spills into one more.
            slots: vec![0; (buckets + 1) * m],
            depth,
            pcg: Pcg32::new(seed, 7),
            search: Vec::new(),
            buckets_read: 0,
            moves: 0,
            evictions: 0,
        }
    }

    /// The two buckets of a hash.
    fn homes(&self, hash: u64) -> [usize; 2] {
        let first = (((hash >> 32) * self.buckets as u64) >> 32) as usize;
        match self.reach {
            Reach::Blp => [first, first + 1],
            Reach::Cuckoo => {
                let stirred = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
                let other = ((stirred * (self.buckets as u64 - 1)) >> 32) as usize;
                [first, other + usize::from(other >= first)]
            }
        }
    }

    fn slots_of(&self, bucket: usize) -> std::ops::Range<usize> {
        bucket * self.slots_per_bucket..(bucket + 1) * self.slots_per_bucket
    }

    fn find(&self, bucket: usize, hash: u64) -> Option<usize> {
        self.slots_of(bucket).find(|&slot| self.slots[slot] == hash)
    }

    fn contains(&self, hash: u64) -> bool {
        self.homes(hash).iter().any(|&bucket| self.find(bucket, hash).is_some())
    }

    /// Looks at a bucket, unless this search has done so; gives an empty slot of it.
    fn look(&mut self, looked: Looked) -> Option<usize> {
        if self.search.iter().any(|before| before.bucket == looked.bucket) {
            return None;
        }
        self.search.push(looked);
        self.buckets_read += 1;
        self.find(looked.bucket, 0)
    }

    /// An empty slot as few moves away from `homes` as can be, in the bucket that the search looked
    /// at last; `None` if there is none within the depth.
    fn reach(&mut self, homes: [usize; 2]) -> Option<usize> {
        self.search.clear();
        for bucket in homes {
            if let Some(empty) = self.look(Looked { bucket, from: None, moves: 0 }) {
                return Some(empty);
            }
        }
        let mut place = 0;
        while let Some(&Looked { bucket, moves, .. }) = self.search.get(place)
            && moves < self.depth
        {
            for slot in self.slots_of(bucket) {
                let [a, b] = self.homes(self.slots[slot]);
                let (other, from) = (if a == bucket { b } else { a }, Some((slot, place)));
                let looked = Looked { bucket: other, from, moves: moves + 1 };
                if let Some(empty) = self.look(looked) {
                    return Some(empty);
                }
            }
            place += 1;
        }
        None
    }

    /// Puts in a hash that is not there.
    fn insert(&mut self, hash: u64) {
        let homes = self.homes(hash);
        let Some(mut empty) = self.reach(homes) else {
            self.evictions += 1;
            let victim = self.pcg.below(2 * self.slots_per_bucket as u32) as usize;
            let start = self.slots_of(homes[victim / self.slots_per_bucket]).start;
            self.slots[start + victim % self.slots_per_bucket] = hash;
            return;
        };
        // Back along the path: each entry moves into the slot that has become empty. No bucket is on
        // it twice, so no move undoes another.
        let mut place = self.search.len() - 1;
        while let Some((slot, before)) = self.search[place].from {
            self.slots[empty] = self.slots[slot];
            self.moves += 1;
            (empty, place) = (slot, before);
        }
        self.slots[empty] = hash;
    }
}

/// What one structure did: hit rates after [`MARKS`], and the last window.
#[derive(Default)]
pub(super) struct Figures {
    pub fill: Vec<(f64, f64)>,
    pub hit_rate: f64,
    pub lookups: usize,
    /// Nanoseconds of an insertion, buckets that it read, and entries that it moved.
    pub insert_ns: f64,
    pub read: f64,
    pub moved: f64,
}

/// Lookups per flow at which hit rates are noted, of a window each.
const MARKS: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];

/// Plays (α, θ) to an empty structure of so many entries.
pub(super) fn play(
    (_, reach, m, depth): Variant,
    entries: usize,
    (alpha, theta): (f64, f64),
    seed: u64,
) -> Result<Figures, LabError> {
    let mut table = Displacing::new(reach, m, entries, depth, seed);
    let flows = (entries as f64 * alpha) as u32;
    let mut stream = draws(flows, theta, seed)?;
    let window = (flows as usize / 4).clamp(1 << 10, 1 << 17);
    let mut keys = Keys::seeded(seed);
    let mut figures = Figures { lookups: window, ..Figures::default() };
    let mut done = 0;
    for mark in MARKS {
        let until = (mark * f64::from(flows)) as usize;
        while done < until {
            let count = window.min(until - done);
            keys.draw(&mut stream, count);
            done += count;
            for &hash in &keys.hashes {
                if !table.contains(hash) {
                    table.insert(hash);
                }
            }
        }
        keys.draw(&mut stream, window);
        done += window;
        (table.buckets_read, table.moves, table.evictions) = (0, 0, 0);
        // A stretch of lookups, then its insertions against the clock.
        let (mut misses, mut insertions, mut ns) = (0usize, 0usize, 0.0);
        for hashes in keys.hashes.chunks(1024) {
            let mut missed: Vec<u64> =
                hashes.iter().copied().filter(|&h| !table.contains(h)).collect();
            misses += missed.len();
            // One that comes twice is inserted once.
            let mut seen = HashSet::new();
            missed.retain(|&hash| seen.insert(hash));
            insertions += missed.len();
            let start = Instant::now();
            missed.into_iter().for_each(|hash| table.insert(hash));
            ns += start.elapsed().as_secs_f64() * 1e9;
        }
        let per_insertion = |value: f64| value / insertions.max(1) as f64;
        figures.hit_rate = 1.0 - misses as f64 / window as f64;
        figures.fill.push((mark, figures.hit_rate));
        figures.insert_ns = per_insertion(ns);
        figures.read = per_insertion(table.buckets_read as f64);
        figures.moved = per_insertion(table.moves as f64);
    }
    Ok(figures)
}

/// Name, where a hash may be, slots of a bucket, depth.
pub(super) type Variant = (&'static str, Reach, usize, u32);

/// What is compared.
pub(super) const VARIANTS: [Variant; 7] = [
    ("cuckoo-2-4, plain", Reach::Cuckoo, 4, 0),
    ("cuckoo-2-4, depth 1", Reach::Cuckoo, 4, 1),
    ("cuckoo-2-4, depth 2", Reach::Cuckoo, 4, 2),
    ("blp-2-4, plain", Reach::Blp, 4, 0),
    ("blp-2-4, depth 1", Reach::Blp, 4, 1),
    ("blp-2-4, depth 2", Reach::Blp, 4, 2),
    ("blp-2-16, plain", Reach::Blp, 16, 0),
];

/// What was measured under a skew: of each variant the figures over α.
struct Skew {
    theta: f64,
    points: Vec<(&'static str, f64, Figures)>,
}

impl Skew {
    fn rate(&self, name: &str, alpha: f64) -> Option<f64> {
        let point = self.points.iter().find(|p| (p.0, p.1) == (name, alpha))?;
        Some(100.0 * point.2.hit_rate)
    }
}

/// Pairs of variants at an α, and how the first has to be to the second.
type Pair = (&'static str, [&'static str; 2], f64, fn(f64, f64) -> bool);

const CUCKOO: [&str; 2] = ["cuckoo-2-4, depth 2", "cuckoo-2-4, plain"];
const BLP: [&str; 2] = ["blp-2-4, depth 2", "blp-2-4, plain"];
const WIDE: [&str; 2] = ["blp-2-16, plain", "blp-2-4, depth 2"];
const RAISES: &str = "α = 0.95: displacement raises the hit rate while flows fit";
const FULL: &str = "α = 2: but not when the table is full";
const BEATS: &str = "α = 0.95: a line-sized bucket beats two displacements in 2-4 BLP";

const PAIRS: [Pair; 5] = [
    (RAISES, CUCKOO, 0.95, |a, b| a > b),
    (FULL, CUCKOO, 2.0, |a, b| (a - b).abs() < 0.5),
    (RAISES, BLP, 0.95, |a, b| a > b),
    (FULL, BLP, 2.0, |a, b| (a - b).abs() < 0.5),
    (BEATS, WIDE, 0.95, |a, b| a > b),
];

fn claims(record: &mut Record, skew: &Skew) {
    for (text, names, alpha, holds) in PAIRS {
        let [Some(a), Some(b)] = names.map(|name| skew.rate(name, alpha)) else { continue };
        let (claim, stated) = (format!("θ = {}: {text}", skew.theta), names.join(" against "));
        record.claim(claim, stated, format!("{a:.2} %, {b:.2} %"), holds(a, b));
    }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let entries: usize = if smoke { 1 << 12 } else { 1 << 18 };
    let alphas: &[f64] = if smoke { &[0.95] } else { &[0.5, 0.75, 0.95, 1.25, 2.0] };
    let thetas: &[f64] = if smoke { &[0.0] } else { &[0.0, 0.99] };
    let mut record = DISPLACEMENT.record(context);
    record.setting("slots", entries);
    record.setting("lookups per flow", "20, from an empty table");
    for &theta in thetas {
        let name = |(v, alpha): &(Variant, f64)| format!("{}, α {alpha}, θ {theta}", v.0);
        let half = if theta == 0.0 { (0.0, 1.0 / thetas.len() as f64) } else { (0.5, 1.0) };
        let points = context.part(half, |context| {
            context.each(pairs(&VARIANTS, alphas), name, |context, (variant, alpha)| {
                Ok((variant.0, alpha, play(variant, entries, (alpha, theta), context.seed)?))
            })
        })?;
        let skew = Skew { theta, points };
        claims(&mut record, &skew);
        record.plots.extend(plots(&skew));
        record.tables.push(Table::of(
            format!("θ = {theta}: insertions after 20 lookups per flow"),
            &skew.points,
            &[
                ("design", &|p| p.0.to_owned()),
                ("α", &|p| p.1.to_string()),
                ("hit rate, %", &|p| format!("{:.2}", 100.0 * p.2.hit_rate)),
                ("ns", &|p| format!("{:.0}", p.2.insert_ns)),
                ("buckets read", &|p| format!("{:.1}", p.2.read)),
                ("entries moved", &|p| format!("{:.2}", p.2.moved)),
            ],
        ));
    }
    record.note(
        "Displacement fills the table sooner and to the last slot, which helps where nearly all flows fit \
         (α ≤ 1). Once the table is full there is no empty slot to be reached: the search reads its buckets \
         in vain on every insertion, and the entry that leaves is a random one all the same.",
    );
    record.note(
        "A wider bucket does most of what displacement does, without any move and without knowing where an \
         entry may also lie, which a table of 16-bit fingerprints does not (cuckoo could derive it from the \
         fingerprint, at the price of a worse second bucket; BLP would need a bit per slot).",
    );
    Ok(record)
}

fn plots(Skew { theta, points }: &Skew) -> [Plot; 2] {
    let variants = || points.chunk_by(|a, b| a.0 == b.0);
    let percent = |(x, rate): (f64, f64)| (x, 100.0 * rate);
    let filled = points.iter().filter(|p| p.1 == 0.95).map(|(name, _, figures)| {
        Series::measured(*name, figures.fill.iter().copied().map(percent).collect())
    });
    let rates = variants().map(|of| {
        let points = of.iter().map(|(_, alpha, figures)| percent((*alpha, figures.hit_rate)));
        Series::measured(of[0].0, points.collect())
    });
    let y = "hit rate, %";
    let warm_up = format!("warm-up at α = 0.95, θ = {theta}");
    let after = format!("hit rate after 20 lookups per flow, θ = {theta}");
    [
        Plot::new(warm_up, "lookups per flow", y).log_x().with(filled),
        Plot::new(after, "oversubscription α (flows per slot)", y).with(rates),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::hash::mix;

    #[test]
    fn entries_are_moved_and_never_lost_but_by_eviction() {
        for (name, reach, m, depth) in VARIANTS {
            let mut table = Displacing::new(reach, m, 512, depth, 1);
            let hashes: Vec<u64> = (1..=600).map(mix).collect();
            for &hash in &hashes {
                table.insert(hash);
                assert!(table.contains(hash), "{name}");
            }
            let held = hashes.iter().filter(|&&hash| table.contains(hash)).count();
            let stored: Vec<u64> = table.slots.iter().copied().filter(|&s| s != 0).collect();
            let distinct: HashSet<u64> = stored.iter().copied().collect();
            assert_eq!((stored.len(), distinct.len()), (held, held), "{name}");
            assert_eq!(held as u64 + table.evictions, 600, "{name}");
            assert_eq!(table.moves > 0, depth > 0, "{name}");
        }
        let lost = [0, 1, 2].map(|depth| {
            let mut table = Displacing::new(Reach::Cuckoo, 4, 4096, depth, 1);
            (1..=3800).map(mix).for_each(|hash| table.insert(hash));
            table.evictions
        });
        assert!(lost.is_sorted_by(|a, b| a > b), "deeper searches hold more: {lost:?}");
    }

    /// 2-4 BLP, 16 buckets and the spill, no slot empty: every inner bucket holds two entries that
    /// may also lie in the next bucket and two that may also lie in the one before.
    fn full_blp(depth: u32) -> Displacing {
        let mut table = Displacing::new(Reach::Blp, 4, 64, depth, 1);
        for (bucket, i) in (0..=16u64).flat_map(|bucket| (0..4).map(move |i| (bucket, i))) {
            let first = if i < 2 { bucket.min(15) } else { bucket.saturating_sub(1) };
            let hash = first << 60 | bucket << 8 | (i + 1);
            table.slots[(4 * bucket + i) as usize] = hash;
            assert!(table.homes(hash).contains(&(bucket as usize)));
        }
        table
    }

    #[test]
    fn looks_once_at_each_bucket_that_can_be_reached() {
        // Buckets 8 and 9; then 7 and 10; then 6 and 11.
        for (depth, buckets) in [(0, 2), (1, 4), (2, 6)] {
            let mut table = full_blp(depth);
            table.insert(8 << 60 | 0xffff);
            assert_eq!((table.buckets_read, table.moves, table.evictions), (buckets, 0, 1));
        }
        // Anywhere: counted by sets.
        let mut table = Displacing::new(Reach::Cuckoo, 4, 1 << 16, 0, 1);
        (1..=1 << 20).map(mix).for_each(|hash| table.insert(hash));
        assert!(table.slots[..1 << 16].iter().all(|&slot| slot != 0));
        for (depth, most) in [(0, 2), (1, 2 + 8), (2, 2 + 8 + 32)] {
            table.depth = depth;
            for hash in (u64::from(depth + 1) << 30..).map(mix).take(100) {
                let mut reached: HashSet<usize> = table.homes(hash).into();
                for _ in 0..depth {
                    let slots = reached.iter().flat_map(|&b| 4 * b..4 * b + 4);
                    let next: Vec<_> = slots.flat_map(|s| table.homes(table.slots[s])).collect();
                    reached.extend(next);
                }
                (table.buckets_read, table.moves) = (0, 0);
                table.insert(hash);
                assert_eq!((table.buckets_read, table.moves), (reached.len() as u64, 0));
                assert!(table.buckets_read <= most);
            }
        }
    }

    #[test]
    fn moves_as_few_entries_as_it_must() {
        let new = 8 << 60 | 0xffff;
        for (empty, moves) in [(8, 0), (9, 0), (7, 1), (10, 1), (6, 2), (11, 2)] {
            let mut table = full_blp(2);
            table.slots[4 * empty + 1] = 0;
            let before: Vec<u64> = table.slots.iter().copied().filter(|&s| s != 0).collect();
            table.insert(new);
            assert_eq!((table.moves, table.evictions), (moves, 0), "{empty}");
            assert!(before.iter().chain([&new]).all(|&hash| table.contains(hash)), "{empty}");
        }
        let mut table = full_blp(2);
        table.slots[4 * 5] = 0;
        table.insert(new);
        assert_eq!((table.moves, table.evictions), (0, 1), "three moves away");
    }
}
