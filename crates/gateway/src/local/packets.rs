//! Packets through the nodes: the engines, the fabric between them, and a check of what leaves.

use super::{Burst, Exits, FRAMES, Local, index_of, mac_of, population};
use crate::engine::Sink;
use crate::reason::DropReason;
use crate::settings::Role;
use arrayvec::ArrayVec;
use overbank_cluster::node::Entry;
use overbank_cluster::{Links, NodeId};
use overbank_reasons::Reasons;

/// What the engine of a node does with a burst.
struct Switched<'a> {
    dropped: &'a mut [u64; DropReason::COUNT],
    wires: &'a mut [Burst],
    /// Frames that leave by a cut link.
    lost: Option<&'a mut u64>,
    node: u8,
    left: Option<&'a mut Vec<(u8, Option<u32>)>>,
}

impl Sink for Switched<'_> {
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        self.output_parts(index, port, bytes, &[]);
    }

    fn output_parts(&mut self, _: usize, port: u16, head: &[u8], rest: &[u8]) {
        if port != index_of(Role::Fabric) {
            let role = if port == index_of(Role::N3) { Role::N3 } else { Role::N6 };
            let number = || population::terminal(role, head, rest);
            return self.left.iter_mut().for_each(|left| left.push((self.node, number())));
        }
        if let Some(lost) = &mut self.lost {
            return **lost += 1;
        }
        self.cross(head, rest);
    }

    fn drop(&mut self, _: usize, reason: DropReason) {
        self.dropped[reason.index()] += 1;
    }

    fn originate(&mut self, port: u16, bytes: &[u8]) {
        // Notes; they get lost without a count.
        if port == index_of(Role::Fabric) && self.lost.is_none() {
            self.cross(bytes, &[]);
        }
    }
}

impl Switched<'_> {
    /// Brings a frame to the node that it is to.
    fn cross(&mut self, head: &[u8], rest: &[u8]) {
        let mut wires = (0..).map(NodeId).zip(self.wires.iter_mut());
        if let Some((_, wire)) = wires.find(|(node, _)| head.starts_with(&mac_of(*node))) {
            wire.push(head, rest);
        }
    }
}

impl Local {
    /// Sends frames in at a port of a node, and whatever follows on the fabric.
    pub fn send(&mut self, node: u8, role: Role, burst: &Burst) {
        let at = usize::from(node);
        if self.forward(at, role, burst) {
            self.accounts[at].received += burst.len() as u64;
        }
        // A packet is forwarded twice at most, so this ends.
        while let Some(at) = self.wires.iter().position(|wire| !wire.is_empty()) {
            let spare = std::mem::take(&mut self.spare);
            let mut burst = std::mem::replace(&mut self.wires[at], spare);
            if !self.forward(at, Role::Fabric, &burst) {
                self.lost += burst.len() as u64;
            }
            burst.clear();
            self.spare = burst;
        }
        self.check();
    }

    /// Has each packet of a [`Population`](super::Population) that leaves by N3 and N6 checked:
    /// see [`Local::exits`].
    pub fn watch(&mut self) {
        self.left = Some(Vec::new());
    }

    /// Returns the packets that have left since [`Local::watch`].
    pub const fn exits(&self) -> Exits {
        self.exits
    }

    pub(super) fn check(&mut self) {
        let Some(mut left) = self.left.take() else { return };
        for (node, number) in left.drain(..) {
            let right = number.is_some_and(|number| self.is_home(node, number));
            *(if right { &mut self.exits.right } else { &mut self.exits.misrouted }) += 1;
        }
        self.left = Some(left);
    }

    /// Whether a node may handle the packets of a terminal, and no other ready node may.
    fn is_home(&self, node: u8, number: u32) -> bool {
        let id = self.seed().session(number.into());
        let entry = |node: u8| Some(self.memory.node(NodeId(node))?.sessions().get(&id)?.entry);
        let handles = matches!(entry(node), Some(Entry::Serving | Entry::Standby { .. }));
        let others = (0..self.nodes()).filter(|&other| other != node);
        let mut serving = others.filter(|&other| entry(other) == Some(Entry::Serving));
        handles && !serving.any(|other| self.is_ready(other))
    }

    /// Returns false if the node does not run.
    fn forward(&mut self, at: usize, role: Role, burst: &Burst) -> bool {
        let now_ms = self.now_us / 1000;
        let (site, account) = (self.sites.get_mut(at), self.accounts.get_mut(at));
        let (Some(Some(site)), Some(account)) = (site, account) else { return false };
        let cut = self.links[at] == Links::Cut;
        if cut && role == Role::Fabric {
            return false;
        }
        let lost = cut.then_some(&mut self.lost);
        let (dropped, wires) = (&mut account.dropped, &mut self.wires[..]);
        let left = self.left.as_mut();
        let mut sink = Switched { dropped, wires, lost, node: at as u8, left };
        let mut frames = burst.iter();
        loop {
            let chunk: ArrayVec<&[u8], FRAMES> = frames.by_ref().take(FRAMES).collect();
            if chunk.is_empty() {
                return true;
            }
            site.forward(&chunk, index_of(role), now_ms, &mut sink);
        }
    }
}
