//! Parts that every service of Overbank shares, with packet ports or without.
//!
//! ```text
//!   options                  the settings of every service
//!   connections, endpoints   metrics and status over HTTP, the status socket, limits of both
//!   sockets                  local sockets by path, HTTP over one
//!   privileges, process      capabilities, signals, the service manager, logs
//! ```
//!
//! `overbank-declare` declares the counters and settings. Nothing here knows ports, packets or a
//! network protocol but HTTP. Panics: none.

pub mod connections;
pub mod endpoints;
pub mod options;
pub mod privileges;
pub mod process;
pub mod sockets;
pub mod sys;
