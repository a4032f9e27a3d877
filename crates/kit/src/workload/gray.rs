//! The Zipf sampler of Gray et al. (*Quickly Generating Billion-Record Synthetic Databases*, SIGMOD
//! 1994), which the papers use: a formula instead of a table.
//!
//! Ranks 1 and 2 are drawn with their exact probabilities, the others by inverting an integral:
//! `n · (η·u − η + 1)^(1/(1−θ))`. An approximation, for θ < 1 only: the cumulative share of a rank
//! is off by up to two points (see the test). Experiments that need the law itself take
//! [`FlowStream`](super::FlowStream).
//!
//! Cost: one logarithm and one exponential a draw; no memory.

use super::{Workload, WorkloadError, generator};
use crate::zipf::power_sum;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::RngCore;

#[derive(Clone, Debug)]
pub struct Gray {
    rng: Pcg32,
    flows: u32,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Gray {
    /// Draws among `flows` flows with skew 0 ≤ θ < 1.
    pub fn new(flows: u32, theta: f64, seed: u64) -> Result<Gray, WorkloadError> {
        if flows == 0 {
            return Err(WorkloadError::NoFlows);
        }
        if !(0.0..1.0).contains(&theta) {
            return Err(WorkloadError::Gray { theta });
        }
        let n = f64::from(flows);
        let zeta = power_sum(1.0, n, theta);
        let two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - two / zeta);
        Ok(Gray { rng: generator(seed), flows, theta, zeta, eta })
    }

    /// Returns the rank that a number from 0 to 1 draws, from 0.
    #[inline]
    pub fn rank(&self, u: f64) -> u32 {
        let scaled = u * self.zeta;
        if scaled < 1.0 || self.flows == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let base = self.eta * u - self.eta + 1.0;
        let rank = f64::from(self.flows) * base.powf(1.0 / (1.0 - self.theta));
        (rank as u32).min(self.flows - 1)
    }
}

impl Workload for Gray {
    fn flows(&self) -> u32 {
        self.flows
    }

    fn fill(&mut self, ids: &mut [u32]) -> usize {
        for id in ids.iter_mut() {
            // 53 bits, as many as a double holds.
            let u = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            *id = self.rank(u);
        }
        ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FlowStream;

    /// Returns the shares of the ranks below 1, 2, 10, 100, …
    fn shares(mut workload: impl Workload, draws: usize) -> Vec<f64> {
        let mut ids = vec![0; draws];
        assert_eq!(workload.fill(&mut ids), draws);
        let below = |k: u32| ids.iter().filter(|&&id| id < k).count() as f64 / draws as f64;
        [1, 2, 10, 100, 1000, 10_000, 99_999].map(below).to_vec()
    }

    #[test]
    fn close_to_the_exact_sampler() {
        for theta in [0.0, 0.5, 0.8, 0.9, 0.99] {
            let gray = shares(Gray::new(100_000, theta, 1).unwrap(), 400_000);
            let exact = shares(FlowStream::zipf(100_000, theta, 2).unwrap(), 400_000);
            let worst = gray.iter().zip(&exact).map(|(g, e)| (g - e).abs()).fold(0.0, f64::max);
            assert!(worst < 0.02, "θ {theta}: {gray:?} {exact:?}");
            // The two ranks that the formula draws exactly.
            assert!((gray[1] - exact[1]).abs() < 0.004, "θ {theta}: {gray:?} {exact:?}");
            // The test can fail: another skew is farther off than the approximation.
            if theta > 0.5 {
                let other = shares(Gray::new(100_000, theta - 0.1, 1).unwrap(), 400_000);
                assert!(other.iter().zip(&exact).any(|(g, e)| (g - e).abs() > 0.04));
            }
        }
    }

    #[test]
    fn ends_of_the_range_and_errors() {
        for flows in [1, 2, 3, 1000] {
            let gray = Gray::new(flows, 0.99, 1).unwrap();
            assert_eq!(gray.rank(0.0), 0);
            assert!(gray.rank(1.0 - 1e-16) < flows);
        }
        assert!(matches!(Gray::new(0, 0.5, 1), Err(WorkloadError::NoFlows)));
        for theta in [1.0, 1.2, -0.1, f64::NAN] {
            assert!(matches!(Gray::new(10, theta, 1), Err(WorkloadError::Gray { .. })));
        }
    }
}
