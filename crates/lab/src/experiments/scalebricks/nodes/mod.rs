//! Nodes of a cluster in each architecture: the frames between them, their tables, their work.

mod cluster;
mod frame;
mod node;
mod tables;
#[cfg(test)]
mod tests;

pub(super) use cluster::{Cluster, Pass, draw};
pub(super) use frame::{END, FlowKey, Frame, LABELLED, LEN, ROLES, Role};
#[cfg(test)]
pub(super) use node::LINE;
pub(super) use node::{ARCHITECTURES, Architecture, BURST, Drops, Node, Outbox};
pub(super) use tables::Tables;
