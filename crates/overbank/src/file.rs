//! Files of tables: written under a temporary name and renamed, read back with every byte checked.
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
//! All numbers are little endian. What the 44 bytes and the contents mean is the table's affair;
//! the first user is [`fib`](crate::fib).
//!
//! The temporary name is the file's with `.PID.N.partial` after it and never one that exists
//! already. A process that is killed while it saves leaves one such file behind.
//!
//! *Cost.* One block of content in memory. *Guarantees.* The old file stays until the new one is on
//! disk. A damaged file is an error that says what and where, never a panic; the lengths that a
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
/// Bytes of the header that belong to the kind of table; the first is byte [`FIELDS_AT`].
pub(crate) const FIELDS: usize = 44;
/// Where those bytes begin.
pub(crate) const FIELDS_AT: usize = 12;
/// Where the header's checksum is.
const SUM_AT: usize = FIELDS_AT + FIELDS;
/// Bytes before the content of a block.
pub(crate) const BLOCK_HEADER: usize = 12;
/// Bytes that are read and written at once.
const BUFFER: usize = 1 << 20;

/// A file could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refused.
    #[error("{}: cannot {what}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// A file of something else, or one that was changed.
    #[error("{}: {what} (at byte {at})", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: Damage,
        /// Where: the first byte of the part that is wrong.
        at: u64,
    },
}

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damage {
    /// It does not begin like one.
    #[error("not {0}")]
    Magic(&'static str),
    /// Written by a version of another format.
    #[error("format {found} of {kind}: this program reads format {known}")]
    Format {
        /// What the file is.
        kind: &'static str,
        /// Its format.
        found: u32,
        /// The one that can be read.
        known: u32,
    },
    /// The header's checksum does not agree.
    #[error("the header is damaged")]
    Header,
    /// The header's numbers cannot be those of a table.
    #[error("the header's numbers do not agree with each other")]
    Numbers,
    /// The file is shorter or longer than its header says.
    #[error("the file has {found} bytes, its header says {expected}")]
    Length {
        /// Bytes of the file.
        found: u64,
        /// Bytes that there should be.
        expected: u64,
    },
    /// A block's length or checksum does not agree.
    #[error("block {0} is damaged")]
    Block(u64),
}

/// A kind of file.
#[derive(Debug)]
pub(crate) struct Kind {
    /// What it is, with its article, for errors.
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

/// Writes a file; `content` puts its blocks, in order. An existing file is replaced only when all
/// is on disk; of several saves to one path at a time the last to end stays.
pub(crate) fn save(
    path: &Path,
    kind: &Kind,
    fields: &[u8; FIELDS],
    content: impl FnOnce(&mut Blocks) -> io::Result<()>,
) -> Result<(), FileError> {
    let (partial, file) = create_partial(path)?;
    let failed = |what| {
        let path = partial.clone();
        move |error| FileError::Io { path, what, error }
    };
    let mut unfinished = Unfinished(Some(&partial));
    let header = kind.header(fields);
    let out = BufWriter::with_capacity(BUFFER, file);
    let mut blocks = Blocks { out, seed: header_sum(&header), block: 0 };
    blocks.out.write_all(&header).map_err(failed("write"))?;
    content(&mut blocks).map_err(failed("write"))?;
    let file = blocks.out.into_inner().map_err(|error| failed("write")(error.into_error()))?;
    file.sync_all().map_err(failed("write"))?;
    fs::rename(&partial, path).map_err(failed("rename"))?;
    unfinished.0 = None;
    Ok(())
}

/// Where the blocks of a new file go.
pub(crate) struct Blocks {
    out: BufWriter<File>,
    seed: u64,
    block: u64,
}

impl Blocks {
    /// Writes the next block. Fails if it has 4 GiB or more, too.
    pub(crate) fn put(&mut self, content: &[u8]) -> io::Result<()> {
        let len = u32::try_from(content.len()).map_err(io::Error::other)?;
        let sum = xxh3_64_with_seed(content, self.seed ^ self.block);
        self.block += 1;
        self.out.write_all(&len.to_le_bytes())?;
        self.out.write_all(&sum.to_le_bytes())?;
        self.out.write_all(content)
    }
}

/// Creates a file beside `path` that no other call has, neither of this process nor of another.
fn create_partial(path: &Path) -> Result<(PathBuf, File), FileError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed); // Only has to differ.
        let mut name = OsString::from(path);
        name.push(std::format!(".{}.{count}.partial", std::process::id()));
        let partial = PathBuf::from(name);
        match File::create_new(&partial) {
            Ok(file) => return Ok((partial, file)),
            // Left by a process that had our number.
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
            let _ = fs::remove_file(path); // The first error is the one to report.
        }
    }
}

/// A file whose header is checked, and whose blocks are read one after the other.
pub(crate) struct Loader<'a> {
    path: &'a Path,
    input: BufReader<File>,
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
        let input = BufReader::with_capacity(BUFFER, file);
        let (header, at) = (Box::new([0; HEADER]), HEADER as u64);
        let mut loader = Self { path, input, len, header, block: 0, at, next_at: at };
        if len < at {
            return Err(loader.damaged(Damage::Length { found: len, expected: at }, len));
        }
        loader.input.read_exact(&mut *loader.header).map_err(failed("read"))?;
        if loader.header[..8] != kind.magic {
            return Err(loader.damaged(Damage::Magic(kind.name), 0));
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

    /// The kind's bytes of the header.
    pub(crate) fn fields(&self) -> &[u8] {
        &self.header[FIELDS_AT..SUM_AT]
    }

    /// Fails unless the file has this many bytes. To be called before anything is allocated for it.
    pub(crate) fn expect_len(&self, expected: u64) -> Result<(), FileError> {
        let found = self.len;
        if found == expected {
            Ok(())
        } else {
            Err(self.damaged(Damage::Length { found, expected }, found.min(expected)))
        }
    }

    /// Where the block that was read last begins; the header's end before that.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Reads the next block, whose content has a number of bytes in this range.
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

    /// Fills `bytes`; `false` if the file ends before, which is a wrong length of a block, as the
    /// length of the file is right.
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

    /// The content of the block that was read last cannot be what the kind says.
    pub(crate) fn damaged_block(&self) -> FileError {
        self.damaged(Damage::Block(self.block.saturating_sub(1)), self.at)
    }
}
