//! How many more sessions nodes have room for, as owners know it.
//!
//! A node says by its beats how many more sessions it has room for. Until its next beat, each owner
//! gives it its share of that at most, less what it has given since: several owners give at a time,
//! and none asks another.

use std::collections::BTreeMap;

use super::Node;
use crate::message::Refusal;
use crate::table::Gpt;
use crate::{Member, NodeId, Partition, Sequence, SessionId, rendezvous};

/// Sessions that batches of this node's partitions give to nodes that had not applied them by their
/// last beat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Given(BTreeMap<(NodeId, Partition, Sequence), u32>);

impl Given {
    fn to(&self, node: NodeId) -> u32 {
        let of = |partition, sequence| (node, Partition(partition), sequence);
        self.0.range(of(0, 0)..=of(u16::MAX, Sequence::MAX)).map(|given| given.1).sum()
    }

    /// Notes what the next batch of a partition gives.
    pub(super) fn note(&mut self, rooms: &mut Rooms, own: Partition, next: Sequence) {
        let taken = rooms.0.iter_mut().map(|(&node, room)| (node, std::mem::take(&mut room.taken)));
        self.0.extend(taken.filter(|of| of.1 > 0).map(|(node, taken)| ((node, own, next), taken)));
    }
}

/// What this node may give while it forms batches. Nodes without a limit are not in it.
#[derive(Debug, Default)]
pub(super) struct Rooms(BTreeMap<NodeId, Room>);

#[derive(Debug)]
struct Room {
    /// Whether it had room by its last beat.
    has: bool,
    /// What this node may still give.
    left: u32,
    /// What the batch at hand gives.
    taken: u32,
}

/// Where a session goes.
pub(super) enum Placed {
    At(Member),
    /// A node has room; the next beats say whether it is another owner's.
    Later,
    Refused(Refusal),
}

impl Rooms {
    /// Returns the one of these members that a session goes to, by rendezvous hashing over those
    /// with room.
    pub(super) fn choose(
        &mut self,
        session: SessionId,
        members: impl Iterator<Item = Member> + Clone,
    ) -> Placed {
        let of = |to: &Member| self.0.get(&to.node);
        let open = members.clone().filter(|to| of(to).is_none_or(|room| room.left > 0));
        if let Some(to) = rendezvous(session.0, open) {
            if let Some(room) = self.0.get_mut(&to.node) {
                (room.left, room.taken) = (room.left - 1, room.taken + 1);
            }
            return Placed::At(to);
        }
        let none = members.clone().next().map_or(Refusal::NoMember, |_| Refusal::NoRoom);
        let later = { members }.any(|to| of(&to).is_some_and(|room| room.has));
        if later { Placed::Later } else { Placed::Refused(none) }
    }
}

impl<T: Gpt> Node<T> {
    /// Returns for how many more sessions this node has room.
    pub(super) fn room_here(&self) -> u32 {
        match self.settings.sessions_max {
            u32::MAX => u32::MAX,
            max => max.saturating_sub(self.sessions.len() as u32),
        }
    }

    /// Whether a member had room by its last beat; one that has said nothing yet is taken to.
    pub(super) fn has_room(&self, member: Member) -> bool {
        self.beat_of(member).is_none_or(|beat| beat.room > 0)
    }

    /// Returns what this node may give.
    pub(super) fn rooms(&self) -> Rooms {
        let owners = self.view.members.len().max(1) as u32;
        let limited = self.heard.values().filter(|heard| heard.beat.room != u32::MAX);
        let room = limited.map(|heard| {
            let (node, room) = (heard.member.node, heard.beat.room);
            let left = room.div_ceil(owners).saturating_sub(self.given.to(node));
            (node, Room { has: room > 0, left, taken: 0 })
        });
        Rooms(room.collect())
    }

    /// A node has applied these batches, by partition: what they give is in its beat.
    pub(super) fn took(&mut self, node: NodeId, applied: &[Sequence]) {
        self.given.0.retain(|&(to, partition, sequence), _| {
            to != node || applied.get(partition.index()).is_some_and(|last| *last < sequence)
        });
    }

    /// Returns how many sessions of its partitions are nowhere: their node is gone, and no other
    /// has room.
    pub fn homeless(&self) -> usize {
        self.owners.values().map(|owner| owner.homeless()).sum()
    }
}
