//! The atomics: the language's, or those of the model checker; and the mutants of the model.

#[cfg(feature = "loom")]
pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a slot points to. The core alone replaces it.
#[cfg(not(feature = "loom"))]
pub(super) struct Pointer<T>(arc_swap::ArcSwapOption<T>);

#[cfg(not(feature = "loom"))]
impl<T> Pointer<T> {
    pub(super) fn new() -> Pointer<T> {
        Pointer(arc_swap::ArcSwapOption::empty())
    }

    pub(super) fn store(&self, value: Option<Arc<T>>) {
        self.0.store(value);
    }

    /// Calls `then` with what it points to. What is loaded afterwards is at least as new.
    #[inline(always)]
    pub(super) fn with<R>(&self, then: impl FnOnce(Option<&T>) -> R) -> R {
        then(self.0.load().as_deref())
    }
}

/// As weak as `arc_swap` promises to be: a release store, an acquire load, of an index here.
#[cfg(feature = "loom")]
pub(super) struct Pointer<T> {
    last: AtomicU64,
    /// All that it ever pointed to. The threads of a model run on one thread: no one waits.
    values: std::sync::Mutex<Vec<Option<Arc<T>>>>,
}

#[cfg(feature = "loom")]
impl<T> Pointer<T> {
    pub(super) fn new() -> Pointer<T> {
        Pointer { last: AtomicU64::new(0), values: std::sync::Mutex::new(vec![None]) }
    }

    fn values(&self) -> std::sync::MutexGuard<'_, Vec<Option<Arc<T>>>> {
        self.values.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn store(&self, value: Option<Arc<T>>) {
        let mut values = self.values();
        let last = values.len() as u64;
        values.push(value);
        drop(values);
        self.last.store(last, Ordering::Release);
    }

    pub(super) fn with<R>(&self, then: impl FnOnce(Option<&T>) -> R) -> R {
        let last = self.last.load(Ordering::Acquire) as usize;
        let value = self.values().get(last).cloned().flatten();
        then(value.as_deref())
    }
}

/// A mistake that the model is to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Fills and hits do not look at the writes in flight.
    CountIgnored,
    /// A slot is filled without waiting for the buckets.
    BucketIgnored,
    /// A poll of a bucket is a load.
    PollLoads,
    /// A fill is accepted whatever has passed since, as of now.
    LateFill,
    /// An entry is served whatever its epoch.
    EpochIgnored,
    /// A hit does not look at the gate.
    GateIgnored,
    /// A hit looks at the gate last.
    GateLast,
    /// An eviction does not advance the epoch.
    SilentEviction,
}

#[cfg(feature = "loom")]
std::thread_local! {
    /// The flaw of the model that this thread runs.
    pub(super) static FLAW: std::cell::Cell<Option<Flaw>> = const { std::cell::Cell::new(None) };
}

/// Returns whether the code has this flaw: never, outside the model.
#[inline(always)]
pub(super) fn has(flaw: Flaw) -> bool {
    #[cfg(feature = "loom")]
    return FLAW.get() == Some(flaw);
    #[cfg(not(feature = "loom"))]
    {
        let _ = flaw;
        false
    }
}
