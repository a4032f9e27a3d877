//! What every service of Overbank needs, with packet ports or without.
//!
//! ```text
//!   counters   one line each: a plain struct, its words, metrics, status fields, reference
//!   reasons    one line each: an enum, its names, its reference
//!   settings   one line each: a struct, flags, TOML keys, checks, help, example, reference
//!   connections, endpoints   metrics and status over HTTP, the status socket, limits of both
//!   privileges, process      capabilities, signals, the service manager, logs
//!   document   parts of documents that come from the tables, compared in tests
//! ```
//!
//! Nothing here knows ports, packets or a protocol of the network but HTTP. Panics: none.

pub mod connections;
pub mod counters;
pub mod document;
pub mod endpoints;
pub mod options;
pub mod privileges;
pub mod process;
pub mod reasons;
pub mod settings;
pub mod sys;

#[doc(hidden)]
pub use serde;
