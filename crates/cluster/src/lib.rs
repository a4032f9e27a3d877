//! The cluster engine of the gateway: which node handles which session, as a pure state machine.

pub mod etcd;
mod id;
pub mod log;
pub mod message;
pub mod node;
pub mod rib;
mod settings;
pub mod sim;
pub mod table;

pub use id::{
    Epoch, Key, Member, Micros, NodeId, Partition, Revision, Sequence, SessionId, Version,
    rendezvous,
};
pub use node::{Action, Decision, DropReason, Event, Node, Tag};
pub use settings::{Mechanisms, Settings};
