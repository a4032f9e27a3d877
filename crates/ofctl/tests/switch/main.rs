//! The switch over ports in memory, steered by rules and as an Ethernet switch.

mod common;
mod l2;
mod rules;
