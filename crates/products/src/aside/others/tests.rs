#![allow(unsafe_code)] // Opening LMDB.

use super::*;
use crate::aside::mix::Mix;
use crate::aside::record::{Comparison, Input};
use crate::aside::tests::plan;
use crate::aside::{self, Plan};
use ::heed::types::Bytes;
use ::heed::{CommitOrAbort, DatabaseFlags, Env, EnvFlags, EnvOpenOptions, WithoutTls};
use ::redb::{Database, MultimapTableDefinition, TableDefinition};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

const KEYS: u64 = 3000;
#[allow(deprecated)] // heed prefers its comparator, which other programs do not have.
const INTEGER_KEY: DatabaseFlags = DatabaseFlags::INTEGER_KEY;

fn key(number: u64) -> u64 {
    number << 40 | 7
}

fn make_redb(file: &Path) -> Database {
    let database = Database::create(file).expect("made");
    let write = database.begin_write().expect("begun");
    let mut table = write.open_table(TableDefinition::<u64, u64>::new("a")).expect("a table");
    (0..KEYS).for_each(|at| drop(table.insert(key(at), at * at).expect("put")));
    drop(table);
    drop(write.open_table(TableDefinition::<&str, u64>::new("texts")).expect("a table"));
    write.commit().expect("committed");
    database
}

/// Opens LMDB in a directory, or in a file.
fn open_lmdb(path: &Path, more: EnvFlags) -> Env<WithoutTls> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(1 << 24).max_dbs(4);
    // SAFETY: the test's, and no page is read while another process writes.
    unsafe {
        options.flags(more);
        options.open(path)
    }
    .expect("an environment")
}

fn put_lmdb(env: &Env<WithoutTls>, name: &str, flags: DatabaseFlags, pairs: &[(Vec<u8>, &[u8])]) {
    let made = env.create_databases_and_commit(env.write_txn().expect("begun"), |opener, write| {
        let mut database = opener.database_options().types::<Bytes, Bytes>();
        database.name(name).flags(flags);
        Ok::<_, ::heed::Error>(CommitOrAbort::<_, ()>::Commit(database.create(write)?))
    });
    let database = made.expect("made").commit().expect("committed");
    let mut write = env.write_txn().expect("begun");
    pairs.iter().for_each(|(key, value)| database.put(&mut write, key, value).expect("put"));
    write.commit().expect("committed");
}

fn numbers(bytes: fn(u64) -> [u8; 8]) -> Vec<(Vec<u8>, &'static [u8])> {
    (0..KEYS).map(|at| (bytes(key(at)).to_vec(), &b"12345678"[..])).collect()
}

fn others(engine: Engine, path: &Path, table: Option<&str>) -> Others {
    Others { engine, path: path.to_owned(), table: table.map(str::to_owned) }
}

fn open(others: &Others) -> Result<Opened, AsideError> {
    others.open(|_| Ok(()), &AtomicBool::new(false))
}

fn refused(engine: Engine, path: &Path, table: Option<&str>) -> String {
    let error = open(&others(engine, path, table)).err().expect("refused").to_string();
    let start = format!("{}: ", path.display());
    assert!(!error.contains('\n'), "{error}");
    error.strip_prefix(&start).expect("names the file").to_owned()
}

/// An order that a program gives LMDB, and that other programs do not know.
enum Backwards {}

impl ::heed::Comparator for Backwards {
    fn compare(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        b.cmp(a)
    }
}

/// The files of a directory, their bytes and times.
fn state(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let files = fs::read_dir(dir).expect("a directory").map(|file| file.expect("a file").path());
    let state = |path: PathBuf| {
        let time = path.metadata().and_then(|meta| meta.modified()).expect("a time");
        (path.clone(), fs::read(path).expect("read"), time)
    };
    let mut all: Vec<_> = files.map(state).collect();
    all.sort();
    all
}

fn measured(engine: Engine, opened: Opened, stream: &Stream) -> Result<Comparison, AsideError> {
    let plan = Plan { operations: 20_000, ..plan(&engine.subjects(), "10%") };
    let input = Input::BuiltIn { mix: Mix::C, keys: 1, theta: 0.0 };
    aside::run(&plan, input, stream, Some(opened), &AtomicBool::new(false), &mut |_, _| {})
}

/// Measures drawn keys and those of a file, of which one is absent.
fn is_measured_and_left_alone(engine: Engine, dir: &Path, path: &Path, table: Option<&str>) {
    let before = state(dir);
    for drawn in [true, false] {
        let mut opened = open(&others(engine, path, table)).expect("opened");
        let lookups = (0..9999).map(|at| if at == 500 { 1 } else { key(at * at % 1009) }).collect();
        let stream =
            if drawn { opened.drawn(0.99, 1).expect("a law") } else { opened.file(lookups) };
        assert_eq!(stream.key_count(), KEYS as usize);
        let found = measured(engine, opened, &stream).expect("measured");
        assert_eq!(found.indexes.len(), 2);
        for index in &found.indexes {
            assert_eq!(index.tables[0].entries, 300);
            assert!(index.tables[0].hit_rate > Some(0.2), "{index:?}");
            assert_eq!(
                index.bytes,
                if path.is_dir() { path.join("data.mdb") } else { path.into() }
                    .metadata()
                    .expect("there")
                    .len()
            );
        }
    }
    assert!(state(dir) == before, "the files are as they were");
}

#[test]
fn a_redb_database_is_measured_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("numbers.redb");
    drop(make_redb(&file));
    is_measured_and_left_alone(Engine::Redb, dir.path(), &file, Some("a"));
}

#[test]
fn an_lmdb_database_is_measured_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let env = open_lmdb(dir.path(), EnvFlags::empty());
    put_lmdb(&env, "numbers", DatabaseFlags::empty(), &numbers(u64::to_be_bytes));
    drop(env);
    is_measured_and_left_alone(Engine::Lmdb, dir.path(), dir.path(), None);
    // In one file, with keys in the machine's order.
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("numbers.mdb");
    let env = open_lmdb(&file, EnvFlags::NO_SUB_DIR);
    put_lmdb(&env, "numbers", INTEGER_KEY, &numbers(u64::to_ne_bytes));
    drop(env);
    is_measured_and_left_alone(Engine::Lmdb, dir.path(), &file, Some("numbers"));
}

#[test]
fn keys_of_a_file_are_found_in_either_order_of_bytes() {
    for (flags, bytes) in [
        (DatabaseFlags::empty(), u64::to_be_bytes as fn(u64) -> [u8; 8]),
        (INTEGER_KEY, u64::to_ne_bytes),
    ] {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let env = open_lmdb(dir.path(), EnvFlags::empty());
        put_lmdb(&env, "numbers", flags, &numbers(bytes));
        drop(env);
        let mut opened = open(&others(Engine::Lmdb, dir.path(), None)).expect("opened");
        let keys = opened.keys.clone();
        let mut stream = opened.file(vec![key(5), 1]);
        let has = |key| keys.contains(&key);
        assert_eq!(stream.next(2).iter().map(|op| has(op.key)).collect::<Vec<_>>(), [true, false]);
    }
}

#[test]
fn what_is_no_redb_database_is_refused() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("numbers.redb");
    let refused = |table| refused(Engine::Redb, &file, table);
    assert!(refused(None).starts_with("cannot be read: No such file"));
    for content in ["", "text", &"text ".repeat(10_000)] {
        fs::write(&file, content).expect("written");
        assert_eq!(refused(None), "is no redb database", "{content:.9}");
    }
    fs::remove_file(&file).expect("removed");
    let made = Command::new("mkfifo").arg(&file).status().expect("mkfifo");
    assert!(made.success());
    assert_eq!(refused(None), "is no redb database");
    fs::remove_file(&file).expect("removed");
    let database = make_redb(&file);
    assert!(refused(None).starts_with("is open in another process: "));
    let write = database.begin_write().expect("begun");
    let many = MultimapTableDefinition::<u64, u64>::new("many");
    drop(write.open_multimap_table(many).expect("a table"));
    write.commit().expect("committed");
    let open_copy = dir.path().join("copy");
    fs::copy(&file, &open_copy).expect("copied");
    assert!(super::tests::refused(Engine::Redb, &open_copy, None).contains("was not closed"));
    drop(database);
    assert_eq!(refused(None), "has several tables: name one with --table: a, texts");
    assert_eq!(refused(Some("b")), "has no table b; has a, texts");
    assert_eq!(refused(Some("many")), "has no table many; has a, texts");
    let found = refused(Some("texts"));
    assert_eq!(found, "texts is of type Table<&str, u64>; must have keys and values of 64 bits");
    let whole = fs::read(&file).expect("read");
    for length in [10, 200, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..length]).expect("written");
        let found = refused(Some("a"));
        let known = ["is damaged", "was not closed", "cannot be read", "redb: "];
        assert!(known.iter().any(|known| found.starts_with(known)), "{length}: {found}");
    }
}

#[test]
fn what_is_no_lmdb_database_is_refused() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let data = dir.path().join("data.mdb");
    let refused = |table| refused(Engine::Lmdb, dir.path(), table);
    assert!(refused(None).starts_with("cannot be read: No such file"));
    for content in ["", "text", &"text ".repeat(10_000)] {
        fs::write(&data, content).expect("written");
        assert_eq!(refused(None), "is no LMDB database", "{content:.9}");
    }
    fs::remove_file(&data).expect("removed");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&data, &link).expect("a link");
    for path in [dir.path(), &data, &link] {
        // Anew each time: to have asked for this process's own locks ends them.
        let env = open_lmdb(dir.path(), EnvFlags::empty());
        put_lmdb(&env, "numbers", DatabaseFlags::empty(), &numbers(u64::to_be_bytes));
        let refused = super::tests::refused(Engine::Lmdb, path, None);
        assert!(refused.starts_with("is open in another process: "), "{}", path.display());
    }
    let env = open_lmdb(dir.path(), EnvFlags::empty());
    put_lmdb(&env, "many", DatabaseFlags::DUP_SORT, &[]);
    put_lmdb(&env, "texts", DatabaseFlags::empty(), &[(b"key".to_vec(), b"value")]);
    drop(env);
    assert_eq!(refused(None), "has several tables: name one with --table: many, numbers, texts");
    assert_eq!(refused(Some("b")), "has no table b; has many, numbers, texts");
    assert!(refused(Some("many")).starts_with("table many: has several values a key"));
    let wanted = "a key of 3 bytes with a value of 5; must have keys and values of 64 bits";
    assert_eq!(refused(Some("texts")), wanted);
    let env = open_lmdb(dir.path(), EnvFlags::empty());
    let opened =
        env.create_databases_and_commit(env.write_txn().expect("begun"), |opener, write| {
            let options = opener.database_options().types::<Bytes, Bytes>();
            let mut options = options.key_comparator::<Backwards>();
            options.name("backwards");
            Ok::<_, ::heed::Error>(CommitOrAbort::<_, ()>::Commit(options.create(write)?))
        });
    let backwards = opened.expect("made").commit().expect("committed");
    let mut write = env.write_txn().expect("begun");
    for (key, value) in numbers(u64::to_be_bytes) {
        backwards.put(&mut write, &key, value).expect("put");
    }
    write.commit().expect("committed");
    drop(env);
    assert!(refused(Some("backwards")).starts_with("table backwards: its keys are in an order"));
    let whole = fs::read(&data).expect("read");
    fs::write(&data, &whole[..whole.len() / 2]).expect("written");
    assert!(refused(Some("numbers")).starts_with("is damaged"));
}

/// A link to the same file stands for another process, which LMDB's lock here does not stop.
#[test]
fn a_commit_of_another_process_ends_it() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    fs::create_dir(&ours).and_then(|()| fs::create_dir(&theirs)).expect("made");
    let env = open_lmdb(&theirs, EnvFlags::empty());
    put_lmdb(&env, "numbers", DatabaseFlags::empty(), &numbers(u64::to_be_bytes));
    fs::hard_link(theirs.join("data.mdb"), ours.join("data.mdb")).expect("linked");
    let mut opened = open(&others(Engine::Lmdb, &ours, None)).expect("opened");
    let stream = opened.drawn(0.99, 1).expect("a law");
    put_lmdb(&env, "numbers", DatabaseFlags::empty(), &numbers(u64::to_be_bytes)[..1]);
    assert!(matches!(measured(Engine::Lmdb, opened, &stream), Err(AsideError::Changed)));
}

#[test]
fn keys_that_do_not_fit_are_not_listed() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("numbers.redb");
    drop(make_redb(&file));
    let others = others(Engine::Redb, &file, Some("a"));
    let fits = |keys| Err(AsideError::Entries { entries: 7, keys });
    let error = others.open(fits, &AtomicBool::new(false)).err().expect("refused");
    assert_eq!(error.to_string(), "--entries 7: must be at most 3000, the number of keys");
}
