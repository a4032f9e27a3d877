//! Databases: every snapshot sees its state, whatever the tables have dropped or kept.

use crate::stores::{Lmdb, NUMBERS, Redb, Store};
use crate::{Choices, sizes};
use ::redb::backends::InMemoryBackend;
use ::redb::{Builder, MultimapTableDefinition, StorageBackend, TableDefinition};
use overbank_aside::lookaside::Config;
use overbank_aside::{Watched, heed, redb};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

type Twin = [BTreeMap<u64, u64>; 2];

/// Runs transactions at random beside a twin of each snapshot: a few old readers stay, a third of
/// the commits is aborted or dropped, entries and whole tables vanish.
fn twin(store: &impl Store, seed: u64) {
    let mut choices = Choices::new(seed);
    let mut now: Twin = Default::default();
    let mut readers = Vec::new();
    for _ in 0..1_500 {
        match choices.below(8) {
            0 | 1 => {
                let (mut write, mut next) = (store.write(), now.clone());
                for _ in 0..choices.below(6) {
                    let (table, key) = (choices.below(2) as usize, choices.key());
                    match choices.below(12) {
                        0..=2 => {
                            let had = next[table].remove(&key).is_some();
                            assert_eq!(store.delete(&mut write, table, key), had);
                        }
                        3 => {
                            next[table].retain(|other, _| *other < key);
                            store.delete_from(&mut write, table, key);
                        }
                        _ => {
                            let value = choices.value();
                            next[table].insert(key, value);
                            store.put(&mut write, table, key, value);
                        }
                    }
                }
                match choices.below(6) {
                    0 => store.abort(write),
                    1 => drop(write),
                    _ => {
                        store.commit(write);
                        now = next;
                    }
                }
            }
            2 if readers.len() < 5 => readers.push((store.read(), now.clone())),
            2 => drop(readers.swap_remove(choices.below(5) as usize)),
            3 if choices.below(20) == 0 => store.aside(choices.below(2) as usize).clear(),
            _ => {}
        }
        let (table, keys) = (choices.below(2) as usize, [(); 40].map(|()| choices.key()));
        let expected = |twin: &Twin| keys.map(|key| twin[table].get(&key).copied());
        let mut values = [None; 40];
        for (read, twin) in &readers {
            let value = store.get(read, table, keys[0]);
            assert_eq!(value, twin[table].get(&keys[0]).copied());
            store.batch(read, table, &keys, &mut values);
            assert_eq!(values, expected(twin));
        }
        assert_eq!(store.latest(table, keys[1]), now[table].get(&keys[1]).copied());
        store.latest_batch(table, &keys, &mut values);
        assert_eq!(values, expected(&now));
    }
    let hits: u64 = [0, 1].map(|table| store.aside(table).counters().hits).iter().sum();
    assert!(hits > 1000, "{hits} hits: the tables do nothing");
}

#[test]
fn redb_snapshots_see_their_states() {
    for (seed, config) in sizes().iter().enumerate() {
        twin(&Redb::in_memory(config), seed as u64);
    }
}

#[test]
fn lmdb_snapshots_see_their_states() {
    for (seed, config) in sizes().iter().enumerate() {
        let dir = tempfile::tempdir().expect("a directory for the test");
        twin(&Lmdb::open(dir.path(), config), seed as u64);
    }
}

/// A hit needs no transaction: it answers while LMDB has no room for a reader.
#[test]
fn a_hit_on_the_newest_state_begins_no_transaction() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let store = Lmdb::open(dir.path(), &Config::entries(100));
    let mut write = store.write();
    store.put(&mut write, 0, 1, 10);
    store.commit(write);
    assert_eq!((store.latest(0, 1), store.latest(0, 2)), (Some(10), None));
    let readers: Vec<_> = std::iter::from_fn(|| store.db.begin_read().ok()).collect();
    assert!(readers.len() >= 60, "{}", readers.len());
    assert_eq!((store.latest(0, 1), store.latest(0, 2)), (Some(10), None));
    let missed = store.db.get_latest(&store.tables[0], 3);
    assert!(matches!(missed, Err(heed::Error::Database(_))), "no place for a reader");
}

/// A long transaction lists only so much, then the table is cleared.
#[test]
fn a_transaction_of_many_changes_clears_the_table() {
    let store = Redb::in_memory(&Config::entries(100));
    let mut write = store.write();
    (0..10).for_each(|key| store.put(&mut write, 0, key, key));
    store.commit(write);
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    let mut write = store.write();
    let mut table = write.open(&store.tables[0]).expect("open");
    for key in 0..(1 << 16) + 10 {
        table.insert(key, key + 1).expect("written");
    }
    drop(table);
    store.put(&mut write, 0, 3, 33);
    assert_eq!(store.latest(0, 3), Some(3));
    store.commit(write);
    (0..10).filter(|key| *key != 3).for_each(|key| assert_eq!(store.latest(0, key), Some(key + 1)));
    assert_eq!(store.latest(0, 3), Some(33));
}

#[test]
fn a_restored_savepoint_and_a_deleted_table_are_seen() {
    let store = Redb::in_memory(&Config::entries(100));
    let mut write = store.db.begin_write().expect("begun");
    (0..10).for_each(|key| store.put(&mut write, 0, key, key));
    write.commit().expect("committed");
    let write = store.db.begin_write().expect("begun");
    let savepoint = write.savepoint().expect("taken");
    write.commit().expect("committed");
    let mut write = store.db.begin_write().expect("begun");
    (0..10).for_each(|key| store.put(&mut write, 0, key, key + 100));
    store.put(&mut write, 1, 1, 1);
    write.commit().expect("committed");
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key + 100)));
    assert_eq!(store.latest(1, 1), Some(1));

    let mut write = store.db.begin_write().expect("begun");
    write.restore(&savepoint).expect("restored");
    write.commit().expect("committed");
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    assert_eq!(store.latest(1, 1), None);

    let write = store.db.begin_write().expect("begun");
    assert!(write.delete(&store.tables[0]).expect("deleted"));
    assert_eq!(store.latest(0, 1), Some(1));
    write.commit().expect("committed");
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), None));
}

/// A disk that can be made to fail.
#[derive(Debug)]
struct Disk {
    memory: InMemoryBackend,
    broken: Arc<AtomicBool>,
}

impl Disk {
    fn checked(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) { Err(io::Error::other("broken")) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.checked()?;
        self.memory.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.checked()?;
        self.memory.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.checked()?;
        self.memory.write(offset, data)
    }
}

#[test]
fn a_commit_of_redb_that_fails_publishes_nothing() {
    let broken = Arc::new(AtomicBool::new(false));
    let disk = Disk { memory: InMemoryBackend::new(), broken: broken.clone() };
    let store = Redb::on(disk, &Config::entries(100));
    let mut write = store.db.begin_write().expect("begun");
    (0..10).for_each(|key| store.put(&mut write, 0, key, key));
    write.commit().expect("committed");
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    let old = store.read();
    let mut write = store.db.begin_write().expect("begun");
    (0..5).for_each(|key| store.put(&mut write, 0, key, key + 100));
    broken.store(true, Ordering::Relaxed);
    assert!(matches!(write.commit(), Err(redb::Error::Database(_))));
    // redb serves nothing more after that. What the table still has is right.
    for key in 0..10 {
        match store.db.get_latest(&store.tables[0], key) {
            Ok(value) => assert_eq!(value, Some(key)),
            Err(error) => assert!(key < 5, "{key}: {error}"),
        }
    }
    drop(old);
}

#[test]
fn a_commit_of_lmdb_that_fails_publishes_nothing() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let store = Lmdb::of(4 << 20, dir.path(), &Config::entries(100));
    let mut write = store.write();
    (0..10).for_each(|key| store.put(&mut write, 0, key, key));
    store.commit(write);
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    let mut write = store.write();
    (0..5).for_each(|key| store.put(&mut write, 0, key, key + 100));
    // The map of 4 MiB is full at some time.
    let full = (1 << 20..1 << 24).find(|key| write.put(&store.tables[0], *key, 0).is_err());
    assert!(full.is_some());
    assert!(matches!(write.commit(), Err(heed::Error::Database(_))));
    (0..10).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    // The number comes again, for other changes.
    let mut write = store.write();
    store.put(&mut write, 0, 9, 99);
    store.commit(write);
    (0..9).for_each(|key| assert_eq!(store.latest(0, key), Some(key)));
    assert_eq!(store.latest(0, 9), Some(99));
}

#[test]
fn what_would_go_past_a_table_is_refused() {
    let config = Config::entries(100);
    let mut store = Redb::in_memory(&config);
    let again = store.db.table(NUMBERS, &config);
    assert!(matches!(again, Err(redb::Error::Aside(_))));
    assert!(matches!(store.db.table(NUMBERS, &Config::entries(0)), Err(redb::Error::Aside(_))));
    let other = Redb::in_memory(&config);
    let foreign = &other.tables[0];
    assert!(matches!(store.db.get_latest(foreign, 1), Err(redb::Error::OtherDatabase(_))));
    assert!(matches!(store.read().open(foreign), Err(redb::Error::OtherDatabase(_))));
    let write = store.db.begin_write().expect("begun");
    assert!(matches!(write.open(foreign), Err(redb::Error::OtherDatabase(_))));
    assert!(matches!(write.other(NUMBERS), Err(redb::Error::Aside(_))));
    let multimap = MultimapTableDefinition::<u64, u64>::new("numbers");
    assert!(matches!(write.other_multimap(multimap), Err(redb::Error::Aside(_))));
    write
        .other(TableDefinition::<&str, &str>::new("texts"))
        .expect("open")
        .insert("a", "b")
        .expect("ok");

    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory for the test"));
    let mut store = Lmdb::open(dirs[0].path(), &config);
    assert!(matches!(store.db.table::<u64, u64>("numbers", &config), Err(heed::Error::Aside(_))));
    assert!(matches!(store.db.table::<u64, u64>("none", &config), Err(heed::Error::Absent(_))));
    let other = Lmdb::open(dirs[1].path(), &config);
    let foreign = &other.tables[0];
    assert!(matches!(store.db.get_latest(foreign, 1), Err(heed::Error::OtherEnvironment)));
    let mut write = store.write();
    let refused = |error| matches!(error, heed::Error::OtherEnvironment);
    assert!(write.put(foreign, 1, 1).is_err_and(refused));
    assert!(write.get(foreign, 1).is_err_and(refused));
    assert!(write.delete(foreign, 1).is_err_and(refused));
    assert!(write.delete_range(foreign, ..).is_err_and(refused));
    assert!(write.clear(foreign).is_err_and(refused));
    assert!(write.range(foreign, ..).err().is_some_and(refused));
}

/// A write transaction from before the table would write past it.
#[test]
fn a_table_waits_for_older_writes() {
    let backend = InMemoryBackend::new();
    let database = Builder::new().create_with_backend(backend).expect("a database");
    let (old, ended) = (database.begin_write().expect("begun"), AtomicBool::new(false));
    let mut db = redb::Db::new(database);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            old.open_table(NUMBERS).expect("open").insert(1, 2).expect("inserted");
            ended.store(true, Ordering::Release);
            old.commit().expect("committed");
        });
        let table = db.table(NUMBERS, &Config::entries(100)).expect("a table");
        assert!(ended.load(Ordering::Acquire));
        assert_eq!(db.get_latest(&table, 1).expect("read"), Some(2));
    });
}

/// Values that are shorter than the type, and databases of several values a key.
#[test]
#[allow(unsafe_code)] // Opening an environment.
fn other_shapes_of_lmdb_are_refused() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    {
        let mut options = ::heed::EnvOpenOptions::new();
        // SAFETY: only LMDB changes the file.
        let env = unsafe { options.max_dbs(4).open(dir.path()) }.expect("opened");
        let write = env.write_txn().expect("begun");
        env.create_databases_and_commit(write, |opener, write| {
            let mut options =
                opener.database_options().types::<::heed::types::Bytes, ::heed::types::Bytes>();
            options.name("several").flags(::heed::DatabaseFlags::DUP_SORT).create(write)?;
            let short = opener.create_database::<::heed::types::Bytes, ::heed::types::Bytes>(
                write,
                Some("short"),
            )?;
            short.put(write, &7u64.to_ne_bytes(), b"short")?;
            Ok::<_, ::heed::Error>(::heed::CommitOrAbort::<_, ()>::Commit(()))
        })
        .expect("made");
        env.prepare_for_closing().wait();
    }
    let mut store = Lmdb::open(dir.path(), &Config::entries(100));
    let several = store.db.table::<u64, u64>("several", &Config::entries(100));
    assert!(matches!(several, Err(heed::Error::Multiple(_))));
    let short = store.db.table::<u64, u64>("short", &Config::entries(100)).expect("a table");
    let read = store.db.get_latest(&short, 7);
    assert!(matches!(read, Err(heed::Error::Length { found: 5, wanted: 8 })));
}
