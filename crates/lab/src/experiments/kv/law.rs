//! Zipf's law over a keyspace, how keys are placed at servers, and the loads that follow.

use overbank::hash::mix;
use overbank_kit::zipf::power_sum;
use overbank_wire::netcache::Key;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;

use crate::prelude::LabError;

/// Ranks whose servers are looked at one by one. The rest is spread evenly: a server's share of it
/// is off by less than 0.03 % of a server's load for 128 servers and θ ≥ .9.
const EXACT: u64 = 1 << 22;

/// The law: the key of rank `r`, from 1 on, is asked for with probability r^−θ / Σ.
#[derive(Clone)]
pub(super) struct Law {
    pub(super) keys: u64,
    pub(super) theta: f64,
    sum: f64,
    zipf: Zipf<f64>,
}

impl Law {
    /// θ = 0 is the uniform law.
    pub(super) fn new(keys: u64, theta: f64) -> Result<Law, LabError> {
        let zipf = Zipf::new(keys as f64, theta).map_err(LabError::failed)?;
        Ok(Law { keys, theta, sum: power_sum(1.0, keys as f64, theta), zipf })
    }

    pub(super) fn probability(&self, rank: u64) -> f64 {
        (rank as f64).powf(-self.theta) / self.sum
    }

    /// Returns what the hottest keys have of all requests.
    pub(super) fn head(&self, ranks: u64) -> f64 {
        match ranks.min(self.keys) {
            0 => 0.0,
            ranks => power_sum(1.0, ranks as f64, self.theta) / self.sum,
        }
    }

    pub(super) fn draw(&self, random: &mut Pcg64Mcg) -> u64 {
        self.zipf.sample(random) as u64
    }
}

/// Where keys are: by a hash of their rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    pub(super) servers: u16,
    pub(super) seed: u64,
}

impl Placement {
    pub(super) fn server(self, rank: u64) -> u16 {
        let hash = u128::from(mix(rank ^ mix(self.seed)));
        ((hash * u128::from(self.servers)) >> 64) as u16
    }

    /// Returns what each server has of all requests, but for those of the hottest keys.
    pub(super) fn loads(self, law: &Law, cached: u64) -> Vec<f64> {
        let exact = law.keys.min(EXACT).max(cached);
        let rest = (1.0 - law.head(exact)) / f64::from(self.servers);
        let mut loads = vec![rest; usize::from(self.servers)];
        for rank in cached + 1..=exact {
            loads[usize::from(self.server(rank))] += law.probability(rank);
        }
        loads
    }
}

/// Returns the largest of some loads.
pub(super) fn fullest(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// Returns the key of a rank.
pub(super) fn key(rank: u64) -> Key {
    u128::from(mix(rank)) << 64 | u128::from(rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::rand_core::SeedableRng;

    /// Draws of a keyspace of 10⁹ follow the law: χ² over classes of ranks, each twice as wide.
    #[test]
    fn draws_follow_the_law() {
        const DRAWS: usize = 1 << 20;
        for theta in [0.0, 0.9, 0.95, 0.99] {
            let law = Law::new(1_000_000_000, theta).unwrap();
            let mut random = Pcg64Mcg::seed_from_u64(1);
            let mut classes = [0u64; 31];
            for _ in 0..DRAWS {
                let rank = law.draw(&mut random);
                assert!((1..=law.keys).contains(&rank));
                classes[rank.ilog2() as usize] += 1;
            }
            let mut chi = 0.0;
            let mut degrees = 0;
            for (class, &found) in classes.iter().enumerate() {
                let (from, to) = (1u64 << class, (2u64 << class) - 1);
                let share = law.head(to) - law.head(from - 1);
                let expected = share * DRAWS as f64;
                if expected >= 5.0 {
                    chi += (found as f64 - expected).powi(2) / expected;
                    degrees += 1;
                }
            }
            // Five standard deviations above the mean of the χ² distribution.
            let limit = f64::from(degrees) + 5.0 * (2.0 * f64::from(degrees)).sqrt();
            assert!(chi < limit, "θ = {theta}: {chi:.1} of {limit:.1}");
        }
    }

    #[test]
    fn loads_are_those_of_all_keys() {
        let law = Law::new(1000, 0.99).unwrap();
        let placement = Placement { servers: 8, seed: 3 };
        let mut naive = vec![0.0; 8];
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in 11..=1000u64 {
            naive[usize::from(placement.server(rank))] += (rank as f64).powf(-0.99) / sum;
        }
        for (load, naive) in placement.loads(&law, 10).iter().zip(&naive) {
            assert!((load - naive).abs() < 1e-9, "{load} {naive}");
        }
        assert!((law.head(10) + naive.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
