//! The Ethernet switch: forwarding by address and VLAN.
//!
//! - [`Forwarder`]: bursts of frames through the table of stations
//!   ([`overbank_stations::forward`]).
//! - [`Bridge`]: a worker's engine: a forwarder that learns.
//! - [`BridgeControl`]: the table's writer, behind the runtime's lock; [`start`] puts both to work.

mod control;
mod engine;
pub mod settings;
#[cfg(test)]
mod tests;

pub use control::{BridgeControl, BridgeStatus, Setup, StartError, listing, start};
pub use engine::{Bridge, BridgeTotals};
pub use overbank_stations::forward::{DropReason, Forwarder, Role, Sink};
