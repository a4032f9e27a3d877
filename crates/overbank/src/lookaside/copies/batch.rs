//! Bursts of lookups: the lines of a burst are on their way before the first one is read.

use super::super::plain::Plain;
use super::table::{Place, Table};
use super::ticket::Found;

/// Keys whose lines are prefetched together.
pub const BURST: usize = 32;

impl<K: Plain, V: Plain> Table<K, V> {
    /// Looks up as many keys as `found` has places.
    #[inline(always)]
    pub(super) fn look_batch(
        &self,
        keys: &[K],
        found: &mut [Found<K, V>],
        look: impl Fn(K, Place) -> Found<K, V>,
    ) {
        let Some(&first) = keys.first() else { return };
        // Each key is read once: a caller's array may change meanwhile, by another thread.
        let mut burst = [(first, Place::default()); BURST];
        for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
            if !self.gate.is_open() {
                // All but the sampled buckets are left alone.
                self.begin::<false, false>(keys, &mut burst);
            } else if self.prefetches_far() {
                self.begin::<true, true>(keys, &mut burst);
            } else {
                self.begin::<true, false>(keys, &mut burst);
            }
            for (found, &(key, place)) in found.iter_mut().zip(&burst[..keys.len()]) {
                *found = look(key, place);
            }
        }
    }

    #[inline(always)]
    fn begin<const PREFETCH: bool, const FAR: bool>(
        &self,
        keys: &[K],
        burst: &mut [(K, Place); BURST],
    ) {
        for (of, &key) in burst.iter_mut().zip(keys) {
            let place = self.place(self.hash(key));
            *of = (key, place);
            if PREFETCH {
                self.prefetch::<FAR>(place.bucket);
            }
        }
    }
}
