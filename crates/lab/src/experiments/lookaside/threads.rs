//! Two threads that read and fill one table, and one beside a writer.

use super::LOOKASIDE_THREADS;
use crate::prelude::*;
use overbank_aside::lookaside::Config;
use overbank_aside::{Aside, Index, Source, congee};
use overbank_kit::machine::{keep_on, thread_time, usable_cores};
use overbank_products::aside::mix::key;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

const THETA: f64 = 0.99;

type Front = Aside<congee::Tree, u64, u64>;

/// Nanoseconds of a lookup: by one thread, by each of two, by one beside a writer.
struct Round {
    alone: f64,
    both: [f64; 2],
    beside: f64,
}

/// Rounds through the table, and of the index alone.
struct All {
    table: Vec<Round>,
    index: Vec<Round>,
}

fn both(rounds: &[Round]) -> Spread {
    Spread::of(rounds.iter().map(|round| round.alone / round.both[0].max(round.both[1])))
}

fn beside(rounds: &[Round]) -> Spread {
    Spread::of(rounds.iter().map(|round| round.alone / round.beside))
}

const CLAIMS: &[Claim<All>] = &[
    Claim::timed("two threads: each as fast as alone", "≥ 0.95", |all: &All| {
        Finding::at_least(0.95, both(&all.table))
    }),
    Claim::timed("beside one writer", "≥ 0.9 of alone", |all: &All| {
        Finding::at_least(0.9, beside(&all.table))
    }),
];

/// Returns the nanoseconds of a lookup.
fn lookups(aside: &Front, keys: &[u64], through: bool) -> f64 {
    let start = thread_time();
    for &key in keys {
        let Ok(value) = if through { Ok(aside.get(key)) } else { aside.around(key) };
        black_box(value);
    }
    (thread_time() - start).as_nanos() as f64 / keys.len() as f64
}

/// Draws keys for a thread.
fn drawn(stream: &mut FlowStream, count: usize) -> Vec<u64> {
    (0..count).map(|_| key(u64::from(stream.next_flow()))).collect()
}

/// Runs a round of all three; `keys` are of the two threads, twice, and of the writer.
fn round(aside: &Front, keys: [Vec<u64>; 5], through: bool) -> Round {
    let cores = usable_cores();
    let core = |thread: usize| cores[thread % cores.len()];
    let on = |thread: usize| _ = keep_on(&[core(thread)]);
    let [alone, first, second, last, writes] = &keys;
    let barrier = &Barrier::new(2);
    std::thread::scope(|scope| {
        let join =
            |thread: std::thread::ScopedJoinHandle<'_, f64>| thread.join().expect("no panic");
        let alone = join(scope.spawn(|| {
            on(0);
            lookups(aside, alone, through)
        }));
        let threads = [(0, first), (1, second)].map(|(thread, keys)| {
            scope.spawn(move || {
                on(thread);
                barrier.wait();
                lookups(aside, keys, through)
            })
        });
        let both = threads.map(join);
        let done = AtomicBool::new(false);
        let beside = std::thread::scope(|scope| {
            scope.spawn(|| {
                on(1);
                barrier.wait();
                for key in writes.iter().cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    aside.insert(*key, *key);
                }
            });
            let reader = scope.spawn(|| {
                on(0);
                barrier.wait();
                let ns = lookups(aside, last, through);
                done.store(true, Ordering::Relaxed);
                ns
            });
            reader.join().expect("no panic")
        });
        Round { alone, both, beside }
    })
}

pub fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("look-aside tables and threads", 0.0)?;
    let smoke = context.smoke();
    let (keys, rounds, count) = if smoke { (4000, 2, 4000) } else { (10_000_000, 7, 1_000_000) };
    let index = congee::Tree::default();
    (0..u64::from(keys)).for_each(|number| index.insert(key(number), key(number)));
    let entries = keys as usize / 10;
    let aside = Aside::new(index, &Config::entries(entries).seed(context.seed));
    let aside: Front = aside.map_err(LabError::failed)?;
    let mut stream = draws(keys, THETA, context.seed)?;
    lookups(&aside, &drawn(&mut stream, 6 * entries), true);
    let mut all = All { table: Vec::new(), index: Vec::new() };
    for nth in 0..rounds {
        context.step("congee, two threads", f64::from(nth) / f64::from(rounds))?;
        for (through, of) in [(true, &mut all.table), (false, &mut all.index)] {
            let keys = [(); 5].map(|()| drawn(&mut stream, count));
            of.push(round(&aside, keys, through));
        }
    }
    let mut record = LOOKASIDE_THREADS.record(context);
    record.settings([("index", "congee".to_owned()), ("keys", keys.to_string())]);
    record.settings([("entries", entries.to_string()), ("θ", THETA.to_string())]);
    record.setting("cores", usable_cores().len());
    record.judge("", CLAIMS, &all);
    record.tables.push(Table::of(
        "A lookup of congee",
        [("through the table", &all.table), ("index alone", &all.index)],
        &[
            ("", &|(name, _)| (*name).to_owned()),
            ("one thread, ns", &|(_, of)| Spread::of(of.iter().map(|of| of.alone)).cell(0)),
            ("two threads, of alone", &|(_, of)| both(of).cell(2)),
            ("beside a writer, of alone", &|(_, of)| beside(of).cell(2)),
        ],
    ));
    Ok(record)
}
