//! Figure 7: hit rates and lookup latencies.

use super::{Claim, Course, PLAIN, Point, THETAS, each, law, plot, points, state_anywhere};
use overbank_kit::experiment::{Context, Experiment, LabError, Mark, Plot, Record, Series};
use overbank_kit::micro::tsc;
use overbank_kit::models::ALPHA_PAPER;

/// Figure 7.
pub const FIG7: Experiment = Experiment {
    name: "fig7",
    title: "end to end through three tiers: hit rate and lookup latency",
    source: "ATC 2020, figure 7",
    run: fig7,
};

/// What the figures of lookups can bear.
const TIMED_ONCE: &str = "Lookups are timed once for each design, one design after the other: these \
     figures have no rounds to compare, and do not say where a difference comes from.";

/// What the text states of hit rates: table 1 without skew, and a phrase of section 7.2 with it.
fn stated_rates(theta: f64) -> Vec<Mark> {
    let mark = |name: &str, x, y| Mark { name: name.to_owned(), x, y };
    if theta > 0.0 {
        return vec![mark("“close to 100%”", 0.5, 100.0)];
    }
    let table_1 = [("4-way", 82.0), ("8-way", 88.0), ("2-4 BLP", 94.0), ("2-4 cuckoo-lite", 99.0)];
    table_1.map(|(name, y)| mark(&format!("{name}: {y} % (table 1)"), ALPHA_PAPER, y)).to_vec()
}

/// How much longer a lookup of 2-4 BLP takes than one of 4-way.
fn longer(points: &[&Point], name: &str, cycles_per_ns: f64) -> Plot {
    let cycles = |p: &&Point| (p.alpha, cycles_per_ns * (p.lookup("blp-2-4") - p.lookup("set-4")));
    let mut plot = Plot {
        title: format!("{name}: lookup latency of 2-4 BLP less that of 4-way"),
        x: "oversubscription α (flows per slot)".into(),
        y: "cycles of the TSC".into(),
        log_x: false,
        log_y: false,
        series: vec![Series::measured("blp-2-4 less set-4", points.iter().map(cycles).collect())],
        stated: Vec::new(),
    };
    state_anywhere(&mut plot, "about 10 clock cycles", 10.0);
    plot
}

fn fig7(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let all = points(context)?;
    let cycles_per_ns = tsc::cycles_per_ns();
    let mut record = Record::new((FIG7.name, FIG7.title, FIG7.source), context);
    record.settings = Course::figures_6_and_7(smoke).settings();
    record.notes = vec![
        "Lookup latency is that of tier 1 alone, in bursts of 32 on the table as the traffic leaves \
         it, without the check of what it found: nanoseconds a packet of a full burst, not the time \
         from asking to knowing. Each design's is the median over stretches of one pass, one design \
         after the other, so that a machine that changes its speed meanwhile shows in the differences."
            .into(),
    ];
    for theta in THETAS {
        let points: Vec<&Point> = all.iter().filter(|p| p.theta == theta).collect();
        let name = law(theta);
        let title = format!("{name}: hit rate of tier 1");
        let mut rates = plot(&points, &title, "hit rate, %", |d| (100.0 * d.hit_rate, None));
        rates.stated = stated_rates(theta);
        record.plots.push(rates);
        let y = "nanoseconds a lookup";
        record.plots.push(plot(&points, &format!("{name}: lookup latency of tier 1"), y, |d| {
            (d.ns_lookup.unwrap_or(0.0), None)
        }));
        record.plots.push(longer(&points, &name, cycles_per_ns));
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
            &format!(
                "“2-4 cuckoo-lite having a higher cache hit rate” (section 7.2); 99, 94, 88 and 82 % by \
                 table 1; the same within {slack} points"
            ),
            (
                points.iter().all(|p| {
                    at_least(p, "cuckoo-2-4", "blp-2-4")
                        && at_least(p, "blp-2-4", "set-8")
                        && at_least(p, "set-8", "set-4")
                }),
                format!("{}: {}", PLAIN.join(", "), each(&points, rates)),
            ),
            "",
        );
        let won = |p: &Point| p.points("blp-2-4+pblru") - p.points("blp-2-4");
        let shown = each(&points, |p| format!("{:+.2} points", won(p)));
        if theta == 0.0 {
            check(
                false,
                "PBLRU is unable to improve the hit rate",
                &format!(
                    "“PBLRU is unable to improve the cache hit rate in the uniform distribution” \
                     (section 7.2), taken as by no more than {slack} points"
                ),
                (points.iter().all(|p| won(p) <= slack), shown),
                "",
            );
        } else {
            let low = points.first().map_or(0.0, |p| p.points("blp-2-4"));
            check(
                false,
                "with random eviction hit rates at low α are close to 100 %",
                "“when the oversubscription factor is low, using random eviction is enough to get hit \
                 rates that are close to 100%” (section 7.2), taken as 97.5 % at α = 0.5",
                (low >= 97.5, format!("{low:.2} %")),
                "",
            );
            check(
                false,
                "PBLRU improves the hit rate when α is high",
                "“PBLRU further improves cache hit rate, especially when the oversubscription factor is \
                 high” (section 7.2), taken as α = 2",
                (points.last().is_some_and(|p| won(p) > 0.0), shown),
                "",
            );
        }
        let latency = |p: &Point| PLAIN.map(|name| format!("{:.1}", p.lookup(name))).join(", ");
        let shown = format!("{}: {}", PLAIN.join(", "), each(&points, latency));
        check(
            true,
            "4-way and 8-way have lower lookup latency than 2-4 BLP",
            "“both 4-way and 8-way SIMD having lower lookup latency” (section 7.2)",
            (
                points
                    .iter()
                    .all(|p| p.lookup("set-4").max(p.lookup("set-8")) < p.lookup("blp-2-4")),
                shown.clone(),
            ),
            TIMED_ONCE,
        );
        let cycles = |p: &Point| cycles_per_ns * (p.lookup("blp-2-4") - p.lookup("set-4"));
        check(
            true,
            "a lookup of 2-4 BLP takes about 10 cycles longer than one of 4-way",
            "“about 10 clock cycles longer than that of the basic set-associative design” (section 1), \
             taken as 5 to 15",
            (
                points.iter().all(|p| (5.0..=15.0).contains(&cycles(p))),
                each(&points, |p| format!("{:+.1} cycles", cycles(p))),
            ),
            TIMED_ONCE,
        );
        check(
            true,
            "2-4 cuckoo-lite has the highest lookup latency",
            "“its higher lookup latency” (section 7.2, of 2-4 cuckoo-lite)",
            (
                points
                    .iter()
                    .all(|p| PLAIN.iter().all(|name| p.lookup(name) <= p.lookup("cuckoo-2-4"))),
                shown,
            ),
            TIMED_ONCE,
        );
    }
    Ok(record)
}
