//! Images of tables in files, in the blocks of [`file`](crate::file).
//!
//! ```text
//!  0   8  magic "OVBKGPT\n"            28  4  blocks in use
//!  8   4  format version, 1            32  4  keys in the fallback
//!  12  1  bits of a row, 64 or 128     36  8  identity of the table
//!  13  1  bits of a value              44  4  generation
//!  14  2  groups of a block            48  8  sequence number of the last change
//!  16  2  partitions                   56  8  checksum
//!  18  2  zero
//!  20  4  blocks allocated
//!  24  4  keys that the fallback can hold
//!
//!  64  first block:  keys (8), seed of the caller's hash (8), blocks of each partition (4)
//!      then a block for each block of the table: choices (256 bytes), words of its groups
//!      last block:   keys of the fallback: hash (8), value (1)
//! ```
//!
//! An image takes 12 bytes a block more than the table that readers use. Loading allocates the
//! table only when the file's length agrees with its header and the first block is whole. Room for
//! growth is at most [`ROOM_MAX`] times the blocks in use, and not touched.

use alloc::vec::Vec;
use std::borrow::ToOwned;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::batch::{Rest, put_entries, put_words};
use super::block::{Entry, Image};
use super::shape::{Form, PARTITION_BITS_MAX, Place, Shape};
use super::table::{ApplyError, Room, Shared, Table, TableError};
use super::writer::{Replica, Writer};
use crate::file::{BLOCK_HEADER, Blocks, Damage, FIELDS, FIELDS_AT, FileError, HEADER};
use crate::file::{Kind, Loader, number, save, write};
use crate::isa::Isa;
use crate::memory::{MemoryError, Pages};

const IMAGE: Kind =
    Kind { name: "an image of a partition table", magic: *b"OVBKGPT\n", version: 1 };
/// Most blocks allocated, as a multiple of those in use, and more for rounding.
const ROOM_MAX: u64 = 64;
/// Most room of the fallback, as a share of what the table's blocks can hold, and more for small
/// ones.
const FALLBACK_MAX: u64 = 4096;

/// An image could not be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PartitionImageError {
    /// The file could not be written or read, or is no whole image.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no table to load it into.
    #[error("{}: {error}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// Reason.
        error: TableError,
    },
    /// No memory for the copy that is written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// What the header says about a table.
#[derive(Clone, Copy)]
struct Head {
    form: Form,
    room: Room,
    blocks: u32,
    entries: u32,
    id: u64,
    generation: u32,
    sequence: u64,
}

impl Head {
    /// Bytes of the file.
    fn file_len(&self) -> u64 {
        let block = |content: u64| BLOCK_HEADER as u64 + content;
        HEADER as u64
            + block(self.directory_len())
            + u64::from(self.blocks) * block(self.block_len())
            + block(9 * u64::from(self.entries))
    }

    /// Bytes of the first block.
    fn directory_len(&self) -> u64 {
        16 + (4 << self.room.partition_bits)
    }

    /// Bytes of a block of the table.
    fn block_len(&self) -> u64 {
        8 * (super::shape::CHOICE_WORDS + self.form.block_words()) as u64
    }

    fn fields(&self) -> [u8; FIELDS] {
        let mut bytes = [0; FIELDS];
        let mut put = |at: usize, part: &[u8]| {
            bytes[at - FIELDS_AT..][..part.len()].copy_from_slice(part);
        };
        put(12, &[self.form.row.get() as u8, self.form.planes]);
        put(14, &self.form.groups.to_le_bytes());
        put(16, &(1u16 << self.room.partition_bits).to_le_bytes());
        put(20, &self.room.blocks.to_le_bytes());
        put(24, &self.room.fallback.to_le_bytes());
        put(28, &self.blocks.to_le_bytes());
        put(32, &self.entries.to_le_bytes());
        put(36, &self.id.to_le_bytes());
        put(44, &self.generation.to_le_bytes());
        put(48, &self.sequence.to_le_bytes());
        bytes
    }

    /// Checks all that the header says, the length of the file included.
    fn read(loader: &Loader) -> Result<Head, FileError> {
        let field = |at: usize, bytes: usize| number(&loader.fields()[at - FIELDS_AT..][..bytes]);
        let (partitions, blocks) = (field(16, 2), field(28, 4));
        let (room, fallback) = (field(20, 4), field(24, 4));
        let agree = partitions.is_power_of_two()
            && partitions.ilog2() <= PARTITION_BITS_MAX
            && field(18, 2) == 0
            && (partitions..=room).contains(&blocks)
            && room <= ROOM_MAX * (blocks + 1)
            && (field(32, 4)..=FALLBACK_MAX * (blocks + 1)).contains(&fallback);
        let form = Form::checked(field(12, 1), field(13, 1), field(14, 2)).filter(|_| agree);
        let Some(form) = form else {
            return Err(loader.damaged(Damage::Numbers, FIELDS_AT as u64));
        };
        let head = Head {
            form,
            room: Room {
                partition_bits: partitions.ilog2(),
                blocks: room as u32,
                fallback: fallback as u32,
            },
            blocks: blocks as u32,
            entries: field(32, 4) as u32,
            id: field(36, 8),
            generation: field(44, 4) as u32,
            sequence: field(48, 8),
        };
        loader.expect_len(head.file_len())?;
        Ok(head)
    }
}

impl Writer {
    /// Writes the table to a file, which is replaced only when all is on disk. The image has no
    /// keys: [`Replica::load`] reads it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), PartitionImageError> {
        self.replica()?.save(path)
    }
}

impl Replica {
    /// Writes the table to a file, which is replaced only when all is on disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), PartitionImageError> {
        let (fields, fallback) = self.image_head();
        let content = |out: &mut Blocks<'_>| self.write_to(out, &fallback);
        Ok(save(path.as_ref(), &IMAGE, &fields, content)?)
    }

    /// Returns the bytes that [`Replica::save`] writes.
    ///
    /// # Errors
    /// The table is too large for an image.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let (fields, fallback) = self.image_head();
        let mut bytes = Vec::new();
        write(&mut bytes, &IMAGE, &fields, |out| self.write_to(out, &fallback))?;
        Ok(bytes)
    }

    fn image_head(&self) -> ([u8; FIELDS], Vec<Entry>) {
        let table = &self.table;
        let mut fallback: Vec<Entry> = table.fallback_entries().collect();
        fallback.sort_unstable();
        let head = Head {
            form: self.form(),
            room: table.room,
            blocks: table.blocks() as u32,
            entries: fallback.len() as u32,
            id: self.id,
            generation: self.generation,
            sequence: self.sequence,
        };
        (head.fields(), fallback)
    }

    fn write_to(&self, out: &mut Blocks<'_>, fallback: &[Entry]) -> io::Result<()> {
        let mut content = Vec::new();
        put_words(&mut content, &[self.keys as u64, self.seed]);
        let runs = (0..self.table.partitions()).map(|partition| self.table.run(partition));
        runs.clone().for_each(|run| content.extend((run.len() as u32).to_le_bytes()));
        out.put(&content)?;
        for block in runs.flatten() {
            let (choices, words) = self.table.words(block);
            content.clear();
            put_words(&mut content, &choices);
            put_words(&mut content, &words);
            out.put(&content)?;
        }
        content.clear();
        put_entries(&mut content, fallback);
        out.put(&content)
    }

    /// Reads a table from an image, for the instruction set (`None`: as [`Isa::choose`] says) and
    /// the pages that are given. Any byte that is not as it was written is an error that says
    /// where.
    ///
    /// # Errors
    /// The file cannot be read, or is no whole image; or there is no memory for the table.
    pub fn load(
        path: impl AsRef<Path>,
        isa: Option<Isa>,
        pages: Pages,
    ) -> Result<Self, PartitionImageError> {
        let path = path.as_ref();
        Self::load_from(Loader::open(path, &IMAGE)?, path, isa, pages)
    }

    /// Reads a table from the bytes of an image, as [`Replica::load`] does.
    ///
    /// # Errors
    /// They are no whole image, or there is no memory for the table.
    pub fn decode(
        bytes: &[u8],
        isa: Option<Isa>,
        pages: Pages,
    ) -> Result<Self, PartitionImageError> {
        let path = Path::new("image");
        let loader = Loader::over(path, std::boxed::Box::new(bytes), bytes.len() as u64, &IMAGE)?;
        Self::load_from(loader, path, isa, pages)
    }

    fn load_from(
        mut loader: Loader<'_>,
        path: &Path,
        isa: Option<Isa>,
        pages: Pages,
    ) -> Result<Self, PartitionImageError> {
        let head = Head::read(&loader)?;
        let mut content = Vec::new();
        let read = |loader: &mut Loader<'_>, content: &mut Vec<u8>, len: u64| {
            loader.read_block(len..=len, content)
        };
        read(&mut loader, &mut content, head.directory_len())?;
        let sizes: Vec<u32> = content[16..].chunks_exact(4).map(|s| number(s) as u32).collect();
        let whole = sizes.iter().map(|&blocks| u64::from(blocks)).sum::<u64>();
        let fits = |&blocks: &u32| (1..=Place::BLOCKS_MAX as u32).contains(&blocks);
        if whole != u64::from(head.blocks) || !sizes.iter().all(fits) {
            return Err(loader.damaged_block().into());
        }
        let (keys, seed) = (number(&content[..8]), number(&content[8..16]));
        let failed = |error| PartitionImageError::Table { path: path.to_owned(), error };
        let isa = Isa::choose(isa).map_err(|error| failed(error.into()))?;
        let Form { row, planes, groups } = head.form;
        let shape = Shape::new(row, usize::from(planes), usize::from(groups));
        let table = Table::new(shape, head.room, &sizes, isa, pages).map_err(failed)?;
        for block in 0..head.blocks as usize {
            read(&mut loader, &mut content, head.block_len())?;
            let mut rest = Rest { bytes: &content, form: head.form };
            let parts = rest.choices().zip(rest.words(head.form.block_words()));
            let Some((choices, words)) = parts else { return Err(loader.damaged_block().into()) };
            let image = Image { choices, words, fallback: Vec::new() };
            // No keys for the fallback, so there is room for them.
            if table.set_block(block, &image).is_err() {
                return Err(loader.damaged_block().into());
            }
        }
        read(&mut loader, &mut content, 9 * u64::from(head.entries))?;
        let mut rest = Rest { bytes: &content, form: head.form };
        let entries = rest.entries(head.entries as usize);
        // Sorted, each hash once, as they were written.
        let sorted = entries.filter(|all| all.windows(2).all(|two| two[0].0 < two[1].0));
        let added = sorted.map(|entries| table.set_fallback(&entries).map_err(ApplyError::from));
        let Some(Ok(())) = added else { return Err(loader.damaged_block().into()) };
        let (id, generation) = (head.id, head.generation);
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        let mut replica = Self::new(Shared::new(table), id, generation, seed, keys);
        replica.sequence = head.sequence;
        Ok(replica)
    }
}
