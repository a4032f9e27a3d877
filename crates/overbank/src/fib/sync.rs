//! The atomics of a table: the language's, or those of the model checker.

#[cfg(not(loom))]
pub(super) use alloc::sync::Arc;
#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub(super) use loom::sync::Arc;
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
