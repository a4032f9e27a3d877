//! Runs steps: commands with a heading, a time and an outcome, and a summary at the end.
//!
//! The output of test runs passes through line by line, and the counts of the test harness are
//! added up. The summary names everything left out: ignored tests and steps that could not run.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::io::{BufRead, BufReader, Write as _};
use std::ops::AddAssign;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Counts of the test harness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    /// Tests marked `#[ignore]`.
    pub ignored: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

enum Outcome {
    Ok,
    Failed(String),
    NotRun(String),
}

struct Row {
    name: String,
    outcome: Outcome,
    time: Duration,
    counts: Counts,
    /// Result for the summary.
    note: String,
}

/// Some step failed, and the summary has reported it.
#[derive(Debug)]
pub struct StepsFailed;

impl fmt::Display for StepsFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a step failed")
    }
}

impl std::error::Error for StepsFailed {}

#[derive(Default)]
pub struct Steps {
    rows: Vec<Row>,
    /// Tests that ended early because the machine is known to lack something.
    skipped: BTreeSet<String>,
    /// Not covered by any step.
    uncovered: Vec<String>,
}

impl Steps {
    /// Runs `work` as a step; prints and keeps its failure. Returns whether it succeeded.
    pub fn step(&mut self, name: &str, what: &str, work: impl FnOnce() -> Result<Counts>) -> bool {
        println!("\n=== {name}: {what}");
        let start = Instant::now();
        let result = work();
        let time = start.elapsed();
        let (outcome, counts) = match result {
            Ok(counts) if counts.failed == 0 => (Outcome::Ok, counts),
            Ok(counts) => (Outcome::Failed(format!("{} tests failed", counts.failed)), counts),
            Err(error) => {
                println!("{error:#}");
                let message = format!("{error:#}");
                let line = message.lines().next().unwrap_or_default().to_string();
                (Outcome::Failed(line), Counts::default())
            }
        };
        let succeeded = matches!(outcome, Outcome::Ok);
        let word = if succeeded { "ok" } else { "FAILED" };
        println!("--- {name}: {word}, {:.1} s", time.as_secs_f64());
        let note = String::new();
        self.rows.push(Row { name: name.to_string(), outcome, time, counts, note });
        succeeded
    }

    pub fn command(&mut self, name: &str, command: &mut Command) -> bool {
        let what = shown(command);
        self.step(name, &what, || run(command).map(|()| Counts::default()))
    }

    /// Runs `cargo test ...` as a step and adds up its tests.
    pub fn tests(&mut self, name: &str, command: &mut Command) -> bool {
        let what = shown(command);
        self.step(name, &what, || run_tests(command))
    }

    /// Records a step that cannot run here.
    pub fn not_run(&mut self, name: &str, why: &str) {
        println!("\n=== {name}: not run: {why}");
        self.rows.push(Row {
            name: name.to_string(),
            outcome: Outcome::NotRun(why.to_string()),
            time: Duration::ZERO,
            counts: Counts::default(),
            note: String::new(),
        });
    }

    /// Runs a step that this machine may be unable to: then its result says why.
    pub fn possible(
        &mut self,
        name: &str,
        what: &str,
        work: impl FnOnce() -> Result<Option<String>>,
    ) -> bool {
        let mut unable = None;
        let ready = self.step(name, what, || {
            unable = work()?;
            Ok(Counts::default())
        });
        if let Some(why) = unable {
            self.note(&format!("not done: {why}"));
        }
        ready
    }

    /// Adds a result to the last step's line of the summary.
    pub fn note(&mut self, what: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.note = what.to_owned();
        }
    }

    /// Records tests that ended early, a line each: `NAME: needs WHAT`.
    pub fn skipped(&mut self, lines: &str) {
        self.skipped.extend(lines.lines().map(str::to_owned));
    }

    /// Records what this machine cannot cover; no failure.
    pub fn uncovered(&mut self, what: String) {
        self.uncovered.push(what);
    }

    /// Prints the summary; fails with [`StepsFailed`] if any step failed.
    ///
    /// The last line counts every test once, and every step without tests once. A skipped test
    /// counts once, as skipped, however many steps skipped it.
    pub fn finish(self) -> Result<()> {
        // `let _ = write!` below: writing to a string does not fail.
        println!("\n{}", self.summary());
        if self.rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(_))) {
            return Err(StepsFailed.into());
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let mut text = String::from("=== summary\n");
        let (mut passed, mut failed, mut ignored) = (0, 0, 0);
        for Row { name, outcome, time, counts, note: did } in &self.rows {
            let (word, mut note) = match outcome {
                Outcome::Ok => ("ok", String::new()),
                Outcome::Failed(why) => ("FAILED", why.clone()),
                Outcome::NotRun(why) => ("not run", why.clone()),
            };
            if note.is_empty() && counts.passed > 0 {
                note = format!("{} tests", counts.passed);
            }
            if !did.is_empty() {
                let separator = if note.is_empty() { "" } else { "; " };
                let _ = write!(note, "{separator}{did}");
            }
            if counts.ignored > 0 {
                let _ = write!(note, ", {} IGNORED", counts.ignored);
            }
            let seconds = time.as_secs_f64();
            let _ = writeln!(text, "{name:24} {word:8} {seconds:7.1} s  {note}");
            match outcome {
                Outcome::Ok => passed += counts.passed.max(1),
                Outcome::Failed(_) => {
                    passed += counts.passed;
                    failed += counts.failed.max(1);
                }
                Outcome::NotRun(_) => {}
            }
            ignored += counts.ignored;
        }
        let total: f64 = self.rows.iter().map(|row| row.time.as_secs_f64()).sum();
        let _ = writeln!(text, "{:24} {:8} {total:7.1} s", "", "");
        if ignored > 0 {
            let _ = writeln!(text, "{ignored} tests are marked #[ignore] and did not run");
        }
        for line in &self.skipped {
            let _ = writeln!(text, "skipped: {line}");
        }
        for line in &self.uncovered {
            let _ = writeln!(text, "not covered: {line}");
        }
        let skipped = self.skipped.len() as u64;
        let _ = write!(text, "{} passed, {failed} failed", passed - skipped.min(passed));
        if skipped > 0 {
            let _ = write!(text, ", {skipped} skipped");
        }
        text
    }
}

/// Returns a command as typed. Writing to a string does not fail.
pub fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(text, "{}='{}' ", name.to_string_lossy(), value.to_string_lossy());
        }
    }
    let program = Path::new(command.get_program());
    text += &program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        let quote = if argument.contains(' ') { "'" } else { "" };
        let _ = write!(text, " {quote}{argument}{quote}");
    }
    text
}

pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{} ({status})", shown(command));
    }
    Ok(())
}

/// Runs `cargo test ...`, passes its output on and adds up its counts. A run that fails without a
/// failed test (it did not build, or it crashed) is an error.
fn run_tests(command: &mut Command) -> Result<Counts> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let stdout = child.stdout.take().context("a piped child has an output")?;
    let mut counts = Counts::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("cannot read the output of the tests")?;
        let line = String::from_utf8_lossy(&line);
        let mut out = std::io::stdout().lock();
        // A reader of ours that has gone away must not end the tests.
        let _ = writeln!(out, "{line}");
        if let Some(found) = parse_counts(&line) {
            counts += found;
        }
    }
    let status = child.wait().context("cannot wait for the tests")?;
    if !status.success() && counts.failed == 0 {
        bail!("{} ({status}), without a failed test", shown(command));
    }
    if status.success() && counts.passed == 0 {
        bail!("{} ran no test", shown(command));
    }
    Ok(counts)
}

/// Reads `test result: ok. 12 passed; 0 failed; 1 ignored; ...`, and what pytest ends with:
/// `1 failed, 12 passed, 1 skipped in 3.21s`.
pub fn parse_counts(line: &str) -> Option<Counts> {
    let (rest, separator) = match line.strip_prefix("test result: ") {
        Some(rest) => (rest.split_once(". ")?.1, "; "),
        None => {
            let (rest, seconds) = line.rsplit_once(" in ")?;
            let seconds = seconds.split(' ').next()?.strip_suffix('s')?;
            seconds.parse::<f64>().ok()?;
            (rest, ", ")
        }
    };
    let mut counts = Counts::default();
    for part in rest.split(separator) {
        let (number, what) = part.split_once(' ')?;
        let Ok(number) = number.parse() else { continue };
        match what {
            "passed" => counts.passed = number,
            "failed" | "error" | "errors" => counts.failed += number,
            "ignored" | "skipped" => counts.ignored = number,
            _ => {}
        }
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_counts_of_the_harness() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s";
        assert_eq!(parse_counts(line), Some(Counts { passed: 12, failed: 3, ignored: 1 }));
        let line = "1 failed, 12 passed, 2 skipped, 2 errors in 63.21s (0:01:03)";
        assert_eq!(parse_counts(line), Some(Counts { passed: 12, failed: 3, ignored: 2 }));
        assert_eq!(parse_counts("test a::b ... ok, 3 passed in 2 rounds"), None);
        assert_eq!(parse_counts("test a::b ... ok"), None);
        assert_eq!(parse_counts("test result: "), None);
    }

    #[test]
    fn the_last_line_counts_tests_and_steps() {
        let mut steps = Steps::default();
        assert!(steps.step("one", "", || Ok(Counts::default())));
        assert!(steps.step("two", "", || Ok(Counts { passed: 5, failed: 0, ignored: 2 })));
        assert!(!steps.step("three", "", || Ok(Counts { passed: 4, failed: 1, ignored: 0 })));
        assert!(!steps.step("four", "", || bail!("no")));
        steps.note("did something");
        steps.not_run("five", "no such processor");
        let summary = steps.summary();
        assert!(summary.contains("2 IGNORED"), "{summary}");
        assert!(summary.contains("no such processor"), "{summary}");
        assert!(summary.contains("  no; did something\n"), "{summary}");
        assert!(summary.ends_with("\n10 passed, 2 failed"), "{summary}");
        steps.skipped("a::b: needs root\nc: needs ovs-ofctl\n");
        steps.skipped("a::b: needs root\n");
        steps.uncovered("avx512".to_owned());
        let summary = steps.summary();
        assert!(summary.contains("\nskipped: a::b: needs root\n"), "{summary}");
        assert!(summary.contains("\nnot covered: avx512\n"), "{summary}");
        assert!(summary.ends_with("\n8 passed, 2 failed, 2 skipped"), "{summary}");
        assert!(steps.finish().is_err());
    }

    #[test]
    fn a_command_that_fails_is_a_failed_step() {
        let mut steps = Steps::default();
        assert!(!steps.command("false", &mut Command::new("false")));
        assert!(!steps.command("gone", &mut Command::new("overbank-no-such-program")));
        assert!(!steps.tests("no test ran", &mut Command::new("true")));
        assert!(!steps.tests("crash", &mut Command::new("false")));
        assert!(steps.command("true", &mut Command::new("true")));
        assert!(steps.summary().ends_with("\n1 passed, 4 failed"));
    }
}
