//! Runs any engine in workers over ports, and its control side.
//!
//! ```text
//!   C: Control  (one mutex, a thread that ticks)          E: Engine
//!      │ changes, publishes ── Snapshot ─▶ mailbox ─▶ worker 0 ─┬─ queue 0 of each port
//!      │                                              worker 1 ─┴─ queue 1 of each port
//!      ◀── Totals, port totals: published numbers ─────────┘
//! ```
//!
//! - [`Engine`] decides what happens to the frames of a burst; each worker has its own.
//! - [`Control`] decides what the engines run on; [`Handle`] is the way to it.
//! - [`start`] opens threads over [`ConfiguredPort`]s; [`Running`] reports and stops them.
//!
//! *Invariant:* nothing here knows a protocol, a rule or an address. `examples/wire.rs` is another
//! engine.

pub mod control;
pub mod engine;
pub mod link;
pub mod ports;
pub mod running;
pub mod settings;
pub mod status;
pub mod sys;
pub mod totals;
pub mod worker;

pub use control::{Control, Handle, Publisher};
pub use engine::{Engine, Ingress};
pub use ports::{ConfiguredPort, PortDesc};
pub use running::{Options, Parts, Running, start};
pub use status::{ControlStatus, PortStatus, Status, WorkerStatus};
pub use totals::{DropCounts, NotSent, PortTotals, WorkerTotals};
pub use worker::Out;
