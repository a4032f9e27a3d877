//! Every lookup agrees with a map, and with a writer beside it.

use super::*;
use crate::experiments::fib::address;
use crate::experiments::fib::measure::Answers;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

type LookUp = fn(&Optimistic, usize, &[Key6]) -> Answers;

/// All of figure 5; the first two know no batches.
const ALL: [(&str, LookUp); 4] = [
    ("locked", |table, _, keys| table.look_up_locked(keys)),
    ("loads", |table, _, keys| table.look_up(keys)),
    ("batched", Optimistic::look_up_batched),
    ("prefetched", Optimistic::look_up_prefetched),
];

fn filled(entries: u64) -> Optimistic {
    let table = Optimistic::new(entries as usize, true, 7).unwrap();
    let mut filler = Filler::of(&table);
    (0..entries).for_each(|i| assert_eq!(filler.insert(address(i), i as u16), Ok(()), "{i}"));
    table
}

#[test]
fn all_lookups_agree_with_a_map() {
    let entries = 30_000;
    let table = filled(entries);
    let twin: HashMap<Key6, u16> = (0..entries).map(|i| (address(i), i as u16)).collect();
    let small = table.copy(false).unwrap();
    assert_eq!((small.bytes(), table.bytes()), (table.bytes(), Optimistic::bytes_for(30_000)));
    // Every other key is absent.
    let keys: Vec<Key6> = (0..2 * entries).map(|i| address(i * 7919 % (2 * entries))).collect();
    for keys in keys.chunks(97) {
        let mut expected = Answers::default();
        keys.iter().for_each(|key| expected.add(twin.get(key).copied()));
        for (name, look_up) in ALL {
            for batch in [1, 2, 14, 63, 64] {
                assert_eq!(look_up(&table, batch, keys), expected, "{name}, {batch}");
                assert_eq!(look_up(&small, batch, keys), expected, "{name}, {batch}, copy");
            }
        }
    }
    let census = table.census(u32::MAX);
    assert_eq!(census.entries, entries);
    assert!((entries / 10..entries / 2).contains(&census.second), "{}", census.second);
}

#[test]
fn a_full_table_refuses_and_stays_as_it_was() {
    let table = Optimistic::new(100, true, 7).unwrap();
    let mut filler = Filler::of(&table);
    let mut inside = Vec::new();
    let refused = (0..).map(address).find(|&key| match filler.insert(key, 5) {
        Ok(()) => {
            inside.push(key);
            false
        }
        Err(Full) => true,
    });
    assert!(inside.len() >= 100, "{}", inside.len());
    assert_eq!(
        table.look_up(&inside),
        Answers { hits: inside.len() as u64, sum: 5 * inside.len() as u64 }
    );
    assert_eq!(table.look_up(&[refused.unwrap()]), Answers::default());
    assert!(Optimistic::new(usize::MAX / 1000, true, 1).is_none());
}

#[test]
fn present_keys_are_found_while_others_are_inserted_and_move_them() {
    let (entries, before) = (60_000u64, 30_000u64);
    let table = Optimistic::new(entries as usize, true, 3).unwrap();
    let mut filler = Filler::of(&table);
    (0..before).for_each(|i| assert_eq!(filler.insert(address(i), i as u16), Ok(())));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (name, look_up) in ALL {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                let mut rounds = 0;
                while rounds == 0 || !done.load(Ordering::Relaxed) {
                    for first in (0..before).step_by(64) {
                        let range = first..(first + 64).min(before);
                        let keys: Vec<Key6> = range.clone().map(address).collect();
                        let sum = range.clone().map(|i| u64::from(i as u16)).sum();
                        let expected = Answers { hits: keys.len() as u64, sum };
                        assert_eq!(look_up(table, 32, &keys), expected, "{name}");
                    }
                    rounds += 1;
                }
            });
        }
        (before..entries).for_each(|i| assert_eq!(filler.insert(address(i), 1), Ok(())));
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn present_keys_are_found_while_all_entries_move() {
    // Small, so that moves are often where a reader looks; and short batches, or readers of a whole
    // one would hardly ever find all of its versions as they were.
    let (entries, batch, rounds) = (3000u64, 8, 300);
    let table = Optimistic::new(4000, true, 3).unwrap();
    let mut filler = Filler::of(&table);
    (0..entries).for_each(|i| assert_eq!(filler.insert(address(i), i as u16), Ok(())));
    let keys: Vec<Key6> = (0..entries).map(address).collect();
    let sum = (0..entries).sum();
    std::thread::scope(|scope| {
        let (table, keys) = (&table, &keys);
        let reader = |(name, look_up): (&'static str, LookUp)| {
            scope.spawn(move || {
                for _ in 0..rounds {
                    let answers = look_up(table, batch, keys);
                    assert_eq!(answers, Answers { hits: entries, sum }, "{name}");
                }
            })
        };
        let readers = ALL.map(reader);
        let mut pcg = overbank::random::Pcg32::new(1, 1);
        while !readers.iter().all(|reader| reader.is_finished()) {
            filler.shuffle(1000, &mut pcg);
        }
    });
    assert_eq!(table.census(u32::MAX).entries, entries);
}

#[test]
fn a_counter_shared_by_both_buckets_is_odd_while_they_change() {
    let table = Optimistic::new(100_000, true, 3).unwrap();
    let (a, b) = (5, 5 + VERSIONS as u32);
    let seen = |bucket| table.version(bucket).load(Ordering::Relaxed);
    for (a, b) in [(a, b), (a, a), (a, a + 1)] {
        table.change(a, b, || assert!(odd(seen(a)) && odd(seen(b)), "{a} {b}"));
        assert!(!odd(seen(a)) && !odd(seen(b)));
    }
}

fn odd(version: u32) -> bool {
    version & 1 == 1
}
