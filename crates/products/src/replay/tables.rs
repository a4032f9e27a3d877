//! The tables of a replay, for its page and for terminals.

use super::record::{DesignRecord, Totals};
use overbank_kit::experiment::Table;
use overbank_kit::report::{count, optional, percent};

/// Shows what each design costs and hits.
pub fn rates(designs: &[DesignRecord]) -> Table {
    let hit_rate = |d: &DesignRecord| (d.slots > 0).then_some(d.hit_rate * 100.0);
    Table::of(
        "",
        designs,
        &[
            ("design", &|d| d.design.clone()),
            ("Mpps", &|d| optional(d.mpps, 2)),
            ("min", &|d| optional(d.mpps_min, 2)),
            ("max", &|d| optional(d.mpps_max, 2)),
            ("ns/packet", &|d| optional(d.ns_per_packet, 1)),
            ("hit rate %", &|d| optional(hit_rate(d), 2)),
            ("ns/hit", &|d| optional(d.ns_hit, 1)),
            ("ns/miss", &|d| optional(d.ns_miss, 1)),
            ("MiB", &|d| format!("{:.1}", d.table_bytes as f64 / (1 << 20) as f64)),
            ("huge pages", &|d| d.huge_pages.clone()),
            ("SIMD", &|d| d.instruction_set.clone()),
        ],
    )
}

/// Shows what the three tiers did; `of` says when.
pub fn tiers(title: &str, designs: &[DesignRecord], of: fn(&DesignRecord) -> &Totals) -> Table {
    Table::of(
        title,
        designs,
        &[
            ("design", &|d| d.design.clone()),
            ("packets", &|d| count(of(d).packets)),
            ("hit rate %", &|d| percent(of(d).hit_rate())),
            ("false positives", &|d| count(of(d).microflow.false_positives)),
            ("evictions", &|d| count(of(d).microflow.evictions)),
            ("megaflow lookups", &|d| count(of(d).megaflow.lookups)),
            ("hits", &|d| count(of(d).megaflow.hits)),
            ("subtables each", &|d| format!("{:.2}", of(d).megaflow.subtables_per_lookup)),
            ("masks", &|d| count(of(d).megaflow.masks as u64)),
            ("megaflows", &|d| count(of(d).megaflow.megaflows as u64)),
            ("classifier lookups", &|d| count(of(d).classifier_lookups)),
        ],
    )
}
