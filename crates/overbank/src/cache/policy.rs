//! Policy: which entry is promoted on a hit, and which one leaves when its bucket is full.
//!
//! | policy | a hit | the victim | state |
//! |---|---|---|---|
//! | [`Random`] | nothing | any candidate slot, evenly | generator |
//! | [`BubbleLru`] | moves up one slot in its bucket | last slot of a random candidate bucket | generator |
//! | [`Pblru`] | as bubble LRU, one hit in n | as bubble LRU | generator, countdown |
//! | [`DcBubble`] | as bubble LRU, and a bit is set | see there | one bit per bucket |
//! | [`HalfBubble`] | moves up one slot from the lower half | see there | generator, countdown |
//!
//! Sections 4.2 and 5 of the paper. A policy never allocates after its construction, draws at most
//! one random number per eviction, and moves entries within one bucket only.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::config::{Config, PROMOTE_EVERY_MAX};
use super::design::PolicyKind;
use super::error::Error;
use super::geometry::{Geometry, SetAssoc, fingerprint};
use super::layout::Layout;
use super::pcg::Pcg32;
use super::table::{Entry, Slot, Table};

mod sealed {
    pub trait Sealed {}
}

/// Who is promoted and who leaves, on a geometry. Its methods are the table's business.
pub trait Policy<G: Geometry>: sealed::Sealed + Sized + Send + Sync + 'static {
    /// For a table of `buckets`.
    #[doc(hidden)]
    fn new(buckets: usize, config: &Config) -> Result<Self, Error>;

    /// The same as a value.
    #[doc(hidden)]
    fn kind(&self) -> PolicyKind;

    /// Verified lookups in order; `slots` of `G::CANDIDATES` and above are misses, and `hits` is
    /// the number of the others. Both slices have the same length.
    #[doc(hidden)]
    fn report<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hashes: &[u64],
        slots: &[u8],
        hits: u32,
    );

    /// All candidate slots of `hash` are taken: gives the slot to overwrite and who is lost.
    #[doc(hidden)]
    fn evict<L: Layout>(&mut self, table: &mut Table<G, L>, hash: u64) -> (Slot, Entry<L::Value>);

    /// After an insertion of any outcome.
    #[doc(hidden)]
    #[inline(always)]
    fn inserted<L: Layout>(&mut self, _table: &Table<G, L>, _hash: u64) {}

    /// The table was emptied.
    #[doc(hidden)]
    fn cleared(&mut self) {}

    /// Bytes of state that grow with the table.
    #[doc(hidden)]
    fn state_bytes(&self) -> usize {
        0
    }
}

/// Stream of the policies' random numbers (the generator has 2⁶³ of them).
const STREAM: u64 = 54;

/// Hashes and slots of the hits.
#[inline(always)]
fn hits<'a, G: Geometry>(
    hashes: &'a [u64],
    slots: &'a [u8],
) -> impl Iterator<Item = (u64, usize)> + 'a {
    let pairs = hashes.iter().zip(slots).map(|(&hash, &slot)| (hash, usize::from(slot)));
    pairs.filter(|&(_, slot)| slot < G::CANDIDATES)
}

#[inline(always)]
fn promote<G: Geometry, L: Layout>(table: &mut Table<G, L>, hash: u64, slot: usize) {
    table.promote(table.candidate(hash, slot), fingerprint(hash));
}

/// The last slot of a random candidate bucket (section 5.2: "we simply pick a random bucket").
#[inline(always)]
fn last_of_random_bucket<G: Geometry, L: Layout>(
    pcg: &mut Pcg32,
    table: &Table<G, L>,
    hash: u64,
) -> (Slot, Entry<L::Value>) {
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
    fn new(_buckets: usize, config: &Config) -> Result<Self, Error> {
        Ok(Self { pcg: Pcg32::new(config.seed, STREAM) })
    }

    fn kind(&self) -> PolicyKind {
        PolicyKind::Random
    }

    #[inline(always)]
    fn report<L: Layout>(&mut self, _: &mut Table<G, L>, _: &[u64], _: &[u8], _: u32) {}

    #[inline(always)]
    fn evict<L: Layout>(&mut self, table: &mut Table<G, L>, hash: u64) -> (Slot, Entry<L::Value>) {
        let slot = table.candidate(hash, self.pcg.below(G::CANDIDATES as u32) as usize);
        (slot, table.entry(slot))
    }
}

/// Bubble LRU: a hit exchanges the entry with the one of the next higher priority in its bucket;
/// the victim is the last slot of a candidate bucket drawn at random.
#[derive(Clone, Debug)]
pub struct BubbleLru {
    pcg: Pcg32,
}

impl sealed::Sealed for BubbleLru {}

impl<G: Geometry> Policy<G> for BubbleLru {
    fn new(_buckets: usize, config: &Config) -> Result<Self, Error> {
        Ok(Self { pcg: Pcg32::new(config.seed, STREAM) })
    }

    fn kind(&self) -> PolicyKind {
        PolicyKind::Bubble
    }

    #[inline(always)]
    fn report<L: Layout>(
        &mut self,
        table: &mut Table<G, L>,
        hashes: &[u64],
        slots: &[u8],
        _hits: u32,
    ) {
        hits::<G>(hashes, slots).for_each(|(hash, slot)| promote(table, hash, slot));
    }

    #[inline(always)]
    fn evict<L: Layout>(&mut self, table: &mut Table<G, L>, hash: u64) -> (Slot, Entry<L::Value>) {
        last_of_random_bucket(&mut self.pcg, table, hash)
    }
}

/// Probabilistic bubble LRU: bubble LRU that promotes one hit in n on average.
///
/// The distance to the next promoted hit is drawn evenly from `1..=2n−1` (mean n), so a hit costs
/// a decrement, and a whole burst one subtraction most of the time.
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
    fn new(_buckets: usize, config: &Config) -> Result<Self, Error> {
        let every = config.promote_every;
        if !(1..=PROMOTE_EVERY_MAX).contains(&every) {
            return Err(Error::PromotionOutOfRange { every, max: PROMOTE_EVERY_MAX });
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
        hashes: &[u64],
        slots: &[u8],
        hits: u32,
    ) {
        if hits < self.countdown {
            self.countdown -= hits;
            return;
        }
        for (hash, slot) in self::hits::<G>(hashes, slots) {
            self.countdown -= 1;
            if self.countdown == 0 {
                promote(table, hash, slot);
                self.redraw();
            }
        }
    }

    #[inline(always)]
    fn evict<L: Layout>(&mut self, table: &mut Table<G, L>, hash: u64) -> (Slot, Entry<L::Value>) {
        last_of_random_bucket(&mut self.pcg, table, hash)
    }
}

/// Half-bubble: ours, for hit rates like those of bubbling on every hit at a fraction of the writes.
///
/// Two facts decide it. *Which* hits bubble does not change where entries settle: neighbours change
/// places in proportion to how often each is hit, at whatever rate. But a new entry must climb out
/// of the last slot before the next eviction takes it. So entries in the lower half of a bucket
/// bubble on every hit, those in the upper half only in one burst of 16 on average; under skew most
/// hits are in the upper half, and write nothing.
///
/// And while the table has room (more than one slot in 24 is empty), there is nothing to choose:
/// nothing bubbles, and the victim is any candidate slot, because an evicted entry that comes back
/// may find one of the empty slots. Once it is crowded the victim is the last slot of a candidate
/// bucket drawn at random.
#[derive(Clone, Debug)]
pub struct HalfBubble {
    pcg: Pcg32,
    /// Bursts until the next in which every hit bubbles.
    countdown: u32,
}

impl HalfBubble {
    /// On average, one burst in this many bubbles in the upper halves too.
    pub const BURSTS: u32 = 16;
    /// The table has room while more than one slot in this many is empty.
    pub const ROOM: usize = 24;

    fn redraw(&mut self) {
        self.countdown = 1 + self.pcg.below(2 * Self::BURSTS - 1);
    }

    #[inline(always)]
    fn crowded<G: Geometry, L: Layout>(table: &Table<G, L>) -> bool {
        table.len >= table.capacity() - table.capacity() / Self::ROOM
    }
}

impl sealed::Sealed for HalfBubble {}

impl<G: Geometry> Policy<G> for HalfBubble {
    fn new(_buckets: usize, config: &Config) -> Result<Self, Error> {
        let mut new = Self { pcg: Pcg32::new(config.seed, STREAM), countdown: 0 };
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
        hashes: &[u64],
        slots: &[u8],
        _hits: u32,
    ) {
        if !Self::crowded(table) {
            return;
        }
        self.countdown -= 1;
        let mut which = (G::SLOTS / 2) as u8;
        if self.countdown == 0 {
            self.redraw();
            which = u8::MAX;
        }
        // The hits that bubble, one bit each: found for the whole burst without a branch.
        for (hashes, slots) in hashes.chunks(32).zip(slots.chunks(32)) {
            let mut bubbles = 0u32;
            for (i, &slot) in slots.iter().enumerate() {
                let up = usize::from(slot) < G::CANDIDATES && slot & which != 0;
                bubbles |= u32::from(up) << i;
            }
            while bubbles != 0 {
                let i = bubbles.trailing_zeros() as usize;
                bubbles &= bubbles - 1;
                promote(table, hashes[i], usize::from(slots[i]));
            }
        }
    }

    #[inline(always)]
    fn evict<L: Layout>(&mut self, table: &mut Table<G, L>, hash: u64) -> (Slot, Entry<L::Value>) {
        if Self::crowded(table) {
            return last_of_random_bucket(&mut self.pcg, table, hash);
        }
        let slot = table.candidate(hash, self.pcg.below(G::CANDIDATES as u32) as usize);
        (slot, table.entry(slot))
    }
}

/// DC-Bubble (section 5.3, after Zhang and Xue 2009), on set-associative caches only.
///
/// Bubbles on every hit. One bit per bucket, in a bitmap of its own, tells whether the bucket's
/// last access was a hit. An insertion into a full bucket looks at it: after a hit the new entry
/// replaces the last one; after a miss the first entry leaves, the others move up by one and the
/// new one takes the last slot.
///
/// What counts as an access: a reported hit sets the bit; an insertion *is* the miss that caused
/// it, so it consults the bit as the access before left it, and then clears it. A reported miss
/// alone changes nothing. A new bucket's last access was a miss.
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
    fn new(buckets: usize, _config: &Config) -> Result<Self, Error> {
        let words = buckets.div_ceil(64);
        let mut hit = Vec::new();
        hit.try_reserve_exact(words).map_err(|_| Error::OutOfMemory { bytes: words * 8 })?;
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
        hashes: &[u64],
        slots: &[u8],
        _hits: u32,
    ) {
        for (hash, slot) in hits::<SetAssoc<M>>(hashes, slots) {
            self.record(table.candidate(hash, slot).bucket, true);
            promote(table, hash, slot);
        }
    }

    #[inline(always)]
    fn evict<L: Layout>(
        &mut self,
        table: &mut Table<SetAssoc<M>, L>,
        hash: u64,
    ) -> (Slot, Entry<L::Value>) {
        let last = table.candidate(hash, M - 1);
        if self.was_hit(last.bucket) {
            return (last, table.entry(last));
        }
        let victim = table.entry(Slot { index: 0, ..last });
        for index in 1..M {
            let moved = table.entry(Slot { index, ..last });
            table.set(Slot { index: index - 1, ..last }, moved);
        }
        (last, victim)
    }

    #[inline(always)]
    fn inserted<L: Layout>(&mut self, table: &Table<SetAssoc<M>, L>, hash: u64) {
        self.record(table.candidate(hash, 0).bucket, false);
    }

    fn cleared(&mut self) {
        self.hit.fill(0);
    }

    fn state_bytes(&self) -> usize {
        size_of_val(&*self.hit)
    }
}
