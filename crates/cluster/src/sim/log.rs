//! The log as a linearizable append with an expected sequence number, and its snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::log::{Batch, Reply, Request, Snapshot};
use crate::table::Gpt;
use crate::{Partition, Sequence};

/// Batches of a reply to a fetch at most.
const FETCH_MAX: usize = 256;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Subject<T: Gpt> {
    /// Sequence number of the first batch that is kept.
    first: Sequence,
    batches: Vec<Arc<Batch<T>>>,
    /// The last two.
    snapshots: Vec<Arc<Snapshot<T>>>,
}

impl<T: Gpt> Default for Subject<T> {
    fn default() -> Self {
        Self { first: 1, batches: Vec::new(), snapshots: Vec::new() }
    }
}

impl<T: Gpt> Clone for Subject<T> {
    fn clone(&self) -> Self {
        let (batches, snapshots) = (self.batches.clone(), self.snapshots.clone());
        Self { first: self.first, batches, snapshots }
    }
}

impl<T: Gpt> Subject<T> {
    fn last(&self) -> Sequence {
        self.first - 1 + self.batches.len() as Sequence
    }
}

/// See the module.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Log<T: Gpt> {
    subjects: BTreeMap<Partition, Subject<T>>,
}

impl<T: Gpt> Clone for Log<T> {
    fn clone(&self) -> Self {
        Self { subjects: self.subjects.clone() }
    }
}

impl<T: Gpt> Default for Log<T> {
    fn default() -> Self {
        Self { subjects: BTreeMap::new() }
    }
}

impl<T: Gpt> Log<T> {
    /// Takes a request; returns its reply.
    pub fn request(&mut self, request: Request<T>) -> Option<Reply<T>> {
        Some(match request {
            Request::Append { partition, expected, batch } => {
                let subject = self.subjects.entry(partition).or_default();
                let last = subject.last();
                if expected.is_some_and(|expected| expected != last) {
                    return Some(Reply::Refused { partition, last });
                }
                subject.batches.push(Arc::clone(&batch));
                Reply::Appended { partition, sequence: last + 1, batch }
            }
            Request::Fetch { partition, from } => {
                let subject = self.subjects.entry(partition).or_default();
                let (first, last) = (subject.first, subject.last());
                if from < first {
                    return Some(Reply::Purged { partition, first });
                }
                let batches = (from..=last).take(FETCH_MAX);
                let at = |sequence: Sequence| {
                    (sequence, Arc::clone(&subject.batches[(sequence - first) as usize]))
                };
                Reply::Fetched { partition, batches: batches.map(at).collect(), last }
            }
            Request::Put { partition, snapshot } => {
                let subject = self.subjects.entry(partition).or_default();
                let newer = subject.snapshots.last().is_none_or(|s| s.sequence < snapshot.sequence);
                if newer {
                    subject.snapshots.push(snapshot);
                    if subject.snapshots.len() > 2 {
                        subject.snapshots.remove(0);
                    }
                    if let [older, _] = subject.snapshots.as_slice() {
                        // Never the last one: the next expectation needs it.
                        let keep = (older.sequence + 1).min(subject.last());
                        let purged = keep.saturating_sub(subject.first);
                        subject.batches.drain(..purged as usize);
                        subject.first += purged;
                    }
                }
                return None;
            }
            Request::Get { partition } => {
                let subject = self.subjects.entry(partition).or_default();
                Reply::Snapshot { partition, snapshot: subject.snapshots.last().cloned() }
            }
        })
    }

    /// Returns the last sequence number of a partition.
    pub fn last(&self, partition: Partition) -> Sequence {
        self.subjects.get(&partition).map_or(0, Subject::last)
    }

    /// Returns a batch as a subscription delivers it.
    pub fn batch(&self, partition: Partition, sequence: Sequence) -> Option<Reply<T>> {
        let subject = self.subjects.get(&partition)?;
        let at = usize::try_from(sequence.checked_sub(subject.first)?).ok()?;
        let batch = Arc::clone(subject.batches.get(at)?);
        Some(Reply::Batch { partition, sequence, batch })
    }
}
