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

/// Takes what a driver hears from its nodes.
pub trait Hears {
    /// Something happened.
    fn hear(&mut self, heard: Heard);

    /// Fills in the counts of sessions at a node that sends a message ([`Message::count`]).
    fn count(&mut self, _from: Member, _message: &mut Message) {}
}

/// Without counts.
impl Hears for Vec<Heard> {
    fn hear(&mut self, heard: Heard) {
        self.push(heard);
    }
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
        self.deliver(id, Event::Drain { rate: None });
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
    pub fn advance(&mut self, now: Micros, heard: &mut impl Hears) {
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
    pub fn step(&mut self, heard: &mut impl Hears) -> bool {
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

    fn round(&mut self, heard: &mut impl Hears) {
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

    fn act(&mut self, from: Member, action: Action<T>, heard: &mut impl Hears) {
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
            Action::Send(to, mut message) => {
                heard.count(from, &mut message);
                self.message(from, to, message);
            }
            Action::Broadcast(beat) => {
                for to in (0..self.nodes.len() as u8).map(NodeId).filter(|&to| to != from.node) {
                    let beat = Message::Beat(Arc::clone(&beat));
                    self.message(from, to, beat);
                }
            }
            Action::Session(change) => heard.hear(Heard::Session(from.node, change)),
            Action::Answer(number, answer) => heard.hear(Heard::Answer(number, answer)),
            Action::Note(of, note) => heard.hear(Heard::Note(from.node, of, note)),
            Action::End { again } => {
                heard.hear(Heard::Ended(from.node));
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
mod tests;
