//! What core and workers share.

use super::filled::Entry;
use super::state::Word;
use super::sync::{AtomicU32, AtomicU64, Pointer};

/// Buckets of a worker's writes in flight: two under the model checker.
const BUCKETS: usize = if cfg!(feature = "loom") { 2 } else { 4096 };

/// The state of all keys, in one line (two: they are prefetched in pairs).
#[repr(align(128))]
pub(super) struct Global {
    /// Its epoch is that of the last `push_all`; its count is of the closings.
    pub(super) gate: Word,
    /// Hits are allowed before this, in monotonic nanoseconds.
    pub(super) lease: AtomicU64,
}

/// A place for a key.
pub(super) struct Slot {
    pub(super) word: Word,
    pub(super) entry: Pointer<Entry>,
}

/// Counts of one worker. It alone writes them.
pub(super) struct Counts {
    /// Writes in flight by key hash. The core's polls are changes by 0.
    buckets: Box<[AtomicU32]>,
    /// Hits by slot.
    pub(super) hits: Box<[AtomicU32]>,
}

impl Counts {
    /// Returns the number of a hash's bucket.
    pub(super) const fn bucket_of(hash: u128) -> u16 {
        (hash as usize % BUCKETS) as u16
    }

    /// Returns a bucket. The index is always in range; `None` never happens.
    pub(super) fn bucket(&self, number: u16) -> Option<&AtomicU32> {
        self.buckets.get(usize::from(number))
    }
}

pub(super) struct Shared {
    pub(super) global: Global,
    pub(super) slots: Box<[Slot]>,
    /// By worker.
    pub(super) counts: Box<[Counts]>,
}

impl Shared {
    pub(super) fn new(workers: usize, entries: usize) -> Shared {
        let zeros = |len| (0..len).map(|_| AtomicU32::new(0)).collect();
        let slot = |_| Slot { word: Word::new(), entry: Pointer::new() };
        let counts = |_| Counts { buckets: zeros(BUCKETS), hits: zeros(entries) };
        Shared {
            global: Global { gate: Word::new(), lease: AtomicU64::new(0) },
            slots: (0..entries).map(slot).collect(),
            counts: (0..workers).map(counts).collect(),
        }
    }

    /// Closes the gate.
    pub(super) fn close(&self) -> Closing {
        self.global.gate.close();
        Closing(())
    }
}

/// A reason why no hit is served. Ends with [`Core::reopen`](super::Core::reopen); one that is lost
/// closes for good.
#[must_use = "no hit is served until it is given to `Core::reopen`"]
#[derive(Debug)]
pub struct Closing(pub(super) ());
