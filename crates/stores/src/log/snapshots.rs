//! Snapshots, and what the log need not keep any more.
//!
//! A snapshot that is short is kept in the message that says that it is the last one; a long one in
//! parts, which that message names. The message expects the one that its writer has seen, so a late
//! writer replaces no newer snapshot.
//!
//! **Purging.** Of each partition, the log keeps the last batch of the snapshot before the last one
//! and all after it: never less than the last message of a subject, which the next expectation
//! needs. A writer leaves the positions up to which its partition needs nothing (the *floor*), and
//! that of partition 0 deletes what is below the floors of all. So a partition without changes has
//! to go on, too: its owner appends an empty batch now and then.
//!
//! Messages are deleted one by one. A server (nats-server 2.9.10, three of them) that is started
//! again repeats a purge from its journal, and then removes all that the stream had at the time of
//! the purge, whatever sequence or subject the purge named. A deletion it repeats as it was.

use async_nats::HeaderMap;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use futures_util::{StreamExt, future, stream};
use overbank_cluster::log::Snapshot;
use overbank_cluster::table::Dense;
use overbank_cluster::{Partition, Sequence};

use super::{EXPECTED, Failed, Log};
use crate::bytes;

/// Bytes of a snapshot that is kept in the message; longer ones are in parts of as many.
const PART: usize = 256 << 10;
/// Messages that are deleted with a snapshot at most, and at the same time: three servers on two
/// cores take 20,000 of these a second. The rest waits for the next snapshot of partition 0, which
/// is made every 300 s at least, and more often if it has changes. So while it has none, and the
/// others have more than 800 batches/s, the log grows.
const DELETED_MAX: u64 = 1 << 18;
const DELETED_AT_ONCE: usize = 64;
/// Parts of a snapshot at most: 1 GiB.
const PARTS_MAX: usize = 4096;

/// Where a snapshot is.
struct Pointer {
    /// Its last batch, and the position of that in the log.
    sequence: Sequence,
    position: u64,
    content: Content,
    /// Position of the message that says so.
    at: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
enum Content {
    Whole(Vec<u8>),
    /// Positions of its parts.
    Parts(Vec<u64>),
}

/// Below these positions, a partition needs nothing: in the log, and of the parts.
type Floor = (u64, u64);

impl Log {
    pub(super) async fn put(
        &self,
        partition: Partition,
        snapshot: &Snapshot<Dense>,
    ) -> Result<(), Failed> {
        let position = self.position(partition, snapshot.sequence);
        let position = position.ok_or("a snapshot of a batch whose position is not known")?;
        let before = self.pointer(partition).await?;
        if before.as_ref().is_some_and(|before| before.sequence >= snapshot.sequence) {
            return Ok(());
        }
        let content = bytes::of_snapshot(snapshot, position)?;
        let content = if content.len() <= PART {
            Content::Whole(content)
        } else {
            self.keep_parts(partition).await?;
            Content::Parts(self.put_parts(partition, &content).await?)
        };
        let first_part = match &content {
            Content::Whole(_) => u64::MAX,
            Content::Parts(parts) => parts.first().copied().unwrap_or(u64::MAX),
        };
        let pointer = postcard::to_allocvec(&(snapshot.sequence, position, content))?;
        let mut headers = HeaderMap::new();
        let expected = before.as_ref().map_or(0, |before| before.at);
        headers.insert(EXPECTED, expected.to_string().as_str());
        // Refused, or lost: a later snapshot replaces it.
        let subject = self.subject("snapshot", partition);
        self.context.publish_with_headers(subject, headers, pointer.into()).await?.await?;
        let floor = before.map_or(0, |before| before.position);
        self.put_floor(partition, (floor, first_part)).await?;
        if partition.0 == 0 {
            self.purge().await?;
        }
        Ok(())
    }

    async fn floor(&self, partition: Partition) -> Result<Option<Floor>, Failed> {
        let floor = self.last_of(&self.snapshots, &self.subject("floor", partition)).await?;
        Ok(floor.map(|(floor, _)| postcard::from_bytes(&floor)).transpose()?)
    }

    async fn put_floor(&self, partition: Partition, floor: Floor) -> Result<(), Failed> {
        let floor = postcard::to_allocvec(&floor)?;
        self.context.publish(self.subject("floor", partition), floor.into()).await?.await?;
        Ok(())
    }

    /// Lets no part go that comes from now on, nor one that is needed now.
    async fn keep_parts(&self, partition: Partition) -> Result<(), Failed> {
        let next = self.parts.get_info().await?.state.last_sequence + 1;
        let (log, parts) = self.floor(partition).await?.unwrap_or((0, u64::MAX));
        self.put_floor(partition, (log, parts.min(next))).await
    }

    async fn put_parts(&self, partition: Partition, content: &[u8]) -> Result<Vec<u64>, Failed> {
        if content.len().div_ceil(PART) > PARTS_MAX {
            return Err(format!("a snapshot of {} bytes", content.len()).into());
        }
        let mut parts = Vec::new();
        for part in content.chunks(PART) {
            let subject = self.subject("part", partition);
            let part = part.to_vec().into();
            parts.push(self.context.publish(subject, part).await?.await?.sequence);
        }
        Ok(parts)
    }

    /// Removes what no partition needs. What comes while the floors are read is kept.
    async fn purge(&self) -> Result<(), Failed> {
        let mut log = self.stream.get_info().await?.state.last_sequence;
        let mut parts = self.parts.get_info().await?.state.last_sequence;
        for partition in (0..self.partitions).map(Partition) {
            if let Some(floor) = self.floor(partition).await? {
                (log, parts) = (log.min(floor.0), parts.min(floor.1));
            } else if self.last(partition).await?.is_some() {
                return Ok(()); // All of it is needed.
            }
        }
        for (stream, floor) in [(&self.stream, log), (&self.parts, parts)] {
            let first = stream.get_info().await?.state.first_sequence;
            let gone = first..floor.min(first + DELETED_MAX);
            let deleted = stream::iter(gone).map(|position| stream.delete_message(position));
            // One that is gone is refused.
            deleted.buffer_unordered(DELETED_AT_ONCE).for_each(|_| future::ready(())).await;
        }
        Ok(())
    }

    /// Returns the last message of a subject, and its position.
    async fn last_of(
        &self,
        stream: &Stream,
        subject: &str,
    ) -> Result<Option<(Vec<u8>, u64)>, Failed> {
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some((message.payload.to_vec(), message.sequence))),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns where the last snapshot of a partition is.
    async fn pointer(&self, partition: Partition) -> Result<Option<Pointer>, Failed> {
        let last = self.last_of(&self.snapshots, &self.subject("snapshot", partition)).await?;
        let Some((pointer, at)) = last else { return Ok(None) };
        let (sequence, position, content) = postcard::from_bytes(&pointer)?;
        Ok(Some(Pointer { sequence, position, content, at }))
    }

    pub(super) async fn get(
        &self,
        partition: Partition,
    ) -> Result<Option<Snapshot<Dense>>, Failed> {
        let Some(Pointer { content, .. }) = self.pointer(partition).await? else {
            return Ok(None);
        };
        let content = match content {
            Content::Whole(content) => content,
            Content::Parts(parts) if parts.len() > PARTS_MAX => {
                return Err(format!("a snapshot of {} parts", parts.len()).into());
            }
            // It may just have been replaced: the engine asks again.
            Content::Parts(parts) => {
                let mut content = Vec::new();
                for part in parts {
                    let part = self.parts.get_raw_message(part).await?;
                    if part.subject.as_str() != self.subject("part", partition) {
                        return Err("a part of another partition's snapshot".into());
                    }
                    content.extend_from_slice(&part.payload);
                }
                content
            }
        };
        let (snapshot, position) = bytes::to_snapshot(&content, self.partitions)?;
        self.note(partition, snapshot.sequence, position);
        Ok(Some(snapshot))
    }
}
