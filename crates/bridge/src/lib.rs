//! The Ethernet switch: forwarding by address and VLAN.
//!
//! - [`Forwarder`]: bursts of frames through the table of stations ([`overbank_stations`]).
//! - [`Bridge`]: a worker's engine: a forwarder that learns.
//! - [`BridgeControl`]: the table's writer, behind the runtime's lock; [`start`] puts both to work.

mod control;
mod engine;
mod forward;
pub mod settings;
#[cfg(test)]
mod tests;

pub use control::{BridgeControl, BridgeStatus, Setup, StartError, listing, start};
pub use engine::{Bridge, BridgeTotals};
pub use forward::{DropReason, Forwarder, Role, Sink};
