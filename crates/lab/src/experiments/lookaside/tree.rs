//! The ordered tree with hints beside std's `BTreeMap`.

use super::LOOKASIDE_TREE;
use crate::prelude::*;
use overbank::hash::mix;
use overbank::lookaside::{Hints, Tree};
use overbank_kit::machine::thread_time;
use overbank_kit::workload::shuffled;
use std::collections::BTreeMap;
use std::hint::black_box;

const THETA: f64 = 0.99;
/// Hints for each key, of 6 bytes.
const HINTS: f64 = 0.29;
/// Keys of a call of `get_batch`.
const BATCH: usize = 1024;
/// Parts in which insertions and removals take turns.
const PARTS: usize = 10;

/// Ways to look up; the first is what the others are compared with.
#[derive(Clone, Copy)]
enum Way {
    Map,
    Alone,
    AloneBatch,
    Hints,
    HintsBatch,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Map, "BTreeMap"),
    (Way::Alone, "get without hints"),
    (Way::AloneBatch, "get_batch without hints"),
    (Way::Hints, "get"),
    (Way::HintsBatch, "get_batch"),
];

struct Measured {
    value_bytes: usize,
    keys: u32,
    tree_bytes: usize,
    hints_bytes: usize,
    /// Nanoseconds of a lookup, by [`WAYS`].
    lookups: Rounds,
    hit_rate: f64,
    /// Nanoseconds of a change: of the map, of the tree with hints.
    insertions: Rounds,
    removals: Rounds,
}

impl Measured {
    fn gain(&self, way: Way) -> Spread {
        self.lookups.ratio(0, way as usize)
    }
}

/// Returns what both took over all parts, as a ratio, which grows with the map.
fn overall(changes: &Rounds) -> f64 {
    let sum = |of: usize| changes.figures[of].iter().sum::<f64>();
    sum(0) / sum(1)
}

const CLAIMS: &[Claim<Measured>] = &[
    Claim::new("most lookups hit a hint", "by Zipf's law", |of: &Measured| {
        Finding::new(of.hit_rate > 0.5, percent(of.hit_rate, 1))
    }),
    Claim::timed("insertions", "≥ 0.95 × BTreeMap", |of: &Measured| {
        let gain = overall(&of.insertions);
        Finding::new(gain >= 0.95, format!("{gain:.2}"))
    }),
    Claim::timed("removals", "≥ 0.95 × BTreeMap", |of: &Measured| {
        Finding::at_least(0.95, of.removals.ratio(0, 1))
    }),
];

const NARROW: &[Claim<Measured>] = &[
    Claim::timed("get", "≥ 2.8 × BTreeMap", |of: &Measured| {
        Finding::at_least(2.8, of.gain(Way::Hints))
    }),
    Claim::timed("get_batch", "≥ 3.5 × BTreeMap", |of: &Measured| {
        Finding::at_least(3.5, of.gain(Way::HintsBatch))
    }),
];

const WIDE: &[Claim<Measured>] = &[
    Claim::timed("get", "≥ 3.0 × BTreeMap", |of: &Measured| {
        Finding::at_least(3.0, of.gain(Way::Hints))
    }),
    Claim::timed("get_batch", "≥ 4.5 × BTreeMap", |of: &Measured| {
        Finding::at_least(4.5, of.gain(Way::HintsBatch))
    }),
];

/// Returns the nanoseconds that each of `count` operations took.
fn each(count: usize, work: impl FnOnce() -> Result<u64, LabError>) -> Result<f64, LabError> {
    let start = thread_time();
    black_box(work()?);
    Ok((thread_time() - start).as_nanos() as f64 / count as f64)
}

fn key(number: u32) -> u64 {
    mix(u64::from(number))
}

fn measured<const WORDS: usize>(
    context: &mut Context<'_>,
    keys: u32,
    begin: f64,
) -> Result<Measured, LabError> {
    let (rounds, count) = if context.smoke() { (2, 4000) } else { (7, 1_000_000) };
    let seed = context.seed;
    let mut step = |stage: f64, what: &str, done: f64| {
        let name = format!("values of {} bytes: {what}", 8 * WORDS);
        context.step(&name, begin + (stage + done) / 6.0)
    };
    step(0.0, "insertions", 0.0)?;
    let hints = Hints::entries((HINTS * f64::from(keys)) as usize).seed(seed);
    let new = |hints| Tree::<u64, [u64; WORDS]>::with_capacity(keys as usize, hints);
    let mut tree = new(Some(hints)).map_err(LabError::failed)?;
    let mut alone = new(None).map_err(LabError::failed)?;
    let mut map = BTreeMap::new();
    let order = shuffled((0..keys).collect(), seed);
    let value = |number: u32| [u64::from(number); WORDS];

    let parts: Vec<_> = order.chunks(order.len().div_ceil(PARTS)).collect();
    let begun = |done| step(0.0, "insertions", done);
    let insertions = Rounds::run(&mut [true, false], PARTS, begun, |into_map, part| {
        let numbers = parts[part];
        each(numbers.len(), || {
            for &number in numbers {
                if *into_map {
                    map.insert(key(number), value(number));
                } else {
                    tree.insert(key(number), value(number)).map_err(LabError::failed)?;
                }
            }
            Ok(0)
        })
    })?;
    for &number in &order {
        alone.insert(key(number), value(number)).map_err(LabError::failed)?;
    }

    let mut stream = draws(keys, THETA, seed)?;
    let mut drawn = |count| (0..count).map(|_| key(stream.next_flow())).collect::<Vec<u64>>();
    drawn(4 * count).iter().for_each(|key| _ = black_box(tree.get(key)));
    tree.hints_mut().into_iter().for_each(Hints::reset_counters);
    let mut found = vec![None; BATCH];
    let sum = |value: Option<[u64; WORDS]>| value.map_or(0, |value| value[0] ^ value[WORDS - 1]);
    let begun = |done| step(1.0, "lookups", done);
    let lookups = Rounds::run(&mut WAYS.map(|(way, _)| way), rounds, begun, |way, _| {
        let keys = drawn(count);
        let mut batches = |tree: &mut Tree<u64, [u64; WORDS]>| {
            keys.chunks(BATCH)
                .map(|keys| {
                    tree.get_batch(keys, &mut found);
                    found[..keys.len()].iter().map(|&found| sum(found)).fold(0, u64::wrapping_add)
                })
                .fold(0, u64::wrapping_add)
        };
        each(count, || {
            let fold =
                |get: &mut dyn FnMut(&u64) -> u64| keys.iter().map(get).fold(0, u64::wrapping_add);
            Ok(match way {
                Way::Map => fold(&mut |key| sum(map.get(key).copied())),
                Way::Alone => fold(&mut |key| sum(alone.get(key))),
                Way::Hints => fold(&mut |key| sum(tree.get(key))),
                Way::AloneBatch => batches(&mut alone),
                Way::HintsBatch => batches(&mut tree),
            })
        })
    })?;
    let hit_rate = tree.hints().map_or(0.0, |hints| hints.counters().hit_rate());

    let parts: Vec<_> =
        order[..order.len() / 2].chunks((order.len() / 2).div_ceil(PARTS)).collect();
    let begun = |done| step(2.0, "removals", done);
    let removals = Rounds::run(&mut [true, false], PARTS, begun, |from_map, part| {
        let numbers = parts[part];
        each(numbers.len(), || {
            let removed = |number: &u32| {
                let key = key(*number);
                sum(if *from_map { map.remove(&key) } else { tree.remove(&key) })
            };
            Ok(numbers.iter().map(removed).fold(0, u64::wrapping_add))
        })
    })?;
    Ok(Measured {
        value_bytes: 8 * WORDS,
        keys,
        tree_bytes: tree.memory_bytes(),
        hints_bytes: tree.hints().map_or(0, Hints::memory_bytes),
        lookups,
        hit_rate,
        insertions,
        removals,
    })
}

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    let of = |keys| if context.smoke() { 4000 } else { keys };
    let (narrow, wide) = (of(10_000_000), of(2_500_000));
    let narrow = measured::<1>(context, narrow, 0.0)?;
    let wide = measured::<8>(context, wide, 0.5)?;
    let mut record = LOOKASIDE_TREE.record(context);
    record.settings([("θ", THETA.to_string()), ("hints for each key", HINTS.to_string())]);
    for (of, goals) in [(&narrow, NARROW), (&wide, WIDE)] {
        let title = format!("{} keys, values of {} bytes", of.keys, of.value_bytes);
        record.judge(&title, CLAIMS, of);
        record.judge(&title, goals, of);
        record.tables.push(Table::of(
            &title,
            WAYS,
            &[
                ("lookup", &|(_, name)| (*name).to_owned()),
                ("ns", &|(way, _)| of.lookups.spread(*way as usize).cell(0)),
                ("×", &|(way, _)| of.gain(*way).cell(2)),
            ],
        ));
        record.tables.push(Table::of(
            format!("{title}: changes"),
            [("insertions", &of.insertions), ("removals, half of the keys", &of.removals)],
            &[
                ("", &|(name, _)| (*name).to_owned()),
                ("BTreeMap, ns", &|(_, rounds)| rounds.spread(0).cell(0)),
                ("Tree, ns", &|(_, rounds)| rounds.spread(1).cell(0)),
                ("× overall", &|(_, rounds)| format!("{:.2}", overall(rounds))),
            ],
        ));
    }
    record.tables.push(Table::of(
        "Memory and hints",
        [&narrow, &wide],
        &[
            ("value bytes", &|of| of.value_bytes.to_string()),
            ("tree, MB", &|of| format!("{:.1}", of.tree_bytes as f64 / 1e6)),
            ("hints, MB", &|of| format!("{:.1}", of.hints_bytes as f64 / 1e6)),
            ("hits", &|of| percent(of.hit_rate, 1)),
        ],
    ));
    Ok(record)
}
