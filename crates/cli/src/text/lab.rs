//! The outcome of an experiment for a terminal: its checks, then its tables.

use super::table;
use comfy_table::{CellAlignment, Table};
use overbank_lab::results::Outcome;
use std::fmt::Write;

/// Rows under headings, all to the left.
pub fn columns<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [impl Into<comfy_table::Cell>; N]>,
) -> Table {
    let mut out = table(&headings);
    out.column_iter_mut().for_each(|c| c.set_cell_alignment(CellAlignment::Left));
    out.add_rows(rows);
    out
}

/// Title, checks and tables.
pub fn outcome(outcome: &Outcome) -> String {
    let record = &outcome.record;
    let mut out = format!("{}: {} ({})\n", record.name, record.title, record.source);
    if !record.settings.is_empty() {
        let settings = record.settings.iter().map(|(name, value)| format!("{name} {value}"));
        let _ = writeln!(out, "{}", settings.collect::<Vec<_>>().join("; "));
    }
    if !record.checks.is_empty() {
        let rows = record.checks.iter().map(|c| {
            let verdict = if c.holds { "ok" } else { "differs" };
            [verdict, &c.claim, &c.stated, &c.measured]
        });
        let _ = writeln!(out, "\n{}", columns(["", "claim", "stated", "measured"], rows));
    }
    for t in &record.tables {
        let headings: Vec<&str> = t.headings.iter().map(String::as_str).collect();
        let mut drawn = table(&headings);
        drawn.add_rows(&t.rows);
        let _ = writeln!(out, "\n{}\n{drawn}", t.title);
    }
    for note in &record.notes {
        let _ = writeln!(out, "\n{note}");
    }
    let _ = writeln!(out, "\n{:.1} s", record.seconds);
    out
}
