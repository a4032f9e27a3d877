//! Tables in files: written under a temporary name and renamed, read back with every byte checked.
//!
//! ```text
//!  0   8  magic "OVBKFIB\n"            32  8  entries
//!  8   4  format version, 1            40  8  seed of the hash function
//!  12  2  bytes of a key               48  8  zero
//!  14  2  bytes of a value             56  8  xxh3-64 of the bytes before
//!  16  8  buckets
//!  24  8  slots of a bucket
//!
//!  64  blocks of 4096 buckets, the last one shorter:
//!      4  bytes of the block           8  xxh3-64 of them, its seed the block's number ^ the sum of
//!                                         the header, so that no block stands in for another
//!      one byte for each bucket, bit i: slot i is occupied; after it those entries, key then value
//! ```
//!
//! All numbers are little endian. Kinds are told apart by their sizes only: a table of 8-byte numbers
//! is read as one of addresses in VLANs if each of its keys could be one. An entry comes back to the
//! slot where it was, so a file that could be written can be loaded, however full the table. A file
//! takes a byte for each bucket and the bytes of its entries: 8.15 bytes for an Ethernet entry at 95 %.
//!
//! Loading allocates the table only when the file's length agrees with its header and the first
//! block is whole, so a damaged file cannot ask for more than some 64 times its length (128 with
//! keys of 16 bytes).
//!
//! The temporary name is the file's with `.PID.N.partial` after it and never one that is there
//! already. A process that is killed while it saves leaves such a file behind, one each time.

use core::marker::PhantomData;
use core::ops::Range;
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

use super::config::{BUCKETS_MAX, Config};
use super::error::Error;
use super::key::{Key, Value};
use super::shape::Shape;
use super::writer::Writer;

const MAGIC: [u8; 8] = *b"OVBKFIB\n";
const FORMAT: u32 = 1;
const HEADER: usize = 64;
const BLOCK_BUCKETS: u64 = 4096;
const BLOCK_HEADER: usize = 12;

/// A snapshot could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
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
    /// Something else than a snapshot, or one that was changed.
    #[error("{}: {what} (at byte {at})", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: Damage,
        /// Where: the first byte of the part that is wrong.
        at: u64,
    },
    /// A snapshot of keys or values of other sizes.
    #[error(
        "{}: keys and values of {} and {} bytes, not {} and {}",
        path.display(), found.0, found.1, expected.0, expected.1
    )]
    Kind {
        /// The file.
        path: PathBuf,
        /// Bytes of its keys and values.
        found: (u16, u16),
        /// Bytes of the table's.
        expected: (u16, u16),
    },
    /// There is no table to load it into.
    #[error("{}: {error}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Error,
    },
}

/// What is wrong with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damage {
    /// It does not begin like one.
    #[error("not a snapshot of a forwarding table")]
    Magic,
    /// Written by a version of another format.
    #[error("snapshot format {0}, this program reads format 1")]
    Format(u32),
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
    /// An entry where its key cannot be, a second one of its key, or one whose key is none of its kind.
    #[error("bucket {0} has an entry that does not belong there")]
    Misplaced(u64),
}

/// The header of a file, as numbers.
#[derive(Clone, Copy)]
struct Head {
    buckets: u64,
    entries: u64,
    seed: u64,
}

/// Sizes that follow from the types.
struct Kind<K, V>(PhantomData<(K, V)>);

impl<K: Key, V: Value> Kind<K, V> {
    const KEY: usize = K::BITS / 8;
    const VALUE: usize = V::BITS / 8;
    const ENTRY: usize = Self::KEY + Self::VALUE;
    const SLOTS: u64 = Shape::<K, V>::SLOTS as u64;

    /// Bytes of a file; `None` if they are more than a number can say.
    fn file_len(head: Head) -> Option<u64> {
        let blocks = head.buckets.div_ceil(BLOCK_BUCKETS).checked_mul(BLOCK_HEADER as u64)?;
        let entries = head.entries.checked_mul(Self::ENTRY as u64)?;
        (HEADER as u64).checked_add(blocks)?.checked_add(head.buckets)?.checked_add(entries)
    }

    fn header(head: Head) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(8, &FORMAT.to_le_bytes());
        put(12, &(Self::KEY as u16).to_le_bytes());
        put(14, &(Self::VALUE as u16).to_le_bytes());
        put(16, &head.buckets.to_le_bytes());
        put(24, &Self::SLOTS.to_le_bytes());
        put(32, &head.entries.to_le_bytes());
        put(40, &head.seed.to_le_bytes());
        let sum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// Number of up to 8 bytes, little endian.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn block_sum(header: &[u8; HEADER], block: u64, content: &[u8]) -> u64 {
    xxh3_64_with_seed(content, number(&header[56..]) ^ block)
}

/// A new file beside `path`, which no other call has: neither of this process nor of another one.
fn create_partial(path: &Path) -> Result<(PathBuf, File), SnapshotError> {
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
            Err(error) => {
                return Err(SnapshotError::Io { path: partial, what: "create", error });
            }
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

impl<K: Key, V: Value> Writer<K, V> {
    /// Writes all entries to a file, which is replaced only when all is on disk; of several saves to
    /// one file the last to end stays. Readers go on; the writer is busy until the end.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        let path = path.as_ref();
        let (partial, file) = create_partial(path)?;
        let failed = |what| {
            let path = partial.clone();
            move |error| SnapshotError::Io { path, what, error }
        };
        let mut unfinished = Unfinished(Some(&partial));
        let mut out = BufWriter::with_capacity(1 << 20, file);
        self.write_to(&mut out).map_err(failed("write"))?;
        let file = out.into_inner().map_err(|error| failed("write")(error.into_error()))?;
        file.sync_all().map_err(failed("write"))?;
        fs::rename(&partial, path).map_err(failed("rename"))?;
        unfinished.0 = None;
        Ok(())
    }

    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let table = self.table();
        let head = Head {
            buckets: u64::from(table.buckets),
            entries: self.len() as u64,
            seed: table.seed,
        };
        let header = Kind::<K, V>::header(head);
        out.write_all(&header)?;
        let mut content = Vec::new();
        for (block, first) in (0u64..).zip((0..head.buckets).step_by(BLOCK_BUCKETS as usize)) {
            content.clear();
            for bucket in first..head.buckets.min(first + BLOCK_BUCKETS) {
                let bucket = bucket as u32; // Less than the table's number of buckets.
                let occupied = table.header(bucket);
                content.push((occupied.words() >> Shape::<K, V>::KEYS) as u8);
                for slot in (0..Shape::<K, V>::SLOTS).filter(|&slot| occupied.has(slot)) {
                    let key = table.key(bucket, slot);
                    let key = u128::from(key.high()) << 64 | u128::from(key.low());
                    let value = table.value(bucket, slot).to_bits();
                    content.extend_from_slice(&key.to_le_bytes()[..Kind::<K, V>::KEY]);
                    content.extend_from_slice(&value.to_le_bytes()[..Kind::<K, V>::VALUE]);
                }
            }
            out.write_all(&(content.len() as u32).to_le_bytes())?;
            out.write_all(&block_sum(&header, block, &content).to_le_bytes())?;
            out.write_all(&content)?;
        }
        out.flush()
    }

    /// Reads a table from a file. Its size and seed are the file's; instruction set, pages and the
    /// bound of the search are those of `config`. Any byte that is not as it was written is an
    /// error that says where.
    pub fn load(path: impl AsRef<Path>, config: &Config) -> Result<Self, SnapshotError> {
        Loader::<K, V>::open(path.as_ref())?.load(config)
    }
}

/// A file whose header is checked.
struct Loader<'a, K, V> {
    path: &'a Path,
    input: BufReader<File>,
    header: Box<[u8; HEADER]>,
    head: Head,
    types: PhantomData<(K, V)>,
}

impl<'a, K: Key, V: Value> Loader<'a, K, V> {
    fn open(path: &'a Path) -> Result<Self, SnapshotError> {
        let failed = |what| move |error| SnapshotError::Io { path: path.to_owned(), what, error };
        let damaged = |what, at| SnapshotError::Damaged { path: path.to_owned(), what, at };
        let file = File::open(path).map_err(failed("open"))?;
        let found = file.metadata().map_err(failed("read"))?.len();
        let mut input = BufReader::with_capacity(1 << 20, file);
        if found < HEADER as u64 {
            let expected = HEADER as u64;
            return Err(damaged(Damage::Length { found, expected }, found));
        }
        let mut header = Box::new([0; HEADER]);
        input.read_exact(&mut *header).map_err(failed("read"))?;
        if header[..8] != MAGIC {
            return Err(damaged(Damage::Magic, 0));
        }
        if number(&header[56..]) != xxh3_64(&header[..56]) {
            return Err(damaged(Damage::Header, 0));
        }
        if number(&header[8..12]) != u64::from(FORMAT) {
            return Err(damaged(Damage::Format(number(&header[8..12]) as u32), 8));
        }
        let sizes = (number(&header[12..14]) as u16, number(&header[14..16]) as u16);
        let expected = (Kind::<K, V>::KEY as u16, Kind::<K, V>::VALUE as u16);
        if sizes != expected {
            return Err(SnapshotError::Kind { path: path.to_owned(), found: sizes, expected });
        }
        let head = Head {
            buckets: number(&header[16..24]),
            entries: number(&header[32..40]),
            seed: number(&header[40..48]),
        };
        let slots = number(&header[24..32]);
        let agree = (2..=BUCKETS_MAX as u64).contains(&head.buckets)
            && slots == Kind::<K, V>::SLOTS
            && head.entries <= head.buckets * slots
            && number(&header[48..56]) == 0;
        let expected = match Kind::<K, V>::file_len(head) {
            Some(length) if agree => length,
            _ => return Err(damaged(Damage::Numbers, 16)),
        };
        if found != expected {
            return Err(damaged(Damage::Length { found, expected }, found.min(expected)));
        }
        Ok(Self { path, input, header, head, types: PhantomData })
    }

    fn damaged(&self, what: Damage, at: u64) -> SnapshotError {
        SnapshotError::Damaged { path: self.path.to_owned(), what, at }
    }

    fn load(mut self, config: &Config) -> Result<Writer<K, V>, SnapshotError> {
        let config = config.resized(self.head.buckets as usize).seed(self.head.seed);
        let mut content = Vec::new();
        let mut at = HEADER as u64;
        // A file with nothing but a header is not worth a table, which may be large.
        self.read_block(0, at, &mut content)?;
        let mut writer = Writer::new(&config)
            .map_err(|error| SnapshotError::Table { path: self.path.to_owned(), error })?;
        for block in 0..self.head.buckets.div_ceil(BLOCK_BUCKETS) {
            if block != 0 {
                self.read_block(block, at, &mut content)?;
            }
            let mut rest = &content[..];
            for bucket in self.buckets_of(block) {
                let Some((&occupied, after)) = rest.split_first() else {
                    return Err(self.damaged(Damage::Block(block), at));
                };
                rest = after;
                rest = match place_bucket(&mut writer, bucket as u32, occupied, rest) {
                    Ok(rest) => rest,
                    Err(what) => return Err(self.damaged(what, at)),
                };
            }
            if !rest.is_empty() {
                return Err(self.damaged(Damage::Block(block), at));
            }
            at += (BLOCK_HEADER + content.len()) as u64;
        }
        if writer.len() as u64 != self.head.entries {
            return Err(self.damaged(Damage::Numbers, 32));
        }
        match writer.settle() {
            Ok(()) => Ok(writer),
            Err(bucket) => Err(self.damaged(Damage::Misplaced(u64::from(bucket)), HEADER as u64)),
        }
    }

    fn buckets_of(&self, block: u64) -> Range<u64> {
        let first = block * BLOCK_BUCKETS;
        first..self.head.buckets.min(first + BLOCK_BUCKETS)
    }

    /// Reads the content of a block that begins at byte `at`.
    fn read_block(
        &mut self,
        block: u64,
        at: u64,
        content: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        let mut head = [0; BLOCK_HEADER];
        let mut whole = self.read(&mut head)?;
        if whole {
            let buckets = self.buckets_of(block).count() as u64;
            let bytes = number(&head[..4]);
            let most = buckets * (1 + Kind::<K, V>::SLOTS * Kind::<K, V>::ENTRY as u64);
            whole = (buckets..=most).contains(&bytes) && {
                content.resize(bytes as usize, 0);
                self.read(content)? && number(&head[4..]) == block_sum(&self.header, block, content)
            };
        }
        if whole { Ok(()) } else { Err(self.damaged(Damage::Block(block), at)) }
    }

    /// Fills `bytes`; `false` if the file ends before, which is a wrong length of a block, as the
    /// length of the file is right.
    fn read(&mut self, bytes: &mut [u8]) -> Result<bool, SnapshotError> {
        match self.input.read_exact(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => {
                Err(SnapshotError::Io { path: self.path.to_owned(), what: "read", error })
            }
        }
    }
}

/// Puts a bucket's entries where they were; gives the bytes after them.
fn place_bucket<'a, K: Key, V: Value>(
    writer: &mut Writer<K, V>,
    bucket: u32,
    occupied: u8,
    mut rest: &'a [u8],
) -> Result<&'a [u8], Damage> {
    let misplaced = Damage::Misplaced(u64::from(bucket));
    if u32::from(occupied) << Shape::<K, V>::KEYS & !Shape::<K, V>::FULL != 0 {
        return Err(misplaced);
    }
    for slot in (0..Shape::<K, V>::SLOTS).filter(|slot| occupied >> slot & 1 == 1) {
        let (entry, after) = rest.split_at_checked(Kind::<K, V>::ENTRY).ok_or(misplaced)?;
        rest = after;
        let (key, value) = entry.split_at(Kind::<K, V>::KEY);
        let (low, high) = key.split_at(key.len().min(8));
        let words = (number(low), number(high));
        let key = K::from_words(words.0, words.1);
        // Bits that a key of this kind does not have.
        if (key.low(), key.high()) != words {
            return Err(misplaced);
        }
        if !writer.restore(bucket, slot, key, V::from_bits(number(value))) {
            return Err(misplaced);
        }
    }
    Ok(rest)
}
