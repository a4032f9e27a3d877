//! The cost of a hit and of a miss, from whole bursts.
//!
//! Timing one packet costs more than the packet. A burst's time is its packets times the cost of a
//! hit, plus its misses times what a miss costs more. Bursts with the same number of misses form a
//! group; a straight line through the medians of the groups, each weighed by its bursts, gives
//! both costs, with the caches in the state that the traffic gives them. Medians, because an
//! interrupt in one burst would weigh more than all that a thousand others say.

use overbank_kit::spread::median;

const BURST_MAX: usize = 32;
const GROUP_MAX: usize = 1 << 14;
/// A group of fewer bursts has no say.
const GROUP_MIN: usize = 16;

/// Nanoseconds of full bursts, by the number of their misses.
#[derive(Clone, Debug)]
pub struct Split {
    groups: Vec<Vec<f32>>,
    /// All bursts of each group, also those not kept.
    counts: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    pub hit_ns: f64,
    /// A packet that it does not; `None` where all bursts had the same number of misses.
    pub miss_ns: Option<f64>,
}

impl Default for Split {
    fn default() -> Self {
        Split { groups: vec![Vec::new(); BURST_MAX + 1], counts: vec![0; BURST_MAX + 1] }
    }
}

impl Split {
    pub fn add(&mut self, misses: u64, ns: f64) {
        let group = (misses as usize).min(BURST_MAX);
        self.counts[group] += 1;
        if self.groups[group].len() < GROUP_MAX {
            self.groups[group].push(ns as f32);
        }
    }

    /// Returns the line through the groups, for bursts of `burst` packets; `None` where hits and
    /// misses cannot be separated.
    pub fn costs(&self, burst: usize) -> Option<Costs> {
        let points: Vec<(f64, f64, f64)> = (0..self.groups.len())
            .filter(|&misses| self.groups[misses].len() >= GROUP_MIN)
            .map(|misses| {
                let ns = median(self.groups[misses].iter().map(|&ns| f64::from(ns)));
                (misses as f64, ns, self.counts[misses] as f64)
            })
            .collect();
        let weight: f64 = points.iter().map(|p| p.2).sum();
        let burst = burst as f64;
        match points[..] {
            [] => None,
            // Without a miss, all of it is hits.
            [(misses, ns, _)] => {
                (misses == 0.0).then_some(Costs { hit_ns: ns / burst, miss_ns: None })
            }
            _ => {
                let mean = |f: fn(&(f64, f64, f64)) -> f64| {
                    points.iter().map(|p| p.2 * f(p)).sum::<f64>() / weight
                };
                let (x, y) = (mean(|p| p.0), mean(|p| p.1));
                let slope = (mean(|p| p.0 * p.1) - x * y) / (mean(|p| p.0 * p.0) - x * x);
                let hit_ns = (y - slope * x) / burst;
                Some(Costs { hit_ns, miss_ns: Some(hit_ns + slope) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_costs_that_made_the_times_whatever_interrupts_add() {
        let mut split = Split::default();
        assert_eq!(split.costs(32), None);
        for round in 0..100u64 {
            for misses in [0u64, 1, 5, 2, 9, 3] {
                let ns = (32 - misses) as f64 * 40.0 + misses as f64 * 300.0;
                let interrupt = if (round + misses) % 7 == 0 { 50_000.0 } else { 0.0 };
                split.add(misses, ns + interrupt);
            }
        }
        let costs = split.costs(32).expect("six groups");
        assert!((costs.hit_ns - 40.0).abs() < 1e-3);
        assert!((costs.miss_ns.expect("misses vary") - 300.0).abs() < 1e-3);
    }

    #[test]
    fn omits_events_that_never_happened() {
        let repeated = |misses| {
            let mut split = Split::default();
            (0..GROUP_MIN).for_each(|_| split.add(misses, 64.0));
            split
        };
        assert_eq!(repeated(0).costs(32), Some(Costs { hit_ns: 2.0, miss_ns: None }));
        assert_eq!(repeated(32).costs(32), None);
    }

    /// An outlier or two would otherwise turn the line.
    #[test]
    fn a_group_of_fewer_than_sixteen_bursts_has_no_say() {
        let mut split = Split::default();
        for _ in 0..20 {
            split.add(0, 64.0);
            split.add(1, 96.0);
        }
        let usual = split.costs(32).expect("two groups");
        assert_eq!(usual, Costs { hit_ns: 2.0, miss_ns: Some(34.0) });
        (0..15).for_each(|_| split.add(20, 1e6));
        assert_eq!(split.costs(32), Some(usual));
        split.add(20, 1e6);
        assert_ne!(split.costs(32), Some(usual));
    }
}
