//! `cargo xtask nightly`: runs what is too slow for each change, at a bounded size.
//!
//! At most 81 minutes in all on two cores: the limits of the tasks add up to that. Each task of
//! [`TASKS`] is a process of this very program; all run even if one fails, so that one run shows
//! everything. `timeout` ends a task that takes longer than its limit, which is a failure. The
//! summary at the end repeats the last words of each task, names the inputs that fuzz targets
//! failed on, and adds up what the targets have executed so far. `--short` runs the same tasks at
//! the smallest sizes, to try whether they run.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::fuzz;
use crate::packages;
use crate::root;
use crate::steps::{Counts, Steps, shown};

struct Task {
    name: &'static str,
    /// For `cargo xtask`.
    arguments: &'static str,
    /// The same with `--short`.
    short: &'static str,
    /// Minutes after which it ends; building from nothing takes part of them.
    minutes_max: u32,
}

const TASKS: &[Task] = &[
    Task {
        name: "sanitize",
        arguments: "sanitize",
        short: "sanitize overbank-wire",
        minutes_max: 18,
    },
    Task { name: "fuzz", arguments: "fuzz 390", short: "fuzz 26", minutes_max: 10 },
    Task { name: "clients", arguments: "clients", short: "clients", minutes_max: 5 },
    Task { name: "peers", arguments: "peers --smoke", short: "peers --smoke", minutes_max: 9 },
    Task {
        name: "soak",
        arguments: "soak --minutes 3",
        short: "soak --seconds 30",
        minutes_max: 5,
    },
    Task { name: "proxy", arguments: "test proxy-full", short: "test proxy-full", minutes_max: 6 },
    Task {
        name: "faults",
        arguments: "faults --minutes 4",
        short: "faults --minutes 1",
        minutes_max: 10,
    },
    Task {
        name: "models-full",
        arguments: "test models-full twins-full cluster-full device-full lookaside-full",
        short: "test models",
        minutes_max: 12,
    },
    Task {
        name: "bench",
        arguments: "bench probe uniform-1e5 zipf-1e6 capture",
        short: "bench capture",
        minutes_max: 6,
    },
];

/// Of the hour that `proxy-full` takes by itself.
const PROXY_SECONDS: &str = "120";
/// Lines that the summary repeats of a task without a summary.
const LAST_WORDS: usize = 4;
/// Lines that it repeats of a task with one.
const SUMMARY_LINES_MAX: usize = 60;
/// Beginning of a task's summary.
const SUMMARY: &str = "=== summary";

#[derive(Args)]
pub struct Options {
    /// Use the smallest sizes: a quarter of an hour
    #[arg(long)]
    short: bool,
    /// The tasks: sanitize, fuzz, clients, peers, soak, proxy, faults, models-full, bench
    /// [default: all]
    tasks: Vec<String>,
}

/// Runs the tasks and sums up; fails if any of them failed.
pub fn run(options: &Options) -> Result<()> {
    for name in &options.tasks {
        if !TASKS.iter().any(|task| task.name == name) {
            let known: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
            bail!("unknown task {name}; known: {}", known.join(", "));
        }
    }
    if !packages::is_root() {
        bail!("nightly must run as root: soak, faults and peers make network namespaces");
    }
    let chosen =
        |name: &str| options.tasks.is_empty() || options.tasks.iter().any(|task| task == name);
    let program = std::env::current_exe().context("where this program is")?;
    let start = SystemTime::now();
    let mut steps = Steps::default();
    let mut found = Vec::new();
    for task in TASKS.iter().filter(|task| chosen(task.name)) {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=30", &format!("{}m", task.minutes_max)]).arg(&program);
        let arguments = if options.short { task.short } else { task.arguments };
        command.args(arguments.split_whitespace()).current_dir(root());
        command.env("OVERBANK_KV_SOAK_SECONDS", PROXY_SECONDS);
        let mut words = Words::default();
        let what = format!("cargo xtask {arguments}, {} minutes at most", task.minutes_max);
        steps.step(task.name, &what, || child(&mut command, &mut words, task.minutes_max));
        found.push((task.name, words));
    }
    println!("\n=== found");
    for (name, words) in &found {
        println!("{name}:");
        words.lines.iter().for_each(|line| println!("    {line}"));
    }
    let inputs = fuzz::artifacts(start);
    println!("inputs that a fuzz target failed on: {}", inputs.len());
    inputs.iter().for_each(|input| println!("    {}", input.display()));
    match fuzz::executions_in_all() {
        Ok(sums) => println!("fuzz executions so far: {sums}"),
        Err(error) => println!("fuzz executions so far: unknown: {error:#}"),
    }
    steps.finish()
}

/// Runs a task, passes its output on and keeps its end.
fn child(command: &mut Command, words: &mut Words, minutes_max: u32) -> Result<Counts> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    let stdout = child.stdout.take().context("a piped child has an output")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("cannot read the output of the task")?;
        let line = String::from_utf8_lossy(&line);
        // A closed standard output must not end the tasks.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
        words.hear(&line);
    }
    let status = child.wait().context("cannot wait for the task")?;
    match status.code() {
        Some(0) => Ok(Counts::default()),
        // The status of `timeout`.
        Some(124 | 137) => bail!("took longer than {minutes_max} minutes"),
        _ => bail!("failed ({status})"),
    }
}

/// The summary of a task, or its last lines.
#[derive(Default)]
struct Words {
    lines: VecDeque<String>,
    summary: bool,
}

impl Words {
    fn hear(&mut self, line: &str) {
        if line == SUMMARY {
            self.lines.clear();
            self.summary = true;
            return;
        }
        if line.trim().is_empty() {
            return;
        }
        self.lines.push_back(line.trim_end().to_owned());
        let most = if self.summary { SUMMARY_LINES_MAX } else { LAST_WORDS };
        if self.lines.len() > most {
            self.lines.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use clap::Parser;

    #[test]
    fn every_task_is_one_of_this_program() {
        for (task, arguments) in TASKS.iter().flat_map(|t| [(t, t.arguments), (t, t.short)]) {
            let words = ["xtask"].into_iter().chain(arguments.split_whitespace());
            if let Err(error) = crate::Arguments::try_parse_from(words) {
                panic!("{}: {error}", task.name);
            }
        }
        let names: BTreeSet<&str> = TASKS.iter().map(|task| task.name).collect();
        assert_eq!(names.len(), TASKS.len());
        assert_eq!(TASKS.iter().map(|task| task.minutes_max).sum::<u32>(), 81, "in all");
    }

    #[test]
    fn the_last_words_are_the_summary_where_there_is_one() {
        let mut words = Words::default();
        (0..9).for_each(|n| words.hear(&format!("line {n}\n\n")));
        assert_eq!(words.lines, ["line 5", "line 6", "line 7", "line 8"]);
        for line in [SUMMARY, "fuzz rules  ok", "", "1 passed, 0 failed"] {
            words.hear(line);
        }
        assert_eq!(words.lines, ["fuzz rules  ok", "1 passed, 0 failed"]);
    }

    #[test]
    fn a_task_that_fails_or_takes_too_long_is_a_failure() {
        let run = |script: &str| {
            let mut command = Command::new("timeout");
            command.args(["0.2", "sh", "-c", script]);
            let mut words = Words::default();
            (child(&mut command, &mut words, 7).map_err(|error| error.to_string()), words.lines)
        };
        assert_eq!(run("echo a; echo b").1, ["a", "b"]);
        let (outcome, lines) = run("echo a; exit 3");
        assert!(outcome.is_err_and(|error| error.contains("exit status: 3")) && lines == ["a"]);
        let (outcome, _) = run("exec sleep 60");
        assert_eq!(outcome.err().as_deref(), Some("took longer than 7 minutes"));
    }

    #[test]
    fn an_unknown_task_is_refused() {
        let error =
            run(&Options { short: false, tasks: vec!["nothing".into()] }).expect_err("unknown");
        assert!(error.to_string().contains("models-full"));
    }
}
