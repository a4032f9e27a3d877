//! A node: what it knows, and how it takes a step.
//!
//! [`Node::step`] takes an event and the node's clock and appends actions, which the driver
//! performs in their order. The parts: [`member`](self) (leases, membership, fencing),
//! `coordinator`, `replica` (logs and images), `owner` (the RIB partitions of this node), `session`
//! (what is installed here), `checkpoint` (its counts elsewhere), `room` (for how many more),
//! `digest` (copies that differ) and `path` (what to do with a packet).

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;

use crate::etcd::{self, Info, State, View};
use crate::log;
use crate::message::{Answer, Beat, Counts, Message, Refusal, Request, RequestId};
use crate::rib::Context;
use crate::table::Gpt;
use crate::{
    Index, Key, Member, Micros, NodeId, Partition, Revision, Sequence, SessionId, Settings, Version,
};

mod checkpoint;
mod coordinator;
mod digest;
mod member;
mod merge;
mod owner;
mod path;
mod replica;
mod room;
mod session;
mod speaker;

use owner::Owner;
pub use path::{Decision, DropReason, Tag};
use replica::Replica;
pub use session::{Entry, Local};

/// Something happened.
#[derive(Debug)]
pub enum Event<T: Gpt> {
    /// Time has passed; at least once in [`Settings::beat_us`].
    Tick,
    /// From etcd.
    Etcd(etcd::Reply),
    /// From the log.
    Log(log::Reply<T>),
    /// From another node.
    Message(Member, Message),
    /// A request from outside; its answer is [`Action::Answer`].
    Request(u64, Request),
    /// Leave: give everything away, this many sessions a second, then end.
    Drain {
        /// `None`: [`Settings::drain_rate`].
        rate: Option<u64>,
    },
    /// Let all owners move sessions to where rendezvous hashing has them: after a node has joined.
    Rebalance,
    /// Leave this to later speakers: see [`Node::speaks`].
    Share(Info),
    /// Tell the gateway of a node this. It may be lost.
    Note(NodeId, Arc<[u8]>),
}

/// Something to do, in the order in which the actions are listed.
#[derive(Debug, PartialEq, Eq, Hash)]
pub enum Action<T: Gpt> {
    /// Send to etcd.
    Etcd(etcd::Request),
    /// Send to the log.
    Log(log::Request<T>),
    /// Send to another node.
    Send(NodeId, Message),
    /// Send to all other nodes.
    Broadcast(Arc<Beat>),
    /// Change the data path.
    Session(Change),
    /// Answer a request from outside.
    Answer(u64, Answer),
    /// Tell the gateway what that of another node has noted.
    Note(Member, Arc<[u8]>),
    /// This run is over: `again` says whether to start another, under a higher incarnation.
    End {
        /// It was removed from the membership, and not because it was drained.
        again: bool,
    },
}

/// A change of what is installed at a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// Install a session in a slot.
    Install { slot: u32, session: SessionId, keys: Arc<[Key]>, context: Context, shown: Shown },
    /// The session of a slot has other keys, or another context.
    Renew { slot: u32, keys: Arc<[Key]>, context: Context },
    /// The session of a slot had these counts where it was before.
    Counts { slot: u32, counts: Counts },
    /// The session of a slot was taken over from a member that is gone: it had these counts at its
    /// last checkpoint, and what came after is lost. `None`: all of its counts are lost.
    TakenOver { slot: u32, counts: Option<Counts> },
    /// From now on do this for the session of a slot, in one store.
    Show { slot: u32, shown: Shown },
    /// The session of a slot is gone.
    Free { slot: u32 },
}

/// What a node does for a session, as [`Node::decide`] uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shown {
    /// What it does.
    pub entry: Entry,
    /// [`Tag::moved`] of what a source has forwarded under this version.
    pub mark: u8,
}

/// What is known of another node by its beats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Heard {
    member: Member,
    beat: Arc<Beat>,
    /// Since when it has lacked some of the batches that this node had then, by this node's clock.
    /// Under load, a beat always lacks the latest ones: that is no lag.
    lag: Option<(Micros, Arc<[Sequence]>)>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node<T: Gpt> {
    settings: Settings,
    me: Member,
    /// What it publishes of itself.
    info: Info,
    /// When it became a member; before that, when it started.
    joined: Micros,
    view: View,
    /// Its leases so far; the last one is in use.
    leases: u32,
    /// When it last asked for a lease or for its renewal.
    lease_asked: Option<Micros>,
    lease_until: Micros,
    /// The membership for which this node has last asked for another with new members.
    asking: Option<Revision>,
    /// Members that have confirmed this membership, or one before with them and this node, and when
    /// this node asked them.
    confirmed: BTreeMap<Member, Micros>,
    /// Members that this node has confirmed to, and when.
    promised: BTreeMap<NodeId, Micros>,
    heard: BTreeMap<NodeId, Heard>,
    last_beat: Option<Micros>,
    drain: Option<Micros>,
    /// What is to be left to later speakers, until etcd shows it.
    share: Option<Info>,
    ended: bool,
    replicas: Vec<Replica<T>>,
    images: u64,
    /// Since when the log has answered, and when it did last and was asked for a sign of life: to
    /// `retry_us`.
    log_since: Micros,
    log_heard: Micros,
    log_asked: Micros,
    watched: u64,
    owners: BTreeMap<Partition, Owner<T>>,
    sessions: Index<SessionId, Local>,
    /// Those that have moved on, and when this node has last told others so.
    stubs: BTreeMap<SessionId, Micros>,
    /// Keys of sessions that are installed here.
    fib: Index<u64, (u128, SessionId)>,
    /// Sessions that a drain asks to move, from the end on, and when it has listed them.
    drains: (Vec<SessionId>, Option<Micros>),
    /// Sessions of its partitions that are to be moved to where rendezvous hashing has them.
    rebalances: VecDeque<SessionId>,
    given: room::Given,
    /// Moves from here, by target, partition and version.
    leaving: BTreeMap<(NodeId, Partition, Version, SessionId), Member>,
    slots: session::Slots,
    checkpoints: checkpoint::Checkpoints,
    /// The block whose digest is announced next.
    digested: (Partition, u32),
    /// Blocks of copies that differed from their owners'.
    differences: u64,
    /// Requests from outside that wait for an answer, with the time of their end and the number
    /// that the host knows them by: it may use one again.
    asked: Index<u64, (Micros, u64)>,
    /// Number of the last request from outside.
    requests: u64,
    /// When it looks for those whose time is over.
    asked_due: Micros,
    /// Requests that have come to this node as an owner, those of before, and when these go.
    taken: ([Index<u64, ()>; 2], Micros),
    // The derived implementations need the bounds of these types.
    types: PhantomData<(T::Writer, T::Delta, T::Image)>,
}

type Actions<T> = Vec<Action<T>>;

impl<T: Gpt> Node<T> {
    /// Starts a node. A driver delivers etcd's keys as watch events from the beginning, or as of
    /// the moment at which its watch begins. Others see `info` with its sign of life.
    pub fn new(settings: Settings, me: Member, info: Info, now: Micros) -> Self {
        let replicas = (0..settings.partitions).map(|_| Replica::new()).collect();
        Self {
            settings,
            me,
            info,
            joined: now,
            view: View::default(),
            leases: 0,
            lease_asked: None,
            lease_until: 0,
            asking: None,
            confirmed: BTreeMap::new(),
            promised: BTreeMap::new(),
            heard: BTreeMap::new(),
            last_beat: None,
            drain: None,
            share: None,
            ended: false,
            replicas,
            images: 0,
            log_since: now,
            log_heard: now,
            log_asked: now,
            watched: 0,
            owners: BTreeMap::new(),
            sessions: Index::default(),
            stubs: BTreeMap::new(),
            fib: Index::default(),
            drains: (Vec::new(), None),
            rebalances: VecDeque::new(),
            given: room::Given::default(),
            leaving: BTreeMap::new(),
            slots: session::Slots::default(),
            checkpoints: checkpoint::Checkpoints::default(),
            digested: (Partition(0), 0),
            differences: 0,
            asked: Index::default(),
            // An answer to an earlier run must not be taken for one to this.
            requests: me.incarnation << 32,
            asked_due: now,
            taken: (Default::default(), now + settings.reserve_us),
            types: PhantomData,
        }
    }

    /// Takes a step. `now` never decreases.
    pub fn step(&mut self, now: Micros, event: Event<T>, out: &mut Actions<T>) {
        self.steps(now, [event], out);
    }

    /// Takes a step for each event, and forms batches after the last one: a driver that hands over
    /// all that has come in gets few and large batches under load, and no delay without.
    pub fn steps(
        &mut self,
        now: Micros,
        events: impl IntoIterator<Item = Event<T>>,
        out: &mut Actions<T>,
    ) {
        let first = out.len();
        events.into_iter().for_each(|event| self.take(now, event, out));
        if !self.ended {
            self.propose_all(now, out);
        }
        merge::merge(out, first);
    }

    fn take(&mut self, now: Micros, event: Event<T>, out: &mut Actions<T>) {
        if self.ended {
            return;
        }
        match event {
            Event::Tick => {
                let due = self.last_beat.is_none_or(|last| now >= last + self.settings.beat_us);
                if due {
                    self.last_beat = Some(now);
                    self.beat(now, out);
                }
            }
            Event::Etcd(reply) => self.etcd(now, reply, out),
            Event::Log(reply) => self.log(now, reply, out),
            Event::Message(from, message) => self.message(now, from, message, out),
            Event::Request(number, body) => self.request(now, number, body, out),
            Event::Drain { rate } => {
                self.drain = self.drain.or(Some(now));
                self.settings.drain_rate = rate.unwrap_or(self.settings.drain_rate);
            }
            Event::Rebalance => {
                let others = self.view.members.keys().copied().filter(|&id| id != self.me.node);
                out.extend(others.map(|id| Action::Send(id, Message::Rebalance)));
                self.rebalance();
            }
            Event::Share(shared) => self.share(now, shared, out),
            Event::Note(to, note) => self.send(now, to, Message::Note(note), out),
        }
    }

    fn beat(&mut self, now: Micros, out: &mut Actions<T>) {
        self.hold_lease(now, out);
        self.report(now, out);
        self.coordinate(now, out);
        self.share_again(now, out);
        self.mend(now, out);
        self.repeat_sessions(now, out);
        self.checkpoint(now, out);
        self.beat_owners(now, out);
        self.rebalance_some();
        if now >= self.asked_due {
            self.asked_due = now + self.settings.reserve_us / 8;
            let late = self.asked.iter().filter(|(_, asked)| now >= asked.0).map(|of| *of.0);
            let mut late: Vec<u64> = late.collect();
            late.sort_unstable();
            for number in late.into_iter().filter_map(|number| self.asked.remove(&number)) {
                out.push(Action::Answer(number.1, Err(Refusal::Timeout)));
            }
        }
    }

    fn request(&mut self, now: Micros, number: u64, body: Request, out: &mut Actions<T>) {
        let hash = body.home();
        let owner = hash.and_then(|hash| self.owner_of(hash));
        let Some(owner) = owner else {
            let why = hash.map_or(Refusal::Keys, |_| Refusal::NoOwner);
            return out.push(Action::Answer(number, Err(why)));
        };
        if body.context_bytes() > self.settings.context_max {
            return out.push(Action::Answer(number, Err(Refusal::TooLong)));
        }
        if self.asked.len() >= self.settings.queue_max {
            return out.push(Action::Answer(number, Err(Refusal::Overload)));
        }
        self.requests += 1;
        self.asked.insert(self.requests, (now + self.settings.reserve_us, number));
        let request = RequestId { at: self.me.node, number: self.requests };
        self.send(now, owner.node, Message::Ask { request, body }, out);
    }

    /// Sends a message; one to this node itself is taken at once.
    fn send(&mut self, now: Micros, to: NodeId, message: Message, out: &mut Actions<T>) {
        if to == self.me.node {
            self.message(now, self.me, message, out);
        } else {
            out.push(Action::Send(to, message));
        }
    }

    fn message(&mut self, now: Micros, from: Member, message: Message, out: &mut Actions<T>) {
        match message {
            Message::Beat(beat) => self.heard(now, from, beat, out),
            Message::Confirm { sent, membership } => self.confirmed(from, sent, membership),
            Message::Answer { request, answer } => {
                if request.at == self.me.node
                    && let Some((_, number)) = self.asked.remove(&request.number)
                {
                    out.push(Action::Answer(number, answer));
                }
            }
            Message::Handover(sessions, counts) => self.handover(now, &sessions, &counts, out),
            Message::Checkpoint(sessions, counts) => {
                self.checkpointed(from, &sessions, &counts);
            }
            Message::Read { request, found } => self.read(now, request, found, out),
            Message::Rebalance => self.rebalance(),
            Message::Differs { partition, block } => self.differs(from, partition, block),
            Message::Forget(sessions) => self.forget(&sessions, out),
            Message::Note(note) => out.push(Action::Note(from, note)),
            message => self.owner_message(now, from, message, out),
        }
    }

    /// Groups sessions by the owners of their homes, and sends a message to each.
    fn send_homes(
        &mut self,
        now: Micros,
        sessions: impl Iterator<Item = (SessionId, Version)>,
        message: fn(Vec<(SessionId, Version)>) -> Message,
        out: &mut Actions<T>,
    ) {
        let mut by_owner = BTreeMap::<NodeId, Vec<_>>::new();
        for session in sessions {
            if let Some(owner) = self.owner_of(session.0.0) {
                by_owner.entry(owner.node).or_default().push(session);
            }
        }
        for (owner, sessions) in by_owner {
            self.send(now, owner, message(sessions), out);
        }
    }

    fn partition(&self, hash: u64) -> Partition {
        Partition::of(hash, self.settings.partitions)
    }

    fn owner_of(&self, hash: u64) -> Option<Member> {
        self.view.owner(self.partition(hash))
    }

    /// Returns the member that this node is.
    pub fn me(&self) -> Member {
        self.me
    }

    /// Returns its state in the membership that it knows; `None`: it is no member.
    pub fn state(&self) -> Option<State> {
        self.view.state(self.me)
    }

    /// Returns whether this run is over.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// Returns what is installed here.
    pub fn sessions(&self) -> &Index<SessionId, Local> {
        &self.sessions
    }

    /// Lets a test damage a copy.
    #[cfg(test)]
    pub(crate) fn table_mut(&mut self, partition: Partition) -> &mut T {
        &mut self.replicas[partition.index()].table
    }

    /// Returns the copies of the tables, by partition.
    pub fn tables(&self) -> impl Iterator<Item = &T> {
        self.replicas.iter().map(|replica| &replica.table)
    }

    /// Returns how many images its tables have taken over: after another one, readers that were
    /// made before follow no changes.
    pub fn images(&self) -> u64 {
        self.images
    }

    /// Returns how many changes it has seen of etcd: none of [`Node::view`] without another one.
    pub fn watched(&self) -> u64 {
        self.watched
    }

    /// Returns the last batch that it has applied of a partition.
    pub fn applied(&self, partition: Partition) -> Sequence {
        self.replicas[partition.index()].applied
    }

    /// Returns how many batches it has heard of and not applied, over all partitions.
    pub fn lag(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.known.saturating_sub(replica.applied)).sum()
    }

    /// Returns what a member has last said.
    pub fn beat_of(&self, member: Member) -> Option<&Beat> {
        let heard = self.heard.get(&member.node).filter(|heard| heard.member == member);
        heard.map(|heard| heard.beat.as_ref())
    }

    /// Returns the partitions over which it reigns, with their sessions.
    pub fn reigns(&self) -> impl Iterator<Item = (Partition, &crate::rib::Rib)> {
        self.owners.iter().filter(|(_, owner)| owner.reigns()).map(|(&p, owner)| (p, owner.rib()))
    }

    /// Returns the membership as it knows it.
    pub fn view(&self) -> &View {
        &self.view
    }
}
