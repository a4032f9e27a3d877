//! A node's gateway without threads: sessions, engine, and the cluster's part.

use super::{Plan, index_of};
use crate::cluster::{Clustered, Seat};
use crate::engine::{Answers, Gateway, GatewayTotals, Roles, Sink, View};
#[cfg(test)]
use crate::engine::{EchoResponse, Order};
use crate::fabric::Seed;
use crate::next_hops::Mac;
use crate::sessions::Sessions;
use crate::settings::Role;
use crate::slab::NoMemory;
use overbank_cluster::message::Message;
use overbank_cluster::node::{Change, Entry};
use overbank_cluster::table::Dense;
use overbank_cluster::{Member, Node, NodeId};
use overbank_runtime::Engine as _;
use std::sync::Arc;

/// Longest IP packet on the fabric.
const FABRIC_MTU: usize = 1600;

/// Returns a node's address on the fabric.
pub(crate) const fn mac_of(node: NodeId) -> Mac {
    [2, 0, 0, 0, 9, node.0]
}

/// A node's gateway.
pub(crate) struct Site {
    sessions: Sessions,
    gateway: Gateway,
    clustered: Clustered,
    alone: View,
    /// Slots of sessions that are handled here.
    serves: Vec<bool>,
    serving: usize,
    unknown_percent: u32,
}

impl Site {
    /// Returns a gateway without sessions.
    pub(crate) fn of(plan: &Plan, me: NodeId) -> Result<Site, NoMemory> {
        // Each has its own queue.
        let alone = View { echoes: Arc::default(), ..plan.view.clone() };
        let (sessions, readers) =
            Sessions::new(plan.sessions_max, alone.addresses.clone(), 1, plan.seed)?;
        let reader = readers.into_iter().next().ok_or(NoMemory { slots: plan.sessions_max })?;
        let roles = Roles { n3: index_of(Role::N3), n6: index_of(Role::N6) };
        let answers = Arc::new(Answers::new(plan.seed));
        let gateway = Gateway::new(reader, Arc::new(alone.clone()), roles, answers);
        let seat = Seat { me, seed: Seed(plan.seed) };
        let clustered = Clustered::new(seat, index_of(Role::Fabric));
        let serves = Vec::new();
        let unknown_percent = plan.unknown_percent;
        Ok(Site { sessions, gateway, clustered, alone, serves, serving: 0, unknown_percent })
    }

    /// Performs a change of the node.
    pub(crate) fn change(&mut self, change: &Change, now_ms: u64) {
        self.clustered.change(&mut self.sessions, change, now_ms);
        let (slot, serves) = match *change {
            Change::Install { slot, shown, .. } | Change::Show { slot, shown } => {
                (slot as usize, shown.entry == Entry::Serving)
            }
            Change::Free { slot } => (slot as usize, false),
            Change::Renew { .. } | Change::Counts { .. } | Change::TakenOver { .. } => return,
        };
        if self.serves.len() <= slot {
            self.serves.resize(slot + 1, false);
        }
        let before = std::mem::replace(&mut self.serves[slot], serves);
        self.serving = self.serving + usize::from(serves) - usize::from(before);
    }

    /// Fills in the counts of a message of the node.
    pub(crate) fn count(&self, me: Member, message: &mut Message) {
        message.count(me, |session| self.clustered.counts(&self.sessions, session));
    }

    /// Takes over what the node knows.
    pub(crate) fn look(&mut self, node: &Node<Dense>, now_ms: u64) {
        if self.clustered.look(node, now_ms) {
            let fabric = Some(self.clustered.fabric(
                mac_of(node.me().node),
                FABRIC_MTU,
                self.unknown_percent,
            ));
            let view = Arc::new(View { fabric, ..self.alone.clone() });
            self.gateway.take_over(&Arc::default(), &view, 0);
        }
    }

    /// Forgets a run of the node.
    pub(crate) fn end(&mut self) {
        self.clustered.end(&mut self.sessions);
        self.serves.clear();
        self.serving = 0;
    }

    pub(crate) fn forward(&mut self, burst: &[&[u8]], port: u16, now_ms: u64, out: &mut impl Sink) {
        self.gateway.forward(burst, port, now_ms, out);
    }

    /// Takes what peers have answered, and asks those that are due.
    #[cfg(test)]
    pub(crate) fn look_at_peers(&mut self, interval_ms: u64, now_ms: u64, out: &mut impl Sink) {
        let (asker, peers) = (self.gateway.asker(), self.sessions.peers_mut());
        peers.set_interval(interval_ms);
        while let Some(EchoResponse { path, sequence, recovery }) = self.alone.echoes.take() {
            peers.answer(asker, path, sequence, recovery, now_ms);
        }
        let mut orders = Vec::new();
        peers.tick(asker, now_ms, |path, sequence| {
            orders.push(Order::Echo { path, sequence });
            true
        });
        orders.into_iter().for_each(|order| self.gateway.perform(order, out));
    }

    #[cfg(test)]
    pub(crate) fn peers(&self) -> &crate::peers::Peers {
        self.sessions.peers()
    }

    pub(crate) fn totals(&self) -> GatewayTotals {
        self.gateway.totals()
    }

    /// Whether it takes packets from outside.
    pub(crate) fn is_ready(&self, now_ms: u64) -> bool {
        self.clustered.is_ready(now_ms)
    }

    /// Returns the number of sessions that are handled here.
    pub(crate) const fn serving(&self) -> usize {
        self.serving
    }

    /// Returns the same as the status has it.
    #[cfg(test)]
    pub(crate) const fn shown_serving(&self) -> usize {
        self.clustered.serving() as usize
    }

    /// Returns the number of sessions that are installed.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns how many sessions did not fit.
    #[cfg(test)]
    pub(crate) const fn refused(&self) -> u64 {
        self.clustered.refused()
    }
}
