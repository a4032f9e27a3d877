//! What an owner is asked: requests, reservations, directions of keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Establishing, Wish};
use crate::message::{Message, Refusal, Request, RequestId, Route};
use crate::node::{Actions, Node};
use crate::rib::{Context, Hold};
use crate::table::Gpt;
use crate::{Key, Member, Micros, NodeId, Partition, Sequence, SessionId};

const KEYS_MAX: usize = 16;

impl<T: Gpt> Node<T> {
    pub(in crate::node) fn owner_message(
        &mut self,
        now: Micros,
        from: Member,
        message: Message,
        out: &mut Actions<T>,
    ) {
        match message {
            Message::Ask { request, body } => self.ask(now, request, body, out),
            Message::Arrived(sessions) => {
                for (session, version) in sessions {
                    self.wish(session.0, Wish::Arrived(session, version));
                }
            }
            Message::Stubs(stubs) => {
                let settled = |&(session, version): &(SessionId, u64)| {
                    let own = self.partition(session.0);
                    self.owners.get(&own).filter(|owner| owner.reigns()).is_some_and(|owner| {
                        let known = owner.rib.sessions.get(&session);
                        known.is_none_or(|known| known.version > version)
                            && !owner.unsettled.contains_key(&session)
                    })
                };
                let settled: Vec<_> = stubs.iter().filter(|stub| settled(stub)).copied().collect();
                if !settled.is_empty() {
                    self.send(now, from.node, Message::Forget(settled), out);
                }
            }
            Message::Reserve { session, key } => self.reserve(now, from, session, key, out),
            Message::Reserved { session, hash } => {
                let own = self.partition(session.0);
                let Some(owner) = self.owners.get_mut(&own) else { return };
                let Some(new) = owner.establishing.get_mut(&session) else { return };
                if new.missing.remove(&hash) && new.missing.is_empty() {
                    owner.queue.push_back(Wish::Establish(session));
                }
            }
            Message::Conflict { session, cause, .. } => {
                let own = self.partition(session.0);
                let Some(owner) = self.owners.get_mut(&own) else { return };
                if owner.establishing.remove(&session).is_some() {
                    for request in owner.waiting.remove(&session).unwrap_or_default() {
                        self.answer(now, request, Err(cause), out);
                    }
                }
            }
            Message::Route(routes) => self.routes(now, from, routes, out),
            Message::Routed { keys, sequence } => {
                for (session, hash, version) in keys {
                    let own = self.partition(session.0);
                    let unsettled =
                        self.owners.get_mut(&own).and_then(|o| o.unsettled.get_mut(&session));
                    if let Some(unsettled) = unsettled.filter(|u| u.version == version) {
                        unsettled.routed.insert(hash, sequence);
                    }
                }
            }
            Message::Check { session, key, reserved } => {
                let own = self.partition(session.0);
                let Some(owner) = self.owners.get(&own).filter(|owner| owner.reigns()) else {
                    return;
                };
                let needed = owner.rib.sessions.contains_key(&session)
                    || owner.establishing.contains_key(&session);
                if !needed {
                    let message = Message::NotPlaced { hash: key.hash, reserved };
                    self.send(now, from.node, message, out);
                }
            }
            Message::NotPlaced { hash, reserved } => {
                let own = self.partition(hash);
                let held = self.owners.get(&own).and_then(|owner| owner.rib.keys.get(&hash));
                if held.is_some_and(|held| held.hold == Hold::Reserved(reserved)) {
                    self.wish(hash, Wish::Release(hash));
                }
            }
            // Taken by `Node::message`.
            Message::Beat(_)
            | Message::Confirm { .. }
            | Message::Answer { .. }
            | Message::Handover(_)
            | Message::Forget(_) => {}
        }
    }

    /// Queues a wish at the owner of a hash, if it reigns here and has room: all are repeated.
    fn wish(&mut self, hash: u64, wish: Wish) {
        let (own, max) = (self.partition(hash), self.settings.queue_max);
        let owner = self.owners.get_mut(&own).filter(|owner| owner.reigns());
        if let Some(owner) = owner.filter(|owner| owner.queue.len() < max) {
            owner.queue.push_back(wish);
        }
    }

    fn ask(&mut self, now: Micros, request: RequestId, body: Request, out: &mut Actions<T>) {
        let own = body.home().map(|hash| self.partition(hash));
        let owner = own.and_then(|own| self.owners.get(&own));
        let Some(owner) = owner.filter(|owner| owner.reigns()) else {
            return self.answer(now, request, Err(Refusal::NoOwner), out);
        };
        if owner.queue.len() + owner.establishing.len() >= self.settings.queue_max {
            return self.answer(now, request, Err(Refusal::Overload), out);
        }
        match body {
            Request::Establish { keys, context, to } => {
                if let Some(answer) = self.establish(now, request, (keys, context, to), out) {
                    self.answer(now, request, answer, out);
                }
            }
            Request::Move { session, to } => {
                self.wish(session.0, Wish::Move(session, to, request));
            }
            Request::Remove { session } => {
                self.wish(session.0, Wish::Remove(session, Some(request)));
            }
        }
    }

    /// Begins a session; `None`: the answer comes later.
    fn establish(
        &mut self,
        now: Micros,
        request: RequestId,
        (keys, context, to): (Arc<[Key]>, Context, Option<NodeId>),
        out: &mut Actions<T>,
    ) -> Option<Result<(), Refusal>> {
        let hashes: BTreeSet<u64> = keys.iter().map(|key| key.hash).collect();
        let Some(first) = keys.first().filter(|_| keys.len() <= KEYS_MAX) else {
            return Some(Err(Refusal::Keys));
        };
        if hashes.len() != keys.len() {
            return Some(Err(Refusal::Keys));
        }
        let (session, own) = (SessionId(first.hash), self.partition(first.hash));
        let count = self.settings.partitions;
        let until = now + self.settings.reserve_us;
        let owner = self.owners.get_mut(&own)?;
        if let Some(known) = owner.rib.sessions.get(&session) {
            if known.keys != keys {
                return Some(Err(Refusal::KeyInUse));
            }
            if !owner.unsettled.contains_key(&session) {
                return Some(Ok(()));
            }
            owner.wait(session, request);
            return None;
        }
        if let Some(new) = owner.establishing.get(&session) {
            if new.keys != keys {
                return Some(Err(Refusal::KeyInUse));
            }
            owner.wait(session, request);
            return None;
        }
        if let Some(held) = keys.iter().find_map(|key| owner.rib.keys.get(&key.hash)) {
            return Some(Err(refusal(held.hold)));
        }
        owner.wait(session, request);
        let missing: BTreeSet<u64> =
            hashes.into_iter().filter(|&hash| Partition::of(hash, count) != own).collect();
        if missing.is_empty() {
            owner.queue.push_back(Wish::Establish(session));
        }
        let new = Establishing { keys, context, to, missing, until };
        owner.establishing.insert(session, new);
        self.ask_keys(now, own, session, out);
        None
    }

    /// Asks for the keys of a new session that are not reserved yet.
    fn ask_keys(&mut self, now: Micros, own: Partition, session: SessionId, out: &mut Actions<T>) {
        let new = self.owners.get(&own).and_then(|owner| owner.establishing.get(&session));
        let Some(new) = new else { return };
        let missing = new.keys.iter().filter(|key| new.missing.contains(&key.hash));
        let missing: Vec<Key> = missing.copied().collect();
        for key in missing {
            if let Some(owner) = self.owner_of(key.hash) {
                self.send(now, owner.node, Message::Reserve { session, key }, out);
            }
        }
    }

    fn reserve(
        &mut self,
        now: Micros,
        from: Member,
        session: SessionId,
        key: Key,
        out: &mut Actions<T>,
    ) {
        let own = self.partition(key.hash);
        let Some(owner) = self.owners.get_mut(&own).filter(|owner| owner.reigns()) else { return };
        let hash = key.hash;
        let message = match owner.rib.keys.get(&hash) {
            None => {
                if owner.queue.len() < self.settings.queue_max {
                    owner.queue.push_back(Wish::Reserve(session, key));
                }
                return;
            }
            Some(held) if held.session == session && held.full == key.full => match held.hold {
                Hold::Resting(_) => Message::Conflict { session, hash, cause: Refusal::KeyResting },
                _ => Message::Reserved { session, hash },
            },
            Some(held) => Message::Conflict { session, hash, cause: refusal(held.hold) },
        };
        self.send(now, from.node, message, out);
    }

    /// Keys of this node's partitions are to be directed.
    fn routes(&mut self, now: Micros, from: Member, routes: Vec<Route>, out: &mut Actions<T>) {
        for route in routes {
            let Route { session, key, version, .. } = route;
            let own = self.partition(key.hash);
            let Some(owner) = self.owners.get_mut(&own).filter(|owner| owner.reigns()) else {
                continue;
            };
            let held = owner.rib.keys.get(&key.hash);
            match held.map(|held| (held.session, held.hold)) {
                Some((known, Hold::Routed(at, _))) if known == session && at == version => {
                    let sequence: Sequence = owner.at;
                    let keys = vec![(session, key.hash, version)];
                    self.send(now, from.node, Message::Routed { keys, sequence }, out);
                }
                _ => self.wish(key.hash, Wish::Route(route)),
            }
        }
    }

    /// Repeats what new sessions wait for, ends those that wait too long, checks reservations.
    pub(super) fn beat_asked(&mut self, now: Micros, own: Partition, out: &mut Actions<T>) {
        let reserve_us = self.settings.reserve_us;
        let Some(owner) = self.owners.get_mut(&own) else { return };
        let mut refused = Vec::new();
        let mut asked = Vec::new();
        let waiting = &mut owner.waiting;
        owner.establishing.retain(|session, new| {
            if now >= new.until {
                let waiting = waiting.remove(session).unwrap_or_default();
                refused.extend(waiting);
            } else if new.missing.is_empty() {
                // While the log does not answer, each beat would add one more.
                if owner.queue.len() < self.settings.queue_max {
                    owner.queue.push_back(Wish::Establish(*session));
                }
            } else {
                asked.push(*session);
            }
            now < new.until
        });
        let mut checks = Vec::new();
        for (&hash, from) in &mut owner.reserved {
            let Some(held) = owner.rib.keys.get(&hash).filter(|_| now >= *from) else { continue };
            if let Hold::Reserved(reserved) = held.hold {
                *from = now + reserve_us;
                let key = Key { hash, full: held.full };
                checks.push(Message::Check { session: held.session, key, reserved });
            }
        }
        for request in refused {
            self.answer(now, request, Err(Refusal::Timeout), out);
        }
        for session in asked {
            self.ask_keys(now, own, session, out);
        }
        for check in checks {
            if let Message::Check { session, .. } = check {
                self.send_home(now, session, check, out);
            }
        }
    }
}

fn refusal(hold: Hold) -> Refusal {
    match hold {
        Hold::Resting(_) => Refusal::KeyResting,
        Hold::Reserved(_) | Hold::Routed(..) => Refusal::KeyInUse,
    }
}
