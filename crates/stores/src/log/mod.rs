//! The log and the snapshots in JetStream.
//!
//! ```text
//!   stream overbank-NAME-log     subject overbank.NAME.log.PARTITION    batches with their numbers
//!        └ stored again as       subject overbank.NAME.stored.PARTITION what all nodes hear
//!   stream …-snapshots           subject overbank.NAME.snapshot.PARTITION  the last snapshot
//!                                subject overbank.NAME.floor.PARTITION  where its log may begin
//!   stream …-parts               subject overbank.NAME.part.PARTITION   parts of long snapshots
//! ```
//!
//! **Fencing.** Batch n + 1 is published under the expectation that the last message of the subject
//! is the one with batch n, by its position in the stream. The server refuses it otherwise
//! (10071). So the batches of a subject have the numbers 1, 2, 3 …, each once: an owner that was
//! deposed expects a position that is no longer the last.
//!
//! **Positions** are the leader's. What the others say of them is not taken: after a restart, a
//! server may number messages otherwise. A new leader refuses an expectation that is not its own,
//! and is asked for the right one.
//!
//! **Lost acknowledgements.** A publication has no message id: the engine may repeat batch n + 1
//! with other changes, and an id would then take one for the other. The repetition is refused if
//! the first was stored, and the engine finds its batch by fetching.
//!
//! **Hearing.** The stream publishes each stored message again on a plain subject; such a delivery
//! may be lost, and the engine fetches what it lacks. What the stream has refused is not heard.
//!
//! **Haste.** The engine repeats what takes long, and a node that joins fetches from every
//! partition at once. Of equal requests, [`EQUAL_MAX`] run at a time: repeating adds no load.

mod fetch;
mod snapshots;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::stream::{Config, LastRawMessageErrorKind, Republish, Stream};
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;
use overbank_cluster::log::{Batch, Reply, Request};
use overbank_cluster::table::Dense;
use overbank_cluster::{Partition, Sequence};

use crate::bytes;

/// Equal requests at a time: one that hangs is repeated once.
const EQUAL_MAX: usize = 2;
/// Positions of batches that are remembered, for each partition.
const POSITIONS_MAX: usize = 4096;
/// Time after which a request is given up: the engine repeats it.
const REQUEST_MAX: Duration = Duration::from_secs(2);
const SNAPSHOT_TIME_MAX: Duration = Duration::from_secs(30);
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
const POSITION: &str = "Nats-Sequence";

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A batch of the log.
struct Found {
    sequence: Sequence,
    position: u64,
    batch: Batch<Dense>,
    bytes: usize,
}

/// Returns the refusal of an append to a partition whose last batch is this.
fn refused(partition: Partition, last: Option<Found>) -> Reply<Dense> {
    Reply::Refused { partition, last: last.map_or(0, |last| last.sequence) }
}

/// What equal requests have in common: the partition, and the first batch of a fetch.
type Asked = (Partition, Option<Sequence>);

/// One of the equal requests that run.
struct One<'a>(&'a Mutex<HashMap<Asked, usize>>, Asked);

impl Drop for One<'_> {
    fn drop(&mut self) {
        let Ok(mut asked) = self.0.lock() else { return };
        if let Some(count) = asked.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                asked.remove(&self.1);
            }
        }
    }
}

/// The log of a cluster.
#[derive(Clone)]
pub(crate) struct Log {
    context: Context,
    stream: Stream,
    snapshots: Stream,
    parts: Stream,
    cluster: Arc<str>,
    partitions: u16,
    /// Positions of batches in the stream, by partition.
    positions: Arc<[Mutex<BTreeMap<Sequence, u64>>]>,
    /// Requests for batches and snapshots that run, and how many of each.
    asked: Arc<Mutex<HashMap<Asked, usize>>>,
}

impl Log {
    /// Opens the streams of a cluster, or creates them.
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
        let create = async |name: &str, config: Config| {
            let name = format!("overbank-{cluster}-{name}");
            let config = Config { name, num_replicas: replicas, ..config };
            context.get_or_create_stream(config).await
        };
        let subjects = |kinds: &[&str]| {
            kinds.iter().map(|kind| format!("overbank.{cluster}.{kind}.*")).collect()
        };
        let log = Config {
            subjects: subjects(&["log"]),
            republish: Some(Republish {
                source: format!("overbank.{cluster}.log.*"),
                destination: format!("overbank.{cluster}.stored.{{{{wildcard(1)}}}}"),
                headers_only: false,
            }),
            ..Config::default()
        };
        let last = Config {
            subjects: subjects(&["snapshot", "floor"]),
            max_messages_per_subject: 1,
            ..Config::default()
        };
        let parts = Config { subjects: subjects(&["part"]), ..Config::default() };
        let stream = create("log", log).await?;
        let (snapshots, parts) = (create("snapshots", last).await?, create("parts", parts).await?);
        let positions = (0..partitions).map(|_| Mutex::default()).collect();
        let (cluster, asked) = (cluster.into(), Arc::default());
        Ok(Log { context, stream, snapshots, parts, cluster, partitions, positions, asked })
    }

    fn subject(&self, kind: &str, partition: Partition) -> String {
        format!("overbank.{}.{kind}.{}", self.cluster, partition.0)
    }

    fn note(&self, partition: Partition, sequence: Sequence, position: u64) {
        let Some(positions) = self.positions.get(partition.index()) else { return };
        let Ok(mut positions) = positions.lock() else { return };
        positions.insert(sequence, position);
        while positions.len() > POSITIONS_MAX {
            positions.pop_first();
        }
    }

    /// Takes nothing for known of a partition's positions.
    fn forget(&self, partition: Partition) {
        let known = self.positions.get(partition.index()).and_then(|known| known.lock().ok());
        known.into_iter().for_each(|mut known| known.clear());
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

    /// Counts a request in; `None` if as many equal ones run as may.
    fn one_of(&self, asked: Asked) -> Option<One<'_>> {
        let mut counts = self.asked.lock().ok()?;
        let count = counts.entry(asked).or_default();
        (*count < EQUAL_MAX).then(|| {
            *count += 1;
            One(&self.asked, asked)
        })
    }

    /// Performs a request; returns its reply, if there is one.
    pub(crate) async fn request(&self, request: Request<Dense>) -> Option<Reply<Dense>> {
        let _one = match request {
            Request::Get { partition } => Some(self.one_of((partition, None))?),
            Request::Fetch { partition, from } => Some(self.one_of((partition, Some(from)))?),
            Request::Append { .. } | Request::Put { .. } => None,
        };
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

    /// Returns the last batch of a partition with its number and its position, if there is one.
    async fn last(&self, partition: Partition) -> Result<Option<Found>, Failed> {
        match self.stream.get_last_raw_message_by_subject(&self.subject("log", partition)).await {
            Ok(message) => self.found(partition, &message.payload, message.sequence).map(Some),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn found(&self, of: Partition, payload: &[u8], position: u64) -> Result<Found, Failed> {
        let (sequence, batch) = self.read(payload)?;
        self.note(of, sequence, position);
        Ok(Found { sequence, position, batch, bytes: payload.len() })
    }

    fn read(&self, payload: &[u8]) -> Result<(Sequence, Batch<Dense>), Failed> {
        Ok(bytes::to_batch(payload, self.partitions)?)
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
                Some(last) if last.sequence == expected => last.position,
                last => return Ok(refused(partition, last)),
            },
        };
        let sequence = expected + 1;
        let payload = bytes::of_batch(sequence, &batch)?;
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, position.to_string().as_str());
        let subject = self.subject("log", partition);
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
                Ok(refused(partition, self.last(partition).await?))
            }
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                let what = "a batch is longer than NATS takes; increase its max_payload";
                tracing::error!(len, partition = partition.0, what);
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
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
