//! Models of etcd and of the log, and the simulator that runs nodes on them under faults.
//!
//! The models are linearizable: a request takes effect at the moment at which it is delivered.

mod check;
mod data;
mod etcd;
mod log;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use etcd::Etcd;
pub use log::Log;
pub use plan::{Faults, Plan};
pub use run::{Outcome, Violation, run};
