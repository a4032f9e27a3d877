//! Files of tables: written under a temporary name and renamed; every byte is checked on reading.
//!
//! ```text
//!  0   8   magic of the kind           12  44  what the kind of table says about this one
//!  8   4   version of the format       56  8   xxh3-64 of the bytes before
//!
//!  64  blocks: 4  bytes of the content
//!              8  xxh3-64 of it, its seed the block's number ^ the sum of the header, so that no
//!                 block stands in for another
//!              …  the content
//! ```
//!
//! All numbers are little endian. The table defines the 44 bytes and the contents; the users
//! are [`fib`](crate::fib) and [`partition`](crate::partition).
//!
//! The temporary name is the file's with the suffix `.PID.N.partial`, and always a new file. A
//! process that is killed while saving leaves one such file behind.
//!
//! *Cost.* One block of content in memory. *Guarantees.* The old file stays until the new one is on
//! disk. A damaged file is an error that says what and where, never a panic. The lengths that a
//! file claims are checked before anything of that size is allocated.

use core::ops::RangeInclusive;
use std::borrow::ToOwned;
use std::boxed::Box;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;

use thiserror::Error;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes of the header.
pub(crate) const HEADER: usize = 64;
/// Bytes of the header for the kind of table; the first is byte [`FIELDS_AT`].
pub(crate) const FIELDS: usize = 44;
pub(crate) const FIELDS_AT: usize = 12;
const SUM_AT: usize = FIELDS_AT + FIELDS;
/// Bytes before the content of a block.
pub(crate) const BLOCK_HEADER: usize = 12;
/// Bytes that are read and written at once; a larger block is read and written by itself.
const BUFFER: usize = 1 << 16;

/// Why a file cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused a call.
    #[error("{}: cannot {what}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The file is of another kind, or was changed.
    #[error("{}: {what} (at byte {at})", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: Damage,
        /// First byte of the wrong part.
        at: u64,
    },
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damage {
    /// The magic number is wrong.
    #[error("not {0}")]
    Magic(&'static str),
    /// Written in another format.
    #[error("format {found} of {kind}: this program reads format {known}")]
    Format {
        /// Kind of file.
        kind: &'static str,
        /// Format of the file.
        found: u32,
        /// Format that can be read.
        known: u32,
    },
    /// The header's checksum is wrong.
    #[error("the header is damaged")]
    Header,
    /// The header's numbers contradict each other.
    #[error("the header's numbers do not agree with each other")]
    Numbers,
    /// The file is shorter or longer than its header says.
    #[error("the file has {found} bytes, its header says {expected}")]
    Length {
        /// Bytes of the file.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// A block's length or checksum is wrong.
    #[error("block {0} is damaged")]
    Block(u64),
}

/// A kind of file.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Name with its article, for errors.
    pub(crate) name: &'static str,
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
}

impl Kind {
    fn header(&self, fields: &[u8; FIELDS]) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&self.magic);
        header[8..FIELDS_AT].copy_from_slice(&self.version.to_le_bytes());
        header[FIELDS_AT..SUM_AT].copy_from_slice(fields);
        let sum = xxh3_64(&header[..SUM_AT]);
        header[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        header
    }
}

/// Returns a number of up to 8 bytes, little endian.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn header_sum(header: &[u8; HEADER]) -> u64 {
    number(&header[SUM_AT..])
}

/// Writes a file; `content` writes its blocks in order. An existing file is replaced once the new
/// one is on disk; of several saves to one path at a time, the last to finish wins.
pub(crate) fn save(
    path: &Path,
    kind: &Kind,
    fields: &[u8; FIELDS],
    content: impl FnOnce(&mut Blocks<'_>) -> io::Result<()>,
) -> Result<(), FileError> {
    let (partial, file) = create_partial(path)?;
    let failed = |what| {
        let path = partial.clone();
        move |error| FileError::Io { path, what, error }
    };
    let mut unfinished = Unfinished(Some(&partial));
    let mut out = BufWriter::with_capacity(BUFFER, file);
    write(&mut out, kind, fields, content).map_err(failed("write"))?;
    let file = out.into_inner().map_err(|error| failed("write")(error.into_error()))?;
    file.sync_all().map_err(failed("write"))?;
    fs::rename(&partial, path).map_err(failed("rename"))?;
    unfinished.0 = None;
    Ok(())
}

/// Writes what a file has.
pub(crate) fn write(
    out: &mut dyn Write,
    kind: &Kind,
    fields: &[u8; FIELDS],
    content: impl FnOnce(&mut Blocks<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let header = kind.header(fields);
    out.write_all(&header)?;
    content(&mut Blocks { out, seed: header_sum(&header), block: 0 })
}

/// Writes the blocks of a new file.
pub(crate) struct Blocks<'a> {
    out: &'a mut dyn Write,
    seed: u64,
    block: u64,
}

impl Blocks<'_> {
    /// Writes the next block. Fails if it has 4 GiB or more.
    pub(crate) fn put(&mut self, content: &[u8]) -> io::Result<()> {
        let len = u32::try_from(content.len()).map_err(io::Error::other)?;
        let sum = xxh3_64_with_seed(content, self.seed ^ self.block);
        self.block += 1;
        self.out.write_all(&len.to_le_bytes())?;
        self.out.write_all(&sum.to_le_bytes())?;
        self.out.write_all(content)
    }
}

/// Creates a file beside `path` that no other call uses, in this process or another.
fn create_partial(path: &Path) -> Result<(PathBuf, File), FileError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed); // Must only differ.
        let mut name = OsString::from(path);
        name.push(std::format!(".{}.{count}.partial", std::process::id()));
        let partial = PathBuf::from(name);
        match File::create_new(&partial) {
            Ok(file) => return Ok((partial, file)),
            // Left by an earlier process with our number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(FileError::Io { path: partial, what: "create", error }),
        }
    }
}

/// Removes an unfinished file.
struct Unfinished<'a>(Option<&'a Path>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // Only the first error is reported.
            let _ = fs::remove_file(path);
        }
    }
}

/// A file with a checked header, whose blocks are read one after the other.
pub(crate) struct Loader<'a> {
    path: &'a Path,
    input: Box<dyn Read + 'a>,
    len: u64,
    header: Box<[u8; HEADER]>,
    block: u64,
    at: u64,
    next_at: u64,
}

impl<'a> Loader<'a> {
    /// Opens a file of this kind.
    pub(crate) fn open(path: &'a Path, kind: &Kind) -> Result<Self, FileError> {
        let failed = |what| move |error| FileError::Io { path: path.to_owned(), what, error };
        let file = File::open(path).map_err(failed("open"))?;
        let len = file.metadata().map_err(failed("read"))?.len();
        Loader::over(path, Box::new(BufReader::with_capacity(BUFFER, file)), len, kind)
    }

    /// Reads what a file has; `path` names it in errors.
    pub(crate) fn over(
        path: &'a Path,
        input: Box<dyn Read + 'a>,
        len: u64,
        kind: &Kind,
    ) -> Result<Self, FileError> {
        let failed = |what| move |error| FileError::Io { path: path.to_owned(), what, error };
        let (header, at) = (Box::new([0; HEADER]), HEADER as u64);
        let mut loader = Self { path, input, len, header, block: 0, at, next_at: at };
        let have = len.min(at) as usize;
        loader.input.read_exact(&mut loader.header[..have]).map_err(failed("read"))?;
        if loader.header[..have.min(8)] != kind.magic[..have.min(8)] {
            return Err(loader.damaged(Damage::Magic(kind.name), 0));
        }
        if len < at {
            return Err(loader.damaged(Damage::Length { found: len, expected: at }, len));
        }
        if header_sum(&loader.header) != xxh3_64(&loader.header[..SUM_AT]) {
            return Err(loader.damaged(Damage::Header, 0));
        }
        let found = number(&loader.header[8..FIELDS_AT]) as u32;
        if found != kind.version {
            let what = Damage::Format { kind: kind.name, found, known: kind.version };
            return Err(loader.damaged(what, 8));
        }
        Ok(loader)
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the kind's bytes of the header.
    pub(crate) fn fields(&self) -> &[u8] {
        &self.header[FIELDS_AT..SUM_AT]
    }

    /// Fails unless the file has this many bytes. Call it before allocating for the contents.
    pub(crate) fn expect_len(&self, expected: u64) -> Result<(), FileError> {
        let found = self.len;
        if found == expected {
            Ok(())
        } else {
            Err(self.damaged(Damage::Length { found, expected }, found.min(expected)))
        }
    }

    /// Returns the offset of the block read last, or the end of the header before that.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Reads the next block, whose content must have a number of bytes in this range.
    pub(crate) fn read_block(
        &mut self,
        bytes: RangeInclusive<u64>,
        content: &mut Vec<u8>,
    ) -> Result<(), FileError> {
        self.at = self.next_at;
        let block = self.block;
        let mut head = [0; BLOCK_HEADER];
        let mut whole = self.read(&mut head)?;
        if whole {
            let len = number(&head[..4]);
            whole = bytes.contains(&len) && {
                // At most the file's length, as the caller's range says.
                let more = (len as usize).saturating_sub(content.len());
                content.try_reserve(more).map_err(|_| FileError::Io {
                    path: self.path.to_owned(),
                    what: "read",
                    error: io::ErrorKind::OutOfMemory.into(),
                })?;
                content.resize(len as usize, 0);
                let seed = header_sum(&self.header) ^ block;
                self.read(content)? && number(&head[4..]) == xxh3_64_with_seed(content, seed)
            };
        }
        if !whole {
            return Err(self.damaged(Damage::Block(block), self.at));
        }
        self.block += 1;
        self.next_at += (BLOCK_HEADER + content.len()) as u64;
        Ok(())
    }

    /// Fills `bytes`; returns `false` if the file ends before. The file's length is right, so a
    /// block's length is then wrong.
    fn read(&mut self, bytes: &mut [u8]) -> Result<bool, FileError> {
        match self.input.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(FileError::Io { path: self.path.to_owned(), what: "read", error }),
        }
    }

    pub(crate) fn damaged(&self, what: Damage, at: u64) -> FileError {
        FileError::Damaged { path: self.path.to_owned(), what, at }
    }

    /// Returns the error for a block read last whose content is invalid for the kind.
    pub(crate) fn damaged_block(&self) -> FileError {
        self.damaged(Damage::Block(self.block.saturating_sub(1)), self.at)
    }
}
