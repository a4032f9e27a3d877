//! Partition tables: which of up to 256 parts a key belongs to, in little more than the bits of the
//! answer. The keys themselves are not kept.
//!
//! **A key that was never inserted gets an arbitrary value**, not "absent". A caller that must know
//! whether a key exists asks another table, usually the one that the value leads to.
//!
//! # Which table
//!
//! | you need | take |
//! |---|---|
//! | the exact value of a key, or that it is absent | [`fib`](crate::fib): ten bytes an entry |
//! | the part of a known key, while keys change | this: 1.2 to 4.5 bits for 1 to 4 bits of value |
//! | the same, nothing changes between builds | this, [packed](Config::packed): 2 to 4 % smaller |
//! | the same, lookups as fast as possible | a static filter such as binary fuse |
//! | values of more than 8 bits | [`fib`](crate::fib) |
//!
//! - *Against `fib`*: this table is 20 to 60 times smaller, and does not answer "absent". Let it
//!   choose the machine, and let the `fib` of that machine refuse unknown keys.
//! - *Against a static filter* (binary fuse: 1.125 bits a key for each bit of value): that one is
//!   solved as a whole and cannot change; a lookup reads three lines near each other instead of two
//!   that depend on each other. This table is as small or smaller from 2 bits on, and a change is
//!   local.
//! - *Against [`setsep`]*, the table of the paper: that one takes 0.5 + 1.5 bits a key for each bit
//!   of value, and its construction searches. It is here to compare with.
//!
//! # In use
//!
//! ```
//! use overbank::hash::mix;
//! use overbank::partition::{Config, Writer};
//!
//! let flows = (0..1000).map(|flow| (mix(flow), (flow % 4) as u8)); // flow → node, 2 bits
//! let (mut writer, _) = Writer::build(&Config::new(2000, 2), flows)?;
//! let (reader, mut replica) = (writer.reader(), writer.replica()?);
//! assert_eq!(reader.lookup(mix(7)), 3);
//! if let Some(delta) = writer.insert(mix(7), 1)? {
//!     replica.apply(&delta)?; // on another machine
//! }
//! assert_eq!((reader.lookup(mix(7)), replica.reader().lookup(mix(7))), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!   hash ─▶ block (16 Ki keys), bucket (8 keys) ─▶ choice bit ─▶ one of two groups of the block
//!
//!   group   plane 0 │ seed │ R − s bits          value bit j = parity(row(hash, seed) AND plane j)
//!           plane 1 │ seed │ R − s bits
//! ```
//!
//! A group of some 120 keys (R = 128) is a system of linear equations over GF(2), solved by its
//! owner: a row of pseudo-random bits for each key, a word of unknowns for each value bit. What it
//! takes beyond the value's bits: an eighth of a bit a key for the choice, and the 5 % by which a
//! group must have more unknowns than keys.
//!
//! - A lookup reads two lines, the second of which depends on the first. With 4-bit values and
//!   R = 128 a group is one line.
//! - A key with another value changes no other key: [`Delta`] has one word of R bits, whatever the
//!   value. A new key has its group solved anew. A key that goes changes nothing.
//! - Keys come as 64-bit hashes under a seed that strangers do not know. Two keys of one hash are
//!   one key: with different values a build refuses them by name.
//! - Readers never lock and never write; `table::lookup` says why each value was current at some
//!   instant.
//! - A table that is planned to [grow](Config::growing) grows by partition, under its readers.
//! - [`Plan`] divides a build into pieces for the threads of the caller. [`Replica::build`] keeps
//!   no keys.
//! - [`Writer::save`] and [`Replica::load`] keep a table in a file; [`Delta::encode`] and
//!   [`Delta::decode`] turn changes into bytes. Both have checksums, and refuse damage by name.
//!
//! After ScaleBricks' set separation (`001`, sections 4.3 and 4.4): the two-level assignment to
//! groups is theirs, with larger buckets, fewer choices and larger blocks; the linear systems are
//! ours.
//!
//! Panics: bursts of the wrong length; none otherwise.

/// Hashes a key of any length under a seed, as `overbank partition` does: 64-bit XXH3.
pub fn hash_key(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

mod balance;
#[cfg(feature = "snapshot")]
mod batch;
mod block;
mod build;
mod delta;
mod fallback;
#[cfg(feature = "snapshot")]
mod image;
mod keys;
#[cfg(all(test, feature = "loom"))]
mod model;
mod owner;
mod row;
pub mod setsep;
mod shape;
mod solve;
mod sorted;
mod table;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod writer;

#[cfg(feature = "snapshot")]
pub use batch::BatchError;
pub use build::{
    BuildError, BuildStats, BuiltPiece, Config, GROWTH_MAX, KEYS_MAX, PARTITIONS_MAX, Piece, Plan,
};
pub use delta::Delta;
pub use fallback::FallbackFull;
#[cfg(feature = "snapshot")]
pub use image::PartitionImageError;
pub use shape::RowBits;
pub use table::{BURST_MAX, TableError};
pub use writer::{DeltaError, InsertError, Reader, Replica, Writer};
