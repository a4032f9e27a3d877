//! Overbank: lookup and cache tables for software data planes.
//!
//! - [`cache`]: flow caches, tables of fingerprints that answer most packets in one or two cache
//!   lines and forget what they cannot hold.
//!
//! The crate has no I/O, no threads and no clock, and allocates nothing after a table's
//! construction. It is `no_std` with `alloc`; the default feature `std` adds the detection of the
//! CPU's instruction sets, the variable `OVERBANK_SIMD`, and tables on 2 MiB pages.

#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod cache;
mod prefetch;

pub use prefetch::prefetch;

/// The example of the README, under test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
