//! Zipf's law over ranks: rank i (from 0) is drawn with probability proportional to (i + 1)^−θ.
//!
//! Walker's alias method, for any θ ≥ 0: cell i holds a threshold and a second rank. A random
//! number chooses a cell and a point in it; below the threshold the rank is the cell's own, above
//! it the second one.
//!
//! ```text
//! 64 random bits × n  =  cell (high 64 bits) . point in the cell (low 64 bits)
//! cell                   threshold u32 │ other rank u32         8 bytes per rank, one line touched
//! ```
//!
//! Probabilities are exact up to rounding: each rank's is off by less than n · 2⁻⁶⁴ from the choice
//! of the cell and 2⁻³² / n per cell from the threshold. (Gray et al.'s formula, which the field
//! likes to use, is an approximation and only for θ < 1.) Construction takes O(n) time and 20 bytes
//! a rank for a moment, 8 to keep.

pub use overbank_models::law::power_sum;

/// Most ranks of a [`Zipf`]: its table takes 2 GiB then.
pub const RANKS_MAX: u32 = 1 << 28;

#[derive(Clone, Copy)]
struct Cell {
    threshold: u32,
    other: u32,
}

#[derive(Clone)]
pub struct Zipf {
    cells: Vec<Cell>,
}

impl Zipf {
    /// Returns the law over `n` ranks with skew `theta`; `None` unless 1 ≤ n ≤ [`RANKS_MAX`] and θ
    /// is a number not below zero.
    pub fn new(n: u32, theta: f64) -> Option<Zipf> {
        if !(1..=RANKS_MAX).contains(&n) || !theta.is_finite() || theta < 0.0 {
            return None;
        }
        // How full each cell would be: 1 on average.
        let mut share = weights(n, theta);
        let scale = f64::from(n) / share.iter().rev().sum::<f64>();
        share.iter_mut().for_each(|s| *s *= scale);

        // Shares fall with the rank: those that give are the front, those that receive the tail.
        let givers = share.partition_point(|&s| s >= 1.0);
        let mut cells: Vec<Cell> = (0..n).map(|i| Cell { threshold: u32::MAX, other: i }).collect();
        let (mut giver, mut tail, mut fallen) = (0, givers, None);
        while giver < givers {
            // First the giver that fell below 1 last, so that no second one falls.
            let receiver = match fallen.take() {
                Some(receiver) => receiver,
                None if tail < share.len() => {
                    tail += 1;
                    tail - 1
                }
                None => break,
            };
            let threshold = (share[receiver] * 2f64.powi(32)) as u32;
            cells[receiver] = Cell { threshold, other: giver as u32 };
            share[giver] -= 1.0 - share[receiver];
            if share[giver] < 1.0 {
                fallen = Some(giver);
                giver += 1;
            }
        }
        // What is left is full up to rounding and keeps its own rank.
        Some(Zipf { cells })
    }

    /// Returns the rank that 64 random bits draw.
    #[inline]
    pub fn rank(&self, random: u64) -> u32 {
        let product = u128::from(random) * self.cells.len() as u128;
        let cell = (product >> 64) as usize;
        let Cell { threshold, other } = self.cells[cell];
        if ((product as u64) >> 32) as u32 >= threshold { other } else { cell as u32 }
    }
}

fn weights(n: u32, theta: f64) -> Vec<f64> {
    (0..n).map(|i| (f64::from(i) + 1.0).powf(-theta)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the probabilities that a table stands for, exactly.
    fn probabilities(zipf: &Zipf) -> Vec<f64> {
        let n = zipf.cells.len();
        let mut p = vec![0.0; n];
        for (i, cell) in zipf.cells.iter().enumerate() {
            let own = f64::from(cell.threshold) / 2f64.powi(32);
            p[i] += own / n as f64;
            p[cell.other as usize] += (1.0 - own) / n as f64;
        }
        p
    }

    #[test]
    fn tables_stand_for_the_law() {
        for n in [1, 2, 3, 10, 1000, 100_000] {
            for theta in [0.0, 0.3, 0.75, 0.99, 1.0, 1.2, 3.0] {
                let zipf = Zipf::new(n, theta).unwrap();
                let mut expected = weights(n, theta);
                let sum: f64 = expected.iter().sum();
                expected.iter_mut().for_each(|w| *w /= sum);
                let worst = probabilities(&zipf)
                    .iter()
                    .zip(&expected)
                    .map(|(p, e)| (p - e).abs())
                    .fold(0.0, f64::max);
                assert!(worst < 1e-9, "n {n} theta {theta}: {worst}");
            }
        }
    }

    #[test]
    fn ends_of_the_random_range() {
        let zipf = Zipf::new(1000, 0.99).unwrap();
        assert_eq!(zipf.rank(0), 0);
        assert!(zipf.rank(u64::MAX) < 1000);
    }

    #[test]
    fn refuses_invalid_laws() {
        for theta in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(Zipf::new(10, theta).is_none());
        }
        assert!(Zipf::new(0, 0.5).is_none());
        assert!(Zipf::new(RANKS_MAX + 1, 0.5).is_none());
    }
}
