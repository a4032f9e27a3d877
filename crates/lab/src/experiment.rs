//! What an experiment is: a named measurement of a figure, table or claim, and its record.
//!
//! An experiment has a smoke size, which runs in the tests and asserts orderings, and a full size,
//! which `overbank lab run` measures. Its [`Record`] holds what was measured beside what the paper
//! states; the report and the JSON are made of records and of nothing else.

use crate::micro::PENALTY_CYCLES;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How much work an experiment does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Seconds in an unoptimised build; orderings hold, figures mean little.
    Smoke,
    /// What the report shows.
    Full,
}

/// A named measurement.
pub struct Experiment {
    /// What people type: `fig8`, `table1`.
    pub name: &'static str,
    /// One line for the list.
    pub title: &'static str,
    /// Document and section: "ATC 2020, figure 8".
    pub source: &'static str,
    /// Does it.
    pub run: fn(&mut Context<'_>) -> Result<Record, LabError>,
}

impl Experiment {
    /// Runs it, takes the time, and refuses a record that could not be drawn.
    pub fn measure(&self, context: &mut Context<'_>) -> Result<Record, LabError> {
        let start = Instant::now();
        let mut record = (self.run)(context)?;
        record.seconds = start.elapsed().as_secs_f64();
        record.sound()?;
        Ok(record)
    }
}

/// What a running experiment is given.
pub struct Context<'a> {
    /// How much work to do.
    pub size: Size,
    /// Seed of everything random.
    pub seed: u64,
    /// What a miss costs where it is added and not lived through, in cycles; the paper has
    /// [`PENALTY_CYCLES`].
    pub penalty_cycles: f64,
    /// Entries of the forwarding tables of `fib5`, `fib6`, `fib7` and `fibwriter`; none: the
    /// experiment's own sizes.
    pub entries: &'a [u64],
    /// Ends it early: Ctrl-C.
    pub stop: &'a AtomicBool,
    /// Gets a line about what runs now and the share done, 0 to 1.
    pub progress: &'a mut dyn FnMut(&str, f64),
}

impl Context<'_> {
    /// Whether the smoke size is wanted.
    pub fn smoke(&self) -> bool {
        self.size == Size::Smoke
    }

    /// The miss penalty as a setting of a record.
    pub fn penalty_setting(&self) -> (String, String) {
        let paper = if self.penalty_cycles == PENALTY_CYCLES { "" } else { " (the paper: 1000)" };
        ("miss penalty".into(), format!("{} cycles of the TSC{paper}", self.penalty_cycles))
    }

    /// Says what runs now and how much is done, 0 to 1; an error if Ctrl-C was pressed.
    pub fn step(&mut self, what: &str, done: f64) -> Result<(), LabError> {
        (self.progress)(what, done);
        if self.stop.load(Ordering::Relaxed) { Err(LabError::Stopped) } else { Ok(()) }
    }
}

/// Why an experiment has no record.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Ctrl-C.
    #[error("stopped")]
    Stopped,
    /// Anything else that went wrong, in one line.
    #[error("{0}")]
    Failed(String),
}

impl LabError {
    /// From any other error.
    pub fn failed(error: impl std::fmt::Display) -> LabError {
        LabError::Failed(error.to_string())
    }
}

/// What an experiment found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Name, title and source of the experiment.
    pub name: String,
    /// See [`Experiment::title`].
    pub title: String,
    /// See [`Experiment::source`].
    pub source: String,
    /// Smoke or full.
    pub size: Size,
    /// Seed.
    pub seed: u64,
    /// Sizes and other settings, as (name, value with unit).
    pub settings: Vec<(String, String)>,
    /// Curves.
    pub plots: Vec<Plot>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Claims of the paper, or targets of ours, beside what was measured.
    pub checks: Vec<Check>,
    /// Paragraphs: what differs from the paper and why.
    pub notes: Vec<String>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Curves over one pair of axes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plot {
    /// Above the plot.
    pub title: String,
    /// Label with unit.
    pub x: String,
    /// Label with unit.
    pub y: String,
    /// Logarithmic axes.
    pub log_x: bool,
    /// See `log_x`.
    pub log_y: bool,
    /// The curves.
    pub series: Vec<Series>,
    /// What the text of the paper states, as marks.
    pub stated: Vec<Mark>,
}

/// One curve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Points, ascending in x.
    pub points: Vec<(f64, f64)>,
    /// Lowest and highest measurement of each point; empty if there was one only.
    pub ranges: Vec<(f64, f64)>,
    /// Drawn dashed: a model, not a measurement.
    pub model: bool,
}

/// A value that a paper states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// What it is of.
    pub name: String,
    /// Where.
    pub x: f64,
    /// See `x`.
    pub y: f64,
}

/// A table; cells are text, figures already rounded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Above the table.
    pub title: String,
    /// One per column.
    pub headings: Vec<String>,
    /// As many cells per row as there are headings.
    pub rows: Vec<Vec<String>>,
}

/// A claim and whether it held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// In words.
    pub claim: String,
    /// What the paper states, or the target.
    pub stated: String,
    /// What was measured.
    pub measured: String,
    /// Whether it held.
    pub holds: bool,
}

impl Record {
    /// An empty record of `experiment`.
    pub fn new(experiment: (&str, &str, &str), context: &Context<'_>) -> Record {
        let (name, title, source) = experiment;
        Record {
            name: name.to_owned(),
            title: title.to_owned(),
            source: source.to_owned(),
            size: context.size,
            seed: context.seed,
            settings: Vec::new(),
            plots: Vec::new(),
            tables: Vec::new(),
            checks: Vec::new(),
            notes: Vec::new(),
            seconds: 0.0,
        }
    }

    /// Adds a setting.
    pub fn setting(&mut self, name: &str, value: impl ToString) {
        self.settings.push((name.to_owned(), value.to_string()));
    }

    /// Adds a claim and whether it held.
    pub fn claim(
        &mut self,
        claim: impl Into<String>,
        stated: impl Into<String>,
        measured: impl Into<String>,
        holds: bool,
    ) {
        let (claim, stated, measured) = (claim.into(), stated.into(), measured.into());
        self.checks.push(Check { claim, stated, measured, holds });
    }

    /// Points finite, as many ranges as points (or none), as many cells as headings.
    pub(crate) fn sound(&self) -> Result<(), LabError> {
        let failed = |what: String| Err(LabError::Failed(format!("{}: {what}", self.name)));
        for plot in &self.plots {
            for series in &plot.series {
                let pairs = series.points.iter().chain(&series.ranges);
                if !pairs.clone().all(|(a, b)| a.is_finite() && b.is_finite()) {
                    return failed(format!(
                        "{}, {}: a value is no number",
                        plot.title, series.name
                    ));
                }
                if !series.ranges.is_empty() && series.ranges.len() != series.points.len() {
                    return failed(format!("{}, {}: not a range each", plot.title, series.name));
                }
            }
        }
        match self.tables.iter().find(|t| t.rows.iter().any(|r| r.len() != t.headings.len())) {
            Some(table) => failed(format!("{}: not a cell for each heading", table.title)),
            None => Ok(()),
        }
    }
}

impl Series {
    /// A measured curve, one measurement a point.
    pub fn measured(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new(), model: false }
    }

    /// A calculated curve. Named "NAME, something" it has the colour of the measured curve NAME.
    pub fn model(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new(), model: true }
    }
}
