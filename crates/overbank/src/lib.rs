//! Overbank: lookup and cache tables for software data planes.
//!
//! - [`cache`]: flow caches, tables of fingerprints that answer most packets in one or two cache
//!   lines and forget what they cannot hold.
//! - [`fib`]: forwarding tables, exact maps of up to billions of entries, read by many threads while
//!   one writes.
//!
//! The tables know nothing of each other. What they share has rooms beside them: [`isa`] (the choice
//! of vectors), [`memory`] (huge pages), [`hash`], [`prefetch`], [`random`].
//!
//! The crate has no threads and no clock, and allocates nothing after a table's construction. It is
//! `no_std` with `alloc`; the default feature `std` adds the detection of the CPU's instruction
//! sets, the variable `OVERBANK_SIMD`, tables on huge pages, and the snapshots of `fib`, its only
//! input and output.

#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod cache;
pub mod fib;
pub mod hash;
pub mod isa;
pub mod memory;
pub mod prefetch;
pub mod random;

/// The example of the README, under test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
