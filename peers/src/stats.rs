//! Median and range.

use serde::Serialize;

/// Of the rounds of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Middle value.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

impl Spread {
    /// Of these values; zeros if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else {
            return Spread::default();
        };
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Spread { median: (low + high) / 2.0, min, max }
    }

    /// As a cell of a table: `12.3 [11.9–14.0]`.
    pub fn cell(&self, digits: usize) -> String {
        let Spread { median, min, max } = self;
        format!("{median:.digits$} [{min:.digits$}–{max:.digits$}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_range() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
        assert_eq!(Spread::of([]), Spread::default());
        assert_eq!(Spread::of([1.0, 2.0, 4.25]).cell(1), "2.0 [1.0–4.2]");
    }
}
