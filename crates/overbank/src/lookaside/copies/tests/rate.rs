//! Hit rates beside the best choice of keys there could be.

use std::vec::Vec;

use crate::hash::mix;
use crate::lookaside::{Config, Copies, Plain};
use crate::random::Pcg32;

const KEYS: usize = 100_000;
const ENTRIES: usize = KEYS / 10;

/// Returns the hit rate of a warm table under fresh Zipf lookups, as a share of that of the most
/// popular keys.
fn share_of_optimum<V: Plain>(theta: f64, value: V) -> f64 {
    let mut sums: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-theta)).collect();
    for rank in 1..KEYS {
        sums[rank] += sums[rank - 1];
    }
    let table = Copies::<u64, V>::new(&Config::entries(ENTRIES)).expect("small");
    let mut pcg = Pcg32::new(1, 2);
    let (draws, mut hits) = (1_000_000, 0);
    for draw in 0..2 * draws {
        let at = f64::from(pcg.draw()) / 2f64.powi(32) * sums[KEYS - 1];
        let key = mix(sums.partition_point(|&sum| sum <= at) as u64);
        let mut hit = true;
        table.get_or(key, |_| {
            hit = false;
            Some(value)
        });
        hits += u32::from(hit && draw >= draws);
    }
    f64::from(hits) / f64::from(draws) / (sums[table.slots() - 1] / sums[KEYS - 1])
}

#[test]
fn hits_are_near_the_best_choice_of_keys() {
    let (narrow, wide) = (share_of_optimum(0.99, 1u64), share_of_optimum(0.99, [1u64; 2]));
    assert!(narrow > 0.95 && wide > 0.95, "{narrow:.3}, {wide:.3}");
    let flatter = share_of_optimum(0.8, 1u64);
    assert!(flatter > 0.88, "{flatter:.3}");
}
