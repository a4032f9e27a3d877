//! What every service of Overbank needs, with packet ports or without.
//!
//! ```text
//!   counters   one line each: a plain struct, its words, metrics, status fields, reference
//!   reasons    one line each: an enum, its names, its reference
//! ```
//!
//! Nothing here knows ports, packets or a protocol of the network but HTTP. Panics: none.

pub mod counters;
pub mod reasons;

#[doc(hidden)]
pub use serde;
