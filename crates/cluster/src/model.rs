//! The machine under stateright: two or three nodes, two partitions, three keys, every order of
//! deliveries.
//!
//! The states are those of real nodes ([`Node`] over a map of keys in the place of the partition
//! table), of etcd and of the log. A scenario brings a cluster to rest and prepares what is to
//! happen. From there the checker chooses each step: a beat of a node, the delivery of a message
//! (again, or never), of the next change of a watch, or of any batch of the log that a node has not
//! applied; a crash; the passing of time, with a clock that stands still for the margin. Budgets
//! bound what goes wrong, and a depth bounds the rest: all orders of that many steps are explored.
//!
//! Kept small: of the beats between two nodes only the last one is under way; etcd and the log
//! answer at once, since the simulator has late and lost replies. Where owners follow each other,
//! their appends take time.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::log::{self, Batch};
use crate::message::{Message, Request};
use crate::node::Entry;
use crate::sim::{Etcd, Log};
use crate::table::Map;
use crate::{
    Action, Decision, DropReason, Event, Key, Mechanisms, Member, Micros, Node, NodeId, Partition,
    Revision, Sequence, SessionId, Settings, Tag, etcd,
};

/// Nodes of a scenario that does not say otherwise.
const NODES: usize = 3;
const BEAT: Micros = 10;
/// The first two keys are of partition 0, the third one of partition 1.
const KEYS: [Key; 3] =
    [Key { hash: 1, full: 1 }, Key { hash: 2, full: 2 }, Key { hash: 1 << 63, full: 3 }];

/// Keys of no session, one of each partition.
const UNKNOWN: [Key; 2] = [Key { hash: 7, full: 7 }, Key { hash: 7 << 61, full: 8 }];

fn settings(mechanisms: Mechanisms) -> Settings {
    Settings {
        partitions: 2,
        node_bits: 2,
        partition_keys: 16,
        lease_us: 4 * BEAT,
        margin_us: BEAT,
        beat_us: BEAT,
        retry_us: 1_000,
        suspend_us: 10_000,
        rest_us: 10_000,
        reserve_us: 10_000,
        checkpoint_us: 0,
        mechanisms,
        ..Settings::default()
    }
}

/// The end of the log that an owner expects, and its batch.
type Append = (Option<Sequence>, Arc<Batch<Map>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: Vec<Option<Node<Map>>>,
    clocks: Vec<Micros>,
    now: Micros,
    etcd: Etcd,
    log: Log<Map>,
    watched: Vec<Revision>,
    /// Whether appends to the log take time, and those under way.
    late: bool,
    appends: BTreeMap<(Member, Partition), Append>,
    /// Beats under way, by sender and receiver.
    beats: BTreeMap<(Member, NodeId), Message>,
    /// Other messages under way, by a hash of them.
    messages: BTreeMap<u64, (Member, NodeId, Message)>,
    /// Sessions whose establishment was answered.
    answered: BTreeSet<u64>,
    /// Steps of time left.
    times: u8,
    /// Messages that may come again.
    repeats: u8,
    /// Nodes that may crash.
    crashes: u8,
    /// Clocks that may stand still for a step.
    drifts: u8,
    /// Nodes that reach neither etcd nor others.
    cut: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Tick(NodeId),
    Watch(NodeId),
    Append(Member, Partition),
    Batch(NodeId, Partition, Sequence),
    Beat(Member, NodeId),
    Message { id: u64, again: bool },
    Time(Option<NodeId>),
    Crash(NodeId),
}

impl State {
    fn new(mechanisms: Mechanisms, nodes: usize) -> Self {
        let member = |node| Member { node: NodeId(node), incarnation: 1 };
        let new = |node| Some(Node::new(settings(mechanisms), member(node), Arc::default(), 1_000));
        Self {
            nodes: (0..nodes as u8).map(new).collect(),
            clocks: vec![1_000; nodes],
            now: 1_000,
            etcd: Etcd::default(),
            log: Log::default(),
            watched: vec![0; nodes],
            late: false,
            appends: BTreeMap::new(),
            beats: BTreeMap::new(),
            messages: BTreeMap::new(),
            answered: BTreeSet::new(),
            times: 0,
            repeats: 0,
            crashes: 0,
            drifts: 0,
            cut: BTreeSet::new(),
        }
    }

    fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u8).map(NodeId)
    }

    fn node(&self, id: NodeId) -> Option<&Node<Map>> {
        self.nodes[usize::from(id.0)].as_ref()
    }

    fn step(&mut self, id: NodeId, event: Event<Map>) {
        let at = usize::from(id.0);
        let Some(node) = self.nodes[at].as_mut() else { return };
        let (me, mut out) = (node.me(), Vec::new());
        node.step(self.clocks[at], event, &mut out);
        let cut = self.cut.contains(&id);
        for action in out {
            match action {
                Action::Etcd(request) if !cut => {
                    let ttl = 4 * BEAT;
                    if let Some(reply) = self.etcd.request(self.now, ttl, request) {
                        self.step(id, Event::Etcd(reply));
                    }
                }
                Action::Log(log::Request::Append { partition, expected, batch })
                    if !cut && self.late =>
                {
                    self.appends.insert((me, partition), (expected, batch));
                }
                Action::Log(request) if !cut => {
                    if let Some(reply) = self.log.request(request) {
                        self.step(id, Event::Log(reply));
                    }
                }
                Action::Send(to, message) if !cut => {
                    let mut hasher = DefaultHasher::new();
                    (me, to, &message).hash(&mut hasher);
                    self.messages.insert(hasher.finish(), (me, to, message));
                }
                Action::Broadcast(beat) if !cut => {
                    for to in self.ids().filter(|&to| to != id) {
                        self.beats.insert((me, to), Message::Beat(Arc::clone(&beat)));
                    }
                }
                Action::Answer(number, Ok(_)) => drop(self.answered.insert(number)),
                Action::End { .. } => self.nodes[at] = None,
                _ => {}
            }
        }
    }

    /// The steps that deliver something to a node.
    fn deliveries(&self, steps: &mut Vec<Step>) {
        for id in self.ids().filter(|id| !self.cut.contains(id)) {
            let Some(node) = self.node(id) else { continue };
            if self.watched[usize::from(id.0)] < self.etcd.revision() {
                steps.push(Step::Watch(id));
            }
            for partition in [Partition(0), Partition(1)] {
                let next = node.applied(partition) + 1;
                let batches = next..=self.log.last(partition);
                steps.extend(batches.map(|sequence| Step::Batch(id, partition, sequence)));
            }
        }
        steps.extend(self.appends.keys().map(|&(from, partition)| Step::Append(from, partition)));
        let reached = |to: &NodeId| !self.cut.contains(to) && self.node(*to).is_some();
        let beats = self.beats.keys().filter(|of| reached(&of.1));
        steps.extend(beats.map(|&(from, to)| Step::Beat(from, to)));
        let messages = self.messages.iter().filter(|of| reached(&of.1.1));
        steps.extend(messages.map(|(&id, _)| Step::Message { id, again: false }));
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Tick(id) => self.step(id, Event::Tick),
            Step::Watch(id) => {
                self.watched[usize::from(id.0)] += 1;
                if let Some(change) = self.etcd.change(self.watched[usize::from(id.0)]) {
                    self.step(id, Event::Etcd(change));
                }
            }
            Step::Append(from, partition) => {
                if let Some((expected, batch)) = self.appends.remove(&(from, partition)) {
                    let request = log::Request::Append { partition, expected, batch };
                    if let Some(reply) = self.log.request(request) {
                        self.step(from.node, Event::Log(reply));
                    }
                }
            }
            Step::Batch(id, partition, sequence) => {
                if let Some(batch) = self.log.batch(partition, sequence) {
                    self.step(id, Event::Log(batch));
                }
            }
            Step::Beat(from, to) => {
                if let Some(beat) = self.beats.remove(&(from, to)) {
                    self.step(to, Event::Message(from, beat));
                }
            }
            Step::Message { id, again } => {
                let message = if again {
                    self.repeats -= 1;
                    self.messages.get(&id).cloned()
                } else {
                    self.messages.remove(&id)
                };
                if let Some((from, to, message)) = message {
                    self.step(to, Event::Message(from, message));
                }
            }
            Step::Time(still) => {
                self.times -= 1;
                self.pass(still);
            }
            Step::Crash(id) => {
                self.crashes -= 1;
                self.crash(id);
            }
        }
    }

    fn crash(&mut self, id: NodeId) {
        self.nodes[usize::from(id.0)] = None;
    }

    fn pass(&mut self, still: Option<NodeId>) {
        self.now += BEAT;
        for (id, clock) in self.ids().zip(&mut self.clocks) {
            if still != Some(id) {
                *clock += BEAT;
            }
        }
        self.drifts -= u8::from(still.is_some());
        self.etcd.expire(self.now);
    }

    /// Everything is delivered, in order, and `beats` beats pass.
    fn rest(&mut self, beats: usize) {
        for _ in 0..beats {
            self.pass(None);
            for id in self.ids() {
                self.step(id, Event::Tick);
            }
            let mut steps = Vec::new();
            while {
                steps.clear();
                self.deliveries(&mut steps);
                !steps.is_empty()
            } {
                self.take(steps[0]);
            }
        }
    }

    fn establish(&mut self, at: NodeId, number: u64, keys: &[Key], to: u8) {
        let (keys, context) = (Arc::from(keys), Arc::new([]));
        let to = Some(NodeId(to));
        self.step(at, Event::Request(number, Request::Establish { keys, context, to }));
    }

    /// A packet's way: where it ended, after how many hops.
    fn packet(&self, ingress: NodeId, key: Key) -> (Result<NodeId, Option<DropReason>>, u8) {
        let (mut at, mut tag) = (ingress, Tag::default());
        loop {
            let Some(node) = self.node(at) else { return (Err(None), tag.hops) };
            match node.decide(self.clocks[usize::from(at.0)], key, tag) {
                Decision::Handle(_) => return (Ok(at), tag.hops),
                Decision::Forward(to, next) => (at, tag) = (to, next),
                Decision::Drop(why) => return (Err(Some(why)), tag.hops),
            }
        }
    }

    fn ways(&self) -> impl Iterator<Item = (Key, Result<NodeId, Option<DropReason>>, u8)> + '_ {
        self.ids().flat_map(move |at| {
            KEYS.into_iter().map(move |key| {
                let (handled, hops) = self.packet(at, key);
                (key, handled, hops)
            })
        })
    }

    /// No packet of an answered session is lost while no node fails, and none takes three hops.
    fn reaches(&self) -> bool {
        let fails = !self.cut.is_empty() || self.nodes.iter().any(Option::is_none);
        self.ways().all(|(key, handled, hops)| {
            let lost = matches!(handled, Err(Some(DropReason::Unknown | DropReason::Loop)));
            // A session's request has the number of its keys' full value.
            hops <= 2 && (fails || !(lost && self.answered.contains(&(key.full as u64))))
        })
    }

    /// Two nodes neither handle nor serve a session.
    fn excludes(&self) -> bool {
        let mut by = BTreeMap::new();
        let one = self.ways().all(|(key, handled, _)| {
            handled.map_or(true, |node| *by.entry(key).or_insert(node) == node)
        });
        let mut serving = BTreeSet::new();
        one && self.nodes.iter().flatten().all(|node| {
            let clock = self.clocks[usize::from(node.me().node.0)];
            clock >= node.valid_until()
                || node.sessions().iter().all(|(session, local)| {
                    local.entry != Entry::Serving || serving.insert(*session)
                })
        })
    }

    /// A packet of no session is dropped where it came in, or a hop from there.
    fn drops(&self) -> bool {
        self.ids().all(|at| {
            UNKNOWN.into_iter().all(|key| {
                let (handled, hops) = self.packet(at, key);
                handled.is_err() && hops <= 1
            })
        })
    }

    /// What was answered is in the RIB of the last owner that reigns.
    fn keeps(&self) -> bool {
        KEYS.iter().filter(|key| self.answered.contains(&(key.full as u64))).all(|key| {
            let own = Partition::of(key.hash, 2);
            let reigns = self.nodes.iter().flatten().filter_map(|node| {
                let last = node.reigns().find(|(partition, _)| *partition == own)?;
                let epoch = node.view().owners.get(&own)?.0;
                Some((epoch, last.1))
            });
            let last = reigns.max_by_key(|reign| reign.0);
            last.is_none_or(|(_, rib)| rib.keys.contains_key(&key.hash))
        })
    }
}

const KEPT: &str = "4: what was answered is kept";

struct Checked {
    start: State,
}

impl Model for Checked {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.start.clone()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        state.deliveries(steps);
        steps.extend(state.ids().map(Step::Tick));
        if state.repeats > 0 {
            steps.extend(state.messages.keys().map(|&id| Step::Message { id, again: true }));
        }
        if state.times > 0 {
            steps.push(Step::Time(None));
            if state.drifts > 0 {
                steps.extend(state.ids().map(|id| Step::Time(Some(id))));
            }
        }
        if state.crashes > 0 {
            steps.extend(state.ids().map(Step::Crash));
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut next = last.clone();
        next.take(step);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("1, 2: reached, in two hops at most", |_, state: &State| {
                state.reaches()
            }),
            Property::always("3: no session, one hop at most", |_, state: &State| state.drops()),
            Property::always(KEPT, |_, state: &State| state.keeps()),
            Property::always("5: one node at a time", |_, state: &State| state.excludes()),
        ]
    }
}

/// Live nodes at rest; the first key's session is at node 0 and also has the third key.
fn at_rest(mechanisms: Mechanisms, nodes: usize) -> State {
    let mut state = State::new(mechanisms, nodes);
    state.rest(12);
    state.establish(NodeId(0), 1, &[KEYS[0], KEYS[2]], 0);
    state.rest(6);
    assert_eq!(state.answered, BTreeSet::from([1]));
    // Both keys are known to be answered.
    state.answered.insert(3);
    assert!(state.ways().filter(|way| way.0 != KEYS[1]).all(|way| way.1 == Ok(NodeId(0))));
    state
}

fn owner(state: &State, partition: u16) -> NodeId {
    let owner =
        state.nodes.iter().flatten().find_map(|node| node.view().owner(Partition(partition)));
    owner.expect("a cluster at rest has owners").node
}

/// A session moves.
fn moving(mechanisms: Mechanisms) -> State {
    let mut state = at_rest(mechanisms, NODES);
    let at = owner(&state, 0);
    let (session, to) = (SessionId(KEYS[0].hash), Some(NodeId(1)));
    state.step(at, Event::Request(100, Request::Move { session, to }));
    state.pass(None);
    (state.times, state.repeats) = (1, 1);
    state
}

/// Two sessions are established by two batches of one partition.
fn establishing(mechanisms: Mechanisms) -> State {
    let mut state = at_rest(mechanisms, NODES);
    let at = owner(&state, 0);
    let other = Key { hash: 9, full: 9 };
    state.establish(at, 2, &[KEYS[1]], 1);
    state.establish(at, 9, &[other], 1);
    state.pass(None);
    (state.times, state.repeats) = (1, 1);
    state
}

/// A node with a session is cut off until etcd has removed its sign of life.
fn cut(mechanisms: Mechanisms) -> State {
    let mut state = at_rest(mechanisms, NODES);
    state.cut.insert(NodeId(0));
    state.beats.clear();
    state.rest(3);
    (state.times, state.drifts) = (3, 1);
    state
}

/// A guided start: another owner is named, and the one before it does not know and establishes a
/// session. Both have an append under way: its batch, and the claim of the new owner, made from the
/// log without that batch.
fn deposed(mechanisms: Mechanisms, nodes: usize) -> State {
    let mut state = at_rest(mechanisms, nodes);
    let old = owner(&state, 0);
    let view = state.node(old).expect("it lives").view();
    let (epoch, _, revision) = view.owners[&Partition(0)];
    let new = view.members.values().map(|m| m.0).find(|m| m.node != old).expect("several nodes");
    let key = etcd::Key::Owner(Partition(0));
    let value = etcd::Value::Owner(epoch + 1, new);
    let request = etcd::Request::Txn { compare: vec![(key, revision)], key, value, lease: None };
    let now = state.now;
    state.etcd.request(now, 0, request);
    state.late = true;
    state.establish(old, 2, &[KEYS[1]], 1);
    // Only the new owner has heard of it.
    state.take(Step::Watch(new.node));
    assert_eq!(state.appends.len(), 2);
    state.pass(None);
    state.times = 1;
    state
}

/// Explores; returns the property that fails first, if any, and the states.
fn explore(start: State, depth: usize) -> (Option<&'static str>, usize) {
    let checker = Checked { start }
        .checker()
        .threads(2)
        .target_max_depth(depth)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    (checker.discoveries().into_keys().next(), checker.unique_state_count())
}

/// More steps by `OVERBANK_MODEL_DEPTH` (`cargo xtask test cluster-full`).
fn more() -> usize {
    std::env::var("OVERBANK_MODEL_DEPTH").ok().and_then(|depth| depth.parse().ok()).unwrap_or(0)
}

/// The property that fails first with a mechanism and without it, each to its depth.
fn with_and_without(
    scenario: impl Fn(Mechanisms) -> State,
    without: Mechanisms,
    depths: [usize; 2],
) -> [Option<&'static str>; 2] {
    let with = explore(scenario(Mechanisms::default()), depths[0] + more());
    [with, explore(scenario(without), depths[1])].map(|(failed, _)| failed)
}

#[test]
fn a_move_loses_no_packet_by_its_stub() {
    let without = Mechanisms { stubs: false, ..Mechanisms::default() };
    let failed = with_and_without(moving, without, [7, 9]);
    assert_eq!(failed, [None, Some("1, 2: reached, in two hops at most")]);
}

#[test]
fn replicas_that_see_gaps_lead_to_sessions() {
    let without = Mechanisms { gaps: false, ..Mechanisms::default() };
    let failed = with_and_without(establishing, without, [7, 12]);
    assert_eq!(failed, [None, Some("1, 2: reached, in two hops at most")]);
}

#[test]
fn a_node_that_is_cut_off_stops_in_time() {
    let without = Mechanisms { fencing: false, ..Mechanisms::default() };
    let failed = with_and_without(cut, without, [9, 14]);
    assert_eq!(failed, [None, Some("5: one node at a time")]);
}

#[test]
fn a_deposed_owner_loses_nothing_that_was_answered() {
    let without = Mechanisms { epochs: false, ..Mechanisms::default() };
    let failed = with_and_without(|mechanisms| deposed(mechanisms, 2), without, [9, 9]);
    assert_eq!(failed, [None, Some("1, 2: reached, in two hops at most")]);
    assert_eq!(explore(deposed(Mechanisms::default(), 3), 6 + more()).0, None);
}

/// An answer that does not wait for the log, which takes time here, may be lost.
#[test]
fn answers_wait_for_the_log() {
    let mut early = at_rest(Mechanisms::default(), NODES);
    let at = owner(&early, 0);
    early.late = true;
    early.establish(at, 2, &[KEYS[1]], 1);
    assert_eq!(explore(early.clone(), 6).0, None);
    early.answered.insert(2);
    // Where a node fails, packets may be lost: nothing else is violated.
    let other = early.ids().find(|id| *id != at && *id != NodeId(1)).expect("three nodes");
    early.crash(other);
    assert_eq!(explore(early, 6).0, Some(KEPT));
}

/// A node may end at any step: while a session moves or is established, and when its lease is over
/// and others take over what it had.
#[test]
fn a_node_that_ends_takes_nothing_answered_with_it() {
    let with = Mechanisms::default();
    for (name, start) in [("moving", moving(with)), ("establishing", establishing(with))] {
        let found = explore(State { crashes: 1, repeats: 0, ..start }, 7 + more());
        eprintln!("{name}: {found:?}");
        assert_eq!(found.0, None, "{name}");
    }
    let mut start = at_rest(with, NODES);
    start.crash(NodeId(0));
    start.rest(3);
    let found = explore(State { times: 3, ..start }, 12 + more());
    eprintln!("taken over: {found:?}");
    assert_eq!(found.0, None);
}
