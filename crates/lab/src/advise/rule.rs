//! Which table to recommend, and the reason in a sentence.

use super::{Cell, Recommendation};
use crate::recommended::RECOMMENDED;

/// A size within this factor of the best estimate is good enough.
const GOOD_ENOUGH: f64 = 1.02;
/// Two designs of a size this near to each other are as good, and one of them the recommended one.
const AS_GOOD: f64 = 1.005;

/// The size to have, by estimate.
pub(super) struct Size {
    /// Slots.
    pub(super) entries: usize,
    /// The best of all sizes.
    best: Cell,
}

fn fastest<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<&'a Cell> {
    cells.min_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet))
}

/// The smallest size that is good enough. There is at least one cell.
pub(super) fn size(cells: &[Cell]) -> Size {
    let best = fastest(cells.iter()).expect("at least one design at one size").clone();
    let good = |cell: &&Cell| cell.ns_per_packet <= best.ns_per_packet * GOOD_ENOUGH;
    let entries = cells.iter().filter(good).map(|c| c.entries).min().unwrap_or(best.entries);
    Size { entries, best }
}

/// The design of that size: the fastest of those that were tried, or by estimate.
pub(super) fn recommend(cells: &[Cell], size: &Size) -> Recommendation {
    let Size { entries, ref best } = *size;
    let of_size = || cells.iter().filter(|c| c.entries == entries);
    let tried = || of_size().filter(|c| c.lookup_ns.is_some());
    let chosen = fastest(tried()).or_else(|| fastest(of_size())).unwrap_or(best).clone();
    let by_default = cells.iter().find(|c| c.entries == entries && c.design == RECOMMENDED);
    let as_known = by_default.filter(|c| c.lookup_ns.is_some() == chosen.lookup_ns.is_some());
    let as_good = as_known.filter(|c| c.ns_per_packet <= chosen.ns_per_packet * AS_GOOD).cloned();
    let chosen = as_good.unwrap_or(chosen);
    let mut reason = format!(
        "{} with {} entries hits {:.2} % and costs an estimated {:.1} ns a packet",
        chosen.design,
        chosen.entries,
        chosen.measured * 100.0,
        chosen.ns_per_packet
    );
    if (&chosen.design, chosen.entries) == (&best.design, best.entries) {
        reason += ", the best of all";
    } else if chosen.entries == best.entries {
        reason +=
            ", the best size by estimate and the fastest of the designs that were tried there";
    } else {
        reason += &format!(
            ", by estimate within 2 % of the best ({} with {} entries, {:.1} ns)",
            best.design, best.entries, best.ns_per_packet
        );
    }
    match fastest(cells.iter().filter(|c| c.entries * 2 == entries)) {
        Some(half) => {
            let more = (half.ns_per_packet / best.ns_per_packet - 1.0) * 100.0;
            let (design, rate) = (&half.design, half.measured * 100.0);
            reason += &format!(
                "; with half the entries, {design} would hit {rate:.2} % and be {more:.0} % slower than the best."
            );
        }
        None => reason += "; no smaller size was looked at.",
    }
    if let Some(default) = by_default.filter(|_| chosen.design != RECOMMENDED) {
        let more = (default.ns_per_packet / chosen.ns_per_packet - 1.0) * 100.0;
        reason += &format!(
            " {RECOMMENDED}, the choice for traffic that is not known, would hit {:.2} % with as many \
             entries and cost {:.1} ns, {more:.1} % more.",
            default.measured * 100.0,
            default.ns_per_packet
        );
    }
    let mut names: Vec<&Cell> = tried().collect();
    names.sort_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
    if !names.is_empty() {
        let lookup = |c: &&Cell| Some(format!("{} {:.1}", c.design, c.lookup_ns?));
        let names: Vec<String> = names.iter().filter_map(lookup).collect();
        reason += &format!(
            " Tried here with this traffic, ns a lookup, best first: {}.",
            names.join(", ")
        );
    }
    Recommendation {
        design: chosen.design,
        entries,
        table_bytes: chosen.table_bytes,
        hit_rate: chosen.measured,
        ns_per_packet: chosen.ns_per_packet,
        reason,
    }
}
