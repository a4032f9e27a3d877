//! Writes captures: one nanosecond pcap per output port, all of them or none.
//!
//! `CaptureSet` writes each port to a hidden temporary file beside its final name and renames it
//! on [`CaptureSet::finish`]. Dropped before that, it removes the temporary files and the
//! directories that it made. Little-endian on every machine, so that equal packets give equal
//! files. Cost: one copy into a 64 KiB buffer per port.

use std::borrow::Cow;
use std::fs::{self, Permissions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use tempfile::NamedTempFile;

use super::CAPTURED_LEN_MAX;

/// Why output captures cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output directory cannot be made, is no directory, or may not be written to.
    #[error("{}: cannot write captures there: {reason}", dir.display())]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// Writing or renaming a file failed.
    #[error("{}: cannot write the capture: {reason}", path.display())]
    File {
        /// The final name of the file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// A frame for a port that the set was not made for.
    #[error("no output capture for port {port}")]
    UnknownPort {
        /// The port.
        port: u32,
    },
    /// A frame longer than any capture may hold.
    #[error("a frame of {len} bytes for port {port}, expected at most {CAPTURED_LEN_MAX}")]
    FrameTooLong {
        /// The port.
        port: u32,
        /// The frame's length.
        len: usize,
    },
}

struct PortFile {
    port: u32,
    path: PathBuf,
    writer: PcapWriter<BufWriter<NamedTempFile>>,
    frames: u64,
}

/// One capture per output port, in one directory.
pub struct CaptureSet {
    /// Sorted by port.
    files: Vec<PortFile>,
    made: MadeDirs,
}

impl CaptureSet {
    /// Starts `port-N.pcap` in `dir` for each port N; makes the directory where it is missing.
    /// Refused where something else than a file has one of the names, since it cannot be replaced.
    pub fn create(dir: impl AsRef<Path>, ports: &[u32]) -> Result<CaptureSet, WriteError> {
        let dir = dir.as_ref();
        let failed = |reason| WriteError::Directory { dir: dir.into(), reason };
        let made = MadeDirs::create(dir).map_err(failed)?;
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        let files = ports
            .into_iter()
            .map(|port| PortFile::create(dir, port))
            .collect::<io::Result<_>>()
            .map_err(failed)?;
        Ok(CaptureSet { files, made })
    }

    /// The files that [`CaptureSet::finish`] will make or replace, by port.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Appends a frame to the capture of `port`. Times beyond the year 2106 are written as its end.
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
        let timestamp_ns = timestamp_ns.min(u64::from(u32::MAX) * 1_000_000_000 + 999_999_999);
        let packet = RawPcapPacket {
            ts_sec: (timestamp_ns / 1_000_000_000) as u32,
            ts_frac: (timestamp_ns % 1_000_000_000) as u32,
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

    /// Gives the files their names; a file of that name is replaced. Returns, by port, each path
    /// and its number of frames. Flushes all before the first rename, so that a full disk leaves
    /// nothing behind.
    pub fn finish(mut self) -> Result<Vec<(u32, PathBuf, u64)>, WriteError> {
        let mut flushed = Vec::with_capacity(self.files.len());
        for PortFile { port, path, writer, frames } in self.files.drain(..) {
            match writer.into_writer().into_inner() {
                Ok(file) => flushed.push((port, path, frames, file)),
                Err(e) => return Err(WriteError::File { path, reason: e.into_error() }),
            }
        }
        let mut done = Vec::with_capacity(flushed.len());
        for (port, path, frames, file) in flushed {
            if let Err(e) = file.persist(&path) {
                return Err(WriteError::File { path, reason: e.error });
            }
            done.push((port, path, frames));
        }
        self.made.keep();
        Ok(done)
    }
}

impl PortFile {
    fn create(dir: &Path, port: u32) -> io::Result<PortFile> {
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
        let file = builder.tempfile_in(dir)?;
        let header = PcapHeader {
            snaplen: CAPTURED_LEN_MAX,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::with_capacity(1 << 16, file), header)
            .map_err(into_io)?;
        Ok(PortFile { port, path, writer, frames: 0 })
    }
}

fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(e) => e,
        other => io::Error::other(other.to_string()),
    }
}

/// The directories that we made, deepest first; removed on drop where they are empty.
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
            // Not empty, or never made: then it is not ours to remove.
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
}
