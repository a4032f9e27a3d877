//! etcd and NATS JetStream under the gateway's cluster engine.
//!
//! ```text
//!   etcd: settings, incarnations, members, owners, leases     NATS: log, images, messages
//!        ▲ requests      │ watch, in order                        ▲           │
//!        │               ▼                                        │           ▼
//!   ┌──────────────────────── Driver: one thread with a Node<Dense> ──────────────────────┐
//!   └──────────────────────────────────────┬──────────────────────────────────────────────┘
//!                                          ▼
//!                        Host: the gateway's sessions, view and answers
//! ```
//!
//! - [`mod@bytes`]: batches, snapshots and messages as bytes.
//! - `join`: what all nodes agree on before they start, and the number of a run.
//! - `etcd`, `log`, `bus`: the requests of the engine, and what comes back as events.
//! - `driver`: steps and actions.
//!
//! Nothing here decides anything: what is lost, late or repeated is the engine's to mend
//! ([`overbank_cluster`]). Both clients need the feature `services`, and etcd's needs protoc to be
//! built.

pub mod bytes;

#[cfg(feature = "services")]
mod bus;
#[cfg(feature = "services")]
mod driver;
#[cfg(feature = "services")]
mod etcd;
#[cfg(feature = "services")]
mod join;
#[cfg(feature = "services")]
mod log;

#[cfg(feature = "services")]
pub use driver::{Driver, Handle, Host};
#[cfg(feature = "services")]
pub use join::{Joined, Options, StoresError, join};
