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
    pub fn mib(mib: f64, alpha: f64, theta: f64) -> Cell {
        Cell { entries: (mib * (1 << 20) as f64) as usize / SLOT_BYTES, alpha, theta }
    }

    /// Returns the number of flows, at least 1.
    pub fn flows(&self) -> u32 {
        ((self.entries as f64 * self.alpha).round() as u32).max(1)
    }

    pub fn size(&self) -> String {
        size_name(self.entries.saturating_mul(SLOT_BYTES))
    }

    /// Returns the flows that a warm-up shows first, each once: all or none.
    pub(super) fn first_sights(&self) -> u32 {
        if self.theta > 0.0 && self.alpha >= 2.0 { 0 } else { self.flows() }
    }

    /// Returns the hit rate of a table that holds exactly the most popular flows, in constant time.
    pub fn static_optimum(&self) -> f64 {
        let (flows, theta) = (f64::from(self.flows()), self.theta);
        let top = (self.entries as f64).min(flows);
        power_sum(1.0, top, theta) / power_sum(1.0, flows, theta)
    }
}

pub fn size_name(bytes: usize) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else {
        format!("{} KiB", bytes >> 10)
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
            let cell = Cell { entries: top, alpha: f64::from(flows) / top as f64, theta };
            assert!((cell.static_optimum() - exact).abs() < 1e-9);
        }
        for (entries, alpha, theta, optimum) in [(10, 1.0, 0.9, 1.0), (25, 4.0, 0.0, 0.25)] {
            assert_eq!(Cell { entries, alpha, theta }.static_optimum(), optimum);
        }
    }

    #[test]
    fn names_and_flows() {
        assert_eq!(size_name(4 << 20), "4 MiB");
        assert_eq!(size_name(64 << 10), "64 KiB");
        assert_eq!(Cell::mib(4.0, 0.5, 0.0).flows(), 1 << 19);
    }
}
