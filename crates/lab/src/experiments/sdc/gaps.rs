//! What each reading of the paper is worth: one change at a time.

use super::point::{Common, Outcome, Point, Points};
use super::{KNEE, SDCGAP, STORES};
use crate::prelude::*;

/// Sizes of the data set, in caches.
const RATIOS: [f64; 2] = [1.0, KNEE];

/// Readings beside ours, which is the first: the system in front, and what it and the regular
/// machine need for it.
const READINGS: [(&str, &str, &str, &str); 15] = [
    ("as we read it: sub-tags of 5 bits, families of 4", "sdc", "", ""),
    ("sub-tags of 3 bits (table 2)", "sdc", "--set sdc.sub_tag_bits=3", ""),
    ("a false hit ends the lookup (figure 3)", "sdc", "--false-hit dropped", ""),
    ("keys that were not replayed", "sdc", "--keys fresh", "--keys fresh"),
    ("TLB misses cost nothing", "sdc", "--set tlb.walk_levels=0", "--set tlb.walk_levels=0"),
    ("pages of 2 MiB", "sdc", HUGE, HUGE),
    ("an SDC operation takes 22 cycles", "sdc", "--set sdc.cycles=22", ""),
    ("no families", "sdc", "--set sdc.family=1 --set sdc.sub_tag_bits=3", ""),
    ("items that are asked for lie among the others", "sdc", SCATTERED, SCATTERED),
    ("SLB that copies items, in place of SDC", "slb-items", "", ""),
    ("SLB of addresses, in place of SDC", "slb", "", ""),
    ("8 bytes of a value are read, SDC has the address", "sdc", "--read 8", "--read 8"),
    ("8 bytes of a value are read, SDC has key and value", "sdc-values", "--read 8", "--read 8"),
    ("56 bytes of a value are read, SDC has the address", "sdc", "--read 56", "--read 56"),
    ("56 bytes of a value are read, SDC has key and value", "sdc-values", "--read 56", "--read 56"),
];
const SCATTERED: &str = "--placement scattered";
const HUGE: &str = "--set tlb.page_bytes=2097152 --set tlb.walk_levels=3";

struct Row {
    store: &'static str,
    ratio: f64,
    reading: &'static str,
    gain: f64,
    hits: f64,
    false_hits: f64,
    dropped: f64,
}

const CLAIMS: &[Claim<[Row]>] = &[Claim::new(
    "dropping a false hit answers less",
    "figure 3 does nothing with it",
    |rows: &[Row]| {
        let (drops, others): (Vec<&Row>, Vec<&Row>) =
            rows.iter().partition(|row| row.reading == READINGS[2].0);
        // Each false hit is a lookup without an answer, and nothing else is.
        let all = drops.iter().all(|row| row.dropped == row.false_hits);
        let holds = all
            && drops.iter().any(|row| row.dropped > 0.0)
            && others.iter().all(|row| row.dropped == 0.0);
        let most = drops.iter().map(|row| row.dropped).fold(0.0, f64::max);
        Finding::new(holds, format!("up to {} of the lookups", percent(most, 2)))
    },
)];

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let common = Common::of(context);
    let points = |(index, ratio, (_, system, of_system, of_regular))| {
        let subset = common.subset(ratio);
        let front = Point::new(index, system, subset).with(of_system);
        [front, Point::new(index, "regular", subset).with(of_regular)]
    };
    let cells: Vec<_> = pairs(&pairs(&STORES, &RATIOS), &READINGS)
        .into_iter()
        .map(|((store, ratio), reading)| (store, ratio, reading))
        .collect();
    let mut all: Vec<Point> = Vec::new();
    for ((index, _), ratio, reading) in &cells {
        let new = points((*index, *ratio, *reading));
        all.extend(new.into_iter().filter(|point| !all.contains(point)).collect::<Vec<_>>());
    }
    let measured = Points::run(context, common, all)?;
    let row = |((index, store), ratio, reading): &((&'static str, &'static str), f64, _)| {
        let [sdc, regular] = points((*index, *ratio, *reading));
        let of = measured.get(&sdc)?;
        let gain = measured.gain(&sdc, &regular, |modes| modes.as_evaluated)?;
        let dropped = lost(of);
        let (hits, false_hits) = (of.hit_rate(), of.false_hit_rate());
        Some(Row { store, ratio: *ratio, reading: reading.0, gain, hits, false_hits, dropped })
    };
    let rows: Vec<Row> = cells.iter().filter_map(row).collect();
    let mut record = SDCGAP.record(context);
    record.settings(common.settings());
    measured.tell(&mut record);
    record.judge("", CLAIMS, &rows[..]);
    for gap in overbank_sdc::GAPS {
        record.note(format!("{}: {}.", gap.name, gap.text));
    }
    let base = |row: &Row| {
        let same = |of: &&Row| of.store == row.store && of.ratio == row.ratio;
        rows.iter().find(same).map_or((f64::NAN, f64::NAN), |of| (of.gain, of.hits))
    };
    record.tables.push(Table::of(
        "By reading, as evaluated",
        &rows,
        &[
            ("store", &|row| row.store.to_owned()),
            ("caches", &|row| row.ratio.to_string()),
            ("reading", &|row| row.reading.to_owned()),
            ("× regular", &|row| format!("{:.2}", row.gain)),
            ("beside ours, %", &|row| format!("{:+.1}", 100.0 * (row.gain / base(row).0 - 1.0))),
            ("hits, %", &|row| format!("{:.1}", 100.0 * row.hits)),
            ("points", &|row| format!("{:+.1}", 100.0 * (row.hits - base(row).1))),
            ("false hits, %", &|row| format!("{:.2}", 100.0 * row.false_hits)),
            ("unanswered, %", &|row| format!("{:.2}", 100.0 * row.dropped)),
        ],
    ));
    Ok(record)
}

/// Returns the share of lookups that ended without an answer.
fn lost(of: &Outcome) -> f64 {
    of.dropped as f64 / of.lookups as f64
}
