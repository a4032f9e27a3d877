//! Which table to recommend, and the figures that say why.

use super::{Cell, Recommendation};
use overbank_kit::recommended::RECOMMENDED;

/// Sizes and designs within this factor of the best are as good: two per cent more or less in a
/// trial are chance, as in the lab's grid.
pub(super) const AS_GOOD: f64 = 1.02;

const RULE: &str = "The smallest size that has a design within 2 % of the best estimate. Of its \
                    designs, of those that were tried if any were, within 2 % of the fastest: the \
                    one recommended for any traffic, or else the one that hits most often.";

pub(super) struct Size {
    pub(super) entries: usize,
    best: Cell,
}

fn fastest<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> Option<&'a Cell> {
    cells.into_iter().min_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet))
}

/// Chooses the smallest size that is good enough. There is at least one cell.
pub(super) fn size(cells: &[Cell]) -> Size {
    let best = fastest(cells).expect("at least one design at one size").clone();
    let good = |cell: &&Cell| cell.ns_per_packet <= best.ns_per_packet * AS_GOOD;
    let entries = cells.iter().filter(good).map(|c| c.entries).min().unwrap_or(best.entries);
    Size { entries, best }
}

/// Chooses the design at a size. Of hit rates that are the same to a tenth of a point, the fastest.
pub fn design(cells: &[Cell], entries: usize) -> Option<&Cell> {
    let of_size: Vec<&Cell> = cells.iter().filter(|c| c.entries == entries).collect();
    let any_tried = of_size.iter().any(|c| c.lookup_ns.is_some());
    let judged = of_size.into_iter().filter(|c| c.lookup_ns.is_some() == any_tried);
    let limit = fastest(judged.clone())?.ns_per_packet * AS_GOOD;
    let tenths = |c: &Cell| (c.measured * 1000.0).round();
    judged.filter(|c| c.ns_per_packet <= limit).min_by(|a, b| {
        let known = (b.design == RECOMMENDED).cmp(&(a.design == RECOMMENDED));
        let more = known.then(tenths(b).total_cmp(&tenths(a)));
        more.then(a.ns_per_packet.total_cmp(&b.ns_per_packet))
    })
}

/// Recommends a design of that size. `largest` is the largest size looked at, if there are flows
/// for a larger one.
pub(super) fn recommend(cells: &[Cell], size: &Size, largest: Option<usize>) -> Recommendation {
    let Size { entries, ref best } = *size;
    let chosen = design(cells, entries).unwrap_or(best);
    let figures = |what: &str, c: &Cell, than: &Cell| {
        let more = 100.0 * (c.ns_per_packet / than.ns_per_packet - 1.0);
        let (design, entries, ns) = (&c.design, c.entries, c.ns_per_packet);
        let hits = 100.0 * c.measured;
        format!("{what}: {design} with {entries} entries, {hits:.2} %, {ns:.1} ns ({more:+.1} %).")
    };
    let mut reason = vec![
        RULE.to_owned(),
        figures("Chosen", chosen, chosen),
        figures("Best estimate of all", best, best),
    ];
    reason.push(match fastest(cells.iter().filter(|c| c.entries * 2 == entries)) {
        Some(half) => figures("With half the entries", half, best),
        None => "No smaller size was looked at.".to_owned(),
    });
    if largest == Some(entries) {
        reason.push("No larger size was looked at: one may be better.".to_owned());
    }
    let mut of_size: Vec<&Cell> = cells.iter().filter(|c| c.entries == entries).collect();
    if let Some(known) =
        of_size.iter().find(|c| c.design == RECOMMENDED && chosen.design != RECOMMENDED)
    {
        reason.push(figures("The choice for traffic that is not known", known, chosen));
    }
    of_size.sort_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
    let lookup = |c: &&Cell| Some(format!("{} {:.1}", c.design, c.lookup_ns?));
    let tried: Vec<String> = of_size.iter().filter_map(lookup).collect();
    if !tried.is_empty() {
        let tried = tried.join(", ");
        reason.push(format!("Tried here with this traffic, ns a lookup, best first: {tried}."));
    }
    Recommendation {
        design: chosen.design.clone(),
        entries,
        table_bytes: chosen.table_bytes,
        hit_rate: chosen.measured,
        ns_per_packet: chosen.ns_per_packet,
        reason: reason.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(design: &str, entries: usize, ns_per_packet: f64) -> Cell {
        Cell {
            design: design.to_owned(),
            entries,
            table_bytes: 4 * entries,
            alpha: 1.0,
            predicted: None,
            tolerance: 0.01,
            measured: 0.9,
            ns_per_packet,
            lookup_ns: None,
        }
    }

    /// Trials change what a packet takes; of the designs that are tried, one is chosen.
    #[test]
    fn the_known_one_of_the_fastest_or_else_the_one_that_hits_most() {
        let (small, large) = (1024, 2048);
        let few = [
            cell("set-4", small, 30.0),
            cell("set-4", large, 20.0),
            cell(RECOMMENDED, large, 20.09),
        ];
        let hits = |measured| {
            let other = Cell { measured, ..cell("blp-2-8", large, 20.1) };
            [few[1].clone(), other]
        };
        let sizes =
            [cell("set-4", small, 20.3), cell("set-8", small, 24.0), cell("set-8", large, 20.0)];
        for (cells, trials, chosen) in [
            (&few[..], &[][..], (RECOMMENDED, large)),
            (&few[..2], &[], ("set-4", large)),
            (&few, &[("set-4", 20.0), (RECOMMENDED, 22.0)], ("set-4", large)),
            (&few, &[("set-4", 20.0), (RECOMMENDED, 20.38)], (RECOMMENDED, large)),
            (&few, &[("set-4", 20.0), (RECOMMENDED, 20.42)], ("set-4", large)),
            (&hits(0.95), &[("set-4", 20.0), ("blp-2-8", 20.3)], ("blp-2-8", large)),
            (&hits(0.85), &[("set-4", 20.0), ("blp-2-8", 20.3)], ("set-4", large)),
            (&hits(0.9003), &[("set-4", 20.0), ("blp-2-8", 20.3)], ("set-4", large)),
            (&hits(0.95), &[("set-4", 20.0), ("blp-2-8", 20.5)], ("set-4", large)),
            // A smaller size, whose tried design is not the one that is within 2 %.
            (&sizes, &[("set-4", 25.0), ("set-8", 22.0)], ("set-8", small)),
            (&sizes, &[], ("set-4", small)),
        ] {
            let mut cells = cells.to_vec();
            let size = size(&cells);
            for (design, ns) in trials {
                let of_size = |c: &&mut Cell| (c.entries, &*c.design) == (size.entries, *design);
                let cell = cells.iter_mut().find(of_size).unwrap();
                (cell.ns_per_packet, cell.lookup_ns) = (*ns, Some(1.0));
            }
            let found = recommend(&cells, &size, None);
            assert_eq!((&*found.design, found.entries), chosen, "{trials:?}: {}", found.reason);
            assert_eq!(found.reason.contains("Tried here"), !trials.is_empty(), "{}", found.reason);
            let first = format!("{RULE} Chosen: {} with {} entries", chosen.0, chosen.1);
            assert!(found.reason.starts_with(&first), "{}", found.reason);
        }
    }

    #[test]
    fn the_reason_has_the_figures_of_the_neighbours() {
        let cells =
            [cell("set-4", 1024, 30.0), cell("set-4", 2048, 20.0), cell(RECOMMENDED, 2048, 25.0)];
        let reason = |largest| recommend(&cells, &size(&cells), largest).reason;
        let text = reason(Some(2048));
        for part in [
            "half the entries: set-4 with 1024 entries, 90.00 %, 30.0 ns (+50.0 %).",
            "No larger size was looked at",
            &format!("not known: {RECOMMENDED} with 2048 entries, 90.00 %, 25.0 ns (+25.0 %)."),
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for largest in [None, Some(4096)] {
            assert!(!reason(largest).contains("No larger size"), "{largest:?}");
        }
        let only = recommend(&cells[..1], &size(&cells[..1]), None).reason;
        assert!(only.contains("No smaller size") && !only.contains("not known"), "{only}");
    }
}
