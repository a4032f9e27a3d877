//! The simulator: nodes in virtual time, seeded faults, packets all the time, guarantees checked.
//!
//! A packet's way takes no time, so that a broken guarantee shows at its moment. Requests, replies,
//! watches, deliveries and messages take random times, are lost and come twice. After the faults,
//! the cluster has time to recover; then every session that was answered must be reached from
//! every node that takes packets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use overbank::hash::mix;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::data::{Placed, Serving, Sorted, Told};
use super::{Etcd, Log, Plan};
use crate::etcd::{self, State};
use crate::message::{Answer, Message, Refusal, Request};
use crate::node::{Change, Entry, Shown};
use crate::rib::{self, Context};
use crate::table::Gpt;
use crate::{
    Action, DropReason, Epoch, Event, Index, Key, Member, Micros, Node, NodeId, Partition,
    Revision, Sequence, SessionId, log,
};

/// A guarantee was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in the crate's documentation.
    pub guarantee: u8,
    /// What happened.
    pub what: String,
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Packets that came in.
    pub received: u64,
    /// Packets by the node that handled them: at the ingress, after one hop, after two.
    pub handled: [u64; 3],
    /// Packets dropped by reason.
    pub dropped: [u64; DropReason::COUNT],
    /// Packets forwarded to a node that was down.
    pub lost: u64,
    /// Requests answered: done, refused.
    pub answered: [u64; 2],
    /// Faults.
    pub crashes: u64,
    /// Moves that were answered.
    pub moves: u64,
    /// The first broken guarantee.
    pub violation: Option<Violation>,
}

enum Post<T: Gpt> {
    Tick(NodeId),
    ToEtcd(Member, etcd::Request),
    ToLog(Member, log::Request<T>),
    Watch(Member),
    Event(Member, Event<T>),
}

pub(super) struct Host<T: Gpt> {
    pub(super) node: Option<Node<T>>,
    incarnation: u64,
    /// Added to the time.
    offset: Micros,
    /// Parts per million by which its clock is faster or slower.
    drift: i64,
    pub(super) paused_until: Micros,
    watched: Revision,
    etcd_cut: Micros,
    /// Cut from the nodes of this set.
    cut: Micros,
    drains: bool,
    /// Its data path: sessions by slot.
    pub(super) slots: BTreeMap<u32, Told>,
}

/// Keys and context of a session.
type Content = (Arc<[Key]>, Context);

struct Asked {
    request: Request,
    session: SessionId,
}

pub(super) struct World<T: Gpt> {
    pub(super) plan: Plan,
    pub(super) random: Pcg64Mcg,
    pub(super) now: Micros,
    pub(super) hosts: Vec<Host<T>>,
    etcd: Etcd,
    log: Log<T>,
    etcd_down: Micros,
    log_down: Micros,
    queue: BTreeMap<(Micros, u64), Post<T>>,
    next: u64,
    pub(super) outcome: Outcome,
    asked: BTreeMap<u64, Asked>,
    /// Sessions that were answered, with their keys.
    pub(super) known: Sorted<Content>,
    /// Sessions that are being established or removed.
    pub(super) unsure: BTreeMap<SessionId, Arc<[Key]>>,
    /// Those that are being changed, as they were.
    before: BTreeMap<SessionId, Content>,
    /// The last content of sessions that were removed, and keys that others have given up.
    removed: Vec<Arc<[Key]>>,
    pub(super) again: BTreeSet<SessionId>,
    given_up: BTreeMap<SessionId, Vec<Key>>,
    /// Packets handled of each session, at all nodes together.
    pub(super) handled: BTreeMap<SessionId, u64>,
    /// The nodes that serve each session, and those that the log has it at.
    pub(super) serving: Serving,
    pub(super) placed: Index<SessionId, Placed>,
    watched: Revision,
    delivered: Vec<(Epoch, Sequence)>,
    calm: bool,
}

/// Sessions that are asked for at once before the faults, and the time until all must be there.
const FILL_MAX: usize = 4096;
const FILL_US_MAX: Micros = 120_000_000;

/// Runs a seed to its end, or to the first broken guarantee.
pub fn run<T: Gpt>(plan: Plan, seed: u64) -> Outcome {
    let mut world = World::<T>::new(plan, seed);
    world.fill();
    world.run_until(world.now + plan.time_us);
    world.recover();
    world.outcome
}

impl<T: Gpt> World<T> {
    fn new(plan: Plan, seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        // A clock may gain or lose half the margin in a lease.
        let drift_max = (plan.settings.margin_us * 400_000 / plan.settings.lease_us) as i64;
        let hosts = (0..plan.nodes).map(|_| Host {
            node: None,
            incarnation: 0,
            offset: random.random_range(0..1_000_000_000),
            drift: random.random_range(-drift_max..=drift_max),
            paused_until: 0,
            watched: 0,
            etcd_cut: 0,
            cut: 0,
            drains: false,
            slots: BTreeMap::new(),
        });
        let hosts = hosts.collect();
        let mut world = Self {
            plan,
            random,
            now: 0,
            hosts,
            etcd: Etcd::default(),
            log: Log::default(),
            etcd_down: 0,
            log_down: 0,
            queue: BTreeMap::new(),
            next: 0,
            outcome: Outcome::default(),
            asked: BTreeMap::new(),
            known: Sorted::default(),
            unsure: BTreeMap::new(),
            before: BTreeMap::new(),
            removed: Vec::new(),
            again: BTreeSet::new(),
            given_up: BTreeMap::new(),
            handled: BTreeMap::new(),
            serving: Serving::default(),
            placed: Index::default(),
            watched: 0,
            delivered: vec![(0, 0); usize::from(plan.settings.partitions)],
            calm: false,
        };
        (0..plan.nodes).for_each(|node| world.start(NodeId(node)));
        world
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        !self.calm && self.random.random_range(0..1000) < of_thousand
    }

    pub(super) fn clock(&self, node: NodeId) -> Micros {
        let host = &self.hosts[usize::from(node.0)];
        let drift = self.now as i64 * host.drift / 1_000_000;
        host.offset + (self.now as i64 + drift) as Micros
    }

    fn start(&mut self, id: NodeId) {
        let clock = self.clock(id);
        let settings = self.plan.settings;
        let host = &mut self.hosts[usize::from(id.0)];
        host.incarnation += 1;
        host.watched = 0;
        host.drains = false;
        for told in std::mem::take(&mut host.slots).into_values() {
            self.serving.set(told.session, id, false);
        }
        let me = Member { node: id, incarnation: host.incarnation };
        host.node = Some(Node::new(settings, me, Arc::default(), clock));
        self.post(1, Post::Tick(id));
        self.post(1, Post::Watch(me));
    }

    fn post(&mut self, after: Micros, post: Post<T>) {
        self.next += 1;
        self.queue.insert((self.now + after, self.next), post);
    }

    fn delay(&mut self) -> Micros {
        let late = self.plan.faults.late;
        if self.chance(late) {
            self.random.random_range(0..1_000_000)
        } else {
            self.random.random_range(50..2_000)
        }
    }

    fn lost(&mut self) -> bool {
        self.chance(self.plan.faults.loss)
    }

    fn alive(&self, member: Member) -> Option<&Node<T>> {
        let node = self.hosts[usize::from(member.node.0)].node.as_ref();
        node.filter(|node| node.me() == member)
    }

    pub(super) fn run_until(&mut self, end: Micros) {
        let mut next_packet = self.now;
        let mut next_quarter = self.now;
        while self.outcome.violation.is_none() {
            let Some((&(at, _), _)) = self.queue.first_key_value() else { return };
            if at.min(next_packet) > end {
                self.now = end;
                return;
            }
            if next_packet <= at {
                self.now = next_packet;
                next_packet += 5_000;
                self.etcd.expire(self.now);
                self.wake();
                self.packets();
                if self.now >= next_quarter && !self.calm {
                    next_quarter += 250_000;
                    self.fault();
                    (0..self.plan.requests).for_each(|_| self.client());
                }
                continue;
            }
            self.now = at;
            if let Some((_, post)) = self.queue.pop_first() {
                self.take(at, post);
            }
        }
    }

    fn take(&mut self, at: Micros, post: Post<T>) {
        match post {
            Post::Tick(id) => {
                let paused = self.hosts[usize::from(id.0)].paused_until;
                let Some(me) = self.hosts[usize::from(id.0)].node.as_ref().map(Node::me) else {
                    return;
                };
                if paused <= at {
                    self.step(me, Event::Tick);
                }
                let beat = self.plan.settings.beat_us / 2;
                if self.alive(me).is_some() {
                    self.post(beat, Post::Tick(id));
                }
            }
            Post::ToEtcd(from, request) => {
                if self.etcd_down > at || self.hosts[usize::from(from.node.0)].etcd_cut > at {
                    return;
                }
                let ttl = self.plan.settings.lease_us;
                let reply = self.etcd.request(at, ttl, request);
                if let Some(reply) = reply
                    && !self.lost()
                {
                    let delay = self.delay();
                    self.post(delay, Post::Event(from, Event::Etcd(reply)));
                }
                self.wake();
            }
            Post::Watch(member) => self.watch(at, member),
            Post::ToLog(from, request) => {
                if self.log_down > at {
                    return;
                }
                let appends = match request {
                    log::Request::Append { partition, .. } => Some(partition),
                    _ => None,
                };
                if let Some(reply) = self.log.request(request)
                    && !self.lost()
                {
                    let delay = self.delay();
                    self.post(delay, Post::Event(from, Event::Log(reply)));
                }
                appends.into_iter().for_each(|partition| self.publish(partition));
            }
            Post::Event(to, event) => {
                let host = &self.hosts[usize::from(to.node.0)];
                if let Event::Message(..) = event
                    && host.cut > at
                {
                    return;
                }
                if host.paused_until > at {
                    let after = host.paused_until - at;
                    return self.post(after, Post::Event(to, event));
                }
                self.step(to, event);
            }
        }
    }

    /// A watch shows all changes in their order, some time later.
    fn watch(&mut self, at: Micros, member: Member) {
        if self.alive(member).is_none() {
            return;
        }
        let host = &self.hosts[usize::from(member.node.0)];
        let blocked = host.etcd_cut.max(self.etcd_down).max(host.paused_until);
        if blocked > at {
            return self.post(blocked - at, Post::Watch(member));
        }
        let revision = host.watched + 1;
        let Some(change) = self.etcd.change(revision) else { return };
        self.hosts[usize::from(member.node.0)].watched = revision;
        self.step(member, Event::Etcd(change));
        self.post(10, Post::Watch(member));
    }

    fn members(&self) -> Vec<Member> {
        self.hosts.iter().filter_map(|host| host.node.as_ref()).map(Node::me).collect()
    }

    /// Wakes watches.
    fn wake(&mut self) {
        if self.etcd.revision() > self.watched {
            self.watched = self.etcd.revision();
            for member in self.members() {
                let delay = self.delay();
                self.post(delay, Post::Watch(member));
            }
        }
    }

    /// Delivers new batches of a partition to all nodes.
    fn publish(&mut self, partition: Partition) {
        let members = self.members();
        let last = self.log.last(partition);
        let from = std::mem::replace(&mut self.delivered[partition.index()].1, last);
        for sequence in from + 1..=last {
            if let Some(log::Reply::Batch { batch, .. }) = self.log.batch(partition, sequence) {
                self.logged(partition, &batch);
            }
            for &member in &members {
                let twice = self.chance(self.plan.faults.twice);
                for _ in 0..=u32::from(twice) {
                    if self.lost() {
                        continue;
                    }
                    let delay = self.delay();
                    if let Some(reply) = self.log.batch(partition, sequence) {
                        self.post(delay, Post::Event(member, Event::Log(reply)));
                    }
                }
            }
        }
    }

    /// Notes where the log has sessions. What it has removed stays where it was: nodes learn of it
    /// later.
    fn logged(&mut self, partition: Partition, batch: &log::Batch<T>) {
        let epoch = &mut self.delivered[partition.index()].0;
        if batch.epoch < *epoch {
            return; // As replicas do.
        }
        *epoch = batch.epoch;
        for change in &batch.changes {
            match *change {
                rib::Change::Place { session, to, .. } => {
                    self.placed.insert(session, Placed { at: to, moving: None });
                }
                rib::Change::Move { session, to, .. } => {
                    if let Some(placed) = self.placed.get_mut(&session) {
                        placed.moving = Some(to);
                    }
                }
                _ => {}
            }
        }
    }

    fn step(&mut self, to: Member, event: Event<T>) {
        let clock = self.clock(to.node);
        let host = &mut self.hosts[usize::from(to.node.0)];
        let Some(node) = host.node.as_mut().filter(|node| node.me() == to) else { return };
        let mut out = Vec::new();
        node.step(clock, event, &mut out);
        out.into_iter().for_each(|action| self.act(to, action));
    }

    fn message(&mut self, from: Member, to: NodeId, message: Message) {
        if self.hosts[usize::from(from.node.0)].cut > self.now {
            return;
        }
        let Some(member) = self.hosts[usize::from(to.0)].node.as_ref().map(Node::me) else {
            return;
        };
        let twice = self.chance(self.plan.faults.twice);
        for _ in 0..=u32::from(twice) {
            if !self.lost() {
                let delay = self.delay();
                let event = Event::Message(from, message.clone());
                self.post(delay, Post::Event(member, event));
            }
        }
    }

    fn act(&mut self, from: Member, action: Action<T>) {
        match action {
            Action::Etcd(request) => {
                if !self.lost() {
                    let delay = self.delay();
                    self.post(delay, Post::ToEtcd(from, request));
                }
            }
            Action::Log(request) => {
                if !self.lost() {
                    let delay = self.delay();
                    self.post(delay, Post::ToLog(from, request));
                }
            }
            Action::Send(to, mut message) => {
                message.count(from, |session| [self.counted(from.node, session), 0, 0, 0, 0, 0]);
                self.message(from, to, message);
            }
            Action::Broadcast(beat) => {
                for to in (0..self.plan.nodes).map(NodeId).filter(|&to| to != from.node) {
                    self.message(from, to, Message::Beat(Arc::clone(&beat)));
                }
            }
            Action::Session(change) => self.tell(from.node, change),
            Action::Answer(number, answer) => self.answered(number, answer),
            Action::Note(..) => {}
            Action::End { .. } => {
                self.hosts[usize::from(from.node.0)].node = None;
                self.start(from.node);
            }
        }
    }

    /// The data path of a node takes up a change.
    fn tell(&mut self, id: NodeId, change: Change) {
        let slots = &mut self.hosts[usize::from(id.0)].slots;
        match change {
            Change::Install { slot, session, context, shown, .. } => {
                let entry = shown.entry;
                slots.insert(slot, Told { session, entry, context, counts: [0, 0] });
                self.serving.set(session, id, entry == Entry::Serving);
            }
            Change::Renew { slot, context, .. } => {
                slots.entry(slot).and_modify(|told| told.context = context);
            }
            Change::Show { slot, shown: Shown { entry, .. } } => {
                let Some(told) = slots.get_mut(&slot) else { return };
                if matches!(entry, Entry::Standby { .. }) {
                    told.counts = [0, 0]; // It counts anew.
                }
                told.entry = entry;
                self.serving.set(told.session, id, entry == Entry::Serving);
            }
            Change::Counts { slot, counts } | Change::TakenOver { slot, counts: Some(counts) } => {
                slots.entry(slot).and_modify(|told| told.counts[1] = counts[0]);
            }
            Change::TakenOver { counts: None, .. } => {}
            Change::Free { slot } => {
                if let Some(told) = slots.remove(&slot) {
                    self.serving.set(told.session, id, false);
                }
            }
        }
    }

    /// Establishes sessions without faults, as many as planned.
    fn fill(&mut self) {
        self.calm = true;
        while self.known.len() < self.plan.filled && self.outcome.violation.is_none() {
            let missing = self.plan.filled.saturating_sub(self.known.len() + self.unsure.len());
            let asks = if self.forms() { 0 } else { missing.min(FILL_MAX) };
            (0..asks).for_each(|_| {
                let at = self.random.random_range(0..self.hosts.len());
                if let Some(me) = self.hosts[at].node.as_ref().map(Node::me) {
                    let (request, session) = self.establish();
                    self.ask(me, request, session);
                }
            });
            self.run_until(self.now + 2 * self.plan.settings.beat_us);
            if self.now > FILL_US_MAX {
                let known = self.known.len();
                self.violated(4, format!("without faults, {known} sessions are established"));
            }
        }
        self.calm = false;
    }

    /// Whether a node is not live, or a partition has no owner that reigns.
    fn forms(&self) -> bool {
        let nodes = || self.hosts.iter().filter_map(|host| host.node.as_ref());
        nodes().any(|node| node.state() != Some(State::Live))
            || nodes().flat_map(Node::reigns).count() < self.delivered.len()
    }

    fn establish(&mut self) -> (Request, SessionId) {
        self.next += 1;
        let count = self.random.random_range(1..4);
        let keys = (0..count).map(|nth| {
            let full = u128::from(self.next) << 8 | nth;
            Key { hash: mix(full as u64), full }
        });
        let keys: Arc<[Key]> = keys.collect();
        let again = self.removed.pop().filter(|_| self.next.is_multiple_of(2));
        self.again.extend(again.as_ref().map(|keys| SessionId(keys[0].hash)));
        let keys = again.unwrap_or(keys);
        let session = SessionId(keys[0].hash);
        self.unsure.insert(session, Arc::clone(&keys));
        (Request::Establish { keys, context: Arc::new([]), to: None }, session)
    }

    fn ask(&mut self, me: Member, request: Request, session: SessionId) {
        self.next += 1;
        self.asked.insert(self.next, Asked { request: request.clone(), session });
        self.step(me, Event::Request(self.next, request));
    }

    /// A client asks for something at a random node.
    fn client(&mut self) {
        let at = self.random.random_range(0..self.plan.nodes);
        let Some(me) = self.hosts[usize::from(at)].node.as_ref().map(Node::me) else { return };
        // As often with many requests as with few.
        if self.random.random_range(0..self.plan.requests * 25 / 2) == 0 {
            return self.step(me, Event::Rebalance);
        }
        let known = self.known.len();
        let pick = self.random.random_range(0..known.max(1) as u64) as usize;
        let picked = self.known.nth(pick).map(|(session, content)| (session, content.clone()));
        let (request, session) = match (self.random.random_range(0..10), picked) {
            (0..5, Some((session, _))) if known >= self.plan.sessions / 2 => {
                let to = self.random.random_range(0..self.plan.nodes);
                let to = self.random.random_bool(0.8).then_some(NodeId(to));
                (Request::Move { session, to }, session)
            }
            (5..7, Some((session, (old, context)))) if known >= self.plan.sessions / 2 => {
                // The first key stays; of the others some go, and new ones come.
                let kept = old[1..].iter().filter(|key| key.full % 3 == 0).copied();
                self.next += 1;
                let full = u128::from(self.next) << 8;
                let new = Key { hash: mix(full as u64), full };
                // Some come back.
                let given_up = self.given_up.remove(&session).unwrap_or_default();
                let keys = [old[0]].into_iter().chain(kept).chain([new]).chain(given_up);
                let keys: Arc<[Key]> = keys.take(8).collect();
                let given_up = old.iter().filter(|key| !keys.contains(key));
                self.given_up.insert(session, given_up.copied().collect());
                self.known.remove(session);
                self.unsure.insert(session, Arc::clone(&keys));
                self.before.insert(session, (old, context));
                let context = Arc::new(self.next.to_le_bytes());
                (Request::Update { session, keys, context, before: None }, session)
            }
            (0, Some((session, (keys, _)))) => {
                self.known.remove(session);
                self.unsure.insert(session, keys);
                (Request::Remove { session }, session)
            }
            _ if known + self.unsure.len() < self.plan.sessions => self.establish(),
            _ => return,
        };
        self.ask(me, request, session);
    }

    fn answered(&mut self, number: u64, answer: Answer) {
        let (done, late) = (answer.is_ok(), answer.err() == Some(Refusal::Timeout));
        self.outcome.answered[usize::from(!done)] += 1;
        let Some(Asked { request, session }) = self.asked.remove(&number) else { return };
        match request {
            Request::Establish { keys, context, .. } | Request::Update { keys, context, .. }
                if done =>
            {
                self.unsure.remove(&session);
                self.before.remove(&session);
                self.known.insert(session, (keys, context));
            }
            Request::Establish { .. } if !late => {
                self.unsure.remove(&session);
            }
            Request::Update { .. } if !late => {
                self.unsure.remove(&session);
                if let Some(before) = self.before.remove(&session) {
                    self.known.insert(session, before);
                }
            }
            Request::Remove { .. } if done => {
                self.given_up.remove(&session);
                self.removed.extend(self.unsure.remove(&session));
            }
            Request::Move { .. } if done => self.outcome.moves += 1,
            // It may have happened, or may yet happen.
            _ => {}
        }
    }

    fn fault(&mut self) {
        if !self.chance(self.plan.faults.events / 4) {
            return;
        }
        let id = NodeId(self.random.random_range(0..self.plan.nodes));
        let until = self.now + self.random.random_range(200_000..8_000_000);
        // The last node is not asked to leave: there would be none to take its sessions.
        let stay = self.hosts.iter().filter(|host| !host.drains).count();
        let host = &mut self.hosts[usize::from(id.0)];
        match self.random.random_range(0..8) {
            0 => {
                host.node = None;
                self.outcome.crashes += 1;
                self.start(id);
            }
            1 => host.paused_until = until,
            2 => host.etcd_cut = until,
            3 => host.cut = until,
            4 => (host.etcd_cut, host.cut) = (until, until),
            5 => self.etcd_down = until,
            6 => self.log_down = until,
            _ if !host.drains && stay > 1 => {
                host.drains = true;
                if let Some(me) = host.node.as_ref().map(Node::me) {
                    self.step(me, Event::Drain { rate: None });
                }
            }
            _ => {}
        }
    }

    /// The faults end.
    pub(super) fn end_faults(&mut self) {
        self.calm = true;
        (self.etcd_down, self.log_down) = (0, 0);
        for host in &mut self.hosts {
            (host.etcd_cut, host.cut, host.paused_until) = (0, 0, 0);
        }
    }
}
