//! Single scenes of [`Copies`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::ToString;
use std::sync::atomic::Ordering;
use std::vec::Vec;

use crate::lookaside::{BUCKETS_MAX, Config, Copies, Error, Found};

fn table(entries: usize) -> Copies<u64, u64> {
    Copies::new(&Config::entries(entries)).expect("small")
}

/// Looks up a key; puts in what the index has.
fn through(table: &Copies<u64, u64>, key: u64, index: Option<u64>) -> Result<Option<u64>, bool> {
    table.get(key).answer().map_err(|ticket| table.fill(ticket, index))
}

#[test]
fn what_was_put_in_is_found_and_what_is_absent_too() {
    let table = table(3);
    assert_eq!(through(&table, 1, Some(10)), Err(true));
    assert_eq!(through(&table, 1, Some(11)), Ok(Some(10)));
    assert_eq!(through(&table, 2, None), Err(true));
    assert_eq!(through(&table, 2, Some(3)), Ok(None));
    let counters = table.counters();
    assert_eq!((counters.hits, counters.misses, counters.fills), (2, 2, 2));
    assert_eq!((table.slots(), table.bytes()), (3, 64));
}

#[test]
fn a_write_updates_an_entry_that_was_there_and_brings_none_in() {
    let table = table(3);
    table.write(1).keep(5);
    assert!(matches!(table.get(1), Found::Miss(_)));
    assert_eq!(through(&table, 1, Some(5)), Err(true));
    table.write(1).keep(6);
    assert_eq!(through(&table, 1, None), Ok(Some(6)));
    table.write(1).keep_absent();
    assert_eq!(through(&table, 1, Some(1)), Ok(None));
    drop(table.write(1));
    assert_eq!(through(&table, 1, Some(1)), Err(true));
}

#[test]
fn a_ticket_from_before_a_write_or_beside_one_is_declined() {
    let table = table(3);
    let ticket = |key| table.get(key).answer().expect_err("a miss");
    let (before, other) = (ticket(1), ticket(2));
    let guard = table.write(1);
    let beside = ticket(1);
    assert!(!table.fill(beside, Some(1)), "a guard is inside");
    let beside = ticket(1);
    drop(guard);
    assert!(!table.fill(before, Some(1)));
    assert!(!table.fill(beside, Some(1)));
    assert!(!table.fill(other, Some(1)), "of the same bucket");
    assert_eq!(table.counters().declined, 4);
    let after = ticket(1);
    assert!(table.fill(after, Some(2)));
}

#[test]
fn a_ticket_of_another_table_or_from_before_a_clear_is_declined() {
    let (small, large) = (table(3), table(3000));
    for key in 0..100 {
        let ticket = large.get(key).answer().expect_err("a miss");
        assert!(!ticket.is_void() && !small.fill(ticket, Some(1)));
    }
    let ticket = small.get(1).answer().expect_err("a miss");
    small.clear();
    assert!(!small.fill(ticket, Some(1)));
    assert_eq!(through(&small, 1, Some(1)), Err(true));
    small.clear();
    assert_eq!(through(&small, 1, Some(2)), Err(true));
}

#[test]
fn of_two_writers_none_keeps() {
    let table = table(3);
    assert_eq!(through(&table, 1, Some(0)), Err(true));
    let (first, second) = (table.write(1), table.write(1));
    second.keep(2);
    first.keep(1);
    assert!(matches!(table.get(1), Found::Miss(_)));
    // The second came and went while the first was inside.
    assert_eq!(through(&table, 1, Some(2)), Err(true));
    let first = table.write(1);
    table.write(2).keep(7);
    first.keep(1);
    assert!(matches!(table.get(1), Found::Miss(_)));
}

#[test]
fn a_panic_inside_a_guard_leaves_the_bucket_open() {
    let table = table(3);
    assert_eq!(through(&table, 1, Some(0)), Err(true));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = table.write(1);
        panic!("the index did");
    }));
    assert!(panicked.is_err());
    assert_eq!(through(&table, 1, Some(2)), Err(true), "the entry is out");
    assert_eq!(through(&table, 1, None), Ok(Some(2)));
    let panicked = catch_unwind(AssertUnwindSafe(|| table.get_or(2, |_| panic!("the index did"))));
    assert!(panicked.is_err());
    assert_eq!(through(&table, 2, Some(4)), Err(true));
}

#[test]
fn leaked_guards_shut_their_bucket_and_nothing_else() {
    let table = table(3);
    std::mem::forget(table.write(1));
    assert_eq!(through(&table, 1, Some(1)), Err(false));
    drop(table.write(1));
    table.clear();
    assert_eq!(through(&table, 1, Some(1)), Err(false));
}

#[test]
fn guards_that_a_bucket_cannot_count_enter_all() {
    let table = table(3);
    assert_eq!(through(&table, 1, Some(1)), Err(true));
    let mut guards: Vec<_> = (0..600).map(|_| table.write(1)).collect();
    while let Some(guard) = guards.pop() {
        assert_eq!(through(&table, 1, Some(1)), Err(false), "{} are inside", guards.len() + 1);
        guard.keep(7);
    }
    assert_eq!(through(&table, 1, Some(2)), Err(true));
    assert_eq!(through(&table, 1, None), Ok(Some(2)));
}

#[test]
fn nothing_comes_in_while_all_is_written() {
    let table = table(3);
    assert_eq!(through(&table, 1, Some(1)), Err(true));
    let writing = table.write(1);
    let all = table.clearing();
    assert_eq!(through(&table, 1, Some(1)), Err(false));
    writing.keep(1);
    assert_eq!(through(&table, 1, Some(1)), Err(false));
    let beside = table.get(2).answer().expect_err("a miss");
    drop(all);
    assert!(!table.fill(beside, Some(1)));
    assert_eq!(through(&table, 1, Some(1)), Err(true));
}

/// Of each epoch's number there are 65,536: an entry that stays untouched must not come back.
#[test]
fn no_entry_comes_back_when_the_epochs_wrap() {
    let table = table(3 * 70_000);
    let ticket = table.get(1).answer().expect_err("a miss");
    for key in 0..100_000 {
        assert!(through(&table, key, Some(key)).is_err());
    }
    for _ in 0..(1 << 16) {
        table.clear();
    }
    assert!(!table.fill(ticket, Some(1)));
    for key in 0..100_000 {
        assert!(matches!(table.get(key), Found::Miss(_)), "{key}");
    }
}

#[test]
fn a_bucket_whose_versions_end_begins_a_new_epoch() {
    let table = table(3);
    table.table.start_at(9, (1 << 48) - 600);
    let ticket = table.get(2).answer().expect_err("a miss");
    for round in 0..1000 {
        drop(table.write(1));
        assert_eq!(through(&table, 1, Some(round)), Err(true), "{round}");
        assert_eq!(through(&table, 1, None), Ok(Some(round)));
    }
    assert!(!table.fill(ticket, Some(1)));
    assert!(table.table.era.load(Ordering::Relaxed) >> 48 > 9);
}

#[test]
fn a_burst_of_any_length_is_its_lookups() {
    let table = table(3000);
    (0..200).filter(|key| key % 3 > 0).for_each(|key| {
        assert_eq!(through(&table, key, (key % 3 == 1).then_some(key)), Err(true));
    });
    for count in [0, 1, 31, 32, 33, 64, 100, 200] {
        let keys: Vec<u64> = (0..count).collect();
        let mut next = 0;
        table.get_batch(&keys, |at, found| {
            match (keys[at] % 3, found) {
                (0, Found::Miss(ticket)) => assert_eq!(*ticket.key(), keys[at]),
                (1, Found::Hit(value)) => assert_eq!(value, keys[at]),
                (2, Found::Absent) => {}
                (_, found) => panic!("{at}: {found:?}"),
            }
            assert_eq!(at, std::mem::replace(&mut next, at + 1));
        });
        assert_eq!(next, keys.len());
    }
}

/// Of keys that are asked for once each none puts out those that are asked for again and again.
#[test]
fn keys_that_are_hit_stay() {
    let table = table(300);
    let hot = |round: u64| (0..100).map(move |key| (key, round));
    let mut hits = 0;
    for (key, round) in (0..200).flat_map(hot) {
        let answer = through(&table, key, Some(key));
        hits += u64::from(round >= 100 && answer.is_ok());
        _ = through(&table, 1000 + 100 * round + key, None);
    }
    assert!(hits > 9000, "{hits} of 10,000");
}

#[test]
fn sizes_are_checked() {
    let new = |config: Config| Copies::<u64, u64>::new(&config).map(|table| table.bytes());
    assert_eq!(new(Config::entries(0)), Err(Error::Empty));
    assert_eq!(new(Config::entries(4)), Ok(128));
    assert_eq!(new(Config::bytes(200)), Ok(192));
    let error = new(Config::bytes(63)).expect_err("too few");
    assert_eq!(error.to_string(), "63 bytes hold no bucket: a table needs at least 64");
    let error = new(Config::entries(usize::MAX)).expect_err("too many");
    assert_eq!(error, Error::TooManyBuckets { buckets: usize::MAX.div_ceil(3) });
    assert!(error.to_string().contains(&BUCKETS_MAX.to_string()));
}
