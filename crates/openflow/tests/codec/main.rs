//! The codec: samples of every message, forged and broken ones, and what Open vSwitch prints.

mod allocations;
mod common;
mod golden;
mod hostile;
mod ovs;
mod refusals;
mod roundtrip;
