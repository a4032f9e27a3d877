//! Other processes: one that writes past us, one that is killed in its commit.
//!
//! A child is this program again, running one of the tests below that do nothing without [`PATH`].

use crate::stores::{Lmdb, Redb, Store};
use ::redb::StorageBackend;
use ::redb::backends::FileBackend;
use overbank_aside::lookaside::Config;
use rustix::process::{Signal, getpid, kill_process};
use std::env;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const PATH: &str = "OVERBANK_ASIDE_PATH";

/// Runs a child's part; returns how it ended.
fn child(name: &str, path: &Path) -> ExitStatus {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args(["--exact", &format!("processes::{name}"), "--include-ignored"]).env(PATH, path);
    command.stdout(Stdio::null()).status().expect("started")
}

fn path() -> Option<PathBuf> {
    env::var_os(PATH).map(PathBuf::from)
}

fn config() -> Config {
    Config::entries(100)
}

fn put(store: &impl Store, pairs: impl IntoIterator<Item = (u64, u64)>) {
    let mut write = store.write();
    pairs.into_iter().for_each(|(key, value)| store.put(&mut write, 0, key, value));
    store.commit(write);
}

#[test]
#[ignore = "a child's part"]
fn child_writes() {
    let Some(path) = path() else { return };
    put(&Lmdb::open(&path, &config()), [(1, 111)]);
}

#[test]
fn another_process_writes_past_us() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let store = Lmdb::open(dir.path(), &config());
    put(&store, (0..10).map(|key| (key, key)));
    let read = |key| store.latest(0, key);
    (0..10).for_each(|key| assert_eq!((read(key), read(key)), (Some(key), Some(key))));
    let old = store.read();
    assert_eq!(store.get(&old, 0, 1), Some(1));
    assert!(child("child_writes", dir.path()).success());
    // Without a transaction, too.
    assert_eq!(read(1), Some(111));
    assert_eq!((store.get(&old, 0, 1), store.get(&store.read(), 0, 1)), (Some(1), Some(111)));
    put(&store, [(2, 222)]);
    (3..10).for_each(|key| assert_eq!(read(key), Some(key)));
    assert_eq!((read(1), read(2)), (Some(111), Some(222)));
}

/// A commit of nothing, and an aborted one, leave their number to the other process.
#[test]
fn another_process_gets_the_number_that_we_did_not_use() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let store = Lmdb::open(dir.path(), &config());
    put(&store, (0..10).map(|key| (key, key)));
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    let mut write = store.write();
    assert!(!store.delete(&mut write, 0, 77));
    assert_eq!(write.delete_range(&store.tables[0], 77..).expect("nothing"), 0);
    store.commit(write);
    let mut write = store.write();
    store.put(&mut write, 0, 1, 11);
    store.abort(write);
    assert_eq!(store.latest(0, 1), Some(1));
    assert!(child("child_writes", dir.path()).success());
    assert_eq!(store.latest(0, 1), Some(111));
    (2..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
}

/// Whether the next sync of a [`Deadly`] kills the process.
static DEADLY: AtomicBool = AtomicBool::new(false);

/// A file whose sync can kill.
#[derive(Debug)]
struct Deadly(FileBackend);

impl StorageBackend for Deadly {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        if DEADLY.load(Ordering::Relaxed) {
            die();
        }
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

fn die() {
    kill_process(getpid(), Signal::KILL).expect("killed");
}

fn open(path: &Path) -> Redb {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path);
    let file = FileBackend::new(file.expect("opened")).expect("locked");
    Redb::on(Deadly(file), &config())
}

/// Dies inside a commit: the keys are out of the table, the database has not committed.
#[test]
#[ignore = "a child's part"]
fn child_dies_in_a_commit_of_redb() {
    let Some(path) = path() else { return };
    let store = open(&path);
    let mut write = store.db.begin_write().expect("begun");
    (0..10).for_each(|key| store.put(&mut write, 0, key, key));
    write.commit().expect("committed");
    let mut write = store.db.begin_write().expect("begun");
    (0..10).for_each(|key| store.put(&mut write, 0, key, key + 100));
    DEADLY.store(true, Ordering::Relaxed);
    drop(write.commit());
}

#[test]
fn a_process_killed_in_a_commit_of_redb_leaves_one_state_or_the_other() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = dir.path().join("numbers.redb");
    let ended = child("child_dies_in_a_commit_of_redb", &path);
    assert_eq!(ended.signal(), Some(Signal::KILL.as_raw()), "{ended}");
    let store = open(&path);
    let first = store.latest(0, 0).expect("there");
    for key in (0..10).chain(0..10) {
        assert_eq!(store.latest(0, key), Some(first + key), "whole or not at all");
    }
    let mut write = store.db.begin_write().expect("begun");
    store.put(&mut write, 0, 5, 55);
    write.commit().expect("committed");
    assert_eq!((store.latest(0, 5), store.latest(0, 6)), (Some(55), Some(first + 6)));
}

#[test]
#[ignore = "a child's part"]
fn child_dies_before_a_commit_of_lmdb() {
    let Some(path) = path() else { return };
    let store = Lmdb::open(&path, &config());
    let mut write = store.write();
    (0..10).for_each(|key| store.put(&mut write, 0, key, key + 100));
    die();
}

#[test]
fn a_process_killed_before_a_commit_of_lmdb_leaves_what_was() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().expect("a directory for the test");
    let store = Lmdb::open(dir.path(), &config());
    put(&store, (0..10).map(|key| (key, key)));
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    let ended = child("child_dies_before_a_commit_of_lmdb", dir.path());
    assert_eq!(ended.signal(), Some(Signal::KILL.as_raw()), "{ended}");
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    // Its lock is free again, and its number.
    put(&store, [(5, 55)]);
    assert_eq!((store.latest(0, 5), store.latest(0, 6)), (Some(55), Some(6)));
}
