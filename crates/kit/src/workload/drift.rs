//! Traffic that does not stand still: hot sets that move, scans and bursts of new flows.

use super::{FlowStream, Workload, WorkloadError, generator};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::RngCore;

/// A stream whose popular flows change: every N packets each rank moves on to another flow.
///
/// In epoch e (from 0), rank r is flow (r + e·by) mod flows. The old head becomes part of the tail.
#[derive(Clone)]
pub struct Shifting {
    base: FlowStream,
    every: u64,
    by: u32,
    offset: u32,
    left: u64,
}

impl Shifting {
    /// Moves the ranks of `base` on by `by` flows every `every` packets.
    pub fn new(base: FlowStream, every: u64, by: u32) -> Result<Shifting, WorkloadError> {
        if every == 0 {
            return Err(WorkloadError::NoLength);
        }
        let by = by % base.flows();
        Ok(Shifting { base, every, by, offset: 0, left: every })
    }
}

fn add_modulo(a: u32, b: u32, n: u32) -> u32 {
    let sum = u64::from(a) + u64::from(b);
    (if sum >= u64::from(n) { sum - u64::from(n) } else { sum }) as u32
}

impl Workload for Shifting {
    fn flows(&self) -> u32 {
        self.base.flows()
    }

    fn fill(&mut self, ids: &mut [u32]) -> usize {
        let flows = self.base.flows();
        let mut at = 0;
        while at < ids.len() {
            let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(ids.len() - at);
            let epoch = &mut ids[at..at + count];
            self.base.fill(epoch);
            epoch.iter_mut().for_each(|id| *id = add_modulo(*id, self.offset, flows));
            at += count;
            self.left -= count as u64;
            if self.left == 0 {
                self.left = self.every;
                self.offset = add_modulo(self.offset, self.by, flows);
            }
        }
        ids.len()
    }
}

/// Packets of flows that were never there before, in runs between those of a base stream.
///
/// ```text
/// base  b b b b [n₁ n₂ n₃ n₄] b b b …      scan: 4 new flows, 1 packet each
/// base  b b b b [n₁ n₂ n₁ n₂] b b b …      burst: 2 new flows, 2 packets each, taking turns
/// ```
///
/// Ids of new flows follow those of the base; each is used in one run and never again, and the
/// sequence ends when they are used up.
pub struct Newcomers<W> {
    base: W,
    rng: Pcg32,
    run: Run,
    /// A run starts before a base packet when 32 random bits are below this.
    chance: u64,
    next_id: u32,
    left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub flows: u32,
    pub packets: u32,
}

impl<W: Workload> Newcomers<W> {
    /// Mixes runs into `base` so that `share` of all packets (0 ≤ share < 1) are of new flows.
    pub fn new(base: W, share: f64, run: Run, seed: u64) -> Result<Newcomers<W>, WorkloadError> {
        let length = run.flows.checked_mul(run.packets).filter(|&l| l > 0);
        let length = length.ok_or(WorkloadError::NoLength)?;
        // After a run comes a base packet, or the next run with this chance again.
        let odds = share / ((1.0 - share) * f64::from(length));
        if !(0.0..1.0).contains(&share) || odds > 1.0 {
            return Err(WorkloadError::Share { share });
        }
        let chance = (odds / (1.0 + odds) * 2f64.powi(32)) as u64;
        let next_id = base.flows();
        let rng = generator(seed ^ 0x6e65_7763);
        Ok(Newcomers { base, rng, run, chance, next_id, left: 0 })
    }
}

impl<W: Workload> Workload for Newcomers<W> {
    fn flows(&self) -> u32 {
        u32::MAX
    }

    fn fill(&mut self, ids: &mut [u32]) -> usize {
        for (at, id) in ids.iter_mut().enumerate() {
            if self.left == 0 && u64::from(self.rng.next_u32()) < self.chance {
                if self.next_id > u32::MAX - self.run.flows {
                    return at;
                }
                self.left = self.run.flows * self.run.packets;
            }
            if self.left == 0 {
                if self.base.fill(std::slice::from_mut(id)) == 0 {
                    return at;
                }
                continue;
            }
            self.left -= 1;
            *id = self.next_id + self.left % self.run.flows;
            if self.left == 0 {
                self.next_id += self.run.flows;
            }
        }
        ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn take(workload: &mut impl Workload, count: usize) -> Vec<u32> {
        let mut ids = vec![0; count];
        let filled = workload.fill(&mut ids);
        ids.truncate(filled);
        ids
    }

    #[test]
    fn hot_sets_move_when_they_should() {
        let zipf = |flows, theta| FlowStream::zipf(flows, theta, 2).unwrap();
        let mut shifting = Shifting::new(zipf(1000, 1.2), 5000, 10).unwrap();
        for epoch in 0..150u32 {
            let ids = take(&mut shifting, 5000);
            let mut counts = vec![0; 1000];
            ids.iter().for_each(|&id| counts[id as usize] += 1);
            let hottest = (0..1000).max_by_key(|&i| counts[i]).unwrap();
            assert_eq!(hottest as u32, epoch * 10 % 1000, "epoch {epoch}");
        }
        // Cut as you like, the sequence is the same; without movement it is the base.
        let whole = take(&mut Shifting::new(zipf(50, 0.5), 7, 3).unwrap(), 1000);
        let mut pieces = Shifting::new(zipf(50, 0.5), 7, 3).unwrap();
        let cut: Vec<u32> = (0..1000).step_by(40).flat_map(|_| take(&mut pieces, 40)).collect();
        assert_eq!(whole, cut);
        let still = take(&mut Shifting::new(zipf(50, 0.5), 7, 0).unwrap(), 1000);
        assert!(still.into_iter().eq(zipf(50, 0.5).take(1000)));
    }

    #[test]
    fn newcomers_come_in_runs_with_their_share_and_never_again() {
        for (share, run) in [
            (0.3, Run { flows: 100, packets: 1 }),
            (0.1, Run { flows: 8, packets: 20 }),
            (0.4, Run { flows: 1, packets: 1 }),
            (0.0, Run { flows: 1, packets: 1 }),
        ] {
            let base = FlowStream::zipf(1000, 0.9, 1).unwrap();
            let mut mixed = Newcomers::new(base.clone(), share, run, 3).unwrap();
            let ids = take(&mut mixed, 400_000);
            let fresh = ids.iter().filter(|&&id| id >= 1000).count();
            let measured = fresh as f64 / ids.len() as f64;
            assert!((measured - share).abs() < 0.02, "{run:?}: {measured}");
            // What is left is the base stream, untouched.
            let rest = ids.iter().copied().filter(|&id| id < 1000);
            assert!(rest.zip(base).all(|(a, b)| a == b));
            // Every new flow but those of a run that the end cut has its packets, close together.
            let mut seen: HashMap<u32, (usize, usize, u32)> = HashMap::new();
            for (at, &id) in ids.iter().enumerate().filter(|(_, id)| **id >= 1000) {
                let entry = seen.entry(id).or_insert((at, at, 0));
                *entry = (entry.0, at, entry.2 + 1);
            }
            let last = seen.keys().max().copied().unwrap_or(0);
            for (id, (first, end, count)) in seen {
                assert!(end - first < (run.flows * run.packets) as usize);
                assert!(count == run.packets || id + run.flows > last, "{id}: {count}");
            }
        }
    }

    #[test]
    fn the_sequence_ends_before_an_id_comes_again() {
        let base = FlowStream::uniform(u32::MAX - 10, 1).unwrap();
        let mut mixed = Newcomers::new(base, 0.4, Run { flows: 4, packets: 1 }, 1).unwrap();
        let ids = take(&mut mixed, 1000);
        assert!(ids.len() < 1000);
        assert_eq!(ids.iter().filter(|&&id| id >= u32::MAX - 10).count(), 8);
    }

    #[test]
    fn errors() {
        let base = || FlowStream::uniform(10, 1).unwrap();
        let one = Run { flows: 1, packets: 1 };
        for share in [1.0, -0.1, f64::NAN, 0.9] {
            let refused = Newcomers::new(base(), share, one, 1).err();
            assert!(matches!(refused, Some(WorkloadError::Share { .. })));
        }
        for run in [Run { flows: 0, packets: 1 }, Run { flows: u32::MAX, packets: 2 }] {
            let refused = Newcomers::new(base(), 0.1, run, 1).err();
            assert_eq!(refused, Some(WorkloadError::NoLength));
        }
        assert_eq!(Shifting::new(base(), 0, 1).err(), Some(WorkloadError::NoLength));
    }
}
