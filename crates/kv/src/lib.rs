//! The key-value protocol with a cache on the path, for real: a server's agent over a store, and
//! the client library. Both speak it over UDP.
//!
//! ```text
//!   client ── GET, PUT, DELETE ──▶ device ── what it does not answer ──▶ agent ──▶ store
//!      ◀──────── answers ────────────┴──────────── answers ───────────────┘ memory, Redis,
//!                                    ◀── UPDATE, FENCE, HELLO ────────────┘ memcached
//!   key     what a key of any length is on the wire and in stores
//!   client  requests of one process to several servers, with several in flight
//!   agent   `netcache::agent` with a socket, a clock and a store
//!   store   what the agent asks
//!   load    requests of many connections to Redis or a proxy, for measurements
//! ```
//!
//! Neither knows the device: a client talks to servers whether or not a device is between.
//! Source: Jin et al., *NetCache*, SOSP 2017; `overbank-netcache` has what the protocol rests on.

pub mod agent;
pub mod client;
pub mod key;
pub mod load;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod store;
mod udp;

pub use overbank_wire::netcache::PORT;
