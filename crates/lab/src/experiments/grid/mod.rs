//! The grid: α × θ × size, the paper's designs against ours.
//!
//! Each cell is one micro-benchmark ([`overbank_kit::micro`]) of all designs at once. In each cell
//! ours is the design of the short list ([`SHORTLIST`]), its bursts ahead or alone ([`Way`]), that
//! was fastest in a trial of [`TRIAL`] rounds; its ratio is that to the best of the paper's designs
//! *in that cell*, which is known only afterwards, in the same rounds.

mod bound;
mod checks;
mod tables;

use crate::prelude::*;
use overbank::cache::{Design, PolicyKind};
use overbank_kit::micro::{self, Cell, Measured, PENALTY_CYCLES, Plan, Row, Way, measure_all, tsc};
use overbank_kit::recommended::SHORTLIST;

/// The designs of the paper, with the policies that it names.
pub(super) const PAPER: [&str; 10] = [
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
const BASELINE: &str = "blp-2-4";

const ALPHAS: [f64; 6] = [0.5, 0.75, 0.95, 1.25, 2.0, 3.0];
const THETAS: [f64; 3] = [0.0, 0.8, 0.99];
const MIB: [f64; 2] = [4.0, 64.0];

/// Where the hit rate under skew has a target, as (α, θ); the second is no cell of the grid.
const SKEW_TARGETS: [(f64, f64); 2] = [(3.0, 0.99), (1.5, 0.8)];

/// Most draws of a warm-up in a large table, and where the hit rate has a target.
///
/// At 64 MiB, α = 3, θ = 0.99 the recommended design has 0.958 of the static optimum after 96
/// million draws, 0.969 after 200, 0.973 after 400 and 0.979 after 1000 million: what is missing
/// after few draws is warm-up.
const WARM_MAX: [u64; 2] = [96_000_000, 1_200_000_000];

/// Draws per flow of a warm-up, and where the hit rate has a target: at 4 MiB, α = 1.5, θ = 0.8 the
/// recommended design has 0.969 of the static optimum after 20, 0.980 after 60 and 0.985 after 160.
const WARM_PER_FLOW: [f64; 2] = [20.0, 160.0];

/// Rounds of a cell, and where promotion has a price limit: it is a small difference of two times.
const ROUNDS: [usize; 2] = [5, 15];

/// Rounds of the trial that chooses from the short list.
const TRIAL: usize = 3;

/// Plans a cell: minutes for the whole grid.
fn plan(cell: &Cell) -> Plan {
    let large = cell.entries > 1 << 22;
    let target = usize::from(is_target(cell));
    Plan {
        warm_per_flow: WARM_PER_FLOW[target],
        warm_max: if large { WARM_MAX[target] } else { u64::MAX },
        keys: 1 << 18,
        trial: TRIAL,
        rounds: ROUNDS[target],
        penalty_cycles: PENALTY_CYCLES,
        ahead: true,
    }
}

/// Returns the grid's cells, by size, θ and α, and after them those that only the skew targets
/// need.
fn cells(smoke: bool) -> Vec<Cell> {
    if smoke {
        let points = [(0.5, 0.0), (0.95, 0.0), (3.0, 0.99), (1.5, 0.8)];
        return points.map(|(alpha, theta)| Cell::mib(1.0 / 16.0, alpha, theta)).to_vec();
    }
    let places = MIB.into_iter().flat_map(|mib| THETAS.map(|theta| (mib, theta)));
    let grid = places.flat_map(|(mib, theta)| ALPHAS.map(|alpha| Cell::mib(mib, alpha, theta)));
    grid.chain(MIB.map(|mib| Cell::mib(mib, 1.5, 0.8))).collect()
}

fn in_grid(cell: &Cell) -> bool {
    ALPHAS.contains(&cell.alpha)
}

fn is_target(cell: &Cell) -> bool {
    SKEW_TARGETS.contains(&(cell.alpha, cell.theta))
}

/// Returns the best of the paper's designs in a cell, by the median of its throughput; bursts
/// alone.
fn best_of_paper(measured: &Measured) -> Option<&Row> {
    best_of_paper_in(measured, Way::Alone)
}

fn best_of_paper_in(measured: &Measured, way: Way) -> Option<&Row> {
    let of_paper = measured.rows_of(way).iter().filter(|r| PAPER.contains(&&*r.design.to_string()));
    of_paper.max_by(|a, b| a.throughput.median.total_cmp(&b.throughput.median))
}

const FASTER: f64 = 1.02;

/// Returns the design of the short list, ahead or alone, that was fastest in the trial; the first
/// of them, ahead, where there was none, or where no other is two per cent faster.
fn chosen(measured: &Measured) -> Option<&Row> {
    chosen_of(measured, &[Way::Ahead, Way::Alone])
}

fn chosen_of<'m>(measured: &'m Measured, ways: &[Way]) -> Option<&'m Row> {
    let all = SHORTLIST.iter().flat_map(|name| ways.iter().map(move |&way| (name, way)));
    let mut listed = all.filter_map(|(name, way)| measured.row_of(name, way));
    let first = listed.next()?;
    let other = listed.max_by(|a, b| a.trial.total_cmp(&b.trial));
    other.filter(|other| other.trial > first.trial * FASTER).or(Some(first))
}

fn faster(row: &Row, than: &Row) -> Spread {
    row.to(than, |round| round.throughput)
}

struct Against {
    best: Spread,
    baseline: Spread,
}

/// Returns ours against the paper's designs as the paper looks up, or where all designs ask ahead.
fn against(measured: &Measured, theirs: Way) -> Option<Against> {
    let ours = match theirs {
        Way::Alone => chosen(measured)?,
        Way::Ahead => chosen_of(measured, &[Way::Ahead])?,
    };
    Some(Against {
        best: faster(ours, best_of_paper_in(measured, theirs)?),
        baseline: faster(ours, measured.row_of(BASELINE, theirs)?),
    })
}

/// Returns the same geometry with random eviction.
fn plain(design: Design) -> Result<Design, LabError> {
    Design::new(design.geometry(), PolicyKind::Random).map_err(LabError::failed)
}

/// Returns the designs of a cell: the paper's, the short list, and the recommended geometry with
/// random eviction; where promotion has a price limit, the other geometries of the short list with
/// it, too.
fn designs_of(cell: &Cell) -> Result<Vec<Design>, LabError> {
    let mut designs = micro::designs(&PAPER)?;
    let listed = micro::designs(&SHORTLIST)?;
    let bare = listed.iter().map(|&design| plain(design)).collect::<Result<Vec<_>, _>>()?;
    let priced = if is_target(cell) { bare.len() } else { 1 };
    for design in listed.into_iter().chain(bare.into_iter().take(priced)) {
        if !designs.contains(&design) {
            designs.push(design);
        }
    }
    Ok(designs)
}

pub(super) const GRID: Experiment = Experiment {
    name: "grid",
    title: "the recommended cache against every design of the paper",
    source: "beyond the paper",
    run,
};

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let cycles_per_ns = tsc::cycles_per_ns();
    let smoke = context.smoke();
    let cells = cells(smoke);
    let penalty_cycles = context.penalty_cycles;
    let plan_of = |cell: &Cell| {
        let plan = Plan { penalty_cycles, ..plan(cell) };
        if smoke { Plan { keys: 1 << 13, rounds: 3, ..plan } } else { plan }
    };
    let all = measure_all(context, (0.0, 1.0), &cells, designs_of, plan_of, cycles_per_ns)?;

    let mut record = GRID.record(context);
    let plan = plan_of(&cells[0]);
    let bounds = bound::bounds(&all, penalty_cycles / cycles_per_ns);
    let warmed = all.iter().map(|m| m.warmed).fold(f64::MAX, f64::min);
    record.settings([
        ("short list".to_owned(), SHORTLIST.join(", ")),
        ("rounds of the trial".to_owned(), plan.trial.to_string()),
        ("recommended where nothing is known".to_owned(), RECOMMENDED.to_owned()),
        context.penalty_setting(),
        ("TSC".to_owned(), format!("{cycles_per_ns:.3} GHz")),
        isa(),
        ("rounds".to_owned(), plan.rounds.to_string()),
        ("least draws per flow before a measurement".to_owned(), format!("{warmed:.1}")),
    ]);
    if !smoke {
        record.settings.push(micro::pages(&all));
    }
    record.tables = vec![
        tables::ratios(&all),
        bound::table(&bounds),
        tables::hits(&all),
        tables::throughput(&all, Way::Alone),
        tables::throughput(&all, Way::Ahead),
    ];
    record.plots = tables::plots(&all);
    checks::judge(&mut record, &all, &bounds);
    record.notes = NOTES.map(str::to_owned).into();
    record.notes.extend(micro::without_floor(&all));
    Ok(record)
}

const NOTES: [&str; 5] = [
    "Warm-up: each flow once, in an order that says nothing of its popularity (not with skew at α \
     ≥ 2), then 20 draws per flow, in the large tables fewer: hit rates with skew are then too low \
     rather than too high. Where the hit rate has a target (α = 3, θ = 0.99; α = 1.5, θ = 0.8) it \
     is 160 draws per flow, in large tables at most 1200 million in all; and there are 15 rounds, \
     as promotion is priced there.",
    "Ours is, in each cell, the design of the short list that was fastest in the trial, whose \
     rounds are not among those reported. \"Ahead\" says that each burst asks for the lines of the \
     next one while it is compared, which is no part of the paper; what says \"all ahead\" gives \
     it to all designs. The hit rate under skew is that of the recommended design; the price of \
     promotion that of the design chosen there.",
    "A ratio is one of figures of the same round: given is the median over the rounds, in tables \
     with the lowest and the highest.",
    bound::NOTE,
    "A value is verified against the flow's low 16 bits at hand; a switch that compares a whole \
     key pays for one more memory access, the same for all designs.",
];

#[cfg(test)]
mod tests;
