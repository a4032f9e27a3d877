//! What a key's replies are, for the core to add one to them.

use super::core::{Core, SlotId};
use super::filled::{Filled, Variant};

impl Core {
    /// Returns whether a slot has a reply to this request that is served at a time.
    pub fn has(&self, slot: SlotId, (db, request): (u32, &[u8]), now: u64) -> bool {
        let is_it = |variant: &Variant| variant.db == db && *variant.request == *request;
        let has =
            |filled: &Filled| now < filled.expires_at() && filled.variants().iter().any(is_it);
        self.is_fresh(slot) && self.with_filled(slot, |filled| filled.is_some_and(has))
    }

    /// Returns a copy of the replies of a slot, and when they expire, which may have been; none and
    /// [`u64::MAX`] if the key has changed since.
    pub fn replies(&self, slot: SlotId) -> (Vec<Variant>, u64) {
        let is_fresh = self.is_fresh(slot);
        self.with_filled(slot, |filled| match filled.filter(|_| is_fresh) {
            Some(filled) => (filled.variants().to_vec(), filled.expires_at()),
            None => (Vec::new(), u64::MAX),
        })
    }
}
