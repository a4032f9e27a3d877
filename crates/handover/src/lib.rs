//! Hands data between threads without locks.
//!
//! - [`grace`]: when no worker can still use what was withdrawn.
//! - [`mailbox`]: a snapshot from the control side to one worker, and the old one back.
//! - [`publication`]: numbers that one thread counts and any thread reads, all of one instant.
//! - [`rest`]: whether a worker sleeps, and reads its mailbox when it wakes.
//!
//! This crate has no other code, so that all of it compiles with loom's atomics: `cargo xtask test
//! models` runs every order of the steps of all of them (`--cfg loom`).

pub mod grace;
pub mod mailbox;
pub mod publication;
pub mod rest;
mod sync;
