//! Images of tables in files, in the blocks of [`file`](crate::file).
//!
//! ```text
//!  0   8  magic "OVBKFIB\n"            32  8  entries
//!  8   4  format version, 1            40  8  seed of the hash function
//!  12  2  bytes of a key               48  8  zero
//!  14  2  bytes of a value             56  8  checksum
//!  16  8  buckets
//!  24  8  slots of a bucket
//!
//!  64  blocks of 4096 buckets, the last one shorter:
//!      one byte for each bucket, bit i: slot i is occupied; after it those entries, key then value
//! ```
//!
//! Kinds are distinguished only by their sizes: a table of 8-byte numbers loads as one of addresses
//! in VLANs if each of its keys could be one. An entry returns to its slot, so every image that was
//! written can be loaded, however full the table. An image has a byte for each bucket and the bytes
//! of its entries: 8.15 bytes for an Ethernet entry at 95 %.
//!
//! Loading allocates the table only after the file's length agrees with its header and the first
//! block is whole. A damaged file therefore cannot claim more than about 64 times its length (128
//! with keys of 16 bytes).

use core::marker::PhantomData;
use core::ops::Range;
use std::borrow::ToOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::vec::Vec;

use thiserror::Error;

use super::bucket::Bucket;
use super::config::{BUCKETS_MAX, Config};
use super::error::FibError;
use super::key::{Key, Value, Words as _};
use super::writer::Writer;
use crate::file::{BLOCK_HEADER, Blocks, Damage, FIELDS, FIELDS_AT, FileError, HEADER};
use crate::file::{Kind, Loader, number, save};

const IMAGE: Kind =
    Kind { name: "an image of a forwarding table", magic: *b"OVBKFIB\n", version: 1 };
const BLOCK_BUCKETS: u64 = 4096;

/// Why an image cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FibImageError {
    /// The file cannot be written or read, or is no whole image.
    #[error(transparent)]
    File(#[from] FileError),
    /// The image has keys or values of other sizes.
    #[error(
        "{}: keys and values of {} and {} bytes, not {} and {}",
        path.display(), found.0, found.1, expected.0, expected.1
    )]
    Types {
        /// The file.
        path: PathBuf,
        /// Bytes of the image's keys and values.
        found: (u16, u16),
        /// Bytes of the table's keys and values.
        expected: (u16, u16),
    },
    /// An entry is in a wrong bucket, repeats a key, or has bits that the key type lacks.
    #[error(
        "{}: bucket {bucket} has an entry that does not belong there (at byte {at})", path.display()
    )]
    Misplaced {
        /// The file.
        path: PathBuf,
        /// The bucket.
        bucket: u64,
        /// First byte of the block that contains the bucket; the end of the header if it is another
        /// one.
        at: u64,
    },
    /// The table for the image cannot be constructed.
    #[error("{}: {error}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Reason.
        error: FibError,
    },
}

/// The header's description of a table.
#[derive(Clone, Copy)]
struct Head {
    buckets: u64,
    entries: u64,
    seed: u64,
}

/// Sizes that follow from the types.
struct Sizes<K, V>(PhantomData<(K, V)>);

impl<K: Key, V: Value> Sizes<K, V> {
    const KEY: usize = K::BITS.div_ceil(8);
    const VALUE: usize = V::BITS / 8;
    const ENTRY: usize = Self::KEY + Self::VALUE;
    const SLOTS: u64 = Bucket::<K, V>::SLOTS as u64;

    /// Returns the bytes of a file; `None` on overflow.
    fn file_len(head: Head) -> Option<u64> {
        let blocks = head.buckets.div_ceil(BLOCK_BUCKETS).checked_mul(BLOCK_HEADER as u64)?;
        let entries = head.entries.checked_mul(Self::ENTRY as u64)?;
        (HEADER as u64).checked_add(blocks)?.checked_add(head.buckets)?.checked_add(entries)
    }

    fn fields(head: Head) -> [u8; FIELDS] {
        let mut bytes = [0; FIELDS];
        let mut put = |at: usize, part: &[u8]| {
            bytes[at - FIELDS_AT..][..part.len()].copy_from_slice(part);
        };
        put(12, &(Self::KEY as u16).to_le_bytes());
        put(14, &(Self::VALUE as u16).to_le_bytes());
        put(16, &head.buckets.to_le_bytes());
        put(24, &Self::SLOTS.to_le_bytes());
        put(32, &head.entries.to_le_bytes());
        put(40, &head.seed.to_le_bytes());
        bytes
    }

    /// Checks the whole header, including the length of the file.
    fn head(loader: &Loader) -> Result<Head, FibImageError> {
        let field = |at: usize, bytes: usize| number(&loader.fields()[at - FIELDS_AT..][..bytes]);
        let found = (field(12, 2) as u16, field(14, 2) as u16);
        let expected = (Self::KEY as u16, Self::VALUE as u16);
        if found != expected {
            return Err(FibImageError::Types { path: loader.path().to_owned(), found, expected });
        }
        let head = Head { buckets: field(16, 8), entries: field(32, 8), seed: field(40, 8) };
        let slots = field(24, 8);
        let agree = (2..=BUCKETS_MAX as u64).contains(&head.buckets)
            && slots == Self::SLOTS
            && head.entries <= head.buckets * slots
            && field(48, 8) == 0;
        match Self::file_len(head) {
            Some(len) if agree => loader.expect_len(len)?,
            _ => return Err(loader.damaged(Damage::Numbers, 16).into()),
        }
        Ok(head)
    }
}

impl Head {
    fn buckets_of(self, block: u64) -> Range<u64> {
        let first = block * BLOCK_BUCKETS;
        first..self.buckets.min(first + BLOCK_BUCKETS)
    }
}

impl<K: Key, V: Value> Writer<K, V> {
    /// Writes all entries to a file. An existing file is replaced once the new one is on disk; of
    /// several saves to one file at a time, the last to finish wins. Readers continue; the table
    /// cannot change meanwhile.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FibImageError> {
        let table = self.table();
        let head = Head {
            buckets: u64::from(table.buckets),
            entries: self.len() as u64,
            seed: table.seed,
        };
        let fields = Sizes::<K, V>::fields(head);
        Ok(save(path.as_ref(), &IMAGE, &fields, |out| self.write_to(head, out))?)
    }

    fn write_to(&self, head: Head, out: &mut Blocks) -> io::Result<()> {
        let table = self.table();
        let mut content = Vec::new();
        for block in 0..head.buckets.div_ceil(BLOCK_BUCKETS) {
            content.clear();
            for bucket in head.buckets_of(block) {
                let bucket = bucket as u32; // Less than the table's number of buckets.
                let occupied = table.header(bucket);
                content.push((occupied.words() >> Bucket::<K, V>::KEYS) as u8);
                for slot in (0..Bucket::<K, V>::SLOTS).filter(|&slot| occupied.has(slot)) {
                    let key = table.key(bucket, slot);
                    let key = u128::from(key.high()) << 64 | u128::from(key.low());
                    let value = table.value(bucket, slot).to_bits();
                    content.extend_from_slice(&key.to_le_bytes()[..Sizes::<K, V>::KEY]);
                    content.extend_from_slice(&value.to_le_bytes()[..Sizes::<K, V>::VALUE]);
                }
            }
            out.put(&content)?;
        }
        Ok(())
    }

    /// Reads a table from an image. Size and seed are the file's; the other settings are those of
    /// `config`. Any changed byte is an error that says where.
    pub fn load(path: impl AsRef<Path>, config: &Config) -> Result<Self, FibImageError> {
        let mut loader = Loader::open(path.as_ref(), &IMAGE)?;
        let head = Sizes::<K, V>::head(&loader)?;
        let path = || path.as_ref().to_owned();
        let mut content = Vec::new();
        // Check for content before allocating the table, which may be large.
        read_block::<K, V>(&mut loader, head, 0, &mut content)?;
        let config = config.resized(head.buckets as usize).seed(head.seed);
        let mut writer =
            Writer::new(&config).map_err(|error| FibImageError::Table { path: path(), error })?;
        for block in 0..head.buckets.div_ceil(BLOCK_BUCKETS) {
            if block != 0 {
                read_block::<K, V>(&mut loader, head, block, &mut content)?;
            }
            let mut rest = &content[..];
            for bucket in head.buckets_of(block) {
                let Some((&occupied, after)) = rest.split_first() else {
                    return Err(loader.damaged_block().into());
                };
                rest = restore_bucket(&mut writer, bucket as u32, occupied, after).ok_or_else(
                    || FibImageError::Misplaced { path: path(), bucket, at: loader.at() },
                )?;
            }
            if !rest.is_empty() {
                return Err(loader.damaged_block().into());
            }
        }
        if writer.len() as u64 != head.entries {
            return Err(loader.damaged(Damage::Numbers, 32).into());
        }
        match writer.settle() {
            Ok(()) => Ok(writer),
            Err(bucket) => {
                let (bucket, at) = (u64::from(bucket), HEADER as u64);
                Err(FibImageError::Misplaced { path: path(), bucket, at })
            }
        }
    }
}

/// Reads a block: at least a byte for each bucket, at most all slots of all buckets.
fn read_block<K: Key, V: Value>(
    loader: &mut Loader,
    head: Head,
    block: u64,
    content: &mut Vec<u8>,
) -> Result<(), FileError> {
    let buckets = head.buckets_of(block).count() as u64;
    let bucket_max = 1 + Sizes::<K, V>::SLOTS * Sizes::<K, V>::ENTRY as u64;
    loader.read_block(buckets..=buckets * bucket_max, content)
}

/// Whether words have no bit past [`Key::BITS`].
fn fits<K: Key>([low, high]: [u64; 2]) -> bool {
    let (low_max, high_max) = if K::WORDS == 1 { (K::LAST, 0) } else { (u64::MAX, K::LAST) };
    low <= low_max && high <= high_max
}

/// Restores a bucket's entries to their slots. Returns the bytes after them, or `None` if one of
/// them does not belong there.
fn restore_bucket<'a, K: Key, V: Value>(
    writer: &mut Writer<K, V>,
    bucket: u32,
    occupied: u8,
    mut rest: &'a [u8],
) -> Option<&'a [u8]> {
    if u32::from(occupied) << Bucket::<K, V>::KEYS & !Bucket::<K, V>::FULL != 0 {
        return None;
    }
    for slot in (0..Bucket::<K, V>::SLOTS).filter(|slot| occupied >> slot & 1 == 1) {
        let (entry, after) = rest.split_at_checked(Sizes::<K, V>::ENTRY)?;
        rest = after;
        let (key, value) = entry.split_at(Sizes::<K, V>::KEY);
        let (low, high) = key.split_at(key.len().min(8));
        let words = [number(low), number(high)];
        // Bits that a key of this type cannot have.
        let key = fits::<K>(words).then(|| K::from_words(words))?;
        if [key.low(), key.high()] != words {
            return None;
        }
        if !writer.restore(bucket, slot, key, V::from_bits(number(value))) {
            return None;
        }
    }
    Some(rest)
}
