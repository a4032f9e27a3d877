//! What an experiment is: a named measurement of a figure, table or claim, and its record.
//!
//! An experiment has a smoke size, which runs in the tests and asserts orderings, and a full size,
//! which `overbank lab run` measures. Its [`Record`] holds what was measured beside what the paper
//! states; the report and the JSON are made of records and of nothing else.
//!
//! A figure is a plan, a measurement and a list of claims:
//!
//! ```text
//!  plan ─▶ rounds in which the contestants take turns ─▶ spreads of paired ratios   crate::rounds
//!       ─▶ plots and tables                                                           Plot, Table
//!       ─▶ claims: text, what the source states, how it is judged, a reason           Claim
//! ```

mod claim;
mod record;

pub use claim::{Claim, Finding};
pub use record::{Check, Column, Mark, Plot, Record, Series, Table};

use crate::micro::PENALTY_CYCLES;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Seconds in an unoptimised build; orderings hold, figures mean little.
    Smoke,
    Full,
}

pub struct Experiment {
    pub name: &'static str,
    pub title: &'static str,
    /// Document and section: "ATC 2020, figure 8".
    pub source: &'static str,
    pub run: fn(&mut Context<'_>) -> Result<Record, LabError>,
}

impl Experiment {
    pub fn record(&self, context: &Context<'_>) -> Record {
        Record::new((self.name, self.title, self.source), context)
    }

    /// Runs it, takes the time, and refuses a record that could not be drawn.
    pub fn measure(&self, context: &mut Context<'_>) -> Result<Record, LabError> {
        let start = Instant::now();
        let mut record = (self.run)(context)?;
        record.seconds = start.elapsed().as_secs_f64();
        record.sound()?;
        Ok(record)
    }
}

pub struct Context<'a> {
    pub size: Size,
    pub seed: u64,
    /// What a miss costs where it is added and not lived through, in cycles; the paper has
    /// [`PENALTY_CYCLES`].
    pub penalty_cycles: f64,
    /// Entries of the forwarding tables of `fib5`, `fib6`, `fib7` and `fibwriter`; none: the
    /// experiment's own sizes.
    pub entries: &'a [u64],
    /// The program `overbank`, for experiments that start it.
    pub program: Option<&'a Path>,
    /// Ends it early: Ctrl-C.
    pub stop: &'a AtomicBool,
    /// Gets a line about what runs now and the share done, 0 to 1.
    pub progress: &'a mut dyn FnMut(&str, f64),
}

impl<'a> Context<'a> {
    /// Returns the context of a run at smoke size with seed 1.
    pub fn smoke_run(stop: &'a AtomicBool, progress: &'a mut dyn FnMut(&str, f64)) -> Context<'a> {
        let (size, penalty_cycles) = (Size::Smoke, PENALTY_CYCLES);
        Context { size, seed: 1, penalty_cycles, entries: &[], program: None, stop, progress }
    }
}

impl Context<'_> {
    pub fn smoke(&self) -> bool {
        self.size == Size::Smoke
    }

    /// Returns the miss penalty as a setting of a record.
    pub fn penalty_setting(&self) -> (String, String) {
        let paper = if self.penalty_cycles == PENALTY_CYCLES { "" } else { " (the paper: 1000)" };
        ("miss penalty".into(), format!("{} cycles of the TSC{paper}", self.penalty_cycles))
    }

    /// Does a part of the work, whose progress from 0 to 1 is the whole's between `from` and `to`.
    pub fn part<T>(
        &mut self,
        (from, to): (f64, f64),
        work: impl FnOnce(&mut Context<'_>) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        let Context { size, seed, penalty_cycles, entries, program, stop, .. } = *self;
        let progress = &mut *self.progress;
        // Rounding must not go past the end, where the next part begins.
        let mut show = |what: &str, done: f64| progress(what, (from + (to - from) * done).min(to));
        let progress = &mut show;
        work(&mut Context { size, seed, penalty_cycles, entries, program, stop, progress })
    }

    /// Does the same work for each item, in equal pieces of the progress; `name` is what runs.
    pub fn each<I, T>(
        &mut self,
        items: I,
        name: impl Fn(&I::Item) -> String,
        mut work: impl FnMut(&mut Context<'_>, I::Item) -> Result<T, LabError>,
    ) -> Result<Vec<T>, LabError>
    where
        I: IntoIterator<IntoIter: ExactSizeIterator>,
    {
        let items = items.into_iter();
        let count = items.len().max(1) as f64;
        let numbered = items.enumerate().map(|(number, item)| {
            let (from, to) = (number as f64 / count, (number + 1) as f64 / count);
            self.step(&name(&item), from)?;
            self.part((from, to), |context| work(context, item))
        });
        numbered.collect()
    }

    /// Says what runs now and how much is done, 0 to 1; an error if Ctrl-C was pressed.
    pub fn step(&mut self, what: &str, done: f64) -> Result<(), LabError> {
        (self.progress)(what, done);
        if self.stop.load(Ordering::Relaxed) { Err(LabError::Stopped) } else { Ok(()) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("stopped")]
    Stopped,
    /// Anything else that went wrong, in one line.
    #[error("{0}")]
    Failed(String),
}

impl LabError {
    pub fn failed(error: impl std::fmt::Display) -> LabError {
        LabError::Failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_comes_in_pieces() {
        let stop = AtomicBool::new(false);
        let mut shares = Vec::new();
        let mut progress = |what: &str, done: f64| shares.push((what.to_owned(), done));
        let mut context = Context::smoke_run(&stop, &mut progress);
        let doubled = context.part((0.5, 1.0), |context| {
            context.each(
                [1, 2],
                |n| format!("n {n}"),
                |context, n| {
                    context.step("inside", 0.5)?;
                    Ok(2 * n)
                },
            )
        });
        assert_eq!(doubled.unwrap(), [2, 4]);
        let expected = [("n 1", 0.5), ("inside", 0.625), ("n 2", 0.75), ("inside", 0.875)];
        assert_eq!(shares, expected.map(|(what, done)| (what.to_owned(), done)));
        stop.store(true, Ordering::Relaxed);
        let mut silent = |_: &str, _: f64| {};
        let mut context = Context::smoke_run(&stop, &mut silent);
        let ended = context.each([1], |_| String::new(), |_, n| Ok(n));
        assert!(matches!(ended, Err(LabError::Stopped)));
    }
}
