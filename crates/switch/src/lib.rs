//! The three-tier virtual switch.
//!
//! Tier 1 is a signature cache of the crate `overbank`, tier 2 the megaflow cache, tier 3 the
//! classifier over the OpenFlow tables (paper: Fast Software Cache Design for Network Appliances,
//! section 2).

pub mod rule;

pub use rule::{Action, Match, Rule};
