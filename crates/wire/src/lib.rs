//! Bytes to flow keys, and edits of frames.
//!
//! The bottom of the packet path: no I/O, no allocation, and no panic on any input.
//! [`extract()`] reads a frame into a [`FlowKey`]; [`edit`] rewrites headers in place and keeps
//! their checksums right; [`field`] is the one table of what the fields are called.

pub mod field;
pub mod key;

pub use field::Field;
pub use key::FlowKey;
