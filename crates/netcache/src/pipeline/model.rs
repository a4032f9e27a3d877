//! The arrays under loom: whatever the order of their accesses, a get has the value of one update,
//! and none that a write has passed before the get began.

use super::arrays::{Arrays, Length, Status};
use super::stages::AtStatus;
use crate::entry::Entry;
use crate::slots::{PASS, Place};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const ENTRY: Entry = Entry { place: Place { index: 0, stages: 1, units: 1 }, item: 0, port: 0 };
/// Of a value that takes two passes. Only a unit of the first one is kept, to have fewer orders.
const LONG: Entry = Entry { place: Place { units: 9, ..ENTRY.place }, ..ENTRY };

fn arrays() -> Arc<Arrays> {
    let arrays = Arrays::new(1, 1);
    arrays.install(0, 1);
    Arc::new(arrays)
}

/// The value of the stamp with this many writes: its length differs, and every word of it.
fn value(writes: u32) -> Vec<u8> {
    vec![writes as u8 + 1; 9 + writes as usize]
}

/// Whether an update with this many writes was stored.
fn update(arrays: &Arrays, writes: u32) -> bool {
    let (status, at) = AtStatus::begin(arrays, ENTRY).read();
    if status.writes() != writes || status.install() != 1 || status.is_valid() {
        return false;
    }
    let value = value(writes);
    let at = at.set(Length { bytes: value.len() as u16, absent: false });
    at.is_some_and(|at| at.write(&value))
}

/// Returns the count of writes whose value a get has.
fn get(arrays: &Arrays) -> Option<u32> {
    let (status, at) = AtStatus::begin(arrays, ENTRY).read();
    if !status.is_valid() {
        return None;
    }
    let (length, at) = at.read();
    let mut room = [0; PASS];
    at.read(&mut room).then(|| {
        let expected = value(status.writes());
        assert_eq!(room[..length.bytes.into()], expected, "of one update");
        status.writes()
    })
}

fn write(arrays: &Arrays) -> Status {
    AtStatus::begin(arrays, ENTRY).write()
}

#[test]
fn a_get_has_the_value_of_one_update_that_no_write_has_passed() {
    loom::model(|| {
        let arrays = arrays();
        let passed = Arc::new(AtomicU32::new(0));
        let (own, count) = (arrays.clone(), passed.clone());
        let writer = thread::spawn(move || {
            update(&own, 0);
            write(&own);
            count.store(1, Ordering::Release);
            update(&own, 1);
        });
        let before = passed.load(Ordering::Acquire);
        if let Some(writes) = get(&arrays) {
            assert!(writes >= before, "a write had passed");
        }
        writer.join().expect("ends");
        assert_eq!(get(&arrays), Some(1));
    });
}

#[test]
fn a_late_update_changes_nothing() {
    loom::model(|| {
        let arrays = arrays();
        let late = arrays.clone();
        let late = thread::spawn(move || update(&late, 0));
        write(&arrays);
        // It may find the item busy: then it is dropped, and the server repeats it.
        let stored = update(&arrays, 1);
        if stored {
            assert_eq!(get(&arrays), Some(1));
        }
        late.join().expect("ends");
        assert_eq!(get(&arrays), stored.then_some(1));
        assert_eq!(stored, !update(&arrays, 1), "the item is free again");
        assert_eq!(get(&arrays), Some(1));
    });
}

#[test]
fn writes_of_two_workers_are_both_counted_and_an_eviction_ends_all() {
    loom::model(|| {
        let arrays = arrays();
        let own = arrays.clone();
        let other = thread::spawn(move || {
            write(&own);
            update(&own, 1)
        });
        let mine = write(&arrays).writes();
        assert!((1..=2).contains(&mine));
        arrays.install(0, 0);
        assert_eq!(get(&arrays), None);
        other.join().expect("ends");
        assert_eq!(get(&arrays), None);
        assert!(!update(&arrays, 2));
    });
}

#[test]
fn a_get_of_two_passes_has_the_value_of_one_update() {
    loom::model(|| {
        let arrays = Arrays::new(1, 2);
        arrays.go_on(LONG.place, Place { index: 1, stages: 1, units: 1 });
        arrays.install(0, 1);
        let arrays = Arc::new(arrays);
        let update = |arrays: &Arrays, writes: u8| {
            let (_, at) = AtStatus::begin(arrays, LONG).read();
            let at = at.set(Length { bytes: 136, absent: false });
            let at = at.and_then(|at| at.pass(&[writes; 8]));
            at.is_some_and(|at| at.write(&[writes; 8]))
        };
        let own = arrays.clone();
        let writer = thread::spawn(move || {
            update(&own, 1);
            write(&own);
            update(&own, 2);
        });
        let (status, at) = AtStatus::begin(&arrays, LONG).read();
        if status.is_valid() {
            let mut rooms = [[0; PASS]; 2];
            let at = at.read().1.pass(&mut rooms[0]);
            if at.is_some_and(|at| at.read(&mut rooms[1])) {
                assert_eq!(rooms.map(|room| u32::from(room[0])), [status.writes() + 1; 2]);
            }
        }
        writer.join().expect("ends");
    });
}
