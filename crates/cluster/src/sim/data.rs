//! What the simulator keeps of sessions: it checks each one at each step without a look at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::Entry;
use crate::rib::Context;
use crate::{Member, NodeId, SessionId};

/// A session in the data path of a node.
pub(super) struct Told {
    pub(super) session: SessionId,
    pub(super) entry: Entry,
    pub(super) context: Context,
    /// Packets that the node has handled, and those counted before.
    pub(super) counts: [u64; 2],
}

/// Where the log has a session.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) at: Member,
    pub(super) moving: Option<Member>,
}

/// The nodes that serve each session.
#[derive(Default)]
pub(super) struct Serving {
    nodes: BTreeSet<(SessionId, NodeId)>,
    /// Sessions that several nodes serve: one of them is fenced, or must be.
    several: BTreeSet<SessionId>,
}

impl Serving {
    pub(super) fn set(&mut self, session: SessionId, node: NodeId, serves: bool) {
        let changed = match serves {
            true => self.nodes.insert((session, node)),
            false => self.nodes.remove(&(session, node)),
        };
        if !changed {
            return;
        }
        if self.of(session).nth(1).is_some() {
            self.several.insert(session);
        } else {
            self.several.remove(&session);
        }
    }

    fn of(&self, session: SessionId) -> impl Iterator<Item = NodeId> + '_ {
        let all = (session, NodeId(0))..=(session, NodeId(u8::MAX));
        self.nodes.range(all).map(|of| of.1)
    }

    pub(super) fn several(
        &self,
    ) -> impl Iterator<Item = (SessionId, impl Iterator<Item = NodeId> + '_)> + '_ {
        self.several.iter().map(|&session| (session, self.of(session)))
    }
}

/// A map in the order of sessions that finds its nth one at once.
pub(super) struct Sorted<V> {
    of: BTreeMap<SessionId, V>,
    names: Vec<SessionId>,
}

impl<V> Default for Sorted<V> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), names: Vec::new() }
    }
}

impl<V> Sorted<V> {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn get(&self, session: SessionId) -> Option<&V> {
        self.of.get(&session)
    }

    pub(super) fn nth(&self, nth: usize) -> Option<(SessionId, &V)> {
        let session = *self.names.get(nth)?;
        Some((session, self.of.get(&session)?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SessionId, &V)> {
        self.of.iter().map(|(&session, of)| (session, of))
    }

    pub(super) fn insert(&mut self, session: SessionId, of: V) {
        self.of.insert(session, of);
        if let Err(at) = self.names.binary_search(&session) {
            self.names.insert(at, session);
        }
    }

    pub(super) fn remove(&mut self, session: SessionId) {
        self.of.remove(&session);
        if let Ok(at) = self.names.binary_search(&session) {
            self.names.remove(at);
        }
    }
}
