//! Lookups among updates and insertions.

use super::LOOKASIDE_WRITES;
use super::shared::{Case, Measured, built, keys, measured, table};
use crate::prelude::*;
use overbank_products::aside::bench::Subject;
use overbank_products::aside::mix::Mix;

const TENTH: f64 = 0.1;
const MIXES: [Mix; 4] = [Mix::A, Mix::B, Mix::F, Mix::D];
const SUBJECTS: [Subject; 2] = [Subject::BTreeMap, Subject::SkipMap];

fn gain(all: &[Measured], subject: Subject, mix: Mix) -> Option<Spread> {
    let of = all.iter().find(|of| of.case.subject == subject && of.case.mix == mix)?;
    Some(of.table(TENTH)?.gain)
}

const CLAIMS: &[Claim<[Measured]>] = &[
    Claim::new("updates leave hits", "keys stay in the table", |all: &[Measured]| {
        let hits = |mix| {
            let of = all.iter().find(|of| of.case.mix == mix)?;
            of.table(TENTH)?.hit_rate
        };
        let (half, few) = (hits(Mix::A)?, hits(Mix::B)?);
        Finding::new(half > 0.1 && few > 0.1, format!("{}, {}", percent(half, 1), percent(few, 1)))
    }),
    Claim::timed("BTreeMap, 5 % updates", "≥ 1.5 ×", |all: &[Measured]| {
        Finding::at_least(1.5, gain(all, Subject::BTreeMap, Mix::B)?)
    }),
    Claim::timed("BTreeMap, 50 % updates", "≥ 1.0 ×", |all: &[Measured]| {
        Finding::at_least(1.0, gain(all, Subject::BTreeMap, Mix::A)?)
    }),
];

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("look-aside tables under writes", 0.0)?;
    let smoke = context.smoke();
    let all = context.each(
        SUBJECTS,
        |subject| format!("{subject}: building"),
        |context, subject| {
            // Insertions of D come last: each case expects the keys that were there at first.
            let mut index = built(context, subject)?;
            context.each(
                MIXES,
                |mix| format!("{subject}, {mix:?}"),
                |context, mix| {
                    let case = Case { subject, mix, theta: 0.99, shares: &[TENTH], gate: true };
                    measured(context, &mut *index, case)
                },
            )
        },
    )?;
    let all: Vec<Measured> = all.into_iter().flatten().collect();
    let mut record = LOOKASIDE_WRITES.record(context);
    record.setting("keys", keys(Subject::BTreeMap, smoke));
    record.setting("keys of SkipMap", keys(Subject::SkipMap, smoke));
    record.setting("θ", 0.99);
    record.judge("", CLAIMS, &all);
    record.tables.push(table("Operations", &all));
    Ok(record)
}
