//! Caches and forwarding tables against their twins, on every instruction set.

mod cache;
mod fib;
mod fib_readers;
#[cfg(feature = "std")]
mod fib_snapshot;
mod twin;
