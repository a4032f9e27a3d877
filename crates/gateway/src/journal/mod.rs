//! Sessions of requests on disk, so that they outlive the gateway.
//!
//! ```text
//!   requests ─▶ keeper.rs: check all that wait ─▶ one frame, fsync ─▶ apply ─▶ answer
//!                                                     │
//!   DIR/lock              held by one gateway         ▼
//!   DIR/sessions.journal  frames (frame.rs) ── larger than 4 × its sessions + 1 MiB: rewritten
//! ```
//!
//! - What was answered is on disk. A request that could not be written is refused and not applied.
//! - A crash leaves at most one frame in part: the last one, which nothing was answered from. It is
//!   cut off at the next start. Any other damage is an error, and the file stays as it is.
//! - A rewritten file lies beside the old one until it is on disk, and replaces it by its name.
//! - After an error of fsync, or of a rename, nothing is known of what the disk has: then the file
//!   is written anew before anything else is answered.
//!
//! Bounds: the file has at most 4 × the bytes of its sessions and rests, 1 MiB, and one import
//! beside. Panics: none.

mod frame;
mod keeper;
#[cfg(test)]
mod tests;

pub use frame::{Edit, Kept, Rest};
pub use keeper::{Edits, Keeper};

use frame::{HEAD, Head, MAGIC};
use overbank_declare::counters::Counters;
use overbank_handover::publication::Publication;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Names in the directory.
const FILE: &str = "sessions.journal";
const PARTIAL: &str = "sessions.journal.partial";
const LOCK: &str = "lock";
/// The file is rewritten when it has more bytes than this many times those of its sessions, and
/// these beside.
const GROWTH_MAX: u64 = 4;
const SPARE: u64 = if cfg!(test) { 2_000 } else { 1 << 20 };

/// Why a journal cannot be used, or a change not be written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{}: cannot {what}: {error}", path.display())]
    Io { path: PathBuf, what: &'static str, error: Arc<io::Error> },
    #[error(
        "{}: another gateway uses this journal; stop it, or use another directory",
        .0.display()
    )]
    Locked(PathBuf),
    #[error(
        "{}: byte {at}: {what}; nothing was changed: put a copy of the file back, or move it away \
         to start without its sessions", path.display()
    )]
    Damaged { path: PathBuf, at: u64, what: String },
    #[error("the journal has ended with the gateway")]
    Ended,
}

overbank_declare::counters! {
    /// Counts of a journal.
    pub struct JournalTotals: "overbank_gateway_journal_" {
        bytes: gauge bytes "Bytes of the journal" as "bytes";
        frames: counter frames "Groups of changes written, each by one fsync" as "frames";
        changes: counter changes "Changes of sessions written" as "changes";
        failed: counter frames "Groups of changes refused because of the disk" as "failed";
        rewritten: counter rewrites "Times that the journal was written anew" as "rewritten";
    }
}

/// Counts of a journal, for readers of other threads.
#[derive(Clone, Debug)]
pub struct Counts(Arc<Publication>);

impl Counts {
    pub fn read(&self) -> JournalTotals {
        JournalTotals::from_words(&self.0.read())
    }
}

/// A journal that this process alone writes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    directory: File,
    file: File,
    /// Held until the journal is dropped.
    lock: File,
    /// Number of the last frame.
    number: u64,
    /// Bytes of the sessions' lines.
    live: u64,
    /// Length from which it is worth to write it anew.
    full: u64,
    /// Whether the file may differ from what was answered.
    suspect: bool,
    totals: JournalTotals,
    counts: Counts,
}

/// What a journal was found to have.
#[derive(Debug)]
pub struct Found {
    pub kept: Kept,
    /// Bytes of its last frame, which was cut off.
    pub cut: u64,
}

/// Returns the time as milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> JournalError {
    move |error| JournalError::Io { path: path.to_owned(), what, error: Arc::new(error) }
}

/// What a file holds.
struct Content {
    kept: Kept,
    /// Bytes of whole frames, and all.
    whole: u64,
    len: u64,
    number: u64,
}

/// Reads a file of frames.
fn content(path: &Path, file: &File) -> Result<Content, JournalError> {
    let io = |error| failed(path, "read")(error);
    let damaged = |at, what| JournalError::Damaged { path: path.to_owned(), at, what };
    let len = file.metadata().map_err(io)?.len();
    let mut from = BufReader::with_capacity(1 << 16, file);
    let mut text = Vec::new();
    from.by_ref().take(MAGIC.len() as u64).read_to_end(&mut text).map_err(io)?;
    if text != MAGIC.as_bytes() {
        return Err(damaged(0, format!("must begin with {:?}", MAGIC.trim_end())));
    }
    let mut content = Content { kept: Kept::default(), whole: text.len() as u64, len, number: 0 };
    while content.whole < len {
        let (at, left) = (content.whole, len - content.whole);
        text.clear();
        from.by_ref().take(HEAD as u64).read_to_end(&mut text).map_err(io)?;
        let head = Head::read(&text).filter(|head| head.bytes <= left - HEAD as u64);
        if let Some(head) = &head {
            from.by_ref().take(head.bytes).read_to_end(&mut text).map_err(io)?;
        }
        let Some(head) = head.filter(|head| head.fits(&text[HEAD..])) else {
            // The last frame ends the file, wherever its damage is. Others have frames behind them.
            from.read_to_end(&mut text).map_err(io)?;
            if frame::any_whole(text.get(1..).unwrap_or_default()) {
                let what = format!(
                    "frame {} is damaged: its sum is not that of its bytes, and whole frames follow",
                    content.number + 1
                );
                return Err(damaged(at, what));
            }
            return Ok(content);
        };
        if at > MAGIC.len() as u64 && head.number != content.number + 1 {
            let what = format!("frame {}, must be frame {}", head.number, content.number + 1);
            return Err(damaged(at, what));
        }
        let mut line_at = at + HEAD as u64;
        for line in text[HEAD..].split_inclusive(|byte| *byte == b'\n') {
            let taken = std::str::from_utf8(line).map_err(|_| "not UTF-8 text".to_owned());
            let taken =
                taken.and_then(|line| content.kept.take(line.trim_end_matches('\n'), head.unix_ms));
            taken.map_err(|what| damaged(line_at, what))?;
            line_at += line.len() as u64;
        }
        content.number = head.number;
        content.whole = line_at;
    }
    Ok(content)
}

/// Reads the journal of a directory, and changes nothing; `None`: there is none yet.
///
/// # Errors
/// It cannot be read, or is damaged before its last frame.
pub fn read(directory: &Path) -> Result<Option<Kept>, JournalError> {
    let path = directory.join(FILE);
    match File::open(&path) {
        Ok(file) => content(&path, &file).map(|content| Some(content.kept)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&path, "open")(error)),
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing it is not enough: a program that is just being started may have a copy.
        let _ = self.lock.unlock();
    }
}

impl Journal {
    /// Opens the journal of a directory, which is made if it does not exist. Its last frame is cut
    /// off if it is not whole.
    ///
    /// # Errors
    /// Another process has it, it cannot be read or written, or it is damaged before its last
    /// frame. Nothing has changed then.
    pub fn open(directory: &Path) -> Result<(Journal, Found), JournalError> {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed(directory, "make the journal's directory")(error));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let at = directory.join(LOCK);
        let lock = options.open(&at).map_err(failed(&at, "open"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Locked(directory.to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(failed(&at, "lock")(error)),
        }
        let path = directory.join(FILE);
        let directory = File::open(directory).map_err(failed(directory, "open"))?;
        let opened = match OpenOptions::new().read(true).append(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let beside = path.with_file_name(PARTIAL);
                let made = write_beside(&beside, 0, 0, || None);
                made.map_err(failed(&beside, "write"))?;
                put_in_place(&beside, &path, &directory).map_err(failed(&path, "write"))?;
                OpenOptions::new().read(true).append(true).open(&path)
            }
            opened => opened,
        };
        let file = opened.map_err(failed(&path, "open"))?;
        let counts = Counts(Arc::new(Publication::new(JournalTotals::WORDS)));
        let mut journal = Journal {
            path,
            directory,
            file,
            lock,
            number: 0,
            live: 0,
            full: 0,
            suspect: false,
            totals: JournalTotals::default(),
            counts,
        };
        let Content { kept, whole, len, number } = content(&journal.path, &journal.file)?;
        if whole < len {
            let cut = journal.file.set_len(whole).and_then(|()| journal.file.sync_all());
            cut.map_err(failed(&journal.path, "cut its last frame off"))?;
        }
        journal.number = number;
        journal.live = kept.sessions.values().map(frame::bytes_of).sum();
        journal.totals.bytes = whole;
        journal.show();
        Ok((journal, Found { kept, cut: len - whole }))
    }

    /// Returns its counts.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Returns the path of its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn show(&self) {
        self.counts.0.publish(self.totals.words());
    }

    /// Writes changes as one frame, to the disk.
    ///
    /// # Errors
    /// None of them counts then.
    pub fn append(&mut self, edits: &[Edit], unix_ms: u64) -> Result<(), JournalError> {
        let put = |lines: &mut String| edits.iter().for_each(|edit| frame::put_edit(lines, edit));
        let text = frame::frame(self.number + 1, unix_ms, put);
        let written = self.file.write_all(text.as_bytes());
        // The rest of a frame that did not fit must not stay in front of the next one.
        let synced = written.is_ok().then(|| self.file.sync_data());
        if let (Ok(()), Some(Ok(()))) = (&written, &synced) {
            for edit in edits {
                let added = edit.after.as_ref().map_or(0, frame::bytes_of);
                self.live = (self.live + added).saturating_sub(edit.replaced);
            }
            self.number += 1;
            self.totals.bytes += text.len() as u64;
            self.totals.frames += 1;
            self.totals.changes += edits.len() as u64;
            self.show();
            return Ok(());
        }
        let cut = self.file.set_len(self.totals.bytes);
        self.suspect |= cut.is_err() || synced.is_some();
        self.totals.failed += 1;
        self.show();
        match (written, synced) {
            (Err(error), _) => Err(failed(&self.path, "write")(error)),
            (_, Some(Err(error))) => Err(failed(&self.path, "write to the disk")(error)),
            _ => Ok(()),
        }
    }

    /// Has the file written anew before the next change.
    fn distrust(&mut self) {
        self.suspect = true;
    }

    /// Returns whether the file must be written anew before the next change.
    pub fn is_suspect(&self) -> bool {
        self.suspect
    }

    /// Returns whether the file is so large that it should be written anew.
    pub fn is_large(&self) -> bool {
        self.totals.bytes > (GROWTH_MAX * self.live + SPARE).max(self.full)
    }

    /// Writes a new file of these frames in place of the old one; `next` returns the lines of each.
    ///
    /// # Errors
    /// The old file counts, unless it [is suspect](Journal::is_suspect).
    pub fn rewrite(
        &mut self,
        unix_ms: u64,
        next: impl FnMut() -> Option<String>,
    ) -> Result<(), JournalError> {
        // Not again until it has grown.
        self.full = self.totals.bytes + SPARE;
        let beside = self.path.with_file_name(PARTIAL);
        let written = write_beside(&beside, self.number, unix_ms, next);
        let (file, bytes, number) = written.map_err(failed(&beside, "write"))?;
        // Until the directory is on disk, either file may be there after a crash.
        self.suspect = true;
        put_in_place(&beside, &self.path, &self.directory)
            .map_err(failed(&self.path, "replace"))?;
        (self.suspect, self.full) = (false, 0);
        (self.file, self.number) = (file, number);
        (self.totals.bytes, self.live) = (bytes, bytes);
        self.totals.rewritten += 1;
        self.show();
        Ok(())
    }
}

/// Writes a file of frames to the disk, and returns it, its length and the number of its last
/// frame.
fn write_beside(
    path: &Path,
    mut number: u64,
    unix_ms: u64,
    mut next: impl FnMut() -> Option<String>,
) -> io::Result<(File, u64, u64)> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).create_new(true).mode(0o600).open(path)?;
    let mut write = || {
        file.write_all(MAGIC.as_bytes())?;
        let mut bytes = MAGIC.len() as u64;
        while let Some(lines) = next() {
            if !lines.is_empty() {
                number += 1;
                let text = frame::frame(number, unix_ms, |text| *text += &lines);
                file.write_all(text.as_bytes())?;
                bytes += text.len() as u64;
            }
        }
        file.sync_all().map(|()| bytes)
    };
    match write() {
        Ok(bytes) => Ok((file, bytes, number)),
        Err(error) => {
            // What is left of it would take the room that is lacking.
            let _ = fs::remove_file(path);
            Err(error)
        }
    }
}

/// Gives a file its name, on the disk.
fn put_in_place(from: &Path, to: &Path, directory: &File) -> io::Result<()> {
    fs::rename(from, to)?;
    directory.sync_all()
}
