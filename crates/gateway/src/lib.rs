//! The mobile gateway: tunnels of GTP-U on one side (N3), the packets inside them on the other
//! (N6).
//!
//! - [`Session`](session::Session): one tunnel of one terminal, and its addresses.
//! - [`Sessions`](sessions::Sessions): all of them; written by one thread, read by every worker
//!   without locks.
//! - [`mod@file`]: sessions as CSV.
//! - [`teid`]: TEIDs with a keyed check.
//! - [`Gateway`]: a worker's engine: bursts from N3 to N6 and back.
//! - [`GatewayControl`]: the control side: the writer of sessions and next hops; [`start`] puts
//!   both to work.
//! - [`cluster`], [`fabric`]: the gateway as a node of a cluster.
//! - [`peers`]: whether the peers of sessions answer.
//! - [`share`]: how much of the fabric packets of no session may take.
//! - [`local`]: a cluster in one process.
//! - [`http`]: the control socket: sessions by request.
//! - [`journal`]: those sessions on disk.
//! - [`NextHops`](next_hops::NextHops): which MAC address leads to a destination.

pub mod cluster;
mod control;
pub mod engine;
pub mod fabric;
pub mod file;
pub mod http;
pub mod journal;
pub mod limits;
pub mod local;
pub mod next_hops;
mod note;
pub mod peers;
pub mod prefix;
pub mod reason;
mod requests;
pub mod session;
pub mod sessions;
pub mod settings;
pub mod share;
pub mod slab;
pub mod teid;

pub use control::{
    GAUGES, GatewayControl, GatewayStatus, Routes, Setup, StartError, Tunable, check, start,
};
pub use engine::{Gateway, GatewayTotals, Order};
pub use reason::DropReason;
