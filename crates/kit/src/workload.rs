//! Sequences of flow ids: which flow does the next packet belong to?
//!
//! Ids are ranks: with skew, id 0 is the most popular flow. The sequence is drawn, not stored, so
//! that it does not repeat (PCG-32's period is 2⁶⁴) and no cache learns it by heart. The same seed
//! gives the same sequence on every machine.
//!
//! Cost: two PCG-32 steps and, with skew, one random line of a table of 8 bytes per flow.
//!
//! | sequence | what it is |
//! |---|---|
//! | [`FlowStream`] | uniform, or Zipf with any θ from 0 up, exact |
//! | [`Gray`] | Zipf with θ < 1 by the formula of Gray et al., as in the papers |
//! | [`Shifting`] | Zipf whose popular flows change every N packets |
//! | [`Newcomers`] | scans and bursts of new flows in any other sequence |

mod drift;
mod gray;
mod trace;

pub use drift::{Newcomers, Run, Shifting};
pub use gray::Gray;
pub use trace::Trace;

use std::sync::Arc;

use rand_pcg::Pcg32;
use rand_pcg::rand_core::RngCore;

use crate::zipf::{RANKS_MAX, Zipf};

#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    #[error("0 flows, expected at least 1")]
    NoFlows,
    #[error("{flows} flows with skew, expected at most {RANKS_MAX}")]
    TooManyFlows { flows: u32 },
    #[error(
        "a skew of {theta}, expected a number from 0 to below 1 for the sampler of Gray et al."
    )]
    Gray { theta: f64 },
    #[error("a length of 0, expected at least 1 packet")]
    NoLength,
    /// No such share of new flows can be made with runs of this length.
    #[error("a share of {share}, expected one from 0 to below 1 that the runs can make")]
    Share { share: f64 },
    #[error("a skew of {theta}, expected a number from 0 (uniform) up")]
    Skew { theta: f64 },
}

/// A sequence of flow ids. It does not repeat itself: a finite one ends.
pub trait Workload: Send {
    fn flows(&self) -> u32;

    /// Writes the next ids from the front on and says how many; fewer than there is room for only
    /// at the end of the sequence.
    fn fill(&mut self, ids: &mut [u32]) -> usize;
}

/// Returns the generator of a seed. Its stream is a constant of ours; the seed is spread so that
/// near seeds start far apart.
fn generator(seed: u64) -> Pcg32 {
    let state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Pcg32::new(state, 0x0b4e_6ba4)
}

/// Returns the same ids in an order that `seed` chooses.
pub fn shuffled(mut ids: Vec<u32>, seed: u64) -> Vec<u32> {
    let mut rng = generator(seed);
    for i in (1..ids.len()).rev() {
        ids.swap(i, uniform(rng.next_u64(), i as u32 + 1) as usize);
    }
    ids
}

#[derive(Clone)]
pub struct FlowStream {
    rng: Pcg32,
    flows: u32,
    /// `None`: uniform.
    zipf: Option<Arc<Zipf>>,
}

impl FlowStream {
    /// Draws each of `flows` flows with the same probability.
    pub fn uniform(flows: u32, seed: u64) -> Result<FlowStream, WorkloadError> {
        if flows == 0 {
            return Err(WorkloadError::NoFlows);
        }
        Ok(FlowStream { rng: generator(seed), flows, zipf: None })
    }

    /// Draws flow i with a probability proportional to (i + 1)^−θ; θ = 0 is uniform.
    pub fn zipf(flows: u32, theta: f64, seed: u64) -> Result<FlowStream, WorkloadError> {
        let uniform = FlowStream::uniform(flows, seed)?;
        if !theta.is_finite() || theta < 0.0 {
            return Err(WorkloadError::Skew { theta });
        }
        if theta == 0.0 {
            return Ok(uniform);
        }
        let zipf = Zipf::new(flows, theta).ok_or(WorkloadError::TooManyFlows { flows })?;
        Ok(FlowStream { zipf: Some(Arc::new(zipf)), ..uniform })
    }

    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// Returns the next id, below [`FlowStream::flows`].
    #[inline]
    pub fn next_flow(&mut self) -> u32 {
        let random = self.rng.next_u64();
        match &self.zipf {
            Some(zipf) => zipf.rank(random),
            None => uniform(random, self.flows),
        }
    }

    pub fn fill(&mut self, ids: &mut [u32]) {
        match &self.zipf {
            Some(zipf) => ids.iter_mut().for_each(|id| *id = zipf.rank(self.rng.next_u64())),
            None => ids.iter_mut().for_each(|id| *id = uniform(self.rng.next_u64(), self.flows)),
        }
    }
}

impl Workload for FlowStream {
    fn flows(&self) -> u32 {
        self.flows
    }

    fn fill(&mut self, ids: &mut [u32]) -> usize {
        FlowStream::fill(self, ids);
        ids.len()
    }
}

#[inline]
fn uniform(random: u64, flows: u32) -> u32 {
    ((u128::from(random) * u128::from(flows)) >> 64) as u32
}

impl Iterator for FlowStream {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        Some(self.next_flow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_distr::Distribution;

    fn counts(flows: u32, ids: impl Iterator<Item = u32>) -> Vec<f64> {
        let mut counts = vec![0.0; flows as usize];
        ids.for_each(|id| counts[id as usize] += 1.0);
        counts
    }

    /// Returns the chi-square over cells of at least 20 expected draws, less its mean, in standard
    /// deviations.
    fn chi_square(a: &[f64], expected: &[f64]) -> f64 {
        let (mut chi, mut cells, mut seen, mut due) = (0.0, 0.0, 0.0, 0.0);
        for (a, e) in a.iter().zip(expected) {
            seen += a;
            due += e;
            if due >= 20.0 {
                chi += (seen - due).powi(2) / due;
                cells += 1.0;
                (seen, due) = (0.0, 0.0);
            }
        }
        (chi - cells) / (2.0f64 * cells).sqrt()
    }

    #[test]
    fn draws_follow_the_law() {
        let (flows, draws) = (5000, 1_000_000);
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2] {
            let weights: Vec<f64> = (1..=flows).map(|i| f64::from(i).powf(-theta)).collect();
            let sum: f64 = weights.iter().sum();
            let expected: Vec<f64> = weights.iter().map(|w| w / sum * f64::from(draws)).collect();

            let stream = FlowStream::zipf(flows, theta, 7).unwrap();
            let ours = counts(flows, stream.take(draws as usize));
            let sigmas = chi_square(&ours, &expected);
            assert!(sigmas.abs() < 4.5, "theta {theta}: {sigmas} standard deviations");

            // rand_distr's rejection sampler agrees with both, where it allows the skew.
            let oracle = rand_distr::Zipf::new(f64::from(flows), theta).unwrap();
            let mut rng = rand::rngs::StdRng::seed_from_u64(1);
            let theirs = counts(flows, (0..draws).map(|_| oracle.sample(&mut rng) as u32 - 1));
            assert!(chi_square(&theirs, &expected).abs() < 4.5);
            // The test can fail: another skew is far off.
            if theta > 0.0 {
                let other = FlowStream::zipf(flows, theta - 0.02, 7).unwrap();
                let other = counts(flows, other.take(draws as usize));
                assert!(chi_square(&other, &expected) > 6.0);
            }
        }
    }

    #[test]
    fn seeds_fill_and_iterator() {
        for theta in [0.0, 0.99] {
            let seeded = |seed| FlowStream::zipf(1 << 20, theta, seed).unwrap();
            let mut ids = vec![0; 1000];
            seeded(1).fill(&mut ids);
            assert!(seeded(1).zip(&ids).all(|(a, b)| a == *b));
            let same = seeded(2).zip(&ids).filter(|(a, b)| a == *b).count();
            assert!(same < if theta == 0.0 { 5 } else { 50 }, "{same} of 1000 alike");
        }
    }

    #[test]
    fn all_ids_are_there_once_in_no_order() {
        for count in [0, 1, 2, 3, 1000] {
            let mut ids = shuffled((0..count).collect(), 1);
            if count == 1000 {
                let early = ids[..500].iter().filter(|&&id| id < 500).count();
                assert!((200..300).contains(&early), "{early}");
                assert_ne!(ids, shuffled((0..count).collect(), 2), "the seed does nothing");
            }
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..count));
        }
    }

    #[test]
    fn errors() {
        assert_eq!(FlowStream::uniform(0, 1).err(), Some(WorkloadError::NoFlows));
        let skew = FlowStream::zipf(1, -1.0, 1).err();
        assert_eq!(skew, Some(WorkloadError::Skew { theta: -1.0 }));
        assert!(FlowStream::zipf(1, f64::NAN, 1).is_err());
        let many = FlowStream::zipf(u32::MAX, 0.5, 1).err();
        assert_eq!(many, Some(WorkloadError::TooManyFlows { flows: u32::MAX }));
        assert!(FlowStream::uniform(u32::MAX, 1).is_ok());
    }
}
