//! Computes rates: changes per second between two readings, for `overbank top`.

use super::{Counters, Kind};
use serde::Serialize;
use serde::ser::SerializeMap as _;

/// Rates of the counters declared with `rate`; gauges keep their value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates(Vec<Rate>);

/// One rate; a gauge stays a whole number in documents.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    name: &'static str,
    value: f64,
    gauge: bool,
}

impl Rates {
    /// Returns the rates from `old` to `new`, readings `interval_ms` apart (0 counts as 1).
    pub fn between<C: Counters>(old: &C, new: &C, interval_ms: u64) -> Rates {
        let mut rates = Rates::default();
        let per_s = 1e3 / interval_ms.max(1) as f64;
        let mut olds = old.words().into_iter();
        new.visit(|counter, _, new| {
            let old = olds.next().expect("two readings of one table");
            let Some(name) = counter.rate else { return };
            let gauge = counter.kind != Kind::Counter;
            let value = if gauge { new as f64 } else { new.saturating_sub(old) as f64 * per_s };
            rates.merge(Rate { name, value, gauge });
        });
        rates
    }

    /// Adds `value` a second to the rate called `name`.
    pub fn put(&mut self, name: &'static str, value: f64) {
        self.merge(Rate { name, value, gauge: false });
    }

    fn merge(&mut self, rate: Rate) {
        match self.0.iter_mut().find(|known| known.name == rate.name) {
            Some(known) => known.value += rate.value,
            None => self.0.push(rate),
        }
    }

    /// Adds the rates of another table.
    pub fn extend(&mut self, other: Rates) {
        other.0.into_iter().for_each(|rate| self.merge(rate));
    }

    /// Returns the rate called `name`; 0 if there is none.
    pub fn get(&self, name: &str) -> f64 {
        self.0.iter().find(|rate| rate.name == name).map_or(0.0, |rate| rate.value)
    }

    /// Returns names and rates, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.0.iter().map(|rate| (rate.name, rate.value))
    }
}

impl Serialize for Rates {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for rate in &self.0 {
            match rate.gauge {
                true => map.serialize_entry(rate.name, &(rate.value as u64))?,
                false => map.serialize_entry(rate.name, &rate.value)?,
            }
        }
        map.end()
    }
}
