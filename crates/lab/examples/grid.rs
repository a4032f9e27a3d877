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

use std::process::ExitCode;

use overbank::cache::Design;
use overbank::memory::HugePages;
use overbank_kit::micro::{Cell, Measured, measure, tsc};
use overbank_kit::recommended::RECOMMENDED;
use overbank_kit::spread::{Spread, geometric_mean};
use overbank_lab::experiments::grid::{
    ALPHAS, BASELINE, MIB, PAPER, THETAS, best_of_paper, plan, ratio,
};

struct Options {
    designs: Vec<Design>,
    alphas: Vec<f64>,
    thetas: Vec<f64>,
    mib: Vec<f64>,
    warm: Option<f64>,
    rounds: Option<usize>,
    penalty: Option<f64>,
}

type Failure = Box<dyn std::error::Error>;

fn numbers(list: &str) -> Result<Vec<f64>, Failure> {
    Ok(list.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        designs: Vec::new(),
        alphas: ALPHAS.to_vec(),
        thetas: THETAS.to_vec(),
        mib: MIB.to_vec(),
        warm: None,
        rounds: None,
        penalty: None,
    };
    let mut arguments = std::env::args().skip(1);
    let mut names = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--paper" {
            names.extend(PAPER.map(str::to_owned));
            continue;
        }
        if !argument.starts_with("--") {
            names.extend(argument.split(',').map(str::to_owned));
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--alpha" => options.alphas = numbers(&value)?,
            "--theta" => options.thetas = numbers(&value)?,
            "--mib" => options.mib = numbers(&value)?,
            "--warm" => options.warm = Some(value.parse()?),
            "--rounds" => options.rounds = Some(value.parse()?),
            "--penalty" => options.penalty = Some(value.parse()?),
            _ => return Err(format!("unknown option {argument}").into()),
        }
    }
    if !names.iter().any(|name| !PAPER.contains(&name.as_str())) {
        names.push(RECOMMENDED.to_owned());
    }
    for name in names {
        let design = name.parse()?;
        if !options.designs.contains(&design) {
            options.designs.push(design);
        }
    }
    Ok(options)
}

fn print(m: &Measured) {
    println!(
        "{}  α {}  θ {}   {} flows, {:.1} draws each; gather {:.2} ns",
        m.cell.size(),
        m.cell.alpha,
        m.cell.theta,
        m.cell.flows(),
        m.warmed,
        m.floor_ns.median
    );
    println!(
        "  {:<20}{:>7}{:>8}{:>7}{:>8}{:>7}{:>7}{:>8}  {:<17}{:>6}{:>9}",
        "design",
        "hit %",
        "of opt",
        "probe",
        "lookup",
        "whole",
        "floors",
        "M/s",
        "range",
        "best",
        "blp-2-4"
    );
    let show = |ratio: Option<Spread>| ratio.map_or("-".to_owned(), |r| format!("{:.3}", r.median));
    for row in &m.rows {
        let name = row.design.to_string();
        let floors = m.to_floor(row, |round| round.lookup_ns);
        let floors = floors.map_or("-".to_owned(), |floors| format!("{:.2}", floors.median));
        let best = best_of_paper(m).map(|best| row.to(best, |round| round.throughput));
        println!(
            "  {name:<20}{:>7.2}{:>8.4}{:>7.2}{:>8.2}{:>7.2}{:>7}{:>8.1}  {:<17}{:>6}{:>9}",
            100.0 * row.hit_rate,
            row.hit_rate / m.cell.static_optimum(),
            row.probe_ns.median,
            row.lookup_ns.median,
            row.whole_ns.median,
            floors,
            row.throughput.median,
            format!("({:.1} to {:.1})", row.throughput.low, row.throughput.high),
            show(best),
            show(ratio(m, &name, BASELINE)),
        );
        if row.huge_pages != HugePages::Yes {
            println!("    (huge pages: {})", row.huge_pages);
        }
    }
}

fn run() -> Result<(), Failure> {
    let options = options()?;
    let cycles_per_ns = tsc::cycles_per_ns();
    println!("TSC {cycles_per_ns:.3} GHz");
    let mut all = Vec::new();
    for &mib in &options.mib {
        for &theta in &options.thetas {
            for &alpha in &options.alphas {
                let cell = Cell::mib(mib, alpha, theta);
                let mut plan = plan(&cell);
                plan.trial = 0;
                if let Some(warm) = options.warm {
                    (plan.warm_per_flow, plan.warm_max) = (warm, u64::MAX);
                }
                plan.rounds = options.rounds.unwrap_or(plan.rounds);
                plan.penalty_cycles = options.penalty.unwrap_or(plan.penalty_cycles);
                let m = measure(cell, &options.designs, &plan, cycles_per_ns, 1, &mut |_| Ok(()))?;
                print(&m);
                all.push(m);
            }
        }
    }
    println!("geometric means over {} cells: to the paper's best of each, to blp-2-4", all.len());
    for design in &options.designs {
        let name = design.to_string();
        let to_best = all
            .iter()
            .filter_map(|m| Some(ratio(m, &name, &best_of_paper(m)?.design.to_string())?.median));
        let worst = to_best.clone().min_by(f64::total_cmp).unwrap_or(1.0);
        let to_base = all.iter().filter_map(|m| Some(ratio(m, &name, BASELINE)?.median));
        println!(
            "  {name:<20}{:>8.3} (worst {worst:.3}){:>8.3}",
            geometric_mean(to_best),
            geometric_mean(to_base)
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("grid: {error}");
            ExitCode::FAILURE
        }
    }
}
