//! What each reading of the paper is worth: one change at a time.

use super::point::{Common, Outcome, Point, Points};
use super::{KNEE, SDCGAP, STORES};
use crate::prelude::*;

/// Sizes of the data set, in caches.
const RATIOS: [f64; 2] = [1.0, KNEE];

/// What is written, the system in front, and what it and the regular machine need for it.
type Reading = (&'static str, &'static str, &'static str, &'static str);

/// Readings beside ours, which is the first.
const READINGS: [Reading; 9] = [
    ("as we read it: sub-tags of 5 bits, families of 4", "sdc", "", ""),
    ("sub-tags of 3 bits (table 2)", "sdc", "--set sdc.sub_tag_bits=3", ""),
    ("a false hit ends the lookup (figure 3)", "sdc", "--false-hit dropped", ""),
    ("keys that were not replayed", "sdc", "--keys fresh", "--keys fresh"),
    ("TLB misses cost nothing", "sdc", "--set tlb.walk_levels=0", "--set tlb.walk_levels=0"),
    ("pages of 2 MiB", "sdc", HUGE, HUGE),
    ("an SDC operation takes 22 cycles", "sdc", "--set sdc.cycles=22", ""),
    ("no families", "sdc", "--set sdc.family=1 --set sdc.sub_tag_bits=3", ""),
    ("items that are asked for lie among the others", "sdc", SCATTERED, SCATTERED),
];

/// What may stand in front in place of SDC.
const SYSTEMS: [Reading; 2] =
    [("SLB that copies items", "slb-items", "", ""), ("SLB of addresses", "slb", "", "")];

/// What SDC may hold, by the bytes of a value that a lookup reads: address, then key and value.
const HELD: [[Reading; 2]; 2] = [
    [("8", "sdc", "--read 8", "--read 8"), ("8", "sdc-values", "--read 8", "--read 8")],
    [("56", "sdc", "--read 56", "--read 56"), ("56", "sdc-values", "--read 56", "--read 56")],
];

const SCATTERED: &str = "--placement scattered";
const HUGE: &str = "--set tlb.page_bytes=2097152 --set tlb.walk_levels=3";

struct Row {
    store: &'static str,
    ratio: f64,
    reading: &'static str,
    /// The data set, in caches: what a lookup reads changes it.
    caches: f64,
    gain: f64,
    /// The same in the other ways of counting cycles: blocking, overlap.
    others: [f64; 2],
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
    let every: Vec<Reading> = READINGS.into_iter().chain(SYSTEMS).chain(HELD.concat()).collect();
    let cells: Vec<_> = pairs(&pairs(&STORES, &RATIOS), &every)
        .into_iter()
        .map(|((store, ratio), reading)| (store, ratio, reading))
        .collect();
    let mut all: Vec<Point> = Vec::new();
    for ((index, _), ratio, reading) in &cells {
        let new = points((*index, *ratio, *reading));
        all.extend(new.into_iter().filter(|point| !all.contains(point)).collect::<Vec<_>>());
    }
    let measured = Points::run(context, common, all)?;
    let row = |((index, store), ratio): ((&'static str, &'static str), f64), reading: Reading| {
        let [front, regular] = points((index, ratio, reading));
        let of = measured.get(&front)?;
        let gain = measured.gain(&front, &regular, |modes| modes.as_evaluated)?;
        let others = [
            measured.gain(&front, &regular, |modes| modes.blocking)?,
            measured.gain(&front, &regular, |modes| modes.overlap)?,
        ];
        let caches = of.data_set_bytes as f64 / common.llc as f64;
        let (hits, false_hits, dropped) = (of.hit_rate(), of.false_hit_rate(), lost(of));
        let reading = reading.0;
        Some(Row { store, ratio, reading, caches, gain, others, hits, false_hits, dropped })
    };
    let places = pairs(&STORES, &RATIOS);
    let rows_of = |readings: &[Reading]| -> Vec<Row> {
        let all = pairs(&places, readings).into_iter();
        all.filter_map(|(place, reading)| row(place, reading)).collect()
    };
    let rows = rows_of(&READINGS);
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
            ("blocking", &|row| format!("{:.2}", row.others[0])),
            ("overlap", &|row| format!("{:.2}", row.others[1])),
        ],
    ));
    record.tables.push(Table::of(
        "Other systems in place of SDC, as evaluated",
        &rows_of(&SYSTEMS),
        &[
            ("store", &|row| row.store.to_owned()),
            ("caches", &|row| row.ratio.to_string()),
            ("system", &|row| row.reading.to_owned()),
            ("× regular", &|row| format!("{:.2}", row.gain)),
            ("to SDC", &|row| format!("{:.2}", row.gain / base(row).0)),
            ("hits, %", &|row| format!("{:.1}", 100.0 * row.hits)),
        ],
    ));
    let held = pairs(&places, &HELD).into_iter();
    let held = held.filter_map(|(place, [a, b])| Some((row(place, a)?, row(place, b)?)));
    record.tables.push(Table::of(
        "SDC of addresses, and of keys and values, as evaluated",
        held.collect::<Vec<_>>(),
        &[
            ("store", &|(of, _)| of.store.to_owned()),
            ("caches", &|(of, _)| format!("{:.2}", of.caches)),
            ("bytes read of a value", &|(of, _)| of.reading.to_owned()),
            ("address, × regular", &|(of, _)| format!("{:.2}", of.gain)),
            ("key and value, × regular", &|(_, of)| format!("{:.2}", of.gain)),
            ("key and value to address", &|(a, b)| format!("{:.2}", b.gain / a.gain)),
            ("hits, address, %", &|(of, _)| format!("{:.1}", 100.0 * of.hits)),
            ("hits, key and value, %", &|(_, of)| format!("{:.1}", 100.0 * of.hits)),
        ],
    ));
    Ok(record)
}

/// Returns the share of lookups that ended without an answer.
fn lost(of: &Outcome) -> f64 {
    of.dropped as f64 / of.lookups as f64
}
