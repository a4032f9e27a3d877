//! The comparison as one self-contained HTML page, and its table.

use super::record::{Comparison, IndexRecord, TableRecord};
use super::rule;
use crate::advise::size_text;
use maud::{Markup, html};
use overbank_kit::experiment::{Column, Table};
use overbank_kit::report::bars::{Bar, Chart};
use overbank_kit::report::page::{document, ended_early, made, table};
use overbank_kit::report::{count, optional, percent};
use overbank_kit::spread::Spread;

/// What the columns of the table mean.
pub const EXPLAINED: &str = "ns: nanoseconds an operation, median of the rounds; ×: times as fast \
                             as the index alone, by round, with the range. Optimum: hit rate of the \
                             best fixed choice of as many keys. While its gate is closed, a table \
                             answers in one bucket of 32. Gate: its state at the end of each round. \
                             Where keys are only read, all rounds share one table.";

/// Shows all indexes with all tables.
pub fn figures(comparison: &Comparison) -> Table {
    let rows = comparison.indexes.iter().flat_map(|index| {
        std::iter::once((index, None)).chain(index.tables.iter().map(move |t| (index, Some(t))))
    });
    type Row<'a> = (&'a IndexRecord, Option<&'a TableRecord>);
    let cell = |of: Option<String>| of.unwrap_or_else(|| "–".to_owned());
    let bursts =
        comparison.indexes.iter().flat_map(|index| &index.tables).any(|t| t.burst_ns.is_some());
    let columns: [Column<'_, Row<'_>>; 10] = [
        ("index", &|(index, table)| {
            if table.is_none() { index.index.to_owned() } else { String::new() }
        }),
        ("table", &|(_, table)| {
            table.map_or("none".to_owned(), |table| count(table.entries as u64))
        }),
        ("memory", &|(index, table)| {
            size_text(table.map_or(index.bytes as usize, |table| table.bytes))
        }),
        ("ns", &|(index, table)| format!("{:.0}", table.map_or(index.alone_ns, |t| t.ns).median)),
        ("×", &|(_, table)| cell(table.map(|table| table.gain.cell(2)))),
        ("hits %", &|(_, table)| cell(table.and_then(|table| table.hit_rate).map(percent))),
        ("optimum %", &|(_, table)| cell(table.and_then(|table| table.optimum).map(percent))),
        ("gate", &|(_, table)| cell(table.map(TableRecord::gate_state))),
        ("ns in bursts", &|(_, table)| {
            optional(table.and_then(|table| table.burst_ns).map(|ns| ns.median), 0)
        }),
        ("× in bursts", &|(_, table)| {
            cell(table.and_then(|table| table.burst_gain).map(|gain| gain.cell(2)))
        }),
    ];
    let shown = if bursts { &columns[..] } else { &columns[..8] };
    Table::of("", rows, shown)
}

/// Returns each table's index, size and the gate's reason in the round with the median time.
pub fn gates(comparison: &Comparison) -> impl Iterator<Item = (String, &str)> {
    comparison.indexes.iter().flat_map(|index| {
        index.tables.iter().map(|table| {
            (format!("{}, {} entries", index.index, count(table.entries as u64)), &*table.gate)
        })
    })
}

/// Renders the page. `command` is what the reader would type to make it again.
pub fn page(comparison: &Comparison, command: &str) -> String {
    let title = format!("Overbank aside: {}", comparison.input);
    let r = &comparison.recommendation;
    let heading = match (r.index, r.entries) {
        (Some(index), Some(entries)) => {
            format!("A look-aside table of {} entries for {index}", count(entries as u64))
        }
        _ => "No look-aside table".to_owned(),
    };
    let body = html! {
        header {
            h1 { (heading) }
            p { (r.reason) }
            p { (comparison.input.to_string()) ", " (count(comparison.keys as u64))
                " keys in each index, on one core of " (comparison.machine.cpu) "." }
            (ended_early(comparison.interrupted))
        }
        figure {
            h2 { "Nanoseconds an operation" }
            (bars(comparison))
            figcaption { "Median of the rounds in which the index "
                "took turns alone and with a table, one size after another; alone: of all of them. "
                "Whiskers: fastest and slowest round. "
                span class="key a" {} " alone  " span class="key b" {} " with a table." }
        }
        section {
            h2 { "Figures" }
            p { (EXPLAINED) }
            (table(&figures(comparison)))
        }
        section {
            h2 { "What the gate says, in the round with the median time" }
            div class="scroll" { table class="text wrap" { tbody {
                @for (table, gate) in gates(comparison) { tr { td { (table) } td { (gate) } } }
            } } }
        }
        section {
            h2 { "The indexes" }
            div class="scroll" { table class="text wrap" { tbody {
                @for index in &comparison.indexes { tr {
                    td { (index.index) } td { (index.what) }
                    td { @if rule::best(index).is_some() { "a table pays" } @else { "no table" } }
                } }
            } } }
        }
        footer { (made(comparison.version, command)) }
    };
    document(&title, "", &body)
}

fn bars(comparison: &Comparison) -> Markup {
    let bar = |label: String, ns: Spread, class| Bar {
        class,
        range: Some(ns.range()),
        ..Bar::new(&label, Some(ns.median))
    };
    let bars = comparison.indexes.iter().flat_map(|index| {
        let tables = index.tables.iter().map(move |table| {
            bar(format!("{} entries", count(table.entries as u64)), table.ns, "b")
        });
        std::iter::once(bar(index.index.to_owned(), index.alone_ns, "a")).chain(tables)
    });
    Chart { axis: "nanoseconds an operation", bars: bars.collect(), decimals: 0, max: None }.svg()
}
