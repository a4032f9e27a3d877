//! The Ethernet switch: forwarding by address and VLAN, learning, ageing.
//!
//! CuckooSwitch (paper *Data Structure Engineering*, section 3) as a switch: one table of all
//! stations, [`overbank::fib`], read by every worker and written by one thread.
//!
//! - [`Station`]: what the table holds for an address.
//! - [`Forwarder`]: bursts of frames through the table.
//! - [`Learner`]: what a worker reports of the stations that it sees.
//! - [`Stations`]: the writer's side; learns, moves, ages, flushes, makes room.
//!
//! NORMAL in OpenFlow rules ([`crate::worker`]) goes by the same table.

mod forward;
mod learn;
mod station;
mod stations;

pub use forward::{DropReason, Forwarder, Role, Sink};
pub use learn::{Learner, QUIET_MS, Reports};
pub use station::{Address, Epoch, Heard, News, STATION_PORTS_MAX, Sighting, Station, mac_of};
pub use stations::{AGE_EPOCHS, Counters, Entry, IDLE_EPOCHS, Limits, StaticError, Stations};

#[cfg(test)]
mod tests;
