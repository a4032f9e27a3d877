//! Appendix D: how long until a cache is warm? Its differential equation, and a law that holds.
//!
//! With τ lookups per key of the working set and r the hit rate, the appendix takes
//! dr/dτ = r_max − r, so r = r_max (1 − e^−τ). That counts every key that is still missing for one
//! that finds an empty slot when it is looked up. Nearly none does:
//!
//! ```text
//!  buckets   4/4  4/4  4/4  4/4  3/4          x is missing, the empty slot is three buckets on;
//!              x▸   ▸    ▸    ▸  _            x evicts a, a must be looked up and evict b rightwards,
//!                a    b    c                  b must be … : a chain, each link a lookup per key long
//! ```
//!
//! A stretch of full buckets between a missing key and its slot is crossed at a rate that falls
//! with its length, and such stretches are the rarer the longer they are. The deficit is a mixture
//! of exponentials with rates down to 0, and such a mixture (gamma-distributed rates) is a power
//! law: the law tried here is
//!
//! ```text
//!  r(τ) = seen(τ) − q (1 + τ)^−γ,    τ ≥ 5
//! ```
//!
//! with seen(τ) the most that the keys seen so far allow ([`warm_up_seen`], without parameters),
//! and q, γ of the geometry and α alone: the process is local, so the size does not enter. They are
//! fitted on one size, some α and τ ≤ 200, and tested on another size, other α (interpolated) and
//! up to τ = 1000. Where keys have one bucket there are no chains, and seen(τ) is exact; where the
//! second bucket is anywhere, chains are as short as log n, and the deficit falls exponentially.

mod range;

use super::table1::model;
use overbank::cache::GeometryKind;
use overbank_kit::experiment::{Context, Experiment, LabError, Plot, Record, Series, Table};
use overbank_kit::geometry::{AnyGeometry, Family};
use overbank_kit::keyed::KeyedTable;
use overbank_kit::models::{warm_up, warm_up_seen};
use overbank_kit::workload::FlowStream;

/// Warm-up.
pub const APPENDIX_D: Experiment = Experiment {
    name: "appendix-d",
    title: "Warm-up: the differential equation, the tail, and a law that holds",
    source: "ATC 2020, appendix D",
    run,
};

/// Lookups per key at which the tables are looked at.
const TIMES: [f64; 20] = [
    0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 14.0, 20.0, 30.0, 50.0, 70.0, 100.0, 140.0, 200.0,
    300.0, 500.0, 700.0, 1000.0,
];
/// From here on the law is claimed to hold.
const LAW_FROM: f64 = 5.0;
const ALPHA: f64 = 0.95;

/// Hit rates over time, shifted by what this key set's maximum is off the average one's.
struct Course {
    kind: GeometryKind,
    alpha: f64,
    keys: u32,
    /// (τ, r), 0 to 1.
    rates: Vec<(f64, f64)>,
}

impl Course {
    fn measure(
        kind: GeometryKind,
        entries: usize,
        alpha: f64,
        seed: u64,
        until: f64,
    ) -> Result<Course, LabError> {
        let keys = (entries as f64 * alpha) as u32;
        let mut bench = KeyedTable::new(kind, entries, seed).map_err(LabError::failed)?;
        let mut stream = FlowStream::uniform(keys, seed).map_err(LabError::failed)?;
        let most = bench.most(keys) as f64 / f64::from(keys);
        let luck = most / model(kind, alpha);
        let mut done = 0;
        let mut rates = Vec::new();
        for time in TIMES.into_iter().filter(|t| *t <= until) {
            let target = (time * f64::from(keys)) as u64;
            bench.warm(&mut stream, target - done);
            done = target;
            rates.push((time, bench.held() as f64 / f64::from(keys) / luck));
        }
        Ok(Course { kind, alpha, keys, rates })
    }

    fn seen(&self, time: f64) -> f64 {
        let AnyGeometry { h, m, .. } = self.kind.into();
        warm_up_seen(h, m, self.alpha, time)
    }

    fn at(&self, time: f64) -> f64 {
        self.rates.iter().find(|r| r.0 == time).map_or(0.0, |r| r.1)
    }

    /// r_max − r, in points, as far as it is more than a handful of keys.
    fn deficit(&self) -> Vec<(f64, f64)> {
        let most = model(self.kind, self.alpha);
        let points = self.rates.iter().map(|(t, r)| (*t, 100.0 * (most - r)));
        points.filter(|p| p.1 > 1000.0 / f64::from(self.keys)).collect()
    }
}

/// q and γ at an α.
#[derive(Clone, Copy, Debug)]
struct Law {
    alpha: f64,
    ln_q: f64,
    gamma: f64,
}

impl Law {
    /// Least squares of ln(seen − r) over ln(1 + τ), each point with the weight of its keys.
    fn fit(course: &Course, until: f64) -> Law {
        let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for &(time, rate) in course.rates.iter().filter(|r| (LAW_FROM..=until).contains(&r.0)) {
            let missing = course.seen(time) - rate;
            let keys = missing * f64::from(course.keys);
            if keys < 5.0 {
                continue;
            }
            // Beyond a few hundred keys it is the law that is inexact, not the count.
            let (weight, x, y) = (keys.min(300.0), time.ln_1p(), missing.ln());
            w += weight;
            wx += weight * x;
            wy += weight * y;
            wxx += weight * x * x;
            wxy += weight * x * y;
        }
        let spread = w * wxx - wx * wx;
        // Too few keys for a slope: nothing is missing.
        if spread <= 1e-9 {
            return Law { alpha: course.alpha, ln_q: -12.0, gamma: 1.0 };
        }
        let slope = (w * wxy - wx * wy) / spread;
        Law { alpha: course.alpha, ln_q: (wy - slope * wx) / w, gamma: -slope }
    }

    /// Between the two neighbours of `alpha` among fitted ones, ascending.
    fn between(laws: &[Law], alpha: f64) -> Option<Law> {
        let pair = laws.windows(2).find(|p| (p[0].alpha..=p[1].alpha).contains(&alpha))?;
        let share = (alpha - pair[0].alpha) / (pair[1].alpha - pair[0].alpha);
        let mix = |a: f64, b: f64| a + (b - a) * share;
        let (ln_q, gamma) = (mix(pair[0].ln_q, pair[1].ln_q), mix(pair[0].gamma, pair[1].gamma));
        Some(Law { alpha, ln_q, gamma })
    }

    fn missing(&self, time: f64) -> f64 {
        (self.ln_q - self.gamma * time.ln_1p()).exp()
    }
}

/// Sizes of a run.
struct Sizes {
    fit_entries: usize,
    test_entries: usize,
    fit_until: f64,
    until: f64,
    tolerance: f64,
}

impl Sizes {
    fn of(smoke: bool) -> Sizes {
        let (fit_entries, test_entries) =
            if smoke { (1 << 12, 1 << 13) } else { (1 << 16, 1 << 18) };
        let (fit_until, until) = if smoke { (50.0, 100.0) } else { (200.0, 1000.0) };
        let tolerance = if smoke { 1.5 } else { 0.3 };
        Sizes { fit_entries, test_entries, fit_until, until, tolerance }
    }
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let sizes = Sizes::of(context.smoke());
    let mut record = APPENDIX_D.record(context);
    let entries = format!("{} (fit), {} (test)", sizes.fit_entries, sizes.test_entries);
    record.setting("entries", entries);
    record.setting("keys", "uniform");
    record.setting("eviction", "random");

    let blp = GeometryKind::Blp2x4;
    let fit_alphas: &[f64] = &[0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5];
    let mut laws = Vec::new();
    for (i, &alpha) in fit_alphas.iter().enumerate() {
        context.step(&format!("blp-2-4 at α = {alpha}, to fit"), i as f64 * 0.04)?;
        let until = sizes.fit_until;
        let course = Course::measure(blp, sizes.fit_entries, alpha, context.seed, until)?;
        laws.push(Law::fit(&course, until));
    }
    let mut tests = Vec::new();
    // The last ones go on to the end; a smaller table with another seed does, too.
    let cases = [
        (0.75, sizes.test_entries, sizes.fit_until),
        (0.85, sizes.test_entries, sizes.fit_until),
        (1.05, sizes.test_entries, sizes.fit_until),
        (1.35, sizes.test_entries, sizes.fit_until),
        (ALPHA, sizes.fit_entries / 2, sizes.until),
        (ALPHA, sizes.test_entries, sizes.until),
    ];
    for (i, (alpha, entries, until)) in cases.into_iter().enumerate() {
        context.step(&format!("blp-2-4 at α = {alpha}, to test"), 0.32 + i as f64 * 0.08)?;
        let course = Course::measure(blp, entries, alpha, context.seed.wrapping_add(1), until)?;
        let law = Law::between(&laws, alpha)
            .ok_or_else(|| LabError::Failed(format!("α = {alpha} is not between fitted ones")))?;
        tests.push((course, law));
    }
    let mut others = Vec::new();
    let kinds = [
        GeometryKind::Blp2x8,
        GeometryKind::Blp2x16,
        GeometryKind::Blp4x4,
        GeometryKind::Cuckoo2x4,
        GeometryKind::Set8,
    ];
    for (i, kind) in kinds.into_iter().enumerate() {
        let name = kind.name();
        context.step(&format!("{name} at α = {ALPHA}"), 0.8 + i as f64 * 0.02)?;
        others.push(Course::measure(kind, sizes.fit_entries, ALPHA, context.seed, sizes.until)?);
    }
    let Some((main, law)) = tests.last() else { return Ok(record) };

    claims(&mut record, main, &tests, &others, sizes.tolerance);
    record.plots.push(approach(main, *law));
    record.plots.push(tails(main, &others));
    record.plots.push(held_out(&tests));
    record.tables.push(filling(main));
    record.tables.push(tested(&tests));
    record.tables.push(exponents(main, &others, &laws, sizes.fit_until));
    let range = (sizes.fit_entries, sizes.fit_until, sizes.tolerance);
    range::add(&mut record, context, range, 0.9)?;
    record.notes.push(
        "Why the tail is slow. The equation takes each key that is still missing for one that finds \
         an empty slot in its buckets. After a few lookups per key nearly all missing keys find \
         their buckets full; what they do is to evict another key, which is missing then. The slot \
         that is still empty lies some buckets away, and is filled only by a chain of evictions \
         that happens to lead there, a random walk whose every step takes about one lookup per key. \
         Long chains are rare and slow, and the mixture of all lengths is a power law, not an \
         exponential. Cuckoo-lite's second bucket is anywhere, no slot is farther away than a few \
         steps, and its tail is exponential; with one bucket a key there are no chains at all."
            .to_owned(),
    );
    record.notes.push(
        "What it means. A flow cache never sees a thousand times its working set. At 20 lookups per \
         key, the paper's own warm-up, the hit rate of 2-4 BLP is that of the law here, not r_max."
            .to_owned(),
    );
    Ok(record)
}

fn claims(
    record: &mut Record,
    main: &Course,
    tests: &[(Course, Law)],
    others: &[Course],
    tolerance: f64,
) {
    let most = model(main.kind, ALPHA);
    let short = 100.0 * (most - main.at(20.0));
    record.claim(
        "2-4 BLP at α = 0.95 is less than 1 % below its maximum after 20 lookups per key",
        "< 1 %",
        format!("{short:.2} points, {:.2} %", short / most),
        short / most < 1.0,
    );
    // Hit rate won per lookup and key between 14 and 30, over r_max − r: 1 by the equation.
    let share = filling_share(main, 14.0, 30.0);
    record.claim(
        "share of the missing keys that fill a slot when looked up, around 20 lookups per key",
        "1 (assumption of the equation)",
        format!("{share:.3}"),
        share > 0.9,
    );
    let mut worst = (0.0, 0.0, 0.0);
    for (course, law) in tests {
        for &(time, rate) in course.rates.iter().filter(|r| r.0 >= LAW_FROM) {
            let off = 100.0 * (course.seen(time) - law.missing(time) - rate);
            if off.abs() > f64::abs(worst.0) {
                worst = (off, course.alpha, time);
            }
        }
    }
    record.claim(
        format!(
            "law seen(τ) − q (1 + τ)^−γ at other α, sizes and seeds than fitted, τ ≥ {LAW_FROM}"
        ),
        format!("within {tolerance} points"),
        format!("{:+.2} points at most, α = {}, τ = {}", worst.0, worst.1, worst.2),
        worst.0.abs() <= tolerance,
    );
    for course in others {
        let AnyGeometry { family, .. } = course.kind.into();
        if family == Family::Set {
            let off = course.rates.iter().map(|r| 100.0 * (course.seen(r.0) - r.1));
            let off =
                off.fold(0.0, |worst: f64, off| if off.abs() > worst.abs() { off } else { worst });
            record.claim(
                format!("{}: seen(τ) without parameters, at every τ", course.kind.name()),
                format!("within {tolerance} points"),
                format!("{off:+.2} points at most"),
                off.abs() <= tolerance,
            );
        } else if family == Family::Cuckoo {
            let deficit = |c: &Course| {
                let at = |t| 100.0 * (model(c.kind, ALPHA) - c.at(t));
                (at(10.0), at(100.0))
            };
            let (blp, cuckoo) = (deficit(main), deficit(course));
            record.claim(
                format!(
                    "{}: from 10 to 100 lookups per key the deficit falls faster",
                    course.kind.name()
                ),
                format!("than blp-2-4’s {:.1}-fold", blp.0 / blp.1.max(1e-3)),
                format!("{:.1}-fold", cuckoo.0 / cuckoo.1.max(1e-3)),
                cuckoo.0 / cuckoo.1.max(1e-3) > blp.0 / blp.1.max(1e-3),
            );
        }
    }
}

/// Hit rate won from one time to another, per lookup and key, over the mean of r_max − r.
fn filling_share(course: &Course, from: f64, to: f64) -> f64 {
    let most = model(course.kind, course.alpha);
    let (a, b) = (most - course.at(from), most - course.at(to));
    // Of an exponential this is its rate exactly.
    if a <= 0.0 || b <= 0.0 { 0.0 } else { (a / b).ln() / (to - from) }
}

fn plot(title: &str, y: &str, log_y: bool, series: Vec<Series>) -> Plot {
    let plot = Plot::new(title, "lookups per key of the working set, τ", y).log_x().with(series);
    Plot { log_y, ..plot }
}

fn percent(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    points.map(|(t, r)| (t, 100.0 * r)).collect()
}

fn approach(main: &Course, law: Law) -> Plot {
    let most = model(main.kind, ALPHA);
    let times = || main.rates.iter().map(|r| r.0).filter(|t| *t >= 1.0);
    let from = |least: f64| times().filter(move |t| *t >= least);
    let series = vec![
        Series::measured("blp-2-4", percent(times().map(|t| (t, main.at(t))))),
        Series::model("differential equation", percent(times().map(|t| (t, warm_up(most, t))))),
        Series::model("most of the keys seen", percent(times().map(|t| (t, main.seen(t))))),
        Series::model(
            "law (fitted at other α and size)",
            percent(from(LAW_FROM).map(|t| (t, main.seen(t) - law.missing(t)))),
        ),
    ];
    plot("Warm-up of 2-4 BLP at α = 0.95", "hits per 100 lookups", false, series).mark(
        "< 1 % below",
        20.0,
        99.0 * most,
    )
}

fn tails(main: &Course, others: &[Course]) -> Plot {
    let mut series: Vec<Series> = [main]
        .into_iter()
        .chain(others.iter().filter(|c| AnyGeometry::from(c.kind).family != Family::Set))
        .map(|course| Series::measured(course.kind.name(), course.deficit()))
        .collect();
    let most = model(main.kind, ALPHA);
    let equation = main.rates.iter().map(|r| (r.0, most - warm_up(most, r.0)));
    let equation = equation.filter(|p| p.1 > 1e-5);
    series.push(Series::model("differential equation (blp-2-4)", percent(equation)));
    plot("What is missing to the maximum at α = 0.95", "points of hit rate", true, series)
}

fn held_out(tests: &[(Course, Law)]) -> Plot {
    let mut series = Vec::new();
    let (_, rest) = tests.split_last().map_or((None, tests), |(last, rest)| (Some(last), rest));
    for (course, law) in rest.iter().filter(|t| t.0.alpha != ALPHA).chain(tests.last()) {
        let name = format!("α = {}", course.alpha);
        let most = model(course.kind, course.alpha);
        series.push(Series::measured(name.clone(), course.deficit()));
        let times = course.rates.iter().map(|r| r.0).filter(|t| *t >= LAW_FROM);
        let law = times.map(|t| (t, most - course.seen(t) + law.missing(t)));
        series.push(Series::model(format!("{name}, law"), percent(law)));
    }
    plot(
        "The law at α, sizes and seeds that it was not fitted on (2-4 BLP)",
        "points of hit rate missing to the maximum",
        true,
        series,
    )
}

/// What the equation counts on and what happens.
fn filling(main: &Course) -> Table {
    let most = model(main.kind, ALPHA);
    let times: Vec<f64> = main.rates.iter().map(|r| r.0).collect();
    let rows = times.windows(2).filter(|p| main.at(p[1]) < most - 1e-4).map(|pair| {
        let share = filling_share(main, pair[0], pair[1]);
        vec![
            format!("{} to {}", pair[0], pair[1]),
            format!("{:.2}", 100.0 * main.at(pair[1])),
            format!("{:.2}", 100.0 * warm_up(most, pair[1])),
            format!("{:.3}", 100.0 * (most - main.at(pair[1]))),
            format!("{share:.3}"),
        ]
    });
    let headings = [
        "lookups per key",
        "hit rate % at the end",
        "by the equation",
        "missing, points",
        "share of the missing that fill a slot",
    ];
    let title = "blp-2-4, α = 0.95: the equation’s assumption is that the last column is 1";
    Table { rows: rows.collect(), ..Table::new(title, headings) }
}

fn tested(tests: &[(Course, Law)]) -> Table {
    let rows = tests.iter().flat_map(|(course, law)| {
        let most = model(course.kind, course.alpha);
        let wanted = |t: &f64| [5.0, 20.0, 100.0, 1000.0].contains(t);
        course.rates.iter().filter(move |r| wanted(&r.0)).map(move |&(time, rate)| {
            vec![
                course.alpha.to_string(),
                course.keys.to_string(),
                time.to_string(),
                format!("{:.2}", 100.0 * rate),
                format!("{:.2}", 100.0 * (course.seen(time) - law.missing(time))),
                format!("{:.2}", 100.0 * warm_up(most, time)),
            ]
        })
    });
    let headings = ["α", "keys", "lookups per key", "hit rate %", "law", "equation"];
    Table { rows: rows.collect(), ..Table::new("blp-2-4 where the law was not fitted", headings) }
}

fn exponents(main: &Course, others: &[Course], laws: &[Law], until: f64) -> Table {
    let row = |name: &str, law: &Law| {
        let q = format!("{:.4}", law.ln_q.exp());
        vec![name.to_owned(), law.alpha.to_string(), q, format!("{:.3}", law.gamma)]
    };
    let own = laws.iter().map(|law| row("blp-2-4", law));
    let lines = others.iter().filter(|c| AnyGeometry::from(c.kind).family == Family::Blp);
    let rest = lines.chain([main]).map(|c| row(c.kind.name(), &Law::fit(c, until)));
    let rows = own.chain(rest).collect();
    Table { rows, ..Table::new("q and γ of the law", ["design", "α", "q", "γ"]) }
}
