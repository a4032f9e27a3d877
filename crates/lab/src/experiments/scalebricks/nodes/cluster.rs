//! Passes: packets enter a cluster at random nodes, and every node works until all are handled or
//! refused.

use std::collections::VecDeque;

use super::super::handling;
use super::frame::{FlowKey, Frame, Role};
use super::node::{Architecture, BURST, Node, Outbox};
use super::tables::Tables;
use overbank::random::Pcg32;

/// One packet of this many has a key of no session, in the pass that counts.
const UNKNOWN: u32 = 16;

/// What a pass counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pass {
    pub(crate) packets: u64,
    /// Packets of sessions: all, handled by their node, links that they crossed, the most of one.
    pub(crate) known: u64,
    pub(crate) handled: u64,
    pub(crate) hops: u64,
    pub(crate) hops_max: u8,
    /// Packets of no session, refused; the most links that one of them crossed.
    pub(crate) refused: u64,
    pub(crate) unknown_hops_max: u8,
    pub(crate) wrong: u64,
}

/// All nodes of a cluster, and the frames on their way.
pub(crate) struct Cluster<K> {
    pub(crate) nodes: Vec<Node<K>>,
    waiting: VecDeque<Frame>,
    out: Outbox,
}

impl<K: FlowKey> Cluster<K> {
    pub(crate) fn new(tables: &Tables<K>, architecture: Architecture) -> Self {
        let nodes = (0..tables.nodes).map(|n| Node::new(tables, architecture, n as u8)).collect();
        Cluster { nodes, waiting: VecDeque::new(), out: Outbox::new() }
    }

    /// Has packets of these keys enter at random nodes, and works until none is on its way. `got`
    /// gets each burst before a node works on it.
    pub(crate) fn pass(
        &mut self,
        keys: &[(K, Option<u8>)],
        pcg: &mut Pcg32,
        mut got: impl FnMut(Role, u8, &[Frame]),
    ) -> Pass {
        let mut pass = Pass::default();
        for keys in keys.chunks(BURST) {
            let frames: Vec<Frame> = keys.iter().map(|key| Frame::entering(key.0)).collect();
            let node = pcg.below(self.nodes.len() as u32) as u8;
            got(Role::Ingress, node, &frames);
            self.nodes[usize::from(node)].work(Role::Ingress, &frames, &mut self.out);
            self.waiting.extend(self.out.take().copied());
            pass.packets += frames.len() as u64;
            while let Some(frame) = self.waiting.pop_front() {
                // Frames of one burst leave for different nodes: each is a burst there.
                let label = frame.label();
                got(label.role, label.to, &[frame]);
                let node = &mut self.nodes[usize::from(label.to)];
                let before = node.drops;
                node.work(label.role, &[frame], &mut self.out);
                let (refused, wrong) =
                    (node.drops.unknown - before.unknown, node.drops.wrong - before.wrong);
                pass.refused += refused;
                pass.wrong += wrong;
                if refused > 0 {
                    pass.unknown_hops_max = pass.unknown_hops_max.max(label.hops);
                }
                if label.role == Role::Handling {
                    let sent = self.out.take().count() as u64;
                    pass.handled += sent;
                    if sent > 0 {
                        pass.hops += u64::from(label.hops);
                        pass.hops_max = pass.hops_max.max(label.hops);
                    }
                } else {
                    self.waiting.extend(self.out.take().copied());
                }
            }
            pass.known += keys.iter().filter(|key| key.1.is_some()).count() as u64;
        }
        // What an ingress refused.
        pass.refused = self.nodes.iter().map(|node| node.drops.unknown).sum();
        pass.wrong = self.nodes.iter().map(|node| node.drops.wrong).sum();
        pass
    }
}

/// Draws packets of random sessions, and of none.
pub(crate) fn draw<K: FlowKey>(
    (sessions, nodes): (u64, u64),
    count: usize,
    unknown: bool,
    pcg: &mut Pcg32,
) -> Vec<(K, Option<u8>)> {
    let mut one = || {
        let session = u64::from(pcg.below(sessions as u32));
        if unknown && pcg.below(UNKNOWN) == 0 {
            (K::of(session + (1 << 31)), None)
        } else {
            (K::of(session), Some(handling(session, nodes)))
        }
    };
    (0..count).map(|_| one()).collect()
}
