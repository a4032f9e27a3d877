//! The log and the snapshots in JetStream.
//!
//! ```text
//!   stream overbank-NAME-log     subject overbank.NAME.log.PARTITION    batches with their numbers
//!        └ stored again as       subject overbank.NAME.stored.PARTITION what all nodes hear
//!                                overbank.NAME.snapshot.PARTITION       the last snapshot's number
//!   bucket overbank-NAME-images  object PARTITION.NUMBER                that snapshot
//! ```
//!
//! **Fencing.** Batch n + 1 is published under the expectation that the last message of the subject
//! is the one with batch n, by its position in the stream. The server refuses it otherwise
//! (10071). So the batches of a subject have the numbers 1, 2, 3 …, each once: an owner that was
//! deposed expects a position that is no longer the last.
//!
//! **Lost acknowledgements.** A publication has no message id: the engine may repeat batch n + 1
//! with other changes, and an id would then take one for the other. The repetition is refused if
//! the first was stored, and the engine finds its batch by fetching.
//!
//! **Hearing.** The stream publishes each stored message again on a plain subject; such a delivery
//! may be lost, and the engine fetches what it lacks. What the stream has refused is not heard.
//!
//! **Snapshots.** An object is never written again. The message that names the last one expects the
//! one that its writer has seen, so a late writer replaces no newer snapshot.
//!
//! **Purging.** A snapshot replaces the one before. The log keeps the last batch of that one, and
//! all after it: never less than the last message of a subject, which the next expectation needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::object_store::{self, ObjectMetadata, ObjectStore};
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, Republish, Stream};
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;
use overbank_cluster::log::{Batch, Reply, Request, Snapshot};
use overbank_cluster::table::Dense;
use overbank_cluster::{Partition, Sequence};
use tokio::io::AsyncReadExt;

use crate::bytes;

/// Batches of a reply to a fetch, and their bytes at most.
const FETCH_MAX: usize = 256;
const FETCH_BYTES_MAX: usize = 16 << 20;
/// Positions of batches that are remembered, for each partition.
const POSITIONS_MAX: usize = 4096;
/// Longest snapshot.
const SNAPSHOT_MAX: usize = 1 << 30;
/// Time after which a request is given up: the engine repeats it.
const REQUEST_MAX: Duration = Duration::from_secs(2);
const SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(30);
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const POSITION: &str = "Nats-Sequence";

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Where a snapshot is.
struct Pointer {
    /// Its last batch, and the position of that in the stream.
    sequence: Sequence,
    position: u64,
    /// Position of the message that says so.
    at: u64,
}

/// Name of a snapshot.
fn object(partition: Partition, sequence: Sequence) -> String {
    format!("{}.{sequence}", partition.0)
}

/// The log of a cluster.
#[derive(Clone)]
pub(crate) struct Log {
    context: Context,
    stream: Stream,
    images: ObjectStore,
    cluster: Arc<str>,
    partitions: u16,
    /// Positions of batches in the stream, by partition.
    positions: Arc<[Mutex<BTreeMap<Sequence, u64>>]>,
}

impl Log {
    /// Opens the stream and the bucket of a cluster, or creates them.
    ///
    /// # Errors
    /// JetStream is not there, or refuses.
    pub(crate) async fn open(
        client: async_nats::Client,
        cluster: &str,
        partitions: u16,
        replicas: usize,
    ) -> Result<Log, Failed> {
        let mut context = jetstream::new(client);
        context.set_timeout(REQUEST_MAX);
        let stream = context
            .get_or_create_stream(Config {
                name: format!("overbank-{cluster}-log"),
                subjects: ["log", "snapshot"]
                    .map(|kind| format!("overbank.{cluster}.{kind}.*"))
                    .into(),
                num_replicas: replicas,
                republish: Some(Republish {
                    source: format!("overbank.{cluster}.log.*"),
                    destination: format!("overbank.{cluster}.stored.{{{{wildcard(1)}}}}"),
                    headers_only: false,
                }),
                ..Config::default()
            })
            .await?;
        let bucket = format!("overbank-{cluster}-images");
        let images = match context.get_object_store(&bucket).await {
            Ok(images) => images,
            Err(_) => {
                let config =
                    object_store::Config { bucket, num_replicas: replicas, ..Default::default() };
                context.create_object_store(config).await?
            }
        };
        let positions = (0..partitions).map(|_| Mutex::default()).collect();
        Ok(Log { context, stream, images, cluster: cluster.into(), partitions, positions })
    }

    fn pointers(&self, partition: Partition) -> String {
        format!("overbank.{}.snapshot.{}", self.cluster, partition.0)
    }

    fn subject(&self, partition: Partition) -> String {
        format!("overbank.{}.log.{}", self.cluster, partition.0)
    }

    fn note(&self, partition: Partition, sequence: Sequence, position: u64) {
        let Some(positions) = self.positions.get(partition.index()) else { return };
        let Ok(mut positions) = positions.lock() else { return };
        positions.insert(sequence, position);
        while positions.len() > POSITIONS_MAX {
            positions.pop_first();
        }
    }

    fn position(&self, partition: Partition, sequence: Sequence) -> Option<u64> {
        if sequence == 0 {
            return Some(0);
        }
        self.positions.get(partition.index())?.lock().ok()?.get(&sequence).copied()
    }

    /// Returns the position of the last known batch before `from`; 0 if none is known.
    fn before(&self, partition: Partition, from: Sequence) -> u64 {
        let positions = self.positions.get(partition.index()).and_then(|known| known.lock().ok());
        positions
            .and_then(|known| known.range(..from).next_back().map(|known| *known.1))
            .unwrap_or(0)
    }

    /// Performs a request; returns its reply, if there is one.
    pub(crate) async fn request(&self, request: Request<Dense>) -> Option<Reply<Dense>> {
        let limit = match request {
            Request::Put { .. } | Request::Get { .. } => SNAPSHOT_TIME_MAX,
            Request::Append { .. } | Request::Fetch { .. } => 2 * REQUEST_MAX,
        };
        match tokio::time::timeout(limit, self.perform(request)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => {
                tracing::debug!(%error, "JetStream refuses a request");
                None
            }
            Err(_) => {
                tracing::debug!("JetStream does not answer");
                None
            }
        }
    }

    async fn perform(&self, request: Request<Dense>) -> Result<Option<Reply<Dense>>, Failed> {
        match request {
            Request::Append { partition, expected, batch } => {
                // Without an expectation nothing is fenced: no product asks for it.
                let expected = expected.ok_or("an append without an expectation")?;
                self.append(partition, expected, batch).await.map(Some)
            }
            Request::Fetch { partition, from } => self.fetch(partition, from).await.map(Some),
            Request::Put { partition, snapshot } => {
                self.put(partition, &snapshot).await.map(|()| None)
            }
            Request::Get { partition } => {
                let snapshot = self.get(partition).await?.map(Arc::new);
                Ok(Some(Reply::Snapshot { partition, snapshot }))
            }
        }
    }

    /// Returns number and position of the last batch of a partition; 0 and 0 if there is none.
    async fn last(&self, partition: Partition) -> Result<(Sequence, u64), Failed> {
        match self.stream.get_last_raw_message_by_subject(&self.subject(partition)).await {
            Ok(message) => {
                let (sequence, _) = bytes::to_batch(&message.payload, self.partitions)?;
                self.note(partition, sequence, message.sequence);
                Ok((sequence, message.sequence))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok((0, 0)),
            Err(error) => Err(error.into()),
        }
    }

    async fn append(
        &self,
        partition: Partition,
        expected: Sequence,
        batch: Arc<Batch<Dense>>,
    ) -> Result<Reply<Dense>, Failed> {
        let position = match self.position(partition, expected) {
            Some(position) => position,
            None => match self.last(partition).await? {
                (last, position) if last == expected => position,
                (last, _) => return Ok(Reply::Refused { partition, last }),
            },
        };
        let sequence = expected + 1;
        let payload = bytes::of_batch(sequence, &batch)?;
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, position.to_string().as_str());
        let subject = self.subject(partition);
        let len = payload.len();
        let sent = match self.context.publish_with_headers(subject, headers, payload.into()).await {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(ack) => {
                self.note(partition, sequence, ack.sequence);
                Ok(Reply::Appended { partition, sequence, batch })
            }
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                let (last, _) = self.last(partition).await?;
                Ok(Reply::Refused { partition, last })
            }
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                let what = "a batch is longer than NATS takes; increase its max_payload";
                tracing::error!(len, partition = partition.0, what);
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn fetch(&self, partition: Partition, from: Sequence) -> Result<Reply<Dense>, Failed> {
        let (last, _) = self.last(partition).await?;
        let mut batches = Vec::new();
        if from > last {
            return Ok(Reply::Fetched { partition, batches, last });
        }
        let before = self.before(partition, from);
        let consumer = self
            .stream
            .create_consumer(pull::Config {
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: before + 1 },
                ack_policy: AckPolicy::None,
                filter_subject: self.subject(partition),
                inactive_threshold: Duration::from_secs(5),
                memory_storage: true,
                num_replicas: 1,
                ..pull::Config::default()
            })
            .await?;
        let (mut bytes_so_far, mut whole) = (0, true);
        while whole && batches.len() < FETCH_MAX && bytes_so_far < FETCH_BYTES_MAX {
            let mut messages = consumer.fetch().max_messages(FETCH_MAX).messages().await?;
            whole = false;
            while let Some(message) = messages.next().await {
                let message = message?;
                whole = true;
                let (sequence, batch) = bytes::to_batch(&message.payload, self.partitions)?;
                if let Ok(info) = message.info() {
                    self.note(partition, sequence, info.stream_sequence);
                }
                let next = from + batches.len() as Sequence;
                if sequence == next {
                    bytes_so_far += message.payload.len();
                    batches.push((sequence, Arc::new(batch)));
                } else if sequence > next {
                    return Ok(match batches.is_empty() {
                        true => Reply::Purged { partition, first: sequence },
                        false => Reply::Fetched { partition, batches, last },
                    });
                }
                whole &= sequence < last;
            }
        }
        // The server removes it otherwise, after `inactive_threshold`.
        let _ = self.stream.delete_consumer(&consumer.cached_info().name).await;
        Ok(Reply::Fetched { partition, batches, last })
    }

    async fn put(&self, partition: Partition, snapshot: &Snapshot<Dense>) -> Result<(), Failed> {
        let position = self.position(partition, snapshot.sequence);
        let position = position.ok_or("a snapshot of a batch whose position is not known")?;
        let before = self.pointer(partition).await?;
        if before.as_ref().is_some_and(|before| before.sequence >= snapshot.sequence) {
            return Ok(());
        }
        let content = bytes::of_snapshot(snapshot, position)?;
        let name = object(partition, snapshot.sequence);
        let meta = ObjectMetadata { name: name.clone(), ..Default::default() };
        self.images.put(meta, &mut content.as_slice()).await?;
        let pointer = postcard::to_allocvec(&(snapshot.sequence, position))?;
        let mut headers = HeaderMap::new();
        let expected = before.as_ref().map_or(0, |before| before.at);
        headers.insert(EXPECTED, expected.to_string().as_str());
        let subject = self.pointers(partition);
        let sent = self.context.publish_with_headers(subject.clone(), headers, pointer.into());
        if let Err(error) = sent.await?.await {
            // Another one came first, or the answer is lost: then a later snapshot replaces both.
            if error.kind() == PublishErrorKind::WrongLastSequence {
                self.images.delete(&name).await?;
            }
            return Err(error.into());
        }
        self.stream.purge().filter(subject).keep(1).await?;
        if let Some(before) = before {
            self.stream.purge().filter(self.subject(partition)).sequence(before.position).await?;
            self.images.delete(object(partition, before.sequence)).await?;
        }
        Ok(())
    }

    /// Returns where the last snapshot of a partition is.
    async fn pointer(&self, partition: Partition) -> Result<Option<Pointer>, Failed> {
        match self.stream.get_last_raw_message_by_subject(&self.pointers(partition)).await {
            Ok(message) => {
                let (sequence, position) = postcard::from_bytes(&message.payload)?;
                Ok(Some(Pointer { sequence, position, at: message.sequence }))
            }
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn get(&self, partition: Partition) -> Result<Option<Snapshot<Dense>>, Failed> {
        let Some((snapshot, position)) = self.load(partition).await? else { return Ok(None) };
        self.note(partition, snapshot.sequence, position);
        Ok(Some(snapshot))
    }

    async fn load(&self, partition: Partition) -> Result<Option<(Snapshot<Dense>, u64)>, Failed> {
        let Some(pointer) = self.pointer(partition).await? else { return Ok(None) };
        // It may just have been replaced: the engine asks again.
        let mut object = self.images.get(object(partition, pointer.sequence)).await?;
        if object.info().size > SNAPSHOT_MAX {
            return Err(format!("a snapshot of {} bytes", object.info().size).into());
        }
        let mut content = Vec::new();
        object.read_to_end(&mut content).await?;
        Ok(Some(bytes::to_snapshot(&content, self.partitions)?))
    }

    /// Hands over what the stream has stored, until `take` returns false.
    ///
    /// # Errors
    /// The subscription cannot be made.
    pub(crate) async fn hear<F: Future<Output = bool>>(
        &self,
        client: async_nats::Client,
        mut take: impl FnMut(Reply<Dense>) -> F,
    ) -> Result<(), Failed> {
        let prefix = format!("overbank.{}.stored.", self.cluster);
        let mut stored = client.subscribe(format!("{prefix}*")).await?;
        while let Some(message) = stored.next().await {
            let partition = message.subject.strip_prefix(&prefix);
            let partition = partition.and_then(|number| number.parse().ok()).map(Partition);
            let position = message.headers.as_ref().and_then(|headers| headers.get(POSITION));
            let position = position.and_then(|position| position.as_str().parse().ok());
            let (Some(partition), Some(position)) = (partition, position) else { continue };
            match bytes::to_batch(&message.payload, self.partitions) {
                Ok((sequence, batch)) => {
                    self.note(partition, sequence, position);
                    let batch = Arc::new(batch);
                    if !take(Reply::Batch { partition, sequence, batch }).await {
                        break;
                    }
                }
                Err(error) => tracing::error!(%error, "a batch of the log cannot be read"),
            }
        }
        Ok(())
    }
}
