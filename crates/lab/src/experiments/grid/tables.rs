//! The grid as tables and plots.

use super::{Against, BASELINE, against, best_of_paper, chosen, faster, in_grid};
use crate::prelude::*;
use overbank_kit::micro::gather::times;
use overbank_kit::micro::{Cell, Measured, Row, Way};

/// Returns a row for each of `items`, which begins with its cell.
pub(super) fn of_cells<T>(
    title: &str,
    items: impl IntoIterator<Item = T>,
    cell: impl Fn(&T) -> &Cell,
    columns: &[Column<'_, T>],
) -> Table {
    let head: [Column<'_, T>; 3] = [
        ("size", &|item| cell(item).size()),
        ("θ", &|item| cell(item).theta.to_string()),
        ("α", &|item| cell(item).alpha.to_string()),
    ];
    Table::of(title, items, &head.into_iter().chain(columns.iter().copied()).collect::<Vec<_>>())
}

pub(super) fn ratios(all: &[Measured]) -> Table {
    let measured = all
        .iter()
        .filter_map(|m| Some((m, best_of_paper(m)?, chosen(m)?, against(m, Way::Alone)?)));
    let ahead = |m: &Measured, of: fn(&Against) -> Spread| {
        against(m, Way::Ahead).map_or(String::new(), |ratios| of(&ratios).text())
    };
    of_cells(
        "Ours, chosen by the trial, against the best of the paper's designs in each cell (ratios: \
         of the same round, median and range)",
        measured,
        |(m, ..)| &m.cell,
        &[
            ("best of the paper", &|(_, best, ..)| best.design.to_string()),
            ("M/s", &|(_, best, ..)| format!("{:.1}", best.throughput.median)),
            ("ours", &|(_, _, ours, _)| ours.name()),
            ("M/s", &|(_, _, ours, _)| format!("{:.1}", ours.throughput.median)),
            ("ratio", &|(.., alone)| alone.best.text()),
            ("to blp-2-4", &|(.., alone)| alone.baseline.text()),
            ("all ahead: ratio", &|(m, ..)| ahead(m, |ratios| ratios.best)),
            ("all ahead: to blp-2-4", &|(m, ..)| ahead(m, |ratios| ratios.baseline)),
            ("hits", &|(_, _, ours, _)| percent(ours.hit_rate, 2)),
            ("of optimum", &|(m, _, ours, _)| {
                format!("{:.4}", ours.hit_rate / m.cell.static_optimum())
            }),
        ],
    )
}

fn by_design(
    all: &[Measured],
    way: Way,
    title: &str,
    value: impl Fn(&Measured, &Row) -> String,
) -> Table {
    // Some cells have more designs than others, after those that all have.
    let most = all.iter().map(|m| m.rows_of(way)).max_by_key(|rows| rows.len());
    let names: Vec<String> =
        most.unwrap_or_default().iter().map(|r| r.design.to_string()).collect();
    let mut table = of_cells(title, all, |m| &m.cell, &[]);
    table.headings.extend(names.iter().cloned());
    for (row, m) in table.rows.iter_mut().zip(all) {
        let of = |name: &String| m.row_of(name, way).map_or_else(String::new, |r| value(m, r));
        row.extend(names.iter().map(of));
    }
    table
}

pub(super) fn hits(all: &[Measured]) -> Table {
    by_design(all, Way::Alone, "Hit rate, % (in brackets: of the static optimum)", |m, row| {
        let optimum = m.cell.static_optimum();
        format!("{:.2} ({:.1})", 100.0 * row.hit_rate, 100.0 * row.hit_rate / optimum)
    })
}

pub(super) fn throughput(all: &[Measured], way: Way) -> Table {
    let title = match way {
        Way::Alone => {
            "Emulated throughput, M keys/s (in brackets: ns of a lookup, × the gather kernel)"
        }
        Way::Ahead => "The same, each burst asking for the next one",
    };
    by_design(all, way, title, |m, row| {
        let (rate, ns) = (row.throughput.median, row.lookup_ns.median);
        let multiple = m.to_floor(row, |round| round.lookup_ns).map(|multiple| multiple.median);
        format!("{rate:.1} ({ns:.1}, {})", times(multiple))
    })
}

/// Returns one plot per size and θ: throughput relative to the best of the paper's designs.
pub(super) fn plots(all: &[Measured]) -> Vec<Plot> {
    let grid: Vec<&Measured> = all.iter().filter(|m| in_grid(&m.cell)).collect();
    let same = |a: &Cell, b: &Cell| a.entries == b.entries && a.theta == b.theta;
    let plot = |group: &[&Measured]| {
        let curve = |name: &str, row: &dyn for<'a> Fn(&'a Measured) -> Option<&'a Row>| {
            let points = group
                .iter()
                .filter_map(|m| Some((m.cell.alpha, faster(row(m)?, best_of_paper(m)?).median)));
            Series::measured(name, points.collect())
        };
        let cell = group[0].cell;
        let names = ["set-8", "cuckoo-2-4", BASELINE, "blp-2-4+pblru", RECOMMENDED];
        let curves = names.iter().map(|name| curve(name, &|m| m.row(name)));
        let title = format!("{}, θ = {}", cell.size(), cell.theta);
        let y = "throughput to the paper's best of that cell";
        Plot::new(title, "oversubscription α (flows per slot)", y)
            .with(curves.chain([curve("ours, by trial", &chosen)]))
    };
    grid.chunk_by(|a, b| same(&a.cell, &b.cell)).map(plot).collect()
}
