//! The Zipf law of the reads, and how far it is off.
//!
//! The law is that of `overbank advise`: the same collision probability and the same number of
//! different keys ([`fit_moments`]). Its error is the greatest difference, over ranks that are
//! powers of two, between the share of the reads of the keys up to that rank and the share that
//! the law gives them.

use super::record::Skew;
use super::tally::Tally;
use crate::advise::profile::fit_moments;
use overbank_models::law::power_sum;

/// Returns the law of the reads that a cache could answer; nothing without two keys that are read.
pub fn skew(tally: &Tally) -> Option<Skew> {
    let reads = tally.reads();
    let all = tally.read_count() as f64;
    if reads.len() < 2 || all < 2.0 {
        return None;
    }
    let pairs = reads.iter().map(|&c| f64::from(c) * (f64::from(c) - 1.0)).sum();
    // Of keys that are not kept, hardly any is read twice.
    let seen = if tally.is_exact() { reads.len() as f64 } else { tally.distinct() as f64 };
    let law = fit_moments(all, seen, pairs);
    let (theta, keys) = (law.theta, law.flows);
    let whole = power_sum(1.0, keys, theta);
    let (mut error, mut sum, mut next) = (0f64, 0.0, 1);
    for (rank, count) in (1..).zip(&reads) {
        sum += f64::from(*count);
        if rank == next {
            next *= 2;
            let wanted = power_sum(1.0, f64::from(rank).min(keys), theta) / whole;
            error = error.max((sum / all - wanted).abs());
        }
    }
    Some(Skew { theta, keys, collision: law.collision, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_advise::tally::Done;
    use overbank_kit::workload::FlowStream;

    fn tally(keys_max: usize, theta: f64) -> Tally {
        let mut tally = Tally::new(keys_max, None);
        for key in FlowStream::zipf(20_000, theta, 5).unwrap().take(200_000) {
            let name = key.to_le_bytes();
            tally.add(xxhash_rust::xxh3::xxh3_64(&name), &name, Done::Read);
        }
        tally
    }

    #[test]
    fn the_law_is_found_again() {
        for theta in [0.5, 0.9, 0.99, 1.2] {
            let skew = skew(&tally(1 << 20, theta)).unwrap();
            assert!((skew.theta - theta).abs() < 0.03, "{theta}: {skew:?}");
            assert!(skew.error < 0.06, "{theta}: {skew:?}");
        }
        let bounded = skew(&tally(5000, 0.99)).unwrap();
        assert!((bounded.theta - 0.99).abs() < 0.1, "{bounded:?}");
    }

    #[test]
    fn a_step_is_no_zipf_law() {
        let mut tally = Tally::new(10_000, None);
        for nth in 0..100_000u64 {
            let key = if nth % 2 == 0 { nth / 2 % 100 } else { 100 + nth / 2 % 5000 };
            tally.add(key << 40, &key.to_le_bytes(), Done::Read);
        }
        assert!(skew(&tally).unwrap().error > 0.1);
        assert_eq!(skew(&Tally::new(10, None)), None);
    }
}
