//! The key-value cache on the path as an engine: an Ethernet switch that answers reads of hot keys.
//!
//! ```text
//!   frames ─ Forwarder: sources ─┬─ messages ─ Pipeline ─┬─▶ answered by the port of ingress
//!                                │                       ├─▶ marked ─┐
//!                                │                       └─▶ to the controller
//!                                └─ all others ──────────────────────┴─▶ out, as in a switch
//! ```
//!
//! - [`Device`]: a worker's engine.
//! - [`DeviceControl`]: the controller and the table of stations, behind the runtime's lock;
//!   [`start`] puts both to work.
//! - [`hot::Hot`]: the hottest cached keys, for people and scripts.
//!
//! Source: Jin et al., *NetCache*, SOSP 2017; the machines are those of `overbank-netcache`.

pub mod address;
pub mod boot;
mod control;
mod engine;
pub mod hot;
pub mod loaded;
mod reason;
pub mod settings;
#[cfg(test)]
mod tests;

pub use address::{DeviceAddress, Server};
pub use control::{DeviceControl, DeviceStatus, KvTotals, Setup, StartError, listing, start};
pub use engine::{Device, DeviceTotals, News, Order, Parts, Sink};
pub use overbank_netcache::{controller, pipeline};
pub use reason::{Denied, DropReason};
