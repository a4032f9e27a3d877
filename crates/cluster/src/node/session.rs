//! What is installed at this node, by the logs that it has applied.
//!
//! ```text
//!   Place(to: me) ─────────────────────────────────▶ Serving
//!   Move(to: me) ─▶ Standby ─ handover or Place ───▶ Serving
//!   Move(from: me), applied by the target: Serving ─▶ Moved(target) ─ Forget ─▶ gone
//! ```
//! A move in order: the target applies the `Move` and says so by its beat; the source turns, which
//! cannot be undone under that version, and hands over; the target serves and tells the owner,
//! which logs `Place` with the deltas. The stub goes when all members have applied them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::path::mark;
use super::{Action, Actions, Change, Node, Shown};
use crate::etcd::State;
use crate::message::{Answered, Counts, Found, Message, Refusal, Request, RequestId, UNASKED};
use crate::rib::{self, Context};
use crate::table::Gpt;
use crate::{Key, Member, Micros, NodeId, Partition, Sequence, SessionId, Version};

/// What this node does for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Handles its packets.
    Serving,
    /// Is the target of a move: handles what the source's stub forwards.
    Standby {
        /// The source.
        from: Member,
    },
    /// Forwards to where it has moved.
    Moved {
        /// The target.
        to: Member,
    },
}

/// A session at this node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// What the node does.
    pub entry: Entry,
    /// Since which batch of its home.
    pub version: Version,
    /// Number of the session in the data path.
    pub slot: u32,
    /// Its keys.
    pub keys: Arc<[Key]>,
}

impl Local {
    /// Returns what the data path has to know.
    pub fn shown(&self) -> Shown {
        Shown { entry: self.entry, mark: mark(self.version) }
    }

    fn show<T: Gpt>(&mut self, entry: Entry, out: &mut Actions<T>) {
        self.entry = entry;
        out.push(Action::Session(Change::Show { slot: self.slot, shown: self.shown() }));
    }
}

/// Numbers of sessions in the data path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Slots {
    free: Vec<u32>,
    /// By number.
    pub(super) sessions: Vec<Option<SessionId>>,
}

impl Slots {
    fn take(&mut self, session: SessionId) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            self.sessions.len() as u32 - 1
        });
        self.sessions[slot as usize] = Some(session);
        slot
    }

    fn free(&mut self, slot: u32) {
        self.sessions[slot as usize] = None;
        self.free.push(slot);
    }
}

impl<T: Gpt> Node<T> {
    pub(super) fn install(
        &mut self,
        session: SessionId,
        (version, entry): (Version, Entry),
        (keys, context): (&Arc<[Key]>, &Context),
        out: &mut Actions<T>,
    ) {
        if let Some(local) = self.sessions.get_mut(&session) {
            local.version = version;
            self.stubs.remove(&session);
            return local.show(entry, out);
        }
        self.install_new(session, (version, entry), (keys, context), out);
    }

    fn install_new(
        &mut self,
        session: SessionId,
        (version, entry): (Version, Entry),
        (keys, context): (&Arc<[Key]>, &Context),
        out: &mut Actions<T>,
    ) {
        let slot = self.slots.take(session);
        let keys = Arc::clone(keys);
        for key in keys.iter() {
            // The owner of a key sees to it that it has one session.
            self.fib.insert_new(key.hash, (key.full, session));
        }
        let context = Arc::clone(context);
        let local = Local { entry, version, slot, keys: Arc::clone(&keys) };
        let shown = local.shown();
        out.push(Action::Session(Change::Install { slot, session, keys, context, shown }));
        self.sessions.insert(session, local);
    }

    /// A session that is installed has other keys, or another context.
    pub(super) fn renew(
        &mut self,
        session: SessionId,
        (keys, context): (&Arc<[Key]>, &Context),
        out: &mut Actions<T>,
    ) {
        let Some(local) = self.sessions.get_mut(&session) else { return };
        let (slot, new, context) = (local.slot, Arc::clone(keys), Arc::clone(context));
        let old = std::mem::replace(&mut local.keys, Arc::clone(keys));
        for key in old.iter().filter(|key| !new.contains(key)) {
            if self.fib.get(&key.hash).is_some_and(|held| held.1 == session) {
                self.fib.remove(&key.hash);
            }
        }
        for key in new.iter().filter(|key| !old.contains(key)) {
            self.fib.insert(key.hash, (key.full, session));
        }
        out.push(Action::Session(Change::Renew { slot, keys: new, context }));
    }

    pub(super) fn uninstall(&mut self, session: SessionId, out: &mut Actions<T>) {
        let Some(local) = self.sessions.remove(&session) else { return };
        for key in local.keys.iter() {
            if self.fib.get(&key.hash).is_some_and(|held| held.1 == session) {
                self.fib.remove(&key.hash);
            }
        }
        self.stubs.remove(&session);
        self.slots.free(local.slot);
        out.push(Action::Session(Change::Free { slot: local.slot }));
    }

    /// Applies a change of the batch `sequence` of a partition to what is installed here.
    pub(super) fn applied_change(
        &mut self,
        now: Micros,
        (partition, sequence): (Partition, Sequence),
        change: &rib::Change,
        out: &mut Actions<T>,
    ) {
        let me = self.me;
        if let rib::Change::Place { session, from, to, keys, context, .. } = change
            && *from == Some(*to)
        {
            // Stubs too: what a session has given up may soon be another's.
            self.renew(*session, (keys, context), out);
        }
        match change {
            rib::Change::Place { session, from, to, keys, context, born } if *to == me => {
                // A handover has brought its counts, and a stub has its own.
                let entry = self.sessions.get(session).map(|local| local.entry);
                let has_counts = matches!(entry, Some(Entry::Serving | Entry::Moved { .. }));
                self.install(*session, (sequence, Entry::Serving), (keys, context), out);
                if from.is_some_and(|from| from != me) && !has_counts {
                    self.taken_over(*session, *born, out);
                }
                self.take_checkpoint(*session, None);
            }
            rib::Change::Place { session, to, .. } => {
                self.take_checkpoint(*session, Some(*to));
                if let Some(local) = self.sessions.get(session) {
                    match local.entry {
                        Entry::Moved { .. } | Entry::Serving => self.turn(now, *session, *to, out),
                        Entry::Standby { .. } => self.uninstall(*session, out),
                    }
                }
            }
            rib::Change::Move { session, from, to, keys, context } => {
                if *to == me && *from != me {
                    let entry = Entry::Standby { from: *from };
                    self.install(*session, (sequence, entry), (keys, context), out);
                } else if *from == me && self.sessions.contains_key(session) {
                    self.leaving.insert((to.node, partition, sequence, *session), *to);
                    self.turn_ready(now, *to, out);
                }
            }
            rib::Change::Remove { session, .. } => {
                self.take_checkpoint(*session, None);
                self.uninstall(*session, out);
            }
            rib::Change::Reserve { .. }
            | rib::Change::Release { .. }
            | rib::Change::Freed { .. }
            | rib::Change::Route { .. } => {}
        }
    }

    /// From now on, packets of the session are forwarded.
    fn turn(&mut self, now: Micros, session: SessionId, to: Member, out: &mut Actions<T>) {
        if !self.settings.mechanisms.stubs {
            return self.uninstall(session, out);
        }
        let Some(local) = self.sessions.get_mut(&session) else { return };
        local.show(Entry::Moved { to }, out);
        self.stubs.insert(session, now);
    }

    /// Turns the sessions whose target has applied their move, and hands them over.
    pub(super) fn turn_ready(&mut self, now: Micros, target: Member, out: &mut Actions<T>) {
        let Some(heard) = self.heard.get(&target.node) else { return };
        if heard.member != target {
            return;
        }
        let (node, applied) = (target.node, Arc::clone(&heard.beat.applied));
        let first = (node, Partition(0), 0, SessionId(0));
        let last = (node, Partition(u16::MAX), u64::MAX, SessionId(u64::MAX));
        let ready: Vec<_> = self
            .leaving
            .range(first..=last)
            .filter(|((_, partition, version, _), to)| {
                **to == target && applied[partition.index()] >= *version
            })
            .map(|(of, _)| *of)
            .collect();
        let mut turned = Vec::with_capacity(ready.len());
        for of in ready {
            let (_, _, version, session) = of;
            self.leaving.remove(&of);
            let Some(local) = self.sessions.get_mut(&session) else { continue };
            if version <= local.version {
                continue; // A late duplicate.
            }
            local.version = version;
            if target == self.me {
                // Its move to a member that is gone has come back.
                local.show(Entry::Serving, out);
                self.stubs.remove(&session);
            } else {
                self.turn(now, session, target, out);
            }
            turned.push((session, version));
        }
        if !turned.is_empty() {
            if target == self.me {
                self.send_homes(now, turned.into_iter(), Message::Arrived, out);
            } else {
                self.send(now, node, Message::Handover(turned, Vec::new()), out);
            }
        }
    }

    pub(super) fn handover(
        &mut self,
        now: Micros,
        sessions: &[(SessionId, Version)],
        counts: &[Counts],
        out: &mut Actions<T>,
    ) {
        let (mut arrived, mut counted) = (Vec::new(), Vec::new());
        for (nth, &(session, version)) in sessions.iter().enumerate() {
            let local = self.sessions.get_mut(&session).filter(|local| local.version == version);
            if let Some(local) = local
                && matches!(local.entry, Entry::Standby { .. } | Entry::Serving)
            {
                if let Some(&counts) = counts.get(nth) {
                    out.push(Action::Session(Change::Counts { slot: local.slot, counts }));
                    counted.push((session, version));
                }
                local.show(Entry::Serving, out);
                arrived.push((session, version));
            }
        }
        self.send_homes(now, arrived.into_iter(), Message::Arrived, out);
        self.send_checkpoints(counted, out);
    }

    /// Answers what a session is like here.
    pub(super) fn read(
        &mut self,
        now: Micros,
        request: RequestId,
        found: Box<Found>,
        out: &mut Actions<T>,
    ) {
        let local = self.sessions.get(&found.session);
        let serves = local.is_some_and(|local| local.entry == Entry::Serving);
        let answer = if serves { Ok(Answered::Found(found)) } else { Err(Refusal::Moving) };
        self.send(now, request.at, Message::Answer { request, answer }, out);
    }

    pub(super) fn forget(&mut self, sessions: &[(SessionId, Version)], out: &mut Actions<T>) {
        for &(session, version) in sessions {
            let local = self.sessions.get(&session);
            if local.is_some_and(|local| {
                local.version == version && matches!(local.entry, Entry::Moved { .. })
            }) {
                self.uninstall(session, out);
            }
        }
    }

    /// Repeats what may have been lost: handovers and stubs. A draining node asks for moves.
    pub(super) fn repeat_sessions(&mut self, now: Micros, out: &mut Actions<T>) {
        let mut handovers = BTreeMap::<NodeId, Vec<_>>::new();
        let mut stubs = Vec::new();
        for (&session, told) in &mut self.stubs {
            if now < *told + self.settings.retry_us {
                continue;
            }
            let Some(local) = self.sessions.get(&session) else { continue };
            if let Entry::Moved { to } = local.entry {
                *told = now;
                handovers.entry(to.node).or_default().push((session, local.version));
                stubs.push((session, local.version));
            }
        }
        for (to, sessions) in handovers {
            self.send(now, to, Message::Handover(sessions, Vec::new()), out);
        }
        self.send_homes(now, stubs.into_iter(), Message::Stubs, out);
        self.turn_ready(now, self.me, out);
        if self.drain.is_some() && self.state() == Some(State::Draining) {
            self.drain_some(now, out);
        }
    }

    fn drain_some(&mut self, now: Micros, out: &mut Actions<T>) {
        if self.view.in_state(State::Live).next().is_none() {
            return;
        }
        if self.sessions.is_empty() && self.owners.is_empty() {
            let lease = crate::etcd::Lease { member: self.me, nth: self.leases };
            self.ended = true;
            out.push(Action::Etcd(crate::etcd::Request::Revoke { lease }));
            return out.push(Action::End { again: false });
        }
        let retry_us = self.settings.retry_us;
        let (list, listed) = &mut self.drains;
        if list.is_empty() && listed.is_none_or(|at| now >= at + retry_us) {
            *list = self.sessions.sorted();
            *listed = Some(now);
        }
        let mut left = self.settings.moves_a_beat();
        while left > 0
            && let Some(session) = self.drains.0.pop()
        {
            let serves = |local: &Local| local.entry == Entry::Serving;
            if !self.sessions.get(&session).is_some_and(serves) {
                continue;
            }
            let Some(owner) = self.owner_of(session.0) else { continue };
            left -= 1;
            // No answer is expected: the session goes, or is asked for again.
            let request = RequestId { at: self.me.node, number: UNASKED };
            let body = Request::Move { session, to: None };
            self.send(now, owner.node, Message::Ask { request, body }, out);
        }
    }

    /// Sessions whose move to a gone member waits are moved again by their owner; see `owner`.
    pub(super) fn members_changed_sessions(&mut self, now: Micros, out: &mut Actions<T>) {
        let view = &self.view;
        self.leaving.retain(|_, to| view.state(*to).is_some());
        self.drop_checkpoints();
        self.turn_ready(now, self.me, out);
    }
}
