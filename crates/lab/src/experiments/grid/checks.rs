//! The targets of the grid.

use super::bound::{self, Bound};
use super::{Against, BASELINE, against, chosen, in_grid, is_target, plain};
use crate::prelude::*;
use overbank_kit::micro::{Cell, Measured, Way};

/// Nearly full, without skew.
const NEARLY_FULL: &[Claim<Measured>] = &[
    Claim::new("hit rate", "at least 98 %", |m| {
        // A table of the smoke size has few buckets and little time to fill, and its trial says
        // nothing.
        let small = m.cell.entries < 1 << 18;
        let row = if small { m.row(RECOMMENDED) } else { chosen(m) }?;
        Finding::new(row.hit_rate >= if small { 0.97 } else { 0.98 }, percent(row.hit_rate, 2))
    }),
    Claim::timed("throughput to 2-4 BLP", "at least 2", |m| {
        Finding::at_least(2.0, against(m, Way::Alone)?.baseline)
    }),
    Claim::timed("throughput to 2-4 BLP (all ahead)", "at least 2", |m| {
        Finding::at_least(2.0, against(m, Way::Ahead)?.baseline)
    }),
];

/// At smoke size: promotion wins something.
const PROMOTED: &[Claim<Measured>] = &[Claim::new("hit rate above 2-4 BLP's", "any", |m| {
    let (rate, base) = (m.row(RECOMMENDED)?.hit_rate, m.row(BASELINE)?.hit_rate);
    Finding::new(rate > base, format!("{} and {}", percent(rate, 2), percent(base, 2)))
})];

const OPTIMUM: &[Claim<Measured>] =
    &[Claim::timed("of the static optimum", "at least 0.975", |m| {
        let share = m.row(RECOMMENDED)?.hit_rate / m.cell.static_optimum();
        Finding::new(share >= 0.975, format!("{share:.4}"))
    })];

/// Against the chosen design's own geometry with random eviction, looked up the same way.
const PRICE: &[Claim<Measured>] = &[Claim::timed(
    "what promotion adds to a lookup of the design chosen there",
    "less than 20 %",
    |m| {
        let ours = chosen(m)?;
        let bare = plain(ours.design).ok()?;
        let name = ours.name();
        match m.row_of(&bare.to_string(), ours.way) {
            _ if bare == ours.design => Finding::new(true, format!("0 %: {name} has no promotion")),
            None => Finding::new(false, format!("{bare} was not measured")),
            Some(bare) => {
                let cost = ours.to(bare, |round| round.lookup_ns);
                Finding::new(cost.median < 1.2, format!("{name}: {}", cost.change().percent()))
            }
        }
    },
)];

/// Returns the ratios of the grid's cells where that way was measured.
fn over_the_grid(all: &[Measured], theirs: Way) -> Vec<(Against, &Measured)> {
    let grid = all.iter().filter(|m| in_grid(&m.cell));
    grid.filter_map(|m| Some((against(m, theirs)?, m))).collect()
}

fn worst(all: &[Measured], theirs: Way) -> Option<Finding> {
    let cells = over_the_grid(all, theirs);
    let (Against { best, .. }, m) =
        cells.iter().min_by(|a, b| a.0.best.median.total_cmp(&b.0.best.median))?;
    Finding::new(best.median >= 0.97, format!("{} in {}", best.text(), place(&m.cell)))
}

fn mean(all: &[Measured], theirs: Way) -> Option<Finding> {
    let cells = over_the_grid(all, theirs);
    let mean = geometric_mean(cells.iter().map(|(ratios, _)| ratios.baseline.median));
    Finding::new(mean >= 1.5, format!("{mean:.3}")).filter(|_| !cells.is_empty())
}

const GRID: &[Claim<[Measured]>] = &[
    Claim::timed(
        "Never behind: throughput to the best of the paper's designs, worst cell",
        "at least 0.97",
        |all| worst(all, Way::Alone),
    ),
    Claim::timed(
        "Throughput to 2-4 BLP with random eviction, geometric mean over the grid",
        "at least 1.5",
        |all| mean(all, Way::Alone),
    ),
    Claim::timed(
        "Never behind: throughput to the best of the paper's designs, worst cell (all ahead)",
        "at least 0.97",
        |all| worst(all, Way::Ahead),
    ),
    Claim::timed(
        "Throughput to 2-4 BLP with random eviction, geometric mean over the grid (all ahead)",
        "at least 1.5",
        |all| mean(all, Way::Ahead),
    ),
];

fn place(cell: &Cell) -> String {
    format!("{}, α = {}, θ = {}", cell.size(), cell.alpha, cell.theta)
}

pub(super) fn judge(record: &mut Record, all: &[Measured], bounds: &[(&Measured, Bound)]) {
    let targets = || all.iter().filter(|m| is_target(&m.cell));
    for m in all.iter().filter(|m| (m.cell.theta, m.cell.alpha) == (0.0, 0.95)) {
        record.judge(&format!("{}, uniform, α = 0.95", m.cell.size()), NEARLY_FULL, m);
    }
    for m in targets().filter(|_| record.size == Size::Smoke).collect::<Vec<_>>() {
        record.judge(&format!("α = {}, θ = {}", m.cell.alpha, m.cell.theta), PROMOTED, m);
    }
    targets().for_each(|m| {
        record.judge(&format!("{RECOMMENDED}, {}", place(&m.cell)), OPTIMUM, m);
    });
    record.judge("", GRID, all);
    targets().for_each(|m| record.judge(&place(&m.cell), PRICE, m));
    let bounds: Vec<Bound> =
        bounds.iter().filter(|(m, _)| in_grid(&m.cell)).map(|(_, bound)| *bound).collect();
    record.judge("", bound::CLAIMS, &bounds);
}
