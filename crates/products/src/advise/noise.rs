//! How far the hit rate of one table may be off by luck.
//!
//! *The keys.* Which flows share a bucket is chance. Throw F flows into B buckets of m slots; the
//! number that find a slot is S = Σ min(n_b, m). Were the n_b independent, Poisson of mean λ = F/B,
//! S would have the variance B·Var min(n, m); that they add up to F takes away the part that goes
//! along with the sum:
//!
//! ```text
//! Var S = B · (Var min(n, m) − Cov(min(n, m), n)² / λ)         Cov(min(n, m), n) = λ·P(n < m)
//! ```
//!
//! and without skew the hit rate is S/F. This is for a set-associative table. With several buckets
//! a key there is less chance in it, and with skew the flows that have no slot are the rare ones:
//! for those it is an upper bound. It is largest near α = 1, 0.3·√slots flows.
//!
//! *The packets.* Of N packets counted each hits or not: √(h·(1 − h)/N).

use overbank::cache::GeometryKind;
use overbank_kit::geometry::AnyGeometry;

const SIGMAS: f64 = 3.0;

/// Returns the random error of a hit rate, from 0 to 1, that was counted over `packets`.
pub(super) fn hit_rate(
    geometry: GeometryKind,
    entries: usize,
    flows: f64,
    hit_rate: f64,
    packets: usize,
) -> f64 {
    let slots = AnyGeometry::from(geometry).m as usize;
    let buckets = (entries / slots).max(1) as f64;
    let keys = buckets * stored_variance(slots, flows / buckets) / (flows * flows).max(1.0);
    let packets = hit_rate * (1.0 - hit_rate) / packets.max(1) as f64;
    SIGMAS * (keys + packets).sqrt()
}

/// Returns the random error of the difference of two hit rates near `hit_rate` of the same keys,
/// each counted over `packets`.
pub(super) fn difference(hit_rate: f64, packets: u64) -> f64 {
    SIGMAS * (2.0 * hit_rate * (1.0 - hit_rate) / packets.max(1) as f64).sqrt()
}

fn stored_variance(slots: usize, load: f64) -> f64 {
    // P(n = k) for k below the slots, from its logarithm: e^−λ may be too small for a number.
    let mut log = -load;
    let (mut below, mut missing, mut squares) = (0.0, 0.0, 0.0);
    for k in 0..slots {
        let probability = log.exp();
        let free = (slots - k) as f64;
        below += probability;
        missing += probability * free;
        squares += probability * free * free;
        log += (load / (k + 1) as f64).ln();
    }
    // min(n, m) is m less what is missing.
    (squares - missing * missing - load * below * below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg32;
    use rand_pcg::rand_core::RngCore;

    /// Against throws.
    #[test]
    fn the_variance_is_that_of_throws() {
        const THROWS: usize = 4000;
        let mut rng = Pcg32::new(1, 1);
        for (slots, buckets, flows) in [(4, 64, 128), (4, 64, 256), (16, 32, 512), (16, 32, 700)] {
            let stored: Vec<f64> = (0..THROWS)
                .map(|_| {
                    let mut load = vec![0; buckets];
                    (0..flows).for_each(|_| load[rng.next_u32() as usize % buckets] += 1);
                    load.iter().map(|&n: &usize| n.min(slots) as f64).sum()
                })
                .collect();
            let mean = stored.iter().sum::<f64>() / THROWS as f64;
            let variance =
                stored.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (THROWS - 1) as f64;
            let ours = buckets as f64 * stored_variance(slots, flows as f64 / buckets as f64);
            assert!((ours / variance - 1.0).abs() < 0.12, "{slots} {flows}: {ours} {variance}");
        }
    }

    #[test]
    fn luck_is_for_small_tables() {
        let of = |entries, alpha: f64| {
            100.0 * hit_rate(GeometryKind::Set16, entries, alpha * entries as f64, 0.9, 1_000_000)
        };
        assert!((2.5..3.2).contains(&of(1 << 10, 1.0)), "{}", of(1 << 10, 1.0));
        assert!(of(1 << 10, 4.0) < 0.2 && of(1 << 10, 0.25) < 0.2 && of(1 << 14, 1.0) < 0.8);
        for odd in [hit_rate(GeometryKind::Set4, 1, 0.0, 0.0, 0), difference(1.0, 0)] {
            assert!(odd.is_finite());
        }
        assert!(of(1024, 1e6).is_finite());
    }
}
