//! The protocols of [`live`](super::live) and [`versioned`](super::versioned) under loom: one
//! bucket or two of one entry, two or three threads, and every order in which their accesses may
//! happen or be seen, up to a bound of preemptions.
//!
//!     cargo test -p overbank --lib --features loom lookaside::copies::model
//!
//! The index is an atomic word. The rules that seem to do as well are here too, and fail.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

use super::live::{Copies, Writing};
use super::ticket::Found;
use super::versioned::{Commit, Versioned};
use crate::lookaside::Config;

const KEY: u64 = 7;

fn explore(preemptions: usize, scene: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    let allowed = model.preemption_bound.unwrap_or(preemptions);
    model.preemption_bound = Some(allowed.min(preemptions));
    model.check(scene);
}

/// A table in front of an index of one key, whose value only grows from 1.
struct Live {
    table: Copies<u64, u64>,
    index: AtomicU64,
}

impl Live {
    /// Returns it with the entry or without.
    fn new(filled: bool) -> Arc<Self> {
        let table = Copies::new(&Config::entries(1)).expect("small");
        let live = Self { table, index: AtomicU64::new(1) };
        if filled {
            live.read();
        }
        Arc::new(live)
    }

    fn read(&self) -> u64 {
        self.table.get_or(KEY, |_| Some(self.index.load(Ordering::Acquire))).expect("there")
    }

    /// Reads twice; the value must not shrink.
    fn read_twice(&self) {
        let first = self.read();
        let second = self.read();
        assert!(first <= second, "{second} after {first}");
    }

    fn write(&self, value: u64, keep: bool) {
        let guard = self.table.write(KEY);
        self.index.store(value, Ordering::Release);
        if keep {
            guard.keep(value);
        }
    }

    /// After all threads have ended, an answer is what the index has.
    fn check(&self) {
        if let Found::Hit(value) = self.table.get(KEY) {
            assert_eq!(value, self.index.load(Ordering::Acquire));
        }
    }
}

/// Runs threads beside the scene's own.
fn beside(live: &Arc<Live>, threads: &[fn(&Live)], own: fn(&Live)) {
    let threads: std::vec::Vec<_> = threads
        .iter()
        .map(|&run| {
            let live = Arc::clone(live);
            thread::spawn(move || run(&live))
        })
        .collect();
    own(live);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    live.check();
}

#[test]
fn two_readers_fill_one_bucket() {
    explore(3, || {
        let live = Live::new(false);
        beside(&live, &[|live| assert_eq!(live.read(), 1)], |live| {
            assert_eq!((live.read(), live.read()), (1, 1));
        });
    });
}

#[test]
fn a_reader_beside_a_write_sees_no_value_go_back() {
    for (filled, keep) in [(false, false), (true, false), (true, true)] {
        explore(3, move || {
            let live = Live::new(filled);
            let write: fn(&Live) =
                if keep { |live| live.write(2, true) } else { |live| live.write(2, false) };
            beside(&live, &[write], Live::read_twice);
        });
    }
}

#[test]
fn a_fill_beside_a_write_and_a_reader() {
    explore(2, || {
        let live = Live::new(false);
        beside(&live, &[|live| live.write(2, true), |live| _ = live.read()], Live::read_twice);
    });
}

#[test]
fn of_two_writers_that_keep_the_index_decides() {
    explore(3, || {
        let live = Live::new(true);
        beside(&live, &[|live| live.write(2, true)], |live| live.write(3, true));
    });
}

#[test]
fn two_writers_beside_a_reader() {
    explore(2, || {
        let live = Live::new(true);
        let one = |live: &Live| {
            let guard = live.table.write(KEY);
            let value = live.index.fetch_add(1, Ordering::AcqRel) + 1;
            guard.keep(value);
        };
        beside(&live, &[one, one], Live::read_twice);
    });
}

#[test]
fn a_write_of_all_beside_a_reader_and_a_write() {
    fn all(live: &Live) {
        let _all = live.table.clearing();
        live.index.fetch_add(1, Ordering::AcqRel);
    }
    for filled in [false, true] {
        explore(2, move || beside(&Live::new(filled), &[all], Live::read_twice));
    }
    explore(2, || {
        let write = |live: &Live| {
            let guard = live.table.write(KEY);
            let value = live.index.fetch_add(1, Ordering::AcqRel) + 1;
            guard.keep(value);
        };
        beside(&Live::new(true), &[all], write);
    });
}

/// Returns a table of two buckets and a key of one of them. Beginnings of epochs visit them in
/// turn.
fn two_buckets(bucket: u32) -> (Arc<Copies<u64, u64>>, u64) {
    let table = Arc::new(Copies::<u64, u64>::new(&Config::entries(2)).expect("small"));
    let of = |key| table.table.place(table.table.hash(key)).bucket;
    let key = (0..).find(|&key| of(key) == bucket).expect("every other one");
    (table, key)
}

/// A reader that still has the epoch of a write of all must not find what was filled from before
/// that write. The end of that write does not visit its bucket.
#[test]
fn a_fill_does_not_outlive_a_write_of_all() {
    explore(2, || {
        let (table, key) = two_buckets(0);
        let index = Arc::new(AtomicU64::new(1));
        let place = table.table.place(table.table.hash(key));
        let fill = {
            let (table, index) = (Arc::clone(&table), Arc::clone(&index));
            move || _ = table.get_or(key, |_| Some(index.load(Ordering::Acquire)))
        };
        let fill = thread::spawn(fill);
        let all = table.clearing();
        index.store(2, Ordering::Release);
        let era = table.table.era.load(Ordering::Acquire);
        drop(all);
        fill.join().expect("no panic");
        assert!(!matches!(table.table.look(key, place, era, |_| true), Found::Hit(1)));
    });
}

/// A writer may not see yet that an epoch began when it leaves a bucket, which the clear does not
/// visit.
#[test]
fn a_ticket_is_of_the_bucket_as_it_was_whatever_its_epoch() {
    explore(3, || {
        let (table, key) = two_buckets(1);
        let index = Arc::new(AtomicU64::new(1));
        let write = {
            let (table, index) = (Arc::clone(&table), Arc::clone(&index));
            move || {
                let _inside = table.write(key);
                index.store(2, Ordering::Release);
            }
        };
        let write = thread::spawn(write);
        table.clear();
        table.get_or(key, |_| Some(index.load(Ordering::Acquire)));
        write.join().expect("no panic");
        assert!(!matches!(table.get(key), Found::Hit(1)));
    });
}

/// The obvious rule: change the index, then invalidate.
#[test]
#[should_panic(expected = "after")]
fn to_invalidate_after_the_write_is_not_enough() {
    explore(3, || {
        let live = Live::new(false);
        let write = |live: &Live| {
            live.index.store(2, Ordering::Release);
            drop(live.table.write(KEY));
        };
        beside(&live, &[write, |live| _ = live.read()], Live::read_twice);
    });
}

fn keep_blindly(guard: &Writing<'_, u64, u64>, value: u64) {
    guard.keep_blindly(value);
}

/// Two writers may reach the index in one order and the table in the other.
#[test]
#[should_panic(expected = "left == right")]
fn to_keep_without_looking_for_others_is_not_enough() {
    explore(3, || {
        let live = Live::new(true);
        fn write(live: &Live, value: u64) {
            let guard = live.table.write(KEY);
            live.index.store(value, Ordering::Release);
            keep_blindly(&guard, value);
        }
        beside(&live, &[|live| write(live, 2)], |live| write(live, 3));
    });
}

/// A database of one key: what it has after each commit.
const STATES: [u64; 2] = [10, 11];

struct Database {
    table: Versioned<u64, u64>,
    newest: AtomicU64,
}

type Change = fn(&mut Commit<'_, u64, u64>, u64);

impl Database {
    fn new() -> Arc<Self> {
        let table = Versioned::new(&Config::entries(1)).expect("small");
        let database = Self { table, newest: AtomicU64::new(0) };
        database.read();
        Arc::new(database)
    }

    /// Reads as a database without numbers does: the newest published one, then the transaction.
    fn read(&self) {
        let at = self.table.latest();
        let state = STATES[self.newest.load(Ordering::Acquire) as usize];
        match at.get(KEY) {
            Found::Hit(value) => assert_eq!(value, state, "at {}", at.version()),
            Found::Absent => panic!("it is there"),
            Found::Miss(ticket) => _ = at.fill(ticket, Some(state)),
        }
    }

    /// Aborts a commit, then commits with its number.
    fn write(&self, change: Change) {
        let mut commit = self.table.commit(1).expect("the first");
        change(&mut commit, 666);
        drop(commit);
        let mut commit = self.table.commit(1).expect("the number again");
        commit.change(KEY, Some(STATES[1]));
        self.newest.store(1, Ordering::Release);
        commit.publish();
    }

    fn run(this: &Arc<Self>, change: Change) {
        let writer = {
            let database = Arc::clone(this);
            thread::spawn(move || database.write(change))
        };
        this.read();
        this.read();
        writer.join().expect("no panic");
        for (version, state) in STATES.into_iter().enumerate() {
            if let Found::Hit(value) = this.table.at(version as u64).get(KEY) {
                assert_eq!(value, state);
            }
        }
    }
}

#[test]
fn a_snapshot_beside_an_aborted_commit_and_one_of_its_number() {
    explore(2, || Database::run(&Database::new(), |commit, value| commit.change(KEY, Some(value))));
}

/// A value that goes in before the commit is served after an abort, once the number is passed.
#[test]
#[should_panic(expected = "left == right")]
fn to_put_in_at_the_change_is_not_enough() {
    explore(2, || {
        let database = Database::new();
        let mut commit = database.table.commit(1).expect("the first");
        commit.put_in_at_once(KEY, 666);
        drop(commit);
        // The next commit with this number changes another key.
        database.newest.store(0, Ordering::Release);
        database.table.commit(1).expect("the number again").publish();
        database.read();
    });
}

/// Another process commits: the reader with its number takes everything out, beside a reader before
/// it and its fill.
#[test]
fn a_commit_past_the_table_beside_an_older_reader() {
    explore(3, || {
        let database = Database::new();
        database.newest.store(1, Ordering::Release);
        let old = {
            let database = Arc::clone(&database);
            thread::spawn(move || {
                let at = database.table.at(0);
                match at.get(KEY) {
                    Found::Hit(value) => assert_eq!(value, STATES[0]),
                    Found::Absent => panic!("it is there"),
                    Found::Miss(ticket) => _ = at.fill(ticket, Some(STATES[0])),
                }
            })
        };
        let at = database.table.at(1);
        match at.get(KEY) {
            Found::Hit(value) => assert_eq!(value, STATES[1]),
            Found::Absent => panic!("it is there"),
            Found::Miss(ticket) => _ = at.fill(ticket, Some(STATES[1])),
        }
        old.join().expect("no panic");
        if let Found::Hit(value) = database.table.at(1).get(KEY) {
            assert_eq!(value, STATES[1]);
        }
    });
}
