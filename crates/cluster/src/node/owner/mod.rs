//! The owner of a partition: the one writer of its log.
//!
//! ```text
//!   Loading ─ snapshot, log to its end ─▶ Claiming ─ own first batch in the log ─▶ Reigning
//! ```
//! One batch is under way at a time. A batch counts when it shows in the log, under whatever reply
//! or delivery; only then the RIB changes. Requests wait in a queue and are checked against the RIB
//! when their batch is formed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Action, Actions, Node};
use crate::etcd::State;
use crate::log::{Batch, Request, Snapshot};
use crate::message::{Message, RequestId, Route};
use crate::rib::{Change, Context, Hold, Rib, Session};
use crate::table::Gpt;
use crate::{Epoch, Index, Key, Member, Micros, NodeId, Partition, Sequence, SessionId, Version};

mod asked;
mod batch;
mod settle;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// It has no snapshot yet.
    Loading,
    /// It replays the log and claims its end.
    Claiming,
    Reigning,
}

/// What is to be logged if it still fits then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Wish {
    /// A new session, or a change of one.
    Establish(SessionId),
    Move(SessionId, Option<NodeId>, RequestId),
    /// The target of a move is gone.
    Retarget(SessionId),
    Arrived(SessionId, Version),
    /// The member of a session is gone.
    Replace(SessionId),
    Remove(SessionId, Option<RequestId>),
    Reserve(SessionId, Key),
    /// If the key is still held so.
    Release(u64, Hold),
    Freed(u64, Version),
    Route(Route),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Establishing {
    keys: Arc<[Key]>,
    context: Context,
    to: Option<NodeId>,
    /// It exists, and is changed.
    exists: bool,
    /// Keys of other partitions that are not reserved yet.
    missing: BTreeSet<u64>,
    /// Those that wait for it to be logged.
    requests: Vec<RequestId>,
    until: Micros,
}

/// A session whose deltas have not been applied by all members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unsettled {
    version: Version,
    keys: Arc<[Key]>,
    to: Option<Member>,
    /// The member that it has moved from, with the version of its stub there.
    left: Option<(Member, Version)>,
    /// Keys of other partitions, with the batch that directed them.
    routed: BTreeMap<u64, Sequence>,
    asked: Micros,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner<T: Gpt> {
    epoch: Epoch,
    phase: Phase,
    rib: Rib,
    /// The last batch in the RIB.
    at: Sequence,
    /// The epoch of that batch.
    seen: Epoch,
    writer: Option<T::Writer>,
    inflight: Option<(Arc<Batch<T>>, Micros)>,
    queue: VecDeque<Wish>,
    /// Moves of sessions that are not settled, and until when they wait for that.
    patient: BTreeMap<(SessionId, RequestId), (Micros, Option<NodeId>)>,
    establishing: BTreeMap<SessionId, Establishing>,
    unsettled: Index<SessionId, Unsettled>,
    /// Requests that wait for a logged change to be applied by all.
    waiting: Index<SessionId, Vec<RequestId>>,
    /// Until when freed keys rest, by this node's clock.
    rests: BTreeMap<u64, Micros>,
    /// From when reservations are checked, and keys that were directed without one.
    reserved: BTreeMap<u64, Micros>,
    /// Keys that are to be directed and are not reserved: the direction may be late.
    unreserved: BTreeSet<u64>,
    /// Blocks that the next batch has again as they are, and those whose digests it has.
    again: BTreeSet<u32>,
    digests: BTreeSet<u32>,
    snapshot_at: Sequence,
    /// Changes since then.
    changed: usize,
    /// When the next one is due if there are any.
    snapshot_due: Micros,
    /// Sessions of members that are gone for which no node has room.
    homeless: BTreeSet<SessionId>,
    asked: Micros,
    /// When owners of other partitions were last asked to free keys.
    freed: Micros,
}

/// Keys of a beat that other owners are asked again to free.
const FREED_MAX: usize = 4096;

impl<T: Gpt> Owner<T> {
    fn new(epoch: Epoch, now: Micros, snapshot_due: Micros) -> Self {
        Self {
            epoch,
            phase: Phase::Loading,
            rib: Rib::default(),
            at: 0,
            seen: 0,
            writer: None,
            inflight: None,
            queue: VecDeque::new(),
            patient: BTreeMap::new(),
            establishing: BTreeMap::new(),
            unsettled: Index::default(),
            waiting: Index::default(),
            rests: BTreeMap::new(),
            reserved: BTreeMap::new(),
            unreserved: BTreeSet::new(),
            again: BTreeSet::new(),
            digests: BTreeSet::new(),
            snapshot_at: 0,
            changed: 0,
            snapshot_due,
            homeless: BTreeSet::new(),
            asked: now,
            freed: now,
        }
    }

    pub(super) fn reigns(&self) -> bool {
        self.phase == Phase::Reigning
    }

    pub(super) fn rib(&self) -> &Rib {
        &self.rib
    }

    pub(super) fn homeless(&self) -> usize {
        self.homeless.len()
    }

    pub(super) fn last(&self) -> Sequence {
        self.at
    }

    fn append(
        &mut self,
        now: Micros,
        own: Partition,
        fenced: bool,
        batch: Arc<Batch<T>>,
    ) -> Action<T> {
        self.inflight = Some((Arc::clone(&batch), now));
        let expected = fenced.then_some(self.at);
        Action::Log(Request::Append { partition: own, expected, batch })
    }
}

impl<T: Gpt> Node<T> {
    /// etcd names another owner of a partition.
    pub(super) fn owner_changed(&mut self, now: Micros, own: Partition, out: &mut Actions<T>) {
        match self.view.owners.get(&own) {
            Some(&(epoch, owner, _)) if owner == self.me => {
                if self.owners.get(&own).is_none_or(|owner| owner.epoch < epoch) {
                    // Not all partitions at a time.
                    let crate::Settings { partitions, snapshot_us, .. } = self.settings;
                    let part = u64::from(own.0 + 1) * snapshot_us / u64::from(partitions);
                    self.owners.insert(own, Owner::new(epoch, now, now + part));
                    out.push(Action::Log(Request::Get { partition: own }));
                }
            }
            _ => drop(self.owners.remove(&own)),
        }
    }

    pub(super) fn owner_snapshot(&mut self, own: Partition, snapshot: Option<&Arc<Snapshot<T>>>) {
        let Some(owner) = self.owners.get_mut(&own) else { return };
        if owner.phase != Phase::Loading {
            return;
        }
        owner.phase = Phase::Claiming;
        if let Some(snapshot) = snapshot {
            owner.rib = snapshot.rib.clone();
            (owner.at, owner.seen) = (snapshot.sequence, snapshot.epoch);
            owner.snapshot_at = snapshot.sequence;
        }
    }

    pub(super) fn owner_load(&mut self, now: Micros, own: Partition, out: &mut Actions<T>) {
        if let Some(owner) = self.owners.get_mut(&own)
            && owner.phase == Phase::Claiming
        {
            owner.asked = now;
            out.push(Action::Log(Request::Fetch { partition: own, from: owner.at + 1 }));
        }
    }

    /// The log has purged what the owner replays: a newer snapshot has it.
    pub(super) fn owner_purged(
        &mut self,
        now: Micros,
        own: Partition,
        first: Sequence,
        out: &mut Actions<T>,
    ) {
        if let Some(owner) = self.owners.get_mut(&own)
            && owner.phase == Phase::Claiming
            && first > owner.at + 1
        {
            (owner.phase, owner.asked) = (Phase::Loading, now);
            out.push(Action::Log(Request::Get { partition: own }));
        }
    }

    /// The log's end is another than the owner expected.
    pub(super) fn owner_refused(&mut self, now: Micros, own: Partition, out: &mut Actions<T>) {
        if let Some(owner) = self.owners.get_mut(&own)
            && owner.inflight.is_some()
        {
            if owner.phase == Phase::Claiming {
                owner.inflight = None;
            }
            owner.asked = now;
            out.push(Action::Log(Request::Fetch { partition: own, from: owner.at + 1 }));
        }
    }

    pub(super) fn owner_fetched(
        &mut self,
        now: Micros,
        own: Partition,
        last: Sequence,
        out: &mut Actions<T>,
    ) {
        let settings = self.settings;
        let me = self.me;
        let Some(owner) = self.owners.get_mut(&own) else { return };
        if owner.phase != Phase::Claiming || owner.inflight.is_some() || owner.at < last {
            return;
        }
        let keys = owner.rib.routes().map(|(hash, member)| (hash, member.node));
        let built = T::build(&settings, owner.epoch, keys);
        let image = built.and_then(|writer| Ok((T::image(&writer)?, writer)));
        // Without memory for it, the claim is tried again by a later beat.
        let Ok((image, writer)) = image else { return };
        owner.writer = Some(writer);
        let batch = Batch { image: Some(image), ..Batch::empty(owner.epoch, me) };
        out.push(owner.append(now, own, settings.mechanisms.epochs, Arc::new(batch)));
    }

    /// A batch shows in the log.
    pub(super) fn owner_batch(
        &mut self,
        now: Micros,
        (own, sequence): (Partition, Sequence),
        batch: &Arc<Batch<T>>,
        out: &mut Actions<T>,
    ) {
        let (settings, me) = (self.settings, self.me);
        let Some(owner) = self.owners.get_mut(&own) else { return };
        if owner.phase == Phase::Loading || sequence != owner.at + 1 {
            return;
        }
        if settings.mechanisms.epochs && batch.epoch > owner.epoch {
            self.owners.remove(&own);
            return;
        }
        owner.at = sequence;
        if settings.mechanisms.epochs && batch.epoch < owner.seen {
            return;
        }
        owner.seen = batch.epoch;
        owner.changed += batch.changes.len();
        let apply = |change| owner.rib.apply(sequence, change, own, settings.partitions);
        let old: Vec<Option<Session>> = batch.changes.iter().map(apply).collect();
        if batch.epoch != owner.epoch || batch.owner != me {
            // Of an earlier reign: the claim is made again behind it.
            if owner.phase == Phase::Claiming {
                owner.inflight = None;
            }
            return;
        }
        owner.inflight = None;
        if owner.phase == Phase::Claiming {
            owner.phase = Phase::Reigning;
            self.reign(now, own);
        } else {
            let mut routed = BTreeMap::<NodeId, Vec<_>>::new();
            for (change, old) in batch.changes.iter().zip(old) {
                if let Change::Route { session, key, version, .. } = change
                    && let Some(home) = self.owner_of(session.0)
                {
                    let known = (*session, key.hash, *version);
                    routed.entry(home.node).or_default().push(known);
                }
                self.committed(now, (own, sequence), (change, old), out);
            }
            for (home, keys) in routed {
                self.send(now, home, Message::Routed { keys, sequence }, out);
            }
            self.route_committed(now, own, batch, out);
        }
    }

    /// The reign begins: what the owner before it knew beside the log is found out again.
    fn reign(&mut self, now: Micros, own: Partition) {
        let settings = self.settings;
        let Some(owner) = self.owners.get_mut(&own) else { return };
        for (&session, known) in &owner.rib.sessions {
            let unsettled = Unsettled {
                version: known.version,
                keys: Arc::clone(&known.keys),
                to: Some(known.at),
                left: None,
                routed: BTreeMap::new(),
                asked: 0,
            };
            owner.unsettled.insert(session, unsettled);
        }
        for (&hash, held) in &owner.rib.keys {
            match held.hold {
                Hold::Resting(..) => drop(owner.rests.insert(hash, now + settings.rest_us)),
                Hold::Reserved(..) => drop(owner.reserved.insert(hash, now + settings.reserve_us)),
                Hold::Routed(..) => {}
            }
        }
        self.orphans(own);
    }

    /// Queues the sessions whose member, or whose target, is gone.
    fn orphans(&mut self, own: Partition) {
        let view = &self.view;
        let Some(owner) = self.owners.get_mut(&own).filter(|owner| owner.reigns()) else { return };
        for (&session, known) in owner.rib.sessions.in_order() {
            if view.state(known.at).is_none() {
                owner.queue.push_back(Wish::Replace(session));
            } else if known.moving.is_some_and(|(to, _)| view.state(to).is_none()) {
                owner.queue.push_back(Wish::Retarget(session));
            }
        }
    }

    /// Whether a session of an own partition is at a member that is gone, and there may be room for
    /// it; queues them again if nothing is under way.
    pub(super) fn find_orphans(&mut self) -> bool {
        let view = &self.view;
        let gone = |known: &Session| view.state(known.at).is_none();
        let owners = self.owners.iter().filter(|(_, owner)| owner.reigns());
        let waits = |owner: &Owner<T>, session| !owner.homeless.contains(session);
        let owners = owners.filter(|(_, owner)| {
            owner.rib.sessions.iter().any(|(id, known)| gone(known) && waits(owner, id))
        });
        let found: Vec<(Partition, bool)> = owners
            .map(|(&own, owner)| (own, owner.queue.is_empty() && owner.inflight.is_none()))
            .collect();
        let idle = found.iter().filter(|found| found.1).map(|found| found.0);
        idle.for_each(|own| self.orphans(own));
        !found.is_empty()
    }

    pub(super) fn members_changed_owners(&mut self) {
        let all: Vec<Partition> = self.owners.keys().copied().collect();
        all.into_iter().for_each(|own| self.orphans(own));
    }

    pub(super) fn beat_owners(&mut self, now: Micros, out: &mut Actions<T>) {
        let all: Vec<Partition> = self.owners.keys().copied().collect();
        if all.is_empty() {
            return;
        }
        let count = self.settings.partitions;
        let floors = |ingress| -> Vec<Sequence> {
            (0..count).map(|at| self.floor(Partition(at), ingress)).collect()
        };
        let (floor, ingress) = (floors(false), floors(true));
        for own in all {
            self.settle(now, own, (&floor, &ingress), out);
            self.beat_owner(now, own, floor[own.index()], out);
        }
    }

    fn beat_owner(&mut self, now: Micros, own: Partition, floor: Sequence, out: &mut Actions<T>) {
        let settings = self.settings;
        let fenced = settings.mechanisms.epochs;
        let open = self.view.in_state(State::Live).any(|member| self.has_room(member));
        let Some(owner) = self.owners.get_mut(&own) else { return };
        let retry = |at: Micros| now >= at + settings.retry_us;
        if let Some((batch, sent)) = &owner.inflight {
            // The reply, or the request, may be lost.
            if retry(*sent) && fenced {
                let batch = Arc::clone(batch);
                out.push(owner.append(now, own, fenced, batch));
            }
        } else if owner.phase != Phase::Reigning && retry(owner.asked) {
            owner.asked = now;
            out.push(Action::Log(match owner.phase {
                Phase::Loading => Request::Get { partition: own },
                _ => Request::Fetch { partition: own, from: owner.at + 1 },
            }));
        }
        if owner.phase != Phase::Reigning {
            return;
        }
        let rested = owner.rests.iter().filter(|(_, until)| now >= **until);
        let rested = rested.map(|(&hash, _)| (hash, owner.rib.keys.get(&hash).map(|h| h.hold)));
        let rested = rested.filter(|of| !matches!(of.1, Some(Hold::Resting(at, _)) if floor < at));
        let rested: Vec<(u64, Option<Hold>)> = rested.collect();
        for (hash, hold) in rested {
            owner.rests.remove(&hash);
            if let Some(hold @ Hold::Resting(..)) = hold {
                owner.queue.push_back(Wish::Release(hash, hold));
            }
        }
        let sessions = owner.rib.sessions.len();
        if owner.inflight.is_none()
            && (owner.at >= owner.snapshot_at + settings.snapshot_every.max(sessions as u64 / 16)
                || owner.changed >= settings.snapshot_changes.max(sessions)
                || owner.at > owner.snapshot_at && now >= owner.snapshot_due)
            && let Some(Ok(image)) = owner.writer.as_ref().map(T::image)
        {
            (owner.snapshot_at, owner.changed) = (owner.at, 0);
            owner.snapshot_due = now + settings.snapshot_us;
            let rib = owner.rib.clone();
            let snapshot = Snapshot { sequence: owner.at, epoch: owner.seen, rib, image };
            let snapshot = Arc::new(snapshot);
            out.push(Action::Log(Request::Put { partition: own, snapshot }));
        } else if owner.inflight.is_none() && owner.queue.is_empty() && now >= owner.snapshot_due {
            // Without a change, too: what the log need not keep ends where a partition stands.
            let (epoch, me) = (owner.epoch, self.me);
            out.push(owner.append(now, own, fenced, Arc::new(Batch::empty(epoch, me))));
        }
        if owner.queue.is_empty() && open {
            let homeless = std::mem::take(&mut owner.homeless);
            owner.queue.extend(homeless.into_iter().map(Wish::Replace));
        }
        if !owner.rib.freeing.is_empty() && retry(owner.freed) {
            self.free(now, own, out);
        }
        self.beat_patient(now, own, out);
        self.beat_asked(now, own, out);
    }
}
