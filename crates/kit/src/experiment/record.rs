//! What an experiment leaves: settings, curves, tables, claims, notes. Serialised as it is; a page,
//! a terminal and Markdown show it and nothing else.

use super::{Context, LabError, Size};
use crate::spread::Spread;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    pub title: String,
    /// Where the experiment comes from: paper and figure, table or section.
    pub source: String,
    pub size: Size,
    pub seed: u64,
    /// Sizes and other settings, as (name, value with unit).
    pub settings: Vec<(String, String)>,
    pub plots: Vec<Plot>,
    pub tables: Vec<Table>,
    /// Claims of the paper, or targets of ours, beside what was measured.
    pub checks: Vec<Check>,
    /// Paragraphs: what differs from the paper and why.
    pub notes: Vec<String>,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plot {
    pub title: String,
    pub x: String,
    pub y: String,
    pub log_x: bool,
    pub log_y: bool,
    pub series: Vec<Series>,
    /// What the text of the paper states, as marks.
    pub stated: Vec<Mark>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
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
    pub name: String,
    pub x: f64,
    pub y: f64,
}

/// A table; cells are text, figures already rounded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    pub headings: Vec<String>,
    /// As many cells per row as there are headings.
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    pub claim: String,
    /// What the paper states, or the target.
    pub stated: String,
    pub measured: String,
    pub holds: bool,
    /// Where it differs: why, in a sentence that a person wrote; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Check {
    pub fn new(
        claim: impl Into<String>,
        stated: impl Into<String>,
        measured: impl Into<String>,
        holds: bool,
    ) -> Check {
        let (claim, stated, measured) = (claim.into(), stated.into(), measured.into());
        Check { claim, stated, measured, holds, reason: String::new() }
    }

    /// Adds a reason, which counts where it differs.
    pub fn because(self, reason: &str) -> Check {
        let reason = if self.holds { String::new() } else { reason.to_owned() };
        Check { reason, ..self }
    }
}

impl Record {
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

    pub fn setting(&mut self, name: &str, value: impl ToString) {
        self.settings.push((name.to_owned(), value.to_string()));
    }

    pub fn claim(
        &mut self,
        claim: impl Into<String>,
        stated: impl Into<String>,
        measured: impl Into<String>,
        holds: bool,
    ) {
        self.checks.push(Check::new(claim, stated, measured, holds));
    }

    /// Adds a reason to the claim that was added last, which counts where it differs.
    pub fn because(&mut self, reason: &str) {
        if let Some(check) = self.checks.pop() {
            self.checks.push(check.because(reason));
        }
    }

    pub fn settings<N: Into<String>, V: ToString>(
        &mut self,
        settings: impl IntoIterator<Item = (N, V)>,
    ) {
        self.settings.extend(settings.into_iter().map(|(n, v)| (n.into(), v.to_string())));
    }

    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Checks that points are finite, that each has a range or none, and that rows have a cell a
    /// heading.
    pub(crate) fn sound(&self) -> Result<(), LabError> {
        let failed = |what: String| Err(LabError::Failed(format!("{}: {what}", self.name)));
        for plot in &self.plots {
            for series in &plot.series {
                let pairs = series.points.iter().chain(&series.ranges);
                if !pairs.clone().all(|(a, b)| a.is_finite() && b.is_finite()) {
                    return failed(format!(
                        "{}, {}: a value is not a number",
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
    /// Returns a measured curve, one measurement a point.
    pub fn measured(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new(), model: false }
    }

    /// Returns a calculated curve. Named "NAME, something" it has the colour of the measured curve
    /// NAME.
    pub fn model(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, ranges: Vec::new(), model: true }
    }

    /// Returns a measured curve of rounds: medians, and bars from the lowest to the highest.
    pub fn rounds(
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, Spread)>,
    ) -> Series {
        let (points, ranges) = points.into_iter().map(|(x, s)| ((x, s.median), s.range())).unzip();
        Series { name: name.into(), points, ranges, model: false }
    }
}

impl Plot {
    pub fn new(title: impl Into<String>, x: &str, y: &str) -> Plot {
        let title = title.into();
        let (x, y) = (x.to_owned(), y.to_owned());
        Plot { title, x, y, log_x: false, log_y: false, series: Vec::new(), stated: Vec::new() }
    }

    pub fn log_x(self) -> Plot {
        Plot { log_x: true, ..self }
    }

    pub fn log_y(self) -> Plot {
        Plot { log_y: true, ..self }
    }

    pub fn with(mut self, series: impl IntoIterator<Item = Series>) -> Plot {
        self.series.extend(series);
        self
    }

    /// Marks a value that the paper states.
    pub fn mark(mut self, name: impl Into<String>, x: f64, y: f64) -> Plot {
        self.stated.push(Mark { name: name.into(), x, y });
        self
    }

    /// Marks a value that the paper states without saying where: a dashed line over the whole axis,
    /// with a mark at its end.
    pub fn mark_anywhere(self, name: &str, y: f64) -> Plot {
        let xs = || self.series.iter().flat_map(|s| s.points.iter().map(|p| p.0));
        let ends = (xs().fold(f64::MAX, f64::min), xs().fold(f64::MIN, f64::max));
        if ends.0 > ends.1 {
            return self;
        }
        let line = Series::model(format!("the paper: {name}"), vec![(ends.0, y), (ends.1, y)]);
        self.with([line]).mark(name, ends.1, y)
    }
}

/// A column of a table: its heading, and a cell of each row.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
    pub fn new<H: Into<String>>(
        title: impl Into<String>,
        headings: impl IntoIterator<Item = H>,
    ) -> Table {
        let headings = headings.into_iter().map(Into::into).collect();
        Table { title: title.into(), headings, rows: Vec::new() }
    }

    /// Makes a row for each item, a cell by each column.
    pub fn of<T>(
        title: impl Into<String>,
        items: impl IntoIterator<Item = T>,
        columns: &[Column<'_, T>],
    ) -> Table {
        let row = |item: T| columns.iter().map(|(_, cell)| cell(&item)).collect();
        let rows = items.into_iter().map(row).collect();
        Table { rows, ..Table::new(title, columns.iter().map(|(heading, _)| *heading)) }
    }

    /// Makes a row for each of `rows`, a column for each of `columns`; `corner` is above the rows'
    /// names.
    pub fn pivot<R, C>(
        title: impl Into<String>,
        corner: &str,
        (rows, name): (impl IntoIterator<Item = R>, impl Fn(&R) -> String),
        (columns, heading): (impl IntoIterator<Item = C>, impl Fn(&C) -> String),
        cell: impl Fn(&R, &C) -> String,
    ) -> Table {
        let columns: Vec<C> = columns.into_iter().collect();
        let mut table =
            Table::new(title, [corner.to_owned()].into_iter().chain(columns.iter().map(heading)));
        for row in rows {
            table.row([name(&row)].into_iter().chain(columns.iter().map(|of| cell(&row, of))));
        }
        table
    }

    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_cell_by_each_column() {
        let table =
            Table::of("t", [1, 2], &[("n", &|n| n.to_string()), ("2n", &|n| (2 * n).to_string())]);
        assert_eq!(table.headings, ["n", "2n"]);
        assert_eq!(table.rows, [["1", "2"], ["2", "4"]]);
        let text = i32::to_string;
        let table = Table::pivot("t", "×", ([1, 2], text), ([3, 4], text), |a, b| text(&(a * b)));
        assert_eq!(table.headings, ["×", "3", "4"]);
        assert_eq!(table.rows, [["1", "3", "4"], ["2", "6", "8"]]);
    }

    #[test]
    fn a_statement_without_a_place_is_a_line_and_a_mark() {
        let curve = Series::measured("a", vec![(0.5, 1.0), (2.0, 3.0)]);
        let plot = Plot::new("", "", "").with([curve]).mark_anywhere("up to 15 %", 15.0);
        assert_eq!(plot.series[1].points, [(0.5, 15.0), (2.0, 15.0)]);
        assert!(plot.series[1].model && plot.series[1].name.contains("up to 15 %"));
        assert_eq!((plot.stated[0].x, plot.stated[0].y), (2.0, 15.0));
        let plot = Plot::new("", "", "").mark_anywhere("up to 15 %", 15.0);
        assert!(plot.series.is_empty() && plot.stated.is_empty());
    }
}
