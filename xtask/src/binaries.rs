//! Builds test binaries once with cargo, and runs them, two at a time.
//!
//! Cargo runs one binary after the other. Some mostly wait (for ports, timers, other programs),
//! others compute. So each kind runs in its own lane, and both lanes run at once. A binary can also
//! run again with another environment, which costs no build.
//!
//! The output of a binary is printed in one piece when it ends.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::root;
use crate::steps::{Counts, parse_counts, shown};

/// A test binary that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Folder of its package, in which it runs.
    folder: PathBuf,
    /// `lib`, `bin`, `test` or `example`.
    kind: String,
    /// Name of the target.
    name: String,
    program: PathBuf,
}

impl Binary {
    /// Returns the folder of the package and the name of the target: `crates/ports netns`.
    pub fn title(&self) -> String {
        let folder = self.folder.strip_prefix(root()).unwrap_or(&self.folder);
        format!("{} {} {}", folder.display(), self.kind, self.name)
    }

    /// Returns a binary that was never built.
    #[cfg(test)]
    pub fn sample(folder: &str, kind: &str, name: &str) -> Self {
        let text = str::to_owned;
        Self {
            folder: root().join(folder),
            kind: text(kind),
            name: text(name),
            program: format!("/bin/{name}").into(),
        }
    }

    /// Returns whether it belongs to the package in this folder of the workspace.
    pub fn is_of(&self, folder: &str) -> bool {
        self.folder == root().join(folder)
    }
}

/// Runs `cargo test --no-run ...` and returns what it built.
pub fn build(command: &mut Command) -> Result<Vec<Binary>> {
    let output = command
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} ({})", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse).collect())
}

/// Reads a message of cargo: a test binary, or nothing of interest.
fn parse(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(Binary {
        folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        kind: text(&message["target"]["kind"][0])?,
        name: text(&message["target"]["name"])?,
        program: text(&message["executable"])?.into(),
    })
}

/// Result of one binary.
struct Outcome {
    counts: Counts,
    status: ExitStatus,
}

/// Runs the binaries of each lane one after the other, all lanes at the same time, with these
/// variables set. A binary that fails without a failed test counts as one.
pub fn run(lanes: &[Vec<Binary>], variables: &[(&str, &str)]) -> Result<Counts> {
    let total = Mutex::new(Counts::default());
    let run_lane = |lane: &[Binary]| -> Result<()> {
        for binary in lane {
            let outcome = run_one(binary, variables)?;
            let mut counts = outcome.counts;
            if !outcome.status.success() && counts.failed == 0 {
                println!("{}: {}, without a failed test", binary.title(), outcome.status);
                counts.failed = 1;
            }
            *total.lock().unwrap_or_else(|error| error.into_inner()) += counts;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| run_lane(lane))).collect();
        let results = lanes.into_iter().map(|lane| match lane.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // Wait for every lane, even if an earlier one failed.
        results.collect::<Vec<_>>().into_iter().collect::<Result<()>>()
    })?;
    let counts = *total.lock().unwrap_or_else(|error| error.into_inner());
    if counts.passed == 0 && counts.failed == 0 {
        bail!("no test ran");
    }
    Ok(counts)
}

/// Runs a binary as cargo would, and prints its output.
fn run_one(binary: &Binary, variables: &[(&str, &str)]) -> Result<Outcome> {
    let start = Instant::now();
    let (mut said, writer) = std::io::pipe().context("cannot make a pipe")?;
    let mut command = Command::new(&binary.program);
    command
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("cannot make a pipe")?)
        .stderr(writer);
    let spawned = command.spawn();
    // The command holds the other end of the pipe.
    drop(command);
    let mut child = spawned.with_context(|| format!("cannot run {}", binary.program.display()))?;
    let mut output = Vec::new();
    said.read_to_end(&mut output).context("cannot read the output of the tests")?;
    let status = child.wait().context("cannot wait for the tests")?;
    let text = String::from_utf8_lossy(&output);
    let mut counts = Counts::default();
    text.lines().filter_map(parse_counts).for_each(|found| counts += found);
    let seconds = start.elapsed().as_secs_f64();
    // A closed standard output must not end the tests.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n     Ran {}, {seconds:.1} s{text}", binary.title());
    Ok(Outcome { counts, status })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str) -> Binary {
        Binary::sample("/", "test", name)
    }

    #[test]
    fn reads_what_cargo_built() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/a/crates/ports/Cargo.toml",
            "target":{"kind":["test"],"name":"netns"},"profile":{"test":true},
            "executable":"/a/target/debug/deps/netns-1"}"#;
        let line = line.replace('\n', "");
        let binary = parse(&line).expect("a test binary");
        assert_eq!(binary.title(), "/a/crates/ports test netns");
        assert_eq!(binary.program, Path::new("/a/target/debug/deps/netns-1"));
        assert_eq!(parse(&line.replace("true", "false")), None);
        assert_eq!(parse(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(parse("warning: no message"), None);
    }

    #[test]
    fn a_binary_that_fails_without_a_failed_test_counts_as_one() {
        let counts = run(&[vec![shell("true")], vec![shell("false"), shell("false")]], &[]);
        assert_eq!(counts.expect("they ran"), Counts { failed: 2, ..Counts::default() });
        assert!(run(&[vec![shell("true")]], &[]).is_err(), "no test ran");
        assert!(run(&[vec![shell("overbank-no-such-program")]], &[]).is_err());
    }
}
