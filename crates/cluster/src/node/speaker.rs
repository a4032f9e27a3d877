//! The speaker: the one member that answers a control plane, for all nodes.
//!
//! The coordinator names it, as it names owners: the entry in etcd changes on the revisions of
//! itself and of the membership. Another member takes its place when it is gone, or drains. A
//! member that is gone has stopped by its own clock before it is removed, and one that drains knows
//! it first: so two nodes never speak at the same time. One that is suspended stays; if it cannot
//! go on, its lease ends.
//!
//! What a speaker leaves to those after it is a separate key, written on the revision of the
//! speaker's entry: a node that speaks no more writes nothing.

use overbank::hash::mix;

use super::{Action, Actions, Node};
use crate::etcd::{Info, Key, Request, State, Value};
use crate::table::Gpt;
use crate::{Member, Micros, rendezvous};

/// Any number: speakers are not where the owners of one partition are.
const NAME: u64 = 0x7370_6561_6b65_7200;

impl<T: Gpt> Node<T> {
    /// Whether this node speaks.
    pub fn speaks(&self, now: Micros) -> bool {
        let named = self.view.speaker.is_some_and(|speaker| speaker.0 == self.me);
        let mut live = self.view.in_state(State::Live);
        let drains = self.drain.is_some() && live.any(|member| member != self.me);
        named && !drains && now < self.valid_until()
    }

    /// Names another speaker if there is none, or if it is gone or drains.
    pub(super) fn name_speaker(&self, out: &mut Actions<T>) {
        if !self.settings.speaker {
            return;
        }
        let speaker = self.view.speaker;
        let state = speaker.and_then(|(member, _)| self.view.state(member));
        if state.is_some_and(|state| state != State::Draining) {
            return;
        }
        let live: Vec<Member> = self.view.in_state(State::Live).collect();
        let Some(chosen) = rendezvous(mix(NAME), live) else { return };
        let revision = speaker.map_or(0, |speaker| speaker.1);
        let compare = vec![(Key::Speaker, revision), (Key::Members, self.view.membership)];
        let value = Value::Speaker(chosen);
        out.push(Action::Etcd(Request::Txn { compare, key: Key::Speaker, value, lease: None }));
    }

    /// Takes what is to be left to later speakers; [`View::shared`](crate::etcd::View::shared)
    /// shows when it is there.
    pub(super) fn share(&mut self, now: Micros, shared: Info, out: &mut Actions<T>) {
        self.share = Some(shared);
        self.share_again(now, out);
    }

    /// Writes it until etcd shows it, or until this node speaks no more.
    pub(super) fn share_again(&mut self, now: Micros, out: &mut Actions<T>) {
        let Some(share) = &self.share else { return };
        let shared = self.view.shared.as_ref();
        let (true, Some((_, named))) = (self.speaks(now), self.view.speaker) else {
            self.share = None;
            return;
        };
        if shared.is_some_and(|(shared, _)| shared == share) {
            self.share = None;
            return;
        }
        let revision = shared.map_or(0, |shared| shared.1);
        let compare = vec![(Key::Speaker, named), (Key::Shared, revision)];
        let value = Value::Shared(share.clone());
        out.push(Action::Etcd(Request::Txn { compare, key: Key::Shared, value, lease: None }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Map;
    use crate::{Heard, Links, Memory, NodeId, Settings};
    use std::sync::Arc;

    const BEAT: Micros = 50_000;

    struct Cluster {
        memory: Memory<Map>,
        now: Micros,
        heard: Vec<Heard>,
    }

    impl Cluster {
        fn new(nodes: u8) -> Cluster {
            let settings =
                Settings { partitions: 4, node_bits: 2, speaker: true, ..Settings::default() };
            let memory = Memory::new(settings, nodes);
            let mut cluster = Cluster { memory, now: 0, heard: Vec::new() };
            cluster.beats(20);
            cluster
        }

        /// Between any two steps, at most one node speaks.
        fn beats(&mut self, count: u64) {
            for _ in 0..count {
                self.now += BEAT;
                self.memory.begin(self.now);
                while self.memory.step(&mut self.heard) {
                    self.speaker();
                }
            }
        }

        fn speaker(&self) -> Option<u8> {
            let mut all = (0..4).filter(|&node| {
                self.memory.node(NodeId(node)).is_some_and(|node| node.speaks(self.now))
            });
            let speaker = all.next();
            assert_eq!(all.next(), None, "two nodes speak");
            speaker
        }

        fn shared(&self, node: u8) -> Option<Info> {
            let node = self.memory.node(NodeId(node)).expect("it runs");
            node.view().shared.as_ref().map(|shared| shared.0.clone())
        }
    }

    #[test]
    fn one_node_speaks_until_it_is_gone_or_drains() {
        let mut cluster = Cluster::new(3);
        let first = cluster.speaker().expect("a speaker");
        cluster.beats(20);
        assert_eq!(cluster.speaker(), Some(first));
        cluster.memory.kill(NodeId(first));
        cluster.beats(20);
        assert_eq!(cluster.speaker(), None, "its lease is not over");
        cluster.beats(60);
        let second = cluster.speaker().expect("a speaker");
        assert_ne!(second, first);
        // A later run of the first does not speak.
        cluster.memory.start(NodeId(first));
        cluster.beats(20);
        assert_eq!(cluster.speaker(), Some(second));
        cluster.memory.drain(NodeId(second));
        cluster.beats(20);
        let third = cluster.speaker().expect("a speaker");
        assert_ne!(third, second);
        // Cut off from all, it ends by its own clock before another one begins.
        cluster.memory.connect(NodeId(third), Links::Cut);
        cluster.beats(80);
        assert!(cluster.speaker().is_some_and(|fourth| fourth != third));
    }

    #[test]
    fn what_a_speaker_leaves_is_there_for_the_next_one_and_no_other_writes_it() {
        let mut cluster = Cluster::new(3);
        let first = cluster.speaker().expect("a speaker");
        let other = (first + 1) % 3;
        cluster.memory.share(NodeId(other), Arc::from(*b"no"));
        cluster.memory.share(NodeId(first), Arc::from(*b"one"));
        cluster.beats(3);
        cluster.memory.share(NodeId(first), Arc::from(*b"two"));
        cluster.beats(3);
        assert_eq!(cluster.shared(other).as_deref(), Some(&b"two"[..]));
        cluster.memory.kill(NodeId(first));
        cluster.beats(80);
        let second = cluster.speaker().expect("a speaker");
        assert_eq!(cluster.shared(second).as_deref(), Some(&b"two"[..]));
        cluster.memory.share(NodeId(second), Arc::from(*b"three"));
        cluster.beats(3);
        assert_eq!(cluster.shared(second).as_deref(), Some(&b"three"[..]));
    }

    #[test]
    fn notes_reach_the_gateway_that_they_are_for() {
        let mut cluster = Cluster::new(3);
        for to in 0..3 {
            cluster.memory.note(NodeId(1), NodeId(to), Arc::from([to]));
        }
        cluster.beats(1);
        let notes = cluster.heard.iter().filter_map(|heard| match heard {
            Heard::Note(at, from, note) => Some((at.0, from.node.0, note[0])),
            _ => None,
        });
        let mut notes: Vec<_> = notes.collect();
        notes.sort_unstable();
        assert_eq!(notes, [(0, 1, 0), (1, 1, 1), (2, 1, 2)]);
    }
}
