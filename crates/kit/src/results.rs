//! The record of an experiment with where, when and how it was made: one JSON document each.

use crate::experiment::Record;
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const SCHEMA: &str = "overbank-lab/1";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub schema: String,
    pub version: String,
    /// Day on which it was made, UTC, as 2026-11-21.
    pub date: String,
    pub command: String,
    pub machine: Machine,
    #[serde(flatten)]
    pub record: Record,
}

#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    #[error("not a record of `overbank lab run`")]
    Json(#[from] serde_json::Error),
    #[error("not a record of `overbank lab run`: {0}")]
    Unsound(String),
    #[error("schema {found:?}, expected {SCHEMA:?}")]
    Schema { found: String },
}

impl Outcome {
    pub fn new(record: Record, machine: Machine, command: String) -> Outcome {
        Outcome {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: date(SystemTime::now()),
            command,
            machine,
            record,
        }
    }

    pub fn parse(json: &str) -> Result<Outcome, ParseError> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let Head { schema } = serde_json::from_str(json)?;
        if schema != SCHEMA {
            return Err(ParseError::Schema { found: schema });
        }
        let outcome: Outcome = serde_json::from_str(json)?;
        outcome.record.sound().map_err(|error| ParseError::Unsound(error.to_string()))?;
        Ok(outcome)
    }

    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text keys and numbers only")
    }

    /// Checks that held, and all of them.
    pub fn held(&self) -> (usize, usize) {
        let checks = &self.record.checks;
        (checks.iter().filter(|c| c.holds).count(), checks.len())
    }
}

/// Sorts in the order of `names`; others last, by name.
pub fn sort(outcomes: &mut [Outcome], names: &[&str]) {
    let place = |o: &Outcome| names.iter().position(|name| *name == o.record.name);
    outcomes.sort_by_key(|o| (place(o).unwrap_or(usize::MAX), o.record.name.clone()));
}

/// Returns the day of a point in time, UTC. (A crate for dates would be there for this function
/// only.)
fn date(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    // Years begin in March here, so that the leap day is the last one; eras have 400 years.
    let days = since.as_secs() / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (400 * era + year, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Context, Plot, Series};
    use crate::spread::Spread;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn days() {
        let of = |seconds| date(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(of(0), "1970-01-01");
        assert_eq!(of(951_782_399), "2000-02-28");
        assert_eq!(of(951_782_400), "2000-02-29");
        assert_eq!(of(951_868_800), "2000-03-01");
        assert_eq!(of(1_795_219_200), "2026-11-21");
        assert_eq!(of(4_107_542_399), "2100-02-28");
        assert_eq!(of(4_107_542_400), "2100-03-01");
        assert_eq!(of(1_798_761_599), "2026-12-31");
        assert_eq!(of(1_798_761_600), "2027-01-01");
    }

    #[test]
    fn documents_come_back_as_they_were() {
        let (stop, mut silent) = (AtomicBool::new(false), |_: &str, _: f64| {});
        let context = Context { seed: u64::MAX, ..Context::smoke_run(&stop, &mut silent) };
        let mut record = Record::new(("x", "", ""), &context);
        let points = [(0.1, 1.0 / 3.0), (0.5, 1e-9)];
        let spreads = points.map(|(x, median)| (x, Spread { median, low: 0.0, high: 1.0 }));
        let series = [Series::rounds("set-4", spreads), Series::model("ODE", points.to_vec())];
        record.plots.push(Plot::new("t", "α", "%").log_x().with(series));
        record.claim("c", "1", "2", false);
        let outcome = Outcome::new(record, Machine::here(Some(1)), "overbank lab run x".to_owned());
        let again = Outcome::parse(&outcome.json()).unwrap();
        assert_eq!(again.json(), outcome.json());
        assert_eq!(again.held(), (0, 1));
        // Records of before had no reasons.
        assert!(!outcome.json().contains("reason"));

        let other = outcome.json().replace(SCHEMA, "overbank-lab/0");
        assert!(matches!(Outcome::parse(&other), Err(ParseError::Schema { .. })));
        assert!(matches!(Outcome::parse("{}"), Err(ParseError::Json(_))));
    }
}
