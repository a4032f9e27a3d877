//! The reference of counters in Markdown, made of their tables.

use super::{Counter, Counters, Gauge, Kind, Shown};
use std::fmt::Write as _;

/// A table and the labels that its numbers get in the metrics.
#[derive(Clone, Copy, Debug)]
pub struct Labelled {
    /// The declarations.
    pub table: &'static [Counter],
    /// Labels that each number gets.
    pub labels: &'static [&'static str],
}

impl Labelled {
    /// Returns the table of `C` with the labels of its numbers.
    pub const fn of<C: Counters>(labels: &'static [&'static str]) -> Labelled {
        Labelled { table: C::TABLE, labels }
    }
}

/// Rows of the metrics: name, kind, labels, meaning. A family stands once, with what its labels may
/// be.
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
        let _ = writeln!(
            text,
            "| `{}{ending}` | {kind} | {} | {}{colon}{} |",
            metric.name,
            labels.join(", "),
            counter.help,
            values.join(", "),
        );
    }
    text
}

/// Rows of metrics that are computed: name, kind, labels, meaning.
pub fn gauges_reference(gauges: &[Gauge]) -> String {
    let mut text = String::new();
    for gauge in gauges {
        let labels: Vec<String> = gauge.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ =
            writeln!(text, "| `{}` | gauge | {} | {} |", gauge.name, labels.join(", "), gauge.help);
    }
    text
}

/// Rows of the status document: field, unit, meaning.
pub fn fields_reference(table: &[Counter]) -> String {
    let mut text = String::new();
    for counter in table.iter().filter(|counter| counter.shown != Shown::Nowhere) {
        let label = counter.metrics.first().and_then(|metric| metric.label);
        let label = label.map(|(name, value)| format!(" ({name} `{value}`)")).unwrap_or_default();
        let reason = if counter.reason.is_some() { ", by reason" } else { "" };
        let _ = writeln!(
            text,
            "| `{}` | {} | {}{label}{reason} |",
            counter.name, counter.unit, counter.help
        );
    }
    text
}
