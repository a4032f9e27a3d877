//! Every lookup agrees with a map, and with a writer beside it.

use super::*;
use crate::experiments::fib::address;
use crate::experiments::fib::measure::Answers;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

fn filled(entries: usize, numbers: u64, seed: u64) -> Optimistic {
    let table = Optimistic::new(entries, true, seed).unwrap();
    let mut filler = Filler::of(&table);
    (0..numbers).for_each(|i| assert_eq!(filler.insert(address(i), i as u16), Ok(()), "{i}"));
    table
}

#[test]
fn all_lookups_agree_with_a_map() {
    let entries = 30_000;
    let table = filled(30_000, entries, 7);
    let twin: HashMap<MacAddr, u16> = (0..entries).map(|i| (address(i), i as u16)).collect();
    let small = table.copy(false).unwrap();
    assert_eq!((small.bytes(), table.bytes()), (table.bytes(), Optimistic::bytes_for(30_000)));
    // Every other key is absent.
    let keys: Vec<MacAddr> = (0..2 * entries).map(|i| address(i * 7919 % (2 * entries))).collect();
    for keys in keys.chunks(97) {
        let mut expected = Answers::default();
        keys.iter().for_each(|key| expected.add(twin.get(key).copied()));
        for (i, look_up) in LOOK_UPS.into_iter().enumerate() {
            for batch in [1, 2, 14, 63, 64] {
                assert_eq!(look_up(&table, batch, keys), expected, "{i}, {batch}");
                assert_eq!(look_up(&small, batch, keys), expected, "{i}, {batch}, copy");
            }
        }
    }
    let (all, second) = table.census(u32::MAX);
    assert!(all == entries && (entries / 10..entries / 2).contains(&second), "{second}");
}

#[test]
fn a_full_table_refuses_and_stays_as_it_was() {
    let table = Optimistic::new(100, true, 7).unwrap();
    let mut filler = Filler::of(&table);
    let inside = (0..).take_while(|&i| filler.insert(address(i), 5) == Ok(())).count() as u64;
    assert!(inside >= 100, "{inside}");
    let keys: Vec<MacAddr> = (0..=inside).map(address).collect();
    assert_eq!(LOOK_UPS[1](&table, 1, &keys), Answers { hits: inside, sum: 5 * inside });
    assert!(Optimistic::new(usize::MAX / 1000, true, 1).is_none());
}

/// Asserts that every lookup finds the first `entries` keys while `write` changes the table.
fn found_beside(table: &Optimistic, entries: u64, batch: usize, write: impl FnOnce(Filler<'_>)) {
    let done = AtomicBool::new(false);
    let keys: Vec<MacAddr> = (0..entries).map(address).collect();
    let expected = Answers { hits: entries, sum: (0..entries).map(|i| u64::from(i as u16)).sum() };
    std::thread::scope(|scope| {
        for (i, look_up) in LOOK_UPS.into_iter().enumerate() {
            let (done, keys) = (&done, &keys);
            scope.spawn(move || {
                let mut last = false;
                while !last {
                    last = done.load(Ordering::Relaxed);
                    assert_eq!(look_up(table, batch, keys), expected, "{i}");
                }
            });
        }
        write(Filler::of(table));
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn present_keys_are_found_while_others_are_inserted_or_all_move() {
    let table = filled(60_000, 30_000, 3);
    found_beside(&table, 30_000, 32, |mut filler| {
        (30_000..60_000).for_each(|i| assert_eq!(filler.insert(address(i), 1), Ok(())));
    });
    // Small, so that moves are often where a reader looks; and short batches, or readers of a whole
    // one would hardly ever find all of its versions as they were.
    let table = filled(4000, 3000, 3);
    let mut pcg = overbank::random::Pcg32::new(1, 1);
    found_beside(&table, 3000, 8, |mut filler| filler.shuffle(3_000_000, &mut pcg));
    assert_eq!(table.census(u32::MAX).0, 3000);
}

#[test]
fn a_counter_shared_by_both_buckets_is_odd_while_they_change() {
    let table = Optimistic::new(100_000, true, 3).unwrap();
    let odd = |bucket| table.version(bucket).load(Ordering::Relaxed) & 1 == 1;
    for (a, b) in [(5, 5 + VERSIONS as u32), (5, 5), (5, 6)] {
        table.change(a, b, || assert!(odd(a) && odd(b), "{a} {b}"));
        assert!(!odd(a) && !odd(b));
    }
}
