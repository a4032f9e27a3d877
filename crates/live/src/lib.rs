//! The live switch: real ports, workers that share a rule set, OpenFlow control.

#![cfg_attr(loom, allow(dead_code))]

pub mod mac;
pub mod mailbox;
pub(crate) mod sync;
