//! A point of a grid: size, load and skew.

use crate::zipf::power_sum;

/// Bytes of a slot: 16-bit fingerprint, 16-bit value.
pub const SLOT_BYTES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Slots of the table; a design that needs a multiple of its bucket rounds up.
    pub entries: usize,
    pub alpha: f64,
    /// Skew; 0 is uniform.
    pub theta: f64,
}

impl Cell {
    /// A table of `mib` MiB.
    pub fn mib(mib: f64, alpha: f64, theta: f64) -> Cell {
        Cell { entries: (mib * (1 << 20) as f64) as usize / SLOT_BYTES, alpha, theta }
    }

    /// Number of flows, at least 1.
    pub fn flows(&self) -> u32 {
        ((self.entries as f64 * self.alpha).round() as u32).max(1)
    }

    pub fn size(&self) -> String {
        size_name(self.entries.saturating_mul(SLOT_BYTES))
    }

    /// Flows that a warm-up shows first, each once: all or none.
    pub(super) fn first_sights(&self) -> u32 {
        if self.theta > 0.0 && self.alpha >= 2.0 { 0 } else { self.flows() }
    }

    /// Hit rate of a table that holds exactly the most popular flows.
    pub fn static_optimum(&self) -> f64 {
        static_optimum(self.flows(), self.theta, self.entries)
    }
}

pub fn size_name(bytes: usize) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
    }
}

/// Probability that a draw over `flows` with skew `theta` is one of the `top` most popular, in
/// constant time.
pub fn static_optimum(flows: u32, theta: f64, top: usize) -> f64 {
    let top = u32::try_from(top).unwrap_or(u32::MAX).min(flows);
    let sum = |ranks: u32| power_sum(1.0, f64::from(ranks), theta);
    match top {
        0 => 0.0,
        top if top == flows => 1.0,
        top => sum(top) / sum(flows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimum_is_the_sum_of_probabilities() {
        for (flows, theta, top) in
            [(300_000, 0.99, 100_000), (50_000, 0.8, 9_000), (90_000, 1.0, 30_000), (99, 1.2, 7)]
        {
            let sum =
                |ranks: u32| (1..=ranks).rev().map(|r| f64::from(r).powf(-theta)).sum::<f64>();
            let exact = sum(top as u32) / sum(flows);
            assert!((static_optimum(flows, theta, top) - exact).abs() < 1e-9);
        }
        assert_eq!(static_optimum(10, 0.9, 10), 1.0);
        assert_eq!(static_optimum(100, 0.0, 25), 0.25);
    }

    #[test]
    fn names_and_flows() {
        assert_eq!(size_name(4 << 20), "4 MiB");
        assert_eq!(size_name(64 << 10), "64 KiB");
        assert_eq!(Cell::mib(4.0, 0.5, 0.0).flows(), 1 << 19);
    }
}
