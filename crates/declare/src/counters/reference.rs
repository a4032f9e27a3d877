//! Writes the reference of counters in Markdown.

use super::{Counter, Counters, Gauge, Kind, Shown};
use std::fmt::Write as _;

/// Why `expect` on writes to a string.
const STRING: &str = "writing to a string does not fail";

#[derive(Clone, Copy, Debug)]
pub struct Labelled {
    pub table: &'static [Counter],
    /// Labels of each number in the metrics.
    pub labels: &'static [&'static str],
}

impl Labelled {
    pub const fn of<C: Counters>(labels: &'static [&'static str]) -> Labelled {
        Labelled { table: C::TABLE, labels }
    }
}

/// Returns the rows of the metrics: name, kind, labels, meaning. A family has one row, with the
/// values of its labels.
pub fn reference(of: Labelled) -> String {
    let mut text = String::new();
    let shown = of.table.iter().filter(|counter| counter.shown == Shown::Everywhere);
    let all: Vec<_> = shown.flat_map(|c| c.metrics.iter().map(move |metric| (c, metric))).collect();
    for (at, (counter, metric)) in all.iter().enumerate() {
        if all[..at].iter().any(|(_, before)| before.name == metric.name) {
            continue;
        }
        let family = all.iter().filter(|(_, other)| other.name == metric.name);
        let values: Vec<String> = family
            .filter_map(|(_, metric)| metric.label.map(|(_, value)| format!("`{value}`")))
            .collect();
        let more = metric.label.map(|(label, _)| label);
        let labels = of.labels.iter().copied().chain(more);
        let labels = labels.chain(counter.reason.map(|_| "reason"));
        let labels: Vec<String> = labels.map(|label| format!("`{label}`")).collect();
        let (kind, ending) = match counter.kind {
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge | Kind::Oldest | Kind::Peak => ("gauge", ""),
        };
        let colon = if values.is_empty() { "" } else { ": " };
        writeln!(
            text,
            "| `{}{ending}` | {kind} | {} | {}{colon}{} |",
            metric.name,
            labels.join(", "),
            counter.help,
            values.join(", "),
        )
        .expect(STRING);
    }
    text
}

/// Returns the rows of computed metrics: name, kind, labels, meaning.
pub fn gauges_reference(gauges: &[Gauge]) -> String {
    let mut text = String::new();
    for gauge in gauges {
        let labels: Vec<String> = gauge.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(text, "| `{}` | gauge | {} | {} |", gauge.name, labels.join(", "), gauge.help)
            .expect(STRING);
    }
    text
}

/// Returns the rows of the status document: field, unit, meaning.
pub fn fields_reference(table: &[Counter]) -> String {
    let mut text = String::new();
    for counter in table.iter().filter(|counter| counter.shown != Shown::Nowhere) {
        let label = counter.metrics.first().and_then(|metric| metric.label);
        let label = label.map(|(name, value)| format!(" ({name} `{value}`)")).unwrap_or_default();
        let reason = if counter.reason.is_some() { ", by reason" } else { "" };
        writeln!(
            text,
            "| `{}` | {} | {}{label}{reason} |",
            counter.name, counter.unit, counter.help
        )
        .expect(STRING);
    }
    text
}
