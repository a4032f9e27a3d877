//! What a key's replies are, for the core to add one to them.

use super::core::{Core, SlotId};
use super::filled::Variant;

impl Core {
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
