//! The driver that has all nodes in one process: no I/O, and no faults but cut and slow links
//! ([`Links`]).
//!
//! In a round each node takes all that has come in for it, at once; then their
//! actions are performed, node by node. So nodes may take their steps on several threads
//! ([`Memory::threads`]) and everything still happens in the same order.
//!
//! etcd and the log are the models of [`crate::sim`], which lose nothing here. Virtual or real time
//! comes from the caller. `overbank gateway demo`, the lab's experiments and tests run on it. A
//! gateway alone needs no driver: it has no cluster engine.

mod links;

pub use links::Links;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::etcd::Info;
use crate::message::{Answer, Message, Request};
use crate::node::Change;
use crate::sim::{Etcd, Log};
use crate::table::Gpt;
use crate::{
    Action, Decision, DropReason, Event, Key, Member, Micros, Node, NodeId, Partition, Revision,
    Sequence, Settings, Tag,
};

/// What a driver hears from its nodes, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A request was answered.
    Answer(u64, Answer),
    /// The data path of a node changes.
    Session(NodeId, Change),
    /// A node has left or was removed.
    Ended(NodeId),
    /// The gateway of a node hears what that of another has noted.
    Note(NodeId, Member, Arc<[u8]>),
}

/// See the module.
pub struct Memory<T: Gpt> {
    settings: Settings,
    now: Micros,
    nodes: Vec<Option<Node<T>>>,
    incarnations: Vec<u64>,
    watched: Vec<Revision>,
    delivered: Vec<Sequence>,
    etcd: Etcd,
    log: Log<T>,
    info: fn(NodeId) -> Info,
    /// What has come in, by node.
    inboxes: Vec<VecDeque<Event<T>>>,
    connected: Vec<links::Connected<T>>,
    threads: usize,
}

/// A node with what has come in for it, and the actions that follow.
struct Work<'a, T: Gpt> {
    node: &'a mut Node<T>,
    events: VecDeque<Event<T>>,
    out: Vec<Action<T>>,
}

/// Events of a round from which on other threads take part: starting them takes some 50 us.
const SHARED_FROM: usize = 256;

impl<T: Gpt> Memory<T> {
    /// Makes a cluster of up to 256 nodes, all started; they become live within a few beats.
    pub fn new(settings: Settings, nodes: u8) -> Self {
        Self::with_info(settings, nodes, |_| Arc::default())
    }

    /// As [`Memory::new`]; each node publishes this of itself.
    pub fn with_info(settings: Settings, nodes: u8, info: fn(NodeId) -> Info) -> Self {
        let mut memory = Self {
            settings,
            now: 0,
            nodes: (0..nodes).map(|_| None).collect(),
            incarnations: vec![0; usize::from(nodes)],
            watched: vec![0; usize::from(nodes)],
            delivered: vec![0; usize::from(settings.partitions)],
            etcd: Etcd::default(),
            log: Log::default(),
            info,
            inboxes: (0..nodes).map(|_| VecDeque::new()).collect(),
            connected: (0..nodes).map(|_| links::Connected::default()).collect(),
            threads: 1,
        };
        (0..nodes).for_each(|node| memory.start(NodeId(node)));
        memory
    }

    /// Sets the number of threads that take steps; 1 at first. What happens does not depend on it.
    pub fn threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
    }

    /// Starts a node anew; its earlier run ends at once, as by a crash.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn start(&mut self, id: NodeId) {
        let at = usize::from(id.0);
        self.incarnations[at] += 1;
        self.watched[at] = 0;
        self.inboxes[at].clear();
        self.connected[at].restart();
        let me = Member { node: id, incarnation: self.incarnations[at] };
        let info = (self.info)(id);
        self.nodes[at] = Some(Node::new(self.settings, me, info, self.now));
    }

    /// Ends a node at once, as by a crash.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn kill(&mut self, id: NodeId) {
        self.nodes[usize::from(id.0)] = None;
        self.inboxes[usize::from(id.0)].clear();
        self.connected[usize::from(id.0)].restart();
    }

    /// Returns a node, if it runs.
    pub fn node(&self, id: NodeId) -> Option<&Node<T>> {
        self.nodes.get(usize::from(id.0))?.as_ref()
    }

    /// Lets a node leave: it gives its sessions away first.
    pub fn drain(&mut self, id: NodeId) {
        self.deliver(id, Event::Drain);
    }

    /// Asks a node for something. The answer to `number` comes by [`Memory::advance`].
    pub fn request(&mut self, id: NodeId, number: u64, request: Request) {
        self.deliver(id, Event::Request(number, request));
    }

    /// Has a node leave something to later speakers.
    pub fn share(&mut self, id: NodeId, shared: Info) {
        self.deliver(id, Event::Share(shared));
    }

    /// Has a node tell the gateway of another one something.
    pub fn note(&mut self, id: NodeId, to: NodeId, note: Arc<[u8]>) {
        self.deliver(id, Event::Note(to, note));
    }

    fn deliver(&mut self, id: NodeId, event: Event<T>) {
        if self.node(id).is_some() {
            self.inboxes[usize::from(id.0)].push_back(event);
        }
    }

    /// Advances the time, and does all that follows, round by round.
    pub fn advance(&mut self, now: Micros, heard: &mut Vec<Heard>) {
        self.begin(now);
        while self.next().is_some() {
            self.round(heard);
        }
    }

    /// Begins to advance the time: what follows is done by [`Memory::step`].
    pub fn begin(&mut self, now: Micros) {
        self.now = self.now.max(now);
        self.etcd.expire(self.now);
        (0..self.nodes.len() as u8).for_each(|id| self.deliver(NodeId(id), Event::Tick));
    }

    /// Does the next thing alone; returns false if there is nothing left to do.
    pub fn step(&mut self, heard: &mut Vec<Heard>) -> bool {
        let Some(at) = self.next() else { return false };
        let (node, event) = (self.nodes[at].as_mut(), self.inboxes[at].pop_front());
        if let (Some(node), Some(event)) = (node, event) {
            let (me, mut out) = (node.me(), Vec::new());
            node.step(self.now, event, &mut out);
            out.into_iter().for_each(|action| self.act(me, action, heard));
        }
        true
    }

    /// A node for which something has come in.
    fn next(&mut self) -> Option<usize> {
        self.watches();
        self.inboxes.iter().position(|events| !events.is_empty())
    }

    fn round(&mut self, heard: &mut Vec<Heard>) {
        let now = self.now;
        let nodes = self.nodes.iter_mut().zip(&mut self.inboxes);
        let nodes = nodes.filter(|(_, events)| !events.is_empty());
        let mut works: Vec<Work<'_, T>> = nodes
            .filter_map(|(node, events)| {
                let (node, events) = (node.as_mut()?, std::mem::take(events));
                Some(Work { node, events, out: Vec::new() })
            })
            .collect();
        let events: usize = works.iter().map(|work| work.events.len()).sum();
        let threads = if events < SHARED_FROM { 1 } else { self.threads };
        let rest = Mutex::new(works.iter_mut());
        let step = || {
            loop {
                let next = rest.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(Work { node, events, out }) = next else { return };
                node.steps(now, events.drain(..), out);
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(step)));
            step();
        });
        let acts: Vec<_> = works.into_iter().map(|work| (work.node.me(), work.out)).collect();
        for (from, out) in acts {
            out.into_iter().for_each(|action| self.act(from, action, heard));
        }
    }

    fn watches(&mut self) {
        let revision = self.etcd.revision();
        let nodes = self.nodes.iter().zip(&self.connected).zip(&mut self.watched);
        let nodes = nodes.zip(&mut self.inboxes).map(|((of, watched), inbox)| (of, watched, inbox));
        for (_, watched, inbox) in nodes.filter(|((node, c), ..)| node.is_some() && !c.is_cut()) {
            while *watched < revision {
                *watched += 1;
                inbox.extend(self.etcd.change(*watched).map(Event::Etcd));
            }
        }
    }

    fn act(&mut self, from: Member, action: Action<T>, heard: &mut Vec<Heard>) {
        let at = usize::from(from.node.0);
        let Some(action) = self.connected[at].out(action) else { return };
        match action {
            Action::Etcd(request) => {
                let reply = self.etcd.request(self.now, self.settings.lease_us, request);
                self.inboxes[at].extend(reply.map(Event::Etcd));
            }
            Action::Log(request) => {
                let reply = self.log.request(request);
                if let Some(crate::log::Reply::Appended { partition, .. }) = reply {
                    self.publish(partition);
                } else {
                    let reply = reply.and_then(|reply| self.connected[at].log(Event::Log(reply)));
                    self.inboxes[at].extend(reply);
                }
            }
            Action::Send(to, message) => self.message(from, to, message),
            Action::Broadcast(beat) => {
                for to in (0..self.nodes.len() as u8).map(NodeId).filter(|&to| to != from.node) {
                    let beat = Message::Beat(Arc::clone(&beat));
                    self.message(from, to, beat);
                }
            }
            Action::Session(change) => heard.push(Heard::Session(from.node, change)),
            Action::Answer(number, answer) => heard.push(Heard::Answer(number, answer)),
            Action::Note(of, note) => heard.push(Heard::Note(from.node, of, note)),
            Action::End { again } => {
                heard.push(Heard::Ended(from.node));
                self.kill(from.node);
                if again {
                    self.start(from.node);
                }
            }
        }
    }

    /// Delivers what is new in a partition to all nodes, its owner included.
    fn publish(&mut self, partition: Partition) {
        let last = self.log.last(partition);
        let delivered = std::mem::replace(&mut self.delivered[partition.index()], last);
        for sequence in delivered + 1..=last {
            let nodes = self.nodes.iter().zip(&mut self.connected).zip(&mut self.inboxes);
            for ((_, connected), inbox) in nodes.filter(|((node, _), _)| node.is_some()) {
                let batch = self.log.batch(partition, sequence);
                inbox.extend(batch.and_then(|batch| connected.log(Event::Log(batch))));
            }
        }
    }

    /// Sends a packet in at a node; returns the node that handles it, with the session's slot.
    ///
    /// # Errors
    /// Why it was dropped; `None`: it went to a node that does not run.
    pub fn packet(&self, ingress: NodeId, key: Key) -> Result<(NodeId, u32), Option<DropReason>> {
        let (mut at, mut tag) = (ingress, Tag::default());
        loop {
            match self.node(at).ok_or(None)?.decide(self.now, key, tag) {
                Decision::Handle(slot) => return Ok((at, slot)),
                Decision::Forward(to, next) => (at, tag) = (to, next),
                Decision::Drop(why) => return Err(Some(why)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use overbank::hash::mix;

    use super::*;
    use crate::SessionId;
    use crate::etcd::State;
    use crate::message::{Answered, Refusal};
    use crate::node::Shown;
    use crate::table::Dense;

    const BEAT: Micros = 50_000;

    struct Cluster {
        memory: Memory<Dense>,
        now: Micros,
        heard: Vec<Heard>,
        keys: Vec<Key>,
    }

    impl Cluster {
        fn new(nodes: u8, sessions: u64) -> Self {
            // Tables that are full several times.
            let (partitions, node_bits, partition_keys) = (8, 3, 32);
            let settings =
                Settings { partitions, node_bits, partition_keys, ..Settings::default() };
            let memory = Memory::new(settings, nodes);
            let mut cluster = Self { memory, now: 0, heard: Vec::new(), keys: Vec::new() };
            cluster.beats(20);
            for nth in 0..sessions {
                let key = Key { hash: mix(nth), full: nth.into() };
                let other = Key { hash: mix(nth | 1 << 40), full: u128::from(nth) | 1 << 40 };
                let (keys, context) = (Arc::new([key, other]), Arc::new([]));
                let request = Request::Establish { keys, context, to: None };
                cluster.memory.request(NodeId(nth as u8 % nodes), nth, request);
                cluster.keys.extend([key, other]);
            }
            cluster.beats(10);
            let done = |heard: &&Heard| matches!(heard, Heard::Answer(_, Ok(_)));
            assert_eq!(cluster.heard.iter().filter(done).count() as u64, sessions);
            cluster
        }

        fn beats(&mut self, count: u64) {
            for _ in 0..count {
                self.now += BEAT;
                self.memory.advance(self.now, &mut self.heard);
            }
            self.changes_tell_what_nodes_do();
        }

        /// A data path that has heard every change has what its node decides by.
        fn changes_tell_what_nodes_do(&self) {
            let mut told = BTreeMap::<(NodeId, u32), (SessionId, Shown, Arc<[Key]>)>::new();
            for heard in &self.heard {
                match heard {
                    Heard::Session(node, Change::Install { slot, session, keys, shown, .. }) => {
                        let new = (*session, *shown, Arc::clone(keys));
                        assert!(told.insert((*node, *slot), new).is_none());
                    }
                    Heard::Session(node, Change::Renew { slot, keys, .. }) => {
                        told.get_mut(&(*node, *slot)).expect("installed").2 = Arc::clone(keys);
                    }
                    Heard::Session(node, Change::Counts { slot, .. }) => {
                        assert!(told.contains_key(&(*node, *slot)));
                    }
                    Heard::Session(node, Change::Show { slot, shown }) => {
                        told.get_mut(&(*node, *slot)).expect("installed").1 = *shown;
                    }
                    Heard::Session(node, Change::Free { slot }) => {
                        assert!(told.remove(&(*node, *slot)).is_some());
                    }
                    Heard::Ended(node) => told.retain(|at, _| at.0 != *node),
                    Heard::Answer(..) | Heard::Note(..) => {}
                }
            }
            for node in (0..8).filter_map(|id| self.memory.node(NodeId(id))) {
                let id = node.me().node;
                let local = node.sessions().iter();
                let local: BTreeMap<_, _> = local
                    .map(|(s, l)| ((id, l.slot), (*s, l.shown(), Arc::clone(&l.keys))))
                    .collect();
                let told = told.iter().filter(|told| told.0.0 == id);
                assert!(told.map(|(at, what)| (*at, what.clone())).eq(local), "node {id:?}");
            }
        }

        /// Every packet is handled, whichever of these nodes it comes in at.
        fn all_handled(&self, nodes: &[u8]) {
            for &ingress in nodes {
                for &key in &self.keys {
                    let handled = self.memory.packet(NodeId(ingress), key);
                    assert!(handled.is_ok(), "{key:?} in at {ingress}: {handled:?}");
                }
            }
        }
    }

    #[test]
    fn one_node_is_a_cluster() {
        Cluster::new(1, 100).all_handled(&[0]);
    }

    #[test]
    fn moves_lose_no_packet() {
        let mut cluster = Cluster::new(4, 400);
        for round in 0..5u8 {
            for nth in (0..400).step_by(2) {
                let session = SessionId(mix(nth));
                let request = Request::Move { session, to: None };
                cluster.memory.request(NodeId(round % 4), 1000 + nth, request);
            }
            for _ in 0..6 {
                cluster.beats(1);
                cluster.all_handled(&[0, 1, 2, 3]);
            }
        }
    }

    #[test]
    fn load_without_a_pause_suspends_no_node() {
        let mut cluster = Cluster::new(4, 400);
        cluster.memory.threads(2);
        for round in 0..2 * Settings::default().suspend_us / BEAT {
            for nth in (round % 8..400).step_by(8) {
                let session = SessionId(mix(nth));
                let request = Request::Move { session, to: None };
                cluster.memory.request(NodeId(nth as u8 % 4), 1000 + nth, request);
            }
            cluster.beats(1);
        }
        cluster.all_handled(&[0, 1, 2, 3]);
    }

    /// What happens does not depend on the threads.
    #[test]
    fn threads_change_nothing() {
        let run = |threads| {
            let mut cluster = Cluster::new(4, 400);
            cluster.memory.threads(threads);
            for nth in 0..400 {
                let request = Request::Move { session: SessionId(mix(nth)), to: None };
                cluster.memory.request(NodeId(nth as u8 % 4), 1000 + nth, request);
            }
            cluster.memory.kill(NodeId(3));
            cluster.beats(3_000_000 / BEAT + 10);
            cluster.heard
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn a_drained_node_leaves_without_a_loss_and_joins_again() {
        let mut cluster = Cluster::new(4, 400);
        cluster.memory.drain(NodeId(2));
        for _ in 0..60 {
            cluster.beats(1);
            cluster.all_handled(&[0, 1, 3]);
        }
        assert!(cluster.heard.contains(&Heard::Ended(NodeId(2))));
        cluster.memory.start(NodeId(2));
        cluster.beats(40);
        let state = cluster.memory.node(NodeId(2)).and_then(Node::state);
        assert_eq!(state, Some(State::Live));
        cluster.all_handled(&[0, 1, 2, 3]);
    }

    /// It stops by its clock before others take its sessions, and joins again.
    #[test]
    fn a_node_that_is_cut_off_handles_nothing_of_others() {
        let mut cluster = Cluster::new(4, 400);
        let handled = |cluster: &Cluster, ingress| {
            let at = |key: &Key| cluster.memory.packet(NodeId(ingress), *key).ok();
            cluster.keys.iter().map(at).collect::<Vec<_>>()
        };
        let home = handled(&cluster, 0);
        cluster.memory.connect(NodeId(1), Links::Cut);
        let mut fenced = 0;
        for _ in 0..3_000_000 / BEAT + 10 {
            cluster.beats(1);
            let (cut, whole) = (handled(&cluster, 1), handled(&cluster, 0));
            let own = |of: &Option<(NodeId, u32)>| of.is_some_and(|at| at.0 == NodeId(1));
            let acts = cut.iter().any(own);
            fenced += u32::from(!acts);
            // The packets of its sessions still leave for it, or others have them.
            assert!(!acts || whole == home, "two nodes handle a session");
        }
        assert!(fenced > 5);
        cluster.all_handled(&[0, 2, 3]);
        cluster.memory.connect(NodeId(1), Links::Whole);
        cluster.beats(40);
        cluster.all_handled(&[0, 1, 2, 3]);
    }

    /// Nothing waits for a node that gets the log late, and it is no ingress until it has it.
    #[test]
    fn a_slow_node_is_suspended_and_comes_back() {
        let mut cluster = Cluster::new(4, 400);
        let state = |cluster: &Cluster| cluster.memory.node(NodeId(3)).and_then(Node::state);
        cluster.memory.connect(NodeId(3), Links::Lagging);
        for round in 0..2 * Settings::default().suspend_us / BEAT {
            for nth in (round % 8..400).step_by(8) {
                let session = SessionId(mix(nth));
                let request = Request::Move { session, to: None };
                cluster.memory.request(NodeId(nth as u8 % 3), 1000 + nth, request);
            }
            cluster.beats(1);
            cluster.all_handled(&[0, 1, 2]);
            // Also by what it knew: stubs wait for it.
            if state(&cluster) == Some(State::Live) {
                cluster.all_handled(&[3]);
            }
        }
        assert_eq!(state(&cluster), Some(State::Suspended));
        cluster.memory.connect(NodeId(3), Links::Whole);
        cluster.beats(60);
        assert_eq!(state(&cluster), Some(State::Live));
        cluster.all_handled(&[0, 1, 2, 3]);
    }

    #[test]
    fn the_sessions_of_a_dead_node_go_to_others() {
        let mut cluster = Cluster::new(4, 400);
        cluster.memory.kill(NodeId(1));
        cluster.beats(3_000_000 / BEAT + 10);
        cluster.all_handled(&[0, 2, 3]);
    }

    /// Long contexts, of one partition, all asked for at once.
    #[test]
    fn a_batch_and_a_page_fit_a_message() {
        let settings = Settings { partitions: 1, ..Settings::default() };
        let mut memory = Memory::<Dense>::new(settings, 2);
        let mut heard = Vec::new();
        (1..20).for_each(|beat| memory.advance(beat * BEAT, &mut heard));
        let long = |bytes: usize| vec![7; bytes].into();
        let (max, sessions) = (settings.context_max, 300);
        for nth in 0..sessions {
            let keys = (0..16).map(|key| Key { hash: mix(nth << 8 | key), full: u128::MAX });
            let request = Request::Establish { keys: keys.collect(), context: long(max), to: None };
            memory.request(NodeId(nth as u8 % 2), nth, request);
        }
        let keys = Arc::new([Key { hash: mix(1 << 40), full: 1 }]);
        let request = Request::Establish { keys, context: long(max + 1), to: None };
        memory.request(NodeId(0), sessions, request);
        let session = SessionId(mix(0));
        let keys = Arc::new([Key { hash: session.0, full: 1 }]);
        let request = Request::Update { session, keys, context: long(max + 1) };
        memory.request(NodeId(0), sessions + 1, request);
        (20..30).for_each(|beat| memory.advance(beat * BEAT, &mut heard));
        for answer in heard.drain(..) {
            match answer {
                Heard::Answer(number, answer) if number >= sessions => {
                    assert_eq!(answer, Err(Refusal::TooLong));
                }
                Heard::Answer(_, answer) => assert_eq!(answer, Ok(Answered::Done)),
                _ => {}
            }
        }
        let own = Partition(0);
        let batches = (1..=memory.log.last(own)).map(|at| memory.log.batch(own, at));
        let mut changes = 0;
        for batch in batches {
            let Some(crate::log::Reply::Batch { batch, .. }) = batch else { panic!("kept") };
            let bytes: usize = batch.changes.iter().map(|change| change.bytes_max()).sum();
            assert!(bytes <= settings.batch_bytes + max + 1024, "{bytes}");
            changes += batch.changes.len();
        }
        assert_eq!(changes as u64, sessions);
        let (mut from, mut found) = (Some(SessionId(0)), 0);
        while let Some(next) = from {
            memory.request(NodeId(1), 1, Request::Page { from: next });
            memory.advance(30 * BEAT, &mut heard);
            let page = heard.drain(..).find_map(|heard| match heard {
                Heard::Answer(1, Ok(Answered::Page(page, next))) => Some((page, next)),
                _ => None,
            });
            let (page, next) = page.expect("a page");
            assert!(page.iter().map(|(_, context)| context.len()).sum::<usize>() <= 300 << 10);
            (from, found) = (next, found + page.len());
        }
        assert_eq!(found as u64, sessions);
    }

    /// A key that was given up, and a session that was removed, come back within the rest; other
    /// sessions do not get their keys.
    #[test]
    fn a_session_takes_back_what_it_had() {
        let mut cluster = Cluster::new(3, 40);
        cluster.heard.retain(|heard| matches!(heard, Heard::Session(..)));
        let keys = |nth: u64| Arc::from(&cluster.keys[2 * nth as usize..2 * nth as usize + 2]);
        let all: Vec<Arc<[Key]>> = (0..40).map(keys).collect();
        let ask = |cluster: &mut Cluster, number: u64, request| {
            cluster.memory.request(NodeId(number as u8 % 3), number, request);
            let start = cluster.now;
            loop {
                cluster.beats(1);
                let answer = cluster.heard.iter().find_map(|heard| match heard {
                    Heard::Answer(known, answer) if *known == number => Some(answer.clone()),
                    _ => None,
                });
                if let Some(answer) = answer {
                    return (answer, cluster.now - start);
                }
            }
        };
        let context: crate::rib::Context = Arc::new([]);
        for (nth, keys) in (0..).zip(&all) {
            let (session, number) = (SessionId(keys[0].hash), 1000 + 10 * nth);
            let update = |keys: &[Key]| {
                let (keys, context) = (keys.into(), context.clone());
                Request::Update { session, keys, context }
            };
            let other = Key { hash: mix(number), full: 1 };
            let steal = |key| Request::Establish {
                keys: Arc::new([other, key]),
                context: context.clone(),
                to: None,
            };
            let again =
                || Request::Establish { keys: keys.clone(), context: context.clone(), to: None };
            let refused = Err(Refusal::KeyResting);
            assert_eq!(ask(&mut cluster, number, update(&keys[..1])).0, Ok(Answered::Done));
            assert_eq!(ask(&mut cluster, number + 1, steal(keys[1])).0, refused);
            let (answer, took) = ask(&mut cluster, number + 2, update(keys));
            assert!(answer.is_ok() && took <= 6 * BEAT, "{answer:?} after {took} us");
            let remove = Request::Remove { session };
            assert_eq!(ask(&mut cluster, number + 3, remove).0, Ok(Answered::Done));
            let stolen = ask(&mut cluster, number + 4, steal(keys[(nth % 2) as usize])).0;
            assert_eq!(stolen, refused);
            let (answer, took) = ask(&mut cluster, number + 5, again());
            assert!(answer.is_ok() && took <= 6 * BEAT, "{answer:?} after {took} us");
        }
        cluster.all_handled(&[0, 1, 2]);
    }

    /// Moves of a session that is not settled wait for that.
    #[test]
    fn moves_follow_each_other() {
        let mut cluster = Cluster::new(4, 40);
        for number in 1000..1120 {
            let request = Request::Move { session: SessionId(mix(number % 40)), to: None };
            cluster.memory.request(NodeId(number as u8 % 4), number, request);
        }
        cluster.beats(20);
        let done = |heard: &&Heard| matches!(heard, Heard::Answer(1000.., Ok(_)));
        assert_eq!(cluster.heard.iter().filter(done).count(), 120);
        cluster.all_handled(&[0, 1, 2, 3]);
    }
}
