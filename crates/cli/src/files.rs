//! Writes output files whole or not at all.

use anyhow::{Context, Result, bail};
use overbank_ports::capture::without_path;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file claimed before the work starts and put in place at its end. Dropped early, it leaves
/// nothing behind.
pub struct Pending {
    path: PathBuf,
    file: NamedTempFile,
}

impl Pending {
    /// Checks that `path` can be written, by making a temporary file beside it. The file may
    /// replace a regular file, and nothing else.
    pub fn claim(path: &Path) -> Result<Pending> {
        if path.is_dir() {
            bail!("{}: is a directory; must be a file", path.display());
        }
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            bail!("{}: is a device or a pipe; must be a file", path.display());
        }
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let dir = parent.unwrap_or(Path::new("."));
        if !dir.is_dir() {
            bail!("{}: cannot be written: no directory {}", path.display(), dir.display());
        }
        let file = tempfile::Builder::new()
            .prefix(".overbank-")
            .tempfile_in(dir)
            .map_err(without_path)
            .with_context(|| format!("{}: cannot be written", path.display()))?;
        Ok(Pending { path: path.to_owned(), file })
    }

    /// Writes the content and puts the file in place.
    pub fn finish(mut self, content: &str) -> Result<()> {
        let name = self.path.display().to_string();
        self.file.write_all(content.as_bytes()).with_context(|| format!("{name}: not written"))?;
        readable_by_all(self.file.path()).with_context(|| format!("{name}: not written"))?;
        let placed = self.file.persist(&self.path).map_err(|e| e.error);
        placed.with_context(|| format!("{name}: not written"))?;
        Ok(())
    }
}

/// Refuses an output that would replace an input.
pub fn keep_apart(output: &Path, inputs: &[&Path]) -> Result<()> {
    let Ok(real) = output.canonicalize() else { return Ok(()) };
    if inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == real)) {
        bail!("{}: is an input and would be overwritten", output.display());
    }
    Ok(())
}

/// Gives a temporary file, which is private, the permissions of any other file.
#[cfg(unix)]
fn readable_by_all(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_path: &Path) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let path = dir.path().join("report.html");
        drop(Pending::claim(&path).expect("writable"));
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
        Pending::claim(&path).expect("writable").finish("all of it").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "all of it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = path.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o644, "others may read it");
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_before_the_work() {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let error = Pending::claim(&dir.path().join("none/report.html")).err().expect("refused");
        assert!(format!("{error:#}").contains("none/report.html: cannot be written"), "{error:#}");
        assert!(Pending::claim(dir.path()).is_err());
        let error = Pending::claim(Path::new("/dev/null")).err().expect("refused");
        assert!(format!("{error:#}").contains("/dev/null: is a device"), "{error:#}");
    }

    #[test]
    fn errors_do_not_name_temporary_files() {
        let error = |result: Result<()>| format!("{:#}", result.expect_err("refused"));
        // In a directory where even root cannot make a file.
        if cfg!(target_os = "linux") {
            let claimed = error(Pending::claim(Path::new("/proc/report.html")).map(drop));
            assert!(claimed.starts_with("/proc/report.html: cannot be written: "), "{claimed}");
            assert!(!claimed.contains(".overbank-"), "{claimed}");
        }
        // A directory that appears during the work.
        let dir = tempfile::tempdir().expect("a directory for the test");
        let path = dir.path().join("report.html");
        let pending = Pending::claim(&path).expect("writable");
        std::fs::create_dir_all(path.join("x")).expect("made");
        let late = error(pending.finish("all of it"));
        assert!(late.contains("report.html: not written: "), "{late}");
        assert!(!late.contains("temporary") && !late.contains(".overbank-"), "{late}");
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 1);
    }

    #[test]
    fn an_input_is_no_output_whatever_it_is_called() {
        let dir = tempfile::tempdir().expect("a directory for the test");
        let input = dir.path().join("capture.pcap");
        let other = dir.path().join("./../").join(dir.path().file_name().expect("a name"));
        assert!(keep_apart(&input, &[&input]).is_ok(), "it is not there");
        std::fs::write(&input, "frames").expect("written");
        assert!(keep_apart(&other.join("capture.pcap"), &[&input]).is_err());
        assert!(keep_apart(&other.join("other.pcap"), &[&input]).is_ok());
    }
}
