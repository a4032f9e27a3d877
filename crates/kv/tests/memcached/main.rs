//! The proxy before a real memcached: what is cached is what the server has.
#![cfg(feature = "proxy")]

mod faults;
mod history;
mod hits;
mod same;
mod servers;
