//! Checks what tests need of a machine: root, a program.
//!
//! A test that lacks something fails and names it. With `OVERBANK_SKIP_ROOT=1` it returns early
//! instead, and `cargo xtask test` lists it as skipped: it sets [`REPORT`] to a file, to which each
//! such test appends a line.
//!
//! [`capture`] writes frames and lets tshark judge them, [`allocations`] counts allocations.

pub mod allocations;
pub mod capture;

use std::env;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::thread;

/// Variable that turns a known lack into a skip.
pub const SKIP: &str = "OVERBANK_SKIP_ROOT";
/// Variable with the name of the file of skipped tests.
pub const REPORT: &str = "OVERBANK_SKIPPED_TO";

/// Returns whether the test can run: `there` says whether the machine has `what`.
///
/// # Panics
/// If it is missing and [`SKIP`] is not `1`, or the test cannot be listed as skipped.
#[track_caller]
pub fn needs(what: &str, there: bool) -> bool {
    if there {
        return true;
    }
    let known = env::var_os(SKIP).is_some_and(|value| value == "1");
    assert!(known, "this test needs {what}; {SKIP}=1 skips what cannot run here");
    let test = thread::current().name().unwrap_or("a thread of a test").to_owned();
    if let Err(error) = report(env::var_os(REPORT).as_deref(), &test, what) {
        panic!("{test}: cannot be listed as skipped: {error}");
    }
    false
}

/// Appends a line to the file of skipped tests, or prints it if there is no file.
fn report(file: Option<&OsStr>, test: &str, what: &str) -> io::Result<()> {
    let line = format!("{test}: needs {what}\n");
    match file {
        // One write, so that lines of several processes do not mix.
        Some(file) => {
            let mut file = OpenOptions::new().create(true).append(true).open(Path::new(file))?;
            file.write_all(line.as_bytes())
        }
        None => {
            print!("skipped: {line}");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_packages_are_not_requested() {
        assert!(needs("a machine", true));
    }

    #[test]
    fn a_missing_requirement_fails_or_skips() {
        let skips = env::var_os(SKIP).is_some_and(|value| value == "1");
        let went_on = std::panic::catch_unwind(|| needs("a machine that does not exist", false));
        match went_on {
            Ok(went_on) => assert!(skips && !went_on),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().expect("a message");
                assert!(!skips && text.contains("needs a machine that does not exist"), "{text}");
            }
        }
    }

    #[test]
    fn skipped_tests_are_listed_one_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("skipped");
        for test in ["one", "two"] {
            report(Some(file.as_os_str()), test, "root").expect("written");
        }
        let listed = std::fs::read_to_string(&file).expect("there");
        assert_eq!(listed, "one: needs root\ntwo: needs root\n");
        assert!(report(Some(folder.path().as_os_str()), "three", "root").is_err());
    }
}
