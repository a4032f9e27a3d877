//! What people run on their own traffic.
//!
//! - [`replay`]: the same traffic through the switch, once for each design.
//! - [`advise`]: which flow cache for this traffic?
//! - [`model`]: hit rates of any geometry, calculated and simulated.

pub mod advise;
pub mod model;
pub mod replay;
mod traffic;

pub use traffic::TrafficSource;
