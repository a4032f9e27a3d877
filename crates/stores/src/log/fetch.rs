//! Fetching batches: a few are got one by one, more by a consumer, on which the servers have to
//! agree first.
//!
//! What a consumer says is checked by its numbers, and what it lacks is got one by one: a server of
//! three that was started again may skip messages of a subject, and number them otherwise than the
//! others (nats-server 2.9.10). What is got one by one comes from the leader, which is right. Only
//! the leader's first message of a subject says that batches are purged.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::RawMessageErrorKind;
use futures_util::StreamExt;
use overbank_cluster::log::{Batch, Reply};
use overbank_cluster::table::Dense;
use overbank_cluster::{Partition, Sequence};

use super::{Failed, Found, Log};

/// Batches of a reply to a fetch, and their bytes at most.
const FETCH_MAX: usize = 256;
const FETCH_BYTES_MAX: usize = 16 << 20;
/// Batches that are got one by one at most.
const SINGLE_MAX: u64 = 128;
/// Messages that are looked at for a batch whose position is not known.
const SEARCH_MAX: u64 = 4096;

/// Batches that follow each other without a gap.
#[derive(Default)]
struct Run {
    next: Sequence,
    batches: Vec<(Sequence, Arc<Batch<Dense>>)>,
    bytes: usize,
    /// The batch that was found in place of the next one.
    gap: Option<Sequence>,
}

impl Run {
    /// Takes what comes next of the log.
    fn take(&mut self, sequence: Sequence, batch: Batch<Dense>, bytes: usize) {
        if sequence == self.next {
            self.next += 1;
            self.bytes += bytes;
            self.batches.push((sequence, Arc::new(batch)));
        } else if sequence > self.next {
            self.gap.get_or_insert(sequence);
        }
    }

    fn is_full(&self) -> bool {
        let is_long = self.batches.len() >= FETCH_MAX || self.bytes >= FETCH_BYTES_MAX;
        is_long || self.gap.is_some()
    }
}

impl Log {
    /// Returns the batches from `from` on, or that they are purged.
    pub(super) async fn fetch(
        &self,
        partition: Partition,
        from: Sequence,
    ) -> Result<Reply<Dense>, Failed> {
        let mut run = Run { next: from, ..Run::default() };
        let mut last = 0;
        if let Some(Found { sequence, batch, bytes, .. }) = self.last(partition).await? {
            last = sequence;
            if sequence <= from {
                run.take(sequence, batch, bytes);
            } else {
                if sequence - from >= SINGLE_MAX {
                    self.by_consumer(partition, sequence, &mut run).await?;
                }
                if run.batches.is_empty() {
                    let start = self.before(partition, from) + 1;
                    self.singly(partition, (start, SINGLE_MAX), &mut run).await?;
                }
                // The next batch is in the log, or purged: a position was another leader's.
                if run.batches.is_empty() {
                    self.forget(partition);
                    self.singly(partition, (1, SEARCH_MAX), &mut run).await?;
                }
            }
        }
        Ok(match run.gap {
            Some(first) if run.batches.is_empty() => Reply::Purged { partition, first },
            _ => Reply::Fetched { partition, batches: run.batches, last },
        })
    }

    /// Gets batches one by one: from this position on, and at most this number of them.
    async fn singly(
        &self,
        partition: Partition,
        (mut position, max): (u64, u64),
        run: &mut Run,
    ) -> Result<(), Failed> {
        run.gap = None;
        for _ in 0..max {
            let subject = self.subject("log", partition);
            match self.stream.get_first_raw_message_by_subject(subject, position).await {
                Ok(message) => {
                    let at = message.sequence;
                    let found = self.found(partition, &message.payload, at)?;
                    run.take(found.sequence, found.batch, found.bytes);
                    position = at + 1;
                }
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => break,
                Err(error) => return Err(error.into()),
            }
            if run.is_full() {
                break;
            }
        }
        Ok(())
    }

    async fn by_consumer(
        &self,
        partition: Partition,
        last: Sequence,
        run: &mut Run,
    ) -> Result<(), Failed> {
        let start_sequence = self.before(partition, run.next) + 1;
        let consumer = self
            .stream
            .create_consumer(pull::Config {
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
                ack_policy: AckPolicy::None,
                filter_subject: self.subject("log", partition),
                inactive_threshold: Duration::from_secs(5),
                memory_storage: true,
                num_replicas: 1,
                ..pull::Config::default()
            })
            .await?;
        let mut goes_on = true;
        while goes_on && !run.is_full() {
            let mut messages = consumer.fetch().max_messages(FETCH_MAX).messages().await?;
            goes_on = false;
            while let Some(message) = messages.next().await {
                let message = message?;
                let (sequence, batch) = self.read(&message.payload)?;
                goes_on = sequence < last;
                run.take(sequence, batch, message.payload.len());
            }
        }
        // The server removes it otherwise, after `inactive_threshold`.
        let _ = self.stream.delete_consumer(&consumer.cached_info().name).await;
        Ok(())
    }
}
