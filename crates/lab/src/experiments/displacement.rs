//! Displacement against eviction: may an insertion move other entries out of its way?
//!
//! The structure is [`NaiveTable`]: it holds whole keys, so that it is known where an entry may
//! also lie. Depth 0 is the plain eviction of the other experiments. At depth 2 a search reads at
//! most 2 + 8 + 8·4 = 42 buckets in 2-4 cuckoo, each a line that is likely not in the cache, and 6
//! in 2-4 BLP, whose entries only reach a neighbour. Its times compare its depths with each other,
//! not with the tables of `overbank::cache`.

use crate::prelude::*;
use overbank_kit::naive::{Counts, NaiveTable};
use std::collections::HashSet;
use std::time::Instant;

pub const DISPLACEMENT: Experiment = Experiment {
    name: "displacement",
    title: "hit rate and insertion cost with 0, 1 and 2 displacements before an eviction",
    source: "dissertation, section 5.3",
    run,
};

/// Name, geometry, depth.
pub(super) type Variant = (&'static str, &'static str, u32);

pub(super) const VARIANTS: [Variant; 7] = [
    ("cuckoo-2-4, plain", "cuckoo-2-4", 0),
    ("cuckoo-2-4, depth 1", "cuckoo-2-4", 1),
    ("cuckoo-2-4, depth 2", "cuckoo-2-4", 2),
    ("blp-2-4, plain", "blp-2-4", 0),
    ("blp-2-4, depth 1", "blp-2-4", 1),
    ("blp-2-4, depth 2", "blp-2-4", 2),
    ("blp-2-16, plain", "blp-2-16", 0),
];

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

/// Plays (α, θ) to an empty structure of `entries` entries.
pub(super) fn play(
    (_, geometry, depth): Variant,
    entries: usize,
    (alpha, theta): (f64, f64),
    seed: u64,
) -> Result<Figures, LabError> {
    let geometry = geometry.parse().map_err(LabError::failed)?;
    let mut table = NaiveTable::new(geometry, entries, depth, seed);
    let flows = (entries as f64 * alpha) as u32;
    let mut stream = draws(flows, theta, seed)?;
    let mut keys = vec![0; (flows as usize / 4).clamp(1 << 10, 1 << 17)];
    let mut figures = Figures { lookups: keys.len(), ..Figures::default() };
    let mut done = 0;
    for mark in MARKS {
        let until = (mark * f64::from(flows)) as usize;
        for _ in done..until {
            table.look_up(stream.next_flow());
        }
        stream.fill(&mut keys);
        done = done.max(until) + keys.len();
        let before = table.counts;
        // A stretch of lookups, then its insertions against the clock.
        let (mut misses, mut insertions, mut ns) = (0usize, 0usize, 0.0);
        for keys in keys.chunks(1024) {
            let mut missed: Vec<u32> =
                keys.iter().copied().filter(|&key| !table.contains(key)).collect();
            misses += missed.len();
            // One that comes twice is inserted once.
            let mut seen = HashSet::new();
            missed.retain(|&key| seen.insert(key));
            insertions += missed.len();
            let start = Instant::now();
            missed.into_iter().for_each(|key| table.insert(key));
            ns += start.elapsed().as_secs_f64() * 1e9;
        }
        let per_insertion = |value: f64| value / insertions.max(1) as f64;
        let since =
            |of: fn(&Counts) -> usize| per_insertion((of(&table.counts) - of(&before)) as f64);
        figures.hit_rate = 1.0 - misses as f64 / keys.len() as f64;
        figures.fill.push((mark, figures.hit_rate));
        figures.insert_ns = per_insertion(ns);
        figures.read = since(|counts| counts.read);
        figures.moved = since(|counts| counts.moves);
    }
    Ok(figures)
}

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
        "Displacement fills the table sooner and to the last slot, which helps where nearly all \
         flows fit (α ≤ 1). Once the table is full there is no empty slot to be reached: the \
         search reads its buckets in vain on every insertion, and the entry that leaves is a \
         random one all the same.",
    );
    record.note(
        "A wider bucket does most of what displacement does, without any move and without knowing \
         where an entry may also lie, which a table of 16-bit fingerprints does not (cuckoo could \
         derive it from the fingerprint, at the price of a worse second bucket; BLP would need a \
         bit per slot).",
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
