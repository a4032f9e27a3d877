//! What every service of Overbank needs, with packet ports or without.
//!
//! ```text
//!   counters   one line each: a plain struct, its words, metrics, status fields, reference
//!   reasons    one line each: an enum, its names, its reference
//!   settings   one line each: a struct, flags, TOML keys, checks, help, example, reference
//!   document   parts of documents that come from the tables, compared in tests
//! ```
//!
//! Nothing here knows ports, packets or a protocol of the network but HTTP. Panics: none.

pub mod counters;
pub mod document;
pub mod reasons;
pub mod settings;

#[doc(hidden)]
pub use serde;
