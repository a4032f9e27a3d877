//! Half-bubble: hit rates close to those of bubbling on every hit, with a fraction of the writes.
//! Not in the paper.
//!
//! Four facts determine it.
//!
//! *Which hits bubble* does not change where entries settle: neighbours swap in proportion to how
//! often each is hit, at any rate. But a new entry must leave the last slot before the next
//! eviction takes it. So entries in the lower half of a bucket bubble on every hit, those in the
//! upper half only in one burst of 16 on average. Under skew most hits are in the upper half, and
//! write nothing.
//!
//! *While the table has room* (more than one slot in 24 is empty), no choice is needed: nothing
//! bubbles, and the victim is any candidate slot, because an evicted entry that returns may find an
//! empty slot. In a crowded table the victim is the last slot of a random candidate bucket.
//!
//! *If all flows are equally popular*, order has no value, and half of the hits are in lower
//! halves, whatever bubbles. With skew it is far fewer: 0.35 at θ = 0.5, below 0.2 at θ ≥ 0.8, for
//! any α > 1. And *if nearly every packet hits*, order gains less than it costs. So hits are
//! counted by half, and judged once they are as many as the table has slots:
//!
//! ```text
//!              15/32 or more of the hits in lower halves, or 99 of 100 packets hit
//!   ordering ─────────────────────────────────────────────────────────────────────▶ resting
//!            ◀─────────────────────────────────────────────────────────────────────
//!              fewer than 27/64 and 99 of 100, or after 16 hits per slot
//! ```
//!
//! At rest all candidates are equal victims, as with random eviction, and hits bubble only in one
//! burst of 16, to see whether an order forms. An order too weak for that (θ = 0.5 at α = 3) is
//! found when ordering is tried again. Without skew, resting spares nearly all of the cost of
//! promotion.
//!
//! Cost: four counters; a burst is judged without a branch per key.

use super::{Policy, hits, last_of_random_bucket, promote, sealed};
use crate::cache::config::Config;
use crate::cache::design::PolicyKind;
use crate::cache::error::CacheError;
use crate::cache::geometry::Geometry;
use crate::cache::layout::Layout;
use crate::cache::policy::STREAM;
use crate::cache::probes::BURST;
use crate::cache::table::{Entry, Place, Table};
use crate::hash::Hash64;
use crate::random::Pcg32;

/// Bubbles from the lower half of a bucket while popularity differs. See the module.
#[derive(Clone, Debug)]
pub struct HalfBubble {
    pcg: Pcg32,
    /// Bursts until the next one in which every hit bubbles; never zero between calls.
    countdown: u32,
    /// Hits until ordering is tried again; 0 while ordering.
    rest: u64,
    seen: Seen,
}

/// Counts since the last verdict.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    lookups: u64,
    hits: u64,
    /// Hits in the lower half of a bucket.
    lower: u64,
}

impl HalfBubble {
    /// Mean number of bursts between those that also bubble in the upper halves.
    pub const BURSTS: u32 = 16;
    /// The table has room while more than one slot in this many is empty.
    pub const ROOM: usize = 24;
    /// Hits of a rest, per slot.
    pub const REST: u64 = 16;
    /// Nearly every packet hits while fewer than one in this many misses.
    pub const MISSES: u64 = 100;
    /// Most hits sampled at rest for a verdict; small tables take an eighth of their slots.
    pub const SAMPLE_MAX: u64 = 4096;

    #[inline(always)]
    fn crowded<G: Geometry, L: Layout>(table: &Table<G, L>) -> bool {
        table.len >= table.home_slots() - table.home_slots() / Self::ROOM
    }

    fn redraw(&mut self) {
        self.countdown = 1 + self.pcg.below(2 * Self::BURSTS - 1);
    }

    /// Judges the counts once there are enough, in a table of `slots` slots.
    #[inline(always)]
    fn judge(&mut self, slots: u64) {
        let enough = if self.rest == 0 { slots } else { (slots / 8).clamp(1, Self::SAMPLE_MAX) };
        if self.seen.hits >= enough {
            self.verdict(slots);
        }
    }

    #[cold]
    fn verdict(&mut self, slots: u64) {
        let Seen { lookups, hits, lower } = core::mem::take(&mut self.seen);
        let nearly_all_hit = (lookups - hits) * Self::MISSES < lookups;
        if self.rest > 0 {
            if lower * 64 < hits * 27 && !nearly_all_hit {
                self.rest = 0;
            }
        } else if lower * 32 >= hits * 15 || nearly_all_hit {
            self.rest = slots * Self::REST;
        }
    }
}

/// Returns which of up to 32 keys have their first match in the lower half of a bucket of `slots`,
/// a power of two from 2 to 32.
#[inline(always)]
fn in_lower_half(masks: &[u32], slots: usize) -> u32 {
    // Moves bit 0 of byte i to bit 56 + i.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    // Every other run of `slots / 2` bits: the halves of higher priority.
    let upper = u32::MAX / ((1 << (slots / 2)) + 1);
    let mut lower = [0; BURST];
    for (lower, &mask) in lower.iter_mut().zip(masks) {
        *lower = u8::from(mask & mask.wrapping_neg() & !upper != 0);
    }
    let (words, _) = lower.as_chunks::<8>();
    let bits = |word: &[u8; 8]| (u64::from_le_bytes(*word).wrapping_mul(GATHER) >> 56) as u32;
    words.iter().enumerate().fold(0, |all, (i, word)| all | bits(word) << (8 * i))
}

impl sealed::Sealed for HalfBubble {}

impl<G: Geometry> Policy<G> for HalfBubble {
    fn new(_buckets: usize, config: &Config) -> Result<Self, CacheError> {
        let pcg = Pcg32::new(config.seed, STREAM);
        let mut new = Self { pcg, countdown: 0, rest: 0, seen: Seen::default() };
        new.redraw();
        Ok(new)
    }

    fn kind(&self) -> PolicyKind {
        PolicyKind::HalfBubble
    }

    #[inline(always)]
    fn report<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hashes: &[Hash64],
        masks: &[u32],
        hit: u32,
    ) {
        if !Self::crowded(table) {
            return;
        }
        self.countdown -= 1;
        let all = self.countdown == 0;
        if all {
            self.redraw();
        }
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(hit.count_ones().into());
            if self.rest == 0 {
                self.seen = Seen::default();
            }
            if !all {
                return;
            }
        }
        let lower = hit & in_lower_half(masks, G::SLOTS);
        self.seen.lookups += masks.len() as u64;
        self.seen.hits += u64::from(hit.count_ones());
        self.seen.lower += u64::from(lower.count_ones());
        for (hash, slot) in hits(hashes, masks, if all { hit } else { lower }) {
            promote(table, hash, slot);
        }
        self.judge(table.home_slots() as u64);
    }

    #[inline(always)]
    fn evict<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hash: Hash64,
    ) -> (Place, Entry<L::Value>) {
        if self.rest == 0 && Self::crowded(table) {
            return last_of_random_bucket(&mut self.pcg, table, hash);
        }
        let slot = table.candidate(hash, self.pcg.below(G::CANDIDATES as u32) as usize);
        (slot, table.entry(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lower_halves_are_found_as_one_by_one(
            masks in proptest::collection::vec(any::<u32>().prop_map(|m| m & m << 7), 0..=32),
            slots in (1..6u32).prop_map(|log2| 1usize << log2),
        ) {
            let lower = |mask: u32| mask != 0 && mask.trailing_zeros() as usize % slots >= slots / 2;
            let naive = masks.iter().enumerate().map(|(i, &mask)| u32::from(lower(mask)) << i);
            prop_assert_eq!(in_lower_half(&masks, slots), naive.sum::<u32>());
        }
    }
}
