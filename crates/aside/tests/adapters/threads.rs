//! Threads: a value that only grows is never seen to shrink, and a pair is never seen torn.

use crate::stores::{Lmdb, Redb, Store};
use crossbeam_skiplist::SkipMap;
use overbank_aside::locked::Locked;
use overbank_aside::lookaside::Config;
use overbank_aside::{Aside, Index, Source, congee};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const KEYS: u64 = 24;
const WRITES: u64 = 20_000;

/// Says that a writer is done, also where it panics: nothing waits for it then.
struct Done<'a>(&'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Two writers with separate keys, of which one changes some in a step of many, and a reader.
fn grows<I: Index<u64, u64>>(index: I) {
    let aside = Aside::new(index, &Config::entries(9)).expect("a table");
    let written: [AtomicU64; KEYS as usize] = Default::default();
    let done = AtomicU64::new(0);
    (0..KEYS).for_each(|key| aside.insert(key, 0));
    thread::scope(|scope| {
        for writer in 0..2 {
            let (aside, written, done) = (&aside, &written, &done);
            scope.spawn(move || {
                let _done = Done(done);
                for value in 1..=WRITES {
                    let key = value * 2 % KEYS + writer;
                    if writer == 1 && value % 16 == 0 {
                        aside.change(|index| index.insert(key, value));
                    } else {
                        aside.insert(key, value);
                    }
                    written[key as usize].store(value, Ordering::Release);
                    assert_eq!(aside.get(key), Some(value), "after the write");
                }
            });
        }
        let mut seen = [0; KEYS as usize];
        for key in (0..KEYS).cycle() {
            let floor = written[key as usize].load(Ordering::Acquire);
            // SkipMap replaces a key by removing it first.
            if let Some(value) = aside.get(key) {
                let before = seen[key as usize].max(floor);
                assert!(value >= before, "{key}: {value} after {before}");
                seen[key as usize] = value;
            }
            if key == 0 && done.load(Ordering::Acquire) == 2 {
                break;
            }
        }
    });
    for key in 0..KEYS {
        let Ok(past_the_table) = aside.around(key);
        assert_eq!(aside.get(key), past_the_table);
    }
}

#[test]
fn live_indexes() {
    grows(Locked::new(BTreeMap::new()));
    grows(SkipMap::new());
    grows(congee::Tree::default());
}

/// A writer that gives two keys, in two tables, the same value in each transaction; a reader of
/// snapshots and one of the newest state.
fn pairs(store: &impl Store) {
    let (done, rounds) = (AtomicU64::new(0), 1_000);
    let running = || done.load(Ordering::Acquire) == 0;
    let mut write = store.write();
    (0..KEYS).for_each(|key| [0, 1].iter().for_each(|table| store.put(&mut write, *table, key, 0)));
    store.commit(write);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&done);
            for value in 1..=rounds {
                let mut write = store.write();
                let key = value % KEYS;
                store.put(&mut write, 0, key, value);
                store.put(&mut write, 1, key, value);
                if value % 7 == 0 {
                    // The number comes again.
                    store.abort(write);
                    continue;
                }
                store.commit(write);
                assert_eq!(store.latest(0, key), Some(value));
            }
        });
        scope.spawn(|| {
            let mut seen = [0; KEYS as usize];
            while running() {
                for key in 0..KEYS {
                    let value = store.latest(1, key).expect("there");
                    assert!(value >= seen[key as usize], "{key}: {value}");
                    seen[key as usize] = value;
                }
            }
        });
        while running() {
            let read = store.read();
            for key in (0..KEYS).chain(0..KEYS) {
                let [first, second] = [0, 1].map(|table| store.get(&read, table, key));
                assert_eq!(first, second, "key {key} of one snapshot");
            }
        }
    });
}

#[test]
fn redb_pairs() {
    pairs(&Redb::in_memory(&Config::entries(9)));
}

#[test]
fn lmdb_pairs() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    pairs(&Lmdb::open(dir.path(), &Config::entries(9)));
}
