//! `liboverbank`: the tables of the crate `overbank` for C and C++.
//!
//! ```text
//!   overbank.h ── overbank_cache_*      cache.rs       ─▶ overbank::cache
//!                 overbank_burst_*      burst.rs       ─▶ the same, without copies
//!                 overbank_fib_*        fib.rs         ─▶ overbank::fib
//!                 overbank_partition_*  partition.rs   ─▶ overbank::partition
//!                 overbank_sketch_*     sketch.rs      ─▶ overbank::sketch
//!                 overbank_copies_*     copies.rs      ─▶ overbank::lookaside::Copies
//!                 overbank_versioned_*  versioned.rs   ─▶ overbank::lookaside::Versioned
//!                                       view.rs, commit.rs
//!                 overbank_aside_*      aside.rs       what both share
//!                                       answers.rs     lookups and fills of both
//!                                       meter.rs       what they cost
//!                 overbank_tree_*       tree.rs        ─▶ overbank::lookaside::Tree
//!                 status, messages      border.rs
//! ```
//!
//! The header is generated from these files (`OVERBANK_UPDATE=1 cargo test -p overbank-capi`
//! writes it), so their comments speak to programmers in C.
//!
//! # The border
//!
//! - No panic crosses it: one becomes `OVERBANK_PANIC`, and the handle that it met is poisoned.
//! - A pointer that is `NULL` or not aligned is refused. One that leads to freed or foreign memory
//!   cannot be seen.
//! - A function that fails changes nothing that its comment does not name; what it would have
//!   written stays as it was.

#![allow(unsafe_code)] // Pointers of C, each with what the caller promises.
#![allow(non_camel_case_types)] // The names that C sees.
#![warn(missing_docs)]

mod answers;
mod aside;
mod border;
mod burst;
mod cache;
mod commit;
mod copies;
mod fib;
mod hash;
mod meter;
mod partition;
mod sketch;
mod tree;
mod versioned;
mod view;

pub use aside::*;
pub use border::*;
pub use burst::*;
pub use cache::*;
pub use commit::*;
pub use copies::*;
pub use fib::*;
pub use hash::*;
pub use meter::*;
pub use partition::*;
pub use sketch::*;
pub use tree::*;
pub use versioned::*;
pub use view::*;
