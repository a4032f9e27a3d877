//! The lookups of figure 5, from the one that CuckooSwitch began with to Algorithm 3
//! ([`LOOK_UPS`]).
//!
//! The first one is Algorithm 1 as its implementation was: "atomic read" is `__sync_add_and_fetch`
//! of zero, a locked instruction that is also the full barrier. So readers store into the counters.

use std::sync::atomic::{Ordering, fence};

use super::{BATCH_MAX, Optimistic};
use crate::experiments::fib::measure::Answers;
use overbank::fib::MacAddr;
use overbank::prefetch::{prefetch, prefetch_far};

/// Reads a version before or after the buckets: by a locked addition of zero (Algorithm
/// 1), or by a load (Algorithm 2).
#[inline(always)]
fn read<const LOCKED: bool>(table: &Optimistic, bucket: u32, before: bool) -> u32 {
    let version = table.version(bucket);
    if LOCKED {
        // Of the loads of the buckets none moves past it, which this addition is for.
        return version.fetch_add(table.nothing, Ordering::SeqCst);
    }
    if before {
        // Nothing below moves above.
        return version.load(Ordering::Acquire);
    }
    // Pairs with the writer's fence: a bucket's later word was seen, then so is its version.
    fence(Ordering::Acquire);
    version.load(Ordering::Relaxed)
}

fn odd(version: u32) -> bool {
    version & 1 == 1
}

/// Looks keys up, in batches of this size where it knows batches.
pub(in crate::experiments::fib) type LookUp = fn(&Optimistic, usize, &[MacAddr]) -> Answers;

/// In the order of figure 5.
pub(in crate::experiments::fib) const LOOK_UPS: [LookUp; 4] = [
    Optimistic::one_by_one::<true>, // Versions are read by an atomic addition of zero, `lock xadd`.
    Optimistic::one_by_one::<false>, // By loads, without a fence on x86-64.
    Optimistic::in_batches::<false>, // By loads, those of a batch at once.
    Optimistic::in_batches::<true>, // The same, and prefetched in two rounds.
];

impl Optimistic {
    #[inline(never)]
    fn one_by_one<const LOCKED: bool>(&self, _: usize, keys: &[MacAddr]) -> Answers {
        let mut answers = Answers::default();
        keys.iter().for_each(|&key| answers.add(self.one::<LOCKED>(key)));
        answers
    }

    #[inline(always)]
    fn one<const LOCKED: bool>(&self, key: MacAddr) -> Option<u16> {
        let (first, second) = self.places(key);
        let versions =
            |before| (read::<LOCKED>(self, first, before), read::<LOCKED>(self, second, before));
        loop {
            let before = versions(true);
            if odd(before.0 | before.1) {
                std::hint::spin_loop();
                continue;
            }
            let found = self.find(first, key).or_else(|| self.find(second, key));
            if versions(false) == before {
                return found;
            }
        }
    }

    /// Asks for a bucket, into the cache that `overbank::fib` asks for a table of this size.
    #[inline(always)]
    fn ask(&self, bucket: u32) {
        let slot = &self.slots(bucket)[0];
        if self.far { prefetch_far(slot) } else { prefetch(slot) }
    }

    #[inline(never)]
    fn in_batches<const PREFETCH: bool>(&self, batch: usize, keys: &[MacAddr]) -> Answers {
        let mut answers = Answers::default();
        let mut found = [None; BATCH_MAX];
        for keys in keys.chunks(batch.clamp(1, BATCH_MAX)) {
            let found = &mut found[..keys.len()];
            self.batch::<PREFETCH>(keys, found);
            found.iter().for_each(|&found| answers.add(found));
        }
        answers
    }

    /// Runs Algorithm 3 on at most [`BATCH_MAX`] keys.
    #[inline(always)]
    fn batch<const PREFETCH: bool>(&self, keys: &[MacAddr], found: &mut [Option<u16>]) {
        let mut places = [(0, 0); BATCH_MAX];
        let mut before = [(0, 0); BATCH_MAX];
        let (places, before) = (&mut places[..keys.len()], &mut before[..keys.len()]);
        for (places, &key) in places.iter_mut().zip(keys) {
            *places = self.places(key);
            if PREFETCH {
                self.ask(places.0);
            }
        }
        let read = |bucket| self.version(bucket).load(Ordering::Acquire);
        let again = |bucket| self.version(bucket).load(Ordering::Relaxed);
        loop {
            let mut all = 0;
            for (before, &(first, second)) in before.iter_mut().zip(&*places) {
                *before = (read(first), read(second));
                all |= before.0 | before.1;
            }
            if odd(all) {
                std::hint::spin_loop();
                continue;
            }
            let mut open = 0u64;
            for (i, (&key, &(first, second))) in keys.iter().zip(&*places).enumerate() {
                found[i] = self.find(first, key);
                if found[i].is_none() {
                    if PREFETCH {
                        self.ask(second);
                    }
                    open |= 1 << i;
                }
            }
            while open != 0 {
                let i = open.trailing_zeros() as usize;
                open &= open - 1;
                found[i] = self.find(places[i].1, keys[i]);
            }
            fence(Ordering::Acquire);
            let mut differ = 0;
            for (before, &(first, second)) in before.iter().zip(&*places) {
                differ |= (again(first) ^ before.0) | (again(second) ^ before.1);
            }
            if differ == 0 {
                return;
            }
        }
    }
}
