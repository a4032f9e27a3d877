//! Threads that read through a table beside threads that write the index.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::vec::Vec;

use crate::lookaside::{Config, Copies, Found};
use crate::random::Pcg32;

const KEYS: usize = 64;
/// Reads of each of two threads.
const READS: u64 = 300_000;

/// Returns the number that an environment variable gives.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// The value of a key only grows: no reader may see it shrink.
#[test]
fn no_reader_sees_a_value_go_back() {
    let reads = number("OVERBANK_LOOKASIDE_READS", READS);
    let table = Copies::<u64, u64>::new(&Config::entries(24)).expect("small");
    let index: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let read = |key: usize| {
        let search = |_: &u64| Some(index[key].load(Ordering::Acquire));
        table.get_or(key as u64, search).expect("always there")
    };
    let hits: u64 = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut pcg = Pcg32::new(1, 1);
            while !stop.load(Ordering::Relaxed) {
                let key = pcg.below(KEYS as u32) as usize;
                match pcg.below(64) {
                    0 => {
                        let _all = table.clearing();
                        index.iter().for_each(|value| _ = value.fetch_add(1, Ordering::AcqRel));
                    }
                    kind => {
                        let guard = table.write(key as u64);
                        let value = index[key].fetch_add(1, Ordering::AcqRel) + 1;
                        if kind & 1 == 0 {
                            guard.keep(value);
                        }
                    }
                }
                (0..pcg.below(400)).for_each(|_| std::hint::spin_loop());
            }
        });
        let readers: Vec<_> = (2..4)
            .map(|seed| {
                let (table, read) = (&table, &read);
                scope.spawn(move || {
                    let (mut pcg, mut seen, mut hits) = (Pcg32::new(seed, 1), [0; KEYS], 0);
                    for _ in 0..reads {
                        // Few keys most of the time, so that they are hit.
                        let among = if pcg.below(4) == 0 { KEYS } else { 16 };
                        let key = pcg.below(among as u32) as usize;
                        let value = match table.get(key as u64) {
                            Found::Hit(value) => {
                                hits += 1;
                                value
                            }
                            _ => read(key),
                        };
                        assert!(value >= seen[key], "key {key}: {value} after {}", seen[key]);
                        seen[key] = value;
                    }
                    hits
                })
            })
            .collect();
        let hits = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("no panic");
        hits
    });
    assert!(hits > reads / 10, "{hits} hits of {reads} reads each");
}

/// An operation on one key: when it began and ended, and the value that it wrote or read.
#[derive(Clone, Copy, Debug)]
struct Operation {
    begin: u64,
    end: u64,
    value: u64,
    writes: bool,
}

/// Returns whether a register could have this history that begins as 0 and gets each value once:
/// Gibbons and Korach, *Testing Shared Memories*, 1997, section 4.
///
/// All operations on a value happen in one stretch of time. If some ended before others began, the
/// value lasted from the first end to the last begin; no two values last at one time. Otherwise all
/// of its operations share an instant, and that stretch may not lie inside another value's time.
fn is_linearizable(history: &[Operation]) -> bool {
    let values = history.iter().map(|operation| operation.value).max().unwrap_or(0);
    let mut lasting = Vec::new();
    let mut instants = Vec::new();
    for value in 0..=values {
        let of_it = || history.iter().filter(move |operation| operation.value == value);
        let Some(first_end) = of_it().map(|operation| operation.end).min() else { continue };
        let last_begin = of_it().map(|operation| operation.begin).max().expect("as the ends");
        let write = of_it().find(|operation| operation.writes);
        if let Some(write) = write
            && of_it().any(|read| read.end < write.begin)
        {
            return false;
        }
        // The register begins with this value.
        let first_end = if value == 0 { 0 } else { first_end };
        if first_end < last_begin {
            lasting.push((first_end, last_begin));
        } else {
            instants.push((last_begin, first_end));
        }
        if value > 0 && write.is_none() {
            return false;
        }
    }
    lasting.sort_unstable();
    let disjoint = lasting.windows(2).all(|pair| pair[0].1 < pair[1].0);
    let inside = |&(begin, end): &(u64, u64)| {
        lasting.iter().any(|&(first, last)| first < begin && end < last)
    };
    disjoint && !instants.iter().any(inside)
}

#[test]
fn histories_that_no_register_has_are_seen() {
    let operation = |begin, end, value, writes| Operation { begin, end, value, writes };
    let good = [
        operation(0, 3, 1, true),
        operation(1, 2, 1, false),
        operation(1, 4, 0, false),
        operation(5, 6, 1, false),
    ];
    assert!(is_linearizable(&good));
    let (stale, future) = (operation(7, 8, 0, false), operation(0, 1, 2, false));
    assert!(!is_linearizable(&[&good[..], &[stale]].concat()), "0 after 1");
    let write = operation(2, 3, 2, true);
    assert!(!is_linearizable(&[future, write]), "read before it was written");
    assert!(!is_linearizable(&[future]), "never written");
    let back = [operation(7, 8, 2, true), operation(9, 10, 1, false)];
    assert!(!is_linearizable(&[&good[..], &back].concat()), "1 after 2");
}

/// Two writers of one key that keep, and two readers: their history is a register's.
#[test]
fn histories_are_linearizable() {
    for round in 0..300 {
        let table = Copies::<u64, u64>::new(&Config::entries(1)).expect("small");
        let (index, clock) = (AtomicU64::new(0), AtomicU64::new(1));
        let history = Mutex::new(Vec::new());
        let tick = || clock.fetch_add(1, Ordering::SeqCst);
        let work = |thread: u64| {
            let mut own = Vec::new();
            for i in 1..=20 {
                let begin = tick();
                let value = if thread < 2 {
                    let value = 2 * i + thread;
                    let guard = table.write(7);
                    index.store(value, Ordering::SeqCst);
                    guard.keep(value);
                    value
                } else {
                    table.get_or(7, |_| Some(index.load(Ordering::SeqCst))).expect("there")
                };
                own.push(Operation { begin, end: tick(), value, writes: thread < 2 });
                (0..(round + 7 * i) % 40).for_each(|_| std::hint::spin_loop());
            }
            history.lock().expect("no panic").extend(own);
        };
        thread::scope(|scope| (0..4).for_each(|thread| _ = scope.spawn(move || work(thread))));
        let history = history.into_inner().expect("no panic");
        assert!(is_linearizable(&history), "{round}: {history:?}");
    }
}
