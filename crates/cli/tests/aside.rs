//! `overbank aside` as a person or a script sees it.
#![cfg(feature = "aside")]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Sizes at which nothing takes long.
const SMALL: [&str; 6] = ["--rounds", "1", "--operations", "2000", "--entries", "10%"];

fn aside(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    let small = command.arg("aside").args(SMALL).args(arguments).stdin(Stdio::null());
    small.output().expect("the command starts")
}

fn printed(arguments: &[&str]) -> String {
    let output = aside(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--format", "json"]].concat())).expect("JSON")
}

fn refused(arguments: &[&str], status: i32) -> String {
    let output = aside(arguments);
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(status) && output.stdout.is_empty(), "{errors}");
    errors
}

#[test]
fn drawn_keys_get_figures_and_a_recommendation() {
    let found = json(&["--keys", "3000", "--ycsb", "b"]);
    assert_eq!(found["schema"], "overbank-aside/1");
    assert_eq!(found["input"]["mix"], "B");
    let indexes = found["indexes"].as_array().expect("an array");
    assert_eq!(indexes.len(), 6);
    for index in indexes {
        let table = &index["tables"][0];
        assert_eq!(table["entries"], 300);
        assert!(table["gain"]["median"].as_f64() > Some(0.0), "{index}");
        assert!(table["gate"].as_str().expect("text").len() > 10);
    }
    assert!(found["recommendation"]["reason"].as_str().expect("text").contains("ns"));
}

#[test]
fn a_file_of_keys_gets_them_and_a_page() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let lookups: Vec<u64> = (0..4000u64).map(|at| at * at % 1009).collect();
    let lines: String = lookups.iter().map(|key| format!("{key}\n")).collect();
    fs::write(path("keys.txt"), lines).expect("written");
    let bytes: Vec<u8> = lookups.iter().flat_map(|key| key.to_le_bytes()).collect();
    fs::write(path("keys.u64"), bytes).expect("written");
    let some = ["--index", "btreemap,lmdb-latest", "--report"];
    let text = printed(&[&[path("keys.txt").as_str()], &some[..], &[&path("page.html")]].concat());
    assert!(text.starts_with("keys.txt, 4\u{202f}000 lookups; 505 keys in each index"), "{text}");
    assert!(text.contains("Recommended: ") && text.contains("lmdb-latest"), "{text}");
    let page = fs::read_to_string(path("page.html")).expect("a page");
    assert!(page.contains("keys.txt") && !page.contains("http"), "nothing from a network");
    let found = json(&[&path("keys.u64"), "--binary", "--index", "congee"]);
    assert_eq!((&found["keys"], &found["input"]["lookups"]), (&505.into(), &4000.into()));
}

#[test]
fn broken_files_are_refused_with_every_line() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("keys.txt");
    let path = file.to_str().expect("UTF-8");
    fs::write(&file, "1\ntwo\n3\n-4\n").expect("written");
    let error = refused(&[path], 1);
    let wanted = format!(
        "overbank: {path}: 2 lines are no key; must be a number from 0 to 2^64 - 1:\n  \
         line 2: \"two\" is no number\n  line 4: \"-4\" is no number\n"
    );
    assert_eq!(error, wanted);
    assert!(refused(&[path, "--binary"], 1).contains("11 bytes; must be a multiple of 8"));
    fs::write(&file, "").expect("written");
    assert!(refused(&[path], 1).contains(": no keys; must have one number a line"));
    assert!(refused(&["/nowhere"], 1).contains("/nowhere: cannot read the keys"));
    fs::write(&file, "1\n").expect("written");
    let error = refused(&[path, "--report", path], 1);
    assert!(error.contains("is an input and would be overwritten"), "{error}");
    assert_eq!(fs::read_to_string(&file).expect("there"), "1\n");
}

#[test]
fn wrong_arguments_are_refused() {
    let error = refused(&["--index", "btree"], 2);
    assert!(error.contains("possible values: btreemap, redb, redb-latest, lmdb"), "{error}");
    assert!(refused(&["--entries", "0"], 2).contains("a number from 1 up, or a share"));
    assert!(refused(&["--entries", "200%"], 2).contains("above 0% and up to 100%"));
    let error = refused(&["--keys", "1000", "--entries", "1001"], 1);
    assert_eq!(error, "overbank: --entries 1001: must be at most 1000, the number of keys\n");
    assert!(refused(&["--ycsb", "G"], 2).contains("a letter from A to F"));
    assert!(refused(&["--theta", "3"], 2).contains("between 0 (uniform) and 2"));
    let error = refused(&["--keys", "1000", "--ycsb", "E", "--index", "hashmap"], 1);
    assert!(error.contains("hashmap has no order to scan"), "{error}");
}

#[test]
fn mix_e_leaves_out_the_index_without_order() {
    let output = aside(&["--keys", "1000", "--ycsb", "E", "--format", "json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "overbank: hashmap has no order to scan: it is left out of mix E\n");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["indexes"].as_array().expect("an array").len(), 5);
    assert!(found["indexes"][0]["tables"][0]["hit_rate"].is_null(), "scans look nothing up");
}

#[test]
fn a_file_longer_than_the_memory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("keys.txt");
    fs::write(&file, "7\n".repeat(30_000)).expect("written");
    let error = refused(&[file.to_str().expect("UTF-8"), "--memory", "1"], 1);
    assert!(error.contains("more than --memory 1 MiB: raise it, or shorten the file"), "{error}");
}

/// Makes a database of redb with one table of each type.
fn database(file: &Path) -> redb::Database {
    let database = redb::Database::create(file).expect("made");
    let write = database.begin_write().expect("begun");
    let mut table =
        write.open_table(redb::TableDefinition::<u64, u64>::new("users")).expect("made");
    (0..3000u64).for_each(|key| drop(table.insert(key << 30, key).expect("put")));
    drop(table);
    drop(write.open_table(redb::TableDefinition::<&str, u64>::new("names")).expect("made"));
    write.commit().expect("committed");
    database
}

#[test]
fn a_database_of_others_is_read_and_left_alone() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let file = path("app.redb");
    drop(database(Path::new(&file)));
    let state = || (fs::read(&file), fs::metadata(&file).and_then(|file| file.modified()));
    let before = state();
    let some = ["--redb", &file, "--table", "users"];
    let found = json(&[&some[..], &["--theta", "0.8"]].concat());
    let input = serde_json::json!({ "kind": "database", "file": "app.redb", "table": "users",
                                    "theta": 0.8, "lookups": null });
    assert_eq!((&found["input"], &found["keys"]), (&input, &3000.into()));
    let names = |found: &Value| -> Vec<String> {
        let indexes = found["indexes"].as_array().expect("an array").iter();
        indexes.map(|index| index["index"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&found), ["redb", "redb-latest"]);
    fs::write(path("keys.txt"), "0\n5\n1073741824\n".repeat(500)).expect("written");
    let keys = path("keys.txt");
    let found = json(&[&some[..], &[&keys, "--index", "redb-latest"]].concat());
    assert_eq!(
        (names(&found), &found["input"]["lookups"]),
        (vec!["redb-latest".into()], &1500.into())
    );
    let text = printed(&[&some[..], &[&keys]].concat());
    assert!(
        text.starts_with("app.redb, table users, 1\u{202f}500 lookups; 3\u{202f}000 keys"),
        "{text}"
    );
    let after = state();
    assert!(before.0.expect("read") == after.0.expect("read"), "the same bytes");
    assert_eq!(before.1.expect("a time"), after.1.expect("a time"));
    assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 2);
}

#[test]
fn what_is_no_database_of_others_is_refused() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let file = dir.path().join("app.redb");
    let path = file.to_str().expect("UTF-8");
    let refused = |arguments: &[&str]| {
        let error = refused(arguments, 1);
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    fs::write(&file, "1\n2\n").expect("written");
    let error = refused(&["--redb", path]);
    assert_eq!(error, format!("overbank: {path}: is no redb database\n"));
    let error = refused(&["--lmdb", path]);
    assert_eq!(error, format!("overbank: {path}: is no LMDB database\n"));
    assert!(refused(&["--lmdb", "/nowhere"]).contains("/nowhere: cannot be read: No such file"));
    fs::remove_file(&file).expect("removed");
    let held = database(&file);
    assert!(refused(&["--redb", path]).contains(": is open in another process: close it there"));
    drop(held);
    let whole = fs::read(&file).expect("read");
    let error = refused(&["--redb", path]);
    assert!(error.ends_with("name one with --table: names, users\n"), "{error}");
    let error = refused(&["--redb", path, "--table", "names"]);
    assert!(error.contains("must have keys and values of 64 bits"), "{error}");
    let error = refused(&["--redb", path, "--table", "users", "--report", path]);
    assert!(error.contains("is an input and would be overwritten"), "{error}");
    let error = refused(&["--redb", path, "--table", "users", "--index", "redb,congee"]);
    assert!(error.contains("--index congee: must be redb or redb-latest"), "{error}");
    assert!(refused(&["--table", "users"]).contains("must come with --redb FILE or --lmdb PATH"));
    fs::write(&file, &whole[..whole.len() / 2]).expect("written");
    let error = refused(&["--redb", path, "--table", "users"]);
    assert!(error.contains(": is damaged or cut off"), "redb panics: {error}");
}

/// Starts it, sends Ctrl-C once `ready`, and returns the end. Nothing may be left in `dir`.
fn interrupted(dir: &Path, arguments: &[&str], ready: impl Fn(&[PathBuf]) -> bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbank"));
    command.arg("aside").args(arguments).arg("--report").arg(dir.join("page.html"));
    command.env("TMPDIR", dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let _open = child.stdin.take();
    let files = || -> Vec<PathBuf> {
        fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("a file").path()).collect()
    };
    while !ready(&files()) && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(files(), [] as [PathBuf; 0], "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    output
}

#[test]
fn ctrl_c_leaves_no_file() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let stopped = |arguments: &[&str], ready: fn(&[PathBuf]) -> bool| {
        let output = interrupted(dir.path(), arguments, ready);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("stopped before there was an answer"), "{errors}");
    };
    // While it waits for keys.
    stopped(&["-"], |files| files.len() == 1);
    // While a database is built: the claimed page and the directory are there.
    stopped(&["--keys", "5000000", "--index", "redb"], |files| files.len() == 2);
}
