//! Batches, snapshots and messages as bytes: a version, then the fields in their order, compact.
//!
//! Tables and their deltas are in the formats of `overbank::partition`, with their checksums. Any
//! bytes are read or refused; nothing panics, and no more memory is taken than bytes are there for,
//! but for a constant.

use overbank::memory::Pages;
use overbank::partition::{Delta, Replica};
use overbank_cluster::log::{Batch, Snapshot};
use overbank_cluster::message::Message;
use overbank_cluster::rib::{Change, Rib};
use overbank_cluster::table::{Dense, DenseDelta, DenseImage};
use overbank_cluster::{Epoch, Member, Sequence};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Version of all formats here.
const VERSION: u8 = 1;

/// Bytes are not what they should be, or something has none.
#[derive(Debug, thiserror::Error)]
pub enum BytesError {
    #[error("version {0:?} of the bytes; this program knows {VERSION}: update the older nodes")]
    Version(Option<u8>),
    #[error("damaged bytes: {0}")]
    Damaged(#[from] postcard::Error),
    #[error("{0} bytes after the end")]
    TooLong(usize),
    #[error("damaged deltas: {0}")]
    Deltas(#[from] overbank::partition::BatchError),
    #[error("damaged table: {0}")]
    Table(#[from] overbank::partition::PartitionImageError),
    #[error("a table that is too large: {0}")]
    Size(#[from] std::io::Error),
}

/// Sequence number, epoch, owner, changes, deltas, digests, image.
type BatchBytes = (Sequence, Epoch, Member, Vec<Change>, Vec<u8>, Vec<(u32, u64)>, Option<Vec<u8>>);
/// Sequence number, epoch, position, sessions and keys, image.
type SnapshotBytes = (Sequence, Epoch, u64, Rib, Vec<u8>);

pub(crate) fn write<T: Serialize>(value: &T) -> Result<Vec<u8>, BytesError> {
    Ok(postcard::to_extend(value, vec![VERSION])?)
}

pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BytesError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => match postcard::take_from_bytes(rest)? {
            (value, []) => Ok(value),
            (_, rest) => Err(BytesError::TooLong(rest.len())),
        },
        other => Err(BytesError::Version(other.map(|(version, _)| *version))),
    }
}

fn table(bytes: &[u8], partitions: u16) -> Result<DenseImage, BytesError> {
    Ok(DenseImage::new(Replica::decode(bytes, None, Pages::Small)?, partitions))
}

/// Returns the bytes of the batch of a sequence number.
///
/// # Errors
/// Its deltas do not follow each other, or a table is too large.
pub fn of_batch(sequence: Sequence, batch: &Batch<Dense>) -> Result<Vec<u8>, BytesError> {
    let deltas: Vec<Delta> = batch.deltas.iter().map(|delta| delta.0.clone()).collect();
    let image = batch.image.as_ref().map(|image| image.table.encode()).transpose()?;
    let deltas = if deltas.is_empty() { Vec::new() } else { Delta::encode(&deltas)? };
    write(&(sequence, batch.epoch, batch.owner, &batch.changes, deltas, &batch.digests, image))
}

/// Returns a batch with its sequence number, of a cluster with `partitions` partitions.
///
/// # Errors
/// The bytes are those of no batch.
pub fn to_batch(bytes: &[u8], partitions: u16) -> Result<(Sequence, Batch<Dense>), BytesError> {
    let (sequence, epoch, owner, changes, deltas, digests, image): BatchBytes = read(bytes)?;
    let deltas = if deltas.is_empty() { Vec::new() } else { Delta::decode(&deltas)? };
    let batch = Batch {
        epoch,
        owner,
        changes,
        deltas: deltas.into_iter().map(DenseDelta).collect(),
        digests,
        image: image.map(|image| table(&image, partitions)).transpose()?,
    };
    Ok((sequence, batch))
}

/// Returns the bytes of a snapshot, whose last batch has this position in the stream.
///
/// # Errors
/// Its table is too large.
pub fn of_snapshot(snapshot: &Snapshot<Dense>, position: u64) -> Result<Vec<u8>, BytesError> {
    let image = snapshot.image.table.encode()?;
    write(&(snapshot.sequence, snapshot.epoch, position, &snapshot.rib, image))
}

/// Returns a snapshot, and the position of its last batch in the stream.
///
/// # Errors
/// The bytes are those of no snapshot.
pub fn to_snapshot(bytes: &[u8], partitions: u16) -> Result<(Snapshot<Dense>, u64), BytesError> {
    let (sequence, epoch, position, rib, image): SnapshotBytes = read(bytes)?;
    let snapshot = Snapshot { sequence, epoch, rib, image: table(&image, partitions)? };
    Ok((snapshot, position))
}

/// Returns the bytes of a message.
///
/// # Errors
/// None that is known: messages are plain data.
pub fn of_message(from: Member, message: &Message) -> Result<Vec<u8>, BytesError> {
    write(&(from, message))
}

/// Returns a message, and its sender.
///
/// # Errors
/// The bytes are those of no message.
pub fn to_message(bytes: &[u8]) -> Result<(Member, Message), BytesError> {
    read(bytes)
}

#[cfg(test)]
mod tests;
