//! What must hold: packets in at every node, and the state after the faults.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use super::data::Placed;
use super::run::{Host, Violation, World};
use crate::etcd::State;
use crate::node::Local;
use crate::rib::{Hold, Rib};
use crate::table::Gpt;
use crate::{Decision, DropReason, Key, Node, NodeId, Partition, SessionId, Tag};

/// The key of no session.
const UNKNOWN: u128 = u128::MAX;

impl<T: Gpt> World<T> {
    pub(super) fn violated(&mut self, guarantee: u8, what: String) {
        let at = self.now;
        let what = format!("at {at} us: {what}");
        self.outcome.violation.get_or_insert(Violation { guarantee, what });
    }

    /// Sends a packet of a key of a session in at a node; returns which node handled it, by which
    /// slot.
    fn packet(
        &mut self,
        ingress: NodeId,
        key: Key,
        of: SessionId,
    ) -> Result<(NodeId, u32), Option<DropReason>> {
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
                    let me = node.me();
                    let told = self.hosts[usize::from(at.0)].slots.get_mut(&slot);
                    let session = told.map(|told| {
                        told.counts[0] += 1;
                        told.session
                    });
                    // Removed or not, moving or not: the log has it there.
                    let is_at = |placed: &Placed| placed.at == me || placed.moving == Some(me);
                    if session != Some(of) || !self.placed.get(&of).is_some_and(is_at) {
                        let placed = self.placed.get(&of);
                        let what = format!("{me} handles {key:?} by {session:?}: {placed:?}");
                        self.violated(2, what);
                    }
                    let handled = self.handled.entry(of).or_default();
                    *handled += 1;
                    let (handled, counted) = (*handled, self.counted(at, of));
                    if counted > handled {
                        let what = format!("{counted} packets of {of:?}, in truth {handled}");
                        self.violated(6, what);
                    }
                    return Ok((at, slot));
                }
                Decision::Forward(to, next) => {
                    let (guarantee, most) = if key.full == UNKNOWN { (3, 1) } else { (2, 2) };
                    if next.hops > most {
                        self.violated(guarantee, format!("{key:?} took {} hops", next.hops));
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
    pub(super) fn counted(&self, at: NodeId, session: SessionId) -> u64 {
        let host = &self.hosts[usize::from(at.0)];
        let local = host.node.as_ref().and_then(|node| node.sessions().get(&session));
        let told = local.and_then(|local| host.slots.get(&local.slot));
        let told = told.filter(|told| told.session == session);
        told.map_or(0, |told| told.counts.iter().sum())
    }

    /// Packets of a few sessions into every node: at most one node handles each session.
    pub(super) fn packets(&mut self) {
        let (known, unsure) = (self.known.len(), self.unsure.len());
        for _ in 0..2 {
            if known + unsure == 0 {
                return;
            }
            let nth = self.random.random_range(0..known + unsure);
            let keys = self.known.nth(nth).map(|(_, of)| &of.0);
            let keys = keys.or_else(|| self.unsure.values().nth(nth - known)).cloned();
            let keys = keys.unwrap_or_default();
            let key = keys[self.random.random_range(0..keys.len())];
            let mut by = BTreeSet::new();
            let session = SessionId(keys[0].hash);
            let answered = self.known.get(session).is_some();
            for ingress in (0..self.plan.nodes).map(NodeId) {
                let handled = self.packet(ingress, key, session);
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
        let valid: Vec<bool> = self
            .hosts
            .iter()
            .map(|host| {
                let node = host.node.as_ref().filter(|_| host.paused_until <= self.now);
                node.is_some_and(|node| self.clock(node.me().node) < node.valid_until())
            })
            .collect();
        let both = self.serving.several().find_map(|(session, nodes)| {
            let nodes: Vec<NodeId> = nodes.filter(|id| valid[usize::from(id.0)]).collect();
            (nodes.len() > 1).then_some((session, nodes))
        });
        if let Some(both) = both {
            self.violated(5, format!("several nodes serve a session: {both:?}"));
        }
        // An unknown key is handled by none, and not sent on twice.
        let unknown = Key { hash: self.random.random(), full: UNKNOWN };
        let ingress = NodeId(self.random.random_range(0..self.plan.nodes));
        // `packet` says so.
        let _handled = self.packet(ingress, unknown, SessionId(unknown.hash));
    }

    /// Each data path has been told what its node decides by.
    fn told_all(&mut self) {
        let differs = |host: &Host<T>| {
            let node = host.node.as_ref()?;
            let told = |(session, local): (&SessionId, &Local)| {
                let told = host.slots.get(&local.slot);
                told.is_some_and(|told| told.session == *session && told.entry == local.entry)
            };
            let all = node.sessions().len() == host.slots.len();
            (!all || !node.sessions().iter().all(told)).then(|| node.me())
        };
        if let Some(me) = self.hosts.iter().find_map(differs) {
            self.violated(2, format!("the data path of {me} is not what its node decides by"));
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
    pub(super) fn recover(&mut self) {
        if self.outcome.violation.is_some() {
            return;
        }
        self.end_faults();
        self.run_until(self.now + 12 * self.plan.settings.lease_us);
        let states: Vec<_> =
            self.hosts.iter().map(|h| h.node.as_ref().and_then(Node::state)).collect();
        if !states.contains(&Some(State::Live)) {
            self.violated(4, format!("no node is live after the faults: {states:?}"));
        }
        self.recovered_keys();
        self.told_all();
        let known: Vec<_> = self.known.iter().map(|(s, of)| (s, of.clone())).collect();
        for (session, (keys, context)) in known {
            for &key in keys.iter() {
                for (at, state) in states.iter().enumerate() {
                    if !matches!(state, Some(State::Live | State::Draining)) {
                        continue;
                    }
                    let ingress = NodeId(at as u8);
                    let before = self.outcome.handled;
                    let handled = self.packet(ingress, key, session);
                    if let Ok((at, slot)) = handled
                        && self.hosts[usize::from(at.0)].slots.get(&slot).map(|of| &of.context)
                            != Some(&context)
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
