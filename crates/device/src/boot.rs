//! Numbers of a device's runs.
//!
//! What was said in one run must count for nothing in the next: stamps begin with the run's number.
//! So no two runs that installed a key may have the same one, and agents take a smaller one for
//! an older one.
//!
//! - With a **state file** it is the file's number plus one, on the disk before the run begins.
//! - Without one it is the time in seconds since 1970, and nothing is installed in the first
//!   second. So a run that installed a key was longer than that, and the next one begins in a later
//!   second, unless the clock was set back meanwhile. Where that can happen, use a state file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Time without installations where the number is the time.
const SETTLING_MS: u64 = 1000;
/// Longest file that is read.
const FILE_BYTES_MAX: usize = 64;

/// The number of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    pub number: u32,
    /// Milliseconds after its start from which keys are installed.
    pub installs_from_ms: u64,
}

impl Default for Boot {
    /// Returns the first run.
    fn default() -> Boot {
        Boot { number: 1, installs_from_ms: 0 }
    }
}

/// There is no number for this run.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("kv-state: cannot read or replace {path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("kv-state: {path}: must hold one number from 0 to {}", u32::MAX - 1)]
    Content { path: PathBuf },
    #[error("the clock is before 1970 or after 2106: set it, or use kv-state")]
    Clock,
}

impl Boot {
    /// Returns the number of the run that begins now.
    ///
    /// # Errors
    /// The state file cannot be read and replaced, or the clock is wrong.
    pub fn next(state: Option<&Path>) -> Result<Boot, BootError> {
        match state {
            Some(path) => Ok(Boot { number: next_of_file(path)?, installs_from_ms: 0 }),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                let seconds = since.ok().and_then(|since| u32::try_from(since.as_secs()).ok());
                let number = seconds.ok_or(BootError::Clock)?;
                Ok(Boot { number, installs_from_ms: SETTLING_MS })
            }
        }
    }
}

fn next_of_file(path: &Path) -> Result<u32, BootError> {
    let wrong = || BootError::Content { path: path.to_owned() };
    let failed = |error| BootError::File { path: path.to_owned(), error };
    let last = match fs::read(path) {
        Ok(bytes) if bytes.len() > FILE_BYTES_MAX => return Err(wrong()),
        Ok(bytes) => {
            let text = String::from_utf8(bytes).map_err(|_| wrong())?;
            text.trim().parse::<u32>().map_err(|_| wrong())?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(failed(error)),
    };
    let number = last.checked_add(1).ok_or_else(wrong)?;
    replace(path, number).map_err(failed)?;
    Ok(number)
}

/// Replaces the file by one with this number, all or nothing.
fn replace(path: &Path, number: u32) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file = File::create(&new)?;
    writeln!(file, "{number}")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let next = || Boot::next(Some(&path));
        for number in 1..4 {
            let boot = next().expect("a number");
            assert_eq!(boot, Boot { number, installs_from_ms: 0 });
        }
        assert_eq!(fs::read_to_string(&path).expect("a file"), "3\n");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        for wrong in ["", "x", "-1", "4294967295", "4294967296", &"1".repeat(65)] {
            fs::write(&path, wrong).expect("written");
            let error = next().expect_err(wrong);
            assert!(matches!(error, BootError::Content { .. }), "{error}");
            assert_eq!(fs::read_to_string(&path).expect("a file"), wrong, "it is not replaced");
        }
        let error = Boot::next(Some(folder.path())).expect_err("a folder");
        assert!(matches!(error, BootError::File { .. }), "{error}");
    }

    #[test]
    fn the_clock_counts_runs_that_install() {
        let boot = Boot::next(None).expect("a clock");
        // 2025 or later.
        assert!(boot.number > 1_735_000_000 && boot.installs_from_ms >= 1000);
    }
}
