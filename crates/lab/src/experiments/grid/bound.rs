//! The most that any cache could reach: an ideal one in each cell.
//!
//! [`NOTE`] says what that is. A second bound is nearer to what can be built: the same hit rate at
//! the cost of the cheapest verified lookup that was measured in the cell, with any design in
//! either way. The ideal is known only where the kernel's memory lay on the same pages as the
//! tables.

use super::tables::of_cells;
use super::{BASELINE, chosen, faster};
use crate::prelude::*;
use overbank_kit::micro::gather::OTHER_PAGES;
use overbank_kit::micro::{Measured, Row};

pub(super) const NOTE: &str = "An ideal cache holds exactly the most popular flows (the static \
     optimum) and looks up at the cost of the gather kernel; where flows are many times the slots \
     its misses cost as much as any cache's, so none can be much faster than 2-4 BLP there.";

/// Ratios of throughputs in a cell: medians of those of the same round.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    /// With lookups at the cost of the gather kernel; `None` where that is no floor of the two
    /// tables.
    ideal: Option<Ratios>,
    /// At that of the cheapest verified lookup.
    buildable: Ratios,
    ours: f64,
}

/// A bound against what was measured.
#[derive(Clone, Copy)]
struct Ratios {
    to_baseline: f64,
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
        ours: faster(ours, baseline).median,
    })
}

pub(super) fn bounds(all: &[Measured], penalty_ns: f64) -> Vec<(&Measured, Bound)> {
    all.iter().filter_map(|m| Some((m, bound(m, penalty_ns)?))).collect()
}

/// Returns the bounds of every cell, to 2-4 BLP, and the share of them that we reach.
pub(super) fn table(bounds: &[(&Measured, Bound)]) -> Table {
    let text = |x: Option<f64>| x.map_or(OTHER_PAGES.to_owned(), |x| format!("{x:.3}"));
    of_cells(
        "Of what an ideal cache could give: static optimum, lookup at the cost of the gather \
         kernel",
        bounds,
        |(m, _)| &m.cell,
        &[
            ("ideal to blp-2-4", &|(_, b)| text(b.ideal.map(|ideal| ideal.to_baseline))),
            ("at the cheapest lookup", &|(_, b)| text(Some(b.buildable.to_baseline))),
            ("ours to blp-2-4", &|(_, b)| text(Some(b.ours))),
            ("ours of the ideal", &|(_, b)| text(b.ideal.map(|ideal| ideal.reached))),
            ("of the cheapest lookup", &|(_, b)| text(Some(b.buildable.reached))),
        ],
    )
}

/// Whether the target of the geometric mean can be reached at all, and how much of it is; not where
/// the ideal is not known in every cell: a mean of others says nothing of the grid.
pub(super) const CLAIMS: &[Claim<Vec<Bound>>] = &[Claim::timed(
    "Of what an ideal cache could give: its throughput to 2-4 BLP, geometric mean over the grid",
    "at least 1.5, or the target above cannot be met",
    |bounds| {
        let ideals: Vec<Ratios> = bounds.iter().map(|b| b.ideal).collect::<Option<_>>()?;
        let means = |of: &[Ratios]| {
            let reached = geometric_mean(of.iter().map(|ratios| ratios.reached));
            [geometric_mean(of.iter().map(|ratios| ratios.to_baseline)), reached]
        };
        let [ideal, reached] = means(&ideals);
        let [buildable, cheapest] = means(&bounds.iter().map(|b| b.buildable).collect::<Vec<_>>());
        let measured = format!(
            "{ideal:.3}, of which {reached:.3} are reached; {buildable:.3} at the cheapest lookup \
             measured, of which {cheapest:.3}"
        );
        Finding::new(ideal >= 1.5, measured)
    },
)];
