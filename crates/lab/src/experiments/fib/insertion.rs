//! Building a table: time, rate of insertion by occupancy, and what one insertion takes at 95 %.

use std::time::Instant;

use super::measure::{Fib, empty, insert};
use super::{absent, address, sizes};
use crate::prelude::*;
use overbank::random::Pcg32;

/// Occupancy that a table is built to, in percent.
const PERCENT: u64 = 95;
/// Width of a band of occupancy, in percent.
const BAND: u64 = 5;

pub(super) struct Band {
    /// Its end, in percent.
    pub(super) percent: u64,
    pub(super) rate: f64,
    /// Entries moved by an insertion.
    pub(super) moves: f64,
}

pub(super) struct Built {
    /// Seconds until the empty table was there, all of its memory touched.
    pub(super) allocated_s: f64,
    pub(super) filled_s: f64,
    pub(super) bands: Vec<Band>,
}

/// Builds a table of `entries` entries, 95 % full, whose values are `value` of their number.
/// Addresses come from a list, so to speak: the lines of each are asked for 16 insertions ahead.
pub(super) fn build(
    context: &mut Context<'_>,
    entries: u64,
    value: impl Fn(u64) -> u16,
) -> Result<(Fib, Built), LabError> {
    let what = sizes::name_of(entries);
    context.step(&format!("{what}: memory"), 0.0)?;
    let start = Instant::now();
    let mut fib = empty(entries, context.seed)?;
    let mut built =
        Built { allocated_s: start.elapsed().as_secs_f64(), filled_s: 0.0, bands: Vec::new() };
    let mut from = 0;
    for percent in (BAND..=PERCENT).step_by(BAND as usize) {
        let until = entries * percent / PERCENT;
        let piece = (from as f64 / entries as f64, until as f64 / entries as f64);
        let moves = fib.stats().displaced;
        let start = Instant::now();
        let what = format!("{what}, to {percent} %");
        context.part(piece, |context| insert(context, &what, &mut fib, from..until, &value))?;
        let seconds = start.elapsed().as_secs_f64();
        let count = (until - from).max(1) as f64;
        built.filled_s += seconds;
        let moves = (fib.stats().displaced - moves) as f64 / count;
        built.bands.push(Band { percent, rate: count / seconds / 1e6, moves });
        from = until;
    }
    Ok((fib, built))
}

/// What [`latency`] gives: nanoseconds of one insertion at 95 %, the clock included, what the clock
/// alone shows, and how many insertions there were.
pub(super) const LATENCIES: [&str; 6] =
    ["p50", "p99", "p99.9", "longest", "of it the clock", "insertions"];

/// Times single insertions into a table that is 95 % full but for one entry, which was drawn and
/// removed: new keys, whose lines were not asked for. The table has the same keys afterwards.
pub(super) fn latency(
    fib: &mut Fib,
    entries: u64,
    count: u64,
    seed: u64,
    value: impl Fn(u64) -> u16,
) -> Result<[u64; 6], LabError> {
    let mut pcg = Pcg32::new(seed, 13);
    let (mut times, mut clock) = (Vec::new(), Vec::new());
    for new in 0..count {
        let start = Instant::now();
        clock.push(start.elapsed().as_nanos() as u64);
        // At most 2^32 entries: `Draws` refuses more.
        let number = u64::from(pcg.below(entries as u32));
        fib.remove(address(number));
        let start = Instant::now();
        let inserted = fib.insert(absent(new), 0);
        times.push(start.elapsed().as_nanos() as u64);
        inserted.map_err(LabError::failed)?;
        fib.remove(absent(new));
        fib.insert(address(number), value(number)).map_err(LabError::failed)?;
    }
    times.sort_unstable();
    clock.sort_unstable();
    let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| quantile(&times, share));
    Ok([p50, p99, p999, max, quantile(&clock, 0.5), count])
}

/// Returns the least of sorted values that is not below this share of them; 0 of none.
fn quantile(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fib::measure::tests::filled;
    use crate::experiments::fib::measure::value;

    #[test]
    fn timing_insertions_leaves_the_table_as_it_was() {
        let entries = 20_000;
        let mut fib = filled(entries);
        let found = latency(&mut fib, entries, 3000, 5, value).unwrap();
        assert!(found[..4].is_sorted());
        assert_eq!((found[5], fib.len()), (3000, 20_000));
        assert!((0..entries).all(|n| fib.get(address(n)) == Some(value(n))));
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!([0.5, 0.99, 0.999, 1.0].map(|q| quantile(&values, q)), [500, 990, 999, 1000]);
        assert_eq!(quantile(&[], 0.5), 0);
    }
}
