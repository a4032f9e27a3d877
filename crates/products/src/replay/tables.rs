//! The tables of a replay as text, for its page and for terminals.

use super::record::{DesignRecord, Totals};
use overbank_kit::report::{TextTable, count, optional, percent};

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
