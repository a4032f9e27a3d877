//! Appendix D: how long until a cache is warm? Its differential equation, and a law that holds.
//!
//! With τ lookups per key of the working set and r the hit rate, the appendix takes dr/dτ = r_max −
//! r, so r = r_max (1 − e^−τ). The law tried here, for the reasons in the notes of the record, is
//! r(τ) = seen(τ) − q (1 + τ)^−γ for τ ≥ 5, with seen(τ) the most that the keys seen so far allow
//! ([`warm_up_seen`], without parameters), and q, γ of the geometry and α alone. They are fitted on
//! one size, some α and τ ≤ 200, and tested on another size, other α (interpolated) and up to τ =
//! 1000. With one bucket a key seen(τ) is exact.

mod range;

use super::table1::model;
use crate::prelude::*;
use overbank::cache::GeometryKind;
use overbank_kit::geometry::{AnyGeometry, Family};
use overbank_kit::keyed::KeyedTable;
use overbank_kit::models::{warm_up, warm_up_seen};

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
    rates: Vec<(f64, f64)>,
    /// From other tables. None for one bucket a key, where seen(τ) is all.
    law: Option<Law>,
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
        let mut stream = draws(keys, 0.0, seed)?;
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
        Ok(Course { kind, alpha, keys, rates, law: None })
    }

    fn at(&self, time: f64) -> f64 {
        self.rates.iter().find(|r| r.0 == time).expect("a time of the course").1
    }

    fn times(&self, from: f64) -> impl Iterator<Item = f64> {
        self.rates.iter().map(|r| r.0).filter(move |time| *time >= from)
    }

    fn family(&self) -> Family {
        AnyGeometry::from(self.kind).family
    }

    fn most(&self) -> f64 {
        model(self.kind, self.alpha)
    }

    fn seen(&self, time: f64) -> f64 {
        let AnyGeometry { h, m, .. } = self.kind.into();
        warm_up_seen(h, m, self.alpha, time)
    }

    fn equation(&self, time: f64) -> f64 {
        warm_up(self.most(), time)
    }

    /// Returns r_max − r, in points, as far as it is more than a handful of keys.
    fn deficit(&self) -> Vec<(f64, f64)> {
        let points = self.rates.iter().map(|(t, r)| (*t, 100.0 * (self.most() - r)));
        points.filter(|p| p.1 > 1000.0 / f64::from(self.keys)).collect()
    }

    /// Returns the hit rate won from one time to another, per lookup and key, over the mean of
    /// r_max − r: of an exponential its rate exactly.
    fn filling_share(&self, from: f64, to: f64) -> f64 {
        let (a, b) = (self.most() - self.at(from), self.most() - self.at(to));
        if a <= 0.0 || b <= 0.0 { 0.0 } else { (a / b).ln() / (to - from) }
    }

    /// Returns where a model is farthest off between two times, in points of hit rate, and when.
    fn worst(&self, times: std::ops::Range<f64>, model: impl Fn(f64) -> f64) -> (f64, f64) {
        let rates = self.rates.iter().filter(|r| times.contains(&r.0));
        farthest(rates.map(|&(time, rate)| (100.0 * (model(time) - rate), time)))
    }

    /// Returns seen(τ), less what the law says is missing from where it begins.
    fn ours(&self, time: f64) -> f64 {
        let missing = self.law.filter(|_| time >= LAW_FROM).map_or(0.0, |law| law.missing(time));
        self.seen(time) - missing
    }

    fn worst_law(&self) -> (f64, f64) {
        self.worst(LAW_FROM..f64::INFINITY, |time| self.ours(time))
    }
}

#[derive(Clone, Copy, Debug)]
struct Law {
    alpha: f64,
    ln_q: f64,
    gamma: f64,
}

impl Law {
    /// Fits ln(seen − r) over ln(1 + τ) by least squares, each point with the weight of its keys.
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

    /// Interpolates between the neighbours of `alpha` among fitted laws, ascending.
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

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let smoke = context.smoke();
    let (fit_entries, test_entries) = if smoke { (1 << 12, 1 << 13) } else { (1 << 16, 1 << 18) };
    let (fit_until, until) = if smoke { (50.0, 100.0) } else { (200.0, 1000.0) };
    let tolerance = if smoke { 1.5 } else { 0.3 };
    let mut record = APPENDIX_D.record(context);
    record.setting("entries", format!("{fit_entries} (fit), {test_entries} (test)"));
    record.setting("keys", "uniform");
    record.setting("eviction", "random");

    let (blp, seed) = (GeometryKind::Blp2x4, context.seed);
    let measure = Course::measure;
    let laws = context.part((0.0, 0.3), |context| {
        let alphas = [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5];
        let name = |alpha: &f64| format!("blp-2-4 at α = {alpha}, to fit");
        context.each(alphas, name, |_, alpha| {
            Ok(Law::fit(&measure(blp, fit_entries, alpha, seed, fit_until)?, fit_until))
        })
    })?;
    // The last ones go on to the end; a smaller table with another seed does, too.
    let cases = [
        (0.75, test_entries, fit_until),
        (0.85, test_entries, fit_until),
        (1.05, test_entries, fit_until),
        (1.35, test_entries, fit_until),
        (ALPHA, fit_entries / 2, until),
        (ALPHA, test_entries, until),
    ];
    let tests = context.part((0.3, 0.8), |context| {
        let name = |case: &(f64, usize, f64)| format!("blp-2-4 at α = {}, to test", case.0);
        context.each(cases, name, |_, (alpha, entries, until)| {
            let course = measure(blp, entries, alpha, seed.wrapping_add(1), until)?;
            Ok(Course { law: Law::between(&laws, alpha), ..course })
        })
    })?;
    let kinds = [
        GeometryKind::Blp2x8,
        GeometryKind::Blp2x16,
        GeometryKind::Blp4x4,
        GeometryKind::Cuckoo2x4,
        GeometryKind::Set8,
    ];
    let others = context.part((0.8, 0.9), |context| {
        let name = |kind: &GeometryKind| format!("{} at α = {ALPHA}", kind.name());
        context.each(kinds, name, |_, kind| measure(kind, fit_entries, ALPHA, seed, until))
    })?;
    let Some(main) = tests.last() else { return Ok(record) };

    claims(&mut record, main, &tests, &others, tolerance);
    let ours = [
        curve("most of the keys seen", main.times(1.0), |t| main.seen(t)),
        curve("law (fitted at other α and size)", main.times(LAW_FROM), |t| main.ours(t)),
    ];
    let approach = approach(main, 1.0, ours).mark("< 1 % below", 20.0, 99.0 * main.most());
    record.plots = vec![approach, tails(main, &others), held_out(&tests)];
    record.tables = vec![
        filling(main),
        at_times("blp-2-4 where the law was not fitted", &tests, &[5.0, 20.0, 100.0, 1000.0]),
        exponents(main, &others, &laws, fit_until),
    ];
    context.part((0.9, 1.0), |context| {
        range::add(&mut record, context, (fit_entries, fit_until, tolerance))
    })?;
    record.note(
        "Why the tail is slow. The equation takes each key that is still missing for one that \
         finds an empty slot in its buckets. After a few lookups per key nearly all missing keys \
         find their buckets full, and evict another key, which is missing then. The slot that is \
         still empty lies some buckets away, and is filled only by a chain of evictions that \
         happens to lead there, a random walk whose every step takes about one lookup per key. \
         Long chains are rare and slow, and the mixture of all lengths is a power law. \
         Cuckoo-lite's second bucket is anywhere, so no slot is farther away than a few steps, and \
         its tail is exponential; with one bucket a key there are no chains at all.",
    );
    record.note(
        "What it means. A flow cache never sees a thousand times its working set. At 20 lookups \
         per key, the paper's own warm-up, the hit rate of 2-4 BLP is that of the law here, not \
         r_max.",
    );
    Ok(record)
}

fn claims(record: &mut Record, main: &Course, tests: &[Course], others: &[Course], tolerance: f64) {
    let most = main.most();
    let short = 100.0 * (most - main.at(20.0));
    record.claim(
        "2-4 BLP at α = 0.95 is less than 1 % below its maximum after 20 lookups per key",
        "< 1 %",
        format!("{short:.2} points, {:.2} %", short / most),
        short / most < 1.0,
    );
    let share = main.filling_share(14.0, 30.0);
    record.claim(
        "share of the missing keys that fill a slot when looked up, around 20 lookups per key",
        "1 (assumption of the equation)",
        format!("{share:.3}"),
        share > 0.9,
    );
    let worst = tests.iter().map(|case| {
        let (off, time) = case.worst_law();
        (off, (case.alpha, time))
    });
    let (off, (alpha, time)) = farthest(worst);
    let within = format!("within {tolerance} points");
    record.claim(
        format!(
            "law seen(τ) − q (1 + τ)^−γ at other α, sizes and seeds than fitted, τ ≥ {LAW_FROM}"
        ),
        &*within,
        format!("{off:+.2} points at most, α = {alpha}, τ = {time}"),
        off.abs() <= tolerance,
    );
    for course in others {
        let name = course.kind.name();
        if course.family() == Family::Set {
            let (off, _) = course.worst(0.0..f64::INFINITY, |time| course.seen(time));
            let claim = format!("{name}: seen(τ) without parameters, at every τ");
            let measured = format!("{off:+.2} points at most");
            record.claim(claim, &*within, measured, off.abs() <= tolerance);
        } else if course.family() == Family::Cuckoo {
            let fold = |of: &Course| {
                let at = |time| 100.0 * (of.most() - of.at(time));
                at(10.0) / f64::max(at(100.0), 1e-3)
            };
            let (blp, cuckoo) = (fold(main), fold(course));
            record.claim(
                format!("{name}: from 10 to 100 lookups per key the deficit falls faster"),
                format!("than blp-2-4’s {blp:.1}-fold"),
                format!("{cuckoo:.1}-fold"),
                cuckoo > blp,
            );
        }
    }
}

fn plot(title: &str, y: &str, series: Vec<Series>) -> Plot {
    Plot::new(title, "lookups per key of the working set, τ", y).log_x().with(series)
}

fn curve(name: &str, times: impl Iterator<Item = f64>, rate: impl Fn(f64) -> f64) -> Series {
    Series::model(name, times.map(|time| (time, 100.0 * rate(time))).collect())
}

fn approach(course: &Course, from: f64, ours: impl IntoIterator<Item = Series>) -> Plot {
    let measured = curve("blp-2-4", course.times(from), |t| course.at(t));
    let equation = curve("differential equation", course.times(from), |t| course.equation(t));
    let series = [Series { model: false, ..measured }, equation].into_iter().chain(ours);
    let title = format!("Warm-up of 2-4 BLP at α = {}", course.alpha);
    plot(&title, "hits per 100 lookups", series.collect())
}

fn tails(main: &Course, others: &[Course]) -> Plot {
    let courses = [main].into_iter().chain(others.iter().filter(|c| c.family() != Family::Set));
    let measured = courses.map(|course| Series::measured(course.kind.name(), course.deficit()));
    let missing = |t: f64| main.most() - main.equation(t);
    let times = main.times(0.0).filter(|&t| missing(t) > 1e-5);
    let equation = curve("differential equation (blp-2-4)", times, missing);
    let series = measured.chain([equation]).collect();
    plot("What is missing to the maximum at α = 0.95", "points of hit rate", series).log_y()
}

fn held_out(tests: &[Course]) -> Plot {
    let shown = tests.iter().filter(|case| case.alpha != ALPHA).chain(tests.last());
    let series = shown.flat_map(|course| {
        let name = format!("α = {}", course.alpha);
        let law = curve(&format!("{name}, law"), course.times(LAW_FROM), |t| {
            course.most() - course.ours(t)
        });
        [Series::measured(name, course.deficit()), law]
    });
    let title = "The law at α, sizes and seeds that it was not fitted on (2-4 BLP)";
    plot(title, "points of hit rate missing to the maximum", series.collect()).log_y()
}

fn filling(main: &Course) -> Table {
    let times: Vec<f64> = main.times(0.0).collect();
    let pairs = times.windows(2).filter(|p| main.at(p[1]) < main.most() - 1e-4);
    Table::of(
        "blp-2-4, α = 0.95: the equation’s assumption is that the last column is 1",
        pairs,
        &[
            ("lookups per key", &|p| format!("{} to {}", p[0], p[1])),
            ("hit rate % at the end", &|p| format!("{:.2}", 100.0 * main.at(p[1]))),
            ("by the equation", &|p| format!("{:.2}", 100.0 * main.equation(p[1]))),
            ("missing, points", &|p| format!("{:.3}", 100.0 * (main.most() - main.at(p[1])))),
            ("share of the missing that fill a slot", &|p| {
                format!("{:.3}", main.filling_share(p[0], p[1]))
            }),
        ],
    )
}

/// Shows the rates measured beside the law and the equation.
fn at_times(title: &str, cases: &[Course], times: &[f64]) -> Table {
    let rates = cases.iter().flat_map(|case| case.rates.iter().map(move |r| (case, r)));
    Table::of(
        title,
        rates.filter(|(_, rate)| times.contains(&rate.0)),
        &[
            ("design", &|(case, _)| case.kind.name().to_owned()),
            ("α", &|(case, _)| case.alpha.to_string()),
            ("keys", &|(case, _)| case.keys.to_string()),
            ("lookups per key", &|(_, rate)| rate.0.to_string()),
            ("hit rate %", &|(_, rate)| format!("{:.2}", 100.0 * rate.1)),
            ("seen(τ), the law from 5", &|(case, r)| format!("{:.2}", 100.0 * case.ours(r.0))),
            ("equation", &|(case, r)| format!("{:.2}", 100.0 * case.equation(r.0))),
        ],
    )
}

fn exponents(main: &Course, others: &[Course], laws: &[Law], until: f64) -> Table {
    let own = laws.iter().map(|law| ("blp-2-4", *law));
    let lines = others.iter().filter(|course| course.family() == Family::Blp);
    let rest = lines.chain([main]).map(|course| (course.kind.name(), Law::fit(course, until)));
    Table::of(
        "q and γ of the law",
        own.chain(rest),
        &[
            ("design", &|(name, _)| (*name).to_owned()),
            ("α", &|(_, law)| law.alpha.to_string()),
            ("q", &|(_, law)| format!("{:.4}", law.ln_q.exp())),
            ("γ", &|(_, law)| format!("{:.3}", law.gamma)),
        ],
    )
}
