//! Policy: the entry promoted on a hit, and the victim in a full bucket.
//!
//! | policy | a hit | the victim | state |
//! |---|---|---|---|
//! | [`Random`] | nothing | any candidate slot, evenly | generator |
//! | [`BubbleLru`] | moves up one slot | last slot of a random candidate bucket | generator |
//! | [`Pblru`] | as bubble LRU, one hit in n | as bubble LRU | generator, countdown |
//! | [`DcBubble`] | as bubble LRU, and a bit is set | see there | one bit per bucket |
//! | [`HalfBubble`] | may move up one slot, see there | see there | generator, four counters |
//!
//! Source: sections 4.2 and 5 of the paper. A policy never allocates after construction, draws at
//! most one random number per eviction, and moves entries only within one bucket.

mod dc_bubble;
mod half_bubble;

pub use dc_bubble::DcBubble;
pub use half_bubble::HalfBubble;

use super::config::{Config, PROMOTE_EVERY_MAX};
use super::design::PolicyKind;
use super::error::CacheError;
use super::geometry::{Geometry, fingerprint};
use super::layout::Layout;
use super::probes::Mask;
use super::table::{Entry, Place, Table};
use crate::hash::Hash64;
use crate::random::Pcg32;

mod sealed {
    pub trait Sealed {}
}

/// Promotion and eviction on a geometry. Only the table calls its methods.
pub trait Policy<G: Geometry>: sealed::Sealed + Clone + Send + Sync + 'static {
    /// Returns a policy for a table of `buckets`.
    #[doc(hidden)]
    fn new(buckets: usize, config: &Config) -> Result<Self, CacheError>;

    /// Returns the policy as a value.
    #[doc(hidden)]
    fn kind(&self) -> PolicyKind;

    /// Handles verified lookups in order, at most a burst: bit `i` of `hit` says that key `i` was
    /// found in the slot of the lowest bit of `masks[i]`. Both slices have equal lengths.
    #[doc(hidden)]
    fn report<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hashes: &[Hash64],
        masks: &[u32],
        hit: u32,
    );

    /// Evicts when all candidate slots of `hash` are taken: returns the slot to overwrite and the
    /// lost entry.
    #[doc(hidden)]
    fn evict<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hash: Hash64,
    ) -> (Place, Entry<L::Value>);

    /// Handles an insertion of any outcome.
    #[doc(hidden)]
    #[inline(always)]
    fn inserted<L: Layout>(&mut self, _table: &Table<G, L>, _hash: Hash64) {}

    /// Handles the clearing of the table.
    #[doc(hidden)]
    fn cleared(&mut self) {}

    /// Returns the bytes of state that grow with the table.
    #[doc(hidden)]
    fn state_bytes(&self) -> usize {
        0
    }
}

/// Stream of the policies' random numbers, one of the generator's 2⁶³.
const STREAM: u64 = 54;

/// Iterates over hashes and slots of the hits.
#[inline(always)]
fn hits<'a>(
    hashes: &'a [Hash64],
    masks: &'a [u32],
    hit: u32,
) -> impl Iterator<Item = (Hash64, usize)> + 'a {
    Mask::new(hit).iter().map(|i| (hashes[i], masks[i].trailing_zeros() as usize))
}

#[inline(always)]
fn promote<G: Geometry, L: Layout>(table: &mut Table<G, L>, hash: Hash64, slot: usize) {
    table.promote(table.candidate(hash, slot), fingerprint(hash));
}

/// Returns the last slot of a random candidate bucket (section 5.2: "we simply pick a random
/// bucket").
#[inline(always)]
fn last_of_random_bucket<G: Geometry, L: Layout>(
    pcg: &mut Pcg32,
    table: &Table<G, L>,
    hash: Hash64,
) -> (Place, Entry<L::Value>) {
    let choice = pcg.below(G::CHOICES as u32) as usize;
    let slot = table.candidate(hash, choice * G::SLOTS + G::SLOTS - 1);
    (slot, table.entry(slot))
}

/// Random eviction: the victim is any of the H × m candidate slots, with equal probability.
#[derive(Clone, Debug)]
pub struct Random {
    pcg: Pcg32,
}

impl sealed::Sealed for Random {}

impl<G: Geometry> Policy<G> for Random {
    fn new(_buckets: usize, config: &Config) -> Result<Self, CacheError> {
        Ok(Self { pcg: Pcg32::new(config.seed, STREAM) })
    }

    fn kind(&self) -> PolicyKind {
        PolicyKind::Random
    }

    #[inline(always)]
    fn report<L: Layout>(&mut self, _: &mut Table<G, L>, _: &[Hash64], _: &[u32], _: u32) {}

    #[inline(always)]
    fn evict<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hash: Hash64,
    ) -> (Place, Entry<L::Value>) {
        let slot = table.candidate(hash, self.pcg.below(G::CANDIDATES as u32) as usize);
        (slot, table.entry(slot))
    }
}

/// Bubble LRU: a hit swaps the entry with the one of the next higher priority in its bucket. The
/// victim is the last slot of a random candidate bucket.
#[derive(Clone, Debug)]
pub struct BubbleLru {
    pcg: Pcg32,
}

impl sealed::Sealed for BubbleLru {}

impl<G: Geometry> Policy<G> for BubbleLru {
    fn new(_buckets: usize, config: &Config) -> Result<Self, CacheError> {
        Ok(Self { pcg: Pcg32::new(config.seed, STREAM) })
    }

    fn kind(&self) -> PolicyKind {
        PolicyKind::Bubble
    }

    #[inline(always)]
    fn report<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hashes: &[Hash64],
        masks: &[u32],
        hit: u32,
    ) {
        hits(hashes, masks, hit).for_each(|(hash, slot)| promote(table, hash, slot));
    }

    #[inline(always)]
    fn evict<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hash: Hash64,
    ) -> (Place, Entry<L::Value>) {
        last_of_random_bucket(&mut self.pcg, table, hash)
    }
}

/// Probabilistic bubble LRU: promotes one hit in n on average.
///
/// The distance to the next promoted hit is drawn evenly from `1..=2n−1` (mean n). A burst costs a
/// count and a subtraction, and for each promotion the hits before it are skipped.
#[derive(Clone, Debug)]
pub struct Pblru {
    pcg: Pcg32,
    every: u32,
    /// The hit that brings it to zero is promoted; never zero between calls.
    countdown: u32,
}

impl Pblru {
    fn redraw(&mut self) {
        self.countdown = 1 + self.pcg.below(2 * self.every - 1);
    }
}

impl sealed::Sealed for Pblru {}

impl<G: Geometry> Policy<G> for Pblru {
    fn new(_buckets: usize, config: &Config) -> Result<Self, CacheError> {
        let every = config.promote_every;
        if !(1..=PROMOTE_EVERY_MAX).contains(&every) {
            return Err(CacheError::PromotionOutOfRange { every, max: PROMOTE_EVERY_MAX });
        }
        let mut new = Self { pcg: Pcg32::new(config.seed, STREAM), every, countdown: 0 };
        new.redraw();
        Ok(new)
    }

    fn kind(&self) -> PolicyKind {
        PolicyKind::Pblru { every: self.every }
    }

    #[inline(always)]
    fn report<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hashes: &[Hash64],
        masks: &[u32],
        hit: u32,
    ) {
        let (mut hit, mut left) = (hit, hit.count_ones());
        while left >= self.countdown {
            left -= self.countdown;
            (1..self.countdown).for_each(|_| hit &= hit - 1);
            hits(hashes, masks, hit).take(1).for_each(|(hash, slot)| promote(table, hash, slot));
            hit &= hit - 1;
            self.redraw();
        }
        self.countdown -= left;
    }

    #[inline(always)]
    fn evict<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hash: Hash64,
    ) -> (Place, Entry<L::Value>) {
        last_of_random_bucket(&mut self.pcg, table, hash)
    }
}
