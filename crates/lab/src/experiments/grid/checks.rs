//! The targets of the grid.

use super::tables::percent;
use super::{BASELINE, best_of_paper, geometric_mean, in_grid, is_target, ratio};
use crate::experiment::Check;
use crate::micro::{Cell, Measured};
use overbank::cache::Design;

pub(super) fn checks(all: &[Measured], ours: Design, bare: Design, smoke: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    let name = ours.to_string();
    // Hit rates hold at any size; times of the smoke size say nothing.
    for m in all.iter().filter(|m| m.cell.theta == 0.0 && m.cell.alpha == 0.95) {
        let Some(row) = m.row(&name) else { continue };
        checks.push(Check {
            claim: format!("{}, uniform, α = 0.95: hit rate", m.cell.size()),
            stated: "at least 98 %".into(),
            measured: percent(row.hit_rate),
            // A smoke table has few buckets and little time to fill.
            holds: row.hit_rate >= if smoke { 0.97 } else { 0.98 },
        });
        if let Some(ratio) = ratio(m, &name, BASELINE).filter(|_| !smoke) {
            checks.push(Check {
                claim: format!("{}, uniform, α = 0.95: throughput to 2-4 BLP", m.cell.size()),
                stated: "at least 2".into(),
                measured: format!("{ratio:.3}"),
                holds: ratio >= 2.0,
            });
        }
    }
    let is_target = |m: &&Measured| is_target(&m.cell);
    for m in all.iter().filter(is_target) {
        let Some(row) = m.row(&name) else { continue };
        let share = row.hit_rate / m.cell.static_optimum();
        let Cell { alpha, theta, .. } = m.cell;
        if smoke {
            let base = m.row(BASELINE).map_or(0.0, |row| row.hit_rate);
            checks.push(Check {
                claim: format!("α = {alpha}, θ = {theta}: hit rate above 2-4 BLP's"),
                stated: percent(base),
                measured: percent(row.hit_rate),
                holds: row.hit_rate > base,
            });
            continue;
        }
        checks.push(Check {
            claim: format!("{}, α = {alpha}, θ = {theta}: of the static optimum", m.cell.size()),
            stated: "at least 0.975".into(),
            measured: format!("{share:.4}"),
            holds: share >= 0.975,
        });
    }
    if smoke {
        return checks;
    }

    let grid = || all.iter().filter(|m| in_grid(&m.cell));
    let worst = grid()
        .filter_map(|m| Some((ratio(m, &name, &best_of_paper(m)?.design.to_string())?, m)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((ratio, m)) = worst {
        checks.push(Check {
            claim: "Never behind: throughput to the best of the paper's designs, worst cell".into(),
            stated: "at least 0.97".into(),
            measured: format!(
                "{ratio:.3} ({}, α = {}, θ = {})",
                m.cell.size(),
                m.cell.alpha,
                m.cell.theta
            ),
            holds: ratio >= 0.97,
        });
    }
    let mean = geometric_mean(grid().filter_map(|m| ratio(m, &name, BASELINE)));
    checks.push(Check {
        claim: "Throughput to 2-4 BLP with random eviction, geometric mean over the grid".into(),
        stated: "at least 1.5".into(),
        measured: format!("{mean:.3}"),
        holds: mean >= 1.5,
    });
    if ours != bare {
        let bare = bare.to_string();
        let extra = |m: &&Measured| {
            let (a, b) = (m.row(&name)?, m.row(&bare)?);
            Some(a.lookup_ns.median / b.lookup_ns.median)
        };
        let cost = geometric_mean(all.iter().filter(is_target).filter_map(|m| extra(&m))) - 1.0;
        checks.push(Check {
            claim: "Promotion under skew: added to the cost of a lookup".into(),
            stated: "less than 20 %".into(),
            measured: format!("{:.1} %", 100.0 * cost),
            holds: cost < 0.2,
        });
    }
    checks
}
