//! What traffic is like, as far as a flow cache cares: flows, working set over time, arrivals,
//! skew.
//!
//! *Skew* is the pair (n, θ) of the Zipf law with the traffic's number of different flows and its
//! collision probability, by the method of moments:
//!
//! ```text
//! S = Σ cᵢ(cᵢ − 1) / (N(N − 1))          unbiased for Σ pᵢ², cᵢ of N packets are of flow i
//! H(2θ; n) / H(θ; n)² = S                 H(s; n) = Σ r^−s over ranks 1 … n
//! Σ 1 − (1 − pᵣ)^N = D                    D different flows seen; n may be more
//! ```
//!
//! A line through (log rank, log count) sees skew in any sample, because ranking sorts the noise;
//! these moments do not. Near θ = 0 they are blunt: 0.06 is 0. Real traffic is no Zipf law: θ says
//! how the popular flows weigh, no more. docs/advise-json.md says what each field means.

use overbank_models::law::{Law, power_sum};
use serde::Serialize;

const WINDOWS: usize = 50;
const WINDOW_MIN: usize = 100;

#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    pub packets: u64,
    pub flows: u64,
    pub flows_of_one_packet: u64,
    pub top_hundredth_share: f64,
    pub seconds: Option<f64>,
    pub new_flows_per_packet: f64,
    pub new_flows_per_second: Option<f64>,
    pub new_flows_per_packet_later: f64,
    pub windows: Vec<Window>,
    pub overlap: Option<f64>,
    pub skew: Skew,
}

#[derive(Clone, Debug, Serialize)]
pub struct Window {
    pub first_packet: u64,
    pub packets: u64,
    pub start_seconds: Option<f64>,
    pub distinct: u64,
    pub new_flows: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Skew {
    pub theta: f64,
    pub flows: f64,
    pub collision: f64,
}

/// Largest skew that a fit gives.
pub const THETA_MAX: f64 = 3.0;

/// Looks at a sequence of flow ids below `flows`. `times_ns` has a time for each packet, or
/// nothing.
pub fn profile(ids: &[u32], flows: usize, times_ns: &[u64]) -> Profile {
    let mut counts = vec![0u32; flows];
    let mut last_window = vec![u32::MAX; flows];
    let size = ids.len().div_ceil(WINDOWS).max(WINDOW_MIN);
    let start = times_ns.first().copied().unwrap_or(0);
    let since = |at: usize| times_ns.get(at).map(|t| t.saturating_sub(start) as f64 / 1e9);
    let seconds = ids.len().checked_sub(1).and_then(since).filter(|s| *s > 0.0);
    let (mut windows, mut overlaps) = (Vec::new(), Vec::new());
    let mut later = 0u64;
    for (number, window) in ids.chunks(size).enumerate() {
        let (mut distinct, mut new_flows, mut kept) = (0u64, 0u64, 0u64);
        for (i, &id) in window.iter().enumerate() {
            let id = id as usize;
            if counts[id] == 0 {
                new_flows += 1;
                later += u64::from(number * size + i >= ids.len() / 2);
            }
            counts[id] = counts[id].saturating_add(1);
            if last_window[id] != number as u32 {
                kept += u64::from(number > 0 && last_window[id] == number as u32 - 1);
                distinct += 1;
                last_window[id] = number as u32;
            }
        }
        if number > 0 && window.len() == size {
            overlaps.push(kept as f64 / distinct as f64);
        }
        windows.push(Window {
            first_packet: (number * size) as u64,
            packets: window.len() as u64,
            start_seconds: seconds.and_then(|_| since(number * size)),
            distinct,
            new_flows,
        });
    }
    let packets = ids.len() as u64;
    let seen = counts.iter().filter(|&&c| c > 0).count() as u64;
    let mut sorted: Vec<u32> = counts.iter().copied().filter(|&c| c > 0).collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let top: u64 = sorted.iter().take((sorted.len() / 100).max(1)).map(|&c| u64::from(c)).sum();
    let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    Profile {
        packets,
        flows: seen,
        flows_of_one_packet: sorted.iter().filter(|&&c| c == 1).count() as u64,
        top_hundredth_share: share(top, packets),
        seconds,
        new_flows_per_packet: share(seen, packets),
        new_flows_per_second: seconds.map(|s| seen as f64 / s),
        new_flows_per_packet_later: share(later, packets - packets / 2),
        overlap: (!overlaps.is_empty())
            .then(|| overlaps.iter().sum::<f64>() / overlaps.len() as f64),
        windows,
        skew: fit(&sorted),
    }
}

/// Returns the Zipf law of the counts of flows (zeros do not matter).
pub fn fit(counts: &[u32]) -> Skew {
    let packets: f64 = counts.iter().map(|&c| f64::from(c)).sum();
    let seen = counts.iter().filter(|&&c| c > 0).count() as f64;
    let pairs: f64 = counts.iter().map(|&c| f64::from(c) * (f64::from(c) - 1.0)).sum();
    fit_moments(packets, seen, pairs)
}

/// Returns the Zipf law of `packets` of `seen` flows, of which `pairs` is the sum of cᵢ(cᵢ − 1).
pub fn fit_moments(packets: f64, seen: f64, pairs: f64) -> Skew {
    if packets < 2.0 || seen < 2.0 {
        return Skew { theta: 0.0, flows: seen, collision: 1.0 };
    }
    let collision = pairs / (packets * (packets - 1.0));
    let theta_of = |flows: f64| {
        bisect(0.0, THETA_MAX, |theta| {
            let h = power_sum(1.0, flows, theta);
            power_sum(1.0, flows, 2.0 * theta) / (h * h) - collision
        })
    };
    // More flows than seen, up to a thousand times as many: beyond, the sample says nothing.
    let factor = bisect(0.0, 1000f64.ln(), |log| {
        let flows = (seen * log.exp()).min(4e9).round();
        let law = Law::zipf(flows as u32, theta_of(flows));
        let distinct = flows * law.per_flow(|w| -(-w * packets / flows).exp_m1());
        distinct - seen
    });
    let flows = (seen * factor.exp()).min(4e9).round();
    Skew { theta: theta_of(flows), flows, collision }
}

/// Finds where an increasing function is zero; else the end of the range.
fn bisect(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    if f(low) >= 0.0 {
        return low;
    }
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if f(middle) < 0.0 { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::workload::{FlowStream, Newcomers, Run, Workload};

    fn drawn(flows: u32, theta: f64, packets: usize) -> Vec<u32> {
        FlowStream::zipf(flows, theta, 5).unwrap().take(packets).collect()
    }

    #[test]
    fn skew_and_flows_are_found_again() {
        for (flows, packets) in [(10_000u32, 400_000), (100_000, 200_000)] {
            for theta in [0.0, 0.5, 0.8, 0.99, 1.2] {
                let skew = profile(&drawn(flows, theta, packets), flows as usize, &[]).skew;
                // Near 0 the collisions hardly change with θ.
                let tolerance = if theta == 0.0 { 0.1 } else { 0.03 };
                assert!((skew.theta - theta).abs() < tolerance, "{flows} θ {theta}: {skew:?}");
                let off = skew.flows / f64::from(flows) - 1.0;
                assert!(off.abs() < 0.15, "{flows} θ {theta}: {skew:?}");
            }
        }
    }

    #[test]
    fn windows_count_what_is_in_them() {
        // 200 packets of flows 0 and 1, then 100 of flow 1 and 2 in turns.
        let ids: Vec<u32> = (0..300).map(|i| if i < 200 { i % 2 } else { 1 + i % 2 }).collect();
        let times: Vec<u64> = (0..300).map(|i| 5_000_000_000 + i * 10_000_000).collect();
        let p = profile(&ids, 3, &times);
        assert_eq!((p.packets, p.flows, p.flows_of_one_packet), (300, 3, 0));
        let windows: Vec<_> = p
            .windows
            .iter()
            .map(|w| (w.first_packet, w.packets, w.distinct, w.new_flows))
            .collect();
        assert_eq!(windows, [(0, 100, 2, 2), (100, 100, 2, 0), (200, 100, 2, 1)]);
        assert_eq!(p.overlap, Some(0.75));
        assert!((p.seconds.unwrap() - 2.99).abs() < 1e-9);
        assert!((p.new_flows_per_second.unwrap() - 3.0 / 2.99).abs() < 1e-9);
        assert!((p.windows[2].start_seconds.unwrap() - 2.0).abs() < 1e-9);
        assert!((p.new_flows_per_packet_later - 1.0 / 150.0).abs() < 1e-9);
        assert!((p.top_hundredth_share - 0.5).abs() < 1e-9);
    }

    #[test]
    fn arrivals_of_new_flows_are_seen() {
        let base = FlowStream::uniform(1000, 1).unwrap();
        let mut mixed = Newcomers::new(base, 0.25, Run { flows: 10, packets: 1 }, 1).unwrap();
        let mut ids = vec![0; 100_000];
        mixed.fill(&mut ids);
        let flows = *ids.iter().max().unwrap() as usize + 1;
        let p = profile(&ids, flows, &[]);
        assert!((p.new_flows_per_packet_later - 0.25).abs() < 0.02, "{p:?}");
        assert_eq!((p.seconds, p.new_flows_per_second), (None, None));
    }

    #[test]
    fn little_traffic_is_no_problem() {
        for ids in [&[][..], &[0], &[0, 0], &[0, 1], &[0, 1, 2, 1]] {
            let p = profile(ids, 3, &[]);
            assert!(p.skew.theta.is_finite() && p.skew.flows.is_finite(), "{p:?}");
            assert_eq!(p.packets, ids.len() as u64);
        }
    }
}
