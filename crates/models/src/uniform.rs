//! Hit rates by calculation, for uniform keys: the paper's appendices A, B and D.
//!
//! A working set of α·n·m keys falls on n buckets of m slots: the number aᵢ of keys of a bucket is
//! Poisson with mean α·m (the paper's binomial as n grows). No design evaluated loses an occupied
//! slot, so after enough lookups each holds as many keys as its geometry allows, and the hit rate
//! is `E[cᵢ]` / (α·m), with cᵢ the occupied slots of a bucket.
//!
//! - [`set_assoc`], appendix A: cᵢ = min(aᵢ, m).
//! - [`blp`], appendix B: bᵢ keys spill over to the next bucket, bᵢ = clamp(bᵢ₋₁ + aᵢ − m, 0, m),
//!   and cᵢ = min(bᵢ₋₁ + aᵢ, m). The paper solves for two buckets; here for any H.
//! - [`blp_held`]: the same recursion for a given working set instead of a random one.
//! - [`warm_up`], appendix D: the way there.
//!
//! The paper prints p₀ … p₄ = 0.37889778, 0.15160669, 0.14369602, 0.12041777, 0.20538175 for m = 4
//! and "α = 0.95". Those digits are the solution at α = 10⁶/2²⁰ = 0.95367, its end-to-end set-up
//! (the lab's experiment `appendix-ab` compares them), where `E[c]` = 3.591; at 0.95 sharp p₀ is
//! 0.3846 and `E[c]` = 3.583.
//!
//! For H > 2 as for 2: keys that spill are served in the order of their buckets, which is the order
//! of their deadlines too, so the most slots are filled, and that is the final state: while the
//! table is not at its maximum there is a chain of replacements that ends in an empty slot, and
//! random eviction finds it in the end. A key finds its place, or none, by how many keys wait
//! before it and by nothing else; so the state of the chain is one number, the waiting keys, from 0
//! to (H − 1)·m: bᵢ = clamp(bᵢ₋₁ + aᵢ − m, 0, (H − 1)·m). For H = 2 this is the paper's system; H =
//! 1 is [`set_assoc`]. The chain is solved directly (Grassmann, Taksar and Heyman 1985: no
//! subtractions, so no digits are lost), in O(H²·m³) steps: 0.1 s at most within the limits of
//! [`check`].

/// Most slots, H·m, that a key may lie in.
pub const REACH_MAX: u32 = 1024;
pub const ALPHA_MAX: f64 = 100.0;

#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    #[error(
        "H = {h}, m = {m}: expected H ≥ 1 buckets of m ≥ 1 slots, at most {REACH_MAX} slots in all"
    )]
    Geometry { h: u32, m: u32 },
    #[error("α = {alpha}: expected more than 0 and at most {ALPHA_MAX}")]
    Load { alpha: f64 },
    /// More keys than a simulation numbers.
    #[error("α = {alpha} of {entries} entries: a simulation has at most {} keys", u32::MAX)]
    Keys { alpha: f64, entries: usize },
}

/// Returns whether there is a model of H buckets of m slots a key under a load α.
pub fn check(h: u32, m: u32, alpha: f64) -> Result<(), ModelError> {
    if h == 0 || m == 0 || h.saturating_mul(m) > REACH_MAX {
        return Err(ModelError::Geometry { h, m });
    }
    // Not a number is neither.
    if !(alpha > 0.0 && alpha <= ALPHA_MAX) {
        return Err(ModelError::Load { alpha });
    }
    Ok(())
}

/// The paper's oversubscription factor: 10⁶ flows on 2²⁰ entries.
pub const ALPHA_PAPER: f64 = 1e6 / 1_048_576.0;

/// Returns the final hit rate of an m-way set-associative cache (appendix A).
///
/// # Panics
/// Unless [`check`]`(1, m, alpha)` is fine.
pub fn set_assoc(m: u32, alpha: f64) -> f64 {
    let pmf = poisson(mean(1, m, alpha));
    let occupied: f64 = (0..).zip(&pmf).map(|(t, p)| f64::from(m.min(t)) * p).sum();
    occupied / (alpha * f64::from(m))
}

/// Returns the final hit rate of an H-m BLP cache (appendix B; H buckets in a row for each key).
///
/// # Panics
/// Unless [`check`]`(h, m, alpha)` is fine.
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
/// Unless [`check`]`(h, m, alpha)` is fine.
pub fn blp_solution(h: u32, m: u32, alpha: f64) -> BlpSolution {
    let pmf = poisson(mean(h, m, alpha));
    let (top, m) = (((h - 1) * m) as usize, m as usize);
    let arrive = |a: usize| pmf.get(a).copied().unwrap_or(0.0);
    let row = |from: usize| {
        let mut to = vec![0.0; top + 1];
        for (a, p) in pmf.iter().enumerate() {
            to[(from + a).saturating_sub(m).min(top)] += p;
        }
        to
    };
    let spill = stationary((0..=top).map(row).collect(), m);
    let occupied = spill.iter().enumerate().map(|(waiting, p)| {
        let room = m.saturating_sub(waiting);
        let some: f64 = (0..room).map(|a| (waiting + a) as f64 * arrive(a)).sum();
        p * (some + m as f64 * pmf.iter().skip(room).sum::<f64>())
    });
    BlpSolution { occupied: occupied.sum(), spill }
}

/// Returns the stationary distribution of a chain whose steps go down by at most `down` states.
///
/// States are taken out from the last on, each visit to them replaced by where they lead to; then
/// they are put back. Rows are those of the transition matrix.
fn stationary(mut rows: Vec<Vec<f64>>, down: usize) -> Vec<f64> {
    /// A state that is left that rarely is not left: all below it are transient.
    const NEVER: f64 = 1e-30;
    let mut first = 0;
    for n in (1..rows.len()).rev() {
        let (above, from_n) = rows.split_at_mut(n);
        let low = n.saturating_sub(down);
        let leave: f64 = from_n[0][low..n].iter().sum();
        if leave < NEVER {
            first = n;
            break;
        }
        for row in above {
            let share = row[n] / leave;
            row[n] = share;
            row[low..n].iter_mut().zip(&from_n[0][low..n]).for_each(|(to, p)| *to += share * p);
        }
    }
    let mut weights = vec![0.0; rows.len()];
    weights[first] = 1.0;
    for n in first + 1..rows.len() {
        weights[n] = (first..n).map(|i| weights[i] * rows[i][n]).sum();
        if weights[n] > 1e200 {
            let scale = weights[n];
            weights[first..=n].iter_mut().for_each(|weight| *weight /= scale);
        }
    }
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

/// Returns the keys that an H-m BLP table holds in the end, if `arrivals` yields how many hash to
/// each bucket.
///
/// The recursion of section 4.5 on numbers that are known: no table can ever hold more. Nothing
/// wraps around; the last bucket spills into h − 1 buffer buckets.
///
/// # Panics
/// Unless [`check`]`(h, m, 1.0)` is fine.
pub fn blp_held(h: u32, m: u32, arrivals: impl IntoIterator<Item = u32>) -> u64 {
    mean(h, m, 1.0);
    let mut waiting = 0;
    let buffer = std::iter::repeat_n(0, h as usize - 1);
    arrivals
        .into_iter()
        .chain(buffer)
        .map(|a| {
            let wanted = a.saturating_add(waiting).min(h * m);
            let here = wanted.min(m);
            waiting = wanted - here;
            u64::from(here)
        })
        .sum()
}

/// Returns an upper bound of the final hit rate of an H-m cuckoo-lite cache.
///
/// Every key held, or every bucket as full as the keys that may lie in it allow: those are Poisson
/// with mean H·α·m. Away from α = 1 it is what tables reach; around 1 it is up to half a point
/// high.
///
/// # Panics
/// Unless [`check`]`(h, m, alpha)` is fine.
pub fn cuckoo_bound(h: u32, m: u32, alpha: f64) -> f64 {
    mean(h, m, alpha);
    // The occupied slots of a set-associative cache with h times the keys.
    let wanted = (f64::from(h) * alpha).min(ALPHA_MAX);
    (wanted / alpha * set_assoc(m, wanted)).min(1.0)
}

/// Returns the hit rate of an H-m BLP cache after a number of uniform lookups per key, if it held
/// as many of the keys seen so far as it can.
///
/// An upper bound without parameters: a share s = 1 − e^−τ of the working set has been seen after τ
/// lookups per key, and what is seen is again Poisson. For H = 1 it is no bound but exact.
///
/// # Panics
/// Unless [`check`]`(h, m, alpha)` is fine.
pub fn warm_up_seen(h: u32, m: u32, alpha: f64, lookups_per_key: f64) -> f64 {
    let seen = -(-lookups_per_key).exp_m1();
    if seen < 1e-9 { 0.0 } else { seen * blp(h, m, alpha * seen) }
}

/// Returns the hit rate after a number of lookups per key of the working set, towards `r_max`
/// (appendix D).
///
/// An estimate that is too fast near the end: it takes every key that is still missing for one
/// that finds an empty slot when it comes, while most only shift an empty slot about.
pub fn warm_up(r_max: f64, lookups_per_key: f64) -> f64 {
    r_max * -(-lookups_per_key).exp_m1()
}

fn mean(h: u32, m: u32, alpha: f64) -> f64 {
    check(h, m, alpha).unwrap_or_else(|error| panic!("{error}"));
    alpha * f64::from(m)
}

/// Returns Poisson probabilities of 0, 1, … up to where they are below 10⁻¹⁸ of the whole.
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
    // Of a large mean the logarithms have lost some digits.
    let sum: f64 = pmf.iter().sum();
    pmf.iter_mut().for_each(|p| *p /= sum);
    pmf
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

    /// One number is enough of a state: the chain is off the luck of a large working set by less
    /// than 0.1 points.
    #[test]
    fn agree_with_what_large_working_sets_allow() {
        let mut rng = StdRng::seed_from_u64(1);
        for (h, m) in [(1, 4), (2, 4), (2, 16), (3, 2), (4, 4), (5, 1)] {
            for alpha in [0.5, 0.75, 0.95, 1.25, 2.0] {
                let (buckets, keys) = ((1 << 20) / m as usize, (alpha * f64::from(1 << 20)) as u64);
                let mut arrivals = vec![0u32; buckets];
                (0..keys).for_each(|_| arrivals[rng.random_range(0..buckets)] += 1);
                let most = blp_held(h, m, arrivals) as f64 / keys as f64;
                close(blp(h, m, alpha), most, 0.001);
            }
        }
    }

    /// Up to the limits: rates are rates, and no less than those of less choice.
    #[test]
    fn any_geometry_within_the_limits() {
        for (h, m) in [(1, 1024), (2, 512), (3, 341), (1024, 1), (32, 32), (8, 5), (2, 1), (7, 64)]
        {
            for alpha in [1e-9, 0.25, 0.95, 1.0, 1.001, 4.0, 100.0] {
                assert_eq!(check(h, m, alpha), Ok(()));
                let solution = blp_solution(h, m, alpha);
                close(solution.spill.iter().sum(), 1.0, 1e-9);
                let (rate, most) = (blp(h, m, alpha), (1.0 / alpha).min(1.0));
                assert!(
                    rate <= most + 1e-9 && rate >= set_assoc(m, alpha) - 1e-9,
                    "{h} {m} {alpha}: {rate}"
                );
                let cuckoo = cuckoo_bound(h, m, alpha);
                assert!(
                    cuckoo <= most + 1e-9 && cuckoo >= rate - 1e-6,
                    "{h} {m} {alpha}: {cuckoo}"
                );
            }
            // The more slots a key may lie in, the fewer stay empty.
            close(blp(h, m, 2.0), 0.5, if h * m > 100 { 1e-4 } else { 0.12 });
        }
        let out = |h, m, alpha| check(h, m, alpha).unwrap_err();
        assert_eq!(out(0, 4, 1.0), ModelError::Geometry { h: 0, m: 4 });
        assert_eq!(out(2, 0, 1.0), ModelError::Geometry { h: 2, m: 0 });
        assert!(matches!(out(2, 513, 1.0), ModelError::Geometry { .. }));
        assert!(matches!(out(u32::MAX, u32::MAX, 1.0), ModelError::Geometry { .. }));
        for alpha in [0.0, -1.0, 100.1, f64::NAN, f64::INFINITY] {
            assert!(matches!(out(2, 4, alpha), ModelError::Load { .. }), "{alpha}");
        }
    }

    /// A chain that is known: a queue of at most n with steps up and down, and one that only rises.
    #[test]
    fn stationary_distributions_that_are_known() {
        let (up, n) = (0.3, 40);
        let row = |i: usize| {
            let mut row = vec![0.0; n + 1];
            row[(i + 1).min(n)] += up;
            row[i.saturating_sub(1)] += 1.0 - up;
            row
        };
        let p = stationary((0..=n).map(row).collect(), 1);
        for pair in p.windows(2) {
            close(pair[1] / pair[0], up / (1.0 - up), 1e-12);
        }
        let rising = vec![vec![0.5, 0.5, 0.0], vec![0.0, 0.5, 0.5], vec![0.0, 0.0, 1.0]];
        assert_eq!(stationary(rising, 1), [0.0, 0.0, 1.0]);
    }

    /// Returns the largest number of keys that buckets can hold, by augmenting paths: the
    /// definition.
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
        for (h, m) in [(1, 4), (2, 1), (2, 4), (3, 2), (4, 4), (5, 3), (9, 1), (6, 20)] {
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
