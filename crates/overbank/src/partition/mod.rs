//! Partition tables: which of up to 256 parts a key belongs to, in little more than the bits of the
//! answer. The keys themselves are not kept.
//!
//! **A key that was never inserted gets an arbitrary value**, not "absent". A caller that must know
//! whether a key exists asks another table, usually the one that the value leads to.
//!
//! | you need | take |
//! |---|---|
//! | the exact value of a key, or that it is absent | [`fib`](crate::fib): some ten bytes an entry |
//! | which of a few parts a known key is in, and keys come, go and move | this: 1.2 to 4.4 bits a key |
//! | the same, and nothing ever changes | a static filter such as binary fuse: faster, rebuilt as a whole |
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
//! A group of some 120 keys (R = 128) is a system of linear equations over GF(2), solved by its owner:
//! a row of pseudo-random bits for each key, a word of unknowns for each value bit. What it takes
//! beyond the value's bits: an eighth of a bit a key for the choice, and the 5 % by which a group
//! must have more unknowns than keys.
//!
//! - A lookup reads two lines, the second of which depends on the first. With 4-bit values and
//!   R = 128 a group is one line.
//! - A key with another value changes no other key: [`Delta`] has one word of R bits, whatever the
//!   value. A new key has its group solved anew. A key that goes changes nothing.
//! - Keys come as 64-bit hashes under a seed that strangers do not know. Two keys of one hash are one
//!   key: with different values a build refuses them by name.
//! - Readers never lock and never write; `table` says why each value was current at some instant.
//!
//! After ScaleBricks' set separation (`001`, sections 4.3 and 4.4): the two-level assignment to
//! groups is theirs, with larger buckets, fewer choices and larger blocks; the linear systems are ours.
//!
//! Panics: bursts of the wrong length; none otherwise.

/// Hashes a key of any length under a seed, as `overbank partition` does: 64-bit XXH3.
#[cfg(feature = "std")]
pub fn hash_key(key: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(key, seed)
}

mod balance;
#[cfg(feature = "std")]
mod batch;
mod block;
mod build;
mod delta;
#[cfg(feature = "std")]
mod image;
mod keys;
#[cfg(all(test, feature = "loom"))]
mod model;
mod owner;
mod row;
pub mod setsep;
mod shape;
mod solve;
mod table;
#[cfg(all(test, not(feature = "loom")))]
mod tests;
mod writer;

#[cfg(feature = "std")]
pub use batch::BatchError;
pub use build::{
    BuildError, BuildStats, BuiltPiece, Config, GROWTH_MAX, KEYS_MAX, PARTITIONS_MAX, Piece, Plan,
};
pub use delta::Delta;
#[cfg(feature = "std")]
pub use image::ImageError;
pub use shape::RowBits;
pub use table::{BURST_MAX, FallbackFull, TableError};
pub use writer::{DeltaError, InsertError, Reader, Replica, Writer};
