//! The grid's measurement for any designs and cells, printed as it comes: for trying out a design.
//!
//!     cargo run --release -p overbank-lab --example grid -- [--paper] [--warm N] [--rounds N]
//!         [--alpha A[,A…]] [--theta T[,T…]] [--mib M[,M…]] [--penalty CYCLES] [DESIGN[,DESIGN…]]
//!
//! Without designs the recommended one; `--paper` adds all designs of the paper. The whole grid is
//! the default for what is not given. Columns: hit rate, share of the static optimum, nanoseconds of
//! the probe alone, of a verified lookup, and of a key with its insertion, the lookup as a multiple
//! of the gather kernel (- where that lay on other pages), emulated throughput with its range, its
//! ratio to the best of the paper's designs in this cell (if there are any) and to blp-2-4: medians of
//! those of the same round. At the end the geometric means over the cells.

use overbank::cache::Design;
use overbank_kit::experiment::Table;
use overbank_kit::micro::{Cell, Measured, measure, tsc};
use overbank_kit::recommended::RECOMMENDED;
use overbank_kit::spread::{Spread, geometric_mean};
use overbank_lab::experiments::grid::{
    ALPHAS, BASELINE, MIB, PAPER, THETAS, best_of_paper, plan, ratio,
};
use std::collections::HashMap;

type Failure = Box<dyn std::error::Error>;

/// A list of numbers after a flag, or else these.
fn numbers(flags: &HashMap<String, String>, flag: &str, or: &[f64]) -> Result<Vec<f64>, Failure> {
    let Some(list) = flags.get(flag) else { return Ok(or.to_vec()) };
    Ok(list.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

fn print(m: &Measured) {
    let Cell { alpha, theta, .. } = m.cell;
    let (flows, floor) = (m.cell.flows(), m.floor_ns.median);
    println!("{}  α {alpha}  θ {theta}   {flows} flows; gather {floor:.2} ns", m.cell.size());
    let show = |ratio: Option<Spread>| ratio.map_or("-".to_owned(), |r| format!("{:.3}", r.median));
    let best = best_of_paper(m);
    let table = Table::of(
        format!("{:.1} draws each", m.warmed),
        &m.rows,
        &[
            ("design", &|row| row.design.to_string()),
            ("hit %", &|row| format!("{:.2}", 100.0 * row.hit_rate)),
            ("of opt", &|row| format!("{:.4}", row.hit_rate / m.cell.static_optimum())),
            ("probe", &|row| format!("{:.2}", row.probe_ns.median)),
            ("lookup", &|row| format!("{:.2}", row.lookup_ns.median)),
            ("whole", &|row| format!("{:.2}", row.whole_ns.median)),
            ("floors", &|row| show(m.to_floor(row, |round| round.lookup_ns))),
            ("M/s", &|row| row.throughput.cell(1)),
            ("best", &|row| show(best.map(|best| row.to(best, |round| round.throughput)))),
            ("blp-2-4", &|row| show(ratio(m, &row.design.to_string(), BASELINE))),
            ("huge pages", &|row| row.huge_pages.to_string()),
        ],
    );
    for row in [&table.headings].into_iter().chain(&table.rows) {
        let cells = row[1..].iter().map(|cell| format!("{cell:>9}"));
        println!("  {:<24}{}", row[0], cells.collect::<Vec<_>>().join(" "));
    }
}

fn main() -> Result<(), Failure> {
    let (mut flags, mut names) = (HashMap::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--paper" => names.extend(PAPER.map(str::to_owned)),
            "--alpha" | "--theta" | "--mib" | "--warm" | "--rounds" | "--penalty" => {
                let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
                flags.insert(argument, value);
            }
            flag if flag.starts_with("--") => return Err(format!("unknown option {flag}").into()),
            list => names.extend(list.split(',').map(str::to_owned)),
        }
    }
    if !names.iter().any(|name| !PAPER.contains(&name.as_str())) {
        names.push(RECOMMENDED.to_owned());
    }
    let mut designs: Vec<Design> = Vec::new();
    for name in names {
        let design = name.parse()?;
        if !designs.contains(&design) {
            designs.push(design);
        }
    }
    let cycles_per_ns = tsc::cycles_per_ns();
    println!("TSC {cycles_per_ns:.3} GHz");
    let mut all = Vec::new();
    for mib in numbers(&flags, "--mib", &MIB)? {
        for theta in numbers(&flags, "--theta", &THETAS)? {
            for alpha in numbers(&flags, "--alpha", &ALPHAS)? {
                let cell = Cell::mib(mib, alpha, theta);
                let mut plan = plan(&cell);
                plan.trial = 0;
                if let Some(warm) = flags.get("--warm") {
                    (plan.warm_per_flow, plan.warm_max) = (warm.parse()?, u64::MAX);
                }
                if let Some(rounds) = flags.get("--rounds") {
                    plan.rounds = rounds.parse()?;
                }
                if let Some(penalty) = flags.get("--penalty") {
                    plan.penalty_cycles = penalty.parse()?;
                }
                let m = measure(cell, &designs, &plan, cycles_per_ns, 1, &mut |_| Ok(()))?;
                print(&m);
                all.push(m);
            }
        }
    }
    println!("geometric means over {} cells: to the paper's best of each, to blp-2-4", all.len());
    for name in designs.iter().map(Design::to_string) {
        let to_best =
            all.iter().filter_map(|m| ratio(m, &name, &best_of_paper(m)?.design.to_string()));
        let to_best = to_best.map(|ratio| ratio.median);
        let worst = to_best.clone().min_by(f64::total_cmp).unwrap_or(1.0);
        let to_base = all.iter().filter_map(|m| Some(ratio(m, &name, BASELINE)?.median));
        let (best, base) = (geometric_mean(to_best), geometric_mean(to_base));
        println!("  {name:<20}{best:>8.3} (worst {worst:.3}){base:>8.3}");
    }
    Ok(())
}
