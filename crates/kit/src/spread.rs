//! Median, lowest and highest: what a figure of several rounds is.

use serde::Serialize;

/// Of the rounds of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    #[serde(rename = "min")]
    pub low: f64,
    #[serde(rename = "max")]
    pub high: f64,
}

impl Spread {
    /// Returns the spread of `values`; zeros if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        Spread::without(0.0, values)
    }

    /// Leaves out a share of `values` at each end: 0.25 gives the median and the quartiles.
    pub fn without(share: f64, values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let left_out = (share * values.len() as f64) as usize;
        let values = &values[left_out..values.len() - left_out];
        let (Some(&low), Some(&high)) = (values.first(), values.last()) else {
            return Spread::default();
        };
        let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Spread { median: (below + above) / 2.0, low, high }
    }

    /// Returns the ratios of `a` to `b`, both of the same rounds.
    pub fn of_ratios(a: impl IntoIterator<Item = f64>, b: impl IntoIterator<Item = f64>) -> Spread {
        Spread::of(a.into_iter().zip(b).map(|(a, b)| a / b))
    }

    /// Returns `a` less `b`, both of the same rounds.
    pub fn of_differences(
        a: impl IntoIterator<Item = f64>,
        b: impl IntoIterator<Item = f64>,
    ) -> Spread {
        Spread::of(a.into_iter().zip(b).map(|(a, b)| a - b))
    }

    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Maps all three by the same rising function.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Spread {
        Spread { median: f(self.median), low: f(self.low), high: f(self.high) }
    }

    /// Converts a ratio to a change in percent: 1.02 is 2.
    pub fn change(self) -> Spread {
        self.map(|ratio| 100.0 * (ratio - 1.0))
    }

    /// Shows it as 1.034 (1.010 to 1.052).
    pub fn text(&self) -> String {
        format!("{:.3} ({:.3} to {:.3})", self.median, self.low, self.high)
    }

    /// Shows percent as +1.2 % (+0.8 to +1.9).
    pub fn percent(&self) -> String {
        format!("{:+.1} % ({:+.1} to {:+.1})", self.median, self.low, self.high)
    }

    /// Shows it as a cell of a table: 12.3 [11.9–14.0].
    pub fn cell(&self, digits: usize) -> String {
        let Spread { median, low, high } = self;
        format!("{median:.digits$} [{low:.digits$}–{high:.digits$}]")
    }
}

/// Returns the middle value; 0 of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Spread::of(values).median
}

/// Returns the geometric mean; 1 of nothing.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) =
        values.into_iter().fold((0.0, 0u32), |(sum, count), v| (sum + v.ln(), count + 1));
    (sum / f64::from(count.max(1))).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_range() {
        assert_eq!(Spread::of([]), Spread::default());
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
        let quartiles = Spread::without(0.25, [9.0, 0.0, 1.0, 2.0, 3.0]);
        assert_eq!(quartiles, Spread { median: 2.0, low: 1.0, high: 3.0 });
        let spread = Spread { median: 1.0, low: 0.9876, high: 2.5 };
        assert_eq!(spread.text(), "1.000 (0.988 to 2.500)");
        assert_eq!(spread.change().percent(), "+0.0 % (-1.2 to +150.0)");
        assert_eq!(Spread::of([1.0, 2.0, 4.25]).cell(1), "2.0 [1.0–4.2]");
        let json = serde_json::to_string(&spread).unwrap();
        assert_eq!(json, r#"{"median":1.0,"min":0.9876,"max":2.5}"#);
    }

    /// A machine that is now fast and now slow: in two rounds of three a has twice b's figure,
    /// though their medians are the same.
    #[test]
    fn ratios_are_of_the_same_round() {
        let (a, b) = ([4.0, 2.0, 1.0], [2.0, 1.0, 3.0]);
        assert_eq!((median(a), median(b)), (2.0, 2.0));
        let ratios = Spread::of_ratios(a, b);
        assert_eq!(ratios, Spread { median: 2.0, low: 1.0 / 3.0, high: 2.0 });
        assert_eq!(Spread::of_differences(a, b), Spread { median: 1.0, low: -2.0, high: 2.0 });
    }

    #[test]
    fn means() {
        assert_eq!(geometric_mean([]), 1.0);
        assert!((geometric_mean([2.0, 8.0]) - 4.0).abs() < 1e-12);
    }
}
