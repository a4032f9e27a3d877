//! The Ethernet switch over ports in memory.

mod common;
mod l2;
