//! Which table to recommend, and the reason in a sentence.

use super::{Cell, Recommendation};
use overbank_kit::recommended::RECOMMENDED;

/// Sizes and designs within this factor of the best are as good: two per cent more or less in a trial
/// are chance, as in the lab's grid.
pub(super) const AS_GOOD: f64 = 1.02;

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
    let good = |cell: &&Cell| cell.ns_per_packet <= best.ns_per_packet * AS_GOOD;
    let entries = cells.iter().filter(good).map(|c| c.entries).min().unwrap_or(best.entries);
    Size { entries, best }
}

/// The design that hits most often of those that may be the fastest as well; of rates that are the same
/// to a tenth of a point, the fastest.
fn most_hits<'a>(tried: impl Iterator<Item = &'a Cell> + Clone) -> Option<&'a Cell> {
    let limit = fastest(tried.clone())?.ns_per_packet * AS_GOOD;
    let as_good = tried.filter(|c| c.ns_per_packet <= limit);
    let tenths = |c: &Cell| (c.measured * 1000.0).round();
    as_good.min_by(|a, b| {
        let more = tenths(b).total_cmp(&tenths(a));
        more.then(a.ns_per_packet.total_cmp(&b.ns_per_packet))
    })
}

/// The design of that size: of those that were tried, or by estimate. `largest` is the largest size
/// looked at, if there are flows for a larger one.
pub(super) fn recommend(cells: &[Cell], size: &Size, largest: Option<usize>) -> Recommendation {
    let Size { entries, ref best } = *size;
    let of_size = || cells.iter().filter(|c| c.entries == entries);
    let tried = || of_size().filter(|c| c.lookup_ns.is_some());
    let first = fastest(tried()).or_else(|| fastest(of_size())).unwrap_or(best);
    let by_default = cells.iter().find(|c| c.entries == entries && c.design == RECOMMENDED);
    let as_known = by_default.filter(|c| c.lookup_ns.is_some() == first.lookup_ns.is_some());
    let as_good = as_known.filter(|c| c.ns_per_packet <= first.ns_per_packet * AS_GOOD);
    let chosen = as_good.or_else(|| most_hits(tried())).unwrap_or(first).clone();
    let mut reason = format!(
        "{} with {} entries hits {:.2} % and costs an estimated {:.1} ns a packet",
        chosen.design,
        chosen.entries,
        chosen.measured * 100.0,
        chosen.ns_per_packet
    );
    reason += &why_this_size(&chosen, best);
    if chosen.lookup_ns.is_some() {
        let dearer = |c: &&Cell| c.ns_per_packet < chosen.ns_per_packet;
        reason += &match fastest(tried()).filter(dearer) {
            None => "; it is the fastest of the designs that were tried there".to_owned(),
            Some(least) => format!(
                "; it is within 2 % of the fastest design that was tried there ({}, {:.2} %, {:.1} ns), \
                 which may be chance",
                least.design,
                least.measured * 100.0,
                least.ns_per_packet
            ),
        };
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
    if largest == Some(entries) {
        reason += " It is the largest size that was looked at: with so many flows, a larger one may be better.";
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

/// What is said of a choice by the estimates; `best` is the best of them.
fn why_this_size(chosen: &Cell, best: &Cell) -> String {
    if (&chosen.design, chosen.entries) == (&best.design, best.entries) {
        return ", by estimate the best of all".to_owned();
    }
    let best_is =
        format!("{} with {} entries, {:.1} ns", best.design, best.entries, best.ns_per_packet);
    if chosen.entries < best.entries {
        return format!(
            ", in the smallest size that has a design within 2 % of the best by estimate ({best_is})"
        );
    }
    // Of the best size.
    match chosen.lookup_ns {
        Some(_) => format!(", in the best size by estimate ({best_is})"),
        None => format!(", by estimate within 2 % of the best ({best_is})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(design: &str, entries: usize, ns_per_packet: f64, lookup_ns: Option<f64>) -> Cell {
        Cell {
            design: design.to_owned(),
            entries,
            table_bytes: 4 * entries,
            alpha: 1.0,
            predicted: None,
            tolerance: 0.01,
            measured: 0.9,
            ns_per_packet,
            lookup_ns,
        }
    }

    /// The reason, and the design; trials change what a packet takes.
    fn reason(estimated: &[Cell], trials: &[(&str, f64)]) -> (String, String) {
        let mut cells = estimated.to_vec();
        let size = size(&cells);
        for (design, ns) in trials {
            let of_size = |c: &&mut Cell| (c.entries, c.design.as_str()) == (size.entries, *design);
            let cell = cells.iter_mut().find(of_size).unwrap();
            (cell.ns_per_packet, cell.lookup_ns) = (*ns, Some(1.0));
        }
        let recommendation = recommend(&cells, &size, None);
        (recommendation.reason, recommendation.design)
    }

    #[test]
    fn the_reason_says_what_was_tried_and_what_was_estimated() {
        let (small, large) = (1024, 2048);
        let few = [
            cell("set-4", small, 30.0, None),
            cell("set-4", large, 20.0, None),
            cell(RECOMMENDED, large, 20.09, None),
        ];
        // Nothing was tried: as good by estimate.
        let (text, design) = reason(&few, &[]);
        assert_eq!(design, RECOMMENDED);
        assert!(
            !text.contains("tried") && text.contains("by estimate within 2 % of the best"),
            "{text}"
        );
        let (text, _) = reason(&few[..2], &[]);
        assert!(!text.contains("tried") && text.contains("by estimate the best of all"), "{text}");
        // Tried: the fastest, or nearly.
        let (text, design) = reason(&few, &[("set-4", 20.0), (RECOMMENDED, 22.0)]);
        assert!(design == "set-4" && text.contains("the fastest of the designs that were tried"));
        let (text, design) = reason(&few, &[("set-4", 20.0), (RECOMMENDED, 20.38)]);
        assert_eq!(design, RECOMMENDED);
        assert!(
            text.contains("2 % of the fastest design that was tried there (set-4, 90.00 %, 20.0")
        );
        let (_, design) = reason(&few, &[("set-4", 20.0), (RECOMMENDED, 20.42)]);
        assert_eq!(design, "set-4");
        // Nearly the fastest, and hits more often; or less, or not nearly.
        let with = |measured, ns| {
            let other = Cell { measured, ..cell("blp-2-8", large, 20.1, None) };
            reason(&[few[1].clone(), other], &[("set-4", 20.0), ("blp-2-8", ns)]).1
        };
        assert_eq!(with(0.95, 20.3), "blp-2-8");
        assert_eq!(with(0.85, 20.3), "set-4");
        assert_eq!(with(0.9003, 20.3), "set-4");
        assert_eq!(with(0.95, 20.5), "set-4");

        // A smaller size, whose tried design is not the one that is within 2 %.
        let more = [
            cell("set-4", small, 20.3, None),
            cell("set-8", small, 24.0, None),
            cell("set-8", large, 20.0, None),
        ];
        let (text, design) = reason(&more, &[("set-4", 25.0), ("set-8", 22.0)]);
        assert!(design == "set-8" && text.contains("has a design within 2 %"), "{text}");
        assert!(text.contains("fastest of the designs that were tried"), "{text}");
        let (text, _) = reason(&more, &[]);
        assert!(!text.contains("tried") && text.contains("has a design within 2 %"), "{text}");
    }

    #[test]
    fn the_reason_says_where_larger_sizes_are_missing() {
        let cells = [cell("set-4", 1024, 30.0, None), cell("set-4", 2048, 20.0, None)];
        let reason = |largest| recommend(&cells, &size(&cells), largest).reason;
        assert!(reason(Some(2048)).contains("the largest size that was looked at"));
        for largest in [None, Some(4096)] {
            assert!(!reason(largest).contains("largest"), "{largest:?}");
        }
    }
}
