//! What threads hand to each other without locks.
//!
//! - [`mailbox`]: a snapshot from the control side to one worker, and the old one back.
//! - [`publication`]: numbers that one thread counts and any thread reads, all of one instant.
//! - [`rest`]: whether a worker sleeps, and takes its mail when it wakes.
//!
//! Nothing else is here, so that all of it compiles under loom's atomics: `cargo xtask test models`
//! takes every order of the steps of all three (`--cfg loom`).

pub mod mailbox;
pub mod publication;
pub mod rest;
mod sync;
