//! Prints experiments and models. `let _ = writeln!`: writing to a string does not fail.

use super::draw;
use comfy_table::{CellAlignment, Table};
use overbank_kit::experiment::{Column, Table as Figures};
use overbank_kit::report::ENDED_EARLY;
use overbank_kit::results::Outcome;
use overbank_products::model::{Calculation, Row, Simulation};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Returns rows under headings, aligned to the left.
pub fn columns<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Table {
    let rows = rows.into_iter().map(Vec::from).collect();
    let mut out = draw(&Figures { rows, ..Figures::new("", headings) });
    out.column_iter_mut().for_each(|c| c.set_cell_alignment(CellAlignment::Left));
    out
}

/// Returns title, checks and tables.
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
            [verdict, &c.claim, &c.stated, &c.measured].map(str::to_owned)
        });
        let _ = writeln!(out, "\n{}", columns(["", "claim", "stated", "measured"], rows));
        // Many claims may share a reason.
        let reasons: BTreeSet<&str> = record.checks.iter().map(|c| &*c.reason).collect();
        for reason in reasons.into_iter().filter(|reason| !reason.is_empty()) {
            let _ = writeln!(out, "\nwhere it differs: {reason}");
        }
    }
    for t in &record.tables {
        let _ = writeln!(out, "\n{}\n{}", t.title, draw(t));
    }
    for note in &record.notes {
        let _ = writeln!(out, "\n{note}");
    }
    let _ = writeln!(out, "\n{:.1} s", record.seconds);
    out
}

/// Returns the hit rates of geometries, calculated and simulated.
pub fn calculation(found: &Calculation) -> String {
    let mut out = String::new();
    let percent = |rate: f64| format!("{:.2}", 100.0 * rate);
    let most = |row: &Row| if row.bound { "≤ " } else { "" };
    let columns: [Column<'_, &Row>; 7] = [
        ("geometry", &|row| row.geometry.clone()),
        ("H", &|row| row.buckets.to_string()),
        ("m", &|row| row.slots.to_string()),
        ("α", &|row| row.alpha.to_string()),
        ("hit rate %", &|row| most(row).to_owned() + &percent(row.hit_rate)),
        ("slots occupied %", &|row| most(row).to_owned() + &percent(row.occupied)),
        ("simulated %", &|row| row.simulated.map_or("–".to_owned(), percent)),
    ];
    let mut shown = &columns[..6];
    if let Some(Simulation { entries, lookups_per_key, seed }) = found.simulation {
        let lookups = format!("{lookups_per_key} lookups per key");
        let _ = writeln!(out, "simulated: {entries} slots, {lookups}, seed {seed}");
        shown = &columns;
    }
    if found.interrupted {
        let _ = writeln!(out, "{ENDED_EARLY}");
    }
    let _ = write!(out, "{}", draw(&Figures::of("", &found.rows, shown)));
    out
}
