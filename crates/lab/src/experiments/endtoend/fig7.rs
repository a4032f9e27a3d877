//! Figure 7: hit rates and lookup latencies.

use super::{Claim, Course, PLAIN, Point, THETAS, each, law, plot, points};
use crate::experiment::{Context, Experiment, LabError, Record};

/// Figure 7.
pub const FIG7: Experiment = Experiment {
    name: "fig7",
    title: "end to end through three tiers: hit rate and lookup latency",
    source: "ATC 2020, figure 7",
    run: fig7,
};

/// Not measured apart.
const SAME_BURST: &str = "Probably because every design has the same burst here, which asks for all lines \
     before it reads the first, so that the waits for second lines overlap with others; and while it \
     has room, cuckoo-lite looks at second buckets only where the first have no match.";

fn fig7(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let all = points(context)?;
    let mut record = Record::new((FIG7.name, FIG7.title, FIG7.source), context);
    record.settings = Course::figures_6_and_7(smoke).settings();
    record.notes = vec![
        "Lookup latency is that of tier 1 alone, in bursts of 32 on the table as the traffic leaves \
         it, without the check of what it found: nanoseconds a packet of a full burst, not the time \
         from asking to knowing."
            .into(),
    ];
    for theta in THETAS {
        let points: Vec<&Point> = all.iter().filter(|p| p.theta == theta).collect();
        let name = law(theta);
        record.plots.push(plot(
            &points,
            &format!("{name}: hit rate of tier 1"),
            "hit rate, %",
            |d| (100.0 * d.hit_rate, None),
        ));
        let y = "nanoseconds a lookup";
        record.plots.push(plot(&points, &format!("{name}: lookup latency of tier 1"), y, |d| {
            (d.ns_lookup.unwrap_or(0.0), None)
        }));
        let rates = |p: &Point| {
            let rates = PLAIN.map(|name| format!("{:.1}", p.points(name)));
            rates.join(", ")
        };
        // Half a point of noise in small tables, where nearly everything hits or α is high.
        let slack = if smoke { 0.7 } else { 0.2 };
        let at_least = |p: &Point, a: &str, b: &str| p.points(a) >= p.points(b) - slack;
        let mut check = |timed, text: &str, stated: &str, found: (bool, String), why: &str| {
            let (text, why) = (format!("{name}: {text}"), why.to_owned());
            Claim { timed, text: &text, stated, found, why }.note(&mut record, smoke);
        };
        check(
            false,
            "2-4 cuckoo-lite hits at least as often as 2-4 BLP, and that as 8-way and 4-way",
            "cuckoo-lite ≥ BLP ≥ 8-way ≥ 4-way",
            (
                points.iter().all(|p| {
                    at_least(p, "cuckoo-2-4", "blp-2-4")
                        && at_least(p, "blp-2-4", "set-8")
                        && at_least(p, "set-8", "set-4")
                }),
                format!("{}: {}", PLAIN.join(", "), each(&points, rates)),
            ),
            "At α = 2 all tables are full, and the rates are the same within the noise.",
        );
        let won = |p: &Point| p.points("blp-2-4+pblru") - p.points("blp-2-4");
        let shown = each(&points, |p| format!("{:+.2} points", won(p)));
        if theta == 0.0 {
            check(
                false,
                "PBLRU is unable to improve the hit rate",
                "no higher",
                (points.iter().all(|p| won(p) <= slack), shown),
                "",
            );
        } else {
            let low = points.first().map_or(0.0, |p| p.points("blp-2-4"));
            check(
                false,
                "with random eviction hit rates at low α are close to 100 %",
                "close to 100 % at α = 0.5",
                (low >= 97.5, format!("{low:.2} %")),
                "",
            );
            check(
                false,
                "PBLRU improves the hit rate when α is high",
                "higher at α = 2",
                (points.last().is_some_and(|p| won(p) > 0.0), shown),
                "",
            );
        }
        let latency = |p: &Point| PLAIN.map(|name| format!("{:.1}", p.lookup(name))).join(", ");
        let shown = format!("{}: {}", PLAIN.join(", "), each(&points, latency));
        check(
            true,
            "4-way and 8-way have lower lookup latency than 2-4 BLP",
            "lower at every α",
            (
                points
                    .iter()
                    .all(|p| p.lookup("set-4").max(p.lookup("set-8")) < p.lookup("blp-2-4")),
                shown.clone(),
            ),
            SAME_BURST,
        );
        check(
            true,
            "2-4 cuckoo-lite has the highest lookup latency",
            "highest at every α",
            (
                points
                    .iter()
                    .all(|p| PLAIN.iter().all(|name| p.lookup(name) <= p.lookup("cuckoo-2-4"))),
                shown,
            ),
            SAME_BURST,
        );
    }
    Ok(record)
}
