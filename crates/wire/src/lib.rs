//! Reads frames into flow keys, and edits frames.
//!
//! The bottom of the packet path: no I/O, no panic on any input, and no allocation except the one
//! buffer of a [`FrameBuf`], and those of the scanners of streams. [`extract()`] reads a frame into
//! a [`FlowKey`]; [`FlowKey::microflow_hash`] hashes it, once. [`edit`] rewrites a copy of the
//! frame and keeps its checksums right; [`edit_key`] does the same to the key alone. [`bridge`]
//! reads only what an Ethernet switch needs; [`field`] is the table of fields. [`udp`] finds
//! datagrams, [`gtpu`] reads and writes tunnels, [`ip`] the packets inside ([`ip4`]: nearly all of
//! them), [`icmp_error`] the answers to packets that cannot be forwarded. [`netcache`] is the
//! protocol of a key-value cache, [`neighbour`] asks for MAC addresses and answers. [`resp`] and
//! [`memcached`] find the requests and replies of Redis and memcached in a stream.

#[cfg(test)]
extern crate self as overbank_wire; // Twins in `testing` serve the fuzz targets as well.

pub mod bridge;
mod checksum;
pub mod edit;
pub mod edit_key;
pub mod extract;
pub mod field;
pub mod gtpu;
pub mod hash;
pub mod icmp_error;
pub mod ip;
pub mod ip4;
pub mod key;
mod line;
pub mod memcached;
pub mod neighbour;
pub mod netcache;
mod proto;
pub mod reason;
pub mod resp;
pub mod scan;
#[cfg(test)]
mod testing;
pub mod udp;

pub use edit::FrameBuf;
pub use extract::{Offsets, extract};
pub use field::Field;
pub use key::FlowKey;
pub use reason::{Congested, DropReason, TtlExpired};
