//! The copy of a partition at each node: applies the next batch only.
//!
//! A batch that comes too early shows a gap, and an owner's beat shows that the end is missing:
//! both are mended by fetching. If the log has purged the batches, or a delta does not fit, the
//! snapshot takes the place of all before it.

use std::sync::Arc;

use super::{Action, Actions, Entry, Node};
use crate::log::{Batch, Reply, Request, Snapshot};
use crate::rib::Session;
use crate::table::Gpt;
use crate::{Epoch, Micros, Partition, Sequence};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replica<T> {
    pub(super) table: T,
    pub(super) applied: Sequence,
    /// The highest sequence number heard of.
    pub(super) known: Sequence,
    epoch: Epoch,
    /// When a fetch was sent that is not answered.
    asked: Option<Micros>,
    /// It needs a snapshot: at the start, after a purge, after a delta that did not fit.
    pub(super) needs_image: bool,
}

impl<T: Gpt> Replica<T> {
    pub(super) fn new() -> Self {
        Self { table: T::empty(), applied: 0, known: 0, epoch: 0, asked: None, needs_image: true }
    }
}

impl<T: Gpt> Node<T> {
    pub(super) fn log(&mut self, now: Micros, reply: Reply<T>, out: &mut Actions<T>) {
        let (Reply::Appended { partition, .. }
        | Reply::Refused { partition, .. }
        | Reply::Fetched { partition, .. }
        | Reply::Purged { partition, .. }
        | Reply::Snapshot { partition, .. }
        | Reply::Batch { partition, .. }) = reply;
        if partition.index() >= self.replicas.len() {
            return; // Of another cluster.
        }
        if now >= self.log_heard + self.settings.retry_us {
            if now >= self.log_heard + self.settings.suspend_us / 2 {
                self.log_since = now;
            }
            self.log_heard = now;
        }
        match reply {
            Reply::Batch { sequence, batch, .. } | Reply::Appended { sequence, batch, .. } => {
                self.batch(now, (partition, sequence), &batch, out);
                self.fetch_if_behind(now, partition, out);
            }
            Reply::Refused { last, .. } => {
                let replica = &mut self.replicas[partition.index()];
                replica.known = replica.known.max(last);
                self.owner_refused(now, partition, out);
            }
            Reply::Fetched { batches, last, .. } => {
                let replica = &mut self.replicas[partition.index()];
                // A server that lags has nothing yet: it is asked again later.
                if !batches.is_empty() || last <= replica.applied {
                    replica.asked = None;
                }
                replica.known = replica.known.max(last);
                for (sequence, batch) in &batches {
                    self.batch(now, (partition, *sequence), batch, out);
                }
                self.owner_fetched(now, partition, last, out);
                self.fetch_if_behind(now, partition, out);
            }
            Reply::Purged { first, .. } => {
                // A late one says nothing: no newer snapshot may come for long.
                let replica = &mut self.replicas[partition.index()];
                if first > replica.applied + 1 {
                    replica.needs_image = true;
                    self.ask_image(now, partition, out);
                }
                self.owner_purged(now, partition, first, out);
            }
            Reply::Snapshot { snapshot, .. } => {
                self.snapshot(now, partition, snapshot, out);
            }
        }
    }

    fn batch(
        &mut self,
        now: Micros,
        at: (Partition, Sequence),
        batch: &Arc<Batch<T>>,
        out: &mut Actions<T>,
    ) {
        self.replica_batch(now, at, batch, out);
        self.owner_batch(now, at, batch, out);
    }

    fn replica_batch(
        &mut self,
        now: Micros,
        (partition, sequence): (Partition, Sequence),
        batch: &Arc<Batch<T>>,
        out: &mut Actions<T>,
    ) {
        let mechanisms = self.settings.mechanisms;
        let replica = &mut self.replicas[partition.index()];
        replica.known = replica.known.max(sequence);
        let is_next = if mechanisms.gaps {
            sequence == replica.applied + 1
        } else {
            sequence > replica.applied
        };
        if !is_next || replica.needs_image {
            return;
        }
        let stale = mechanisms.epochs && batch.epoch < replica.epoch;
        if !stale {
            let image = batch.image.as_ref().map_or(Ok(()), |image| replica.table.load(image));
            self.images += u64::from(batch.image.is_some());
            if image.and_then(|()| replica.table.apply(&batch.deltas)).is_err() {
                replica.needs_image = true;
                return self.ask_image(now, partition, out);
            }
            replica.epoch = batch.epoch;
        }
        replica.applied = sequence;
        if !stale {
            let digest = |&(block, digest): &(u32, u64)| (partition, sequence, block, digest);
            let digests: Vec<_> = batch.digests.iter().map(digest).collect();
            self.compare(now, &digests, out);
            for change in &batch.changes {
                self.applied_change(now, (partition, sequence), change, out);
            }
        }
    }

    fn fetch_if_behind(&mut self, now: Micros, partition: Partition, out: &mut Actions<T>) {
        let gaps = self.settings.mechanisms.gaps;
        let retry_us = self.settings.retry_us;
        let replica = &mut self.replicas[partition.index()];
        let waits = replica.asked.is_some_and(|at| now < at + retry_us);
        if waits || replica.applied >= replica.known || !gaps {
            return;
        }
        replica.asked = Some(now);
        let request = if replica.needs_image {
            Request::Get { partition }
        } else {
            Request::Fetch { partition, from: replica.applied + 1 }
        };
        out.push(Action::Log(request));
    }

    fn ask_image(&mut self, now: Micros, partition: Partition, out: &mut Actions<T>) {
        self.replicas[partition.index()].asked = Some(now);
        out.push(Action::Log(Request::Get { partition }));
    }

    /// Asks again for what has not come.
    pub(super) fn mend(&mut self, now: Micros, out: &mut Actions<T>) {
        for partition in (0..self.settings.partitions).map(Partition) {
            let replica = &self.replicas[partition.index()];
            let waits = replica.asked.is_some_and(|at| now < at + self.settings.retry_us);
            if replica.needs_image && !waits {
                self.ask_image(now, partition, out);
            } else {
                self.fetch_if_behind(now, partition, out);
            }
        }
    }

    fn snapshot(
        &mut self,
        now: Micros,
        partition: Partition,
        snapshot: Option<Arc<Snapshot<T>>>,
        out: &mut Actions<T>,
    ) {
        if let Some(snapshot) = &snapshot {
            self.take_image(now, partition, snapshot, out);
        } else {
            // No snapshot yet: the log begins at its beginning.
            self.replicas[partition.index()].needs_image = false;
        }
        self.owner_snapshot(partition, snapshot.as_ref());
        let replica = &mut self.replicas[partition.index()];
        if !replica.needs_image {
            replica.asked = Some(now);
            out.push(Action::Log(Request::Fetch { partition, from: replica.applied + 1 }));
        }
        self.owner_load(now, partition, out);
    }

    fn take_image(
        &mut self,
        now: Micros,
        partition: Partition,
        snapshot: &Arc<Snapshot<T>>,
        out: &mut Actions<T>,
    ) {
        let replica = &mut self.replicas[partition.index()];
        if !replica.needs_image || snapshot.sequence < replica.applied {
            replica.needs_image &= snapshot.sequence < replica.applied;
            return;
        }
        if replica.table.load(&snapshot.image).is_err() {
            return;
        }
        self.images += 1;
        replica.applied = snapshot.sequence;
        replica.known = replica.known.max(snapshot.sequence);
        replica.epoch = snapshot.epoch;
        replica.needs_image = false;
        self.image_checkpoints(partition, &snapshot.rib);
        let sessions = &snapshot.rib.sessions;
        let here = self.sessions.iter().map(|(&session, _)| session);
        let mut mine: Vec<_> = here.filter(|of| self.partition(of.0) == partition).collect();
        mine.sort_unstable();
        for session in mine {
            let Some(local) = self.sessions.get(&session) else { continue };
            let kept = sessions.get(&session).is_some_and(|known| {
                let target = known.moving.is_some_and(|(to, _)| to == self.me);
                matches!(local.entry, Entry::Moved { .. }) || known.at == self.me || target
            });
            if !kept {
                self.uninstall(session, out);
            } else if let Some(known) = sessions.get(&session)
                && local.version < known.version
            {
                self.renew(session, (&known.keys, &known.context), out);
            }
        }
        let me = self.me;
        let target = |known: &Session| known.moving.is_some_and(|(to, _)| to == me);
        let mine = sessions.iter().filter(|(_, known)| known.at == me || target(known));
        let mut mine: Vec<_> = mine.collect();
        mine.sort_unstable_by_key(|entry| entry.0);
        for (&session, known) in mine {
            let content = (&known.keys, &known.context);
            let has = self.sessions.get(&session).map(|local| local.version);
            if known.at == self.me {
                // A later version: it has turned already.
                if has.is_none_or(|version| version < known.version) {
                    self.install(session, (known.version, Entry::Serving), content, out);
                    // Whether one without a checkpoint was taken over cannot be seen.
                    if has.is_none() && self.has_checkpoint(session, known.born) {
                        self.taken_over(session, known.born, out);
                    }
                }
                if let Some((to, version)) = known.moving
                    && has.is_none_or(|has| has < version)
                {
                    self.leaving.insert((to.node, partition, version, session), to);
                    self.turn_ready(now, to, out);
                }
            } else if let Some((to, version)) = known.moving
                && to == self.me
                && has.is_none_or(|has| has < version)
            {
                let entry = Entry::Standby { from: known.at };
                self.install(session, (version, entry), content, out);
            }
        }
    }
}
