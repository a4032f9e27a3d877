//! A group of 16 keys with an array of m bits: how many functions are tried, and how many bits the
//! index and the array take.
//!
//! A function fits if no bit of the array gets keys of both values. For k keys with value 1 that is
//! p = Σ_j S(k, j) · m! / (m − j)! / m^k · (1 − j/m)^(16 − k), S being Stirling's numbers of the
//! second kind. Trials are geometric: 1/p on average, with the entropy of [`entropy`].

use super::{GROUP, entries};
use crate::prelude::*;
use overbank::partition::setsep::{Config, SetSep};

pub const SEP_FIG10A: Experiment = Experiment {
    name: "sep-fig10a",
    title: "SetSep: functions tried for a group, by the size of its array",
    source: "SetSep, figure 10a",
    run: fig10a,
};
pub const SEP_FIG10B: Experiment = Experiment {
    name: "sep-fig10b",
    title: "SetSep: bits of index and array, by the size of the array",
    source: "SetSep, figure 10b",
    run: fig10b,
};
pub const SEP_TRADEOFF: Experiment = Experiment {
    name: "sep-tradeoff",
    title: "SetSep: space against trials",
    source: "SetSep, section 4.4",
    run: tradeoff,
};

/// Sizes of the array.
const SIZES: [u32; 15] = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];

/// Probability that a function fits `keys` keys of which `ones` have value 1.
fn fits(keys: u64, ones: u64, m: u32) -> f64 {
    // Distribution of the number of array bits that the ones take.
    let m = f64::from(m);
    let mut taken = vec![1.0];
    for _ in 0..ones {
        let mut next = vec![0.0; taken.len() + 1];
        for (j, share) in taken.iter().enumerate() {
            next[j] += share * j as f64 / m;
            next[j + 1] += share * (1.0 - j as f64 / m).max(0.0);
        }
        taken = next;
    }
    let zeros = (keys - ones) as i32;
    taken.iter().enumerate().map(|(j, p)| p * (1.0 - j as f64 / m).max(0.0).powi(zeros)).sum()
}

/// Mean over random values of `keys` keys of a function of the probability that a function fits.
fn over_values(keys: u64, m: u32, of: impl Fn(f64) -> f64) -> f64 {
    let mut chance = 0.5f64.powi(keys as i32);
    let mut sum = 0.0;
    for ones in 0..=keys {
        sum += chance * of(fits(keys, ones, m));
        chance *= (keys - ones) as f64 / (ones + 1) as f64;
    }
    sum
}

/// Trials by calculation.
fn trials(m: u32) -> f64 {
    over_values(GROUP, m, |p| 1.0 / p)
}

/// Bits of a geometric number with this probability (equation 1).
pub(super) fn entropy(p: f64) -> f64 {
    if p >= 1.0 { 0.0 } else { -((1.0 - p) * (1.0 - p).log2() + p * p.log2()) / p }
}

/// Bits of the index, by its entropy, and of the array.
fn bits(m: u32) -> f64 {
    f64::from(m) + over_values(GROUP, m, entropy)
}

/// Trials of groups of 16 random keys, on average. Beyond the largest index a search ends in vain,
/// so all trials are divided by those that ended well.
fn searched(m: u32, groups: u64) -> Result<f64, LabError> {
    let config = Config::new(GROUP as usize, 1).setting(16, m);
    let (table, _) = SetSep::build(&config, []).map_err(LabError::failed)?;
    let (mut trials, mut solved) = (0, 0u64);
    for group in 0..groups {
        let keys: Vec<_> = entries((u64::from(m) << 32) + GROUP * group, GROUP, 1).collect();
        solved += u64::from(table.solve(0, &keys, &mut trials).is_solved());
    }
    Ok(trials as f64 / solved.max(1) as f64)
}

/// m, trials by calculation, trials of searches.
type Trials = (u32, f64, f64);

const OF_TRIALS: &[Claim<[Trials]>] = &[
    Claim::new(
        "searches agree with the calculation, within 5 % (m ≥ 4)",
        "the exact sum",
        |all: &[Trials]| {
            let off = all.iter().filter(|of| of.0 >= 4).map(|of| (of.2 / of.1 - 1.0, of.0));
            let (worst, m) = farthest(off);
            Finding::new(worst.abs() < 0.05, format!("{:+.1} % at m = {m}", 100.0 * worst))
        },
    ),
    Claim::new("more than 10,000 trials at m = 2", "> 10,000", |all: &[Trials]| {
        Finding::new(all[0].1 > 1e4, format!("{:.0}", all[0].1))
    }),
    Claim::new("at least 10 × fewer at m = 6", "10 ×", |all: &[Trials]| {
        let ratio = all[0].1 / all[2].1;
        Finding::new(ratio >= 10.0, format!("{ratio:.1} ×"))
    }),
    Claim::new("fewer than 100 trials at m = 12", "< 100", |all: &[Trials]| {
        Finding::new(all[5].1 < 100.0, format!("{:.0}", all[5].1))
    })
    .because("random values of 16 keys give 113 by the exact sum; from m = 13 on it is below 100"),
];

fn fig10a(context: &mut Context<'_>) -> Result<Record, LabError> {
    let groups = if context.smoke() { 12_000 } else { 40_000 };
    let measured = context.each(
        SIZES,
        |m| format!("m = {m}"),
        |_, m| {
            // The widest searches take the longest and need the fewest digits.
            Ok((m, trials(m), searched(m, if m == 2 { groups / 20 } else { groups })?))
        },
    )?;
    let mut record = SEP_FIG10A.record(context);
    record.setting("keys of a group", GROUP);
    record.setting("groups", groups);
    let point =
        |at: fn(&Trials) -> f64| measured.iter().map(|of| (f64::from(of.0), at(of))).collect();
    let plot = Plot::new("trials until a function fits", "bits of the array, m", "trials").log_y();
    record.plots.push(plot.with([
        Series::measured("search", point(|of| of.2)),
        Series::model("search, calculated", point(|of| of.1)),
    ]));
    record.judge("", OF_TRIALS, &measured[..]);
    Ok(record)
}

const OF_BITS: &[Claim<[f64]>] = &[
    Claim::new("almost increasing in m", "almost an increasing function", |bits: &[f64]| {
        let falls = bits.windows(2).map(|two| two[0] - two[1]).fold(0.0, f64::max);
        Finding::new(falls < 0.5, format!("falls by {falls:.2} bits at most"))
    }),
    Claim::new("about 20 bits at m = 12, not 28", "about 20", |bits: &[f64]| {
        Finding::new((bits[5] - 20.2).abs() < 0.3, format!("{:.1}", bits[5]))
    }),
    Claim::new("at least 16 bits, and 16 at best", "16", |bits: &[f64]| {
        let least = bits.iter().copied().fold(f64::MAX, f64::min);
        Finding::new((15.5..16.5).contains(&least), format!("{least:.1}"))
    })
    .because(
        "one bit a key is the limit; a geometric index has 1.4 bits more, and an array its own",
    ),
];

fn fig10b(context: &mut Context<'_>) -> Result<Record, LabError> {
    let all = context.each(SIZES, |m| format!("m = {m}"), |_, m| Ok(bits(m)))?;
    let mut record = SEP_FIG10B.record(context);
    let points = SIZES.iter().zip(&all).map(|(&m, &bits)| (f64::from(m), bits)).collect();
    let plot = Plot::new("bits of a group", "bits of the array, m", "index and array, bits");
    let plot = plot.with([Series::model("entropy of the index, and m", points)]);
    record.plots.push(plot.mark("about 20", 12.0, 20.0));
    record.judge("", OF_BITS, &all[..]);
    Ok(record)
}

/// The smallest array that needs this many times fewer trials than m = 2: m, bits as a multiple of
/// the least ones, how many times fewer.
fn cheapest(times: f64) -> (u32, f64, f64) {
    let (most, least) = (trials(2), SIZES.map(bits).into_iter().fold(f64::MAX, f64::min));
    let of = |m| (m, bits(m) / least, most / trials(m));
    SIZES.map(of).into_iter().find(|of| of.2 >= times).unwrap_or((0, f64::MAX, 0.0))
}

/// m, space as a multiple of the least, how many times fewer trials than m = 2.
type Pair = (u32, f64, f64);

const OF_PAIRS: &[Claim<[Pair; 2]>] = &[
    Claim::new("10 × fewer trials for 5 % of space", "5 %", |[pair, _]| judged(*pair, 1.05)),
    Claim::new("100 × fewer for 20 bits instead of 16", "25 %", |[_, pair]| judged(*pair, 1.25)),
];

fn judged((m, space, times): Pair, most: f64) -> Option<Finding> {
    let text = format!("m = {m}: {times:.0} ×, {:+.1} % of space", 100.0 * (space - 1.0));
    Finding::new(space <= most, text)
}

fn tradeoff(context: &mut Context<'_>) -> Result<Record, LabError> {
    let found = context.each([10.0, 100.0], |n| format!("{n} ×"), |_, n| Ok(cheapest(n)))?;
    let mut record = SEP_TRADEOFF.record(context);
    let curve = SIZES.iter().rev().map(|&m| (bits(m), trials(m))).filter(|of| of.0 < 25.0);
    let mut points: Vec<_> = curve.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let plot = Plot::new("trials against space", "index and array, bits", "trials").log_y();
    record.plots.push(plot.with([Series::model("m = 2 to 16", points)]));
    record.judge("", OF_PAIRS, &[found[0], found[1]]);
    record.note(
        "Space counts from the least that any array takes, as section 4.4 counts from the lower bound.",
    );
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_and_bits_are_those_of_the_exact_sums() {
        for (m, due) in [(2, 32_767.0), (6, 1819.0), (8, 580.0), (12, 113.0), (30, 8.0)] {
            let most = f64::max(0.5, 0.01 * due);
            assert!((trials(m) - due).abs() < most, "m = {m}: {}", trials(m));
        }
        assert!((bits(12) - 20.2).abs() < 0.1 && (bits(2) - 18.4).abs() < 0.1);
        assert!((entropy(0.5) - 2.0).abs() < 1e-12);
        assert!((fits(3, 0, 2) - 1.0).abs() < 1e-12);
        assert!((fits(2, 1, 2) - 0.5).abs() < 1e-12);
    }
}
