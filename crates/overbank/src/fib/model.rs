//! The protocol of [`table`](super::table) and [`simd`](super::simd) under loom: small tables, one
//! writer, two readers, and every order in which their accesses may happen or be seen, up to a
//! bound of preemptions.
//!
//!     RUSTFLAGS="--cfg loom" cargo test -p overbank --lib fib::model --release --target-dir target/loom
//!
//! Buckets have one slot here, and the portable comparison reads word by word. Each scene says what
//! its readers may see and nothing else: an entry that stays is never absent, a value is one
//! that the writer had written by then, a removed key does not come back, and what a reader saw
//! once it does not un-see in its next lookup.

use std::vec::Vec;

use loom::thread;

use super::key::{Key, Value};
use super::place::Place;
use super::{Config, Key6, Reader, Writer};

/// Runs a scene in every order with at most so many preemptions (or `LOOM_MAX_PREEMPTIONS`).
fn explore(preemptions: usize, scene: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(model.preemption_bound.unwrap_or(preemptions));
    model.check(scene);
}

/// The first key, from `from` on, of which `wanted` holds.
fn key_where(buckets: usize, from: u64, wanted: impl Fn(Place) -> bool) -> u64 {
    let hasher = super::place::Hasher::new(0);
    (from..)
        .find(|&key| wanted(super::place::place(hasher.hash(1, key, 0), buckets as u32)))
        .expect("some key has any two buckets")
}

/// Keys whose home is bucket 0 and whose second bucket is 1.
fn keys(count: usize) -> Vec<u64> {
    let mut keys = Vec::new();
    while keys.len() < count {
        let from = keys.last().map_or(1, |&key| key + 1);
        keys.push(key_where(2, from, |place| (place.home, place.second) == (0, 1)));
    }
    keys
}

fn key6(key: u64) -> Key6 {
    Key6::new(key).expect("small")
}

/// A table of two buckets.
fn table<K: Key, V: Value>() -> Writer<K, V> {
    Writer::new(&Config::buckets(2)).expect("a small table")
}

fn read_twice<K: Key, V: Value>(
    reader: Reader<K, V>,
    key: K,
    check: impl Fn(Option<V>, Option<V>) + Send + 'static,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let first = reader.lookup(key);
        check(first, reader.lookup(key));
    })
}

/// An entry that goes to its second bucket is never absent.
#[test]
fn a_displaced_entry_is_never_absent() {
    explore(3, || {
        let key = key6(keys(1)[0]);
        let mut writer = table::<Key6, u16>();
        writer.insert(key, 7).expect("empty");
        let readers = [writer.reader(), writer.reader()];
        let readers =
            readers.map(|reader| thread::spawn(move || assert_eq!(reader.lookup(key), Some(7))));
        assert!(writer.flip(key));
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    });
}

/// There and back again.
#[test]
fn an_entry_that_comes_back_is_never_absent() {
    explore(3, || {
        let key = key6(keys(1)[0]);
        let mut writer = table::<Key6, u16>();
        writer.insert(key, 7).expect("empty");
        let reader = writer.reader();
        let reader = thread::spawn(move || assert_eq!(reader.lookup(key), Some(7)));
        assert!(writer.flip(key) && writer.flip(key));
        reader.join().expect("no panic");
    });
}

/// The same through the batch, which holds on to headers for longer.
#[test]
fn a_displaced_entry_is_never_absent_from_a_burst() {
    explore(3, || {
        let key = key6(keys(1)[0]);
        let mut writer = table::<Key6, u16>();
        writer.insert(key, 7).expect("empty");
        let reader = writer.reader();
        let reader = thread::spawn(move || {
            let mut values = [0];
            assert_eq!((reader.lookup_batch(&[key], &mut values), values), (1, [7]));
        });
        assert!(writer.flip(key) && writer.flip(key));
        reader.join().expect("no panic");
    });
}

/// Keys and values of several words: a slot that gets another occupant is never read as a mixture.
#[test]
fn a_slot_is_never_read_half() {
    explore(2, || {
        let [a, b, fill] = [1u128, 2, 3].map(|key| key << 64 | 5);
        let mut writer = table::<u128, u16>();
        writer.insert(fill, 1).expect("empty");
        writer.insert(a, 100).expect("room");
        let reader = writer.reader();
        let reader = thread::spawn(move || {
            let found = (reader.lookup(a), reader.lookup(b));
            let allowed = [(Some(100), None), (None, None), (None, Some(200))];
            assert!(allowed.contains(&found) || found == (Some(100), Some(200)), "{found:?}");
        });
        writer.remove(a);
        writer.insert(b, 200).expect("room");
        reader.join().expect("no panic");
    });
}

/// A value is the old or the new one, and never the old one after the new one.
#[test]
fn values_do_not_go_back() {
    explore(3, || {
        let key = keys(1)[0];
        let mut writer = table::<u64, u64>();
        writer.insert(key, 1).expect("empty");
        let readers = [writer.reader(), writer.reader()].map(|reader| {
            read_twice(reader, key, |first, second| {
                let allowed = [(1, 1), (1, 2), (2, 2)].map(|(a, b)| (Some(a), Some(b)));
                assert!(allowed.contains(&(first, second)), "{first:?} {second:?}");
            })
        });
        assert!(writer.flip(key));
        writer.update(key, 2);
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    });
}

/// An insertion that has to displace, beside a reader.
fn insert_by_displacement(reader: impl FnOnce(Reader<Key6, u16>, Key6, Key6) + Send + 'static) {
    // Home and second of `new` are full; the entry at home can go to bucket 2.
    let place = |home, second| move |p: Place| (p.home, p.second) == (home, second);
    let [old, other, new] =
        [place(0, 2), place(1, 0), place(0, 1)].map(|p| key6(key_where(3, 1, p)));
    let mut writer = Writer::<Key6, u16>::new(&Config::buckets(3)).expect("a small table");
    for key in [old, other] {
        writer.insert(key, 1).expect("room at home");
    }
    let table = writer.reader();
    let reader = thread::spawn(move || reader(table, old, new));
    writer.insert(new, 9).expect("by way of bucket 2");
    assert_eq!(writer.stats().displaced, 1);
    reader.join().expect("no panic");
}

#[test]
fn an_insertion_moves_others_unseen() {
    explore(3, || {
        insert_by_displacement(|table, old, _| assert_eq!(table.lookup(old), Some(1)));
    });
}

#[test]
fn an_insertion_that_moves_others_appears_once_and_for_all() {
    explore(2, || {
        insert_by_displacement(|table, _, new| {
            let found = (table.lookup(new), table.lookup(new));
            let allowed = [(None, None), (None, Some(9)), (Some(9), Some(9))];
            assert!(allowed.contains(&found), "{found:?}");
        });
    });
}

/// A key that goes into its second bucket, as its home is full, and leaves again.
#[test]
fn removed_keys_do_not_come_back() {
    explore(3, || {
        let [stays, gone] = [keys(2)[0], keys(2)[1]].map(key6);
        let mut writer = table::<Key6, u16>();
        writer.insert(stays, 1).expect("room");
        writer.insert(gone, 1).expect("room in the second bucket");
        let reader = read_twice(writer.reader(), gone, |first, second| {
            assert!(first == Some(1) || first.is_none() && second.is_none());
        });
        let other = writer.reader();
        let other = thread::spawn(move || assert_eq!(other.lookup(stays), Some(1)));
        writer.remove(gone);
        reader.join().expect("no panic");
        other.join().expect("no panic");
    });
}

/// An inserted key does not vanish again, whatever happens to its neighbours.
#[test]
fn an_inserted_key_stays() {
    explore(3, || {
        let [old, new] = [keys(2)[0], keys(2)[1]].map(key6);
        let mut writer = table::<Key6, u16>();
        writer.insert(old, 1).expect("room");
        let reader = read_twice(writer.reader(), new, |first, second| {
            assert!(first.is_none() || (first == Some(2) && second == first));
        });
        writer.insert(new, 2).expect("room in the second bucket");
        writer.remove(old);
        reader.join().expect("no panic");
    });
}

/// A key that is removed and inserted again, elsewhere, with another value.
#[test]
fn a_key_may_come_back_with_another_value() {
    explore(2, || {
        let all = keys(2);
        let (key, other) = (all[0], all[1]);
        let mut writer = table::<u64, u16>();
        writer.insert(key, 1).expect("room");
        let reader = read_twice(writer.reader(), key, |first, second| {
            let age = |value| match value {
                Some(1) => 0,
                None => 1,
                Some(2) => 2,
                other => unreachable!("{other:?}"),
            };
            assert!(age(first) <= age(second), "{first:?} then {second:?}");
        });
        writer.remove(key);
        writer.insert(other, 3).expect("room");
        writer.insert(key, 2).expect("room");
        reader.join().expect("no panic");
    });
}
