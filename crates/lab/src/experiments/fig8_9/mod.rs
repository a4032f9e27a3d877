//! Figures 8 and 9: lookup cost, hit rate and emulated throughput over α, small and large tables.
//!
//! The sizes are the paper's, 4 MiB and 64 MiB, and one far past the last-level cache, with three α
//! and little warm-up, so that it is done in minutes. The paper gives no numbers in its text for
//! these figures but orderings, so those are the checks, each where the warm-up was long enough for
//! it.

mod claims;

use crate::experiments::grid::PAPER;
use crate::prelude::*;
use claims::{DRAWS_PROMOTION, DRAWS_RANDOM};
use overbank_kit::machine::{last_level_cache_bytes, memory_available_bytes};
use overbank_kit::micro::gather::times;
use overbank_kit::micro::{self, Cell, DESIGNS, Measured, Plan, Row, measure_all, size_name, tsc};

pub const FIG8: Experiment = Experiment {
    name: "fig8",
    title: "one table alone, uniform keys: lookup cost, hit rate, emulated throughput",
    source: "ATC 2020, figure 8",
    run: |context| run(context, &FIG8, 0.0),
};

pub const FIG9: Experiment = Experiment {
    name: "fig9",
    title: "one table alone, Zipf 0.99: lookup cost, hit rate, emulated throughput",
    source: "ATC 2020, figure 9",
    run: |context| run(context, &FIG9, 0.99),
};

const ALPHAS: [f64; 6] = [0.5, 0.75, 0.95, 1.25, 1.5, 2.0];
const MIB: [f64; 2] = [4.0, 64.0];
/// α of the third size. With skew, the draws for a higher one would take long.
const ALPHAS_FAR: [f64; 3] = [0.5, 0.95, 1.5];
/// The third size at least and at most.
const MIB_FAR: [f64; 2] = [256.0, 1024.0];

/// Designs beyond the paper that the plots show, too; the tables have all. With more curves no plot
/// could be read, and colours would come twice.
const BEYOND: [&str; 2] = ["blp-2-16", RECOMMENDED];

/// Slots of the largest table that is warmed up until random eviction is near its end.
const SETTLED_MAX: usize = 1 << 24;
/// Draws per flow beyond that.
const DRAWS_FAR: f64 = 0.5;

fn draws(cell: &Cell) -> f64 {
    if cell.entries <= 1 << 22 {
        DRAWS_PROMOTION
    } else if cell.entries <= SETTLED_MAX {
        DRAWS_RANDOM
    } else {
        DRAWS_FAR
    }
}

/// Returns the MiB of a table far past the last-level cache: eight times that, as a power of two.
/// `None` without the memory for all designs at once.
fn far() -> Option<f64> {
    let cache = last_level_cache_bytes().unwrap_or(32 << 20) >> 20;
    let mib = ((8 * cache).next_power_of_two() as f64).clamp(MIB_FAR[0], MIB_FAR[1]);
    // A table per design, the gather kernel's memory, and the popularity of the flows.
    let needed = mib * (DESIGNS.len() + 6) as f64;
    let available = memory_available_bytes().map_or(f64::MAX, |bytes| (bytes >> 20) as f64);
    (needed < available).then_some(mib)
}

fn run(context: &mut Context<'_>, experiment: &Experiment, theta: f64) -> Result<Record, LabError> {
    let cycles_per_ns = tsc::cycles_per_ns();
    let smoke = context.smoke();
    let far = far().filter(|_| !smoke);
    let mut sizes: Vec<(f64, &[f64])> = if smoke {
        vec![(0.125, &[0.5, 0.95, 2.0])]
    } else {
        MIB.iter().map(|&mib| (mib, &ALPHAS[..])).collect()
    };
    sizes.extend(far.map(|mib| (mib, &ALPHAS_FAR[..])));
    let cells: Vec<Cell> = sizes
        .into_iter()
        .flat_map(|(mib, alphas)| alphas.iter().map(move |&alpha| Cell::mib(mib, alpha, theta)))
        .collect();
    let designs = |_: &Cell| micro::designs(DESIGNS);
    let penalty_cycles = context.penalty_cycles;
    let plan = |cell: &Cell| Plan {
        warm_per_flow: draws(cell),
        warm_max: u64::MAX,
        keys: if smoke { 1 << 13 } else { 1 << 18 },
        trial: 0,
        rounds: if smoke { 2 } else { 5 },
        penalty_cycles,
        ahead: false,
    };
    let all = measure_all(context, (0.0, 1.0), &cells, designs, plan, cycles_per_ns)?;

    let mut record = experiment.record(context);
    let sizes = plan(&cells[0]);
    let cache = last_level_cache_bytes().map_or("of unknown size".to_owned(), size_name);
    let third = far.map_or("none here".to_owned(), |mib| format!("{mib} MiB"));
    record.settings([
        ("skew θ".to_owned(), theta.to_string()),
        context.penalty_setting(),
        ("TSC".to_owned(), format!("{cycles_per_ns:.3} GHz")),
        isa(),
        ("keys of a timed part, rounds".to_owned(), format!("{}, {}", sizes.keys, sizes.rounds)),
        ("last-level cache, third size".to_owned(), format!("{cache}, {third}")),
    ]);
    if !smoke {
        record.settings.push(micro::pages(&all));
    }
    let mut left_out = Vec::new();
    for size in all.chunk_by(|a, b| a.cell.entries == b.cell.entries) {
        record.plots.extend(plots(size, cycles_per_ns));
        record.tables.push(table(size, cycles_per_ns));
        let (name, large) = (size[0].cell.size(), size[0].cell.entries > 1 << 22);
        for claim in claims::claims(theta > 0.0, large).filter(|claim| !smoke || !claim.timed()) {
            let (check, short) = claim.judge(size);
            record.checks.extend(check);
            left_out.extend(short.iter().map(|a| format!("{name}, α {a}: \"{}\"", claim.text)));
        }
    }
    record.notes.extend(NOTES.map(str::to_owned));
    record.notes.extend(micro::without_floor(&all));
    if !left_out.is_empty() {
        let left_out = left_out.join("; ");
        record.note(format!("Not judged, for the warm-up was too short: {left_out}."));
    }
    Ok(record)
}

const NOTES: [&str; 3] = [
    "The paper measured an Intel Xeon with AVX2, where each design's lookup was its own code; here \
     every design has the same burst and one compare for a whole bucket of any width, and \
     cuckoo-lite looks at second buckets only where the first have no match while it has room.",
    "Designs take turns in each round. A claim about time is judged by the ratio of two designs in \
     the same round: given is the median of these with the lowest and the highest.",
    "Warm-up: each flow once, in an order that says nothing of its popularity (not with skew at α \
     ≥ 2), then 20 draws per flow, in tables past 16 MiB 3, and in the third size 0.5. With skew \
     hit rates are then too low rather than too high: after three draws random eviction lacks \
     about a point, designs that promote some three; hit rates and throughputs of those are judged \
     after 20 draws, all else after 3 or more.",
];

fn plots(size: &[Measured], cycles_per_ns: f64) -> Vec<Plot> {
    let name = size[0].cell.size();
    let shown = |name: &str| PAPER.contains(&name) || BEYOND.contains(&name);
    let plot = |title: &str, y: &str, value: &dyn Fn(&Row) -> Spread| {
        let shown = DESIGNS.iter().enumerate().filter(|(_, design)| shown(design));
        let curve = |(i, design): (usize, &&str)| {
            Series::rounds(*design, size.iter().map(|m| (m.cell.alpha, value(&m.rows[i]))))
        };
        let x = "oversubscription α (flows per slot)";
        Plot::new(format!("{name}: {title}"), x, y).with(shown.map(curve))
    };
    let cycles = |ns: Spread| ns.map(|ns| ns * cycles_per_ns);
    // Where the kernel is a floor of nothing, its curve would look like one.
    let floors = size.iter().filter(|m| m.rows.iter().any(|row| m.has_floor(row)));
    let floors = floors.map(|m| (m.cell.alpha, cycles(m.floor_ns).median)).collect();
    let cost = plot("lookup cost", "cycles per key", &|row| cycles(row.lookup_ns));
    let mut rates = plot("hit rate", "hit rate, %", &|row| Spread::of([100.0 * row.hit_rate]));
    rates.series.iter_mut().for_each(|series| series.ranges.clear());
    // From hundreds of millions of keys to a few: only so do they lie apart at high α.
    let speed = plot("emulated throughput", "million keys per second", &|row| row.throughput);
    vec![cost.with([Series::model("gather kernel", floors)]), rates, speed.log_y()]
}

fn table(size: &[Measured], cycles_per_ns: f64) -> Table {
    let what = "hit rate, lookup cost (as a multiple of the gather kernel), emulated throughput";
    Table::pivot(
        format!("{}: {what}", size[0].cell.size()),
        "design",
        (DESIGNS.iter().enumerate(), |(_, design): &(usize, &&str)| design.to_string()),
        (size, |m: &&Measured| format!("α = {}", m.cell.alpha)),
        |&(i, _), m| {
            let r = &m.rows[i];
            let floor = times(m.to_floor(r, |round| round.lookup_ns).map(|floor| floor.median));
            let (hits, cycles) = (100.0 * r.hit_rate, r.lookup_ns.median * cycles_per_ns);
            format!("{hits:.1} %, {cycles:.0} cycles ({floor}), {:.1} M/s", r.throughput.median)
        },
    )
}
