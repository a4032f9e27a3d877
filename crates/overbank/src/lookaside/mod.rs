//! Look-aside tables: the answer of a search is kept, not the path to it.
//!
//! A table in front of an index: a B-tree, a skip list, a database. It keeps copies of keys and
//! values, one bucket a cache line, and answers most lookups with one line instead of a walk. After
//! SDC (Ni, Jiang, Jiang, Huang, Wu, *SDC: A Software Defined Cache for Efficient Data Indexing*,
//! ICS 2019), whose idea needs a processor that does not exist; this is its effect in software.
//!
//! ```text
//!             ┌──────── Hit(value), Absent ───────▶
//!   get(key) ─┤                                       write(key): entry out ─ index ─ keep(value)
//!             └─ Miss(ticket) ─▶ index ─▶ fill(ticket, answer)
//! ```
//!
//! | | |
//! |---|---|
//! | [`Copies`] | in front of an index that is read in its newest state |
//! | [`Versioned`] | in front of a database with snapshots and numbered commits |
//! | [`Hints`] | in front of an index whose positions can be asked whether a key lies there |
//! | [`Tree`] | an ordered map of bounded size whose positions can, with hints inside |
//! | keys, values | plain words, 1 to 4 and 1 to 8 ([`Plain`]) |
//! | bytes an entry, `u64` to `u64` | 21.3 |
//! | lines a lookup touches, `u64` to `u64` | 1 |
//!
//! # Consistency
//!
//! *An entry is proved at the moment of its use, by ticket or by version*, and a hint by the key
//! that lies there. Whether an answer is cached never changes what it is: reads through a
//! [`Copies`] are linearizable if the index is, reads through a view of [`Versioned`] see their
//! snapshot. Dropping every entry at any moment changes no answer. The rules are in
//! `copies/live.rs` and `copies/versioned.rs`.
//!
//! *Readers never wait*, for writers as little as for each other, and take no lock. A reader that
//! meets a writer in its bucket misses. A hit writes one word at most, and only if its bit is not
//! set; in one bucket of 32 it is also counted. Fills that meet another thread are dropped. Only
//! writers wait, for a handful of stores, for a clear, which visits one bucket in 32,768, or for
//! the publication of a commit, which puts in up to [`KEPT_MAX`] values.
//!
//! The index must change through the table's guards alone. What changes it otherwise needs a clear.
//!
//! # Limits and panics
//!
//! Nothing allocates after construction but [`Commit`], up to [`KEPT_MAX`] values. The bucket of a
//! guard that is leaked, not dropped, takes no more fills; after a leaked [`Clearing`] none does.
//! No method panics, unless a caller's [`Plain`] does.

mod config;
mod copies;
mod gate;
mod hints;
mod plain;
pub mod tree;

pub use config::{BUCKETS_MAX, Config, Counters, Error, VersionError};
#[cfg(feature = "internals")]
pub use copies::twin;
pub use copies::{
    At, BURST, Clearing, Commit, Copies, Found, KEPT_MAX, SAMPLE, Ticket, VERSION_MAX, Versioned,
    Writing,
};
pub use gate::{Costs, Gate, Meter, Report, Way};
pub use hints::{Hints, Positions};
pub use plain::{KEY_WORDS_MAX, Plain, WORDS_MAX};
pub use tree::Tree;
