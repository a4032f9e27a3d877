//! The proxy before a real Redis: what is cached is what the server has.
#![cfg(feature = "proxy")]

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod features;
mod history;
mod hits;
mod lanes;
mod moves;
mod same;
mod servers;
mod settings;
mod soak;
mod tls;
