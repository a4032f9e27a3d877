//! Declares counters and settings, one line each.
//!
//! ```text
//!   counters   a plain struct, its words, metrics, status fields, reference
//!   settings   a struct, flags, TOML keys, checks, help, example, reference
//!   reasons    (crate `overbank-reasons`) an enum, its names, its reference
//!   document   parts of documents that come from the tables, compared in tests
//! ```
//!
//! Panics: none.

pub mod counters;
pub mod document;
pub mod settings;

#[doc(hidden)]
pub use overbank_reasons::Reasons;
#[doc(hidden)]
pub use serde;
