//! Functions without an array: four sets by one function or by two, and the bits of an index.

use super::array::entropy;
use crate::prelude::*;
use overbank::hash::mix;

pub const SEP_FIG11: Experiment = Experiment {
    name: "sep-fig11",
    title: "SetSep: one function for four sets, or one for each bit",
    source: "SetSep, figure 11",
    run: fig11,
};
pub const SEP_ENTROPY: Experiment = Experiment {
    name: "sep-entropy",
    title: "SetSep: bits of an index without an array",
    source: "SetSep, equation 1",
    run: index_bits,
};

/// Functions tried until one gives `keys` random keys their values of `bits` bits.
fn search(keys: u64, bits: u32, seed: u64) -> u64 {
    let mask = (1 << bits) - 1;
    let value = |key: u64, i: u64| mix(mix(key ^ seed << 32) ^ i) & mask;
    (1..).find(|&i| (0..keys).all(|key| value(key, i) == value(key, 0))).unwrap_or(u64::MAX)
}

/// Trials of several searches, on average.
fn average(keys: u64, bits: u32, searches: u64) -> f64 {
    (0..searches).map(|seed| search(keys, bits, seed) as f64).sum::<f64>() / searches as f64
}

/// Keys, trials with one function, trials with two.
type Trials = (u64, f64, f64);

const OF_FUNCTIONS: &[Claim<[Trials]>] = &[
    Claim::new(
        "the ratio is 2^n / 2, within a half, as far as it is searched",
        "O(4^n) against 2 · 2^n",
        |all: &[Trials]| {
            let off = all.iter().map(|of| (of.1 / of.2 / (f64::from(1 << of.0) / 2.0) - 1.0, of.0));
            let (worst, n) = farthest(off);
            Finding::new(worst.abs() < 0.5, format!("{:+.0} % at n = {n}", 100.0 * worst))
        },
    ),
    Claim::new("16 keys: 65,536 × at worst", "65,536 ×", |_: &[(u64, f64, f64)]| {
        let ratio = f64::from(1u32 << 16) / 2.0;
        Finding::new(ratio <= 65_536.0, format!("{ratio:.0} × by the formula"))
    }),
];

fn fig11(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (most, searches) = if context.smoke() { (6, 300) } else { (10, 400) };
    let all = context.each(
        (2..=most).collect::<Vec<u64>>(),
        |n| format!("{n} keys"),
        |_, n| Ok((n, average(n, 2, searches), 2.0 * average(n, 1, searches))),
    )?;
    let mut record = SEP_FIG11.record(context);
    record.setting("searches", searches);
    let found =
        |of: fn(&Trials) -> f64| all.iter().map(|at| (at.0 as f64, of(at))).collect::<Vec<_>>();
    let formula = |of: fn(f64) -> f64| (2..=16).map(|n| (f64::from(n), of(f64::from(n)))).collect();
    let plot = Plot::new("functions tried for four sets", "keys", "trials").log_y();
    record.plots.push(plot.with([
        Series::measured("one function", found(|at| at.1)),
        Series::model("one function, 4^n", formula(|n| 4f64.powf(n))),
        Series::measured("one for each bit", found(|at| at.2)),
        Series::model("one for each bit, 2 · 2^n", formula(|n| 2.0 * 2f64.powf(n))),
    ]));
    record.judge("", OF_FUNCTIONS, &all[..]);
    Ok(record)
}

const OF_INDEX: &[Claim<[(u64, f64)]>] = &[Claim::new(
    "n bits and the constant of a geometric number (1.44), within 3 % (n ≥ 4)",
    "n bits, 1 a key",
    |all: &[(u64, f64)]| {
        let off = all.iter().map(|&(n, bits)| {
            let due = n as f64 + std::f64::consts::LOG2_E;
            (bits / due - 1.0, n)
        });
        let (worst, n) = farthest(off);
        Finding::new(worst.abs() < 0.03, format!("{:+.1} % at n = {n}", 100.0 * worst))
    },
)];

fn index_bits(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (sizes, searches): (&[u64], u64) =
        if context.smoke() { (&[4, 6, 8], 4000) } else { (&[4, 6, 8, 10, 12, 14], 10_000) };
    let all = context.each(
        sizes.iter(),
        |n| format!("{n} keys"),
        |_, &n| {
            // The entropy of the geometric number whose mean was found.
            Ok((n, entropy(1.0 / average(n, 1, searches))))
        },
    )?;
    let mut record = SEP_ENTROPY.record(context);
    record.setting("searches", searches);
    record.tables.push(Table::of(
        "Bits of an index",
        &all,
        &[
            ("keys", &|of| of.0.to_string()),
            ("bits", &|of| format!("{:.2}", of.1)),
            ("bits a key", &|of| format!("{:.2}", of.1 / of.0 as f64)),
        ],
    ));
    record.judge("", OF_INDEX, &all[..]);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_that_fits() {
        assert!((average(5, 1, 2000) / 32.0 - 1.0).abs() < 0.1);
        assert!((average(2, 2, 2000) / 16.0 - 1.0).abs() < 0.1);
    }
}
