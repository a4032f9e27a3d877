//! Buckets: their layout, and single steps on one.
//!
//! ```text
//!  u64 → u64                    head: seq u32 (lowest bit: locked) · state u16 · policy u16
//!  ┌──────┬───────┬────┬────┬────┬────┬────┬────┐      state: valid 4 · absent 4 · writers 8
//!  │ head │ stamp │ k0 │ k1 │ k2 │ v0 │ v1 │ v2 │     policy 16: see `policy.rs`
//!  └──────┴───────┴────┴────┴────┴────┴────┴────┘      stamp: epoch 16 · version 48
//! ```
//!
//! | words of key + value | 1+1 | 1+2 | 2+1 | 2+2 | 1+4 | 4+1 | 1+8 | 4+8 |
//! |---|---|---|---|---|---|---|---|---|
//! | lines | 1 | 2 | 2 | 2 | 3 | 3 | 4 | 5 |
//! | entries | 3 | 4 | 4 | 3 | 4 | 4 | 3 | 3 |
//!
//! A value of 2, 4 or 8 words never straddles more lines than it must.
//!
//! All but `policy` is written by the holder of the lock alone. Readers copy words between two
//! loads of `seq` and keep the copy if `seq` did not change. The stores pair like this: the lock is
//! taken by a compare-exchange and a release fence before the first word changes, and given back by
//! a release store; a reader loads `seq` with acquire, then the words, then an acquire fence, then
//! `seq` again.
//!
//! `policy` decides only what to evict. All threads store it plainly, so two may lose each other's
//! bits.

use core::marker::PhantomData;

use super::super::plain::{KEY_WORDS_MAX, Plain, WORDS_MAX};
use super::policy::{Policy, Turn};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::words::{Head, Stride};

/// Most entries of a bucket.
const WAYS_MAX: usize = 4;
/// Words of a cache line.
const LINE: usize = 8;

/// Sizes and places that follow from the types of key and value. Words count from the second of the
/// bucket, which is the stamp.
pub(in super::super) struct Shape<K, V>(PhantomData<(K, V)>);

impl<K: Plain, V: Plain> Shape<K, V> {
    /// Words of an entry.
    const ENTRY: usize = {
        assert!(K::WORDS >= 1 && K::WORDS <= KEY_WORDS_MAX, "a key has 1 to 4 words");
        assert!(V::WORDS >= 1 && V::WORDS <= WORDS_MAX, "a value has 1 to 8 words");
        K::WORDS + V::WORDS
    };
    /// Cache lines of a bucket: as few as hold three entries.
    pub(in super::super) const LINES: usize = (2 + 3 * Self::ENTRY).div_ceil(LINE);
    /// Entries of a bucket. One under the model checker, which runs every order of every access.
    pub(in super::super) const WAYS: usize = {
        let fitting = (LINE * Self::LINES - 2) / Self::ENTRY;
        if cfg!(feature = "loom") {
            1
        } else if fitting < WAYS_MAX {
            fitting
        } else {
            WAYS_MAX
        }
    };
    /// Bytes of a bucket.
    pub(in super::super) const BYTES: usize = 8 * LINE * Self::LINES;
    const KEYS: usize = 1;
    const VALUES: usize = {
        let after = Self::KEYS + Self::WAYS * K::WORDS;
        // In the bucket's words, of which the head is the first.
        if V::WORDS.is_power_of_two() { (after + 1).next_multiple_of(V::WORDS) - 1 } else { after }
    };
    const LAID_OUT: () = assert!(1 + Self::VALUES + Self::WAYS * V::WORDS <= LINE * Self::LINES);
    /// All slots, as in `state`.
    const ALL: u16 = (1 << Self::WAYS) - 1;
}

impl<K: Plain, V: Plain> Stride for Shape<K, V> {
    const WORDS: usize = LINE * Self::LINES;
}

/// The 48 bits of a version.
pub(super) const VERSION: u64 = (1 << 48) - 1;

/// Returns whether two stamps have one epoch.
#[inline(always)]
pub(super) const fn same_epoch(one: u64, other: u64) -> bool {
    (one ^ other) >> 48 == 0
}

const ABSENT_AT: usize = 4;
const WRITERS_AT: usize = 8;
/// Most write guards that a bucket counts.
pub(super) const WRITERS_MAX: u16 = 0xff;

/// What a reader saw.
pub(super) enum Seen<V> {
    /// The key's value, `None` if it is absent from the index.
    Entry(Option<V>),
    /// No entry that counts. The stamp as it lies there, of whichever epoch: with one lot it has
    /// each value once.
    Nothing { stamp: u64 },
    /// Another thread has locked the bucket.
    Busy,
    /// The bucket changed meanwhile.
    Raced,
}

/// A bucket.
pub(super) struct Bucket<'t, K, V> {
    head: &'t Head,
    words: &'t [AtomicU64],
    types: PhantomData<(K, V)>,
}

impl<'t, K: Plain, V: Plain> Bucket<'t, K, V> {
    #[inline(always)]
    pub(super) fn new((head, words): (&'t Head, &'t [AtomicU64])) -> Self {
        const { Shape::<K, V>::LAID_OUT };
        Self { head, words, types: PhantomData }
    }

    #[inline(always)]
    fn load(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    /// Returns the slots that hold the key, valid or not.
    #[inline(always)]
    fn matching(&self, key: &[u64; WORDS_MAX]) -> u16 {
        (0..Shape::<K, V>::WAYS).fold(0, |matching, slot| {
            let at = Shape::<K, V>::KEYS + slot * K::WORDS;
            let differs =
                (0..K::WORDS).fold(0, |differs, word| differs | (self.load(at + word) ^ key[word]));
            matching | u16::from(differs == 0) << slot
        })
    }

    /// Looks for an entry of `era`'s epoch, in a bucket whose stamp `admits`.
    #[inline(always)]
    pub(super) fn read(
        &self,
        key: &[u64; WORDS_MAX],
        era: u64,
        admits: impl Fn(u64) -> bool,
    ) -> Seen<V> {
        let seq = self.head.seq.load(Ordering::Acquire);
        if seq & 1 != 0 {
            return Seen::Busy;
        }
        let state = self.head.state.load(Ordering::Relaxed);
        // Acquire: a ticket with this stamp comes after the writes that the stamp counts.
        let stamp = self.words[0].load(Ordering::Acquire);
        let matching = self.matching(key) & state;
        let counts = same_epoch(stamp, era);
        if matching == 0 || !counts || !admits(stamp) {
            return Seen::Nothing { stamp };
        }
        // At most one slot has the key; the bound says so to the compiler.
        let slot = (matching.trailing_zeros() as usize).min(Shape::<K, V>::WAYS - 1);
        let mut value = [0; WORDS_MAX];
        let at = Shape::<K, V>::VALUES + slot * V::WORDS;
        (0..V::WORDS).for_each(|word| value[word] = self.load(at + word));
        fence(Ordering::Acquire);
        if self.head.seq.load(Ordering::Relaxed) != seq {
            return Seen::Raced;
        }
        let policy = self.head.policy.load(Ordering::Relaxed);
        if policy >> slot & 1 == 0 {
            self.head.policy.store(policy | 1 << slot, Ordering::Relaxed);
        }
        let absent = state >> (ABSENT_AT + slot) & 1 == 1;
        Seen::Entry((!absent).then(|| V::from_words(value)))
    }

    /// Decides on a key that missed: whether it comes in, and in whose place if there is no other.
    #[inline]
    pub(super) fn turn(&self, era: u64, tag: u16) -> Turn {
        let full =
            self.head.state.load(Ordering::Relaxed) & Shape::<K, V>::ALL == Shape::<K, V>::ALL;
        if !full || !same_epoch(self.load(0), era) {
            return Turn::In(0, Policy(0));
        }
        let turn =
            Policy(self.head.policy.load(Ordering::Relaxed)).turn(Shape::<K, V>::WAYS as u16, tag);
        if let Turn::Out(policy) = turn {
            self.head.policy.store(policy.0, Ordering::Relaxed);
        }
        turn
    }

    /// Locks the bucket, unless another thread has.
    #[inline]
    pub(super) fn try_lock(self) -> Option<Locked<'t, K, V>> {
        let seq = self.head.seq.load(Ordering::Relaxed);
        if seq & 1 != 0 {
            return None;
        }
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        self.head.seq.compare_exchange(seq, seq | 1, taken, failed).ok()?;
        // Pairs with a reader's fence: a reader of a word stored from here on sees the lock.
        fence(Ordering::Release);
        Some(Locked { bucket: self, seq })
    }

    /// Locks the bucket. Waits for another thread's handful of stores.
    pub(super) fn lock(self) -> Locked<'t, K, V> {
        let Self { head, words, .. } = self;
        let mut tries = 0;
        loop {
            if let Some(locked) = Self::new((head, words)).try_lock() {
                return locked;
            }
            wait(&mut tries);
        }
    }
}

/// Waits a moment for another thread, which may have been interrupted.
pub(super) fn wait(tries: &mut u32) {
    *tries += 1;
    #[cfg(all(feature = "std", not(feature = "loom")))]
    if *tries > 100 {
        return std::thread::yield_now();
    }
    crate::sync::pause();
}

/// A locked bucket. Unlocks it when dropped.
pub(super) struct Locked<'t, K, V> {
    bucket: Bucket<'t, K, V>,
    seq: u32,
}

impl<K, V> Drop for Locked<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        self.bucket.head.seq.store(self.seq.wrapping_add(2), Ordering::Release);
    }
}

impl<K: Plain, V: Plain> Locked<'_, K, V> {
    fn state(&self) -> u16 {
        self.bucket.head.state.load(Ordering::Relaxed)
    }

    fn set_state(&self, state: u16) {
        self.bucket.head.state.store(state, Ordering::Relaxed);
    }

    pub(super) fn set_policy(&self, policy: Policy) {
        self.bucket.head.policy.store(policy.0, Ordering::Relaxed);
    }

    pub(super) fn stamp(&self) -> u64 {
        self.bucket.load(0)
    }

    /// Pairs with the load of a reader.
    pub(super) fn set_stamp(&self, stamp: u64) {
        self.bucket.words[0].store(stamp, Ordering::Release);
    }

    /// Empties the bucket if it is of another epoch than `era`.
    pub(super) fn refresh(&self, era: u64) {
        if !same_epoch(self.stamp(), era) {
            self.set_state(self.state() >> WRITERS_AT << WRITERS_AT);
            self.set_policy(Policy(0));
            self.set_stamp(era);
        }
    }

    /// Returns the number of write guards in the bucket.
    pub(super) fn writers(&self) -> u16 {
        self.state() >> WRITERS_AT
    }

    pub(super) fn set_writers(&self, writers: u16) {
        self.set_state(self.state() & ((1 << WRITERS_AT) - 1) | writers << WRITERS_AT);
    }

    /// Returns the slot of the key's entry.
    pub(super) fn find(&self, key: &[u64; WORDS_MAX]) -> Option<usize> {
        let matching = self.bucket.matching(key) & self.state();
        (matching != 0).then(|| matching.trailing_zeros() as usize)
    }

    /// Takes an entry out.
    pub(super) fn remove(&self, slot: usize) {
        self.set_state(self.state() & !(1 << slot | 1 << (ABSENT_AT + slot)));
    }

    /// Returns a slot without an entry.
    pub(super) fn free(&self) -> Option<usize> {
        let free = !self.state() & Shape::<K, V>::ALL;
        (free != 0).then(|| free.trailing_zeros() as usize)
    }

    /// Writes an entry; `None` is the answer that the index lacks the key.
    pub(super) fn put(
        &self,
        slot: usize,
        key: &[u64; WORDS_MAX],
        value: Option<&[u64; WORDS_MAX]>,
    ) {
        let store = |word: usize, bits: u64| self.bucket.words[word].store(bits, Ordering::Relaxed);
        let at = Shape::<K, V>::KEYS + slot * K::WORDS;
        (0..K::WORDS).for_each(|word| store(at + word, key[word]));
        let mut state = self.state() & !(1 << (ABSENT_AT + slot)) | 1 << slot;
        match value {
            None => state |= 1 << (ABSENT_AT + slot),
            Some(value) => {
                let at = Shape::<K, V>::VALUES + slot * V::WORDS;
                (0..V::WORDS).for_each(|word| store(at + word, value[word]));
            }
        }
        self.set_state(state);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn shape<K: Plain, V: Plain>() -> (usize, usize, usize) {
        const { Shape::<K, V>::LAID_OUT };
        (Shape::<K, V>::LINES, Shape::<K, V>::WAYS, 1 + Shape::<K, V>::VALUES)
    }

    #[test]
    fn shapes_are_those_of_the_picture() {
        assert_eq!(shape::<u64, u64>(), (1, 3, 5));
        assert_eq!(shape::<u64, u128>(), (2, 4, 6));
        assert_eq!(shape::<u128, u64>(), (2, 4, 10));
        assert_eq!(shape::<u128, u128>(), (2, 3, 8));
        assert_eq!(shape::<u64, [u64; 4]>(), (3, 4, 8));
        assert_eq!(shape::<[u64; 4], u64>(), (3, 4, 18));
        assert_eq!(shape::<u64, [u64; 8]>(), (4, 3, 8));
        assert_eq!(shape::<[u64; 3], [u64; 7]>(), (4, 3, 11));
        assert_eq!(shape::<[u64; 4], [u64; 8]>(), (5, 3, 16));
    }
}
