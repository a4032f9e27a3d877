//! Rates: what changed a second between two readings, for `overbank top`.

use super::{Counters, Kind};
use serde::Serialize;

/// Numbers a second of those counters that are declared with `rate`; gauges as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates(Vec<(&'static str, f64)>);

impl Rates {
    /// Returns the rates from `old` to `new`, readings `interval_ms` apart (0 counts as 1).
    pub fn between<C: Counters>(old: &C, new: &C, interval_ms: u64) -> Rates {
        let mut rates = Rates::default();
        let per_s = 1e3 / interval_ms.max(1) as f64;
        let mut olds = old.words().into_iter();
        new.visit(|counter, _, new| {
            let old = olds.next().unwrap_or(0);
            let Some(name) = counter.rate else { return };
            let value = match counter.kind {
                Kind::Counter => new.saturating_sub(old) as f64 * per_s,
                Kind::Gauge | Kind::Oldest | Kind::Peak => new as f64,
            };
            rates.put(name, value);
        });
        rates
    }

    /// Adds `value` to the rate called `name`.
    pub fn put(&mut self, name: &'static str, value: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += value,
            None => self.0.push((name, value)),
        }
    }

    /// Adds the rates of another table.
    pub fn extend(&mut self, other: Rates) {
        other.0.into_iter().for_each(|(name, value)| self.put(name, value));
    }

    /// Returns the rate called `name`; 0 if there is none.
    pub fn get(&self, name: &str) -> f64 {
        self.0.iter().find(|(known, _)| *known == name).map_or(0.0, |(_, value)| *value)
    }

    /// Returns names and rates, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.0.iter().copied()
    }
}

impl Serialize for Rates {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().copied())
    }
}
