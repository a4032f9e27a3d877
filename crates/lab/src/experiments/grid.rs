//! The grid: α × θ × size, the paper's designs against the one that we recommend.
//!
//! Each cell is one micro-benchmark ([`crate::micro`]) of all designs at once. The ratio of a cell
//! is the emulated throughput of the recommended design to the best of the paper's designs *in that
//! cell*: no single design of the paper is that good everywhere.

use crate::experiment::{Check, Context, Experiment, LabError, Plot, Record, Series, Table};
use crate::micro::{self, Cell, Measured, PENALTY_CYCLES, Plan, Row, measure_all, tsc};
use overbank::cache::{Design, PolicyKind};

/// The designs of the paper, with the policies that it names.
pub const PAPER: [&str; 10] = [
    "set-4",
    "set-8",
    "cuckoo-2-4",
    "blp-2-4",
    "set-4+pblru",
    "set-8+pblru",
    "cuckoo-2-4+pblru",
    "blp-2-4+pblru",
    "set-4+dc-bubble",
    "set-8+dc-bubble",
];

/// The paper's own choice, which ratios are given to.
pub const BASELINE: &str = "blp-2-4";

/// The design that we recommend.
pub const RECOMMENDED: &str = "cuckoo-2-16+half-bubble";

/// α of the grid.
pub const ALPHAS: [f64; 6] = [0.5, 0.75, 0.95, 1.25, 2.0, 3.0];
/// θ of the grid.
pub const THETAS: [f64; 3] = [0.0, 0.8, 0.99];
/// Sizes of the grid in MiB.
pub const MIB: [f64; 2] = [4.0, 64.0];

/// Where the hit rate under skew has a target, as (α, θ); the second is no cell of the grid.
const SKEW_TARGETS: [(f64, f64); 2] = [(3.0, 0.99), (1.5, 0.8)];

/// Work for a cell of that many entries: minutes for the whole grid.
pub fn plan(entries: usize) -> Plan {
    let large = entries > 1 << 22;
    Plan {
        warm_per_flow: 20.0,
        warm_max: if large { 96_000_000 } else { u64::MAX },
        keys: 1 << 18,
        rounds: 5,
        penalty_cycles: PENALTY_CYCLES,
    }
}

/// The grid's cells, by size, θ and α, and after them those that only the skew targets need.
fn cells(context: &Context<'_>) -> Vec<Cell> {
    if context.smoke() {
        let points = [(0.5, 0.0), (0.95, 0.0), (3.0, 0.99), (1.5, 0.8)];
        return points.map(|(alpha, theta)| Cell::mib(1.0 / 16.0, alpha, theta)).to_vec();
    }
    let mut cells = Vec::new();
    for mib in MIB {
        for theta in THETAS {
            cells.extend(ALPHAS.map(|alpha| Cell::mib(mib, alpha, theta)));
        }
    }
    cells.push(Cell::mib(MIB[0], 1.5, 0.8));
    cells
}

fn in_grid(cell: &Cell) -> bool {
    ALPHAS.contains(&cell.alpha)
}

/// The best of the paper's designs in a cell, by throughput.
pub fn best_of_paper(measured: &Measured) -> Option<&Row> {
    let of_paper = measured.rows.iter().filter(|r| PAPER.contains(&&*r.design.to_string()));
    of_paper.max_by(|a, b| a.throughput.median.total_cmp(&b.throughput.median))
}

/// Throughput of one design to that of another in a cell.
pub fn ratio(measured: &Measured, name: &str, to: &str) -> Option<f64> {
    let (a, b) = (measured.row(name)?, measured.row(to)?);
    Some(a.throughput.median / b.throughput.median)
}

/// Geometric mean; 1 of nothing.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) =
        values.into_iter().fold((0.0, 0u32), |(sum, count), v| (sum + v.ln(), count + 1));
    (sum / f64::from(count.max(1))).exp()
}

/// `name` as a design.
pub fn design(name: &str) -> Result<Design, LabError> {
    name.parse().map_err(|error| LabError::Failed(format!("{name}: {error}")))
}

/// The same geometry with random eviction.
fn plain(design: Design) -> Result<Design, LabError> {
    Design::new(design.geometry(), PolicyKind::Random)
        .map_err(|error| LabError::Failed(error.to_string()))
}

/// The grid.
pub const GRID: Experiment = Experiment {
    name: "grid",
    title: "the recommended cache against every design of the paper",
    source: "beyond the paper",
    run,
};

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let cycles_per_ns = tsc::cycles_per_ns();
    let ours = design(RECOMMENDED)?;
    let bare = plain(ours)?;
    let mut designs = micro::designs(&PAPER)?;
    designs.push(ours);
    if bare != ours {
        designs.push(bare);
    }

    let cells = cells(context);
    let smoke = context.smoke();
    let plan_of = |cell: &Cell| {
        if smoke {
            Plan { keys: 1 << 13, rounds: 3, ..plan(cell.entries) }
        } else {
            plan(cell.entries)
        }
    };
    let all = measure_all(context, (0.0, 1.0), &cells, &designs, plan_of, cycles_per_ns)?;

    let mut record = Record::new((GRID.name, GRID.title, GRID.source), context);
    let plan = plan(0);
    record.settings = vec![
        ("recommended".into(), RECOMMENDED.into()),
        ("miss penalty".into(), format!("{} cycles of the TSC", plan.penalty_cycles)),
        ("TSC".into(), format!("{cycles_per_ns:.3} GHz")),
        ("instruction set".into(), overbank::cache::Isa::best().to_string()),
        ("rounds".into(), plan.rounds.to_string()),
    ];
    if !smoke {
        record.settings.push(micro::pages(&all));
    }
    record.tables = vec![ratios_table(&all), hits_table(&all), throughput_table(&all)];
    record.plots = plots(&all);
    record.checks = checks(&all, ours, bare, smoke);
    let warmed = all.iter().map(|m| m.warmed).fold(f64::MAX, f64::min);
    record.notes = vec![
        format!(
            "Warm-up: as many flows as there are slots, by popularity (not with skew at α ≥ 2), then \
             20 draws per flow, in the large tables at least {warmed:.1}. Where that is few, random \
             eviction is within about half a point of its final hit rate, and PBLRU, which promotes \
             one hit in many, further from it."
        ),
        "The static optimum is the hit rate of a table that holds exactly the most popular flows."
            .into(),
        "A value is verified against the flow's low 16 bits at hand; a switch that compares a whole \
         key pays for one more memory access, the same for all designs."
            .into(),
    ];
    Ok(record)
}

fn head(measured: &Measured) -> Vec<String> {
    let cell = &measured.cell;
    vec![cell.size(), cell.theta.to_string(), cell.alpha.to_string()]
}

fn headings(more: &[&str]) -> Vec<String> {
    ["size", "θ", "α"].iter().chain(more).map(|&s| s.to_owned()).collect()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn ratios_table(all: &[Measured]) -> Table {
    let more =
        ["best of the paper", "M/s", "ours M/s", "ratio", "to blp-2-4", "hits", "of optimum"];
    let rows = all.iter().filter_map(|m| {
        let (best, ours) = (best_of_paper(m)?, m.row(RECOMMENDED)?);
        let mut row = head(m);
        row.extend([
            best.design.to_string(),
            format!("{:.1}", best.throughput.median),
            format!("{:.1}", ours.throughput.median),
            format!("{:.3}", ours.throughput.median / best.throughput.median),
            format!("{:.3}", ratio(m, RECOMMENDED, BASELINE)?),
            percent(ours.hit_rate),
            format!("{:.4}", ours.hit_rate / m.cell.static_optimum()),
        ]);
        Some(row)
    });
    Table {
        title: format!("{RECOMMENDED} against the best of the paper's designs in each cell"),
        headings: headings(&more),
        rows: rows.collect(),
    }
}

fn by_design(all: &[Measured], title: &str, value: impl Fn(&Measured, &Row) -> String) -> Table {
    let names: Vec<String> =
        all.first().map_or(&[][..], |m| &m.rows).iter().map(|r| r.design.to_string()).collect();
    let rows = all.iter().map(|m| {
        let mut row = head(m);
        row.extend(m.rows.iter().map(|r| value(m, r)));
        row
    });
    Table {
        title: title.to_owned(),
        headings: headings(&names.iter().map(|s| &**s).collect::<Vec<_>>()),
        rows: rows.collect(),
    }
}

fn hits_table(all: &[Measured]) -> Table {
    by_design(all, "Hit rate, % (in brackets: of the static optimum)", |m, row| {
        let optimum = m.cell.static_optimum();
        format!("{:.2} ({:.1})", 100.0 * row.hit_rate, 100.0 * row.hit_rate / optimum)
    })
}

fn throughput_table(all: &[Measured]) -> Table {
    let title = "Emulated throughput, M keys/s (in brackets: ns of a lookup, × the gather kernel)";
    by_design(all, title, |m, row| {
        let floors = row.lookup_ns.median / m.floor_ns.median;
        format!("{:.1} ({:.1}, ×{floors:.2})", row.throughput.median, row.lookup_ns.median)
    })
}

/// One plot per size and θ: throughput relative to the best of the paper's designs.
fn plots(all: &[Measured]) -> Vec<Plot> {
    let mut groups: Vec<Vec<&Measured>> = Vec::new();
    for m in all.iter().filter(|m| in_grid(&m.cell)) {
        let same = |a: &Cell| a.entries == m.cell.entries && a.theta == m.cell.theta;
        match groups.iter_mut().find(|group| same(&group[0].cell)) {
            Some(group) => group.push(m),
            None => groups.push(vec![m]),
        }
    }
    let plot = |group: &Vec<&Measured>| {
        let curve = |name: &str| {
            let points = group.iter().filter_map(|m| {
                let best = best_of_paper(m)?.throughput.median;
                Some((m.cell.alpha, m.row(name)?.throughput.median / best))
            });
            Series {
                name: name.to_owned(),
                points: points.collect(),
                ranges: Vec::new(),
                model: false,
            }
        };
        let cell = group[0].cell;
        let names = ["set-8", "cuckoo-2-4", BASELINE, "blp-2-4+pblru", RECOMMENDED];
        Plot {
            title: format!("{}, θ = {}", cell.size(), cell.theta),
            x: "oversubscription α (flows per slot)".into(),
            y: "throughput to the paper's best of that cell".into(),
            log_x: false,
            log_y: false,
            series: names.map(curve).to_vec(),
            stated: Vec::new(),
        }
    };
    groups.iter().map(plot).collect()
}

fn checks(all: &[Measured], ours: Design, bare: Design, smoke: bool) -> Vec<Check> {
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
    let is_target = |m: &&Measured| SKEW_TARGETS.contains(&(m.cell.alpha, m.cell.theta));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means() {
        assert_eq!(geometric_mean([]), 1.0);
        assert!((geometric_mean([2.0, 8.0]) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn names_are_designs() {
        for name in PAPER.iter().chain([&RECOMMENDED, &BASELINE]) {
            assert!(design(name).is_ok(), "{name}");
        }
        assert!(PAPER.contains(&BASELINE));
    }
}
