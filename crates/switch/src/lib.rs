//! The three-tier virtual switch.
//!
//! Tier 1 is a signature cache of the crate `overbank`, tier 2 the megaflow cache, tier 3 the
//! classifier over the OpenFlow tables. Source: Fast Software Cache Design for Network Appliances,
//! section 2.

pub mod classifier;
mod cow;
pub mod datapath;
pub mod drop;
pub mod exec;
pub mod megaflow;
pub mod oracle;
pub mod parse;
pub mod ports;
mod print;
pub mod program;
pub mod rule;
pub mod sink;
pub mod stats;
pub mod tables;
pub mod translate;
pub mod verdict;
pub mod view;

pub use datapath::Datapath;
pub use ports::SwitchPort;
pub use rule::{Action, Match, Rule};
