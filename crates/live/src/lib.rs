//! The live switch: real ports, workers that share a rule set, OpenFlow control.

pub mod config;
pub mod control;
pub mod core;
pub mod fdb;
mod guests;
pub mod l2;
pub mod metrics;
pub mod ports;
pub mod privileges;
pub mod rates;
pub mod run;
pub mod snapshot;
pub mod status;
pub mod switch;
pub mod sys;
pub mod target;
pub mod totals;
pub mod worker;
