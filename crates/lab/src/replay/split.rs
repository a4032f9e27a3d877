//! The cost of a hit and of a miss, from whole bursts.
//!
//! Timing one packet costs more than the packet. A burst's time is its packets times the cost of a
//! hit, plus its misses times what a miss costs more; over many thousand bursts, least squares
//! finds both, with the caches in the state that the traffic gives them.

/// Sums for a straight line through (misses, nanoseconds) of full bursts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

/// Costs in nanoseconds a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A packet that tier 1 knows.
    pub hit_ns: f64,
    /// A packet that it does not; `None` where all bursts had the same number of misses.
    pub miss_ns: Option<f64>,
}

impl Split {
    /// Adds a burst.
    pub fn add(&mut self, misses: u64, ns: f64) {
        let x = misses as f64;
        self.n += 1.0;
        self.x += x;
        self.y += ns;
        self.xx += x * x;
        self.xy += x * ns;
    }

    /// The line, for bursts of `burst` packets; `None` without any.
    pub fn costs(&self, burst: usize) -> Option<Costs> {
        if self.n == 0.0 {
            return None;
        }
        let (mean_x, mean_y) = (self.x / self.n, self.y / self.n);
        let variance = self.xx / self.n - mean_x * mean_x;
        let burst = burst as f64;
        if variance < 1e-6 {
            let all = mean_y / burst;
            // Without a miss, all of it is hits; otherwise the two can't be told apart.
            return (mean_x == 0.0).then_some(Costs { hit_ns: all, miss_ns: None });
        }
        let slope = (self.xy / self.n - mean_x * mean_y) / variance;
        let hit_ns = (mean_y - slope * mean_x) / burst;
        Some(Costs { hit_ns, miss_ns: Some(hit_ns + slope) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_costs_that_made_the_times() {
        let mut split = Split::default();
        assert_eq!(split.costs(32), None);
        for misses in [0u64, 1, 5, 2, 9, 3] {
            split.add(misses, (32 - misses) as f64 * 40.0 + misses as f64 * 300.0);
        }
        let costs = split.costs(32).expect("six bursts");
        assert!((costs.hit_ns - 40.0).abs() < 1e-6);
        assert!((costs.miss_ns.expect("misses vary") - 300.0).abs() < 1e-6);
    }

    #[test]
    fn says_nothing_of_misses_that_never_happened() {
        let mut split = Split::default();
        split.add(0, 64.0);
        split.add(0, 64.0);
        assert_eq!(split.costs(32), Some(Costs { hit_ns: 2.0, miss_ns: None }));
        let mut all_miss = Split::default();
        all_miss.add(32, 64.0);
        assert_eq!(all_miss.costs(32), None);
    }
}
