//! The table that writer and readers share, and the writer's single steps on it.
//!
//! Every store into a table is in this file; what pairs with it is in `simd::kernel`.

use core::marker::PhantomData;

use super::bucket::{Bucket, Header, LINE};
use super::candidates::Candidates;
use super::config::{BUCKETS_MAX, Config};
use super::error::FibError;
use super::key::{Key, Value, Words as _};
use super::simd::{Kernels, View};
use crate::hash::Hasher;
use crate::isa::Isa;
use crate::memory::HugePages;
use crate::prefetch::prefetch_at;
use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence, own};
use crate::words::Words;

/// Longest burst of [`Reader::lookup_batch`](super::Reader::lookup_batch).
pub const BURST_MAX: usize = 64;

pub(super) struct Table<K, V> {
    words: Words,
    pub(super) buckets: u32,
    pub(super) hasher: Hasher,
    pub(super) seed: u64,
    pub(super) kernels: Kernels<K, V>,
    pub(super) isa: Isa,
    /// Whether lines are prefetched only into the second-level cache.
    pub(super) far: bool,
    len: AtomicUsize,
    types: PhantomData<(K, V)>,
}

impl<K: Key, V: Value> Table<K, V> {
    pub(super) fn new(config: &Config) -> Result<Self, FibError> {
        let count = config.bucket_count::<K, V>();
        let buckets = u32::try_from(count)
            .ok()
            .filter(|_| (2..=BUCKETS_MAX).contains(&count))
            .ok_or(FibError::Buckets { buckets: count })?;
        let isa = if cfg!(feature = "loom") { Isa::Portable } else { Isa::choose(config.isa)? };
        // At most 2^29 buckets of 16 words on 64-bit machines; on others the allocation fails.
        let words = count.saturating_mul(Bucket::<K, V>::STRIDE);
        let bytes = words.saturating_mul(8);
        let far = config.prefetch.is_far(bytes);
        let kernels = Kernels::of(isa, far)?;
        let words = Words::zeroed(words, config.pages)?;
        let hasher = Hasher::new(config.seed);
        let len = AtomicUsize::new(0);
        Ok(Self {
            words,
            buckets,
            hasher,
            seed: config.seed,
            kernels,
            isa,
            far,
            len,
            types: PhantomData,
        })
    }

    pub(super) fn view(&self) -> View {
        View { words: self.words.get().as_ptr(), buckets: self.buckets, hasher: self.hasher }
    }

    pub(super) fn slots(&self) -> usize {
        self.buckets as usize * Bucket::<K, V>::SLOTS
    }

    pub(super) fn bytes(&self) -> usize {
        self.words.get().len() * 8
    }

    pub(super) fn huge_pages(&self) -> HugePages {
        self.words.huge_pages()
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn candidates(&self, key: K) -> Candidates {
        Candidates::of(self.hasher.hash(K::WORDS, key.low(), key.high()), self.buckets)
    }

    #[inline(always)]
    fn word(&self, bucket: u32, word: usize) -> &AtomicU64 {
        &self.words.get()[bucket as usize * Bucket::<K, V>::STRIDE + word]
    }

    /// Returns a bucket's header at some instant, as a reader sees it.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn seen_header(&self, bucket: u32) -> Header {
        Header(self.word(bucket, 0).load(Ordering::Relaxed))
    }

    /// Reads one word of a line for each hash, chosen by its high half.
    #[cfg(any(test, feature = "internals"))]
    #[inline(always)]
    pub(super) fn touch(&self, burst: usize, ahead: bool, hashes: &[u64]) -> u64 {
        if self.far {
            self.touch_as::<true>(burst, ahead, hashes)
        } else {
            self.touch_as::<false>(burst, ahead, hashes)
        }
    }

    #[cfg(any(test, feature = "internals"))]
    #[inline(always)]
    fn touch_as<const FAR: bool>(&self, burst: usize, ahead: bool, hashes: &[u64]) -> u64 {
        let words = self.words.get();
        let lines = (words.len() / LINE) as u64;
        let ask = |hash: u64| {
            let at = (((hash >> 32) * lines) >> 32) as usize * LINE;
            prefetch_at::<FAR>(core::ptr::from_ref(&words[at]).cast());
            at
        };
        let (mut at, mut next_at) = ([0; BURST_MAX], [0; BURST_MAX]);
        let mut upcoming = hashes.chunks(burst);
        let mut next = upcoming.next().unwrap_or_default();
        if ahead {
            at.iter_mut().zip(next).for_each(|(at, &hash)| *at = ask(hash));
        }
        let mut sum = 0u64;
        for hashes in hashes.chunks(burst) {
            next = upcoming.next().unwrap_or_default();
            if !ahead {
                at.iter_mut().zip(hashes).for_each(|(at, &hash)| *at = ask(hash));
            }
            for (i, &hash) in hashes.iter().enumerate() {
                if let Some(&hash) = next.get(i).filter(|_| ahead) {
                    next_at[i] = ask(hash);
                }
                let word = &words[at[i] + hash as usize % LINE];
                sum = sum.wrapping_add(word.load(Ordering::Relaxed));
            }
            if ahead {
                core::mem::swap(&mut at, &mut next_at);
            }
        }
        sum
    }

    /// Prefetches a bucket's lines.
    pub(super) fn prefetch(&self, bucket: u32) {
        if self.far {
            self.prefetch_as::<true>(bucket);
        } else {
            self.prefetch_as::<false>(bucket);
        }
    }

    #[inline(always)]
    fn prefetch_as<const FAR: bool>(&self, bucket: u32) {
        prefetch_at::<FAR>(core::ptr::from_ref(self.word(bucket, 0)).cast());
        if Bucket::<K, V>::LINES == 2 {
            prefetch_at::<FAR>(core::ptr::from_ref(self.word(bucket, LINE)).cast());
        }
    }
}

/// Called only by the one writer. It reads its own stores, so its loads are relaxed.
impl<K: Key, V: Value> Table<K, V> {
    pub(super) fn set_len(&self, len: usize) {
        self.len.store(len, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn header(&self, bucket: u32) -> Header {
        Header(own(self.word(bucket, 0)))
    }

    /// Release: a reader that sees this header sees all earlier stores.
    fn set_header(&self, bucket: u32, header: Header) {
        self.word(bucket, 0).store(header.0, Ordering::Release);
    }

    /// Returns a free slot.
    #[inline(always)]
    pub(super) fn free_slot(&self, bucket: u32) -> Option<usize> {
        let free = !self.header(bucket).words() & Bucket::<K, V>::FULL;
        (free != 0).then(|| free.trailing_zeros() as usize - Bucket::<K, V>::KEYS)
    }

    fn load(&self, bucket: u32, word: usize) -> u64 {
        own(self.word(bucket, word))
    }

    /// Returns the key in a slot that was occupied at some time.
    #[inline(always)]
    pub(super) fn key(&self, bucket: u32, slot: usize) -> K {
        let low = self.load(bucket, Bucket::<K, V>::KEYS + slot) >> Bucket::<K, V>::KEY_SHIFT;
        let high = if K::WORDS == 2 { self.load(bucket, Bucket::<K, V>::HIGHS + slot) } else { 0 };
        K::from_words([low, high])
    }

    pub(super) fn value(&self, bucket: u32, slot: usize) -> V {
        let (word, shift) = Bucket::<K, V>::value_at(slot);
        V::from_bits(self.load(bucket, word) >> shift)
    }

    /// Returns the occupied slot with this key.
    #[inline(always)]
    pub(super) fn find(&self, bucket: u32, key: K) -> Option<usize> {
        let header = self.header(bucket);
        (0..Bucket::<K, V>::SLOTS).find(|&slot| header.has(slot) && self.key(bucket, slot) == key)
    }

    fn store_value(&self, bucket: u32, slot: usize, value: V, ordering: Ordering) {
        let (word, shift) = Bucket::<K, V>::value_at(slot);
        let others = self.load(bucket, word) & !(Bucket::<K, V>::VALUE_MASK << shift);
        self.word(bucket, word).store(others | value.to_bits() << shift, ordering);
    }

    /// Writes an entry into a free slot. Readers find it after the second store of the header.
    pub(super) fn write(&self, bucket: u32, slot: usize, key: K, value: V) {
        let header = self.header(bucket).bumped();
        self.set_header(bucket, header);
        // Pairs with the fence of a reader that still sees the slot's last occupant: a reader that
        // loads any word stored below sees the new version afterwards.
        fence(Ordering::Release);
        let low = key.low() << Bucket::<K, V>::KEY_SHIFT;
        let low = if Bucket::<K, V>::PACKED { low | value.to_bits() } else { low };
        self.word(bucket, Bucket::<K, V>::KEYS + slot).store(low, Ordering::Relaxed);
        if K::WORDS == 2 {
            self.word(bucket, Bucket::<K, V>::HIGHS + slot).store(key.high(), Ordering::Relaxed);
        }
        if !Bucket::<K, V>::PACKED {
            self.store_value(bucket, slot, value, Ordering::Relaxed);
        }
        self.set_header(bucket, header.with_slot(slot));
    }

    /// Frees a slot. Its words stay unchanged until the next `write`.
    pub(super) fn clear(&self, bucket: u32, slot: usize) {
        self.set_header(bucket, self.header(bucket).without_slot(slot));
    }

    /// Replaces the value of an occupied slot by one store.
    pub(super) fn set_value(&self, bucket: u32, slot: usize, value: V) {
        self.store_value(bucket, slot, value, Ordering::Release);
    }

    /// Notes that a key of these candidates will live in its second bucket, or is about to move
    /// there.
    pub(super) fn mark(&self, candidates: Candidates) {
        self.set_header(
            candidates.home,
            self.header(candidates.home).bumped().marked_more(candidates.second),
        );
    }

    /// Corrects a marker that has lost count.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn correct(&self, bucket: u32, second: u32, count: u64) {
        self.set_header(bucket, self.header(bucket).bumped().with_marker(second, count));
    }

    /// Notes that a key of these candidates left its second bucket, or is about to, being at home.
    pub(super) fn unmark(&self, candidates: Candidates) {
        self.set_header(
            candidates.home,
            self.header(candidates.home).bumped().marked_less(candidates.second),
        );
    }

    /// Moves an entry to its other bucket, where `free` is a free slot. Writes there first, so that
    /// the key is never absent, then bumps the version of its home, then clears here. Returns the
    /// new `second`, the number of entries in their second bucket.
    pub(super) fn displace(&self, bucket: u32, slot: usize, free: usize, second: u64) -> u64 {
        let key = self.key(bucket, slot);
        let candidates = self.candidates(key);
        self.write(candidates.other(bucket), free, key, self.value(bucket, slot));
        let leaves_home = bucket == candidates.home;
        if leaves_home {
            self.mark(candidates);
        } else {
            self.unmark(candidates);
        }
        self.clear(bucket, slot);
        if leaves_home { second + 1 } else { second.saturating_sub(1) }
    }
}
