//! What the device does to a packet of the protocol (algorithm 1), within a switch's rules.
//!
//! ```text
//!   key ─▶ lookup ─┬─ cached ─▶ status ─▶ length ─▶ value        ─▶ reply, mark or forward
//!                  │                 └ not valid ─┐
//!                  └─ not cached ─────────────────┴─▶ sketch      ─▶ forward; report if hot
//! ```
//!
//! - A program passes the stages in their order and has each array once ([`stages`](self)): a
//!   second access does not compile. So what is written here could be a switch's.
//! - [`Pipeline`] is a worker's: its counters are its own. [`Table`] is the controller's, which
//!   alone writes the lookup table. They share [`Arrays`].
//!
//! # What differs from the paper
//! - An update counts only with the stamp of the last write: with the paper's, one that was under
//!   way when another write passed brings an old value back.
//! - Values have lengths, and a key may be known to have no value.
//! - A reply goes out by the port that the request came in by.

mod arrays;
mod counts;
#[cfg(all(test, feature = "loom"))]
mod model;
mod program;
mod stages;
mod table;
#[cfg(all(test, not(feature = "loom")))]
mod tests;

pub use arrays::{Arrays, Length, Status, WRITES_MAX};
pub use counts::{Counts, Tally};
pub use program::{BURST_MAX, Packet, Pipeline, Unread, Verdict};
pub use stages::{AtLength, AtStatus, AtUpdate, AtValue};
pub use table::{Config, Installed, Table, TableError};
