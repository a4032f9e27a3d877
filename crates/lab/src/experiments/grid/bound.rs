//! What can be had at all: an ideal cache in each cell.
//!
//! It holds exactly the most popular flows (the static optimum), never has to insert, and a lookup
//! costs what the gather kernel costs, which compares nothing. No cache of this size is faster under
//! draws that are independent. A second bound is nearer to what can be built: the same hit rate at the
//! cost of the cheapest verified lookup that was measured in the cell, with any design.

use super::tables::{head, headings};
use super::{BASELINE, chosen, geometric_mean, in_grid};
use crate::experiment::{Check, Table};
use crate::micro::Measured;

/// For the notes of the record.
pub const NOTE: &str = "An ideal cache holds exactly the most popular flows and looks up at the cost of \
     the gather kernel; where flows are many times the slots its misses cost as much as everybody's, \
     so no cache can be much faster than 2-4 BLP there.";

/// Bounds of a cell in million keys a second, and what was measured.
struct Bound {
    /// At the cost of the gather kernel.
    ideal: f64,
    /// At that of the cheapest verified lookup.
    buildable: f64,
    baseline: f64,
    ours: f64,
}

fn bound(m: &Measured, penalty_ns: f64) -> Option<Bound> {
    let penalty = (1.0 - m.cell.static_optimum()) * penalty_ns;
    let cheapest = m.rows.iter().map(|row| row.lookup_ns.median).min_by(f64::total_cmp)?;
    let rate = |name| m.row(name).map(|row| row.throughput.median);
    Some(Bound {
        ideal: 1000.0 / (m.floor_ns.median + penalty),
        buildable: 1000.0 / (cheapest + penalty),
        baseline: rate(BASELINE)?,
        ours: chosen(m)?.throughput.median,
    })
}

/// The bounds of every cell, to 2-4 BLP, and the share of them that we reach.
pub fn table(all: &[Measured], penalty_ns: f64) -> Table {
    let more = [
        "ideal to blp-2-4",
        "at the cheapest lookup",
        "ours to blp-2-4",
        "ours of the ideal",
        "of the cheapest lookup",
    ];
    let rows = all.iter().filter_map(|m| {
        let b = bound(m, penalty_ns)?;
        let mut row = head(m);
        let figures = [
            b.ideal / b.baseline,
            b.buildable / b.baseline,
            b.ours / b.baseline,
            b.ours / b.ideal,
            b.ours / b.buildable,
        ];
        row.extend(figures.map(|x| format!("{x:.3}")));
        Some(row)
    });
    Table {
        title:
            "Of what an ideal cache could give: static optimum, lookup at the cost of the gather \
                kernel"
                .into(),
        headings: headings(&more),
        rows: rows.collect(),
    }
}

/// Whether the target of the geometric mean can be reached at all, and how much of it is.
pub fn check(all: &[Measured], penalty_ns: f64) -> Check {
    let bounds: Vec<Bound> =
        all.iter().filter(|m| in_grid(&m.cell)).filter_map(|m| bound(m, penalty_ns)).collect();
    let mean = |of: fn(&Bound) -> f64| geometric_mean(bounds.iter().map(of));
    let (ideal, buildable) = (mean(|b| b.ideal / b.baseline), mean(|b| b.buildable / b.baseline));
    Check {
        claim:
            "Of what an ideal cache could give: its throughput to 2-4 BLP, geometric mean over the \
                grid"
                .into(),
        stated: "at least 1.5, or the target above cannot be met".into(),
        measured: format!(
            "{ideal:.3}, of which {:.3} are reached; {buildable:.3} at the cheapest lookup measured, of \
             which {:.3}",
            mean(|b| b.ours / b.ideal),
            mean(|b| b.ours / b.buildable)
        ),
        holds: ideal >= 1.5,
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::*;
    use crate::micro::Cell;
    use crate::recommended::RECOMMENDED;

    fn measured(floor: f64, rows: &[(&str, f64, f64)]) -> Measured {
        let cell = Cell { entries: 1000, alpha: 2.0, theta: 0.0 };
        let rows: Vec<_> = rows.iter().map(|&(name, ns, rate)| (name, (0.5, ns, rate))).collect();
        made_up::measured(cell, floor, &rows)
    }

    #[test]
    fn an_ideal_cache_pays_for_its_misses_and_the_floor() {
        // Half of the keys miss: 100 ns of 200.
        let m = measured(4.0, &[("blp-2-4", 10.0, 5.0), (RECOMMENDED, 6.0, 8.0)]);
        let b = bound(&m, 200.0).unwrap();
        assert!((b.ideal - 1000.0 / 104.0).abs() < 1e-9);
        assert!((b.buildable - 1000.0 / 106.0).abs() < 1e-9);
        assert_eq!((b.baseline, b.ours), (5.0, 8.0));
        let check = check(std::slice::from_ref(&m), 200.0);
        assert!(check.holds && check.measured.starts_with("1.923"), "{check:?}");
        assert_eq!(table(&[m], 200.0).rows[0][3..], ["1.923", "1.887", "1.600", "0.832", "0.848"]);
        assert!(table(&[measured(4.0, &[("blp-2-4", 10.0, 5.0)])], 200.0).rows.is_empty());
    }
}
