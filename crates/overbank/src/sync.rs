//! The atomics of a table: the language's, or those of the model checker.

#![cfg_attr(feature = "loom", allow(unsafe_code))] // `own`, under the model checker only.

#[cfg(not(feature = "loom"))]
pub(crate) use alloc::sync::Arc;
#[cfg(not(feature = "loom"))]
pub(crate) use core::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::Arc;
#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Returns the last value of the one writer. For the model checker this is no access that others
/// see, which leaves far fewer orders to run.
#[inline(always)]
pub(crate) fn own(word: &AtomicU64) -> u64 {
    #[cfg(not(feature = "loom"))]
    return word.load(Ordering::Relaxed);
    #[cfg(feature = "loom")]
    // SAFETY: only the writer stores into a table, and only the writer calls this.
    return unsafe { word.unsync_load() };
}

/// Lets the awaited thread continue.
#[inline(always)]
pub(crate) fn pause() {
    #[cfg(not(feature = "loom"))]
    core::hint::spin_loop();
    #[cfg(feature = "loom")]
    loom::thread::yield_now();
}
