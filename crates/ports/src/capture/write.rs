//! Writes captures: one nanosecond pcap per output port, all of them or none.
//!
//! ```text
//! .port-N.XXXXXX.tmp   header, then per frame: time, lengths, bytes     while the set is written
//! port-N.pcap                                                           after `finish`
//! ```
//!
//! `CaptureSet` writes each port to a hidden temporary file beside its final name, and renames it
//! on [`CaptureSet::finish`]. Dropped before that, it removes the temporary files and the
//! directories that it made. Little-endian on every machine, so equal packets give equal files.
//! Cost: one copy into a buffer per port, of 64 KiB, or of a share of 64 MiB for many ports. A file
//! is open only while its buffer is appended, so ports may outnumber the process's limit of open
//! files.

use std::borrow::Cow;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use tempfile::TempPath;

use super::CAPTURED_LEN_MAX;

/// Most bytes of a port's buffer, and of all buffers together unless that gives less than
/// [`BUFFER_MIN`].
const BUFFER_MAX: usize = 1 << 16;
const BUFFERS_MAX: usize = 64 << 20;
const BUFFER_MIN: usize = 512;

/// Why captures cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output directory cannot be made, is no directory, or is not writable.
    #[error("{}: cannot write captures to this directory: {reason}", dir.display())]
    Directory { dir: PathBuf, reason: io::Error },
    #[error("{}: cannot write the capture: {reason}", path.display())]
    File {
        /// The final name of the file.
        path: PathBuf,
        reason: io::Error,
    },
    /// The set has no capture for this port.
    #[error("no output capture for port {port}")]
    UnknownPort { port: u32 },
    /// The frame is too long for a capture.
    #[error("a frame of {len} bytes for port {port}, expected at most {CAPTURED_LEN_MAX}")]
    FrameTooLong { port: u32, len: usize },
}

struct PortFile {
    port: u32,
    path: PathBuf,
    writer: PcapWriter<Appender>,
    frames: u64,
}

/// A file that is open only while the buffer is appended to it.
struct Appender {
    file: TempPath,
    buffer: Vec<u8>,
    buffer_max: usize,
}

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > self.buffer_max {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        OpenOptions::new().append(true).open(&self.file)?.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

pub struct CaptureSet {
    /// Sorted by port.
    files: Vec<PortFile>,
    made: MadeDirs,
}

impl CaptureSet {
    /// Starts `port-N.pcap` in `dir` for each port N; makes the directory if it is missing. Fails
    /// if one of the names belongs to something other than a file, which cannot be replaced.
    pub fn create(dir: impl AsRef<Path>, ports: &[u32]) -> Result<CaptureSet, WriteError> {
        let dir = dir.as_ref();
        let failed = |reason| WriteError::Directory { dir: dir.into(), reason };
        let made = MadeDirs::create(dir).map_err(failed)?;
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        let buffer_max = (BUFFERS_MAX / ports.len().max(1)).clamp(BUFFER_MIN, BUFFER_MAX);
        let files = ports
            .into_iter()
            .map(|port| PortFile::create(dir, port, buffer_max))
            .collect::<io::Result<_>>()
            .map_err(failed)?;
        Ok(CaptureSet { files, made })
    }

    /// Iterates over the files that [`CaptureSet::finish`] will create or replace, by port.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Appends a frame to the capture of `port`. Times beyond the year 2106 are clamped.
    pub fn write(&mut self, port: u32, timestamp_ns: u64, frame: &[u8]) -> Result<(), WriteError> {
        let at = self
            .files
            .binary_search_by_key(&port, |f| f.port)
            .map_err(|_| WriteError::UnknownPort { port })?;
        if frame.len() > CAPTURED_LEN_MAX as usize {
            return Err(WriteError::FrameTooLong { port, len: frame.len() });
        }
        let len = frame.len() as u32;
        let file = &mut self.files[at];
        let (ts_sec, ts_frac) = split_time(timestamp_ns);
        let packet = RawPcapPacket {
            ts_sec,
            ts_frac,
            incl_len: len,
            orig_len: len,
            data: Cow::Borrowed(frame),
        };
        file.frames += 1;
        match file.writer.write_raw_packet(&packet) {
            Ok(_) => Ok(()),
            Err(e) => Err(WriteError::File { path: file.path.clone(), reason: into_io(e) }),
        }
    }

    /// Renames the files to their final names, replacing existing ones. Returns, by port, each path
    /// and its number of frames. All files are complete before the first rename, so that a full
    /// disk leaves nothing behind. If a rename fails, earlier ones are undone and the replaced
    /// files return, as far as the file system supports links (FAT does not).
    pub fn finish(mut self) -> Result<Vec<(u32, PathBuf, u64)>, WriteError> {
        let mut whole = Vec::with_capacity(self.files.len());
        for PortFile { port, path, writer, frames } in self.files.drain(..) {
            let mut appender = writer.into_writer();
            match appender.flush() {
                Ok(()) => whole.push((port, path, frames, appender.file)),
                Err(reason) => return Err(WriteError::File { path, reason }),
            }
        }
        let mut done = Vec::with_capacity(whole.len());
        let mut placed = Vec::with_capacity(whole.len());
        for (port, path, frames, file) in whole {
            match Placed::put(file, &path) {
                Ok(one) => placed.push(one),
                Err(reason) => return Err(WriteError::File { path, reason }),
            }
            done.push((port, path, frames));
        }
        placed.iter_mut().for_each(Placed::keep);
        self.made.keep();
        Ok(done)
    }
}

/// A file with its final name; dropped before [`Placed::keep`], it restores what was there before.
struct Placed {
    path: PathBuf,
    before: Before,
}

/// What had the name of a [`Placed`] file.
enum Before {
    Nothing,
    /// A second link to it.
    File(TempPath),
    /// It could not be preserved: the new file stays.
    Lost,
}

impl Placed {
    fn put(file: TempPath, path: &Path) -> io::Result<Placed> {
        let mut name = file.to_path_buf().into_os_string();
        name.push(".old");
        let before = match fs::hard_link(path, &name) {
            Ok(()) => Before::File(TempPath::try_from_path(name)?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Before::Nothing,
            Err(_) => Before::Lost,
        };
        file.persist(path).map_err(|e| e.error)?;
        Ok(Placed { path: path.into(), before })
    }

    /// Keeps the new file.
    fn keep(&mut self) {
        self.before = Before::Lost;
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // A destructor cannot report a failure; the error that led here is reported.
        match std::mem::replace(&mut self.before, Before::Lost) {
            Before::Nothing => drop(fs::remove_file(&self.path)),
            Before::File(old) => drop(old.persist(&self.path)),
            Before::Lost => {}
        }
    }
}

impl PortFile {
    fn create(dir: &Path, port: u32, buffer_max: usize) -> io::Result<PortFile> {
        let path = dir.join(format!("port-{port}.pcap"));
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            let what = format!("port-{port}.pcap is there and not a file");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let mut builder = tempfile::Builder::new();
        let prefix = format!(".port-{port}.");
        builder.prefix(&prefix).suffix(".tmp");
        #[cfg(unix)]
        builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
        let file = builder.tempfile_in(dir).map_err(without_path)?.into_temp_path();
        let appender = Appender { file, buffer: Vec::new(), buffer_max };
        let writer = PcapWriter::with_header(appender, file_header()).map_err(into_io)?;
        Ok(PortFile { port, path, writer, frames: 0 })
    }
}

/// Returns the header of our captures.
pub(super) fn file_header() -> PcapHeader {
    PcapHeader {
        snaplen: CAPTURED_LEN_MAX,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::Little,
        ..PcapHeader::default()
    }
}

/// Splits a time into seconds and nanoseconds; clamps times beyond the year 2106.
pub(super) fn split_time(timestamp_ns: u64) -> (u32, u32) {
    let timestamp_ns = timestamp_ns.min(u64::from(u32::MAX) * 1_000_000_000 + 999_999_999);
    ((timestamp_ns / 1_000_000_000) as u32, (timestamp_ns % 1_000_000_000) as u32)
}

/// Removes the name of the temporary file, which a reader does not know, from an error of
/// `tempfile`.
pub fn without_path(error: io::Error) -> io::Error {
    match error.to_string().rsplit_once(" at path ") {
        Some((what, _)) => io::Error::new(error.kind(), what.to_owned()),
        None => error,
    }
}

pub(super) fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(e) => e,
        other => io::Error::other(other.to_string()),
    }
}

/// The directories that we made, deepest first; removed on drop if empty.
struct MadeDirs(Vec<PathBuf>);

impl MadeDirs {
    fn create(dir: &Path) -> io::Result<MadeDirs> {
        let missing = dir
            .ancestors()
            .take_while(|d| !d.as_os_str().is_empty() && !d.exists())
            .map(Path::to_path_buf)
            .collect();
        let made = MadeDirs(missing);
        fs::create_dir_all(dir)?;
        Ok(made)
    }

    fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for dir in &self.0 {
            // Not empty, or not created: not ours to remove.
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
}
