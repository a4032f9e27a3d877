//! The recommendation: the index for which a table saves most, and the smallest table that saves
//! nearly as much.

use super::record::{IndexRecord, Recommendation, TableRecord};
use crate::advise::size_text;
use overbank_kit::report::{count, percent};

/// A table pays if it makes operations this many times faster, in the median of rounds.
pub const PAYS: f64 = 1.1;
/// A smaller table is as good if one gains at most this many times as much.
const NEARLY: f64 = 1.05;

/// Returns the table that gains most. Gains are compared, not times: each table had its own rounds.
fn fastest(index: &IndexRecord) -> Option<&TableRecord> {
    index.tables.iter().max_by(|a, b| a.gain.median.total_cmp(&b.gain.median))
}

/// Returns the smallest table that gains nearly as much as the best, if that pays.
pub fn best(index: &IndexRecord) -> Option<&TableRecord> {
    let least = fastest(index)?.gain.median / NEARLY;
    let near = |table: &&TableRecord| table.gain.median >= least.max(PAYS);
    index.tables.iter().filter(near).min_by_key(|table| table.bytes)
}

fn saved(table: &TableRecord) -> f64 {
    table.alone_ns.median - table.ns.median
}

/// Recommends a table, or none.
pub fn recommend(indexes: &[IndexRecord]) -> Recommendation {
    let found: Vec<_> = indexes.iter().filter_map(|index| Some((index, best(index)?))).collect();
    let names = |of: &mut dyn Iterator<Item = String>| of.collect::<Vec<_>>().join(", ");
    let none: Vec<_> = indexes.iter().filter(|index| best(index).is_none()).collect();
    let mut left = none.iter().map(|index| index.index.to_owned());
    let most = found.iter().max_by(|a, b| saved(a.1).total_cmp(&saved(b.1)));
    let Some((index, table)) = most else {
        let reason = format!(
            "No table: none makes an operation {PAYS} times as fast. {}",
            why(none.first().copied())
        );
        return Recommendation { index: None, entries: None, reason };
    };
    let mut reason = format!(
        "{} entries ({}) in front of {}: {:.0} ns an operation instead of {:.0} ns, {:.2} times as \
         fast{}.",
        count(table.entries as u64),
        size_text(table.bytes),
        index.index,
        table.ns.median,
        table.alone_ns.median,
        table.gain.median,
        hits(", since", table),
    );
    let mut others =
        found.iter().filter(|other| other.0.index != index.index).map(|(index, table)| {
            format!(
                "{} ({:.2} times with {})",
                index.index,
                table.gain.median,
                count(table.entries as u64)
            )
        });
    let others = names(&mut others);
    if !others.is_empty() {
        reason += &format!(" A table also pays for {others}.");
    }
    let left = names(&mut left);
    if !left.is_empty() {
        reason += &format!(" Leave {left} without one.");
    }
    Recommendation { index: Some(index.index), entries: Some(table.entries), reason }
}

/// Says why the first index gains nothing.
fn why(index: Option<&IndexRecord>) -> String {
    let Some(index) = index else { return String::new() };
    fastest(index).map_or(String::new(), |table| {
        format!(
            "{} takes {:.0} ns alone and {:.0} ns with {} entries{}.",
            index.index,
            table.alone_ns.median,
            table.ns.median,
            count(table.entries as u64),
            hits(", where", table),
        )
    })
}

fn hits(before: &str, table: &TableRecord) -> String {
    let known = |rate| format!("{before} {} % of the lookups hit", percent(rate));
    table.hit_rate.map_or(String::new(), known)
}
