//! `overbank-workloads`, the program in which real indexes run on the simulated machine: finds it,
//! runs it, and reads what it printed.
//!
//! What it prints is not trusted: a number that cannot be, a name that is none, any other bytes,
//! and output without end are an error of one line ([`Outcome::check`](super::point::Outcome)).

use super::point::Outcome;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

/// Where `cargo xtask workloads` builds it, from the folder of the sources.
const BUILT: &str = "target/workloads/release/overbank-workloads";
/// Names another place.
pub const PLACE: &str = "OVERBANK_WORKLOADS";
/// Most bytes that it may print: a heat map of the largest cache has a tenth.
const OUTPUT_MAX: u64 = 256 << 20;
/// Bytes at the end of its standard error in which the last line is searched.
const ERRORS_MAX: u64 = 4096;
/// Most characters of that line that are shown.
const LINE_MAX: usize = 400;
/// Between two looks at the program.
const LOOK: Duration = Duration::from_millis(20);

/// Why there is no outcome. Each is one line.
#[derive(Debug, thiserror::Error)]
pub enum SdcError {
    #[error(
        "overbank-workloads is not there: build it by `cargo xtask workloads` in the folder of the \
         sources, and run this there, or name it in {PLACE}"
    )]
    Missing,
    #[error("stopped before there was an answer")]
    Stopped,
    /// What the program said of its arguments, or of itself.
    #[error("{0}")]
    Said(String),
    #[error("{0}: {1}")]
    Ended(ExitStatus, String),
    #[error("overbank-workloads cannot be run: {0}")]
    Run(#[from] io::Error),
    #[error("overbank-workloads printed {0}; build it anew by `cargo xtask workloads`")]
    Printed(String),
}

/// The program.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// Finds it: in [`PLACE`], or built in this folder or one above.
    ///
    /// # Errors
    /// Fails if it is not there, and says how to build it.
    pub fn find() -> Result<Program, SdcError> {
        let place = std::env::var_os(PLACE).map(PathBuf::from);
        let here = std::env::current_dir().unwrap_or_default();
        let built = || here.ancestors().map(|folder| folder.join(BUILT)).find(|it| it.is_file());
        let found = place.or_else(built).filter(|path| path.is_file());
        found.map(Program).ok_or(SdcError::Missing)
    }

    /// Returns the program at this place.
    pub fn at(path: &Path) -> Program {
        Program(path.to_owned())
    }

    /// Returns the place.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Runs a point; ends it as soon as `stopped`.
    ///
    /// # Errors
    /// Fails if the program does, with the last line of its standard error, or if it printed no
    /// outcome.
    pub fn run(
        &self,
        arguments: &[String],
        stopped: &dyn Fn() -> bool,
    ) -> Result<Outcome, SdcError> {
        let Ended { status, mut out, mut errors } =
            to_its_end(Command::new(&self.0).args(arguments), stopped)?;
        if !status.success() {
            return Err(match (status.code(), last_line(&mut errors)?) {
                (Some(1 | 2), Some(line)) => SdcError::Said(line),
                (_, line) => SdcError::Ended(status, line.unwrap_or("it said nothing".to_owned())),
            });
        }
        if length(&out) > OUTPUT_MAX {
            return Err(too_long());
        }
        let mut bytes = Vec::new();
        out.rewind()?;
        out.read_to_end(&mut bytes)?;
        Outcome::read(&bytes).map_err(|what| SdcError::Printed(plain(&what)))
    }
}

/// A command that has ended, and what it wrote: files to be rewound before they are read.
pub struct Ended {
    pub status: ExitStatus,
    pub out: File,
    pub errors: File,
}

/// Runs a command without input to its end; ends it as soon as `stopped`.
///
/// # Errors
/// Fails if it cannot be run, was stopped, or wrote more than a point may.
pub fn to_its_end(command: &mut Command, stopped: &dyn Fn() -> bool) -> Result<Ended, SdcError> {
    // Files: a pipe that a child of the program holds would keep us waiting.
    let [out, errors] = [tempfile::tempfile()?, tempfile::tempfile()?];
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(errors.try_clone()?);
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended { status, out, errors });
        }
        let long = [&out, &errors].iter().any(|file| length(file) > OUTPUT_MAX);
        if stopped() || long {
            // It may have ended by itself.
            _ = child.kill();
            child.wait()?;
            return Err(if long { too_long() } else { SdcError::Stopped });
        }
        thread::sleep(LOOK);
    }
}

fn too_long() -> SdcError {
    SdcError::Printed(format!("more than {} MiB", OUTPUT_MAX >> 20))
}

fn length(file: &File) -> u64 {
    file.metadata().map_or(0, |of| of.len())
}

/// Returns the last line that is not empty, without the program's name.
fn last_line(file: &mut File) -> io::Result<Option<String>> {
    let from = length(file).saturating_sub(ERRORS_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(ERRORS_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let line = line.map(|line| line.strip_prefix("overbank-workloads: ").unwrap_or(line));
    Ok(line.map(|line| plain(line.strip_prefix("error: ").unwrap_or(line))))
}

/// Returns a line that a terminal can show: without control characters, and not too long.
fn plain(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut line: String = shown.take(LINE_MAX).collect();
    if text.chars().count() > LINE_MAX {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Result<Outcome, SdcError> {
        let shell = Program::at(Path::new("/bin/sh"));
        shell.run(&["-c".to_owned(), script.to_owned()], &|| false)
    }

    fn said(script: &str) -> String {
        run(script).expect_err("failed").to_string()
    }

    #[test]
    fn a_program_that_fails_is_a_line() {
        assert!(said("echo one >&2; echo two >&2; echo >&2; exit 3").ends_with("3: two"));
        assert_eq!(
            said("echo 'overbank-workloads: error: no such set' >&2; exit 1"),
            "no such set"
        );
        assert_eq!(said("exit 1"), "exit status: 1: it said nothing");
        assert!(said("kill -9 $$").starts_with("signal: 9"));
        let line = said(r"printf 'a\033[2Jb\007\377' >&2; exit 1");
        assert_eq!(line, "a\u{fffd}[2Jb\u{fffd}\u{fffd}");
        assert!(said("yes long | tr -d '\\n' | head -c 9000 >&2; exit 1").len() < 500);
        let nowhere = Program::at(Path::new("/nonexistent")).run(&[], &|| false);
        assert!(nowhere.expect_err("failed").to_string().contains("cannot be run: No such file"));
    }

    #[test]
    fn what_is_no_outcome_is_a_line() {
        assert!(said("true").starts_with("overbank-workloads printed nothing; build it anew"));
        assert!(said("echo '{}'").contains("missing field"));
        for script in [
            "head -c 5000 /dev/urandom",
            "echo '[[[['",
            "printf '\"\\377\"'",
            "yes '[' | tr -d '\\n' | head -c 100000",
            "echo 1e999",
        ] {
            let line = said(script);
            assert!(line.contains("no outcome of a point") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_program_without_end_is_ended() {
        let sleep = Program::at(Path::new("/bin/sleep"));
        let stopped = sleep.run(&["60".to_owned()], &|| true);
        assert!(matches!(stopped, Err(SdcError::Stopped)));
    }
}
