//! Appendix C: uniform keys are the worst case. Many distributions, the same keys and hashes.
//!
//! The appendix compares final states, which rare keys of a skewed law would reach late. So every
//! table is warmed with uniform keys (an occupied slot stays occupied); then the law has its time
//! to put the popular keys in; then hits are counted, beside the occupied slots at that moment.
//! What is left is chance, with two parts:
//!
//! - of the lookups counted, N: variance r (1 − r) / N;
//! - of the hash function, over which the appendix takes the mean: whether the popular keys fell on
//!   crowded buckets. Σ pₓ qₓ varies by at most v r (1 − r) / n for n keys whose weights have the
//!   variance v, in units of their mean. A key far more popular than the mean is back at once after
//!   each eviction wherever it lies, so that v counts up to 1.
//!
//! A claim fails where a difference is negative by `SIGMAS` standard deviations.

use super::table1::model;
use crate::prelude::*;
use overbank::cache::GeometryKind;
use overbank_kit::keyed::KeyedTable;
use rand_distr::weighted::WeightedAliasIndex;
use rand_distr::{Distribution, Gamma};
use rand_pcg::Pcg32;

pub const APPENDIX_C: Experiment = Experiment {
    name: "appendix-c",
    title: "Uniform keys are the worst case: hit rates of many distributions",
    source: "ATC 2020, appendix C",
    run,
};

const KINDS: [GeometryKind; 4] =
    [GeometryKind::Set4, GeometryKind::Cuckoo2x4, GeometryKind::Blp2x4, GeometryKind::Blp2x16];

/// (α, what the table is divided by): with more keys a slot it is smaller, so that a run stays
/// short.
const ALPHAS: [(f64, usize); 6] = [(0.25, 1), (0.5, 1), (0.95, 1), (1.25, 2), (2.0, 2), (4.0, 4)];

/// Standard deviations that the least of all comparisons (17 laws, 4 designs, 6 α: 408) exceeds by
/// chance once in a hundred runs, if there is no difference anywhere.
const SIGMAS: f64 = 4.06;

/// What was counted, summed over seeds.
#[derive(Clone, Copy, Default)]
struct Counted {
    hits: f64,
    lookups: f64,
    /// Keys held when the count began.
    held: f64,
    keys: f64,
    /// Variance of the weights over the square of their mean.
    variance: f64,
}

impl Counted {
    fn rate(&self) -> f64 {
        100.0 * self.hits / self.lookups
    }

    /// Returns the points above what uniform keys would hit in the same tables.
    fn gain(&self) -> f64 {
        self.rate() - 100.0 * self.held / self.keys
    }

    /// Returns one standard deviation of it by chance, in points; that of one miss if there is
    /// none.
    fn deviation(&self) -> f64 {
        let r = self.hits / self.lookups;
        let lookups = (self.lookups * r * (1.0 - r) + 1.0) / self.lookups.powi(2);
        let hashes = self.variance.min(1.0) * r * (1.0 - r) / self.keys;
        100.0 * (lookups + hashes).sqrt()
    }
}

/// How likely each key is, up to a factor.
#[derive(Clone, Copy)]
enum Law {
    Uniform,
    Zipf(f64),
    /// Share of the keys that are hot, share of the lookups that they get.
    HotCold(f64, f64),
    /// p falls by e with each such share of the keys.
    Geometric(f64),
    /// Independent gamma weights of this shape: Dirichlet.
    Dirichlet(f64),
    /// All alike but one key, which gets this share.
    OneHot(f64),
}

/// Returns all laws, uniform first.
fn laws() -> Vec<Law> {
    let zipf = [0.1, 0.3, 0.6, 0.8, 0.99, 1.2].map(Law::Zipf);
    let hot = [(0.5, 0.55), (0.5, 0.67), (0.1, 0.5), (0.1, 0.9), (0.01, 0.5)];
    let laws = [Law::Uniform].into_iter().chain(zipf).chain(hot.map(|(k, l)| Law::HotCold(k, l)));
    let laws = laws.chain([0.5, 0.2].map(Law::Geometric));
    laws.chain([10.0, 1.0, 0.1].map(Law::Dirichlet)).chain([Law::OneHot(0.5)]).collect()
}

impl Law {
    fn name(self) -> String {
        match self {
            Law::Uniform => "uniform".to_owned(),
            Law::Zipf(theta) => format!("Zipf θ = {theta}"),
            Law::HotCold(keys, lookups) => {
                format!("{:.0} % of the keys get {:.0} %", 100.0 * keys, 100.0 * lookups)
            }
            Law::Geometric(scale) => {
                format!("geometric, e-fold per {:.0} % of the keys", 100.0 * scale)
            }
            Law::Dirichlet(shape) => format!("random, Dirichlet({shape})"),
            Law::OneHot(share) => format!("uniform, but one key gets {:.0} %", 100.0 * share),
        }
    }

    fn weights(self, keys: u32, rng: &mut Pcg32) -> Result<Vec<f64>, LabError> {
        let n = f64::from(keys);
        let each = |f: &dyn Fn(f64) -> f64| (0..keys).map(|i| f(f64::from(i))).collect();
        Ok(match self {
            Law::Uniform => each(&|_| 1.0),
            Law::Zipf(theta) => each(&|i| (i + 1.0).powf(-theta)),
            Law::HotCold(hot, share) => {
                let (warm, cold) = (share / hot, (1.0 - share) / (1.0 - hot));
                each(&|i| if i < hot * n { warm } else { cold })
            }
            Law::Geometric(scale) => each(&|i| (-i / (scale * n)).exp()),
            Law::Dirichlet(shape) => {
                let gamma = Gamma::new(shape, 1.0).map_err(LabError::failed)?;
                // The appendix wants p > 0 for every key.
                (0..keys).map(|_| gamma.sample(rng).max(1e-6)).collect()
            }
            Law::OneHot(share) => {
                each(&|i| if i == 0.0 { share * (n - 1.0) / (1.0 - share) } else { 1.0 })
            }
        })
    }
}

/// Lookups per key: of uniform keys, then by the law, and then those that are counted; and seeds.
struct Plan {
    warm: u32,
    mixed: u32,
    counted: u32,
    seeds: u32,
}

/// Returns the result of each design under a law; all are fed the same keys in the same order.
fn count(
    plan: &Plan,
    law: Law,
    (entries, keys): (usize, u32),
    seed: u64,
) -> Result<[Counted; KINDS.len()], LabError> {
    let mut found = [Counted::default(); KINDS.len()];
    for seed in (0..plan.seeds).map(|i| seed.wrapping_add(u64::from(i))) {
        let mut rng = Pcg32::new(seed, 3);
        let weights = law.weights(keys, &mut rng)?;
        let variance = variance(&weights);
        let index = WeightedAliasIndex::new(weights).map_err(LabError::failed)?;
        let mut uniform = draws(keys, 0.0, seed)?;
        let benches = KINDS.into_iter().map(|kind| KeyedTable::new(kind, entries, seed));
        let mut benches = benches.collect::<Result<Vec<_>, _>>().map_err(LabError::failed)?;
        let mut buffer = vec![0u32; keys as usize];
        for pass in 0..plan.warm + plan.mixed + plan.counted {
            if pass < plan.warm {
                uniform.fill(&mut buffer);
            } else {
                buffer.iter_mut().for_each(|key| *key = index.sample(&mut rng) as u32);
            }
            for (bench, found) in benches.iter_mut().zip(&mut found) {
                if pass == plan.warm + plan.mixed {
                    found.held += bench.held() as f64;
                    found.keys += f64::from(keys);
                    found.variance = variance;
                }
                let hits = bench.lookups(&buffer);
                if pass >= plan.warm + plan.mixed {
                    found.hits += hits as f64;
                    found.lookups += f64::from(keys);
                }
            }
        }
    }
    Ok(found)
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (most_entries, plan) = if context.smoke() {
        (1 << 11, Plan { warm: 60, mixed: 20, counted: 20, seeds: 1 })
    } else {
        (1 << 14, Plan { warm: 200, mixed: 40, counted: 80, seeds: 3 })
    };
    let mut record = APPENDIX_C.record(context);
    let sizes = ALPHAS.map(|(alpha, halved)| format!("{} at α = {alpha}", most_entries / halved));
    let Plan { warm, mixed, counted, seeds } = plan;
    record.settings([
        ("entries", sizes.join(", ")),
        ("warm-up", format!("{warm} uniform lookups per key, {mixed} by the law")),
        ("counted", format!("{counted} lookups per key")),
        ("seeds", seeds.to_string()),
    ]);
    let laws = laws();
    let name = |(load, law): &((f64, usize), Law)| format!("{} at α = {}", law.name(), load.0);
    let all = context.each(pairs(&ALPHAS, &laws), name, |context, ((alpha, halved), law)| {
        let entries = most_entries / halved;
        let keys = (entries as f64 * alpha) as u32;
        Ok((law, count(&plan, law, (entries, keys), context.seed)?))
    })?;
    for ((alpha, _), found) in ALPHAS.into_iter().zip(all.chunks(laws.len())) {
        let sigmas = |found: &Counted| found.gain() / found.deviation();
        for (i, kind) in KINDS.into_iter().enumerate() {
            // The law that is the farthest below, in standard deviations.
            let below = found[1..].iter().map(|(law, found)| (law, &found[i]));
            let least = below.min_by(|a, b| sigmas(a.1).total_cmp(&sigmas(b.1)));
            let Some((law, found)) = least else { continue };
            let (chance, sigmas) = (SIGMAS * found.deviation(), sigmas(found));
            let (gain, law) = (found.gain(), law.name());
            record.claim(
                format!("{} at α = {alpha}: no distribution hits less than uniform", kind.name()),
                format!("≥ 0, by chance ≥ -{chance:.3} ({SIGMAS} standard deviations)"),
                format!("{gain:+.3} points ({sigmas:+.1} deviations) at least, {law}"),
                sigmas >= -SIGMAS,
            );
        }
        let mut table = Table::pivot(
            format!(
                "Hits per 100 lookups, α = {alpha} (in brackets: points above the share of the \
                 keys that the same tables hold, which uniform keys hit)"
            ),
            "distribution",
            (found, |row: &&(Law, _)| row.0.name()),
            (KINDS.into_iter().enumerate(), |(_, kind): &(usize, GeometryKind)| kind.name().into()),
            |row, &(i, _)| format!("{:.2} ({:+.2})", row.1[i].rate(), row.1[i].gain()),
        );
        let calculated = KINDS.map(|kind| format!("{:.2}", 100.0 * model(kind, alpha)));
        let title = "uniform, by calculation (cuckoo-lite: a bound)".to_owned();
        table.rows.insert(1, [title].into_iter().chain(calculated).collect());
        record.tables.push(table);
    }
    record.note(
        "Random eviction in every row. The appendix speaks of the state after a sufficiently long \
         warm-up, which keys that come rarely would make very long; so the warm-up is uniform and \
         the law comes after it. What a skewed law costs when it has to fill the table itself is a \
         matter of appendix D. The chance that a claim allows is that of the lookups counted and \
         of the hash functions.",
    );
    Ok(record)
}

/// Returns the variance of weights over the square of their mean.
fn variance(weights: &[f64]) -> f64 {
    let n = weights.len() as f64;
    let mean = weights.iter().sum::<f64>() / n;
    weights.iter().map(|w| (w / mean - 1.0).powi(2)).sum::<f64>() / n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tail of the normal distribution beyond `z`, by the trapezoid rule.
    fn tail(z: f64) -> f64 {
        let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let step = 1e-3;
        (0..10_000).map(|i| step * density(z + (f64::from(i) + 0.5) * step)).sum()
    }

    #[test]
    fn the_limit_is_that_of_as_many_comparisons() {
        let comparisons = ((laws().len() - 1) * KINDS.len() * ALPHAS.len()) as f64;
        assert_eq!(comparisons, 408.0);
        assert!((tail(1.96) - 0.025).abs() < 1e-4);
        let chance = comparisons * tail(SIGMAS);
        assert!((0.0095..0.0105).contains(&chance), "{chance}");
    }

    #[test]
    fn chance_is_that_of_lookups_and_of_hash_functions() {
        let one = Counted { hits: 900.0, lookups: 1000.0, held: 80.0, keys: 100.0, variance: 0.0 };
        assert!((one.rate() - 90.0).abs() < 1e-9 && (one.gain() - 10.0).abs() < 1e-9);
        // √(1000 · 0.9 · 0.1 + 1) = 9.54 lookups of 1000.
        assert!((one.deviation() - 0.954).abs() < 1e-3, "{}", one.deviation());
        // And √(0.25 · 0.09 / 100) = 0.015 of the keys, of which none count beyond a variance of 1.
        let both = |variance| Counted { variance, ..one }.deviation();
        assert!((both(0.25) - 0.954f64.hypot(1.5)).abs() < 1e-3);
        assert_eq!(both(1.0), both(7.0));
        // Without a miss, that of one.
        let all = Counted { hits: 1000.0, ..one };
        assert!((all.deviation() - 0.1).abs() < 1e-9);
        assert!((variance(&[1.0, 3.0]) - 0.25).abs() < 1e-12 && variance(&[2.0; 5]) == 0.0);
    }
}
