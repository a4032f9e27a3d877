//! What every service of Overbank needs, with packet ports or without.
//!
//! ```text
//!   options                  the settings of every service
//!   connections, endpoints   metrics and status over HTTP, the status socket, limits of both
//!   privileges, process      capabilities, signals, the service manager, logs
//! ```
//!
//! Counters and settings are declared with `overbank-declare`. Nothing here knows ports, packets or
//! a network protocol but HTTP. Panics: none.

pub mod connections;
pub mod endpoints;
pub mod options;
pub mod privileges;
pub mod process;
pub mod sys;
