//! The simulator: nodes in virtual time, seeded faults, packets all the time, guarantees checked.
//!
//! A packet's way takes no time, so that a broken guarantee shows at its moment. Requests, replies,
//! watches, deliveries and messages take random times, are lost and come twice. After the faults,
//! the cluster has time to recover; then every session that was answered must be reached from
//! every node that takes packets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use overbank::hash::mix;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Etcd, Log};
use crate::etcd::{self, State};
use crate::message::{Answer, Message, Refusal, Request};
use crate::node::{Change, Entry, Shown};
use crate::rib::{Context, Hold, Rib};
use crate::table::Gpt;
use crate::{
    Action, Decision, DropReason, Event, Key, Member, Micros, Node, NodeId, Partition, Revision,
    SessionId, Settings, Tag, log,
};

/// Chances of a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// A message, a request, a reply or a delivery is lost.
    pub loss: u32,
    /// It comes twice.
    pub twice: u32,
    /// It takes up to a second.
    pub late: u32,
    /// Crashes, pauses, cut links and outages of etcd or the log, in a virtual second.
    pub events: u32,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self { loss: 0, twice: 0, late: 0, events: 0 };
    /// Messages and batches are lost, late and repeated; no node fails.
    pub const LOSSY: Self = Self { loss: 30, twice: 50, late: 50, events: 0 };
    /// Everything goes wrong, often.
    pub const ROUGH: Self = Self { loss: 30, twice: 20, late: 20, events: 250 };
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Nodes.
    pub nodes: u8,
    /// Sessions that exist at a time.
    pub sessions: u64,
    /// Time with faults.
    pub time_us: Micros,
    /// What goes wrong.
    pub faults: Faults,
    /// The cluster.
    pub settings: Settings,
}

impl Plan {
    /// A small cluster with all faults: some 10 ms of real time.
    pub fn small() -> Self {
        Self {
            nodes: 4,
            sessions: 24,
            time_us: 20_000_000,
            faults: Faults::ROUGH,
            settings: Settings {
                partitions: 4,
                node_bits: 2,
                partition_keys: 64,
                rest_us: 3_000_000,
                rebuild_from: 2,
                snapshot_every: 8,
                drain_rate: 200,
                suspend_us: 2_000_000,
                ..Settings::default()
            },
        }
    }
}

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

struct Host<T: Gpt> {
    node: Option<Node<T>>,
    incarnation: u64,
    /// Added to the time.
    offset: Micros,
    /// Parts per million by which its clock is faster or slower.
    drift: i64,
    paused_until: Micros,
    watched: Revision,
    etcd_cut: Micros,
    /// Cut from the nodes of this set.
    cut: Micros,
    drains: bool,
    /// What its data path was told of sessions, by slot.
    contexts: BTreeMap<u32, Context>,
    /// Packets that it has handled, and those counted before, by slot.
    counts: BTreeMap<u32, [u64; 2]>,
}

/// Keys and context of a session.
type Content = (Arc<[Key]>, Context);

struct Asked {
    request: Request,
    session: SessionId,
}

struct World<T: Gpt> {
    plan: Plan,
    random: Pcg64Mcg,
    now: Micros,
    hosts: Vec<Host<T>>,
    etcd: Etcd,
    log: Log<T>,
    etcd_down: Micros,
    log_down: Micros,
    queue: BinaryHeap<Reverse<(Micros, u64)>>,
    posts: BTreeMap<u64, Post<T>>,
    next: u64,
    outcome: Outcome,
    asked: BTreeMap<u64, Asked>,
    /// Sessions that were answered, with their keys.
    known: BTreeMap<SessionId, Content>,
    /// Sessions that are being established or removed.
    unsure: BTreeMap<SessionId, Arc<[Key]>>,
    /// Those that are being changed, as they were.
    before: BTreeMap<SessionId, Content>,
    /// The last content of sessions that were removed, and keys that others have given up.
    removed: Vec<Arc<[Key]>>,
    again: BTreeSet<SessionId>,
    given_up: BTreeMap<SessionId, Vec<Key>>,
    /// Packets handled of each session, at all nodes together.
    handled: BTreeMap<SessionId, u64>,
    watched: Revision,
    delivered: BTreeMap<Partition, u64>,
    calm: bool,
}

/// Runs a seed to its end, or to the first broken guarantee.
pub fn run<T: Gpt>(plan: Plan, seed: u64) -> Outcome {
    let mut world = World::<T>::new(plan, seed);
    world.run_until(plan.time_us);
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
            contexts: BTreeMap::new(),
            counts: BTreeMap::new(),
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
            queue: BinaryHeap::new(),
            posts: BTreeMap::new(),
            next: 0,
            outcome: Outcome::default(),
            asked: BTreeMap::new(),
            known: BTreeMap::new(),
            unsure: BTreeMap::new(),
            before: BTreeMap::new(),
            removed: Vec::new(),
            again: BTreeSet::new(),
            given_up: BTreeMap::new(),
            handled: BTreeMap::new(),
            watched: 0,
            delivered: BTreeMap::new(),
            calm: false,
        };
        (0..plan.nodes).for_each(|node| world.start(NodeId(node)));
        world
    }

    fn chance(&mut self, of_thousand: u32) -> bool {
        !self.calm && self.random.random_range(0..1000) < of_thousand
    }

    fn clock(&self, node: NodeId) -> Micros {
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
        host.contexts.clear();
        host.counts.clear();
        let me = Member { node: id, incarnation: host.incarnation };
        host.node = Some(Node::new(settings, me, Arc::default(), clock));
        self.post(1, Post::Tick(id));
        self.post(1, Post::Watch(me));
    }

    fn post(&mut self, after: Micros, post: Post<T>) {
        self.next += 1;
        self.posts.insert(self.next, post);
        self.queue.push(Reverse((self.now + after, self.next)));
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

    fn run_until(&mut self, end: Micros) {
        let mut next_packet = self.now;
        let mut next_second = self.now;
        while self.outcome.violation.is_none() {
            let Some(&Reverse((at, id))) = self.queue.peek() else { return };
            if at.min(next_packet) > end {
                self.now = end;
                return;
            }
            if next_packet <= at {
                self.now = next_packet;
                next_packet += 5_000;
                self.etcd.expire(self.now);
                self.publish();
                self.packets();
                if self.now >= next_second && !self.calm {
                    next_second += 250_000;
                    self.fault();
                    (0..4).for_each(|_| self.client());
                }
                continue;
            }
            self.queue.pop();
            self.now = at;
            if let Some(post) = self.posts.remove(&id) {
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
                self.publish();
            }
            Post::Watch(member) => self.watch(at, member),
            Post::ToLog(from, request) => {
                if self.log_down > at {
                    return;
                }
                if let Some(reply) = self.log.request(request)
                    && !self.lost()
                {
                    let delay = self.delay();
                    self.post(delay, Post::Event(from, Event::Log(reply)));
                }
                self.publish();
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

    /// Wakes watches, and delivers new batches to all nodes.
    fn publish(&mut self) {
        let members: Vec<Member> =
            self.hosts.iter().filter_map(|host| host.node.as_ref()).map(Node::me).collect();
        if self.etcd.revision() > self.watched {
            self.watched = self.etcd.revision();
            for &member in &members {
                let delay = self.delay();
                self.post(delay, Post::Watch(member));
            }
        }
        for partition in (0..self.plan.settings.partitions).map(Partition) {
            let from = self.delivered.get(&partition).copied().unwrap_or(0);
            let last = self.log.last(partition);
            self.delivered.insert(partition, last);
            for sequence in from + 1..=last {
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
            Action::Session(change) => {
                let host = &mut self.hosts[usize::from(from.node.0)];
                match change {
                    Change::Counts { slot, counts }
                    | Change::TakenOver { slot, counts: Some(counts) } => {
                        host.counts.entry(slot).or_default()[1] = counts[0];
                    }
                    // It counts anew.
                    Change::Install { slot, .. }
                    | Change::Show { slot, shown: Shown { entry: Entry::Standby { .. }, .. } } => {
                        host.counts.insert(slot, [0, 0]);
                    }
                    _ => {}
                }
                let contexts = &mut host.contexts;
                match change {
                    Change::Install { slot, context, .. } | Change::Renew { slot, context, .. } => {
                        contexts.insert(slot, context);
                    }
                    Change::Free { slot } => drop(contexts.remove(&slot)),
                    Change::Show { .. } | Change::Counts { .. } | Change::TakenOver { .. } => {}
                }
            }
            Action::Answer(number, answer) => self.answered(number, answer),
            Action::Note(..) => {}
            Action::End { .. } => {
                self.hosts[usize::from(from.node.0)].node = None;
                self.start(from.node);
            }
        }
    }

    /// A client asks for something at a random node.
    fn client(&mut self) {
        let at = self.random.random_range(0..self.plan.nodes);
        let Some(me) = self.hosts[usize::from(at)].node.as_ref().map(Node::me) else { return };
        if self.random.random_range(0..50) == 0 {
            return self.step(me, Event::Rebalance);
        }
        let known = self.known.len() as u64;
        let pick = self.random.random_range(0..known.max(1)) as usize;
        let picked = self.known.iter().nth(pick).map(|(&s, content)| (s, content.clone()));
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
                self.known.remove(&session);
                self.unsure.insert(session, Arc::clone(&keys));
                self.before.insert(session, (old, context));
                let context = Arc::new(self.next.to_le_bytes());
                (Request::Update { session, keys, context, before: None }, session)
            }
            (0, Some((session, (keys, _)))) => {
                self.known.remove(&session);
                self.unsure.insert(session, keys);
                (Request::Remove { session }, session)
            }
            _ if known + (self.unsure.len() as u64) < self.plan.sessions => {
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
            _ => return,
        };
        self.next += 1;
        self.asked.insert(self.next, Asked { request: request.clone(), session });
        self.step(me, Event::Request(self.next, request));
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

    fn violated(&mut self, guarantee: u8, what: String) {
        let at = self.now;
        let what = format!("at {at} us: {what}");
        self.outcome.violation.get_or_insert(Violation { guarantee, what });
    }

    /// Sends a packet of a key in at a node; returns which node handled it, by which slot.
    fn packet(&mut self, ingress: NodeId, key: Key) -> Result<(NodeId, u32), Option<DropReason>> {
        self.outcome.received += 1;
        let (mut at, mut tag) = (ingress, Tag::default());
        loop {
            let host = &self.hosts[usize::from(at.0)];
            let up = host.node.as_ref().filter(|_| host.paused_until <= self.now);
            let Some(node) = up else {
                self.outcome.lost += 1;
                return Err(None);
            };
            match node.decide(self.clock(at), key, tag) {
                Decision::Handle(slot) => {
                    self.outcome.handled[usize::from(tag.hops)] += 1;
                    let session = node.sessions().iter().find(|of| of.1.slot == slot);
                    let session = session.map_or(SessionId(0), |of| *of.0);
                    self.hosts[usize::from(at.0)].counts.entry(slot).or_default()[0] += 1;
                    let handled = self.handled.entry(session).or_default();
                    *handled += 1;
                    let (handled, counted) = (*handled, self.counted(at, session));
                    if counted > handled {
                        let what = format!("{counted} packets of {session:?}, in truth {handled}");
                        self.violated(6, what);
                    }
                    return Ok((at, slot));
                }
                Decision::Forward(to, next) => {
                    if next.hops > 2 {
                        self.violated(2, format!("a packet took {} hops", next.hops));
                    }
                    (at, tag) = (to, next);
                }
                Decision::Drop(why) => {
                    self.outcome.dropped[why.index()] += 1;
                    return Err(Some(why));
                }
            }
        }
    }

    /// What a node has counted of a session.
    fn counted(&self, at: NodeId, session: SessionId) -> u64 {
        let host = &self.hosts[usize::from(at.0)];
        let local = host.node.as_ref().and_then(|node| node.sessions().get(&session));
        local.and_then(|local| host.counts.get(&local.slot)).map_or(0, |counts| counts.iter().sum())
    }

    /// Packets of a few sessions into every node: at most one node handles each session.
    fn packets(&mut self) {
        let known: Vec<Arc<[Key]>> =
            self.known.values().map(|of| &of.0).chain(self.unsure.values()).cloned().collect();
        for _ in 0..2 {
            if known.is_empty() {
                return;
            }
            let keys = &known[self.random.random_range(0..known.len())];
            let key = keys[self.random.random_range(0..keys.len())];
            let mut by = BTreeSet::new();
            let answered = self.known.contains_key(&SessionId(keys[0].hash));
            for ingress in (0..self.plan.nodes).map(NodeId) {
                let handled = self.packet(ingress, key);
                by.extend(handled.ok().map(|handled| handled.0));
                // Where no node fails, no packet is lost to a move.
                if self.plan.faults.events == 0
                    && answered
                    && let Err(Some(why @ (DropReason::Unknown | DropReason::Loop))) = handled
                {
                    self.violated(2, format!("{why:?} at {ingress:?} of an answered {key:?}"));
                }
            }
            if by.len() > 1 {
                self.violated(5, format!("nodes {by:?} handle a packet of {key:?}"));
            }
        }
        // Whatever packets come: two nodes never serve a session.
        let mut serving = BTreeMap::new();
        let mut both = None;
        for id in (0..self.plan.nodes).map(NodeId) {
            let host = &self.hosts[usize::from(id.0)];
            let Some(node) = &host.node else { continue };
            if host.paused_until > self.now || self.clock(id) >= node.valid_until() {
                continue;
            }
            for (session, local) in node.sessions() {
                if local.entry == Entry::Serving
                    && let Some(other) = serving.insert(*session, id)
                {
                    both = Some((*session, other, id));
                }
            }
        }
        if let Some(both) = both {
            self.violated(5, format!("two nodes serve a session: {both:?}"));
        }
        // An unknown key is handled by none.
        let unknown = Key { hash: self.random.random(), full: u128::MAX };
        let ingress = NodeId(self.random.random_range(0..self.plan.nodes));
        if self.packet(ingress, unknown).is_ok() {
            self.violated(2, "a packet of no session was handled".into());
        }
    }

    /// Each key in use is one of its session, and what sessions gave up is free.
    fn recovered_keys(&mut self) {
        let nodes = self.hosts.iter().filter_map(|host| host.node.as_ref());
        let ribs: BTreeMap<Partition, &Rib> = nodes.flat_map(Node::reigns).collect();
        let partitions = self.plan.settings.partitions;
        let mut wrong = None;
        for (own, rib) in &ribs {
            for (&hash, held) in rib.keys.in_order() {
                let home = ribs.get(&Partition::of(held.session.0, partitions));
                let session = home.and_then(|home| home.sessions.get(&held.session));
                let key = Key { hash, full: held.full };
                let has = session.is_some_and(|session| session.keys.contains(&key));
                if !has && !matches!(held.hold, Hold::Resting(..)) {
                    wrong = Some(format!("{held:?} of {own:?} is not {session:?}'s"));
                }
            }
            if !rib.freeing.is_empty() {
                wrong = Some(format!("{own:?} still frees {:?}", rib.freeing));
            }
        }
        if let Some(wrong) = wrong {
            self.violated(4, wrong);
        }
    }

    /// The faults end; each session that was answered must be reached from each live node.
    fn recover(&mut self) {
        if self.outcome.violation.is_some() {
            return;
        }
        self.calm = true;
        (self.etcd_down, self.log_down) = (0, 0);
        for host in &mut self.hosts {
            (host.etcd_cut, host.cut, host.paused_until) = (0, 0, 0);
        }
        self.run_until(self.now + 12 * self.plan.settings.lease_us);
        let states: Vec<_> =
            self.hosts.iter().map(|h| h.node.as_ref().and_then(Node::state)).collect();
        if !states.contains(&Some(State::Live)) {
            self.violated(4, format!("no node is live after the faults: {states:?}"));
        }
        self.recovered_keys();
        let known: Vec<_> = self.known.iter().map(|(s, of)| (*s, of.clone())).collect();
        for (session, (keys, context)) in known {
            for &key in keys.iter() {
                for (at, state) in states.iter().enumerate() {
                    if !matches!(state, Some(State::Live | State::Draining)) {
                        continue;
                    }
                    let ingress = NodeId(at as u8);
                    let before = self.outcome.handled;
                    let handled = self.packet(ingress, key);
                    if let Ok((at, slot)) = handled
                        && self.hosts[usize::from(at.0)].contexts.get(&slot) != Some(&context)
                    {
                        self.violated(4, format!("{session:?} at {at:?} is not as answered"));
                    }
                    // Where no node fails, nothing is lost of what was counted; names come back.
                    let counted = handled.map_or(0, |at| self.counted(at.0, session));
                    if self.plan.faults.events == 0
                        && !self.again.contains(&session)
                        && self.handled.get(&session) != Some(&counted)
                    {
                        let what = format!("{counted} of {:?}", self.handled.get(&session));
                        self.violated(6, format!("{what} packets of {session:?} are counted"));
                    }
                    if handled.is_err() {
                        let what = format!(
                            "{session:?} was answered; {key:?} in at {ingress:?}: {handled:?}"
                        );
                        self.violated(4, what);
                    } else if self.outcome.handled[2] > before[2] {
                        let what = format!("{session:?} at rest takes two hops from {ingress:?}");
                        self.violated(1, what);
                    }
                }
            }
        }
        let sum = self.outcome.handled.iter().sum::<u64>()
            + self.outcome.dropped.iter().sum::<u64>()
            + self.outcome.lost;
        if sum != self.outcome.received {
            self.violated(6, format!("{sum} of {} packets", self.outcome.received));
        }
    }
}
