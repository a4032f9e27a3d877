//! Which address is behind which port: one table, read by every worker and written by one thread.
//!
//! CuckooSwitch (paper *Data Structure Engineering*, section 3) as a switch's memory: stations in
//! [`overbank::fib`].
//!
//! - [`Station`]: what the table holds for an address.
//! - [`Watch`], [`Learner`]: what a worker knows of stations, and what it reports.
//! - [`Stations`]: the writer's side; learns, moves, ages, flushes, makes room.
//! - [`forward`]: a burst of frames to the ports of their destinations.
//! - [`Listing`](listing::Listing): the table for people and scripts (`overbank fdb`).
//!
//! The Ethernet switch and NORMAL in OpenFlow rules both use it; it knows neither.

pub mod forward;
mod learn;
pub mod listing;
pub mod settings;
mod setup;
mod station;
mod stations;
mod status;
mod watch;

#[doc(hidden)]
pub use overbank_declare;

pub use learn::{Learner, QUIET_MS, Reports};
pub use setup::{StationsError, set_up};
pub use station::{Address, Epoch, Heard, News, STATION_PORTS_MAX, Sighting, Station, mac_of};
pub use stations::{AGE_EPOCHS, Entry, IDLE_EPOCHS, Limits, StaticError, Stations};
pub use status::{MacTotals, StationTotals, StationsStatus};
pub use watch::Watch;
