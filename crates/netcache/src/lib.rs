//! A key-value cache on the path, as pure machines: no I/O, no threads, no clock.
//!
//! Source: Jin et al., *NetCache*, SOSP 2017.
//!
//! - [`slots`]: which units of the value memory belong to which cached key (algorithm 2).
//! - [`pipeline`]: what a packet does to the device, and the device to a packet (algorithm 1).
//! - [`controller`]: which keys the device caches.
//! - [`agent`]: a server's side of the protocol that keeps the device right.
//! - [`paper`]: the same as the paper has it, to be compared and caught; [`Protocol`] says which.
//! - [`client`]: a client's side: requests that are repeated, and for how long.

pub mod agent;
pub mod client;
pub mod controller;
pub mod entry;
#[cfg(all(test, not(feature = "loom")))]
mod model;
pub mod paper;
pub mod pipeline;
mod protocol;
pub mod slots;
mod sync;

pub use protocol::{Protocol, Server};

/// Time in microseconds, on a clock that never goes back.
pub type Micros = u64;
