//! `cargo xtask mutants`: breaks the code on purpose, one place at a time, to see a test fail.
//!
//! `xtask/mutants.toml` lists the places. They are broken in a copy of the tree under
//! `target/mutants/`, with its own build folder: the working tree stays as it is and a second run
//! compiles little. The tests of a package first run once without a mutant, which must pass. A
//! mutant has died if it compiles and a test fails or does not end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use crate::root;
use crate::steps::{Counts, Steps};

const LIST: &str = "xtask/mutants.toml";
/// Time limit of a test.
const SECONDS_MAX: u32 = 300;
/// Exit status of `timeout` for a command that did not end.
const TIMED_OUT: i32 = 124;

#[derive(Args)]
pub struct Options {
    /// Mutants whose name or file contains this [default: all]
    part: Option<String>,
}

#[derive(Deserialize)]
struct List {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    name: String,
    file: String,
    find: String,
    replace: String,
    package: String,
    #[serde(default)]
    tests: String,
}

impl Mutant {
    /// Returns the file without the mutant and with it.
    fn texts(&self) -> Result<(String, String)> {
        let text = fs::read_to_string(root().join(&self.file)).context(self.file.clone())?;
        match text.matches(&self.find).count() {
            1 => Ok((text.clone(), text.replacen(&self.find, &self.replace, 1))),
            n => bail!("{LIST}: {:?}: {} has `find` {n} times, not once", self.name, self.file),
        }
    }

    /// Returns the test run, in the copy at `tree`.
    fn tests(&self, tree: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.arg(SECONDS_MAX.to_string()).args(["cargo", "test", "--locked", "-p"]);
        command.arg(&self.package).current_dir(tree);
        let build = tree.with_file_name("build");
        if self.tests == "models" {
            command.env("LOOM_MAX_PREEMPTIONS", "2");
            if self.package != "overbank-handover" {
                command.args(["--lib", "--features", "loom", "::model::"]);
            } else {
                command.args(["--lib", "--profile", "models"]).env("RUSTFLAGS", "--cfg loom");
                command.env("CARGO_TARGET_DIR", build.join("loom"));
                return command;
            }
        } else if self.tests.is_empty() {
            command.args(["--lib", "--bins", "--tests"]);
        } else {
            command.args(self.tests.split_whitespace());
        }
        command.env("CARGO_TARGET_DIR", build);
        command
    }
}

/// Returns the mutants of the list.
fn mutants() -> Result<Vec<Mutant>> {
    let text = fs::read_to_string(root().join(LIST)).context(LIST)?;
    let list: List = toml::from_str(&text).context(LIST)?;
    Ok(list.mutant)
}

/// Runs the chosen mutants; fails if one lives or cannot be made.
pub fn run(options: &Options) -> Result<()> {
    let chosen = |mutant: &Mutant| {
        options.part.as_ref().is_none_or(|p| mutant.name.contains(p) || mutant.file.contains(p))
    };
    let mutants: Vec<Mutant> = mutants()?.into_iter().filter(chosen).collect();
    if mutants.is_empty() {
        bail!("no mutant has {:?} in its name or file; see {LIST}", options.part);
    }
    let texts: Vec<_> = mutants.iter().map(Mutant::texts).collect::<Result<_>>()?;
    let tree = copy_tree()?;
    let mut steps = Steps::default();
    let mut sound = BTreeMap::new();
    for (mutant, (whole, broken)) in mutants.iter().zip(&texts) {
        let run = (&mutant.package, &mutant.tests);
        let sound = *sound.entry(run).or_insert_with(|| {
            let title = format!("without, {} {}", mutant.package, mutant.tests);
            steps.step(title.trim(), "the tests as they are", || {
                match judge(&mut mutant.tests(&tree))? {
                    None => Ok(Counts::default()),
                    Some(failed) => bail!("fails without a mutant: {failed}"),
                }
            })
        });
        if !sound {
            continue;
        }
        let path = tree.join(&mutant.file);
        let mut killer = String::new();
        steps.step(&mutant.name, &mutant.file, || {
            fs::write(&path, broken)?;
            let verdict = judge(&mut mutant.tests(&tree));
            fs::write(&path, whole)?;
            killer = verdict?.context("it lives: no test fails")?;
            Ok(Counts::default())
        });
        steps.note(&killer);
    }
    steps.finish()
}

/// Runs tests. Returns the first that failed, or `None` if all passed.
///
/// # Errors
/// Fails if they do not compile.
fn judge(command: &mut Command) -> Result<Option<String>> {
    let output = command.stdin(Stdio::null()).output().context("cargo test")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed =
        text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    match (output.status.code(), failed) {
        (Some(0), _) => Ok(None),
        (_, Some(test)) => Ok(Some(test.to_owned())),
        (Some(TIMED_OUT), None) => Ok(Some(format!("did not end within {SECONDS_MAX} s"))),
        // A test ended the whole process: stack overflow, a signal.
        _ if text.contains("\nrunning ") => Ok(Some("a test ended its process".to_owned())),
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let errors: Vec<&str> =
                errors.lines().filter(|line| line.starts_with("error")).collect();
            bail!("does not compile: {}", errors.join("; "))
        }
    }
}

/// Copies the files that git knows, where they differ. Unchanged ones keep their time, so they are
/// not compiled again.
fn copy_tree() -> Result<PathBuf> {
    let (root, tree) = (root(), root().join("target/mutants/tree"));
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("git ls-files")?;
    for name in output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = std::str::from_utf8(name).context("a name that is not UTF-8")?;
        let (from, to) = (root.join(name), tree.join(name));
        // Deleted, but not yet committed.
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file in a folder")?)?;
        fs::write(&to, bytes).with_context(|| to.display().to_string())?;
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_can_be_made() {
        for mutant in mutants().expect("the list") {
            mutant.texts().expect("`find` once in its file");
        }
    }
}
