//! The forwarding table of CuckooSwitch measured: figures 5, 6 and 7 of the dissertation, and a
//! writer at work beside the readers.
//!
//! | experiment | file | what |
//! |---|---|---|
//! | `fib5` | `optimizations.rs` | optimisations in turn, from cuckoo to `overbank::fib` |
//! | `fib6` | `burst_size.rs` | lookups in bursts of 1 to 64, as multiples of the gather floor |
//! | `fib7` | `forward.rs`, `insertion.rs` | frames forwarded; building the table, insertions |
//! | `fibwriter` | `with_writer.rs` | lookups beside an idle and a busy writer |
//!
//! Entries are Ethernet addresses with a port, 8 bytes each, in tables that are 95 % full.
//! Addresses are made of numbers by a bijection (`address.rs`), so that a billion of them need no
//! memory but the table. Sizes go up to a billion entries; a size whose tables do not fit into the
//! memory that is free is left out, and the record says so (`sizes.rs`).

mod address;
mod burst_size;
mod forward;
mod insertion;
mod measure;
mod optimistic;
mod optimizations;
mod sizes;
mod with_writer;

pub(super) use burst_size::FIB6;
pub(super) use forward::FIB7;
pub(super) use optimizations::FIB5;
pub use sizes::ENTRIES;
pub(super) use with_writer::FIBWRITER;

use address::absent;
pub(super) use address::address;
