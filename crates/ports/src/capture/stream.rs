//! One nanosecond pcap that grows while frames pass, written by several threads.
//!
//! Each [`StreamWriter`] collects records and appends them as a whole: the lock is held once for
//! each burst, and records never mix. Opening replaces the file; it is a valid capture after each
//! [`StreamWriter::flush`]. A failed write ends the capture, because nothing after half a record is
//! readable.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::write::{file_header, into_io, split_time};
use super::{CAPTURED_LEN_MAX, WriteError};

/// Collected bytes at which a writer appends without a flush.
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Clone, Debug)]
pub struct CaptureStream {
    path: PathBuf,
    /// `None` once a write failed.
    file: Arc<Mutex<Option<File>>>,
}

/// One thread's writer to a [`CaptureStream`].
#[derive(Debug)]
pub struct StreamWriter {
    stream: CaptureStream,
    buffer: Vec<u8>,
}

impl CaptureStream {
    /// Creates or replaces the file.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn create(path: impl AsRef<Path>) -> Result<CaptureStream, WriteError> {
        let path = path.as_ref().to_path_buf();
        let opened = File::create(&path).and_then(|mut file| {
            file_header().write_to(&mut file).map_err(into_io)?;
            Ok(file)
        });
        match opened {
            Ok(file) => Ok(CaptureStream::on(path, file)),
            Err(reason) => Err(WriteError::File { path, reason }),
        }
    }

    fn on(path: PathBuf, file: File) -> CaptureStream {
        CaptureStream { path, file: Arc::new(Mutex::new(Some(file))) }
    }

    /// Returns whether a write failed: nothing more is written.
    pub fn is_broken(&self) -> bool {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Returns a writer; a stream may have many.
    pub fn writer(&self) -> StreamWriter {
        StreamWriter { stream: self.clone(), buffer: Vec::new() }
    }
}

impl StreamWriter {
    /// Adds a frame with the current time; the next flush writes it.
    ///
    /// # Errors
    /// As [`StreamWriter::flush`]; or the frame is too long for a capture.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), WriteError> {
        let Some(len) = u32::try_from(frame.len()).ok().filter(|&len| len <= CAPTURED_LEN_MAX)
        else {
            return Err(WriteError::FrameTooLong { port: 0, len: frame.len() });
        };
        // A clock before 1970 counts as 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timestamp_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let (seconds, fraction) = split_time(timestamp_ns);
        for word in [seconds, fraction, len, len] {
            self.buffer.extend_from_slice(&word.to_le_bytes());
        }
        self.buffer.extend_from_slice(frame);
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Appends the collected records to the file.
    ///
    /// # Errors
    /// This or an earlier write failed; the collected records are lost.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        // A thread that panicked while holding the lock left a whole file or none.
        let mut file = self.stream.file.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match &mut *file {
            Some(open) => open.write_all(&self.buffer),
            None => Err(io::Error::other("an earlier write failed")),
        };
        self.buffer.clear();
        result.map_err(|reason| {
            *file = None;
            WriteError::File { path: self.stream.path.clone(), reason }
        })
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        // A destructor cannot report a failure.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Capture, LinkType};

    #[test]
    fn several_threads_write_whole_records() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.pcap");
        let stream = CaptureStream::create(&path).unwrap();
        std::thread::scope(|scope| {
            for id in 0..4u8 {
                let mut writer = stream.writer();
                scope.spawn(move || {
                    for n in 0..1000usize {
                        writer.push(&vec![id; 60 + n]).unwrap();
                        if n % 7 == 0 {
                            writer.flush().unwrap();
                        }
                    }
                });
            }
        });
        let mut next = [60usize; 4];
        let mut capture = Capture::open(&path).unwrap();
        while let Some(packet) = capture.next_packet().unwrap() {
            let id = packet.data[0];
            assert!(packet.data.iter().all(|&b| b == id));
            assert_eq!(packet.data.len(), next[id as usize], "in the order of the writer");
            assert_eq!(packet.link_type, LinkType::ETHERNET);
            assert!(packet.timestamp_ns > 1_600_000_000_000_000_000);
            next[id as usize] += 1;
        }
        assert_eq!(next, [1060; 4]);
    }

    #[test]
    fn unwritable_outputs_are_reported() {
        let error = CaptureStream::create("/nowhere/out.pcap").unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/out.pcap: ") && !error.contains('\n'), "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(file.path()).unwrap();
        let mut writer = CaptureStream::on(file.path().into(), read_only).writer();
        writer.push(&[0; 60]).unwrap();
        assert!(!writer.stream.is_broken());
        assert!(writer.flush().is_err());
        assert!(writer.stream.is_broken());
        writer.push(&[0; 60]).unwrap();
        assert!(writer.flush().unwrap_err().to_string().contains("earlier"));
        assert!(writer.push(&vec![0; CAPTURED_LEN_MAX as usize + 1]).is_err());
    }
}
