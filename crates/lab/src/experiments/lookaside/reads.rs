//! Lookups alone: every index, three skews.

use super::LOOKASIDE;
use super::shared::{Case, Measured, built, keys, measured, table};
use crate::prelude::*;
use overbank_products::aside::bench::Subject;
use overbank_products::aside::mix::Mix;
use overbank_products::aside::record::TableRecord;

const TENTH: f64 = 0.1;
const THETAS: [f64; 3] = [0.0, 0.8, 0.99];

/// Returns the indexes for which a table is made.
fn slow() -> Vec<Subject> {
    Subject::ALL.into_iter().filter(|subject| *subject != Subject::HashMap).collect()
}

struct All(Vec<Measured>);

impl All {
    fn at(&self, subject: Subject, theta: f64) -> Option<&Measured> {
        let mut of = self.0.iter().filter(|of| of.case.gate && of.case.theta == theta);
        of.find(|of| of.case.subject == subject)
    }

    fn table(&self, subject: Subject, theta: f64, share: f64) -> Option<&TableRecord> {
        self.at(subject, theta)?.table(share)
    }

    /// Judges the gain and that in bursts, at θ = 0.99.
    fn gains(&self, subject: Subject, share: f64, least: [f64; 2]) -> Option<Finding> {
        let table = self.table(subject, 0.99, share)?;
        let found = [table.gain, table.burst_gain?];
        let holds = found.iter().zip(least).all(|(found, least)| found.median >= least);
        Finding::new(holds, listed(found, |found| found.text()))
    }

    /// Judges the least gain of indexes at a skew.
    fn least(&self, subjects: &[Subject], theta: f64, least: f64) -> Option<Finding> {
        let of = |subject: &Subject| Some((*subject, self.table(*subject, theta, TENTH)?.gain));
        let found: Vec<_> = subjects.iter().filter_map(of).collect();
        let holds = found.iter().all(|(_, gain)| gain.median >= least);
        Finding::new(holds, listed(found, |(of, gain)| format!("{of} {}", gain.text())))
    }
}

/// What holds at any size.
const ALWAYS: &[Claim<All>] = &[
    Claim::new("the more skew, the more hits", "by definition", |all: &All| {
        let hits = |subject, theta| all.table(subject, theta, TENTH)?.hit_rate;
        let rises = |subject: &Subject| hits(*subject, 0.0) < hits(*subject, 0.99);
        let falls: Vec<_> = slow().into_iter().filter(|subject| !rises(subject)).collect();
        Finding::new(falls.is_empty(), format!("not for: {falls:?}"))
    }),
    Claim::new("a larger table hits more often", "by definition", |all: &All| {
        let hits = |share| all.table(Subject::BTreeMap, 0.99, share)?.hit_rate;
        let (small, large) = (hits(TENTH)?, hits(0.4)?);
        Finding::new(small < large, format!("{}, {}", percent(small, 1), percent(large, 1)))
    }),
];

const GOALS: &[Claim<All>] = &[
    Claim::timed(
        "BTreeMap, entries for 10 % of the keys",
        "≥ 2.0 ×, bursts ≥ 2.4 ×",
        |all: &All| all.gains(Subject::BTreeMap, TENTH, [2.0, 2.4]),
    ),
    Claim::timed("BTreeMap, 40 %", "≥ 2.8 ×, bursts ≥ 3.5 ×", |all: &All| {
        all.gains(Subject::BTreeMap, 0.4, [2.8, 3.5])
    }),
    Claim::timed("redb", "≥ 2.7 ×, bursts ≥ 3.1 ×", |all: &All| {
        all.gains(Subject::Redb, TENTH, [2.7, 3.1])
    }),
    Claim::timed("LMDB", "≥ 2.5 ×, bursts ≥ 3.0 ×", |all: &All| {
        all.gains(Subject::Lmdb, TENTH, [2.5, 3.0])
    }),
    Claim::timed("redb, a transaction a lookup", "≥ 3.0 ×", |all: &All| {
        all.least(&[Subject::RedbLatest], 0.99, 3.0)
    }),
    Claim::timed("LMDB, a transaction a lookup", "≥ 2.7 ×", |all: &All| {
        all.least(&[Subject::LmdbLatest], 0.99, 2.7)
    }),
    Claim::timed("SkipMap", "≥ 2.5 ×", |all: &All| all.least(&[Subject::SkipMap], 0.99, 2.5)),
    Claim::timed("congee", "≥ 2.1 ×", |all: &All| all.least(&[Subject::Congee], 0.99, 2.1)),
    Claim::timed("θ = 0.8", "≥ 1.2 × for all", |all: &All| all.least(&slow(), 0.8, 1.2)),
    Claim::timed("uniform, with the gate", "≥ 0.97 × for all", |all: &All| {
        all.least(&slow(), 0.0, 0.97)
    }),
    Claim::timed("HashMap with the gate, any θ", "≥ 0.95 ×", |all: &All| {
        let of = |theta| Some(all.table(Subject::HashMap, theta, TENTH)?.gain);
        let found: Vec<Spread> = THETAS.into_iter().filter_map(of).collect();
        let least = found.iter().map(|gain| gain.median).fold(f64::MAX, f64::min);
        Finding::new(least >= 0.95, listed(found, |gain| gain.text()))
    }),
    Claim::timed("BTreeMap, uniform, without a gate: a miss costs", "≤ 12 %", |all: &All| {
        let of = all.0.iter().find(|of| !of.case.gate)?;
        let cost = of.table(TENTH)?.gain.map(|gain| 1.0 / gain);
        Finding::new(cost.median <= 1.12, cost.change().percent())
    }),
    Claim::timed("hit rate of the static optimum, θ = 0.99", "≥ 0.95", |all: &All| {
        let table = all.table(Subject::BTreeMap, 0.99, TENTH)?;
        let share = table.hit_rate? / table.optimum?;
        Finding::new(share >= 0.95, format!("{share:.3}"))
    }),
];

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("look-aside tables", 0.0)?;
    // A database is built once for both ways.
    let builds = [
        vec![Subject::BTreeMap],
        vec![Subject::Redb, Subject::RedbLatest],
        vec![Subject::Lmdb, Subject::LmdbLatest],
        vec![Subject::SkipMap],
        vec![Subject::Congee],
        vec![Subject::HashMap],
    ];
    let smoke = context.smoke();
    let all = context.each(
        builds,
        |subjects| format!("{}: building", subjects[0]),
        |context, subjects| {
            let mut index = built(context, subjects[0])?;
            let mut cases = pairs(&subjects, &THETAS).into_iter().map(case).collect::<Vec<_>>();
            if subjects[0] == Subject::BTreeMap {
                cases.push(Case { gate: false, ..case((Subject::BTreeMap, 0.0)) });
            }
            context.each(
                cases,
                |case| case.subject.to_string(),
                |context, case| measured(context, &mut *index, case),
            )
        },
    )?;
    let all = All(all.into_iter().flatten().collect());
    let mut record = LOOKASIDE.record(context);
    record.setting("keys", keys(Subject::BTreeMap, smoke));
    record.setting("keys of SkipMap", keys(Subject::SkipMap, smoke));
    record.setting("keys, values", "64 bits");
    record.judge("", ALWAYS, &all);
    record.judge("", GOALS, &all);
    let curve = |subject: &Subject| {
        let of = THETAS
            .into_iter()
            .filter_map(|theta| Some((theta, all.table(*subject, theta, TENTH)?.gain)));
        Series::rounds(subject.to_string(), of)
    };
    let plot = Plot::new("Gain of a table for 10 % of the keys", "θ", "times as fast as alone");
    record.plots.push(plot.with(Subject::ALL.iter().map(curve)));
    record.tables.push(table("Lookups", &all.0));
    Ok(record)
}

fn case((subject, theta): (Subject, f64)) -> Case {
    let two = subject == Subject::BTreeMap && theta == 0.99;
    let shares: &[f64] = if two { &[TENTH, 0.4] } else { &[TENTH] };
    Case { subject, mix: Mix::C, theta, shares, gate: true }
}
