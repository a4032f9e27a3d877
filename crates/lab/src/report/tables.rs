//! The tables of a replay and of an advice, as text: headings and rows, for pages and terminals alike.

use super::count;
use crate::advise::{Cell, size_text};
use crate::replay::record::{DesignRecord, Totals};

/// Headings, and rows of as many cells.
pub struct TextTable {
    /// One per column.
    pub headings: &'static [&'static str],
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

/// A value or a dash.
pub fn optional(value: Option<f64>, decimals: usize) -> String {
    value.map_or("–".to_owned(), |v| format!("{v:.decimals$}"))
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// What each design costs and hits.
pub fn rates(designs: &[DesignRecord]) -> TextTable {
    let row = |d: &DesignRecord| {
        vec![
            d.design.clone(),
            optional(d.mpps, 2),
            optional(d.mpps_min, 2),
            optional(d.mpps_max, 2),
            optional(d.ns_per_packet, 1),
            if d.slots == 0 { "–".to_owned() } else { percent(d.hit_rate) },
            optional(d.ns_hit, 1),
            optional(d.ns_miss, 1),
            format!("{:.1}", d.table_bytes as f64 / (1 << 20) as f64),
            d.huge_pages.clone(),
            d.instruction_set.clone(),
        ]
    };
    TextTable {
        headings: &[
            "design",
            "Mpps",
            "min",
            "max",
            "ns/packet",
            "hit rate %",
            "ns/hit",
            "ns/miss",
            "MiB",
            "huge pages",
            "SIMD",
        ],
        rows: designs.iter().map(row).collect(),
    }
}

/// What the three tiers did; `pick` says when.
pub fn tiers(designs: &[DesignRecord], pick: fn(&DesignRecord) -> &Totals) -> TextTable {
    let row = |d: &DesignRecord| {
        let t = pick(d);
        vec![
            d.design.clone(),
            count(t.packets),
            percent(t.hit_rate()),
            count(t.microflow.false_positives),
            count(t.microflow.evictions),
            count(t.megaflow.lookups),
            count(t.megaflow.hits),
            format!("{:.2}", t.megaflow.subtables_per_lookup),
            count(t.megaflow.masks as u64),
            count(t.megaflow.megaflows as u64),
            count(t.classifier_lookups),
        ]
    };
    TextTable {
        headings: &[
            "design",
            "packets",
            "hit rate %",
            "false positives",
            "evictions",
            "megaflow lookups",
            "hits",
            "subtables each",
            "masks",
            "megaflows",
            "classifier lookups",
        ],
        rows: designs.iter().map(row).collect(),
    }
}

/// Designs at sizes, as `advise` measured them; a dash where a design was not tried.
pub fn cells<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> TextTable {
    let row = |c: &Cell| {
        vec![
            c.design.clone(),
            count(c.entries as u64),
            size_text(c.table_bytes),
            format!("{:.2}", c.alpha),
            c.predicted.map_or("simulated only".to_owned(), percent),
            percent(c.measured),
            format!("{:.1}", c.ns_per_packet),
            optional(c.lookup_ns, 1),
        ]
    };
    TextTable {
        headings: &[
            "design",
            "entries",
            "memory",
            "α",
            "predicted %",
            "measured %",
            "est. ns/packet",
            "tried: ns/lookup",
        ],
        rows: cells.into_iter().map(row).collect(),
    }
}
