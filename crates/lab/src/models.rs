//! Hit rates by calculation, for uniform keys: the paper's appendices A, B and D.
//!
//! A working set of α·n·m keys falls on n buckets of m slots: the number aᵢ of keys of a bucket is
//! Poisson with mean α·m (the paper's binomial as n grows). No design evaluated loses an occupied
//! slot, so after enough lookups each holds as many keys as its geometry allows, and the hit rate is
//! `E[cᵢ]` / (α·m), with cᵢ the occupied slots of a bucket.
//!
//! - [`set_assoc`], appendix A: cᵢ = min(aᵢ, m).
//! - [`blp`], appendix B: bᵢ keys spill over to the next bucket, bᵢ = clamp(bᵢ₋₁ + aᵢ − m, 0, m), and
//!   cᵢ = min(bᵢ₋₁ + aᵢ, m). The paper solves for two buckets; here for any H.
//! - [`blp_held`]: the same recursion for a given working set instead of a random one.
//! - [`warm_up`], appendix D: the way there.
//!
//! The paper prints p₀ … p₄ = 0.37889778, 0.15160669, 0.14369602, 0.12041777, 0.20538175 for m = 4
//! and "α = 0.95". Those digits are the solution at α = 10⁶/2²⁰ = 0.95367, its end-to-end set-up (see
//! the tests), where `E[c]` = 3.591; at 0.95 sharp p₀ is 0.3846 and `E[c]` = 3.583.
//!
//! For H > 2, keys that spill must be told apart by how many buckets they may still try. Serving
//! those with the fewest left first fills the most slots (deadlines, unit jobs), and that is the
//! final state: while the table is not at its maximum there is a chain of replacements that ends in
//! an empty slot, and random eviction finds it in the end. So the state of the chain is
//! (w₁ … w_{H−1}), w_j waiting keys with j buckets left, w₁ + … + w_j ≤ j·m. For H = 2 this is the
//! paper's system; H = 1 is [`set_assoc`]. The chain is solved to 10⁻¹³ by iteration; the number of
//! states grows as m^{H−1}, so H ≤ 4 with m ≤ 16 is a matter of a second.

use std::collections::HashMap;

/// The paper's oversubscription factor: 10⁶ flows on 2²⁰ entries.
pub const ALPHA_PAPER: f64 = 1e6 / 1_048_576.0;

/// Final hit rate of an m-way set-associative cache (appendix A).
///
/// # Panics
/// Unless m ≥ 1 and 0 < α ≤ 100.
pub fn set_assoc(m: u32, alpha: f64) -> f64 {
    let pmf = poisson(check(1, m, alpha));
    let empty: f64 = (0..=m).zip(&pmf).map(|(t, p)| f64::from(m - t) * p).sum();
    (f64::from(m) - empty) / (alpha * f64::from(m))
}

/// Final hit rate of an H-m BLP cache (appendix B; H buckets in a row for each key).
///
/// # Panics
/// Unless 1 ≤ h ≤ 4, 1 ≤ m ≤ 64 and 0 < α ≤ 100.
pub fn blp(h: u32, m: u32, alpha: f64) -> f64 {
    blp_solution(h, m, alpha).occupied / (alpha * f64::from(m))
}

/// The stationary state of an H-m BLP cache.
#[derive(Clone, Debug)]
pub struct BlpSolution {
    /// `E[cᵢ]`: slots occupied of a bucket's m.
    pub occupied: f64,
    /// Probability that 0, 1, … (H − 1)·m keys spill out of a bucket. For H = 2, the paper's p.
    pub spill: Vec<f64>,
}

/// Solves the chain of spilled keys of an H-m BLP cache.
///
/// # Panics
/// Unless 1 ≤ h ≤ 4, 1 ≤ m ≤ 64 and 0 < α ≤ 100.
pub fn blp_solution(h: u32, m: u32, alpha: f64) -> BlpSolution {
    let pmf = poisson(check(h, m, alpha));
    let chain = Chain::new(h, m, pmf.len() as u32);
    // P[a ≥ k], for the arrivals beyond which nothing changes.
    let mut at_least: Vec<f64> = pmf
        .iter()
        .rev()
        .scan(0.0, |sum, p| {
            *sum += p;
            Some(*sum)
        })
        .collect();
    at_least.reverse();

    let mut p = vec![1.0 / chain.states.len() as f64; chain.states.len()];
    // The chain forgets its start within a few hundred buckets; the bound is a formality.
    for _ in 0..1_000_000 {
        let mut next = vec![0.0; p.len()];
        for (state, successors) in chain.next.iter().enumerate() {
            let (last, rest) = successors.split_last().expect("a state has a successor");
            for (&to, arrive) in rest.iter().zip(&pmf) {
                next[to as usize] += p[state] * arrive;
            }
            next[*last as usize] += p[state] * at_least.get(rest.len()).unwrap_or(&0.0);
        }
        let change: f64 = next.iter().zip(&p).map(|(a, b)| (a - b).abs()).sum();
        p = next;
        if change < 1e-13 {
            break;
        }
    }

    let mut spill = vec![0.0; ((h - 1) * m + 1) as usize];
    let mut empty = 0.0;
    for (state, p) in chain.states.iter().zip(&p) {
        let waiting: u32 = state.iter().sum();
        spill[waiting as usize] += p;
        let room = m.saturating_sub(waiting);
        empty += (0..room).zip(&pmf).map(|(a, q)| f64::from(room - a) * q * p).sum::<f64>();
    }
    BlpSolution { occupied: f64::from(m) - empty, spill }
}

/// Keys that an H-m BLP table holds in the end, if `arrivals` yields how many hash to each bucket.
///
/// The recursion of section 4.5 on numbers that are known: no table can ever hold more. Nothing
/// wraps around; the last bucket spills into h − 1 buffer buckets.
///
/// # Panics
/// Unless 1 ≤ h ≤ 4 and 1 ≤ m ≤ 64.
pub fn blp_held(h: u32, m: u32, arrivals: impl IntoIterator<Item = u32>) -> u64 {
    check(h, m, 1.0);
    let mut waiting = vec![0; h as usize - 1];
    let buffer = std::iter::repeat_n(0, h as usize - 1);
    arrivals
        .into_iter()
        .chain(buffer)
        .map(|a| {
            let here = waiting.iter().sum::<u32>().saturating_add(a);
            waiting = step(&waiting, a, m);
            u64::from(here.min(m))
        })
        .sum()
}

/// An upper bound of the final hit rate of an H-m cuckoo-lite cache.
///
/// Every key held, or every bucket as full as the keys that may lie in it allow: those are Poisson
/// with mean H·α·m. Away from α = 1 it is what tables reach; around 1 it is up to half a point high.
///
/// # Panics
/// Unless 1 ≤ h ≤ 4, 1 ≤ m ≤ 64 and 0 < α ≤ 100.
pub fn cuckoo_bound(h: u32, m: u32, alpha: f64) -> f64 {
    check(h, m, alpha);
    // The occupied slots of a set-associative cache with h times the keys.
    (f64::from(h) * set_assoc(m, (f64::from(h) * alpha).min(100.0))).min(1.0)
}

/// Hit rate of an H-m BLP cache after a number of uniform lookups per key, if it held as many of
/// the keys seen so far as it can.
///
/// An upper bound without parameters: a share s = 1 − e^−τ of the working set has been seen after τ
/// lookups per key, and what is seen is again Poisson. For H = 1 it is no bound but exact.
///
/// # Panics
/// Unless 1 ≤ h ≤ 4, 1 ≤ m ≤ 64 and 0 < α ≤ 100.
pub fn warm_up_seen(h: u32, m: u32, alpha: f64, lookups_per_key: f64) -> f64 {
    let seen = -(-lookups_per_key).exp_m1();
    if seen < 1e-9 { 0.0 } else { seen * blp(h, m, alpha * seen) }
}

/// Hit rate after a number of lookups per key of the working set, towards `r_max` (appendix D).
///
/// An estimate that is too fast near the end: it takes every key that is still missing for one
/// that finds an empty slot when it comes, while most only shift an empty slot about.
pub fn warm_up(r_max: f64, lookups_per_key: f64) -> f64 {
    r_max * -(-lookups_per_key).exp_m1()
}

/// The mean number of keys of a bucket, if the arguments are in range.
fn check(h: u32, m: u32, alpha: f64) -> f64 {
    assert!((1..=4).contains(&h) && (1..=64).contains(&m), "H {h} or m {m} out of range");
    assert!(alpha > 0.0 && alpha <= 100.0, "alpha {alpha} out of range");
    alpha * f64::from(m)
}

/// Poisson probabilities of 0, 1, … up to where they are below 10⁻¹⁸ of the whole.
fn poisson(mean: f64) -> Vec<f64> {
    // In logarithms: exp(−mean) alone would be 0 for large means.
    let mut log_p = -mean;
    let mut pmf = vec![log_p.exp()];
    for t in 1.. {
        let t = f64::from(t);
        log_p += mean.ln() - t.ln();
        pmf.push(log_p.exp());
        if t > mean && log_p < -42.0 {
            break;
        }
    }
    pmf
}

/// States and transitions of the spilled keys.
struct Chain {
    /// w₁ … w_{H−1}.
    states: Vec<Vec<u32>>,
    /// For each state, the state after 0, 1, … arrivals; the last stands for more.
    next: Vec<Vec<u32>>,
}

impl Chain {
    fn new(h: u32, m: u32, arrivals: u32) -> Chain {
        let mut states = vec![vec![0; h as usize - 1]];
        let mut numbers = HashMap::from([(states[0].clone(), 0u32)]);
        let mut next = Vec::new();
        while next.len() < states.len() {
            let from = states[next.len()].clone();
            // With H·m arrivals the bucket and all that may spill are full.
            let successors = (0..arrivals.min(h * m + 1)).map(|a| {
                let to = step(&from, a, m);
                *numbers.entry(to.clone()).or_insert_with(|| {
                    states.push(to);
                    states.len() as u32 - 1
                })
            });
            next.push(successors.collect());
        }
        Chain { states, next }
    }
}

/// What spills out of a bucket that `waiting` spilled into and `arrivals` keys hash to.
fn step(waiting: &[u32], arrivals: u32, m: u32) -> Vec<u32> {
    let mut free = m;
    let mut before = 0;
    let mut left = waiting.iter().chain([&arrivals]).map(|&keys| {
        let served = keys.min(free);
        free -= served;
        keys - served
    });
    // Who had one bucket left has none now.
    if !waiting.is_empty() {
        left.next();
    }
    left.take(waiting.len())
        .zip(1..)
        .map(|(keys, j)| {
            let kept = keys.min(j * m - before);
            before += kept;
            kept
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() < tolerance, "{a} and {b} differ by more than {tolerance}");
    }

    #[test]
    fn printed_digits_of_appendix_b() {
        let printed = [0.378_897_78, 0.151_606_69, 0.143_696_02, 0.120_417_77, 0.205_381_75];
        let paper = blp_solution(2, 4, ALPHA_PAPER);
        for (ours, printed) in paper.spill.iter().zip(printed) {
            close(*ours, printed, 6e-9);
        }
        close(paper.occupied, 3.59, 0.005);
        // Not those of 0.95 sharp.
        let sharp = blp_solution(2, 4, 0.95);
        close(sharp.spill[0], 0.384_580_5, 1e-7);
        close(sharp.occupied, 3.582_774, 1e-6);
    }

    #[test]
    fn the_linear_system_holds() {
        for (m, alpha) in [(4, 0.95), (8, 0.5), (16, 2.0), (2, 1.25)] {
            let solution = blp_solution(2, m, alpha);
            let (p, a) = (&solution.spill, poisson(alpha * f64::from(m)));
            close(p.iter().sum(), 1.0, 1e-12);
            let m = m as usize;
            for l in 0..m {
                // The equations of appendix B as they stand.
                let expected: f64 = if l == 0 {
                    (0..=m).map(|k| a[..=m - k].iter().sum::<f64>() * p[k]).sum()
                } else {
                    (l..=l + m).map(|j| a.get(j).unwrap_or(&0.0) * p[l + m - j]).sum()
                };
                close(p[l], expected, 1e-11);
            }
        }
    }

    #[test]
    fn values_of_the_papers_table_1() {
        close(set_assoc(4, ALPHA_PAPER), 0.82, 0.005);
        close(set_assoc(8, ALPHA_PAPER), 0.88, 0.005);
        close(blp(2, 4, ALPHA_PAPER), 0.94, 0.005);
    }

    #[test]
    fn limits() {
        for m in [1, 4, 16] {
            for alpha in [0.1, 0.95, 2.0, 5.0] {
                close(blp(1, m, alpha), set_assoc(m, alpha), 1e-12);
                let rates: Vec<f64> = (1..=3).map(|h| blp(h, m, alpha)).collect();
                assert!(rates.is_sorted() && rates[2] <= (1.0 / alpha).min(1.0) + 1e-12);
            }
        }
        close(set_assoc(64, 100.0), 0.01, 1e-12);
        assert_eq!(warm_up(0.9, 0.0), 0.0);
        close(warm_up(0.9, 20.0), 0.9, 1e-8);
        close(warm_up(1.0, 1.0), 0.632_120_56, 1e-8);
        close(warm_up_seen(2, 4, 0.95, 1e-12), 0.0, 1e-9);
        close(warm_up_seen(2, 4, 0.95, 40.0), blp(2, 4, 0.95), 1e-12);
        // Few keys: none is in another's way.
        close(warm_up_seen(1, 16, 0.1, 1.0), warm_up(1.0, 1.0), 1e-9);
        close(cuckoo_bound(2, 4, 0.5), 1.0, 1e-2);
        close(cuckoo_bound(2, 4, 1.1), 0.909_1 - 0.008_3, 1e-3);
        close(cuckoo_bound(2, 8, 4.0), 0.25, 1e-6);
    }

    /// Largest number of keys that buckets can hold, by augmenting paths: the definition.
    fn largest_matching(keys: &[usize], buckets: usize, h: usize, m: usize) -> usize {
        fn place(
            key: usize,
            keys: &[usize],
            h: usize,
            m: usize,
            slots: &mut [Vec<usize>],
            seen: &mut [bool],
        ) -> bool {
            for d in 0..h {
                let bucket = keys[key] + d;
                if std::mem::replace(&mut seen[bucket], true) {
                    continue;
                }
                if slots[bucket].len() < m {
                    slots[bucket].push(key);
                    return true;
                }
                for at in 0..m {
                    let other = slots[bucket][at];
                    if place(other, keys, h, m, slots, seen) {
                        slots[bucket][at] = key;
                        return true;
                    }
                }
            }
            false
        }
        let buckets = buckets + h - 1;
        let mut slots = vec![Vec::new(); buckets];
        (0..keys.len())
            .filter(|&key| place(key, keys, h, m, &mut slots, &mut vec![false; buckets]))
            .count()
    }

    #[test]
    fn agree_with_the_largest_matching() {
        let mut rng = StdRng::seed_from_u64(3);
        for (h, m) in [(1, 4), (2, 1), (2, 4), (3, 2), (4, 4)] {
            for alpha in [0.75, 0.95, 1.5] {
                let buckets = 3000;
                let count = (alpha * (buckets * m) as f64) as usize;
                let keys: Vec<usize> = (0..count).map(|_| rng.random_range(0..buckets)).collect();
                let held = largest_matching(&keys, buckets, h, m);
                let mut arrivals = vec![0; buckets];
                keys.iter().for_each(|&bucket| arrivals[bucket] += 1);
                assert_eq!(held as u64, blp_held(h as u32, m as u32, arrivals));
                let rate = held as f64 / count as f64;
                close(rate, blp(h as u32, m as u32, alpha), 0.012);
            }
        }
    }
}
