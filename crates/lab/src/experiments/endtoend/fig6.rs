//! Figure 6: packet rates.

use super::{
    Claim, Course, DESIGNS, Point, SCALAR, THETAS, cuckoo_and_blp, each, law, least, misses, most,
    percent, plot, points, promotion, reaches, state_anywhere,
};
use overbank_kit::experiment::{Context, Experiment, LabError, Plot, Record, Series};
use overbank_kit::recommended::RECOMMENDED;

/// Figure 6.
pub const FIG6: Experiment = Experiment {
    name: "fig6",
    title: "end to end through three tiers: packet rate",
    source: "ATC 2020, figure 6",
    run: fig6,
};

/// The plain designs that 2-4 BLP is compared with.
const OTHERS: [&str; 3] = ["set-4", "set-8", "cuckoo-2-4"];

/// Packet rate of 2-4 BLP to the fastest plain design's in the same round, in percent.
fn blp_to_winner(point: &Point) -> f64 {
    100.0 * point.to("blp-2-4", point.winner()).median
}

/// Whether 2-4 BLP is the fastest of the plain designs, or within a percent of it.
fn blp_wins(point: &Point) -> bool {
    blp_to_winner(point) >= 99.0
}

/// Fewest and most nanoseconds a packet.
fn all_ns(points: &[Point]) -> (f64, f64) {
    let each = || points.iter().flat_map(|p| &p.designs).filter_map(|d| d.ns_per_packet);
    (each().fold(f64::MAX, f64::min), each().fold(0.0, f64::max))
}

fn gains(points: &[&Point], name: &str, over: &str, shown: &str) -> Series {
    Series {
        ranges: points.iter().map(|p| p.gain(name, over).range()).collect(),
        ..Series::measured(
            shown,
            points.iter().map(|p| (p.alpha, p.gain(name, over).median)).collect(),
        )
    }
}

fn percent_plot(title: String, series: Vec<Series>) -> Plot {
    Plot {
        title,
        x: "oversubscription α (flows per slot)".into(),
        y: "more packets a second, %".into(),
        log_x: false,
        log_y: false,
        series,
        stated: Vec::new(),
    }
}

/// How far 2-4 BLP is ahead of each of the others, with the most that the text states.
fn won_over(points: &[&Point], theta: f64) -> Plot {
    let others = OTHERS.into_iter().chain([SCALAR]);
    let series = others.map(|name| gains(points, "blp-2-4", name, &format!("over {name}")));
    let title = format!("{}: packet rate of 2-4 BLP over the other designs", law(theta));
    let mut plot = percent_plot(title, series.collect());
    if theta == 0.0 {
        state_anywhere(&mut plot, "by as much as 15 %", 15.0);
    } else {
        state_anywhere(&mut plot, "up to 4 %", 4.0);
    }
    plot
}

/// What PBLRU wins with skew.
fn promoted(points: &[&Point], theta: f64) -> Plot {
    let series = gains(points, "blp-2-4+pblru", "blp-2-4", "PBLRU");
    let title = format!("{}: packet rate of PBLRU over random eviction, 2-4 BLP", law(theta));
    let mut plot = percent_plot(title, vec![series]);
    state_anywhere(&mut plot, "up to 7.5 %", 7.5);
    plot
}

fn fig6(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let all = points(context)?;
    let mut record = Record::new((FIG6.name, FIG6.title, FIG6.source), context);
    record.settings = Course::figures_6_and_7(smoke).settings();
    record.notes = vec![
        "The paper measured a Xeon E5-2660 v3 with a network card and Open vSwitch 2.10, where a \
         packet cost some 200 ns."
            .into(),
        format!(
            "Here a packet costs {:.0} to {:.0} ns, so what a design saves weighs more.",
            all_ns(&all).0,
            all_ns(&all).1
        ),
        "set-4@portable stands for the paper's \"4-way\", the table of Open vSwitch's SMC without vector \
         instructions: it compares four fingerprints in one 64-bit word, where Open vSwitch compares \
         one after the other. set-4 is the paper's \"4-way w/ SIMD\"."
            .into(),
        format!("blp-2-16 and {RECOMMENDED}, with buckets of a whole cache line, are not in the paper."),
    ];
    let masks = all.iter().flat_map(|p| &p.designs).map(|d| d.totals.megaflow.masks);
    let masks: Vec<usize> = masks.collect();
    let (low, high) = (masks.iter().min().copied(), masks.iter().max().copied());
    let shown = format!("{} to {}", low.unwrap_or(0), high.unwrap_or(0));
    Claim {
        timed: false,
        text: "the rules make roughly 20 hash tables in the megaflow cache",
        stated: "“roughly 20 hash tables in the megaflow cache” (section 7.2)",
        found: (low >= Some(19) && high <= Some(21) || smoke && low >= Some(10), shown),
        why: String::new(),
    }
    .note(&mut record, smoke);
    let forwarded = all.iter().all(|p| p.designs.iter().all(|d| d.digest == p.designs[0].digest));
    Claim {
        timed: false,
        text: "every design forwards every packet alike",
        stated: "not stated; a cache may change speed only",
        found: (
            forwarded,
            format!("{} runs of {} designs, byte by byte", all.len(), DESIGNS.len()),
        ),
        why: String::new(),
    }
    .note(&mut record, smoke);
    for theta in THETAS {
        let points: Vec<&Point> = all.iter().filter(|p| p.theta == theta).collect();
        let title = format!("{}: packet rate", law(theta));
        record.plots.push(plot(&points, &title, "million packets a second", |d| {
            (d.mpps.unwrap_or(0.0), d.mpps_min.zip(d.mpps_max))
        }));
        record.plots.push(won_over(&points, theta));
        if theta > 0.0 {
            record.plots.push(promoted(&points, theta));
        }
        let mut check = |text: &str, stated: &str, found: (bool, String), why: String| {
            let text = format!("{}: {text}", law(theta));
            Claim { timed: true, text: &text, stated, found, why }.note(&mut record, smoke);
        };
        let close = || cuckoo_and_blp(&points);
        let gains = |p: &Point| p.gain("blp-2-4+pblru", "blp-2-4");
        let lead = || most(points.iter().copied(), "blp-2-4", &OTHERS);
        if theta == 0.0 {
            check(
                "2-4 BLP is the fastest of 4-way, 8-way, 2-4 cuckoo-lite and 2-4 BLP at every α",
                "“2-4 BLP is the clear winner. It achieves the highest throughput within the entire \
                 range of oversubscription factors” (section 7.2), taken as within 1 % of the fastest",
                (points.iter().all(|p| blp_wins(p)), each(&points, |p| p.winner().into())),
                close(),
            );
            check(
                &format!("2-4 BLP outperforms some design somewhere by at least {} %", least(15.0)),
                "“outperforming alternative designs by as much as 15%” (section 7.2), taken as at least \
                 four fifths of it",
                reaches(lead(), 15.0),
                format!("A miss costs {} more than a hit.", misses(&points, "blp-2-4")),
            );
            check(
                "PBLRU slightly hurts the throughput of 2-4 BLP",
                "“it slightly hurts the throughput” (section 7.2), taken as at every α",
                (
                    points.iter().all(|p| gains(p).median < 0.0),
                    each(&points, |p| percent(gains(p))),
                ),
                promotion(&points),
            );
        } else {
            let middle: Vec<&Point> =
                points.iter().copied().filter(|p| p.alpha > 0.6 && p.alpha < 1.9).collect();
            check(
                "2-4 BLP is the fastest of the plain designs but for α close to 0.5 and to 2",
                "“2-4 BLP achieves the highest throughput except when the oversubscription factor is \
                 very small (close to 0.5) or very large (close to 2)” (section 7.2), taken as within \
                 1 % of the fastest",
                (middle.iter().all(|p| blp_wins(p)), each(&middle, |p| p.winner().into())),
                format!(
                    "2-4 BLP to the fastest: {}.",
                    each(&middle, |p| format!("{:.1} %", blp_to_winner(p)))
                ),
            );
            check(
                "even at the ends 2-4 BLP is very close to the highest",
                "“Even in such scenarios, its throughput is very close to the highest” (section 7.2), \
                 taken as within 4 %",
                (
                    points.iter().all(|p| blp_to_winner(p) >= 96.0),
                    each(&points, |p| format!("{:.1} %", blp_to_winner(p))),
                ),
                close(),
            );
            check(
                &format!(
                    "2-4 BLP improves the throughput over some design somewhere by at least {} %",
                    least(4.0)
                ),
                "“up to 4% with skewed workloads” (section 7.2), taken as at least four fifths of it",
                reaches(lead(), 4.0),
                close(),
            );
            let (reached, at_most) =
                reaches(most(points.iter().copied(), "blp-2-4+pblru", &["blp-2-4"]), 7.5);
            check(
                &format!(
                    "PBLRU increases the throughput of 2-4 BLP somewhere by at least {} %",
                    least(7.5)
                ),
                "“PBLRU further improves the throughput with skewed workloads by up to 7.5%” \
                 (section 7.2), taken as at least four fifths of it",
                (reached, format!("{at_most}; {}", each(&points, |p| percent(gains(p))))),
                promotion(&points),
            );
        }
    }
    Ok(record)
}
