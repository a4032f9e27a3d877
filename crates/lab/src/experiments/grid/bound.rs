//! What can be had at all: an ideal cache in each cell.
//!
//! It holds exactly the most popular flows (the static optimum), never has to insert, and a lookup
//! costs what the gather kernel costs (the cheaper of bursts alone and ahead), which compares nothing. No cache of this size is faster under
//! draws that are independent. A second bound is nearer to what can be built: the same hit rate at the
//! cost of the cheapest verified lookup that was measured in the cell, with any design in either way. The ideal is
//! known only where the kernel's memory lay on the same pages as the tables that it is held against.

use super::tables::{head, headings};
use super::{BASELINE, chosen, in_grid, to_baseline};
use overbank_kit::experiment::{Check, Table};
use overbank_kit::micro::gather::OTHER_PAGES;
use overbank_kit::micro::{Measured, Row};
use overbank_kit::spread::{Spread, geometric_mean};

/// For the notes of the record.
pub const NOTE: &str = "An ideal cache holds exactly the most popular flows and looks up at the cost of \
     the gather kernel; where flows are many times the slots its misses cost as much as everybody's, \
     so no cache can be much faster than 2-4 BLP there.";

/// Ratios of throughputs in a cell: medians of those of the same round.
struct Bound {
    /// With lookups at the cost of the gather kernel; `None` where that is no floor of the two tables.
    ideal: Option<Ratios>,
    /// At that of the cheapest verified lookup.
    buildable: Ratios,
    /// Ours to 2-4 BLP.
    ours: f64,
}

/// A bound against what was measured.
#[derive(Clone, Copy)]
struct Ratios {
    /// The bound to 2-4 BLP.
    to_baseline: f64,
    /// Ours to the bound.
    reached: f64,
}

fn bound(m: &Measured, penalty_ns: f64) -> Option<Bound> {
    let penalty = (1.0 - m.cell.static_optimum()) * penalty_ns;
    let measured = m.rows.iter().chain(&m.ahead);
    let cheapest = measured.min_by(|a, b| a.lookup_ns.median.total_cmp(&b.lookup_ns.median))?;
    let (baseline, ours) = (m.row(BASELINE)?, chosen(m)?);
    let rates = |row: &Row| row.rounds.iter().map(|r| r.throughput).collect::<Vec<_>>();
    let ratios = |lookups: Vec<f64>| {
        let bounds = || lookups.iter().map(|ns| 1000.0 / (ns + penalty));
        Ratios {
            to_baseline: Spread::of_ratios(bounds(), rates(baseline)).median,
            reached: Spread::of_ratios(rates(ours), bounds()).median,
        }
    };
    let has_floor = m.has_floor(baseline) && m.has_floor(ours);
    Some(Bound {
        ideal: has_floor.then(|| ratios(m.floor_rounds.clone())),
        buildable: ratios(cheapest.rounds.iter().map(|r| r.lookup_ns).collect()),
        ours: to_baseline(m, ours)?.median,
    })
}

/// The bounds of every cell, to 2-4 BLP, and the share of them that we reach.
pub fn table(all: &[Measured], penalty_ns: f64) -> Table {
    let mut table = Table::new(
        "Of what an ideal cache could give: static optimum, lookup at the cost of the gather kernel",
        headings(&[
            "ideal to blp-2-4",
            "at the cheapest lookup",
            "ours to blp-2-4",
            "ours of the ideal",
            "of the cheapest lookup",
        ]),
    );
    for (m, b) in all.iter().filter_map(|m| Some((m, bound(m, penalty_ns)?))) {
        let text = |x: Option<f64>| x.map_or(OTHER_PAGES.to_owned(), |x| format!("{x:.3}"));
        let figures = [
            b.ideal.map(|ideal| ideal.to_baseline),
            Some(b.buildable.to_baseline),
            Some(b.ours),
            b.ideal.map(|ideal| ideal.reached),
            Some(b.buildable.reached),
        ];
        table.row(head(m).into_iter().chain(figures.map(text)));
    }
    table
}

/// Whether the target of the geometric mean can be reached at all, and how much of it is. `None` where
/// the ideal is not known in every cell: a mean of others says nothing of the grid.
pub fn check(all: &[Measured], penalty_ns: f64) -> Option<Check> {
    let bounds: Vec<Bound> =
        all.iter().filter(|m| in_grid(&m.cell)).filter_map(|m| bound(m, penalty_ns)).collect();
    let ideals: Vec<Ratios> = bounds.iter().map(|b| b.ideal).collect::<Option<_>>()?;
    let mean = |of: fn(&Bound) -> f64| geometric_mean(bounds.iter().map(of));
    let ideal = geometric_mean(ideals.iter().map(|ideal| ideal.to_baseline));
    let buildable = mean(|b| b.buildable.to_baseline);
    let (reached, cheapest) =
        (geometric_mean(ideals.iter().map(|ideal| ideal.reached)), mean(|b| b.buildable.reached));
    Some(Check::new(
        "Of what an ideal cache could give: its throughput to 2-4 BLP, geometric mean over the grid",
        "at least 1.5, or the target above cannot be met",
        format!(
            "{ideal:.3}, of which {reached:.3} are reached; {buildable:.3} at the cheapest lookup \
             measured, of which {cheapest:.3}"
        ),
        ideal >= 1.5,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank::memory::HugePages;
    use overbank_kit::micro::Cell;
    use overbank_kit::micro::made_up;
    use overbank_kit::recommended::RECOMMENDED;

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
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} for {b}");
        let ideal = b.ideal.unwrap();
        near(ideal.to_baseline, 1000.0 / 104.0 / 5.0);
        near(ideal.reached, 8.0 / (1000.0 / 104.0));
        near(b.buildable.to_baseline, 1000.0 / 106.0 / 5.0);
        near(b.buildable.reached, 8.0 / (1000.0 / 106.0));
        near(b.ours, 1.6);
        let check = check(std::slice::from_ref(&m), 200.0).unwrap();
        assert!(check.holds && check.measured.starts_with("1.923"), "{check:?}");
        assert_eq!(table(&[m], 200.0).rows[0][3..], ["1.923", "1.887", "1.600", "0.832", "0.848"]);
        assert!(table(&[measured(4.0, &[("blp-2-4", 10.0, 5.0)])], 200.0).rows.is_empty());
    }

    #[test]
    fn the_ideal_is_not_known_where_the_kernel_lay_on_other_pages() {
        let rows = [("blp-2-4", 10.0, 5.0), ("set-4", 9.0, 5.0), (RECOMMENDED, 6.0, 8.0)];
        let alike = measured(4.0, &rows);
        for (small, known) in [(0, false), (1, true), (2, false)] {
            let mut m = alike.clone();
            m.rows[small].huge_pages = HugePages::No;
            let check = check(&[alike.clone(), m.clone()], 200.0);
            assert_eq!(check.is_some(), known, "{}", m.rows[small].design);
            let row = &table(&[m], 200.0).rows[0][3..];
            let ideal = if known { ["1.923", "0.832"] } else { [OTHER_PAGES; 2] };
            assert_eq!([&*row[0], &*row[3]], ideal);
            assert_eq!(row[1..3], ["1.887", "1.600"], "what needs no floor stays");
        }
    }
}
