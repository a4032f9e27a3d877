//! The side of the packets.

use super::generation::{Shared, Turn};
use crate::hash::mix;
use crate::sync::{Arc, Ordering, own};

/// Largest number of keys in a burst.
pub const BURST_MAX: usize = 64;

/// Counts keys. Belongs to the thread that sees the packets; see the [module](super).
pub struct Counter {
    shared: Arc<Shared>,
    seed: u64,
    /// Keys seen, sampled or not.
    seen: u64,
    /// Last word taken, and what it says.
    word: u64,
    turn: Turn,
}

impl Counter {
    pub(super) fn new(shared: Arc<Shared>, seed: u64) -> Self {
        let word = own(&shared.taken);
        Self { shared, seed, seen: 0, word, turn: Turn::unpack(word) }
    }

    /// Takes the epoch that the keeper wants. Each burst begins with this; a thread without packets
    /// calls it now and then, or the keeper cannot go on.
    #[inline]
    pub fn attend(&mut self) {
        // Pairs with `Keeper::turn`: the generation of the new epoch is clear.
        let word = self.shared.wanted.load(Ordering::Acquire);
        if word != self.word {
            (self.word, self.turn) = (word, Turn::unpack(word));
            // Pairs with `Keeper::attended`: all counts of the old epoch are visible.
            self.shared.taken.store(word, Ordering::Release);
        }
    }

    /// Returns whether a packet is a sample of the epoch that was taken last. For packets that are
    /// counted elsewhere: they are sampled like those of [`Counter::count_batch`], in one order.
    #[inline]
    pub fn sample(&mut self) -> bool {
        let skipped = (1u64 << self.turn.settings.sample_log2) - 1;
        next_is_sampled(self.seed, &mut self.seen, skipped)
    }

    /// Returns the epoch that was taken last, as [`Keeper::epoch`](super::Keeper::epoch) has it.
    #[inline]
    pub fn epoch(&self) -> u16 {
        self.turn.epoch
    }

    /// Counts a burst of at most [`BURST_MAX`] keys, in order. Bit `i` of the result says that key
    /// `i` became hot in this epoch: report it.
    ///
    /// Ignores keys past the 64th.
    #[inline]
    pub fn count_batch(&mut self, hashes: &[u128]) -> u64 {
        self.attend();
        let hashes = &hashes[..hashes.len().min(BURST_MAX)];
        let generation = self.shared.generation(self.turn.epoch);
        let skipped = (1u64 << self.turn.settings.sample_log2) - 1;
        let (mut sampled, mut hot) = (0u64, 0u64);
        for (i, &hash) in hashes.iter().enumerate() {
            if next_is_sampled(self.seed, &mut self.seen, skipped) {
                sampled |= 1 << i;
                generation.prefetch(hash);
            }
        }
        generation.sampled(sampled.count_ones());
        while sampled != 0 {
            let i = sampled.trailing_zeros();
            sampled &= sampled - 1;
            let hash = hashes[i as usize];
            let count = generation.count(hash);
            if count >= self.turn.settings.threshold && generation.mark(hash) {
                hot |= 1 << i;
            }
        }
        hot
    }
}

/// Returns whether the next packet is sampled, of those that `skipped + 1` packets have one of.
#[inline(always)]
fn next_is_sampled(seed: u64, seen: &mut u64, skipped: u64) -> bool {
    *seen = seen.wrapping_add(1);
    skipped == 0 || mix(seed ^ *seen) & skipped == 0
}
