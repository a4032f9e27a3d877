//! Names of members, partitions and sessions, and the hash that places a session.

use serde::{Deserialize, Serialize};
use std::fmt;

use overbank::hash::mix;

/// Microseconds of some clock. Times of different nodes are never compared.
pub type Micros = u64;

/// Number of a node, 0 to 2^v − 1: a value of the partition table.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct NodeId(pub u8);

/// A run of a node, from its start to its end or its removal from the membership.
///
/// A node that starts again, or that was removed, has a higher incarnation: sessions placed at an
/// earlier one are not its own.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its run.
    pub incarnation: u64,
}

/// Number of a RIB partition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Partition(pub u16);

/// Reign of an owner over a partition; rises with each owner.
pub type Epoch = u64;

/// Position in the log of a partition. The first batch has 1.
pub type Sequence = u64;

/// Revision of etcd: of the whole, or of the last change of a key. 0: never written.
pub type Revision = u64;

/// State of a session: the sequence number of the batch that made it.
pub type Version = u64;

/// A session's id is the hash of its first key. Its *home* is that key's partition.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct SessionId(pub u64);

/// A key of a session: what packets are looked up by.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Key {
    /// Its hash under the cluster's secret seed. Two keys of one hash cannot be used together.
    pub hash: u64,
    /// The whole key as the gateway encodes it (kind, N3 address and TEID, or UE address).
    pub full: u128,
}

impl Partition {
    /// Returns the partition of a hash; `count` is a power of two.
    #[inline]
    pub const fn of(hash: u64, count: u16) -> Self {
        Self((hash >> 1 >> (63 - count.trailing_zeros())) as u16)
    }

    /// Returns the first name of its sessions.
    pub const fn first(self, count: u16) -> SessionId {
        SessionId((self.0 as u64) << 1 << (63 - count.trailing_zeros()))
    }

    /// Returns its index in an array of partitions.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({})", self.node.0, self.incarnation)
    }
}

/// Returns the member that a session or a partition belongs to, by rendezvous hashing: each node
/// chooses the same one of the same members, and the loss of a member moves only what it had.
pub fn rendezvous(name: u64, members: impl IntoIterator<Item = Member>) -> Option<Member> {
    members.into_iter().max_by_key(|m| (mix(name ^ mix(u64::from(m.node.0) + 1)), *m))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_moves_only_what_the_lost_member_had() {
        let member = |node| Member { node: NodeId(node), incarnation: 1 };
        let all = || (0..8).map(member);
        let mut had = [0; 8];
        for name in 0..4000 {
            let before = rendezvous(name, all()).unwrap();
            had[usize::from(before.node.0)] += 1;
            let after = rendezvous(name, all().filter(|m| m.node != NodeId(3))).unwrap();
            assert!(before == after || before.node == NodeId(3));
        }
        assert!(had.iter().all(|&count| (350..650).contains(&count)), "{had:?}");
    }

    #[test]
    fn partitions_are_the_top_bits() {
        for count in [1, 2, 64, 256] {
            for partition in (0..count).map(Partition) {
                let SessionId(first) = partition.first(count);
                assert_eq!(Partition::of(first, count), partition);
                assert!(partition.0 == 0 || Partition::of(first - 1, count).0 + 1 == partition.0);
            }
        }
        assert_eq!(Partition::of(u64::MAX, 1), Partition(0));
        assert_eq!(Partition::of(u64::MAX, 64), Partition(63));
        assert_eq!(Partition::of(1 << 62, 4), Partition(1));
    }
}
