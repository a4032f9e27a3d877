//! Bursts of lookups: the lines of a burst are on their way before the first one is read.

use super::super::plain::Plain;
use super::table::{Place, Table};

/// Keys whose lines are prefetched together.
pub const BURST: usize = 32;

impl<K: Plain, V: Plain> Table<K, V> {
    /// Calls `look` with the place of each key, whose lines are on their way.
    #[inline(always)]
    pub(super) fn places(&self, keys: &[K], mut look: impl FnMut(usize, K, Place)) {
        let Some(&first) = keys.first() else { return };
        // Each key is read once: a caller's array may change meanwhile, by another thread.
        let mut burst = [(first, Place::default()); BURST];
        for (nth, keys) in keys.chunks(BURST).enumerate() {
            if !self.gate.is_open() {
                // All but the sampled buckets are left alone.
                self.begin::<false, false>(keys, &mut burst);
            } else if self.prefetches_far() {
                self.begin::<true, true>(keys, &mut burst);
            } else {
                self.begin::<true, false>(keys, &mut burst);
            }
            for (at, &(key, place)) in burst[..keys.len()].iter().enumerate() {
                look(nth * BURST + at, key, place);
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
