//! What threads hand to each other without locks.
//!
//! - [`mailbox`]: a snapshot from the control side to one worker, and the old one back.
//! - [`publication`]: numbers that one thread counts and any thread reads, all of one instant.
//!
//! Nothing else is here, so that all of it compiles under loom's atomics: `cargo xtask test models`
//! takes every order of the steps of both (`--cfg loom`).

pub mod mailbox;
pub mod publication;
mod sync;
