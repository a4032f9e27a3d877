//! Workloads, models, experiments and reports of Overbank.
//!
//! - [`workload`], [`zipf`]: which flow does the next packet belong to?
//! - [`traffic`]: the built-in flows, frames and rules.
//! - [`replay`]: the same traffic through the switch, once for each design.
//! - [`report`]: the page that shows it.
//! - [`models`]: hit rates by calculation, to compare measurements with.

pub mod experiment;
pub mod experiments;
pub mod models;
pub mod replay;
pub mod report;
pub mod traffic;
pub mod workload;
pub mod zipf;
