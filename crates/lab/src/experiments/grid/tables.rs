//! The grid as tables and plots.

use super::{Against, BASELINE, against, best_of_paper, chosen, faster, in_grid};
use overbank_kit::experiment::{Plot, Series, Table};
use overbank_kit::micro::gather::times;
use overbank_kit::micro::{Cell, Measured, Row, Way};
use overbank_kit::recommended::RECOMMENDED;
use overbank_kit::spread::Spread;

pub(super) fn head(measured: &Measured) -> Vec<String> {
    let cell = &measured.cell;
    vec![cell.size(), cell.theta.to_string(), cell.alpha.to_string()]
}

pub(super) fn headings(more: &[&str]) -> Vec<String> {
    ["size", "θ", "α"].iter().chain(more).map(|&s| s.to_owned()).collect()
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

pub(super) fn ratios(all: &[Measured]) -> Table {
    let mut table = Table::new(
        "Ours, chosen by the trial, against the best of the paper's designs in each cell (ratios: of the \
         same round, median and range)",
        headings(&[
            "best of the paper",
            "M/s",
            "ours",
            "M/s",
            "ratio",
            "to blp-2-4",
            "all ahead: ratio",
            "all ahead: to blp-2-4",
            "hits",
            "of optimum",
        ]),
    );
    for m in all {
        let measured = best_of_paper(m).zip(chosen(m)).zip(against(m, Way::Alone));
        let Some(((best, ours), alone)) = measured else { continue };
        let ahead = against(m, Way::Ahead);
        let text =
            |of: fn(&Against) -> Spread| ahead.as_ref().map_or(String::new(), |a| of(a).text());
        table.row(head(m).into_iter().chain([
            best.design.to_string(),
            format!("{:.1}", best.throughput.median),
            ours.name(),
            format!("{:.1}", ours.throughput.median),
            alone.best.text(),
            alone.baseline.text(),
            text(|ahead| ahead.best),
            text(|ahead| ahead.baseline),
            percent(ours.hit_rate),
            format!("{:.4}", ours.hit_rate / m.cell.static_optimum()),
        ]));
    }
    table
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
    let mut table = Table::new(title, headings(&names.iter().map(|s| &**s).collect::<Vec<_>>()));
    for m in all {
        let of = |name| m.row_of(name, way).map_or_else(String::new, |r| value(m, r));
        table.row(head(m).into_iter().chain(names.iter().map(|name| of(name))));
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
        let ns = row.lookup_ns.median;
        format!(
            "{:.1} ({ns:.1}, {})",
            row.throughput.median,
            times(m.to_floor(row, |round| round.lookup_ns).map(|multiple| multiple.median))
        )
    })
}

/// One plot per size and θ: throughput relative to the best of the paper's designs.
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
