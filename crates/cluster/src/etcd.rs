//! etcd as the machine sees it: leases, transactions on a few keys, and a watch over all of them.
//!
//! Results of transactions are not used: a node acts on what its watch shows, and asks again at the
//! next beat. Each transaction compares the revisions that its decision was based on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Epoch, Member, Micros, NodeId, Partition, Revision};

/// A lease: chosen by the node that asks for it, as etcd permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lease {
    /// Whose.
    pub member: Member,
    /// Counts the leases of that run.
    pub nth: u32,
}

/// What a node publishes of itself; the engine does not read it. The gateway puts its address on
/// the fabric there.
pub type Info = Arc<[u8]>;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// The membership: changed only by a member of the one before.
    Members,
    /// A sign of life, under the node's lease.
    Alive(NodeId),
    /// The coordinator, under its lease.
    Coordinator,
    /// The speaker: the member that requests of a control plane go to.
    Speaker,
    /// What speakers leave to those after them.
    Shared,
    /// The owner of a partition.
    Owner(Partition),
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Value {
    /// Of [`Key::Members`], by node.
    Members(Vec<(Member, State)>),
    /// Of [`Key::Alive`], with its lease.
    Alive(Lease, Info),
    /// Of [`Key::Coordinator`].
    Coordinator(Member),
    /// Of [`Key::Speaker`].
    Speaker(Member),
    /// Of [`Key::Shared`]; the engine does not read it.
    Shared(Info),
    /// Of [`Key::Owner`].
    Owner(Epoch, Member),
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Lags too long: no ingress, and answers do not wait for it.
    Suspended,
    /// Applies what it lacks: a new member, or one that was suspended. No ingress yet, but all wait
    /// for it, so that it lacks nothing when it becomes live.
    Catching,
    /// Takes packets from outside, sessions and partitions.
    Live,
    /// Takes packets from outside, gives its sessions and partitions away.
    Draining,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Request {
    /// Creates a lease.
    Grant {
        lease: Lease,
        /// The node's clock, for the reply.
        sent: Micros,
    },
    /// Renews a lease.
    KeepAlive {
        lease: Lease,
        /// The node's clock, for the reply.
        sent: Micros,
    },
    /// Ends a lease, and removes its keys.
    Revoke { lease: Lease },
    /// Writes a key if all compared keys have the revisions given; 0: if the key is absent.
    Txn { compare: Vec<(Key, Revision)>, key: Key, value: Value, lease: Option<Lease> },
}

/// A reply, or a change that the watch shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reply {
    /// The lease lives for its time from a moment after `sent`.
    Alive { lease: Lease, sent: Micros },
    /// There is no such lease any more.
    Expired { lease: Lease },
    /// A key was written or removed. In order of revisions, none left out.
    Watch { revision: Revision, key: Key, value: Option<Value> },
}

/// What a node has seen of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct View {
    /// Members by node, and the revision of the key.
    pub members: BTreeMap<NodeId, (Member, State)>,
    /// Revision of [`Key::Members`].
    pub membership: Revision,
    /// Signs of life.
    pub alive: BTreeMap<NodeId, (Lease, Revision)>,
    /// What nodes have published; kept while their sign of life is gone.
    pub info: BTreeMap<NodeId, (Member, Info)>,
    /// The coordinator.
    pub coordinator: Option<Member>,
    /// The speaker, and the revision of the key.
    pub speaker: Option<(Member, Revision)>,
    /// What speakers have left, and the revision of the key.
    pub shared: Option<(Info, Revision)>,
    /// Owners with their epochs.
    pub owners: BTreeMap<Partition, (Epoch, Member, Revision)>,
}

impl View {
    /// Notes a change.
    pub fn watch(&mut self, revision: Revision, key: Key, value: Option<Value>) {
        match (key, value) {
            (Key::Members, Some(Value::Members(members))) => {
                self.members = members.into_iter().map(|m| (m.0.node, m)).collect();
                self.membership = revision;
            }
            (Key::Alive(node), Some(Value::Alive(lease, info))) => {
                self.alive.insert(node, (lease, revision));
                self.info.insert(node, (lease.member, info));
            }
            (Key::Alive(node), _) => drop(self.alive.remove(&node)),
            (Key::Coordinator, Some(Value::Coordinator(member))) => {
                self.coordinator = Some(member);
            }
            (Key::Coordinator, _) => self.coordinator = None,
            (Key::Speaker, Some(Value::Speaker(member))) => {
                self.speaker = Some((member, revision));
            }
            (Key::Shared, Some(Value::Shared(shared))) => self.shared = Some((shared, revision)),
            (Key::Owner(partition), Some(Value::Owner(epoch, member))) => {
                self.owners.insert(partition, (epoch, member, revision));
            }
            _ => {}
        }
    }

    /// Returns the state of a member; `None`: it is none.
    pub fn state(&self, member: Member) -> Option<State> {
        self.members.get(&member.node).filter(|m| m.0 == member).map(|m| m.1)
    }

    /// Returns what a member has published.
    pub fn info(&self, member: Member) -> Option<&Info> {
        self.info.get(&member.node).filter(|known| known.0 == member).map(|known| &known.1)
    }

    /// Returns the member of a node number.
    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.members.get(&node).map(|m| m.0)
    }

    /// Returns the members in a state.
    pub fn in_state(&self, state: State) -> impl Iterator<Item = Member> + Clone {
        self.members.values().filter(move |m| m.1 == state).map(|m| m.0)
    }

    /// Returns whether the sign of life of a member is there.
    pub fn is_alive(&self, member: Member) -> bool {
        self.alive.get(&member.node).is_some_and(|(lease, _)| lease.member == member)
    }

    /// Returns the owner of a partition, if it is a member.
    pub fn owner(&self, partition: Partition) -> Option<Member> {
        let owner = self.owners.get(&partition).map(|owner| owner.1);
        owner.filter(|&owner| self.state(owner).is_some())
    }
}
