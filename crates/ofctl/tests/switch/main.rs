//! The rule switch over ports in memory.

#[path = "../../../bridge/tests/switch/common.rs"]
mod common;
mod rules;
