//! Caches and forwarding tables against their twins, on every instruction set.

mod cache;
mod fib;
#[cfg(feature = "snapshot")]
mod fib_image;
mod fib_readers;
mod twin;
