//! The code that the machine watches: indexes, look-aside tables in front of them, and the loop
//! that serves requests.
//!
//! ```text
//!  client ─ request ─▶ serve ─▶ front: regular, SDC, SLB, copies ── hit ──▶ item: key, value
//!    ▲                            └─ miss ─▶ index: LMDB, hash, … ──────▶ item; fills the front
//!    └────── sum of the value's words ◀───────────────────────────────────────┘
//! ```
//!
//! Every load and store of this crate calls a hook (`workloads/rustc.sh`). It knows neither the
//! hooks nor whether they are on. What it calls by [`outside`] is not watched: the client, and the
//! SDC instructions, which are operations of the machine.
//!
//! An index maps a key to an item: the key, and a value of 8 to 65,536 bytes, from the program's
//! allocator. The paper: Ni, Jiang, Jiang, Huang, Wu: *SDC: A Software Defined Cache for Efficient
//! Data Indexing* (ICS 2019), § 3.1.

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod front;
pub mod index;
pub mod item;
pub mod outside;
pub mod serve;
pub mod slb;
pub mod store;
pub mod walk;

/// Why a store cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Failed {
    what: &'static str,
    why: String,
}

impl Failed {
    /// Returns the error of an index or a table.
    pub fn new(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self { what, why: why.to_string() }
    }
}
