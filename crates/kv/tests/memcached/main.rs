//! The proxy before a real memcached: what is cached is what the server has.
#![cfg(feature = "proxy")]

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod history;
mod hits;
mod same;
mod servers;
