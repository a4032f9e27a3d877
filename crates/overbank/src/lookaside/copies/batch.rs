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
        let mut places = [Place::default(); BURST];
        for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
            if self.prefetches_far() {
                self.begin::<true>(keys, &mut places);
            } else {
                self.begin::<false>(keys, &mut places);
            }
            for ((found, &key), &place) in found.iter_mut().zip(keys).zip(&places) {
                *found = look(key, place);
            }
        }
    }

    #[inline(always)]
    fn begin<const FAR: bool>(&self, keys: &[K], places: &mut [Place; BURST]) {
        for (place, &key) in places.iter_mut().zip(keys) {
            *place = self.place(self.hash(key));
            self.prefetch::<FAR>(place.bucket);
        }
    }
}
