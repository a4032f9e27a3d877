//! How popular flows are, in few numbers: groups of flows of about equal popularity.
//!
//! A group is a count of flows and their mean weight; a weight is a share of the packets times the
//! number of flows, so that the mean over all flows is 1. The popular head has a group for each
//! flow, the tail one group per 3 % of popularity: at most some hundreds in all, whatever the
//! number of flows.

/// Neighbouring ranks share a group when there are more than this many per unit of relative rank.
const RATIO: f64 = 1.03;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    pub flows: f64,
    /// Mean of their weights; the mean over all groups is 1.
    pub weight: f64,
}

/// The popularities of all flows, most popular first.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    groups: Vec<Group>,
    flows: f64,
}

impl Law {
    /// Draws rank r with a probability proportional to r^−θ. At least one flow.
    pub fn zipf(flows: u32, theta: f64) -> Law {
        let n = f64::from(flows.max(1));
        let mut groups = Vec::new();
        let mut from = 1.0;
        while from <= n {
            let to = (from * RATIO).floor().max(from).min(n);
            groups.push(Group { flows: to - from + 1.0, weight: power_sum(from, to, theta) });
            from = to + 1.0;
        }
        Law::normalised(groups)
    }

    /// Groups flows by the packets seen of each; flows without a packet do not count.
    pub fn counted(counts: &[u32]) -> Law {
        let mut sorted: Vec<u32> = counts.iter().copied().filter(|&c| c > 0).collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut groups = Vec::new();
        let mut from = 0;
        while from < sorted.len() {
            // Ranks within 3 % of each other, or all flows with the same count.
            let rank = (((from + 1) as f64 * RATIO) as usize).clamp(from + 1, sorted.len());
            let to = sorted[rank..].partition_point(|&c| c == sorted[rank - 1]) + rank;
            let to = if sorted[from] == sorted[rank - 1] { to } else { rank };
            let weight = sorted[from..to].iter().map(|&c| f64::from(c)).sum();
            groups.push(Group { flows: (to - from) as f64, weight });
            from = to;
        }
        Law::normalised(groups)
    }

    /// Normalises groups whose weight is still a sum.
    fn normalised(mut groups: Vec<Group>) -> Law {
        let flows: f64 = groups.iter().map(|g| g.flows).sum();
        let sum: f64 = groups.iter().rev().map(|g| g.weight).sum();
        groups.iter_mut().for_each(|g| g.weight *= flows / sum / g.flows);
        Law { groups, flows }
    }

    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub fn flows(&self) -> f64 {
        self.flows
    }

    /// Returns the weights of `count` flows that stand for all, one from each `count`-th of them,
    /// most popular first; `offset` from 0 to 1 says where in its part each is taken.
    pub fn sample(&self, count: usize, offset: f64) -> Vec<f64> {
        let mut groups = self.groups.iter();
        let mut group = groups.next();
        let mut passed = 0.0;
        let step = self.flows / count as f64;
        (0..count)
            .map(|i| {
                let at = (i as f64 + offset) * step;
                while let Some(g) = group {
                    if at < passed + g.flows || groups.len() == 0 {
                        break;
                    }
                    passed += g.flows;
                    group = groups.next();
                }
                group.map_or(0.0, |g| g.weight)
            })
            .collect()
    }

    /// Sums popularity × `f(weight)` over flows: what a packet sees on average.
    pub fn per_packet(&self, f: impl Fn(f64) -> f64) -> f64 {
        self.groups.iter().map(|g| g.flows / self.flows * g.weight * f(g.weight)).sum()
    }

    /// Returns the mean of `f(weight)` over flows.
    pub fn per_flow(&self, f: impl Fn(f64) -> f64) -> f64 {
        self.groups.iter().map(|g| g.flows / self.flows * f(g.weight)).sum()
    }
}

/// Sums r^−θ over from ≤ r ≤ to: term by term where that is cheap, else by Euler and Maclaurin.
pub fn power_sum(from: f64, to: f64, theta: f64) -> f64 {
    if to - from < 64.0 {
        return (0..=(to - from) as u32).map(|i| (from + f64::from(i)).powf(-theta)).sum();
    }
    if from < 64.0 {
        return power_sum(from, 63.0, theta) + power_sum(64.0, to, theta);
    }
    let integral = if (theta - 1.0).abs() < 1e-9 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta)
    };
    let ends = (from.powf(-theta) + to.powf(-theta)) / 2.0;
    integral + ends + theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_for_all_flows() {
        for theta in [0.0, 0.8, 0.99] {
            let law = Law::zipf(1_000_000, theta);
            assert_eq!(law.flows(), 1e6);
            assert!((law.per_flow(|w| w) - 1.0).abs() < 1e-9);
            assert!(law.groups().len() < 500, "{}", law.groups().len());
            // The collision probability, which the head decides.
            let squares = law.per_packet(|w| w) / 1e6;
            let exact = power_sum(1.0, 1e6, 2.0 * theta) / power_sum(1.0, 1e6, theta).powi(2);
            assert!((squares / exact - 1.0).abs() < 1e-3, "θ {theta}: {squares} {exact}");
            let sample = law.sample(1000, 0.5);
            assert!(sample.is_sorted_by(|a, b| *a > b * (1.0 - 1e-9)) && sample.len() == 1000);
        }
    }

    #[test]
    fn counts_become_groups() {
        let law = Law::counted(&[1, 0, 5, 1, 1, 0, 2]);
        assert_eq!(law.flows(), 5.0);
        let groups: Vec<_> = law.groups().iter().map(|g| (g.flows, g.weight)).collect();
        assert_eq!(groups, [(1.0, 2.5), (1.0, 1.0), (3.0, 0.5)]);
        assert_eq!(Law::counted(&[3; 1000]).groups().len(), 1);
        let many: Vec<u32> = (1..=100_000).map(|r| 1_000_000 / r).collect();
        let law = Law::counted(&many);
        assert!((law.per_flow(|w| w) - 1.0).abs() < 1e-9 && law.groups().len() < 500);
    }

    #[test]
    fn power_sums_are_those_of_the_terms() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2] {
            let terms: f64 = (1..=100_000).rev().map(|r| f64::from(r).powf(-theta)).sum();
            let sum = power_sum(1.0, 100_000.0, theta);
            assert!((sum / terms - 1.0).abs() < 1e-10, "θ {theta}: {sum} {terms}");
        }
    }
}
