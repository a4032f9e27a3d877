//! Register and log of a cluster in memory: what etcd and JetStream are otherwise.
//!
//! The register is the model that the engine is checked with ([`overbank_cluster::sim`]). The log
//! keeps bytes that it does not read, by the rules of the model's log, which is its twin in tests.
//!
//! Bounds: [`CHANGES_MAX`] changes of the register, [`LEASES_MAX`] leases, [`LOG_MAX`] bytes of
//! batches and snapshots. Panics: none.

use std::collections::VecDeque;
use std::sync::Arc;

use overbank_cluster::etcd::{Reply, Request};
use overbank_cluster::sim::Etcd;
use overbank_cluster::{Micros, Partition, Revision, Sequence};

/// Changes of the register that a node may be behind.
const CHANGES_MAX: usize = 1 << 12;
/// Leases: a node has a few.
const LEASES_MAX: usize = 1 << 10;
/// Bytes of all batches and snapshots.
const LOG_MAX: usize = 1 << 30;
/// Batches of an answer to a fetch, and their bytes at most but for the first.
const FETCH_MAX: usize = 256;
const FETCH_BYTES_MAX: usize = 8 << 20;

type Bytes = Arc<[u8]>;

/// The log of a partition.
#[derive(Default)]
struct Subject {
    /// Batches before the first that is kept.
    purged: Sequence,
    batches: VecDeque<Bytes>,
    /// The last two.
    snapshots: Vec<(Sequence, Bytes)>,
}

impl Subject {
    fn last(&self) -> Sequence {
        self.purged + self.batches.len() as Sequence
    }
}

/// See the module.
pub(crate) struct Store {
    etcd: Etcd,
    /// Lifetime of a lease.
    lease_us: Micros,
    subjects: Vec<Subject>,
    /// Of batches and snapshots.
    bytes: usize,
    bytes_max: usize,
}

/// What became of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Appended {
    As(Sequence),
    /// The last one is another.
    Not(Sequence),
    /// There is no such partition, or no room.
    NoRoom,
}

/// What a fetch found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    Batches(Vec<(Sequence, Bytes)>, Sequence),
    Purged(Sequence),
}

/// Changes that a watch has not shown are forgotten.
#[derive(Debug)]
pub(crate) struct Forgotten;

impl Store {
    pub(crate) fn new(partitions: u16, lease_us: Micros) -> Store {
        let subjects = (0..partitions).map(|_| Subject::default()).collect();
        Store { etcd: Etcd::default(), lease_us, subjects, bytes: 0, bytes_max: LOG_MAX }
    }

    /// Takes a request to the register.
    pub(crate) fn request(&mut self, now: Micros, request: Request) -> Option<Reply> {
        if matches!(request, Request::Grant { .. }) && self.etcd.leases() >= LEASES_MAX {
            self.expire(now);
            if self.etcd.leases() >= LEASES_MAX {
                return None;
            }
        }
        let reply = self.etcd.request(now, self.lease_us, request);
        self.etcd.compact(CHANGES_MAX);
        reply
    }

    /// Ends the leases whose time is over.
    pub(crate) fn expire(&mut self, now: Micros) {
        self.etcd.expire(now);
        self.etcd.compact(CHANGES_MAX);
    }

    /// Returns the number of the register's last change.
    pub(crate) fn revision(&self) -> Revision {
        self.etcd.revision()
    }

    /// Returns all keys of the register.
    pub(crate) fn all(&self) -> Vec<Reply> {
        self.etcd.all()
    }

    /// Returns the changes of the register after one.
    ///
    /// # Errors
    /// Some of them are forgotten.
    pub(crate) fn changes(&self, after: Revision) -> Result<Vec<Reply>, Forgotten> {
        let changes = after + 1..=self.revision();
        changes.map(|revision| self.etcd.change(revision).ok_or(Forgotten)).collect()
    }

    fn has_room(&self, len: usize) -> bool {
        let has_room = self.bytes.saturating_add(len) <= self.bytes_max;
        if !has_room {
            tracing::error!(bytes = self.bytes, "the cluster's log is full: remove sessions");
        }
        has_room
    }

    /// Appends a batch if the last one is `expected`.
    pub(crate) fn append(&mut self, at: Partition, expected: Sequence, batch: Bytes) -> Appended {
        let has_room = self.has_room(batch.len());
        match self.subjects.get_mut(at.index()) {
            Some(subject) if subject.last() != expected => Appended::Not(subject.last()),
            Some(subject) if has_room => {
                self.bytes += batch.len();
                subject.batches.push_back(batch);
                Appended::As(subject.last())
            }
            _ => Appended::NoRoom,
        }
    }

    /// Returns the batches from one on; `None`: there is no such partition.
    pub(crate) fn fetch(&self, at: Partition, from: Sequence) -> Option<Fetched> {
        let subject = self.subjects.get(at.index())?;
        let Some(skipped) = from.checked_sub(subject.purged + 1) else {
            return Some(Fetched::Purged(subject.purged + 1));
        };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let (mut batches, mut bytes) = (Vec::new(), 0);
        for batch in subject.batches.iter().skip(skipped).take(FETCH_MAX) {
            bytes += batch.len();
            if bytes > FETCH_BYTES_MAX && !batches.is_empty() {
                break;
            }
            batches.push((from + batches.len() as Sequence, batch.clone()));
        }
        Some(Fetched::Batches(batches, subject.last()))
    }

    /// Keeps a snapshot, and purges what the one before it contains: never the last batch, which
    /// the next expectation needs.
    pub(crate) fn put(&mut self, at: Partition, sequence: Sequence, snapshot: Bytes) {
        let has_room = self.has_room(snapshot.len());
        let Some(subject) = self.subjects.get_mut(at.index()).filter(|_| has_room) else { return };
        let is_newer = subject.snapshots.last().is_none_or(|(known, _)| *known < sequence);
        // What no batch has led to is no snapshot.
        if !is_newer || sequence > subject.last() {
            return;
        }
        self.bytes += snapshot.len();
        subject.snapshots.push((sequence, snapshot));
        if subject.snapshots.len() > 2 {
            self.bytes -= subject.snapshots.remove(0).1.len();
        }
        if let [(older, _), _] = subject.snapshots[..] {
            let purge = (older + 1).min(subject.last()).saturating_sub(subject.purged + 1);
            let purge = subject.batches.drain(..purge as usize);
            let purged: Vec<usize> = purge.map(|batch| batch.len()).collect();
            subject.purged += purged.len() as Sequence;
            self.bytes -= purged.iter().sum::<usize>();
        }
    }

    /// Returns the last snapshot, if there is one.
    pub(crate) fn get(&self, at: Partition) -> Option<Bytes> {
        self.subjects.get(at.index())?.snapshots.last().map(|(_, snapshot)| snapshot.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_cluster::etcd::{Key, Lease, Value};
    use overbank_cluster::log::{self, Batch, Snapshot};
    use overbank_cluster::rib::Rib;
    use overbank_cluster::sim::Log;
    use overbank_cluster::table::{Dense, Gpt};
    use overbank_cluster::{Member, NodeId, Settings};
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(u64),
        Fetch(u64),
        Put(u64),
        Get,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let number = 0..6u64;
        let step = prop_oneof![
            6 => number.clone().prop_map(|back| Step::Append(back / 4)),
            2 => number.clone().prop_map(Step::Fetch),
            2 => number.prop_map(Step::Put),
            1 => Just(Step::Get),
        ];
        prop::collection::vec(step, 0..60)
    }

    /// Numbers by which batches and snapshots are known again.
    fn named(name: u64) -> Bytes {
        Arc::from(name.to_be_bytes())
    }

    fn batch(name: u64) -> Arc<Batch<Dense>> {
        let owner = Member::default();
        Arc::new(Batch {
            epoch: name,
            owner,
            changes: vec![],
            deltas: vec![],
            digests: vec![],
            image: None,
        })
    }

    proptest! {
        /// It answers as the model does that the engine is checked with.
        #[test]
        fn the_log_is_that_of_the_model(steps in steps()) {
            let settings = Settings { partition_keys: 16, ..Settings::default() };
            let writer = Dense::build(&settings, 1, std::iter::empty()).expect("a table");
            let at = Partition(1);
            let (mut store, mut model) = (Store::new(2, 1), Log::<Dense>::default());
            let mut name = 0;
            for step in steps {
                let last = model.last(at);
                name += 1;
                match step {
                    Step::Append(back) => {
                        let expected = last.saturating_sub(back);
                        let batch = batch(name);
                        let request =
                            log::Request::Append { partition: at, expected: Some(expected), batch };
                        let done = store.append(at, expected, named(name));
                        match model.request(request) {
                            Some(log::Reply::Appended { sequence, .. }) => {
                                prop_assert_eq!(done, Appended::As(sequence));
                            }
                            Some(log::Reply::Refused { last, .. }) => {
                                prop_assert_eq!(done, Appended::Not(last));
                            }
                            _ => return Err(TestCaseError::fail("another answer")),
                        }
                    }
                    Step::Fetch(back) => {
                        let from = (last + 2).saturating_sub(back);
                        let fetched = store.fetch(at, from);
                        match model.request(log::Request::Fetch { partition: at, from }) {
                            Some(log::Reply::Purged { first, .. }) => {
                                prop_assert_eq!(fetched, Some(Fetched::Purged(first)));
                            }
                            Some(log::Reply::Fetched { batches, last, .. }) => {
                                let batches = batches.iter().map(|(n, b)| (*n, named(b.epoch)));
                                let batches = Fetched::Batches(batches.collect(), last);
                                prop_assert_eq!(fetched, Some(batches));
                            }
                            _ => return Err(TestCaseError::fail("another answer")),
                        }
                    }
                    Step::Put(back) => {
                        let Some(sequence) = last.checked_sub(back) else { continue };
                        let image = Dense::image(&writer).expect("memory");
                        let (rib, epoch) = (Rib::default(), name);
                        let snapshot = Arc::new(Snapshot { sequence, epoch, rib, image });
                        model.request(log::Request::Put { partition: at, snapshot });
                        store.put(at, sequence, named(name));
                    }
                    Step::Get => {
                        let Some(log::Reply::Snapshot { snapshot, .. }) =
                            model.request(log::Request::Get { partition: at })
                        else {
                            return Err(TestCaseError::fail("no answer"));
                        };
                        prop_assert_eq!(store.get(at), snapshot.map(|s| named(s.epoch)));
                    }
                }
                let subject = &store.subjects[1];
                let held = subject.batches.iter().chain(subject.snapshots.iter().map(|s| &s.1));
                prop_assert_eq!(store.bytes, held.map(|bytes| bytes.len()).sum::<usize>());
            }
        }
    }

    #[test]
    fn what_has_no_room_is_not_taken() {
        let mut store = Store { bytes_max: 20, ..Store::new(1, 1) };
        let at = Partition(0);
        assert_eq!(store.append(at, 0, named(1)), Appended::As(1));
        assert_eq!(store.append(at, 1, named(2)), Appended::As(2));
        assert_eq!(store.append(at, 2, named(3)), Appended::NoRoom);
        assert_eq!(store.append(Partition(1), 0, named(4)), Appended::NoRoom);
        store.put(at, 2, named(5));
        assert!(store.get(at).is_none() && store.fetch(Partition(1), 1).is_none());
        assert_eq!(store.fetch(at, u64::MAX), Some(Fetched::Batches(Vec::new(), 2)));
        // Of no batch.
        let mut store = Store::new(1, 1);
        store.put(at, 9, named(1));
        assert!(store.get(at).is_none());
    }

    /// A fetch is in several answers if its batches are long.
    #[test]
    fn long_batches_come_in_parts() {
        let mut store = Store::new(1, 1);
        let at = Partition(0);
        let long: Bytes = vec![0; FETCH_BYTES_MAX / 2 + 1].into();
        for expected in 0..3 {
            assert_eq!(store.append(at, expected, long.clone()), Appended::As(expected + 1));
        }
        for from in 1..=3 {
            let Some(Fetched::Batches(batches, 3)) = store.fetch(at, from) else { panic!() };
            assert_eq!(batches.iter().map(|batch| batch.0).collect::<Vec<_>>(), [from]);
        }
    }

    #[test]
    fn a_watch_shows_all_changes_or_says_that_it_cannot() {
        let mut store = Store::new(1, 1_000_000);
        let txn = |epoch| Request::Txn {
            compare: Vec::new(),
            key: Key::Owner(Partition(0)),
            value: Value::Owner(epoch, Member::default()),
            lease: None,
        };
        for epoch in 0..3 {
            store.request(0, txn(epoch));
        }
        assert_eq!(store.all().len(), 1);
        assert_eq!(store.changes(0).expect("kept").len(), 3);
        assert_eq!(store.changes(3).expect("kept").len(), 0);
        for epoch in 0..CHANGES_MAX as u64 {
            store.request(0, txn(epoch));
        }
        assert_eq!(store.revision(), CHANGES_MAX as u64 + 3);
        assert!(store.changes(2).is_err() && store.changes(3).is_ok());
        assert_eq!(store.all().len(), 1);
    }

    #[test]
    fn leases_are_bounded_and_end() {
        let mut store = Store::new(1, 1_000_000);
        let member = Member { node: NodeId(1), incarnation: 1 };
        let grant = |nth| Request::Grant { lease: Lease { member, nth }, sent: 0 };
        let granted =
            (0..2 * LEASES_MAX as u32).filter(|nth| store.request(0, grant(*nth)).is_some());
        assert_eq!(granted.count(), LEASES_MAX);
        let key = Key::Alive(NodeId(1));
        let lease = Lease { member, nth: 0 };
        let value = Value::Alive(lease, Arc::default());
        let alive = Request::Txn { compare: vec![(key, 0)], key, value, lease: Some(lease) };
        store.request(0, alive);
        assert_eq!(store.all().len(), 1);
        store.expire(1_000_001);
        assert!(store.all().is_empty());
        assert!(store.request(1_000_001, grant(0)).is_some());
    }
}
