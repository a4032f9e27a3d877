//! Forms batches: takes wishes from the queue, checks them against the RIB, makes the deltas.

use std::sync::Arc;

use super::{Owner, Wish};
use crate::etcd::{State, View};
use crate::log::Batch;
use crate::message::{Refusal, RequestId, UNASKED};
use crate::node::digest::BLOCKS_MAX;
use crate::node::room::{Placed, Rooms};
use crate::node::{Actions, Node};
use crate::rib::{Change, Hold, Session};
use crate::table::Gpt;
use crate::{Index, Key, Member, Micros, NodeId, Partition, Sequence, SessionId, Settings};

/// What becomes of a wish.
enum Formed {
    Change(Change),
    Refused(Vec<RequestId>, Refusal),
    /// It no longer fits.
    Nothing,
}

/// The members at the time of a batch.
struct Members<'a> {
    view: &'a View,
    live: Vec<Member>,
    /// The last batch of the partition that all have applied.
    floor: Sequence,
    /// The time, and for how long a move waits.
    now: (Micros, Micros),
    rooms: &'a mut Rooms,
}

impl Members<'_> {
    fn state(&self, member: Member) -> Option<State> {
        self.view.state(member)
    }

    /// Where a session of a member that is gone goes. A node that starts again alone has its
    /// sessions before it is live.
    fn inherits(&mut self, session: SessionId) -> Placed {
        match self.live.is_empty() {
            true => self.rooms.choose(session, self.view.in_state(State::Catching)),
            false => self.placed(session, None, None),
        }
    }

    /// Where a session goes: the node asked for if it is live and has room, or by rendezvous
    /// hashing over the live members with room but `not`.
    fn placed(&mut self, session: SessionId, asked: Option<NodeId>, not: Option<Member>) -> Placed {
        let live = self.live.iter().copied().filter(|&member| Some(member) != not);
        self.rooms.choose(session, live.filter(|to| asked.is_none_or(|node| to.node == node)))
    }
}

impl<T: Gpt> Owner<T> {
    pub(super) fn wait(&mut self, session: SessionId, request: RequestId) {
        let waiting = self.waiting.or_default(session);
        if !waiting.contains(&request) {
            waiting.push(request);
        }
    }

    fn form(&mut self, wish: Wish, view: &mut Members<'_>) -> Formed {
        let place = |session: SessionId, known: &Session, to| Change::Place {
            session,
            from: Some(known.at),
            to,
            keys: Arc::clone(&known.keys),
            context: Arc::clone(&known.context),
            born: known.born,
        };
        let moved = |session: SessionId, known: &Session, to| Change::Move {
            session,
            from: known.at,
            to,
            keys: Arc::clone(&known.keys),
            context: Arc::clone(&known.context),
        };
        let change = match wish {
            Wish::Establish(session) => return self.form_new(session, view),
            Wish::Move(session, to, request) => {
                let refused = |why| Formed::Refused(vec![request], why);
                let Some(known) = self.rib.sessions.get(&session) else {
                    return refused(Refusal::Unknown);
                };
                if self.settles(session) {
                    return self.form_later(session, to, request, view.now);
                }
                let to = match view.placed(session, to, Some(known.at)) {
                    Placed::At(to) => to,
                    Placed::Later => return self.form_later(session, to, request, view.now),
                    Placed::Refused(why) => return refused(why),
                };
                let change = moved(session, known, to);
                self.wait(session, request);
                Some(change)
            }
            Wish::Retarget(session) => self.rib.sessions.get(&session).and_then(|known| {
                let gone = known.moving.is_some_and(|(to, _)| view.state(to).is_none());
                (gone && view.state(known.at).is_some()).then(|| {
                    let to = match view.placed(session, None, None) {
                        Placed::At(to) => to,
                        Placed::Later | Placed::Refused(_) => known.at,
                    };
                    moved(session, known, to)
                })
            }),
            Wish::Arrived(session, version) => self.rib.sessions.get(&session).and_then(|known| {
                let (to, since) = known.moving?;
                (since == version).then(|| place(session, known, to))
            }),
            Wish::Replace(session) => self.rib.sessions.get(&session).and_then(|known| {
                if view.state(known.at).is_some() {
                    return None;
                }
                let target = known.moving.map(|moving| moving.0);
                let target = target.filter(|&to| view.state(to).is_some());
                match target.map_or_else(|| view.inherits(session), Placed::At) {
                    Placed::At(to) => Some(place(session, known, to)),
                    Placed::Later | Placed::Refused(_) => {
                        self.homeless.insert(session);
                        None
                    }
                }
            }),
            Wish::Remove(session, request) => {
                let Some(known) = self.rib.sessions.get(&session) else {
                    return request.map_or(Formed::Nothing, |request| {
                        Formed::Refused(vec![request], Refusal::Unknown)
                    });
                };
                let change = Change::Remove { session, at: known.at };
                request.into_iter().for_each(|request| self.wait(session, request));
                // Nothing of it is to be settled any more: the answer is the log's.
                self.unsettled.remove(&session);
                Some(change)
            }
            Wish::Reserve(session, key) => {
                let held = self.rib.keys.get(&key.hash);
                let free = held.is_none_or(|held| held.rests_for(session, &key));
                free.then_some(Change::Reserve { session, key })
            }
            Wish::Release(hash, hold) => {
                let held = self.rib.keys.get(&hash);
                held.is_some_and(|held| held.hold == hold).then_some(Change::Release { hash })
            }
            Wish::Freed(hash, version) => {
                let freeing = self.rib.freeing.get(&hash);
                let is_it = freeing.is_some_and(|freeing| freeing.version == version);
                is_it.then_some(Change::Freed { hash, version })
            }
            Wish::Route(route) => {
                let refused = self.rib.refuses(route.session, route.key, route.version);
                if route.to.is_some() && !self.rib.keys.contains_key(&route.key.hash) {
                    self.unreserved.insert(route.key.hash);
                }
                let (session, key) = (route.session, route.key);
                (!refused).then_some(Change::Route {
                    session,
                    key,
                    version: route.version,
                    to: route.to,
                })
            }
        };
        change.map_or(Formed::Nothing, Formed::Change)
    }

    /// Returns the digest of a block of the table at rest, as of the last batch, and the block
    /// after it; a table that changes has it in its next batch. `None`: there is no such block.
    pub(in crate::node) fn announce(
        &mut self,
        block: u32,
    ) -> Option<(Option<(Sequence, u64)>, u32)> {
        let writer = self.writer.as_ref()?;
        let (digest, next) = T::written(writer, block)?;
        let rests = self.inflight.is_none() && self.queue.is_empty();
        if !rests && self.digests.len() < BLOCKS_MAX {
            self.digests.insert(block);
        }
        Some((rests.then_some((self.at, digest)), next))
    }

    /// The next batch has a block as it is.
    pub(in crate::node) fn republish(&mut self, block: u32) {
        if self.again.len() < BLOCKS_MAX {
            self.again.insert(block);
        }
    }

    /// Appends blocks as they are, and returns digests of the table after that. An image needs
    /// neither.
    fn blocks(&mut self, deltas: &mut Vec<T::Delta>, has_image: bool) -> Vec<(u32, u64)> {
        let again = std::mem::take(&mut self.again);
        let digests = std::mem::take(&mut self.digests);
        let Some(writer) = self.writer.as_mut().filter(|_| !has_image) else { return Vec::new() };
        deltas.extend(again.into_iter().filter_map(|block| T::republish(writer, block)));
        let digest = |block| Some((block, T::written(writer, block)?.0));
        digests.into_iter().filter_map(digest).collect()
    }

    /// Whether a session moves, or has deltas that some members have not applied.
    pub(super) fn settles(&self, session: SessionId) -> bool {
        let moves = self.rib.sessions.get(&session).is_some_and(|known| known.moving.is_some());
        moves || self.unsettled.contains_key(&session)
    }

    /// A move waits until its session has settled. One that comes again does not wait twice; one
    /// without a request is asked for again by the node that drains.
    fn form_later(
        &mut self,
        session: SessionId,
        to: Option<NodeId>,
        request: RequestId,
        (now, patience_us): (Micros, Micros),
    ) -> Formed {
        let under_way = self.waiting.get(&session).is_some_and(|of| of.contains(&request));
        if request.number != UNASKED && !under_way {
            self.patient.entry((session, request)).or_insert((now + patience_us, to));
        }
        Formed::Nothing
    }

    /// A new session, or a change of one. Without a live member, during a move, or until all
    /// members know that it was removed, it waits; `beat_asked` asks again.
    fn form_new(&mut self, session: SessionId, view: &mut Members<'_>) -> Formed {
        let Some(new) = self.establishing.get(&session) else { return Formed::Nothing };
        let known = self.rib.sessions.get(&session);
        let free = |key: &Key| {
            let held = self.rib.keys.get(&key.hash);
            let had = known.is_some_and(|known| known.keys.contains(key));
            let free = held.is_none_or(|held| held.rests_for(session, key));
            had || (free && !self.rib.freeing.contains_key(&key.hash))
        };
        let refused = match known {
            Some(_) if !new.exists => Some(Refusal::KeyInUse),
            None if new.exists => Some(Refusal::Unknown),
            _ if !new.keys.iter().all(free) => Some(Refusal::KeyInUse),
            _ => None,
        };
        if let Some(why) = refused {
            let asked = self.establishing.remove(&session);
            return Formed::Refused(asked.map_or(Vec::new(), |asked| asked.requests), why);
        }
        let removed = self.rib.keys.get(&session.0).map(|held| held.hold);
        let to = match known {
            Some(known) if known.moving.is_some() => None,
            None if matches!(removed, Some(Hold::Resting(at, _)) if view.floor < at) => None,
            Some(known) => Some(known.at).filter(|&at| view.state(at).is_some()),
            None => match view.placed(session, new.to, None) {
                Placed::At(to) => Some(to),
                Placed::Refused(why @ Refusal::NoRoom) => {
                    let asked = self.establishing.remove(&session);
                    return Formed::Refused(asked.map_or(Vec::new(), |asked| asked.requests), why);
                }
                Placed::Later | Placed::Refused(_) => None,
            },
        };
        let Some(to) = to else { return Formed::Nothing };
        let (keys, context) = (Arc::clone(&new.keys), Arc::clone(&new.context));
        let (from, born) = (known.map(|known| known.at), known.map_or(0, |known| known.born));
        Formed::Change(Change::Place { session, from, to, keys, context, born })
    }

    /// The table built anew with the changes of a batch, if these are many or it is full.
    fn rebuilt(
        &mut self,
        changes: &[Change],
        own: Partition,
        settings: &Settings,
        full: bool,
    ) -> Option<T::Image> {
        let mine = |key: &Key| Partition::of(key.hash, settings.partitions) == own;
        let mut directed = Index::<u64, Option<NodeId>>::default();
        for change in changes {
            match change {
                Change::Place { to, keys, .. } => {
                    for key in keys.iter().filter(|key| mine(key)) {
                        directed.insert(key.hash, Some(to.node));
                    }
                }
                Change::Route { key, to, .. } => {
                    directed.insert(key.hash, to.map(|to| to.node));
                }
                _ => {}
            }
        }
        let all = self.rib.keys.len();
        if !full && (directed.len() < settings.rebuild_from || directed.len() * 32 < all) {
            return None;
        }
        let others = self.rib.routes().filter(|(hash, _)| !directed.contains_key(hash));
        let others = others.map(|(hash, member)| (hash, member.node));
        let directed = directed.iter().filter_map(|(&hash, &to)| Some((hash, to?)));
        let writer = T::build(settings, self.epoch, others.chain(directed)).ok()?;
        let image = T::image(&writer).ok()?;
        self.writer = Some(writer);
        Some(image)
    }

    /// The deltas of a change. On failure the table keeps what it took, which harms nothing.
    fn deltas(
        &mut self,
        change: &Change,
        own: Partition,
        settings: &Settings,
        deltas: &mut Vec<T::Delta>,
    ) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        let mut insert = |key: &Key, to: Member| match T::insert(writer, key.hash, to.node) {
            Ok(delta) => {
                deltas.extend(delta);
                true
            }
            Err(_) => false,
        };
        match change {
            Change::Place { to, keys, .. } => {
                let mine = |key: &&Key| Partition::of(key.hash, settings.partitions) == own;
                keys.iter().filter(mine).all(|key| insert(key, *to))
            }
            Change::Route { key, to: Some(to), .. } => insert(key, *to),
            Change::Release { hash } => {
                T::remove(writer, *hash);
                true
            }
            _ => true,
        }
    }
}

impl<T: Gpt> Node<T> {
    /// Forms the next batch of each partition that has none under way.
    pub(in crate::node) fn propose_all(&mut self, now: Micros, out: &mut Actions<T>) {
        let due = |(&own, owner): (&Partition, &Owner<T>)| {
            let due = !owner.queue.is_empty() || !owner.again.is_empty();
            (due && owner.reigns() && owner.inflight.is_none()).then_some(own)
        };
        let due: Vec<Partition> = self.owners.iter().filter_map(due).collect();
        if due.is_empty() {
            return;
        }
        let mut rooms = self.rooms();
        for own in due {
            self.propose(now, own, &mut rooms, out);
        }
    }

    fn propose(&mut self, now: Micros, own: Partition, rooms: &mut Rooms, out: &mut Actions<T>) {
        let (settings, me) = (self.settings, self.me);
        let live = self.view.in_state(State::Live).collect();
        let floor = self.floor(own, false);
        let now_us = (now, settings.reserve_us / 2);
        let mut members = Members { view: &self.view, live, floor, now: now_us, rooms };
        let Some(owner) = self.owners.get_mut(&own) else { return };
        let (mut changes, mut deltas) = (Vec::new(), Vec::new());
        let (mut touched, mut later) = (Index::default(), Vec::new());
        let (mut refused, mut bytes) = (Vec::new(), 0);
        while changes.len() < settings.batch_max
            && bytes < settings.batch_bytes
            && let Some(wish) = owner.queue.pop_front()
        {
            let name = match wish {
                Wish::Establish(session)
                | Wish::Move(session, ..)
                | Wish::Retarget(session)
                | Wish::Arrived(session, _)
                | Wish::Replace(session)
                | Wish::Remove(session, _) => session.0,
                Wish::Freed(hash, _) => hash,
                Wish::Reserve(_, key) => key.hash,
                Wish::Release(hash, _) => hash,
                Wish::Route(route) => route.key.hash,
            };
            if touched.contains_key(&name) {
                later.push(wish);
                continue;
            }
            match owner.form(wish, &mut members) {
                Formed::Refused(requests, why) => {
                    refused.extend(requests.into_iter().map(|request| (request, why)));
                }
                Formed::Nothing => {}
                Formed::Change(change) => {
                    let keys = match &change {
                        Change::Place { keys, .. } => Arc::clone(keys),
                        _ => Arc::new([]),
                    };
                    if keys.iter().any(|key| touched.contains_key(&key.hash)) {
                        continue; // Another change of this batch has the key: asked again later.
                    }
                    touched.insert(name, ());
                    for key in keys.iter() {
                        touched.insert(key.hash, ());
                    }
                    bytes += change.bytes_max();
                    changes.push(change);
                }
            }
        }
        owner.queue.extend(later);
        let mut image = owner.rebuilt(&changes, own, &settings, false);
        if image.is_none() {
            let fits = |change| owner.deltas(change, own, &settings, &mut deltas);
            let fit: Vec<bool> = changes.iter().map(fits).collect();
            let long = deltas.iter().map(T::bytes).sum::<usize>() > settings.batch_bytes / 2;
            if fit.contains(&false) || long {
                image = owner.rebuilt(&changes, own, &settings, true);
            }
            if image.is_some() {
                deltas.clear();
            } else if fit.contains(&false) {
                let mut fit = fit.into_iter();
                changes.retain(|change| {
                    let fits = fit.next() == Some(true);
                    if let Some(session) = change.session().filter(|_| !fits) {
                        let asked = owner.establishing.remove(&session);
                        let mut asked = asked.map_or(Vec::new(), |asked| asked.requests);
                        asked.extend(owner.waiting.remove(&session).unwrap_or_default());
                        refused.extend(asked.into_iter().map(|id| (id, Refusal::TableFull)));
                    }
                    fits
                });
            }
        }
        let digests = owner.blocks(&mut deltas, image.is_some());
        if !changes.is_empty() || !deltas.is_empty() || image.is_some() {
            let (epoch, next) = (owner.epoch, owner.at + 1);
            self.given.note(rooms, own, next);
            let batch = Batch { epoch, owner: me, changes, deltas, digests, image };
            out.push(owner.append(now, own, settings.mechanisms.epochs, Arc::new(batch)));
        }
        for (request, why) in refused {
            self.answer(now, request, Err(why), out);
        }
    }
}
