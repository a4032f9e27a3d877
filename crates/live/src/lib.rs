//! The live switch: real ports, workers that share a rule set, OpenFlow control.

pub mod mailbox;
pub(crate) mod sync;
