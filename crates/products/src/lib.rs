//! What people run on their own traffic.
//!
//! - [`replay`]: the same traffic through the switch, once for each design.
//! - [`advise`]: which flow cache for this traffic?
//! - `aside`: does a look-aside table pay in front of an index? (feature `aside`)
//! - `kv_advise`: is a cache of hot keys worth it in front of this Redis? (feature `kv`)
//! - [`sdc`]: a real index on the simulated machine of the SDC paper.
//! - [`model`]: hit rates of any geometry, calculated and simulated.

pub mod advise;
#[cfg(feature = "aside")]
pub mod aside;
#[cfg(feature = "kv")]
pub mod kv_advise;
pub mod model;
pub mod replay;
pub mod sdc;
mod traffic;

pub use traffic::TrafficSource;
