//! Deltas as bytes: consecutive changes of one table behind one header, with a checksum.
//!
//! ```text
//!  0   8   magic "OVBKDLT\n"           32  8   sequence number of the first delta
//!  8   2   version of the format, 1    40  4   deltas
//!  10  1   bits of a row, 64 or 128    44  4   bytes of the deltas
//!  11  1   bits of a value             48  …   the deltas
//!  12  2   groups of a block           …   8   xxh3-64 of all bytes before
//!  14  2   zero
//!  16  8   table        each delta:
//!  24  4   generation   4  block: partition × 2^22 + number in the partition
//!  28  4   zero         2  group of a move; else the kind: 0 groups, 1 block, 2 partition
//!                       1  bits of the value that change in a move; else 0
//!                       a move: the correction, 8 or 16 bytes
//!                       groups: 2 turns, 2 groups, 4 fallback; then each bucket that turns
//!                               (2), each group (2) and its words, each hash (8), value (1)
//!                       block:  its choices (256), its groups' words, 4 fallback, hashes, values
//!                       partition: 4 blocks, then each block
//! ```
//!
//! All numbers are little endian. A move takes 15 or 23 bytes, whatever the value's width.
//! *Guarantees.* Any bytes are a batch or a named error. Each number is checked against the
//! header's form and the bytes that are left before memory is allocated for it. Whether the table
//! has the block is checked by [`Replica::apply`](super::Replica::apply).

use std::boxed::Box;
use std::vec::Vec;

use xxhash_rust::xxh3::xxh3_64;

use super::block::{Entry, Image};
use super::delta::{Change, Delta};
use super::shape::{BUCKETS, CHOICE_WORDS, Form, GROUPS_MAX, Place, RowBits};
use super::solve::PLANES_MAX;
use crate::file::number;

const MAGIC: [u8; 8] = *b"OVBKDLT\n";
const VERSION: u16 = 1;
const HEADER: usize = 48;
const SUM: usize = 8;
/// Kinds of changes that are no moves.
const GROUPS: u16 = 0;
const BLOCK: u16 = 1;
const PARTITION: u16 = 2;

/// Bytes are no batch of deltas, or deltas make no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The bytes do not begin like a batch.
    #[error("not a batch of partition deltas")]
    Magic,
    /// The batch has another format.
    #[error("format {found} of partition deltas: this program reads format {VERSION}")]
    Format {
        /// Format of the batch.
        found: u16,
    },
    /// The batch is shorter or longer than its header says.
    #[error("the batch has {found} bytes, its header says {expected}")]
    Length {
        /// Bytes given.
        found: u64,
        /// Bytes by the header.
        expected: u64,
    },
    /// The checksum does not agree.
    #[error("the batch is damaged")]
    Checksum,
    /// The header's numbers cannot be those of a table.
    #[error("the batch's numbers do not agree with each other")]
    Numbers,
    /// A delta has a number that its table cannot have.
    #[error("delta {sequence} of the batch is damaged")]
    Delta {
        /// Its sequence number.
        sequence: u64,
    },
    /// The deltas to encode are not consecutive changes of one table, or there are none.
    #[error("the deltas are not consecutive changes of one table")]
    Mixed,
    /// The deltas to encode have 4 GiB or more.
    #[error("the deltas have 4 GiB or more")]
    Large,
}

impl Delta {
    /// Encodes consecutive deltas of one table.
    ///
    /// # Errors
    /// [`BatchError::Mixed`], [`BatchError::Large`].
    pub fn encode(deltas: &[Delta]) -> Result<Vec<u8>, BatchError> {
        let first = deltas.first().ok_or(BatchError::Mixed)?;
        let name = |delta: &Delta| (delta.table, delta.generation, delta.form);
        for (delta, sequence) in deltas.iter().zip(first.sequence..) {
            if name(delta) != name(first) || delta.sequence != sequence {
                return Err(BatchError::Mixed);
            }
        }
        let size = deltas.iter().map(Delta::bytes).sum::<usize>();
        let bytes = u32::try_from(size).map_err(|_| BatchError::Large)?;
        let count = u32::try_from(deltas.len()).map_err(|_| BatchError::Large)?;
        let Form { row, planes, groups } = first.form;
        let mut out = Vec::with_capacity(HEADER + size + SUM);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([row.get() as u8, planes]);
        out.extend(groups.to_le_bytes());
        out.extend([0; 2]);
        out.extend(first.table.to_le_bytes());
        out.extend(first.generation.to_le_bytes());
        out.extend([0; 4]);
        out.extend(first.sequence.to_le_bytes());
        out.extend(count.to_le_bytes());
        out.extend(bytes.to_le_bytes());
        deltas.iter().for_each(|delta| delta.put(&mut out));
        let sum = xxh3_64(&out);
        out.extend(sum.to_le_bytes());
        Ok(out)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.place.0.to_le_bytes());
        let mut head = |kind: u16, planes: u8| {
            out.extend(kind.to_le_bytes());
            out.push(planes);
        };
        match &self.change {
            Change::Move { group, planes, correction } => {
                head(*group, *planes);
                put_words(out, &correction[..self.form.row.get() / 64]);
            }
            Change::Groups { turns, groups, fallback } => {
                head(GROUPS, 0);
                // At most one turn a bucket, and the groups of one block.
                out.extend((turns.len() as u16).to_le_bytes());
                out.extend((groups.len() as u16).to_le_bytes());
                out.extend((fallback.len() as u32).to_le_bytes());
                turns.iter().for_each(|turn| out.extend(turn.to_le_bytes()));
                for (group, words) in groups {
                    out.extend(group.to_le_bytes());
                    put_words(out, words);
                }
                put_entries(out, fallback);
            }
            Change::Block(image) => {
                head(BLOCK, 0);
                put_image(out, image);
            }
            Change::Partition(images) => {
                head(PARTITION, 0);
                out.extend((images.len() as u32).to_le_bytes());
                images.iter().for_each(|image| put_image(out, image));
            }
        }
    }

    /// Decodes a batch. Any damage is a named error.
    ///
    /// # Errors
    /// All of [`BatchError`] but those of [`Delta::encode`].
    pub fn decode(bytes: &[u8]) -> Result<Vec<Delta>, BatchError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(BatchError::Magic);
        }
        let found = bytes.len() as u64;
        if bytes.len() < HEADER + SUM {
            return Err(BatchError::Length { found, expected: (HEADER + SUM) as u64 });
        }
        let field = |at: usize, len: usize| number(&bytes[at..at + len]);
        let format = field(8, 2) as u16;
        if format != VERSION {
            return Err(BatchError::Format { found: format });
        }
        let expected = (HEADER + SUM) as u64 + field(44, 4);
        if found != expected {
            return Err(BatchError::Length { found, expected });
        }
        let (content, sum) = bytes.split_at(bytes.len() - SUM);
        if xxh3_64(content) != number(sum) {
            return Err(BatchError::Checksum);
        }
        let form = Form::checked(field(10, 1), field(11, 1), field(12, 2));
        let zero = field(14, 2) == 0 && field(28, 4) == 0;
        let form = form.filter(|_| zero).ok_or(BatchError::Numbers)?;
        let (table, generation) = (field(16, 8), field(24, 4) as u32);
        let (first, count) = (field(32, 8), field(40, 4));
        if count == 0 || first.checked_add(count).is_none() {
            return Err(BatchError::Numbers);
        }
        let mut rest = Rest { bytes: &content[HEADER..], form };
        let mut deltas = Vec::new();
        for sequence in first..first + count {
            let (place, change) = rest.delta().ok_or(BatchError::Delta { sequence })?;
            deltas.push(Delta { table, generation, sequence, form, place, change });
        }
        if !rest.bytes.is_empty() {
            return Err(BatchError::Numbers);
        }
        Ok(deltas)
    }
}

impl Form {
    /// The form with these numbers, if it can be that of a table.
    pub(super) fn checked(row: u64, planes: u64, groups: u64) -> Option<Form> {
        let row = match row {
            64 => RowBits::R64,
            128 => RowBits::R128,
            _ => return None,
        };
        let known =
            (1..=PLANES_MAX as u64).contains(&planes) && (2..=GROUPS_MAX as u64).contains(&groups);
        known.then_some(Form { row, planes: planes as u8, groups: groups as u16 })
    }

    /// Words of a block's groups.
    pub(super) const fn block_words(self) -> usize {
        self.groups as usize * self.group_words()
    }

    /// Whether a value has no more bits than the table.
    pub(super) const fn holds(self, value: u8) -> bool {
        self.planes == 8 || value >> self.planes == 0
    }
}

pub(super) fn put_words(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend(word.to_le_bytes()));
}

pub(super) fn put_entries(out: &mut Vec<u8>, entries: &[Entry]) {
    for (hash, value) in entries {
        out.extend(hash.to_le_bytes());
        out.push(*value);
    }
}

fn put_image(out: &mut Vec<u8>, image: &Image) {
    put_words(out, &image.choices);
    put_words(out, &image.words);
    out.extend((image.fallback.len() as u32).to_le_bytes());
    put_entries(out, &image.fallback);
}

/// Bytes that are still to be read. `None`: they end too soon, or a number cannot be.
pub(super) struct Rest<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) form: Form,
}

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(super) fn number(&mut self, len: usize) -> Option<u64> {
        self.take(len).map(number)
    }

    pub(super) fn words(&mut self, count: usize) -> Option<Vec<u64>> {
        Some(self.take(8 * count)?.chunks_exact(8).map(number).collect())
    }

    pub(super) fn entries(&mut self, count: usize) -> Option<Vec<Entry>> {
        let entries = self.take(count.checked_mul(9)?)?.chunks_exact(9);
        let entries: Vec<Entry> = entries.map(|bytes| (number(&bytes[..8]), bytes[8])).collect();
        entries.iter().all(|entry| self.form.holds(entry.1)).then_some(entries)
    }

    pub(super) fn choices(&mut self) -> Option<[u64; CHOICE_WORDS]> {
        self.words(CHOICE_WORDS)?.try_into().ok()
    }

    fn group(&mut self) -> Option<u16> {
        self.number(2).map(|group| group as u16).filter(|&group| group < self.form.groups)
    }

    fn image(&mut self) -> Option<Image> {
        let choices = self.choices()?;
        let words = self.words(self.form.block_words())?;
        let count = self.number(4)? as usize;
        Some(Image { choices, words, fallback: self.entries(count)? })
    }

    fn delta(&mut self) -> Option<(Place, Change)> {
        let place = Place(self.number(4)? as u32);
        let (kind, planes) = (self.number(2)? as u16, self.number(1)? as u8);
        if planes != 0 {
            let known = kind < self.form.groups && self.form.holds(planes);
            let words = self.words(self.form.row.get() / 64).filter(|_| known)?;
            let correction = [words[0], words.get(1).copied().unwrap_or(0)];
            return Some((place, Change::Move { group: kind, planes, correction }));
        }
        let change = match kind {
            GROUPS => {
                let [turns, groups] = [self.number(2)?, self.number(2)?];
                let fallback = self.number(4)? as usize;
                let bucket = |rest: &mut Self| {
                    rest.number(2).map(|at| at as u16).filter(|&at| usize::from(at) < BUCKETS)
                };
                let turns: Option<Vec<u16>> = (0..turns).map(|_| bucket(self)).collect();
                let words = self.form.group_words();
                let group = |rest: &mut Self| Some((rest.group()?, rest.words(words)?));
                let groups: Option<Vec<_>> = (0..groups).map(|_| group(self)).collect();
                Change::Groups { turns: turns?, groups: groups?, fallback: self.entries(fallback)? }
            }
            BLOCK => Change::Block(Box::new(self.image()?)),
            PARTITION if place.nth() == 0 => {
                let blocks = self.number(4)?;
                let blocks: Option<Vec<Image>> = (0..blocks).map(|_| self.image()).collect();
                Change::Partition(blocks.filter(|blocks| !blocks.is_empty())?)
            }
            _ => return None,
        };
        Some((place, change))
    }
}
