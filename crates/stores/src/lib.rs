//! The services under the gateway's cluster engine: etcd and NATS JetStream, or one of the nodes.
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
//! - `driver`: steps and actions; `services`: what it needs of its services.
//! - `join`: what all nodes agree on before they start, and the number of a run; `etcd`, `log`,
//!   `bus`: the requests of the engine, and what comes back as events; `access`: passwords and
//!   certificates.
//! - [`peers`]: a cluster for labs, where the first node has the place of both services.
//!
//! Nothing here decides anything: what is lost, late or repeated is the engine's to mend
//! ([`overbank_cluster`]). The clients of etcd and NATS need the feature `services`, and etcd's
//! needs protoc to be built.

pub mod bytes;
mod driver;
pub mod peers;
mod services;

#[cfg(feature = "services")]
mod access;
#[cfg(feature = "services")]
mod bus;
#[cfg(feature = "services")]
mod etcd;
#[cfg(feature = "services")]
mod join;
#[cfg(feature = "services")]
mod log;

#[cfg(feature = "services")]
pub use access::{EtcdAccess, NatsAccess};
pub use driver::{Driver, End, Handle, Host};
#[cfg(feature = "services")]
pub use join::{Options, join};
pub use services::{Joined, StoresError};
