//! The proxy before a real Redis: what is cached is what the server has.
#![cfg(feature = "proxy")]

mod faults;
mod features;
mod history;
mod hits;
mod lanes;
mod same;
mod servers;
mod tls;
