//! DC-Bubble: bubble LRU with one bit per bucket that separates hits from misses.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Policy, hits, promote, sealed};
use crate::cache::config::Config;
use crate::cache::design::PolicyKind;
use crate::cache::error::CacheError;
use crate::cache::geometry::{Geometry, SetAssoc};
use crate::cache::layout::Layout;
use crate::cache::table::{Entry, Place, Table};
use crate::hash::Hash64;
use crate::memory::MemoryError;

/// DC-Bubble (section 5.3, after Zhang and Xue 2009), on set-associative caches only.
///
/// Bubbles on every hit. One bit per bucket, in a separate bitmap, records whether the bucket's
/// last access was a hit. An insertion into a full bucket reads it. After a hit, the new entry
/// replaces the last one. After a miss, the first entry is evicted, the others move up by one, and
/// the new one takes the last slot.
///
/// A reported hit is an access and sets the bit. An insertion is the miss that caused it: it reads
/// the bit as the previous access left it, and then clears it. A reported miss alone changes
/// nothing. A new bucket's last access counts as a miss.
#[derive(Clone, Debug)]
pub struct DcBubble {
    hit: Box<[u64]>,
}

impl DcBubble {
    #[inline(always)]
    fn was_hit(&self, bucket: usize) -> bool {
        self.hit[bucket / 64] >> (bucket % 64) & 1 == 1
    }

    #[inline(always)]
    fn record(&mut self, bucket: usize, hit: bool) {
        let word = &mut self.hit[bucket / 64];
        *word = *word & !(1 << (bucket % 64)) | u64::from(hit) << (bucket % 64);
    }
}

impl sealed::Sealed for DcBubble {}

impl<const M: usize> Policy<SetAssoc<M>> for DcBubble
where
    SetAssoc<M>: Geometry,
{
    fn new(buckets: usize, _config: &Config) -> Result<Self, CacheError> {
        let words = buckets.div_ceil(64);
        let mut hit = Vec::new();
        hit.try_reserve_exact(words).map_err(|_| MemoryError::OutOfMemory { bytes: words * 8 })?;
        hit.resize(words, 0);
        Ok(Self { hit: hit.into_boxed_slice() })
    }

    fn kind(&self) -> PolicyKind {
        PolicyKind::DcBubble
    }

    #[inline(always)]
    fn report<L: Layout>(
        &mut self,
        table: &mut Table<SetAssoc<M>, L>,
        hashes: &[Hash64],
        masks: &[u32],
        hit: u32,
    ) {
        for (hash, slot) in hits(hashes, masks, hit) {
            self.record(table.candidate(hash, slot).bucket, true);
            promote(table, hash, slot);
        }
    }

    #[inline(always)]
    fn evict<L: Layout>(
        &mut self,
        table: &mut Table<SetAssoc<M>, L>,
        hash: Hash64,
    ) -> (Place, Entry<L::Value>) {
        let last = table.candidate(hash, M - 1);
        if self.was_hit(last.bucket) {
            return (last, table.entry(last));
        }
        let victim = table.entry(Place { index: 0, ..last });
        for index in 1..M {
            let moved = table.entry(Place { index, ..last });
            table.set(Place { index: index - 1, ..last }, moved);
        }
        (last, victim)
    }

    #[inline(always)]
    fn inserted<L: Layout>(&mut self, table: &Table<SetAssoc<M>, L>, hash: Hash64) {
        self.record(table.candidate(hash, 0).bucket, false);
    }

    fn cleared(&mut self) {
        self.hit.fill(0);
    }

    fn state_bytes(&self) -> usize {
        size_of_val(&*self.hit)
    }
}
