//! Hits by item, in an epoch.
//!
//! Each worker has its counters, so that a hot key's is in one core's cache; the controller
//! adds them up. A counter says which epoch it is of, so none is ever cleared.

use crate::slots::Item;
use crate::sync::{AtomicU32, Ordering};
use std::sync::Arc;

/// Counts. Belongs to a worker.
pub struct Counts(Arc<[AtomicU32]>);

/// Reads what a worker has counted. Belongs to the controller.
pub struct Tally(Arc<[AtomicU32]>);

impl Counts {
    /// Returns counters for this many items, and what reads them.
    pub fn new(items: usize) -> (Counts, Tally) {
        let words: Arc<[AtomicU32]> = (0..items).map(|_| AtomicU32::new(0)).collect();
        (Counts(words.clone()), Tally(words))
    }

    /// Counts a hit, up to [`u16::MAX`].
    #[inline(always)]
    pub fn add(&mut self, item: Item, epoch: u16) {
        let Some(word) = self.0.get(usize::from(item)) else { return };
        let before = unpack(word.load(Ordering::Relaxed), epoch);
        word.store(u32::from(epoch) << 16 | u32::from(before.saturating_add(1)), Ordering::Relaxed);
    }
}

impl Tally {
    /// Returns the hits of an item in an epoch.
    pub fn count(&self, item: Item, epoch: u16) -> u16 {
        let word = self.0.get(usize::from(item));
        word.map_or(0, |word| unpack(word.load(Ordering::Relaxed), epoch))
    }
}

/// Returns the count of a word that is of this epoch.
const fn unpack(word: u32, epoch: u16) -> u16 {
    if word >> 16 == epoch as u32 { word as u16 } else { 0 }
}
