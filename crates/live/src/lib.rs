//! The live switch: real ports, workers that share a rule set, OpenFlow control.

#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
pub mod config;
#[cfg(not(loom))]
pub mod control;
#[cfg(not(loom))]
pub mod core;
#[cfg(not(loom))]
pub mod fdb;
#[cfg(not(loom))]
mod guests;
#[cfg(not(loom))]
pub mod l2;
pub mod mailbox;
#[cfg(not(loom))]
pub mod metrics;
#[cfg(not(loom))]
pub mod ports;
#[cfg(not(loom))]
pub mod privileges;
#[cfg(not(loom))]
pub mod rates;
#[cfg(not(loom))]
pub mod run;
#[cfg(not(loom))]
pub mod snapshot;
#[cfg(not(loom))]
pub mod status;
#[cfg(not(loom))]
pub mod switch;
pub(crate) mod sync;
#[cfg(not(loom))]
pub mod sys;
#[cfg(not(loom))]
pub mod target;
#[cfg(not(loom))]
pub mod totals;
#[cfg(not(loom))]
pub mod worker;
