//! The network between the nodes of a cluster: whose a packet is, and frames from node to node.
//!
//! ```text
//!   02:4f:42:HH:EE:NN   source of a frame on the fabric
//!            │  │  └ the node where the packet came in
//!            │  └ mark of a move: 0, or a source that has turned forwarded the packet
//!            └ nodes that have forwarded it: 1 or 2
//! ```
//!
//! A packet from outside has a key. The partition table of the key's partition names a node. That
//! node's sessions decide: the table may be behind, and answers anything for an unknown key. Only
//! the Ethernet addresses of a forwarded frame change. [`overbank_cluster::Node::decide`] is the
//! same function over maps; tests compare them.
//!
//! Cost of a key: a hash, and two lines of the table, asked for a burst at a time. Panics: none.

use crate::next_hops::Mac;
use crate::share::UnknownShare;
use overbank::hash::mix;
use overbank_cluster::node::{Entry, Shown};
use overbank_cluster::table::DenseReader;
use overbank_cluster::{NodeId, Partition, Tag};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// First bytes of the source of a frame on the fabric.
pub const PREFIX: [u8; 3] = [0x02, 0x4f, 0x42];
/// Nodes that forward a packet at most.
pub const HOPS_MAX: u8 = 2;

/// Returns the source of a frame on the fabric.
#[inline]
pub const fn source(tag: Tag, ingress: NodeId) -> Mac {
    let [a, b, c] = PREFIX;
    [a, b, c, tag.hops, tag.moved, ingress.0]
}

/// Reads the source of a frame on the fabric; `None`: no node sends such a frame.
#[inline]
pub const fn tag(source: Mac) -> Option<(Tag, NodeId)> {
    match source {
        [0x02, 0x4f, 0x42, hops @ 1..=HOPS_MAX, moved, ingress] => {
            Some((Tag { hops, moved }, NodeId(ingress)))
        }
        _ => None,
    }
}

/// Returns a frame that shows switches where a node's port is: RARP (RFC 903), to all.
///
/// No other frame has the address of a node as its source, and a switch floods what is to an
/// address that it has not learned.
pub fn announcement(mac: Mac) -> [u8; 60] {
    // EtherType; Ethernet, IPv4, lengths of their addresses, a request.
    const HEAD: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
    let mut frame = [0; 60];
    let parts = [(0, &[0xff; 6][..]), (6, &mac), (12, &HEAD), (22, &mac), (32, &mac)];
    for (at, part) in parts {
        frame[at..at + part.len()].copy_from_slice(part);
    }
    frame
}

/// Where the packets of a session go instead of being handled here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay {
    pub to: NodeId,
    /// Mark of the move.
    pub mark: u8,
    /// The session is on its way here: a packet with the mark is handled, others go back.
    pub standby: bool,
}

const RELAYED: u32 = 1 << 31;
const STANDBY: u32 = 1 << 30;

impl Relay {
    /// Returns what a node does for a session.
    pub fn of(shown: Shown) -> Option<Relay> {
        let mark = shown.mark;
        match shown.entry {
            Entry::Serving => None,
            Entry::Standby { from } => Some(Relay { to: from.node, mark, standby: true }),
            Entry::Moved { to } => Some(Relay { to: to.node, mark, standby: false }),
        }
    }

    /// Returns the node that a packet goes to, and its new mark; `None`: it is handled here.
    #[inline]
    pub fn way(self, tag: Tag) -> Option<(NodeId, u8)> {
        match self.standby {
            true if tag.moved == self.mark => None,
            true => Some((self.to, 0)),
            false => Some((self.to, self.mark)),
        }
    }

    #[inline]
    pub(crate) fn to_bits(relay: Option<Relay>) -> u32 {
        relay.map_or(0, |Relay { to, mark, standby }| {
            let standby = if standby { STANDBY } else { 0 };
            RELAYED | standby | u32::from(to.0) << 8 | u32::from(mark)
        })
    }

    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Option<Relay> {
        let relay = || Relay {
            to: NodeId((bits >> 8) as u8),
            mark: bits as u8,
            standby: bits & STANDBY != 0,
        };
        (bits & RELAYED != 0).then(relay)
    }
}

/// Hashes keys under the secret of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

/// Tags that make keys of different kinds differ.
pub(crate) mod kind {
    /// Tunnels and IPv4 addresses, as in the tables of sessions.
    pub(crate) const WIDE: u64 = 0;
    /// IPv6 prefixes.
    pub(crate) const SIX: u64 = 1;
    /// Identities of sessions.
    pub(crate) const ID: u64 = 2;
}

impl Seed {
    /// Returns the hash of a key of a kind. Different keys of a kind have different hashes.
    #[inline]
    pub fn hash(self, kind: u64, key: u64) -> u64 {
        mix(mix(key ^ self.0).wrapping_add(mix(mix(self.0).wrapping_add(kind + 1))))
    }
}

/// The cluster as workers see it.
#[derive(Clone)]
pub struct Fabric {
    /// Index of the port.
    pub port: u16,
    /// Address of the port.
    pub mac: Mac,
    /// Longest IP packet that leaves by it.
    pub mtu: usize,
    pub me: NodeId,
    pub seed: Seed,
    /// Whether packets from outside are taken.
    pub ingress: bool,
    /// By partition; a power of two. `None`: no table yet.
    pub tables: Arc<[Option<DenseReader>]>,
    /// Addresses of the members, by node.
    pub macs: Arc<[Option<Mac>]>,
    /// A bit for each number that has been a member's while this node runs.
    pub were: [u64; 4],
    /// When this node stops, by the clock of the workers, unless it hears more.
    pub valid_until_ms: Arc<AtomicU64>,
    /// Until when no Error Indication leaves: since the members changed, the session of a TEID may
    /// be on its way to a node.
    pub unsure_until_ms: u64,
    /// What is known of packets of no session, and the percentage that they may take.
    pub share: Arc<UnknownShare>,
    pub unknown_percent: u32,
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fabric(node {}, {} tables)", self.me.0, self.tables.len())
    }
}

impl Fabric {
    /// Whether this node may handle and forward.
    #[inline]
    pub(crate) fn is_valid(&self, now_ms: u64) -> bool {
        now_ms < self.valid_until_ms.load(Relaxed)
    }

    /// Returns the address of a member.
    #[inline]
    pub(crate) fn mac_of(&self, node: NodeId) -> Option<Mac> {
        *self.macs.get(usize::from(node.0))?
    }

    /// Whether a number is or was a member's.
    pub(crate) fn knows(&self, node: NodeId) -> bool {
        let word = self.were.get(usize::from(node.0 >> 6)).copied().unwrap_or(0);
        word >> (node.0 & 63) & 1 == 1
    }

    #[inline]
    fn table(&self, hash: u64) -> Option<&DenseReader> {
        let partition = Partition::of(hash, self.tables.len() as u16);
        self.tables.get(partition.index())?.as_ref()
    }

    /// Writes the node of each key; this one where there is no table yet.
    #[inline]
    pub(crate) fn nodes(&self, kind: u64, keys: &[u64], nodes: &mut [NodeId]) {
        for &key in keys {
            let hash = self.seed.hash(kind, key);
            if let Some(table) = self.table(hash) {
                table.prefetch(hash);
            }
        }
        for (&key, node) in keys.iter().zip(nodes) {
            let hash = self.seed.hash(kind, key);
            *node = self.table(hash).map_or(self.me, |table| table.lookup(hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_says_what_it_was_made_of() {
        for hops in 0..=4 {
            for moved in [0, 1, 255] {
                let (tag_, node) = (Tag { hops, moved }, NodeId(moved ^ 9));
                let read = (1..=HOPS_MAX).contains(&hops).then_some((tag_, node));
                assert_eq!(tag(source(tag_, node)), read);
            }
        }
        assert_eq!(tag([0x02, 0x4f, 0x43, 1, 0, 0]), None);
        assert_eq!(tag([0; 6]), None);
    }

    #[test]
    fn keys_of_different_kinds_have_different_hashes() {
        let kinds = [kind::WIDE, kind::SIX, kind::ID];
        let hashes = |seed| {
            let of_kind = move |kind| (0..1000).map(move |key| Seed(seed).hash(kind, key));
            kinds.into_iter().flat_map(of_kind).collect::<std::collections::HashSet<u64>>()
        };
        assert_eq!((hashes(1).len(), hashes(2).len()), (3000, 3000));
        assert!(hashes(1).is_disjoint(&hashes(2)));
    }
}
