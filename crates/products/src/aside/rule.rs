//! The recommendation: the index for which a table saves most, and the smallest table that saves
//! nearly as much.

use super::record::{IndexRecord, Recommendation, TableRecord};
use crate::advise::size_text;
use overbank_kit::report::{count, percent};

/// A table pays if it makes operations this many times faster, in the median of rounds.
pub const PAYS: f64 = 1.1;
/// A smaller table is as good if its operations take at most this many times as long.
const NEARLY: f64 = 1.05;

/// Returns the smallest table that is nearly as fast as the fastest, if that pays.
pub fn best(index: &IndexRecord) -> Option<&TableRecord> {
    let median = |table: &&TableRecord| table.ns.median;
    let fastest = index.tables.iter().min_by(|a, b| median(a).total_cmp(&median(b)))?;
    if fastest.gain.median < PAYS {
        return None;
    }
    let near = |table: &&TableRecord| {
        table.ns.median <= NEARLY * fastest.ns.median && table.gain.median >= PAYS
    };
    index.tables.iter().filter(near).min_by_key(|table| table.bytes)
}

fn saved(index: &IndexRecord, table: &TableRecord) -> f64 {
    index.alone_ns.median - table.ns.median
}

/// Recommends a table, or none.
pub fn recommend(indexes: &[IndexRecord]) -> Recommendation {
    let found: Vec<_> = indexes.iter().filter_map(|index| Some((index, best(index)?))).collect();
    let names = |of: &mut dyn Iterator<Item = String>| of.collect::<Vec<_>>().join(", ");
    let none: Vec<_> = indexes.iter().filter(|index| best(index).is_none()).collect();
    let mut left = none.iter().map(|index| index.index.to_owned());
    let most = found.iter().max_by(|a, b| saved(a.0, a.1).total_cmp(&saved(b.0, b.1)));
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
        index.alone_ns.median,
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
    let fastest = index.tables.iter().min_by(|a, b| a.ns.median.total_cmp(&b.ns.median));
    fastest.map_or(String::new(), |table| {
        format!(
            "{} takes {:.0} ns alone and {:.0} ns with {} entries{}.",
            index.index,
            index.alone_ns.median,
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
