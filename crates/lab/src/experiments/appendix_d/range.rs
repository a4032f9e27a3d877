//! The warm-up from α = 0.25 to 4, for a small bucket, a line-sized one, and one bucket a key.
//!
//! At each α two smaller tables, at 0.97 α and 1.03 α and with another seed, give q and γ between;
//! so no law is tested on what it was fitted to. (They are that near because q has a peak at α = 1,
//! the sharper the wider the bucket: from 0.9 α and 1.1 α, 2-16 BLP was a point off at α = 0.95.) The equation errs in two ways: below α = 1 it is
//! too fast at the end, and above it is too slow at the start. It lets only the keys that will have
//! a slot in the end fill one, while any key does as long as there are empty ones:
//!
//! ```text
//!  α = 4, one lookup per key:   equation  r_max (1 − e^−1) = 0.25 · 0.63 = 0.16
//!                               seen      2.5 keys a slot, so all are taken:  0.25
//! ```

use super::super::table1::model;
use super::{Course, LAW_FROM, Law, percent, plot};
use overbank::cache::GeometryKind;
use overbank_kit::experiment::{Context, LabError, Plot, Record, Series, Table};
use overbank_kit::models::warm_up;

const ALPHAS: [f64; 6] = [0.25, 0.5, 0.95, 1.25, 2.0, 4.0];
/// α of the tables that the law is fitted to, as a multiple.
const NEAR: [f64; 2] = [0.97, 1.03];
const KINDS: [GeometryKind; 3] = [GeometryKind::Blp2x4, GeometryKind::Blp2x16, GeometryKind::Set16];

/// A warm-up and the law for it; none for one bucket a key, where seen(τ) is all.
struct Case {
    course: Course,
    law: Option<Law>,
}

/// The point farthest off, model less measured, in points of hit rate, and where it is.
#[derive(Clone, Copy, Default)]
struct Worst {
    off: f64,
    time: f64,
}

impl Case {
    /// seen(τ), less what the law says is missing from where it begins.
    fn ours(&self, time: f64) -> f64 {
        let missing = self.law.filter(|_| time >= LAW_FROM).map_or(0.0, |law| law.missing(time));
        self.course.seen(time) - missing
    }

    fn equation(&self, time: f64) -> f64 {
        warm_up(model(self.course.kind, self.course.alpha), time)
    }

    fn worst(&self, from: f64, below: f64, model: impl Fn(f64) -> f64) -> Worst {
        let times = self.course.rates.iter().filter(|r| (from..below).contains(&r.0));
        times.fold(Worst::default(), |worst, &(time, rate)| {
            let off = 100.0 * (model(time) - rate);
            if off.abs() > worst.off.abs() { Worst { off, time } } else { worst }
        })
    }

    fn worst_law(&self) -> Worst {
        self.worst(LAW_FROM, f64::INFINITY, |t| self.ours(t))
    }
}

/// Measures and adds it to the record; `entries` is of tables below α = 1, larger α have less.
pub(super) fn add(
    record: &mut Record,
    context: &mut Context<'_>,
    (entries, until, tolerance): (usize, f64, f64),
    from: f64,
) -> Result<(), LabError> {
    let mut cases = Vec::new();
    for (i, kind) in KINDS.into_iter().enumerate() {
        for (j, alpha) in ALPHAS.into_iter().enumerate() {
            let done = (i * ALPHAS.len() + j) as f64 / (KINDS.len() * ALPHAS.len()) as f64;
            let name = kind.name();
            context.step(&format!("{name} at α = {alpha}"), from + (1.0 - from) * done)?;
            let entries = entries / if alpha >= 4.0 { 4 } else { 1 + usize::from(alpha >= 2.0) };
            let seed = context.seed.wrapping_add(1);
            let course = Course::measure(kind, entries, alpha, seed, until)?;
            let law = if kind.is_set_associative() {
                None
            } else {
                let near = NEAR.map(|f| {
                    let course =
                        Course::measure(kind, entries / 2, f * alpha, context.seed, until)?;
                    Ok(Law::fit(&course, until))
                });
                let [below, above] = near;
                Law::between(&[below?, above?], alpha)
            };
            cases.push(Case { course, law });
        }
    }
    for of_kind in cases.chunks(ALPHAS.len()) {
        claims(record, of_kind, tolerance);
    }
    let shown = cases.iter().filter(|c| c.course.kind == KINDS[0]);
    let extreme = |case: &&Case| [0.25, 0.5, 2.0, 4.0].contains(&case.course.alpha);
    record.plots.extend(shown.filter(extreme).map(course_plot));
    record.tables.push(table(&cases));
    record.tables.push(at_times(&cases));
    record.notes.push(NOTE.to_owned());
    Ok(())
}

const NOTE: &str = "α from 0.25 to 4. Two things are wrong with the equation. Above α = 1 it is too \
    slow at the start: it lets a key fill a slot only if it will have one in the end, but any key \
    fills one while there are empty ones, so a table with 4 keys a slot is full before each key \
    was looked up once. Around α = 1 it is too fast at the end, because of the chains. The law's \
    own term, q (1 + τ)^−γ, matters only there. Far below α = 1 hardly a bucket overflows, far above \
    hardly a slot is empty; then q is near 0, seen(τ) alone is as good, and that the law is within \
    the tolerance says little of its shape: with a handful of keys missing γ cannot be told. \
    q has a peak around α = 1, the sharper the wider the bucket, so that it cannot be had from an α \
    that is far away: see the table.";

fn claims(record: &mut Record, cases: &[Case], tolerance: f64) {
    let name = cases[0].course.kind.name();
    let worst: Vec<(f64, Worst)> =
        cases.iter().map(|case| (case.course.alpha, case.worst_law())).collect();
    let each = worst.iter().map(|(alpha, w)| format!("{:+.2} (α = {alpha})", w.off));
    let what =
        if cases[0].law.is_some() { "law, fitted at 0.97 α and 1.03 α" } else { "seen(τ)" };
    record.claim(
        format!("{name}: {what}, at α from 0.25 to 4, τ ≥ {LAW_FROM}"),
        format!("within {tolerance} points"),
        each.collect::<Vec<_>>().join(", "),
        worst.iter().all(|(_, w)| w.off.abs() <= tolerance),
    );
    // From α = 2 on the chains are over before the law begins.
    for case in cases.iter().filter(|c| c.course.alpha >= 2.0) {
        let ours = case.worst(0.0, f64::INFINITY, |t| case.ours(t));
        let equation = case.worst(0.0, f64::INFINITY, |t| case.equation(t));
        record.claim(
            format!(
                "{name} at α = {}, every τ: seen(τ) and the law are nearer than the equation",
                case.course.alpha
            ),
            format!("than {:+.2} points (τ = {})", equation.off, equation.time),
            format!("{:+.2} points at most (τ = {})", ours.off, ours.time),
            ours.off.abs() < equation.off.abs(),
        );
    }
}

fn course_plot(case: &Case) -> Plot {
    let Case { course, .. } = case;
    let times = || course.rates.iter().map(|r| r.0);
    let series = vec![
        Series::measured("blp-2-4", percent(course.rates.iter().copied())),
        Series::model("differential equation", percent(times().map(|t| (t, case.equation(t))))),
        Series::model(
            format!("seen(τ), the law from τ = {LAW_FROM}"),
            percent(times().map(|t| (t, case.ours(t)))),
        ),
    ];
    let title = format!("Warm-up of 2-4 BLP at α = {}", course.alpha);
    plot(&title, "hits per 100 lookups", false, series)
}

fn table(cases: &[Case]) -> Table {
    let rows = cases.iter().map(|case| {
        let cell = |w: Worst| format!("{:+.2} (τ = {})", w.off, w.time);
        let (q, gamma) = case.law.map_or(("none".to_owned(), "none".to_owned()), |law| {
            (format!("{:.4}", law.ln_q.exp()), format!("{:.2}", law.gamma))
        });
        let end = f64::INFINITY;
        vec![
            case.course.kind.name().to_owned(),
            case.course.alpha.to_string(),
            cell(case.worst(0.0, LAW_FROM, |t| case.equation(t))),
            cell(case.worst(0.0, LAW_FROM, |t| case.ours(t))),
            cell(case.worst(LAW_FROM, end, |t| case.equation(t))),
            cell(case.worst(LAW_FROM, end, |t| case.course.seen(t))),
            cell(case.worst_law()),
            q,
            gamma,
        ]
    });
    let headings = [
        "design",
        "α",
        "equation, τ < 5",
        "seen(τ), τ < 5",
        "equation, τ ≥ 5",
        "seen(τ), τ ≥ 5",
        "law, τ ≥ 5",
        "q",
        "γ",
    ];
    let title = "Where each model is farthest off, in points of hit rate (model less measured)";
    Table { rows: rows.collect(), ..Table::new(title, headings) }
}

fn at_times(cases: &[Case]) -> Table {
    let rows = cases.iter().flat_map(|case| {
        let wanted = |t: &f64| [0.5, 1.0, 5.0, 20.0, 200.0].contains(t);
        case.course.rates.iter().filter(move |r| wanted(&r.0)).map(|&(time, rate)| {
            vec![
                case.course.kind.name().to_owned(),
                case.course.alpha.to_string(),
                time.to_string(),
                format!("{:.2}", 100.0 * rate),
                format!("{:.2}", 100.0 * case.equation(time)),
                format!("{:.2}", 100.0 * case.ours(time)),
            ]
        })
    });
    let headings =
        ["design", "α", "lookups per key", "hit rate %", "equation", "seen(τ), the law from 5"];
    let title = "Measured, the equation and ours, α from 0.25 to 4";
    Table { rows: rows.collect(), ..Table::new(title, headings) }
}
