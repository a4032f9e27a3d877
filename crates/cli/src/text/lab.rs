//! The outcome of an experiment for a terminal: its checks, then its tables; and what models say.

use super::table;
use comfy_table::{CellAlignment, Table};
use overbank_kit::report::ENDED_EARLY;
use overbank_kit::report::markdown::measured;
use overbank_kit::results::Outcome;
use overbank_products::model::Calculation;
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
            [verdict, &c.claim, &c.stated, &measured(c)].map(str::to_owned)
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

/// What models say of geometries, and what a simulation did.
pub fn calculation(found: &Calculation) -> String {
    let mut out = String::new();
    let simulated = match &found.simulation {
        Some(s) => {
            let _ = writeln!(
                out,
                "simulated: {} slots, {} lookups per key, seed {}",
                s.entries, s.lookups_per_key, s.seed
            );
            vec!["simulated %"]
        }
        None => Vec::new(),
    };
    if found.interrupted {
        let _ = writeln!(out, "{ENDED_EARLY}");
    }
    let headings = ["geometry", "H", "m", "α", "hit rate %", "slots occupied %"];
    let mut drawn = table(&[&headings[..], &simulated].concat());
    let percent = |rate: f64| format!("{:.2}", 100.0 * rate);
    for row in &found.rows {
        let most = if row.bound { "≤ " } else { "" };
        let mut cells = vec![
            row.geometry.clone(),
            row.buckets.to_string(),
            row.slots.to_string(),
            row.alpha.to_string(),
            format!("{most}{}", percent(row.hit_rate)),
            format!("{most}{}", percent(row.occupied)),
        ];
        if found.simulation.is_some() {
            cells.push(row.simulated.map_or("–".to_owned(), percent));
        }
        drawn.add_row(cells);
    }
    let _ = write!(out, "{drawn}");
    out
}
