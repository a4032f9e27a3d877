//! What an owner is asked: requests, reservations, directions of keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use overbank::hash::mix;

use super::{Establishing, Owner, Wish};
use crate::etcd::State;
use crate::message::{
    Answer, Answered, Counts, Found, Message, Refusal, Request, RequestId, Route, UNASKED,
};
use crate::node::{Actions, Node};
use crate::rib::{Context, Held, Hold, Session};
use crate::table::Gpt;
use crate::{Key, Member, Micros, NodeId, Partition, Sequence, SessionId, rendezvous};

const KEYS_MAX: usize = 16;
/// Requests that are remembered to know their repeats, twice.
const TAKEN_MAX: usize = 1 << 20;
/// Sessions of a page.
const PAGE_MAX: usize = 512;
/// Bytes of contexts from which on a page has no more sessions: a page is one message.
const PAGE_BYTES: usize = 256 << 10;

impl<T: Gpt> Node<T> {
    pub(in crate::node) fn owner_message(
        &mut self,
        now: Micros,
        from: Member,
        message: Message,
        out: &mut Actions<T>,
    ) {
        match message {
            Message::Ask { request, body } if self.is_new(now, from, request) => {
                self.ask(now, request, body, out);
            }
            Message::Ask { .. } => {}
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
                // A late one: what the session gives up is not reserved again yet.
                let frees = owner.rib.freeing.contains_key(&hash);
                let new = owner.establishing.get_mut(&session).filter(|_| !frees);
                let Some(new) = new else { return };
                if new.missing.remove(&hash) && new.missing.is_empty() {
                    owner.queue.push_back(Wish::Establish(session));
                }
            }
            Message::Conflict { session, cause, .. } => {
                let own = self.partition(session.0);
                let Some(owner) = self.owners.get_mut(&own) else { return };
                if let Some(asked) = owner.establishing.remove(&session) {
                    for request in asked.requests {
                        self.answer(now, request, Err(cause), out);
                    }
                }
            }
            Message::Route(routes) => self.routes(now, from, routes, out),
            Message::Routed { keys, sequence } => {
                for (session, hash, version) in keys {
                    let own = self.partition(session.0);
                    let Some(owner) = self.owners.get_mut(&own) else { continue };
                    let freeing = owner.rib.freeing.get(&hash);
                    if freeing.is_some_and(|freeing| freeing.version == version) {
                        self.wish(session.0, Wish::Freed(hash, version));
                    } else if let Some(unsettled) = owner.unsettled.get_mut(&session)
                        && unsettled.version == version
                    {
                        unsettled.routed.insert(hash, sequence);
                    }
                }
            }
            Message::Check { session, key, reserved } => {
                let own = self.partition(session.0);
                let Some(owner) = self.owners.get(&own).filter(|owner| owner.reigns()) else {
                    return;
                };
                let known = owner.rib.sessions.get(&session).map(|known| &known.keys);
                let asked = owner.establishing.get(&session).map(|asked| &asked.keys);
                if !known.into_iter().chain(asked).any(|keys| keys.contains(&key)) {
                    let message = Message::NotPlaced { hash: key.hash, reserved };
                    self.send(now, from.node, message, out);
                }
            }
            Message::NotPlaced { hash, reserved } => {
                let own = self.partition(hash);
                let held = self.owners.get(&own).and_then(|owner| owner.rib.keys.get(&hash));
                match held.map(|held| (held.hold, *held)) {
                    Some((hold @ Hold::Reserved(at, _), _)) if at == reserved => {
                        self.wish(hash, Wish::Release(hash, hold));
                    }
                    Some((Hold::Routed(at, _), Held { session, full, .. })) if at == reserved => {
                        let (key, version) = (Key { hash, full }, at + 1);
                        self.wish(hash, Wish::Route(Route { session, key, version, to: None }));
                    }
                    _ => {}
                }
            }
            // Taken by `Node::message`.
            Message::Beat(_)
            | Message::Confirm { .. }
            | Message::Answer { .. }
            | Message::Read { .. }
            | Message::Rebalance
            | Message::Note(_)
            | Message::Differs { .. }
            | Message::Handover(..)
            | Message::Checkpoint(..)
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

    /// Whether a request has not come before: a late repeat must not remove a session that has come
    /// back since, nor bring one back. So no message is later than a request waits.
    fn is_new(&mut self, now: Micros, from: Member, RequestId { number, .. }: RequestId) -> bool {
        let ([new, old], due) = &mut self.taken;
        if now >= *due || new.len() >= TAKEN_MAX {
            (*old, *due) = (std::mem::take(new), now + self.settings.reserve_us);
        }
        let name = mix(number ^ mix(from.incarnation ^ mix(from.node.0.into())));
        number == UNASKED || !old.contains_key(&name) && new.insert(name, ()).is_none()
    }

    fn ask(&mut self, now: Micros, request: RequestId, body: Request, out: &mut Actions<T>) {
        let own = body.home().map(|hash| self.partition(hash));
        let owner = own.and_then(|own| self.owners.get(&own));
        let Some(owner) = owner.filter(|owner| owner.reigns()) else {
            return self.answer(now, request, Err(Refusal::NoOwner), out);
        };
        let waiting = owner.queue.len() + owner.establishing.len() + owner.patient.len();
        if waiting >= self.settings.queue_max {
            return self.answer(now, request, Err(Refusal::Overload), out);
        }
        if body.context_bytes() > self.settings.context_max {
            return self.answer(now, request, Err(Refusal::TooLong), out);
        }
        match body {
            Request::Establish { keys, context, to } => {
                if let Some(answer) = self.establish(now, request, (keys, context, to), out) {
                    self.answer(now, request, answer, out);
                }
            }
            Request::Update { session, keys, context, before } => {
                let is_it = |known: &Session| before.is_none_or(|before| known.context == before);
                if !owner.rib.sessions.get(&session).is_none_or(is_it) {
                    return self.answer(now, request, Err(Refusal::Changed), out);
                }
                let asked = (session, keys, context);
                if let Some(answer) = self.update(now, request, asked, out) {
                    self.answer(now, request, answer, out);
                }
            }
            Request::Read { session } => {
                let known = owner.rib.sessions.get(&session);
                let found = known.ok_or(Refusal::Unknown).and_then(|known| {
                    let (at, context) = (known.at, Arc::clone(&known.context));
                    self.view.state(at).ok_or(Refusal::NoMember)?;
                    Ok(Box::new(Found { session, at, context, counts: Counts::default() }))
                });
                match found {
                    Ok(found) => {
                        let to = found.at.node;
                        self.send(now, to, Message::Read { request, found }, out);
                    }
                    Err(why) => self.answer(now, request, Err(why), out),
                }
            }
            Request::Page { from } => {
                let count = self.settings.partitions;
                let of_partition = owner.rib.sessions.iter().filter(|(id, _)| **id >= from);
                let mut page: Vec<_> = of_partition.collect();
                page.sort_unstable_by_key(|entry| entry.0);
                let mut bytes = 0;
                let fits = page.iter().take(PAGE_MAX).take_while(|(_, known)| {
                    let fits = bytes < PAGE_BYTES;
                    bytes += known.context.len();
                    fits
                });
                let fits = fits.count();
                let next = page.get(fits).map(|entry| *entry.0).or_else(|| {
                    let own = Partition::of(from.0, count);
                    (own.0 + 1 < count).then(|| Partition(own.0 + 1).first(count))
                });
                page.truncate(fits);
                let page = page.iter().map(|(id, known)| (**id, Arc::clone(&known.context)));
                let answer = Ok(Answered::Page(page.collect(), next));
                self.answer(now, request, answer, out);
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
    ) -> Option<Answer> {
        let Some((first, hashes)) = hashes(&keys) else { return Some(Err(Refusal::Keys)) };
        let (session, own) = (SessionId(first.hash), self.partition(first.hash));
        let count = self.settings.partitions;
        let until = now + self.settings.reserve_us;
        let owner = self.owners.get_mut(&own)?;
        if let Some(known) = owner.rib.sessions.get(&session) {
            if (&known.keys, &known.context) != (&keys, &context) {
                return Some(Err(Refusal::Exists));
            }
            // It is logged again: an owner that is deposed and does not know it must not answer by
            // what it knows.
            return self.update(now, request, (session, keys, context), out);
        }
        if let Some(new) = owner.establishing.get_mut(&session) {
            if (&new.keys, &new.context) != (&keys, &context) {
                return Some(Err(Refusal::Exists));
            }
            new.wait(request);
            return None;
        }
        if let Some(why) = keys.iter().find_map(|key| owner.refuses(session, key)) {
            return Some(Err(why));
        }
        let missing: BTreeSet<u64> =
            hashes.into_iter().filter(|&hash| Partition::of(hash, count) != own).collect();
        if missing.is_empty() {
            owner.queue.push_back(Wish::Establish(session));
        }
        let requests = vec![request];
        let new = Establishing { keys, context, to, exists: false, missing, requests, until };
        owner.establishing.insert(session, new);
        self.ask_keys(now, own, session, out);
        None
    }

    /// Begins a change of a session; `None`: the answer comes later. What it gets is reserved as
    /// for a new session.
    fn update(
        &mut self,
        now: Micros,
        request: RequestId,
        (session, keys, context): (SessionId, Arc<[Key]>, Context),
        out: &mut Actions<T>,
    ) -> Option<Answer> {
        let Some((first, _)) = hashes(&keys).filter(|(first, _)| first.hash == session.0) else {
            return Some(Err(Refusal::Keys));
        };
        let (own, count) = (self.partition(first.hash), self.settings.partitions);
        let until = now + self.settings.reserve_us;
        let owner = self.owners.get_mut(&own)?;
        let Some(known) = owner.rib.sessions.get(&session) else {
            return Some(Err(Refusal::Unknown));
        };
        if let Some(under_way) = owner.establishing.get_mut(&session) {
            if (&under_way.keys, &under_way.context) != (&keys, &context) {
                return Some(Err(Refusal::Moving));
            }
            under_way.wait(request);
            return None;
        }
        let had = |key: &Key| known.keys.contains(key);
        let added = keys.iter().filter(|key| !had(key));
        if let Some(why) = added.clone().find_map(|key| owner.refuses(session, key)) {
            return Some(Err(why));
        }
        let others = added.filter(|key| Partition::of(key.hash, count) != own);
        let missing: BTreeSet<u64> = others.map(|key| key.hash).collect();
        if missing.is_empty() {
            owner.queue.push_back(Wish::Establish(session));
        }
        let requests = vec![request];
        let change =
            Establishing { keys, context, to: None, exists: true, missing, requests, until };
        owner.establishing.insert(session, change);
        self.ask_keys(now, own, session, out);
        None
    }

    /// Takes up that sessions be moved to where rendezvous hashing has them.
    pub(in crate::node) fn rebalance(&mut self) {
        let live: Vec<Member> = self.view.in_state(State::Live).collect();
        let owned = self.owners.values().filter(|owner| owner.reigns());
        let sessions = owned.flat_map(|owner| owner.rib.sessions.iter());
        let astray = sessions.filter(|(session, known)| {
            let at = known.moving.map_or(known.at, |moving| moving.0);
            rendezvous(session.0, live.iter().copied()).is_some_and(|to| to != at)
        });
        let mut astray: Vec<SessionId> = astray.map(|(&session, _)| session).collect();
        astray.sort_unstable();
        self.rebalances = astray.into();
    }

    /// Moves some of them; those that have not settled are looked at again.
    pub(in crate::node) fn rebalance_some(&mut self) {
        let live: Vec<Member> = self.view.in_state(State::Live).collect();
        let some = self.settings.moves_a_beat().min(self.rebalances.len());
        let some: Vec<SessionId> = self.rebalances.drain(..some).collect();
        for session in some {
            let to = rendezvous(session.0, live.iter().copied()).map(|to| to.node);
            let request = RequestId { at: self.me.node, number: UNASKED };
            let Some(owner) = self.owners.get(&self.partition(session.0)) else { continue };
            if owner.settles(session) {
                self.rebalances.push_back(session);
                continue;
            }
            let known = owner.rib.sessions.get(&session);
            if known.is_some_and(|known| Some(known.at.node) != to) {
                self.wish(session.0, Wish::Move(session, to, request));
            }
        }
    }

    /// Asks for the keys of a new session that are not reserved yet. One that the session has given
    /// up is asked for when its owner has freed it.
    fn ask_keys(&mut self, now: Micros, own: Partition, session: SessionId, out: &mut Actions<T>) {
        let Some(owner) = self.owners.get(&own) else { return };
        let Some(new) = owner.establishing.get(&session) else { return };
        let is_due = |hash| new.missing.contains(hash) && !owner.rib.freeing.contains_key(hash);
        let missing = new.keys.iter().filter(|key| is_due(&key.hash));
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
        let held = owner.rib.keys.get(&hash);
        let message = match held {
            _ if held.is_none_or(|held| held.rests_for(session, &key)) => {
                return self.wish(hash, Wish::Reserve(session, key));
            }
            None => return,
            Some(held) if held.session == session && held.full == key.full => {
                Message::Reserved { session, hash }
            }
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
            let frees = route.to.is_none();
            match held.map(|held| (held.session, held.hold)) {
                _ if frees && owner.rib.refuses(session, key, version) => {
                    // It is freed, or the session has it again.
                    let (sequence, keys) = (owner.at, vec![(session, key.hash, version)]);
                    self.send(now, from.node, Message::Routed { keys, sequence }, out);
                }
                Some((known, Hold::Routed(at, _))) if known == session && at == version => {
                    let sequence: Sequence = owner.at;
                    let keys = vec![(session, key.hash, version)];
                    self.send(now, from.node, Message::Routed { keys, sequence }, out);
                }
                _ => self.wish(key.hash, Wish::Route(route)),
            }
        }
    }

    /// Takes up the moves whose session has settled, and refuses those that have waited too long.
    pub(super) fn beat_patient(&mut self, now: Micros, own: Partition, out: &mut Actions<T>) {
        let Some(owner) = self.owners.get_mut(&own) else { return };
        let mut late = Vec::new();
        for ((session, request), asked) in std::mem::take(&mut owner.patient) {
            let (until, to) = asked;
            if owner.settles(session) && now < until {
                owner.patient.insert((session, request), asked);
            } else if owner.settles(session) {
                late.push(request);
            } else {
                owner.queue.push_back(Wish::Move(session, to, request));
            }
        }
        for request in late {
            self.answer(now, request, Err(Refusal::Moving), out);
        }
    }

    /// Repeats what new sessions wait for, ends those that wait too long, checks reservations.
    pub(super) fn beat_asked(&mut self, now: Micros, own: Partition, out: &mut Actions<T>) {
        let reserve_us = self.settings.reserve_us;
        let Some(owner) = self.owners.get_mut(&own) else { return };
        let mut refused = Vec::new();
        let mut asked = Vec::new();
        owner.establishing.retain(|session, new| {
            if now >= new.until {
                refused.append(&mut new.requests);
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
            if let Hold::Reserved(reserved, _) | Hold::Routed(reserved, _) = held.hold {
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

impl Establishing {
    fn wait(&mut self, request: RequestId) {
        if !self.requests.contains(&request) {
            self.requests.push(request);
        }
    }
}

impl<T: Gpt> Owner<T> {
    /// Why a session cannot have a key, as far as this partition knows.
    fn refuses(&self, session: SessionId, key: &Key) -> Option<Refusal> {
        let held = self.rib.keys.get(&key.hash);
        let held = held.filter(|held| !held.rests_for(session, key)).map(|held| refusal(held.hold));
        let freeing = self.rib.freeing.get(&key.hash);
        let freeing = freeing.filter(|of| of.session != session || of.full != key.full);
        held.or_else(|| freeing.map(|_| Refusal::KeyResting))
    }
}

/// Returns the first of a session's keys and the hashes of all, if they can be a session's.
fn hashes(keys: &[Key]) -> Option<(Key, BTreeSet<u64>)> {
    let hashes: BTreeSet<u64> = keys.iter().map(|key| key.hash).collect();
    let first = keys.first().filter(|_| keys.len() <= KEYS_MAX && hashes.len() == keys.len())?;
    Some((*first, hashes))
}

fn refusal(hold: Hold) -> Refusal {
    match hold {
        Hold::Resting(..) => Refusal::KeyResting,
        Hold::Reserved(..) | Hold::Routed(..) => Refusal::KeyInUse,
    }
}
