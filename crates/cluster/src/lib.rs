//! The cluster engine of the gateway: which node handles which session, as a pure state machine.
//!
//! [`Node::step`] takes an event and the node's clock, and appends actions; [`Node::steps`] takes
//! all that has come in, and so forms large batches under load. A node does no I/O, has no thread
//! and no clock, and nothing is random: the same steps give the same state.
//! The same code runs in the product, in the simulator ([`sim`]) and under a model checker.
//!
//! ```text
//!   etcd: members, owners, coordinator, signs of life        log: a subject for each partition
//!      │ watch, leases        ▲ transactions                   │ batches, images   ▲ append if the
//!      ▼                      │                                ▼                   │ end is as due
//!   ┌──────────────────────────────── Node ─────────────────────────────────────────────────────┐
//!   │ member, coordinator │ replica of each partition: GPT │ owner of some: RIB │ sessions here │
//!   └───────────────────────────────────────────────────────────────────────────────────────────┘
//!      ▲ beats, handovers, directions of keys: may be lost        packet ─▶ decide ─▶ handle,
//!      ▼ other nodes                                                        forward or drop
//! ```
//!
//! # What is where
//! - **etcd** ([`etcd`]): the membership, the owner and the epoch of each partition, the
//!   coordinator, and a sign of life of each node under its lease. Each change compares the
//!   revisions that it was decided on.
//! - **The log** ([`log`]): the changes of each partition's sessions and keys with the deltas of
//!   its table, in batches. The log alone says where a session is. What a node has installed
//!   follows from the batches that it has applied, and from the moves that it has turned.
//! - **A session** has keys in several partitions. Its *home* is that of its first key, whose owner
//!   places, moves and removes it. The owners of the other keys reserve them before, and direct
//!   them after it.
//! - **Messages** ([`message::Message`]) may be lost, late or repeated. Beats repeat them until
//!   their purpose shows.
//!
//! # A move from A to B
//! 1. The owner logs `Move`. Only a settled session moves: all members have applied its last
//!    deltas.
//! 2. B applies it and stands by: it handles only what A's stub forwards, by the frame's [`Tag`].
//! 3. A learns from B's beat that B has applied it, and turns its entry: from now on it forwards.
//!    This cannot be undone under that version. A tells B, which serves and tells the owner.
//! 4. The owner logs `Place` with the deltas, and the owners of the other keys follow. When all
//!    members have applied them, the owner tells A to forget.
//!
//! # Guarantees, and what gives them
//! 1. *A packet of a session at rest takes at most one hop.* Replicas apply batch `n + 1` after
//!    batch `n` only; a gap is seen, at the end of the log too, by the owners' beats. It is mended
//!    by fetching, or by the snapshot (`gaps`).
//! 2. *During a move, at most two hops, and one node handles it.* A stale ingress leads to the
//!    stub, the stub to the target (`stubs`). The target is not moved on before all ingress nodes
//!    have the delta. The FIB decides: a node without the session drops the packet.
//! 3. *A packet of no session is dropped within one hop.* The FIB compares whole keys. The bound on
//!    the fabric's share is the gateway's.
//! 4. *What was answered is not lost.* An answer follows the log's, and the deltas' application by
//!    all nodes that take packets. Batches are fenced by the expected end of the log, and by epochs
//!    (`epochs`): a deposed owner appends nothing.
//! 5. *Two nodes never handle a session at the same time.* By the log's order one member has it. In
//!    a move the source stops before the target starts (above). A member that is gone has stopped
//!    by its own clock before it is removed (`fencing`), and its next run has another incarnation.
//! 6. *Accounts close*: [`Node::decide`] has one outcome for each packet.
//!
//! The words in brackets are the [`Mechanisms`]; the tests switch each one off and see a guarantee
//! fail.
//!
//! # Assumptions
//! - Two clocks differ by less than [`Settings::margin_us`] over a lease. Times are otherwise
//!   local.
//! - etcd's transactions and the log's appends are linearizable and durable; fetches are exact.
//! - A watch shows all changes in their order. A node number is one process at a time.
//! - No frame stays on the fabric for 255 moves of its session.
//! - A driver performs actions in their order, before the next step.
//! - A request that comes again does so within the time for which it waits.
//!
//! # Membership
//! A membership is only ever changed by a member of it: the coordinator. It removes a member whose
//! sign of life is gone, a lease time after it has last confirmed the membership to that member,
//! and after it has become a member itself. So a node may also go on without etcd, as long as
//! *every* other member confirms; what one has confirmed holds under later memberships with both.
//! A coordinator that has asked for a membership with new members confirms nothing until it knows
//! what came of it. A new member is *catching* until it has applied what each owner had when that
//! owner knew it; so owners keep the stubs that it may need, and answers wait for it. A member that
//! lags for [`Settings::suspend_us`] is suspended: it takes no packets from outside once it knows,
//! and answers do not wait for it, but stubs do.

pub mod etcd;
mod id;
mod index;
pub mod log;
mod memory;
pub mod message;
#[cfg(test)]
mod model;
pub mod node;
pub mod rib;
mod settings;
pub mod sim;
pub mod table;

pub use id::{
    Epoch, Key, Member, Micros, NodeId, Partition, Revision, Sequence, SessionId, Version,
    rendezvous,
};
pub use index::Index;
pub use memory::{Heard, Hears, Links, Memory};
pub use node::{Action, Decision, DropReason, Event, Node, Tag};
pub use settings::{Mechanisms, Settings};
