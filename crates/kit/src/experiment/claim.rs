//! A claim of a source, as data: what it says, what the source states, how it is judged, and why it
//! may differ here.
//!
//! A figure has a list of them over its measurement `M`; [`Record::judge`] asks each. No sentence
//! is made of outcomes: `measured` holds figures, and the reason is a fixed sentence that a person
//! wrote.
//!
//! ```
//! use overbank_kit::experiment::{Claim, Finding};
//! const CLAIMS: &[Claim<[f64; 2]>] = &[Claim::new(
//!     "BLP hits more often than 4-way",
//!     "94 % and 82 %",
//!     |[blp, set]: &[f64; 2]| Finding::new(blp > set, format!("{blp} %, {set} %")),
//! )
//! .because("a window of two buckets holds keys that one bucket would evict")];
//! ```

use super::{Check, Record, Size};
use crate::spread::Spread;

pub struct Claim<M: ?Sized> {
    pub text: &'static str,
    /// What the source states, and how that is taken.
    pub stated: &'static str,
    /// Whether it holds; `None` where the run says nothing of it.
    pub judge: fn(&M) -> Option<Finding>,
    /// Why it may differ here, in a fixed sentence; empty if that is not known.
    pub reason: &'static str,
    /// Whether it is about time, which a run at smoke size says nothing of.
    pub timed: bool,
    /// Whether a run that says nothing of it contradicts it.
    pub expected: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub holds: bool,
    pub measured: String,
}

impl Finding {
    pub fn new(holds: bool, measured: impl Into<String>) -> Option<Finding> {
        Some(Finding { holds, measured: measured.into() })
    }

    pub fn at_least(least: f64, found: Spread) -> Option<Finding> {
        Finding::new(found.median >= least, found.text())
    }

    pub fn at_most(most: f64, found: Spread) -> Option<Finding> {
        Finding::new(found.median <= most, found.text())
    }
}

impl<M: ?Sized> Claim<M> {
    pub const fn new(
        text: &'static str,
        stated: &'static str,
        judge: fn(&M) -> Option<Finding>,
    ) -> Claim<M> {
        Claim { text, stated, judge, reason: "", timed: false, expected: false }
    }

    /// Makes a claim about time, which is not judged at smoke size.
    pub const fn timed(
        text: &'static str,
        stated: &'static str,
        judge: fn(&M) -> Option<Finding>,
    ) -> Claim<M> {
        Claim { timed: true, ..Claim::new(text, stated, judge) }
    }

    pub const fn because(self, reason: &'static str) -> Claim<M> {
        Claim { reason, ..self }
    }

    /// Makes a claim about something that must come to pass.
    pub const fn expected(self) -> Claim<M> {
        Claim { expected: true, ..self }
    }

    /// Returns the check for a record; `None` if it cannot be judged. `place` is put before
    /// the text.
    pub fn check(&self, place: &str, measured: &M) -> Option<Check> {
        let missing = || Finding::new(false, "it did not come to pass").filter(|_| self.expected);
        let Finding { holds, measured } = (self.judge)(measured).or_else(missing)?;
        let claim =
            if place.is_empty() { self.text.to_owned() } else { format!("{place}: {}", self.text) };
        Some(Check::new(claim, self.stated, measured, holds).because(self.reason))
    }
}

impl Record {
    /// Judges each claim by what was measured at a place ("uniform", "4 MiB"; empty: in general).
    pub fn judge<M: ?Sized>(&mut self, place: &str, claims: &[Claim<M>], measured: &M) {
        let smoke = self.size == Size::Smoke;
        let made = claims.iter().filter(|claim| !(claim.timed && smoke));
        self.checks.extend(made.filter_map(|claim| claim.check(place, measured)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Context;
    use super::*;
    use std::sync::atomic::AtomicBool;

    const CLAIMS: &[Claim<f64>] = &[
        Claim::new("more than one", "1", |x: &f64| Finding::new(*x > 1.0, x.to_string()))
            .because("r"),
        Claim::timed("fast", "2", |x: &f64| Finding::new(*x > 2.0, x.to_string())),
        Claim::new("says nothing", "3", |_| None),
    ];

    #[test]
    fn claims_are_judged_where_the_run_says_something() {
        let (stop, mut silent) = (AtomicBool::new(false), |_: &str, _: f64| {});
        let mut record = Record::new(("a", "b", "c"), &Context::smoke_run(&stop, &mut silent));
        record.judge("", CLAIMS, &1.5);
        assert_eq!(record.checks.len(), 1, "no time at smoke size");
        record.size = Size::Full;
        record.judge("4 MiB", CLAIMS, &0.5);
        let [holds, differs, fast] = &record.checks[..] else { panic!("{:?}", record.checks) };
        assert!(holds.holds && holds.reason.is_empty() && !fast.holds);
        assert_eq!((&*differs.claim, &*differs.reason), ("4 MiB: more than one", "r"));
        assert_eq!((&*differs.stated, &*differs.measured, differs.holds), ("1", "0.5", false));
        let never = Claim::new("comes", "4", |_: &f64| None).expected().check("", &0.5).unwrap();
        assert_eq!((&*never.measured, never.holds), ("it did not come to pass", false));
    }

    #[test]
    fn thresholds_are_of_the_median() {
        let spread = Spread::of([1.0, 2.0, 9.0]);
        let holds = |finding: Option<Finding>| finding.unwrap().holds;
        assert!(holds(Finding::at_least(2.0, spread)) && !holds(Finding::at_least(2.1, spread)));
        assert!(holds(Finding::at_most(2.0, spread)) && !holds(Finding::at_most(1.9, spread)));
    }
}
