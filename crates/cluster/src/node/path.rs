//! What to do with a packet: the function that the gateway calls for each one.

use overbank_reasons::reasons;

use super::{Entry, Node};
use crate::etcd::State;
use crate::table::Gpt;
use crate::{Key, Micros, NodeId, Version};

/// What a frame on the fabric says of its way, in the source's MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// Nodes that have forwarded it: 0 from outside, at most 2.
    pub hops: u8,
    /// A stub forwarded it: low bits of the move's version, never 0.
    pub moved: u8,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// This node handles it, by the session in this slot.
    Handle(u32),
    /// Another node gets it.
    Forward(NodeId, Tag),
    /// It is dropped.
    Drop(DropReason),
}

reasons! {
    /// Why a packet was dropped.
    pub enum DropReason {
        Fenced = "fenced", "the node's lease is over by its clock";
        NotIngress = "not_ingress", "the node joins, or is suspended";
        NodeDown = "node_down", "the node of the packet's key is no member";
        Unknown = "unknown", "no session here has the packet's key";
        Loop = "loop", "two nodes have forwarded it before";
    }
}

const HOPS_MAX: u8 = 2;

/// Returns the mark of a move.
pub(super) const fn mark(version: Version) -> u8 {
    (version % 255) as u8 + 1
}

impl<T: Gpt> Node<T> {
    /// Decides about a packet. Costs two lookups of maps at most. The gateway keeps the same
    /// entries in its tables ([`super::Change`]), and gives the same answers from them,
    /// [`Node::view`], [`Node::tables`] and [`Node::valid_until`].
    pub fn decide(&self, now: Micros, key: Key, tag: Tag) -> Decision {
        if now >= self.valid_until() {
            return Decision::Drop(DropReason::Fenced);
        }
        if tag.hops == 0 {
            if !matches!(self.state(), Some(State::Live | State::Draining)) {
                return Decision::Drop(DropReason::NotIngress);
            }
            let node = self.replicas[self.partition(key.hash).index()].table.lookup(key.hash);
            if node != self.me.node {
                return match self.view.members.contains_key(&node) {
                    true => Decision::Forward(node, Tag { hops: 1, moved: 0 }),
                    false => Decision::Drop(DropReason::NodeDown),
                };
            }
        }
        let held = self.fib.get(&key.hash).filter(|held| held.0 == key.full);
        let Some(local) = held.and_then(|held| self.sessions.get(&held.1)) else {
            return Decision::Drop(DropReason::Unknown);
        };
        let (to, moved) = match local.entry {
            Entry::Serving => return Decision::Handle(local.slot),
            // Only a source that has turned makes this tag.
            Entry::Standby { .. } if tag.moved == mark(local.version) => {
                return Decision::Handle(local.slot);
            }
            Entry::Standby { from } => (from, 0),
            Entry::Moved { to } => (to, mark(local.version)),
        };
        if tag.hops >= HOPS_MAX {
            return Decision::Drop(DropReason::Loop);
        }
        Decision::Forward(to.node, Tag { hops: tag.hops + 1, moved })
    }
}
