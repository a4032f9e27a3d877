//! What follows a batch: its sessions settle once all members have applied their directions.
//!
//! A session's keys may be of several partitions. The owner of its home has the others direct their
//! keys, answers requests when all members that take packets know it, and has the source of a move
//! forget it when all members do. What is asked of others is asked again until it shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Establishing, FREED_MAX, Unsettled, Wish};
use crate::log::Batch;
use crate::message::{self, Answered, Message, RequestId, Route};
use crate::node::{Actions, Node};
use crate::rib::{Change, Hold, Session};
use crate::table::Gpt;
use crate::{Key, Micros, NodeId, Partition, Sequence, SessionId};

impl<T: Gpt> Node<T> {
    /// What is done when a change of an own batch shows in the log.
    pub(super) fn committed(
        &mut self,
        now: Micros,
        (own, sequence): (Partition, Sequence),
        (change, old): (&Change, Option<Session>),
        out: &mut Actions<T>,
    ) {
        let settings = self.settings;
        let Some(owner) = self.owners.get_mut(&own) else { return };
        match change {
            Change::Place { session, to, keys, context, .. } => {
                let is_it = |asked: &Establishing| asked.keys == *keys && asked.context == *context;
                if owner.establishing.get(session).is_some_and(is_it)
                    && let Some(asked) = owner.establishing.remove(session)
                {
                    asked.requests.into_iter().for_each(|request| owner.wait(*session, request));
                }
                let keys = Arc::clone(keys);
                for key in old.iter().flat_map(|old| old.keys.iter()) {
                    let held = owner.rib.keys.get(&key.hash).map(|held| held.hold);
                    if held == Some(Hold::Resting(sequence, sequence)) {
                        owner.rests.insert(key.hash, now + settings.rest_us);
                    }
                }
                let unsettled = Unsettled {
                    version: sequence,
                    keys,
                    to: Some(*to),
                    left: old.and_then(|old| Some((old.at, old.moving?.1))),
                    routed: BTreeMap::new(),
                    asked: now,
                };
                owner.unsettled.insert(*session, unsettled);
                // Gone while its batch was under way: `orphans` did not see it there.
                if self.view.state(*to).is_none() {
                    owner.queue.push_back(Wish::Replace(*session));
                }
                let early = settings.answers_early.then(|| owner.waiting.remove(session)).flatten();
                for request in early.unwrap_or_default() {
                    self.answer(now, request, Ok(Answered::Done), out);
                }
            }
            Change::Remove { session, .. } => {
                owner.unsettled.remove(session);
                let waiting = owner.waiting.remove(session).unwrap_or_default();
                let keys = old.map_or(Arc::default(), |old| old.keys);
                for key in keys.iter() {
                    if Partition::of(key.hash, settings.partitions) == own {
                        owner.rests.insert(key.hash, now + settings.rest_us);
                    }
                }
                for request in waiting {
                    self.answer(now, request, Ok(Answered::Done), out);
                }
            }
            Change::Reserve { session, key } => {
                owner.rests.remove(&key.hash);
                owner.reserved.insert(key.hash, now + settings.reserve_us);
                let (session, hash) = (*session, key.hash);
                self.send_home(now, session, Message::Reserved { session, hash }, out);
            }
            Change::Route { key, to, .. } => {
                owner.reserved.remove(&key.hash);
                if owner.unreserved.remove(&key.hash) {
                    owner.reserved.insert(key.hash, now + settings.reserve_us);
                }
                if to.is_none() {
                    owner.rests.insert(key.hash, now + settings.rest_us);
                }
            }
            Change::Release { hash } => {
                owner.rests.remove(hash);
                owner.reserved.remove(hash);
                if owner.rib.keys.contains_key(hash) {
                    owner.rests.insert(*hash, now + settings.rest_us);
                }
            }
            Change::Freed { .. } => {}
            Change::Move { session, to, .. } => {
                if self.view.state(*to).is_none() {
                    owner.queue.push_back(Wish::Retarget(*session));
                }
            }
        }
    }

    pub(super) fn send_home(
        &mut self,
        now: Micros,
        session: SessionId,
        message: Message,
        out: &mut Actions<T>,
    ) {
        if let Some(home) = self.owner_of(session.0) {
            self.send(now, home.node, message, out);
        }
    }

    pub(super) fn answer(
        &mut self,
        now: Micros,
        request: RequestId,
        answer: message::Answer,
        out: &mut Actions<T>,
    ) {
        self.send(now, request.at, Message::Answer { request, answer }, out);
    }

    /// Asks the owners of other keys of the sessions that a batch has placed to direct them.
    pub(super) fn route_committed(
        &mut self,
        now: Micros,
        own: Partition,
        batch: &Batch<T>,
        out: &mut Actions<T>,
    ) {
        let placed = batch.changes.iter().filter_map(|change| match change {
            Change::Place { session, .. } => Some(*session),
            _ => None,
        });
        self.route(now, own, placed, out);
        let gives_up = |change: &Change| match change {
            Change::Place { from, to, .. } => *from == Some(*to),
            Change::Remove { .. } => true,
            _ => false,
        };
        if batch.changes.iter().any(gives_up) {
            self.free(now, own, out);
        }
    }

    /// Asks the owners of keys that sessions have given up to free them.
    pub(super) fn free(&mut self, now: Micros, own: Partition, out: &mut Actions<T>) {
        let Some(owner) = self.owners.get_mut(&own) else { return };
        owner.freed = now;
        let mut routes = BTreeMap::<NodeId, Vec<Route>>::new();
        for (&hash, freeing) in owner.rib.freeing.in_order().into_iter().take(FREED_MAX) {
            let key = Key { hash, full: freeing.full };
            let to = self.view.owner(Partition::of(hash, self.settings.partitions));
            let route = Route { session: freeing.session, key, version: freeing.version, to: None };
            to.into_iter().for_each(|to| routes.entry(to.node).or_default().push(route));
        }
        for (owner, routes) in routes {
            self.send(now, owner, Message::Route(routes), out);
        }
    }

    /// Asks the owners of the other keys of sessions to direct them.
    pub(super) fn route(
        &mut self,
        now: Micros,
        own: Partition,
        sessions: impl IntoIterator<Item = SessionId>,
        out: &mut Actions<T>,
    ) {
        let count = self.settings.partitions;
        let Some(owner) = self.owners.get_mut(&own) else { return };
        let mut routes = BTreeMap::<NodeId, Vec<Route>>::new();
        for session in sessions {
            let Some(unsettled) = owner.unsettled.get_mut(&session) else { continue };
            unsettled.asked = now;
            let Unsettled { version, to, ref keys, ref routed, .. } = *unsettled;
            for &key in keys.iter().filter(|key| !routed.contains_key(&key.hash)) {
                let partition = Partition::of(key.hash, count);
                if partition != own
                    && let Some(owner) = self.view.owner(partition)
                {
                    let route = Route { session, key, version, to };
                    routes.entry(owner.node).or_default().push(route);
                }
            }
        }
        for (owner, routes) in routes {
            self.send(now, owner, Message::Route(routes), out);
        }
    }

    /// Answers requests whose session all members with packets from outside know, and forgets
    /// sessions that all members know.
    pub(super) fn settle(
        &mut self,
        now: Micros,
        own: Partition,
        (all, ingress): (&[Sequence], &[Sequence]),
        out: &mut Actions<T>,
    ) {
        let count = self.settings.partitions;
        let Some(owner) = self.owners.get(&own).filter(|owner| !owner.unsettled.is_empty()) else {
            return;
        };
        let (mut settled, mut answered) = (Vec::new(), Vec::new());
        let mut again = Vec::new();
        let retry_us = self.settings.retry_us;
        for (&session, unsettled) in &owner.unsettled {
            let reached = |floors: &[Sequence]| {
                unsettled.keys.iter().all(|key| {
                    let partition = Partition::of(key.hash, count);
                    let sequence = if partition == own {
                        Some(unsettled.version)
                    } else {
                        unsettled.routed.get(&key.hash).copied()
                    };
                    sequence.is_some_and(|sequence| floors[partition.index()] >= sequence)
                })
            };
            if reached(ingress) && owner.waiting.contains_key(&session) {
                answered.push(session);
            }
            if reached(all) {
                settled.push(session);
            } else if now >= unsettled.asked + retry_us {
                again.push(session);
            }
        }
        for sessions in [&mut answered, &mut settled, &mut again] {
            sessions.sort_unstable();
        }
        let Some(owner) = self.owners.get_mut(&own) else { return };
        let mut left = BTreeMap::<NodeId, Vec<_>>::new();
        for session in settled {
            let settled = owner.unsettled.remove(&session);
            if let Some((from, version)) = settled.and_then(|settled| settled.left)
                && self.view.state(from).is_some()
            {
                left.entry(from.node).or_default().push((session, version));
            }
        }
        let requests: Vec<RequestId> =
            answered.iter().filter_map(|session| owner.waiting.remove(session)).flatten().collect();
        for request in requests {
            self.answer(now, request, Ok(Answered::Done), out);
        }
        for (from, sessions) in left {
            self.send(now, from, Message::Forget(sessions), out);
        }
        self.route(now, own, again, out);
    }
}
