//! The atomics that the checked modules use: those of std, or those of the model checker under
//! `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Tells the other thread that this one waits for it.
#[cfg(not(loom))]
#[inline]
pub(crate) fn pause() {
    std::hint::spin_loop();
}
