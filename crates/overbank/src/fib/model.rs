//! The protocol of [`table`](super::table) and [`simd`](super::simd) under loom: small tables, one
//! writer, one or two readers, and every order in which their accesses may happen or be seen, up to
//! a bound of preemptions.
//!
//!     cargo test -p overbank --lib --features loom fib::model
//!
//! Buckets have one slot here, and the portable comparison reads word by word. Each scene says what
//! its readers may see and nothing else: an entry that stays is never absent, a value is one
//! that the writer had written by then, a removed key does not come back, and what a reader saw
//! once it does not un-see in its next lookup.

use std::vec::Vec;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::candidates::Candidates;
use super::key::{Key, Value};
use super::{Config, MacAddr, Reader, Writer};

/// Runs a scene in every order with at most that many preemptions, `LOOM_MAX_PREEMPTIONS` if that
/// is fewer.
fn explore(preemptions: usize, scene: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    let allowed = model.preemption_bound.unwrap_or(preemptions);
    model.preemption_bound = Some(allowed.min(preemptions));
    model.check(scene);
}

/// Returns the first key, from `from` on, for which `wanted` is true.
fn key_where(buckets: usize, from: u64, wanted: impl Fn(Candidates) -> bool) -> u64 {
    let hasher = crate::hash::Hasher::new(0);
    (from..)
        .find(|&key| wanted(Candidates::of(hasher.hash(1, key, 0), buckets as u32)))
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

fn key6(key: u64) -> MacAddr {
    MacAddr::new(key).expect("small")
}

/// Returns a table of two buckets.
fn table<K: Key, V: Value>() -> Writer<K, V> {
    Writer::new(&Config::buckets(2)).expect("a small table")
}

/// Threads of readers: one that calls `look` with 0 and then with 1, or two with one call each.
fn readers<K: Key, V: Value>(
    count: usize,
    writer: &Writer<K, V>,
    look: impl Fn(usize, &Reader<K, V>) + Clone + Send + 'static,
) -> Vec<thread::JoinHandle<()>> {
    (0..count)
        .map(|number| {
            let (reader, look) = (writer.reader(), look.clone());
            thread::spawn(move || match count {
                1 => (0..2).for_each(|number| look(number, &reader)),
                _ => look(number, &reader),
            })
        })
        .collect()
}

fn two_readers<K: Key, V: Value>(
    writer: &Writer<K, V>,
    look: impl Fn(usize, &Reader<K, V>) + Clone + Send + 'static,
) -> Vec<thread::JoinHandle<()>> {
    readers(2, writer, look)
}

/// Explores a scene beside one reader, deeply, and beside two with one preemption: the choices of
/// two multiply.
fn explore_both(scene: fn(readers: usize)) {
    explore(3, move || scene(1));
    explore(1, move || scene(2));
}

/// How far the writer had come by what the first look saw, told to the second one. If that is in
/// another thread and heard of the first, it comes after it just as in the same thread.
#[derive(Clone, Default)]
struct Told(Arc<AtomicUsize>);

impl Told {
    /// Checks that the second look sees no older table than the first one that it heard of.
    fn look(&self, number: usize, age: impl Fn() -> usize) {
        if number == 0 {
            return self.0.store(age(), Ordering::Release);
        }
        let told = self.0.load(Ordering::Acquire);
        let seen = age();
        assert!(told <= seen, "{seen} after {told}");
    }
}

fn join(readers: Vec<thread::JoinHandle<()>>) {
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
}

/// An entry that moves to its second bucket is never absent.
#[test]
fn a_displaced_entry_is_never_absent() {
    explore(3, || {
        let key = key6(keys(1)[0]);
        let mut writer = table::<MacAddr, u16>();
        writer.insert(key, 7).expect("empty");
        let readers = two_readers(&writer, move |_, table| assert_eq!(table.lookup(key), Some(7)));
        assert!(writer.flip(key));
        join(readers);
    });
}

/// An entry that moves there and back is never absent.
#[test]
fn an_entry_that_comes_back_is_never_absent() {
    explore(3, || {
        let key = key6(keys(1)[0]);
        let mut writer = table::<MacAddr, u16>();
        writer.insert(key, 7).expect("empty");
        let reader = writer.reader();
        let reader = thread::spawn(move || assert_eq!(reader.lookup(key), Some(7)));
        assert!(writer.flip(key) && writer.flip(key));
        reader.join().expect("no panic");
    });
}

/// A moving entry is never absent from a burst, which holds on to headers for longer.
#[test]
fn a_displaced_entry_is_never_absent_from_a_burst() {
    explore(3, || {
        let key = key6(keys(1)[0]);
        let mut writer = table::<MacAddr, u16>();
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

/// Keys and values of several words, in a slot that gets another occupant. With two readers, one
/// for each of its keys, the slot is free when they begin; else the old occupant is still there.
fn another_occupant(looks: &'static [usize], burst: bool) {
    let [a, b, fill] = [1u128, 2, 3].map(|key| key << 64 | 5);
    let mut writer = table::<u128, u16>();
    writer.insert(fill, 1).expect("empty");
    writer.insert(a, 100).expect("room");
    if looks.len() == 2 {
        writer.remove(a);
    }
    let spawn = |&look: &usize| {
        let reader = writer.reader();
        thread::spawn(move || {
            let (key, value) = [(a, 100), (b, 200)][look];
            let found = if burst {
                let mut values = [0];
                (reader.lookup_batch(&[key], &mut values) == 1).then_some(values[0])
            } else {
                reader.lookup(key)
            };
            assert!(found.is_none() || found == Some(value), "{found:?}");
        })
    };
    let readers = looks.iter().map(spawn).collect();
    writer.remove(a);
    writer.insert(b, 200).expect("room");
    join(readers);
}

#[test]
fn a_slot_is_never_read_half() {
    explore(2, || another_occupant(&[0], false));
    explore(2, || another_occupant(&[1], false));
    explore(1, || another_occupant(&[0, 1], false));
}

#[test]
fn a_slot_is_never_read_half_by_a_burst() {
    explore(2, || another_occupant(&[0], true));
    explore(2, || another_occupant(&[1], true));
}

/// A value is the old or the new one, and never the old one after the new one.
#[test]
fn values_do_not_go_back() {
    explore(3, || {
        let key = keys(1)[0];
        let mut writer = table::<u64, u64>();
        writer.insert(key, 1).expect("empty");
        let readers = two_readers(&writer, move |_, table| {
            let found = (table.lookup(key), table.lookup(key));
            let allowed = [(1, 1), (1, 2), (2, 2)].map(|(a, b)| (Some(a), Some(b)));
            assert!(allowed.contains(&found), "{found:?}");
        });
        assert!(writer.flip(key));
        writer.update(key, 2);
        join(readers);
    });
}

/// An insertion that has to displace, beside readers that get the table, the key that moves and
/// the new one.
fn insert_by_displacement(
    count: usize,
    look: impl Fn(usize, &Reader<MacAddr, u16>, MacAddr, MacAddr) + Clone + Send + 'static,
) {
    // Home and second of `new` are full; the entry at home can go to bucket 2.
    let place = |home, second| move |p: Candidates| (p.home, p.second) == (home, second);
    let [old, other, new] =
        [place(0, 2), place(1, 0), place(0, 1)].map(|p| key6(key_where(3, 1, p)));
    let mut writer = Writer::<MacAddr, u16>::new(&Config::buckets(3)).expect("a small table");
    for key in [old, other] {
        writer.insert(key, 1).expect("room at home");
    }
    let readers = readers(count, &writer, move |number, table| look(number, table, old, new));
    writer.insert(new, 9).expect("by way of bucket 2");
    assert_eq!(writer.stats().displaced, 1);
    join(readers);
}

#[test]
fn an_insertion_moves_others_unseen() {
    explore_both(|count| {
        insert_by_displacement(count, |_, table, old, _| {
            assert_eq!(table.lookup(old), Some(1));
        });
    });
}

#[test]
fn an_insertion_that_moves_others_appears_once_and_for_all() {
    explore_both(|count| {
        let told = Told::default();
        insert_by_displacement(count, move |number, table, _, new| {
            told.look(number, || match table.lookup(new) {
                None => 0,
                Some(9) => 1,
                other => unreachable!("{other:?}"),
            });
        });
    });
}

/// A list, whose bursts overlap, beside a removal and an insertion into the same slot: what stays
/// is found, and no key has the value of another.
#[test]
fn a_list_beside_changes_finds_what_stays() {
    explore(2, || {
        let [stays, gone, new] = <[u64; 3]>::try_from(keys(3)).expect("three").map(key6);
        let mut writer = table::<MacAddr, u16>();
        writer.insert(stays, 1).expect("room");
        writer.insert(gone, 2).expect("room in the second bucket");
        let reader = writer.reader();
        let reader = thread::spawn(move || {
            let mut values = [0; 2];
            let mut hits = [0];
            reader.lookup_all(&[gone, stays], &mut values, &mut hits);
            let [hits] = hits;
            assert!(hits & 2 == 2 && values[1] == 1, "{hits:b} {values:?}");
            assert!(hits & 1 == 0 || values[0] == 2, "{hits:b} {values:?}");
        });
        writer.remove(gone);
        writer.insert(new, 3).expect("room in the second bucket");
        reader.join().expect("no panic");
    });
}

/// A list whose bursts overlap, beside a key that comes home from its second bucket: it is in the
/// list twice, and never absent.
#[test]
fn a_key_that_moves_is_never_absent_from_a_list() {
    explore(2, || {
        let key = key6(keys(1)[0]);
        let mut writer = table::<MacAddr, u16>();
        writer.insert(key, 7).expect("empty");
        assert!(writer.flip(key), "to its second bucket");
        let reader = writer.reader();
        let reader = thread::spawn(move || {
            let (mut values, mut hits) = ([0; 2], [0]);
            reader.lookup_all(&[key; 2], &mut values, &mut hits);
            assert_eq!((hits, values), ([0b11], [7; 2]));
        });
        assert!(writer.flip(key));
        reader.join().expect("no panic");
    });
}

/// A key that goes into its second bucket, as its home is full, and leaves again.
#[test]
fn removed_keys_do_not_come_back() {
    explore(3, || {
        let [stays, gone] = [keys(2)[0], keys(2)[1]].map(key6);
        let mut writer = table::<MacAddr, u16>();
        writer.insert(stays, 1).expect("room");
        writer.insert(gone, 1).expect("room in the second bucket");
        let readers = two_readers(&writer, move |number, table| {
            if number == 0 {
                return assert_eq!(table.lookup(stays), Some(1));
            }
            let (first, second) = (table.lookup(gone), table.lookup(gone));
            assert!(first == Some(1) || first.is_none() && second.is_none());
        });
        writer.remove(gone);
        join(readers);
    });
}

/// An inserted key does not vanish again, whatever happens to its neighbours.
#[test]
fn an_inserted_key_stays() {
    explore_both(|count| {
        let [old, new] = [keys(2)[0], keys(2)[1]].map(key6);
        let mut writer = table::<MacAddr, u16>();
        writer.insert(old, 1).expect("room");
        let told = Told::default();
        let readers = readers(count, &writer, move |number, table| {
            told.look(number, || match table.lookup(new) {
                None => 0,
                Some(2) => 1,
                other => unreachable!("{other:?}"),
            });
        });
        writer.insert(new, 2).expect("room in the second bucket");
        writer.remove(old);
        join(readers);
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
        let reader = writer.reader();
        let reader = thread::spawn(move || {
            let age = || match reader.lookup(key) {
                Some(1) => 0,
                None => 1,
                Some(2) => 2,
                other => unreachable!("{other:?}"),
            };
            let (first, second) = (age(), age());
            assert!(first <= second, "{first} then {second}");
        });
        writer.remove(key);
        writer.insert(other, 3).expect("room");
        writer.insert(key, 2).expect("room");
        reader.join().expect("no panic");
    });
}
