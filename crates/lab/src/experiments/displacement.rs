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
//! A search of depth 2 looks at up to 8 + 8·4 = 40 other buckets, each a line that is likely not in
//! the cache; the table counts all looks, those of the shallower searches before included. It is a naive structure: its times compare its depths with each
//! other, not with the tables of `overbank::cache`.

use std::time::Instant;

use crate::experiment::{Check, Context, Experiment, LabError, Plot, Record, Series, Table};
use crate::micro::keys::Keys;
use crate::workload::FlowStream;
use overbank::cache::Pcg32;

/// Displacement against eviction.
pub const DISPLACEMENT: Experiment = Experiment {
    name: "displacement",
    title: "hit rate and insertion cost with 0, 1 and 2 displacements before an eviction",
    source: "dissertation, section 5.3",
    run,
};

/// Where a hash may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// Two buckets anywhere.
    Cuckoo,
    /// Two buckets side by side.
    Blp,
}

/// The displacing cache.
pub(super) struct Displacing {
    shape: Shape,
    slots_per_bucket: usize,
    buckets: usize,
    /// Whole hashes; 0 is empty.
    slots: Vec<u64>,
    depth: u32,
    pcg: Pcg32,
    /// Buckets that insertions looked at.
    pub buckets_read: u64,
    /// Entries that insertions moved.
    pub moves: u64,
    /// Entries that were lost.
    pub evictions: u64,
}

impl Displacing {
    pub(super) fn new(shape: Shape, m: usize, entries: usize, depth: u32, seed: u64) -> Displacing {
        let buckets = (entries / m).max(2);
        Displacing {
            shape,
            slots_per_bucket: m,
            buckets,
            // BLP's last bucket spills into one more.
            slots: vec![0; (buckets + 1) * m],
            depth,
            pcg: Pcg32::new(seed, 7),
            buckets_read: 0,
            moves: 0,
            evictions: 0,
        }
    }

    /// The two buckets of a hash.
    fn homes(&self, hash: u64) -> [usize; 2] {
        let first = (((hash >> 32) * self.buckets as u64) >> 32) as usize;
        match self.shape {
            Shape::Blp => [first, first + 1],
            Shape::Cuckoo => {
                let stirred = hash.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
                let other = ((stirred * (self.buckets as u64 - 1)) >> 32) as usize;
                [first, other + usize::from(other >= first)]
            }
        }
    }

    fn find(&self, bucket: usize, hash: u64) -> Option<usize> {
        let start = bucket * self.slots_per_bucket;
        let slots = &self.slots[start..start + self.slots_per_bucket];
        slots.iter().position(|&slot| slot == hash).map(|at| start + at)
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.homes(hash).iter().any(|&bucket| self.find(bucket, hash).is_some())
    }

    /// Makes a slot of `bucket` empty by moving at most `depth` entries; gives its place.
    fn room(&mut self, bucket: usize, depth: u32) -> Option<usize> {
        self.buckets_read += 1;
        if let Some(empty) = self.find(bucket, 0) {
            return Some(empty);
        }
        // Fewest moves first.
        for level in 0..depth {
            let start = bucket * self.slots_per_bucket;
            for slot in start..start + self.slots_per_bucket {
                let entry = self.slots[slot];
                let [a, b] = self.homes(entry);
                let other = if a == bucket { b } else { a };
                if let Some(empty) = self.room(other, level) {
                    // A deeper move may have brought another entry here; it stays where it is.
                    if self.slots[slot] == entry {
                        self.slots[empty] = entry;
                        self.slots[slot] = 0;
                        self.moves += 1;
                    }
                    if self.slots[slot] == 0 {
                        return Some(slot);
                    }
                }
            }
        }
        None
    }

    /// Puts in a hash that is not there.
    pub(super) fn insert(&mut self, hash: u64) {
        let homes = self.homes(hash);
        for depth in 0..=self.depth {
            for bucket in homes {
                if let Some(empty) = self.room(bucket, depth) {
                    self.slots[empty] = hash;
                    return;
                }
            }
        }
        self.evictions += 1;
        let victim = self.pcg.below(2 * self.slots_per_bucket as u32) as usize;
        let bucket = homes[victim / self.slots_per_bucket];
        self.slots[bucket * self.slots_per_bucket + victim % self.slots_per_bucket] = hash;
    }

    fn reset(&mut self) {
        (self.buckets_read, self.moves, self.evictions) = (0, 0, 0);
    }
}

/// What one structure did.
pub(super) struct Figures {
    /// Hit rate after 1, 2, 5, 10 and 20 lookups per flow (a window each).
    pub fill: Vec<(f64, f64)>,
    /// In the last window.
    pub hit_rate: f64,
    /// Nanoseconds of an insertion in the last window.
    pub insert_ns: f64,
    /// Buckets read and entries moved per insertion there.
    pub read: f64,
    /// See `read`.
    pub moved: f64,
}

/// Lookups per flow at which hit rates are noted.
const MARKS: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];

pub(super) fn play(table: &mut Displacing, stream: &mut FlowStream) -> Figures {
    let flows = stream.flows() as usize;
    let window = (flows / 4).clamp(1 << 10, 1 << 17);
    let mut keys = Keys::default();
    let mut figures =
        Figures { fill: Vec::new(), hit_rate: 0.0, insert_ns: 0.0, read: 0.0, moved: 0.0 };
    let mut done = 0;
    for mark in MARKS {
        let until = (mark * flows as f64) as usize;
        while done < until {
            let count = window.min(until - done);
            keys.draw(stream, count);
            done += count;
            for &hash in &keys.hashes {
                if !table.contains(hash) {
                    table.insert(hash);
                }
            }
        }
        keys.draw(stream, window);
        done += window;
        table.reset();
        // A stretch of lookups, then its insertions against the clock.
        let (mut misses, mut ns) = (0usize, 0.0);
        for hashes in keys.hashes.chunks(1024) {
            let missed: Vec<u64> = hashes.iter().copied().filter(|&h| !table.contains(h)).collect();
            misses += missed.len();
            let start = Instant::now();
            for hash in missed {
                // It may have come twice.
                if !table.contains(hash) {
                    table.insert(hash);
                }
            }
            ns += start.elapsed().as_secs_f64() * 1e9;
        }
        let per_miss = |value: f64| value / misses.max(1) as f64;
        figures.hit_rate = 1.0 - misses as f64 / window as f64;
        figures.fill.push((mark, figures.hit_rate));
        figures.insert_ns = per_miss(ns);
        figures.read = per_miss(table.buckets_read as f64);
        figures.moved = per_miss(table.moves as f64);
    }
    figures
}

/// Name, shape, slots of a bucket, depth.
pub(super) const VARIANTS: [(&str, Shape, usize, u32); 7] = [
    ("cuckoo-2-4, plain", Shape::Cuckoo, 4, 0),
    ("cuckoo-2-4, depth 1", Shape::Cuckoo, 4, 1),
    ("cuckoo-2-4, depth 2", Shape::Cuckoo, 4, 2),
    ("blp-2-4, plain", Shape::Blp, 4, 0),
    ("blp-2-4, depth 1", Shape::Blp, 4, 1),
    ("blp-2-4, depth 2", Shape::Blp, 4, 2),
    ("blp-2-16, plain", Shape::Blp, 16, 0),
];

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let entries: usize = if smoke { 1 << 12 } else { 1 << 18 };
    let alphas: &[f64] = if smoke { &[0.95] } else { &[0.5, 0.75, 0.95, 1.25, 2.0] };
    let thetas: &[f64] = if smoke { &[0.0] } else { &[0.0, 0.99] };
    let mut record =
        Record::new((DISPLACEMENT.name, DISPLACEMENT.title, DISPLACEMENT.source), context);
    record.settings = vec![
        ("slots".into(), entries.to_string()),
        ("lookups per flow".into(), "20, from an empty table".into()),
    ];
    let all = (VARIANTS.len() * thetas.len() * alphas.len()) as f64;
    let mut done = 0.0;
    for &theta in thetas {
        let mut rates: Vec<Series> = Vec::new();
        for (name, shape, m, depth) in VARIANTS {
            let mut points = Vec::new();
            for &alpha in alphas {
                context.step(&format!("{name}, α {alpha}, θ {theta}"), done / all)?;
                done += 1.0;
                let flows = (entries as f64 * alpha) as u32;
                let mut stream = FlowStream::zipf(flows, theta, context.seed)
                    .map_err(|e| LabError::Failed(e.to_string()))?;
                let mut table = Displacing::new(shape, m, entries, depth, context.seed);
                let figures = play(&mut table, &mut stream);
                points.push((alpha, figures));
            }
            rates.push(Series {
                name: name.to_owned(),
                points: points.iter().map(|(a, f)| (*a, 100.0 * f.hit_rate)).collect(),
                ranges: Vec::new(),
                model: false,
            });
            note(&mut record, name, theta, &points);
        }
        checks(&mut record, theta, &rates);
        record.plots.push(Plot {
            title: format!("hit rate after 20 lookups per flow, θ = {theta}"),
            x: "oversubscription α (flows per slot)".into(),
            y: "hit rate, %".into(),
            log_x: false,
            log_y: false,
            series: rates,
            stated: Vec::new(),
        });
    }
    record.notes = vec![
        "Displacement fills the table sooner and to the last slot, which helps where nearly all \
         flows fit (α ≤ 1). Once the table is full there is no empty slot to be reached: the search \
         reads its buckets in vain on every insertion, and the entry that leaves is a random one \
         all the same."
            .into(),
        "A wider bucket does most of what displacement does, without any move and without knowing \
         where an entry may also lie, which a table of 16-bit fingerprints does not (cuckoo could \
         derive it from the fingerprint, at the price of a worse second bucket; BLP would need a bit \
         per slot)."
            .into(),
    ];
    Ok(record)
}

/// Adds the warm-up curve and the table's rows of one variant.
fn note(record: &mut Record, name: &str, theta: f64, points: &[(f64, Figures)]) {
    let curves = format!("warm-up at α = 0.95, θ = {theta}");
    if let Some((_, figures)) = points.iter().find(|p| p.0 == 0.95) {
        let series = Series {
            name: name.to_owned(),
            points: figures.fill.iter().map(|&(x, y)| (x, 100.0 * y)).collect(),
            ranges: Vec::new(),
            model: false,
        };
        match record.plots.iter_mut().find(|plot| plot.title == curves) {
            Some(plot) => plot.series.push(series),
            None => record.plots.push(Plot {
                title: curves,
                x: "lookups per flow".into(),
                y: "hit rate, %".into(),
                log_x: true,
                log_y: false,
                series: vec![series],
                stated: Vec::new(),
            }),
        }
    }
    let title = format!("θ = {theta}: insertions after 20 lookups per flow");
    let rows = points.iter().map(|(alpha, f)| {
        vec![
            name.to_owned(),
            alpha.to_string(),
            format!("{:.2}", 100.0 * f.hit_rate),
            format!("{:.0}", f.insert_ns),
            format!("{:.1}", f.read),
            format!("{:.2}", f.moved),
        ]
    });
    let rows = rows.collect();
    match record.tables.iter_mut().find(|table| table.title == title) {
        Some(table) => table.rows.extend::<Vec<_>>(rows),
        None => record.tables.push(Table {
            title,
            headings: ["design", "α", "hit rate, %", "ns", "buckets read", "entries moved"]
                .map(str::to_owned)
                .to_vec(),
            rows,
        }),
    }
}

fn checks(record: &mut Record, theta: f64, rates: &[Series]) {
    let at = |name: &str, alpha: f64| {
        let series = rates.iter().find(|series| series.name == name)?;
        series.points.iter().find(|p| p.0 == alpha).map(|p| p.1)
    };
    let mut claim = |claim: &str, alpha: f64, names: [&str; 2], holds: fn(f64, f64) -> bool| {
        if let (Some(a), Some(b)) = (at(names[0], alpha), at(names[1], alpha)) {
            record.checks.push(Check {
                claim: format!("θ = {theta}, α = {alpha}: {claim}"),
                stated: format!("{} against {}", names[0], names[1]),
                measured: format!("{a:.2} %, {b:.2} %"),
                holds: holds(a, b),
            });
        }
    };
    for shape in ["cuckoo-2-4", "blp-2-4"] {
        let names = [format!("{shape}, depth 2"), format!("{shape}, plain")];
        let names = [&*names[0], &*names[1]];
        claim("displacement raises the hit rate while flows fit", 0.95, names, |a, b| a > b);
        claim("but not when the table is full", 2.0, names, |a, b| (a - b).abs() < 0.5);
    }
    let names = ["blp-2-16, plain", "blp-2-4, depth 2"];
    claim("a line-sized bucket beats two displacements in 2-4 BLP", 0.95, names, |a, b| a > b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::cache::mix;
    use std::collections::HashSet;

    #[test]
    fn entries_are_moved_and_never_lost_but_by_eviction() {
        for (name, shape, m, depth) in VARIANTS {
            let mut table = Displacing::new(shape, m, 512, depth, 1);
            let hashes: Vec<u64> = (1..=600).map(mix).collect();
            for (i, &hash) in hashes.iter().enumerate() {
                if !table.contains(hash) {
                    table.insert(hash);
                }
                assert!(table.contains(hash), "{name}: {i}");
            }
            let held = hashes.iter().filter(|&&hash| table.contains(hash)).count();
            let stored: Vec<u64> = table.slots.iter().copied().filter(|&s| s != 0).collect();
            let distinct: HashSet<u64> = stored.iter().copied().collect();
            assert_eq!((stored.len(), distinct.len()), (held, held), "{name}");
            assert_eq!(held as u64 + table.evictions, 600, "{name}");
            assert_eq!(table.moves > 0, depth > 0, "{name}");
        }
    }

    #[test]
    fn deeper_searches_hold_more() {
        let held = |depth| {
            let mut table = Displacing::new(Shape::Cuckoo, 4, 4096, depth, 1);
            (1..=3800).map(mix).for_each(|hash| table.insert(hash));
            table.evictions
        };
        assert!(held(0) > held(1) && held(1) > held(2));
    }
}
