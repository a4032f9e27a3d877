//! Clusters in one process.

mod counts;
mod digests;
mod room;

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
        let settings = Settings { partitions, node_bits, partition_keys, ..Settings::default() };
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
                Heard::Session(
                    node,
                    Change::Counts { slot, .. } | Change::TakenOver { slot, .. },
                ) => {
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
            let local: BTreeMap<_, _> =
                local.map(|(s, l)| ((id, l.slot), (*s, l.shown(), Arc::clone(&l.keys)))).collect();
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
fn a_change_is_answered_when_all_have_applied_it_or_once_it_is_logged() {
    for answers_early in [false, true] {
        let settings =
            Settings { partitions: 8, node_bits: 3, answers_early, ..Settings::default() };
        let memory = Memory::new(settings, 3);
        let mut cluster = Cluster { memory, now: 0, heard: Vec::new(), keys: Vec::new() };
        cluster.beats(20);
        let (key, other) = (Key { hash: mix(1), full: 1 }, Key { hash: mix(2), full: 2 });
        let (keys, context) = (Arc::new([key, other]), Arc::new([]));
        let establish = Request::Establish { keys, context, to: None };
        let requests = [establish, Request::Move { session: SessionId(key.hash), to: None }];
        for (number, request) in (0..).zip(requests) {
            cluster.memory.request(NodeId(0), number, request);
            let answer = Heard::Answer(number, Ok(Answered::Done));
            if number == 0 {
                // Without a beat: all has been delivered, and no node has said that it has it.
                cluster.memory.advance(cluster.now, &mut cluster.heard);
                assert_eq!(cluster.heard.contains(&answer), answers_early);
            }
            cluster.beats(10);
            assert_eq!(cluster.heard.iter().filter(|heard| **heard == answer).count(), 1);
        }
        cluster.keys.extend([key, other]);
        cluster.all_handled(&[0, 1, 2]);
    }
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

/// A node lacks a batch, and then all of them have no log.
#[test]
fn a_node_that_lags_is_suspended_while_the_log_is_there() {
    let suspend = Settings::default().suspend_us / BEAT;
    let mut cluster = Cluster::new(4, 40);
    let live = |cluster: &Cluster| {
        let node = cluster.memory.node(NodeId(0)).expect("it runs");
        node.view().in_state(State::Live).count()
    };
    cluster.memory.connect(NodeId(3), Links::Lagging);
    for nth in 0..40 {
        let request = Request::Move { session: SessionId(mix(nth)), to: Some(NodeId(2)) };
        cluster.memory.request(NodeId(0), 1000 + nth, request);
    }
    cluster.beats(1);
    (0..3).for_each(|id| cluster.memory.connect(NodeId(id), Links::Lagging));
    for _ in 0..6 {
        cluster.beats(suspend / 2);
        cluster.all_handled(&[0, 1, 2, 3]);
        assert_eq!(live(&cluster), 4);
    }
    // The log is back, and the node has its time to catch up.
    (0..3).for_each(|id| cluster.memory.connect(NodeId(id), Links::Whole));
    cluster.beats(suspend / 2);
    assert_eq!(live(&cluster), 4);
    cluster.beats(suspend);
    assert_eq!(live(&cluster), 3);
    cluster.memory.connect(NodeId(3), Links::Whole);
    cluster.beats(suspend);
    assert_eq!(live(&cluster), 4);
    cluster.all_handled(&[0, 1, 2, 3]);
}

/// Asked for while all of them move.
#[test]
fn a_rebalance_reaches_sessions_that_have_not_settled() {
    let mut cluster = Cluster::new(4, 200);
    for nth in 0..200 {
        let request = Request::Move { session: SessionId(mix(nth)), to: None };
        cluster.memory.request(NodeId(0), 1000 + nth, request);
    }
    cluster.memory.advance(cluster.now, &mut cluster.heard);
    cluster.memory.inboxes[0].push_back(Event::Rebalance);
    cluster.beats(20);
    let live = (0..4).map(|node| Member { node: NodeId(node), incarnation: 1 });
    for nth in 0..200 {
        let to = crate::rendezvous(mix(nth), live.clone()).expect("one");
        let key = cluster.keys[2 * nth as usize];
        let at = cluster.memory.packet(to.node, key).map(|handled| handled.0);
        assert_eq!(at, Ok(to.node), "session {nth}");
    }
}

/// So no late answer to a run that is over is taken for one to the next.
/// Otherwise the log would keep the changes of a quiet cluster for ever.
#[test]
fn a_few_changes_are_in_a_snapshot_in_time() {
    let mut cluster = Cluster::new(2, 20);
    let snapshots = |cluster: &mut Cluster| {
        let log = &mut cluster.memory.log;
        let mut of = |partition| match log.request(crate::log::Request::Get { partition }) {
            Some(crate::log::Reply::Snapshot { snapshot, .. }) => snapshot.is_some(),
            _ => false,
        };
        (0..8).map(Partition).filter(|&partition| of(partition)).count()
    };
    let beats = Settings::default().snapshot_us / BEAT;
    assert_eq!(snapshots(&mut cluster), 0);
    cluster.beats(beats / 2);
    assert_eq!(snapshots(&mut cluster), 4);
    cluster.beats(beats / 2);
    assert_eq!(snapshots(&mut cluster), 8);
    cluster.all_handled(&[0, 1]);
    // Without any change, each goes on: the log is purged below the lowest.
    let ends = |cluster: &mut Cluster| {
        let log = &mut cluster.memory.log;
        let of = |partition| match log.request(crate::log::Request::Get { partition }) {
            Some(crate::log::Reply::Snapshot { snapshot, .. }) => {
                snapshot.map_or(0, |s| s.sequence)
            }
            _ => 0,
        };
        (0..8).map(Partition).map(of).collect::<Vec<_>>()
    };
    let before = ends(&mut cluster);
    cluster.beats(beats + 10);
    let after = ends(&mut cluster);
    assert!(
        before.iter().zip(&after).all(|(before, after)| after > before),
        "{before:?} {after:?}"
    );
}

#[test]
fn two_runs_of_a_node_number_their_requests_differently() {
    let mut cluster = Cluster::new(3, 40);
    let asked = |cluster: &mut Cluster| {
        for nth in 0..40 {
            let request = Request::Read { session: SessionId(mix(nth)) };
            cluster.memory.request(NodeId(1), nth, request);
        }
        loop {
            assert!(cluster.memory.step(&mut cluster.heard), "none is of another node");
            let mut events = cluster.memory.inboxes.iter().flatten();
            let request = events.find_map(|event| match event {
                Event::Message(_, Message::Ask { request, .. }) => Some(*request),
                _ => None,
            });
            if let Some(request) = request {
                return request;
            }
        }
    };
    let runs = [(); 2].map(|()| {
        cluster.memory.kill(NodeId(1));
        cluster.heard.push(Heard::Ended(NodeId(1)));
        cluster.beats(3_000_000 / BEAT + 10);
        cluster.memory.start(NodeId(1));
        cluster.beats(20);
        asked(&mut cluster)
    });
    assert_ne!(runs[0], runs[1]);
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
    let request = Request::Update { session, keys, context: long(max + 1), before: None };
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
            Request::Update { session, keys, context, before: None }
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

/// It takes no packets before it has placed what its earlier run had, however late the log is.
#[test]
fn a_node_that_starts_again_alone_is_live_with_its_sessions() {
    let mut cluster = Cluster::new(1, 100);
    cluster.memory.start(NodeId(0));
    cluster.heard.push(Heard::Ended(NodeId(0)));
    let state = |cluster: &Cluster| cluster.memory.node(NodeId(0)).and_then(Node::state);
    let mut late_until = None;
    for _ in 0..120 {
        cluster.now += BEAT;
        cluster.memory.begin(cluster.now);
        while cluster.memory.step(&mut cluster.heard) {
            let reigns = cluster.memory.node(NodeId(0)).map_or(0, |node| node.reigns().count());
            if late_until.is_none() && reigns == 7 {
                // The claim of the last partition is on its way; what follows it comes late.
                cluster.memory.connect(NodeId(0), Links::Lagging);
                late_until = Some(cluster.now + 20 * BEAT);
            }
            if state(&cluster) == Some(State::Live) {
                cluster.all_handled(&[0]);
            }
        }
        if late_until.is_some_and(|until| cluster.now >= until) {
            cluster.memory.connect(NodeId(0), Links::Whole);
        }
    }
    assert_eq!(state(&cluster), Some(State::Live));
}
