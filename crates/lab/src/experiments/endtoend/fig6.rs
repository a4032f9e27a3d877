//! Figure 6: packet rates.

use super::{
    BLP, Course, DESIGNS, PBLRU, PROMOTION, Point, SCALAR, by_skew, causes, each, gains, plot,
    points, reaches,
};
use crate::prelude::*;

pub const FIG6: Experiment = Experiment {
    name: "fig6",
    title: "end to end through three tiers: packet rate",
    source: "ATC 2020, figure 6",
    run: fig6,
};

/// The plain designs that 2-4 BLP is compared with.
const OTHERS: [&str; 3] = ["set-4", "set-8", "cuckoo-2-4"];

/// Returns the packet rate of 2-4 BLP to the fastest plain design's in the same round, in percent.
fn blp_to_winner(point: &Point) -> f64 {
    100.0 * point.to(BLP, point.winner()).median
}

/// Holds where 2-4 BLP has `least` percent of the fastest plain design's rate at every point.
fn near_the_fastest(points: &[Point], least: f64) -> Option<Finding> {
    let shown = |p: &Point| format!("{} ({:.1} %)", p.winner(), blp_to_winner(p));
    Finding::new(points.iter().all(|p| blp_to_winner(p) >= least), each(points, shown))
}

const CUCKOO: &str = "2-4 cuckoo-lite reads one line a key while it has room, which the paper's \
    does not, and hits more often; without a network card a miss costs less than in the paper. The \
    table of causes has lookups, hit rates and misses.";

const OF_ALL: &[Claim<[Point]>] = &[Claim::new(
    "every design forwards every packet alike",
    "not stated; a cache may change speed only",
    |all| {
        let alike = all.iter().all(|p| p.designs.iter().all(|d| d.digest == p.designs[0].digest));
        let shown = format!("{} runs of {} designs, byte by byte", all.len(), DESIGNS.len());
        Finding::new(alike, shown)
    },
)];

const UNIFORM: &[Claim<[Point]>] = &[
    Claim::timed(
        "2-4 BLP is the fastest of 4-way, 8-way, 2-4 cuckoo-lite and 2-4 BLP at every α",
        "“2-4 BLP is the clear winner. It achieves the highest throughput within the entire range \
         of oversubscription factors” (section 7.2), taken as within 1 % of the fastest",
        |points| near_the_fastest(points, 99.0),
    )
    .because(CUCKOO),
    Claim::timed(
        "2-4 BLP outperforms some design somewhere by at least 12 %",
        "“outperforming alternative designs by as much as 15%” (section 7.2), taken as at least \
         four fifths of it",
        |points| reaches(points, BLP, &OTHERS, 15.0),
    )
    .because(CUCKOO),
    Claim::timed(
        "PBLRU slightly hurts the throughput of 2-4 BLP",
        "“it slightly hurts the throughput” (section 7.2), taken as at every α",
        |points: &[Point]| {
            let slower = points.iter().all(|p| p.gain(PBLRU, BLP).median < 0.0);
            Finding::new(slower, each(points, |p| p.gain(PBLRU, BLP).percent()))
        },
    )
    .because(PROMOTION),
];

const SKEWED: &[Claim<[Point]>] = &[
    Claim::timed(
        "2-4 BLP is the fastest of the plain designs but for α close to 0.5 and to 2",
        "“2-4 BLP achieves the highest throughput except when the oversubscription factor is very \
         small (close to 0.5) or very large (close to 2)” (section 7.2), taken as within 1 % of \
         the fastest",
        |points: &[Point]| {
            let inside = |p: &Point| p.alpha > 0.6 && p.alpha < 1.9;
            let from = points.iter().position(inside)?;
            let to = points.iter().rposition(inside)?;
            near_the_fastest(&points[from..=to], 99.0)
        },
    )
    .because(CUCKOO),
    Claim::timed(
        "even at the ends 2-4 BLP is very close to the highest",
        "“Even in such scenarios, its throughput is very close to the highest” (section 7.2), \
         taken as within 4 %",
        |points| near_the_fastest(points, 96.0),
    )
    .because(CUCKOO),
    Claim::timed(
        "2-4 BLP improves the throughput over some design somewhere by at least 3.2 %",
        "“up to 4% with skewed workloads” (section 7.2), taken as at least four fifths of it",
        |points| reaches(points, BLP, &OTHERS, 4.0),
    )
    .because(CUCKOO),
    Claim::timed(
        "PBLRU increases the throughput of 2-4 BLP somewhere by at least 6 %",
        "“PBLRU further improves the throughput with skewed workloads by up to 7.5%” (section \
         7.2), taken as at least four fifths of it",
        |points| reaches(points, PBLRU, &[BLP], 7.5),
    )
    .because(PROMOTION),
];

fn fig6(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let all = points(context)?;
    let mut record = FIG6.record(context);
    record.settings(Course::figures_6_and_7(smoke).settings());
    let masks = all.iter().flat_map(|p| &p.designs).map(|d| d.totals.megaflow.masks as f64);
    let masks = Spread::of(masks);
    record.claim(
        "the rules make roughly 20 hash tables in the megaflow cache",
        "“roughly 20 hash tables in the megaflow cache” (section 7.2)",
        format!("{} to {}", masks.low, masks.high),
        masks.low >= if smoke { 10.0 } else { 19.0 } && masks.high <= 21.0,
    );
    record.judge("", OF_ALL, &all);
    for (law, points) in by_skew(&all) {
        let title = format!("{law}: packet rate");
        record.plots.push(plot(title, "million packets a second", |name| {
            let rate = |p: &Point| (p.alpha, Spread::of(p.rounds_ns(name).map(|ns| 1e3 / ns)));
            Series::rounds(name, points.iter().map(rate))
        }));
        let percent = |what: &str, curves: Vec<Series>| {
            let title = format!("{law}: packet rate of {what}");
            Plot::new(title, super::ALPHA, "more packets a second, %").with(curves)
        };
        let others = OTHERS.iter().chain([&SCALAR]);
        let others = others.map(|over| gains(points, BLP, over, &format!("over {over}"))).collect();
        let won = percent("2-4 BLP over the other designs", others);
        if points[0].theta == 0.0 {
            record.plots.push(won.mark_anywhere("by as much as 15 %", 15.0));
            record.judge(&law, UNIFORM, points);
        } else {
            record.plots.push(won.mark_anywhere("up to 4 %", 4.0));
            let promoted = vec![gains(points, PBLRU, BLP, "PBLRU")];
            let promoted = percent("PBLRU over random eviction, 2-4 BLP", promoted);
            record.plots.push(promoted.mark_anywhere("up to 7.5 %", 7.5));
            record.judge(&law, SKEWED, points);
        }
    }
    record.tables.push(causes("Where the differences come from", &all, true));
    record.note(
        "The paper measured a Xeon E5-2660 v3 with a network card and Open vSwitch 2.10, where a \
         packet cost some 200 ns. Here it costs less, so what a design saves weighs more.",
    );
    record.note(
        "set-4@portable stands for the paper's \"4-way\", the table of Open vSwitch's SMC without \
         vector instructions: it compares four fingerprints in one 64-bit word, where Open vSwitch \
         compares one after the other. set-4 is the paper's \"4-way w/ SIMD\".",
    );
    record.note(format!(
        "blp-2-16 and {RECOMMENDED}, with buckets of a whole cache line, are not in the paper."
    ));
    Ok(record)
}
