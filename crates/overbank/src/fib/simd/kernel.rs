//! The lookups, written once for every instruction set and shape.
//!
//! The page of the module `fib` explains why they are right. A burst takes two rounds (Algorithm 3
//! of the paper). The first prefetches and compares the home lines, and prefetches the second lines
//! of the few keys that need them; the second compares these. Neither branches on what it finds,
//! except for the number of second lines. If a bucket changed during the comparison, the burst is
//! looked up again key by key.
//!
//! A single burst waits for memory twice, at its begin and at its end. If the caller names the
//! *next* burst, its homes are prefetched before the comparisons of this one, which hides the first
//! wait. In a long list ([`all`]) the second round of a burst follows the first one of the next,
//! which hides the other.
//!
//! The rest of the cost is instructions for each key. So the loop over the homes only compares;
//! hits, and keys that may be in their second buckets, are found for the whole burst in vectors.

use core::mem::MaybeUninit;

use super::Simd;
use crate::fib::bucket::{Bucket, Header, LINE};
use crate::fib::candidates::Home;
use crate::fib::key::{Key, Value, Words as _};
use crate::fib::table::BURST_MAX;
use crate::hash::Hasher;
use crate::prefetch::prefetch_at;
use crate::sync::{AtomicU64, Ordering, fence};

/// A table, as a kernel sees it.
///
/// Invariant, established by `Table`: `words` points to `buckets * Bucket::STRIDE` words, 64-byte
/// aligned, that outlive the view, and `buckets >= 2`.
#[derive(Clone, Copy)]
pub(in crate::fib) struct View {
    pub(in crate::fib) words: *const AtomicU64,
    pub(in crate::fib) buckets: u32,
    pub(in crate::fib) hasher: Hasher,
}

impl View {
    /// Returns a pointer to the header of a bucket, and so to the bucket.
    ///
    /// # Safety
    /// The view is of a table of this shape, and `bucket` is one of its buckets.
    #[inline(always)]
    unsafe fn bucket<K: Key, V: Value>(&self, bucket: u32) -> *const AtomicU64 {
        // SAFETY: inside the table by the caller's promise.
        unsafe { self.words.add(bucket as usize * Bucket::<K, V>::STRIDE) }
    }

    #[inline(always)]
    fn home<K: Key>(&self, key: K) -> Home {
        Home::of(self.hasher.hash(K::WORDS, key.low(), key.high()), self.buckets)
    }
}

/// Result of one look at a bucket.
struct Look<V> {
    /// The bucket's header, read before anything else.
    header: Header,
    /// The occupied slot with the key, as in [`Header::words`]; zero if none.
    words: u32,
    /// That slot's value; zero if none.
    value: V,
    /// Not zero in the high half if the bucket's version changed meanwhile: the words read may then
    /// belong to a later occupant of a slot.
    changed: u64,
}

impl<V> Look<V> {
    #[inline(always)]
    fn found(&self) -> bool {
        self.words != 0
    }

    #[inline(always)]
    fn stable(&self) -> bool {
        self.changed >> 32 == 0
    }
}

#[inline(always)]
unsafe fn header(bucket: *const AtomicU64, ordering: Ordering) -> Header {
    // SAFETY: the caller's promise: a bucket.
    Header(unsafe { (*bucket).load(ordering) })
}

/// Looks at a bucket: returns the occupied slot with the key, its value, and whether all words read
/// belong together.
///
/// # Safety
/// A bucket of a table of this shape; the CPU has the instruction set.
#[inline(always)]
unsafe fn look<S: Simd, K: Key, V: Value>(bucket: *const AtomicU64, key: K) -> Look<V> {
    let slots = Bucket::<K, V>::SLOTS;
    // SAFETY: all words read are the bucket's: `equal` reads its one or two lines, and slot <
    // SLOTS.
    unsafe {
        // Acquire: all that was stored before this header was is visible below.
        let before = header(bucket, Ordering::Acquire);
        let low = key.low() << Bucket::<K, V>::KEY_SHIFT;
        let mut words = S::equal(bucket, low, Bucket::<K, V>::KEY_MASK, 1 + slots);
        if K::WORDS == 2 {
            let end = Bucket::<K, V>::HIGHS + slots;
            let mut highs = S::equal(bucket, key.high(), u64::MAX, end.min(LINE));
            if end > LINE {
                // Word 8 counts as well, but `equal` ignores the first word of a line.
                let first = (*bucket.add(LINE)).load(Ordering::Relaxed) == key.high();
                let rest = S::equal(bucket.add(LINE), key.high(), u64::MAX, end - LINE) & !1;
                highs = highs & 0xff | (rest | u32::from(first)) << LINE;
            }
            words &= highs >> slots;
        }
        let words = words & before.words();
        // No match: the last slot, without its value.
        let slot = (words | 1 << slots).trailing_zeros() as usize - Bucket::<K, V>::KEYS;
        let (word, shift) = Bucket::<K, V>::value_at(slot);
        let bits = (*bucket.add(word)).load(Ordering::Relaxed) >> shift;
        let value = V::from_bits(bits & u64::from(words != 0).wrapping_neg());
        // Pairs with the writer's fence between the new version and the first store into a slot: if
        // any load since `before` saw such a store, the load below sees the version.
        fence(Ordering::Acquire);
        let changed = before.difference(header(bucket, Ordering::Relaxed));
        Look { header: before, words, value, changed }
    }
}

/// # Safety
/// The view is of a table of these types; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn one<S: Simd, K: Key, V: Value>(view: &View, key: K) -> Option<V> {
    let place = view.home(key);
    let other = place.second(view.buckets);
    // SAFETY: home and second are less than `buckets`; the rest is the caller's promise.
    unsafe {
        let home = view.bucket::<K, V>(place.bucket);
        let second = view.bucket::<K, V>(other);
        // An undecided round means that the writer stored into one of the two buckets in those few
        // nanoseconds. A writer that sleeps anywhere changes no version.
        loop {
            let first = look::<S, K, V>(home, key);
            if first.found() {
                if first.stable() {
                    return Some(first.value);
                }
                continue;
            }
            if !first.header.marked(other) {
                if first.stable() {
                    return None;
                }
                continue;
            }
            let other = look::<S, K, V>(second, key);
            if other.found() {
                if other.stable() {
                    return Some(other.value);
                }
                continue;
            }
            // `look` ended with a fence.
            if first.header.same_version(header(home, Ordering::Relaxed)) {
                return None;
            }
        }
    }
}

/// Prefetches a bucket.
///
/// # Safety
/// The view is of a table of this shape, and `bucket` is one of its buckets.
#[inline(always)]
unsafe fn ask<K: Key, V: Value, const FAR: bool>(view: &View, bucket: u32) {
    // SAFETY: the caller's promise, and a bucket has STRIDE words.
    unsafe {
        let bucket = view.bucket::<K, V>(bucket);
        prefetch_at::<FAR>(bucket.cast());
        if Bucket::<K, V>::LINES == 2 {
            prefetch_at::<FAR>(bucket.add(LINE).cast());
        }
    }
}

/// Prefetches a key's home.
///
/// # Safety
/// The view is of a table of this shape.
#[inline(always)]
unsafe fn ask_home<K: Key, V: Value, const FAR: bool>(view: &View, key: K) -> Home {
    let home = view.home(key);
    // SAFETY: less than `buckets`.
    unsafe { ask::<K, V, FAR>(view, home.bucket) };
    home
}

/// A burst between its rounds. Only the elements of keys in the burst are initialised: the rest
/// would be a sixth of the instructions.
struct Burst {
    homes: [MaybeUninit<Home>; BURST_MAX],
    /// Headers seen in the homes.
    seen: [MaybeUninit<Header>; BURST_MAX],
    hits: u64,
    /// Keys that may be in their second buckets.
    open: u64,
    /// As in [`Look`].
    changed: u64,
}

impl Burst {
    #[inline(always)]
    const fn new() -> Burst {
        Burst {
            homes: [const { MaybeUninit::uninit() }; BURST_MAX],
            seen: [const { MaybeUninit::uninit() }; BURST_MAX],
            hits: 0,
            open: 0,
            changed: 0,
        }
    }

    /// Prefetches the homes of all keys.
    ///
    /// # Safety
    /// The view is of a table of this shape.
    #[inline(always)]
    unsafe fn ask<K: Key, V: Value, const FAR: bool>(&mut self, view: &View, keys: &[K]) {
        for (home, &key) in self.homes.iter_mut().zip(keys) {
            // SAFETY: the caller's promise.
            home.write(unsafe { ask_home::<K, V, FAR>(view, key) });
        }
    }

    /// Compares the homes of all keys, and prefetches the second lines that are needed.
    ///
    /// # Safety
    /// As [`one`]; at most BURST_MAX keys, and as many values; `homes` has those of the keys in
    /// this view.
    #[inline(always)]
    unsafe fn first_round<S: Simd, K: Key, V: Value, const FAR: bool>(
        &mut self,
        view: &View,
        keys: &[K],
        values: &mut [V],
    ) {
        let (mut words, mut markers, mut changed) = ([0; BURST_MAX], [0; BURST_MAX], 0);
        let homes = self.homes.iter().zip(&mut self.seen);
        for (((&key, value), word), (home, seen)) in
            keys.iter().zip(values).zip(&mut words).zip(homes)
        {
            // SAFETY: the caller's promises; homes are less than `buckets`.
            unsafe {
                let bucket = view.bucket::<K, V>(home.assume_init().bucket);
                let first = look::<S, K, V>(bucket, key);
                *word = first.words as u8;
                *value = first.value;
                seen.write(first.header);
                changed |= first.changed;
            }
        }
        // A separate loop of fixed length, which the compiler vectorises.
        for i in 0..keys.len().min(BURST_MAX) {
            // SAFETY: as many as there are keys were initialised, and i < BURST_MAX.
            unsafe {
                let home = self.homes.get_unchecked(i).assume_init();
                let seen = self.seen.get_unchecked(i).assume_init();
                *markers.get_unchecked_mut(i) = seen.marker(home.second(view.buckets)) as u8;
            }
        }
        // SAFETY: the CPU has the instruction set.
        (self.hits, self.open) = unsafe { (S::nonzero(&words), S::nonzero(&markers)) };
        self.open &= !self.hits;
        self.changed = changed;
        for i in bits(self.open) {
            // SAFETY: only bits of keys are set, and their homes are initialised; second <
            // `buckets`.
            unsafe {
                let second = self.homes.get_unchecked(i).assume_init().second(view.buckets);
                ask::<K, V, FAR>(view, second);
            }
        }
    }

    /// Compares the second buckets, and returns the hits of the burst.
    ///
    /// # Safety
    /// As [`one`]; [`Burst::first_round`] had the same keys and values.
    #[inline(always)]
    unsafe fn second_round<S: Simd, K: Key, V: Value>(
        &self,
        view: &View,
        keys: &[K],
        values: &mut [V],
    ) -> u64 {
        let (mut hits, mut changed) = (self.hits, self.changed);
        for i in bits(self.open) {
            // SAFETY: `i` is the number of a key, whose home and header are initialised; home and
            // second are less than `buckets`.
            unsafe {
                let place = self.homes.get_unchecked(i).assume_init();
                let second = view.bucket::<K, V>(place.second(view.buckets));
                let other = look::<S, K, V>(second, *keys.get_unchecked(i));
                let home = header(view.bucket::<K, V>(place.bucket), Ordering::Relaxed);
                *values.get_unchecked_mut(i) = other.value;
                hits |= u64::from(other.found()) << i;
                changed |=
                    other.changed | self.seen.get_unchecked(i).assume_init().difference(home);
            }
        }
        if changed >> 32 != 0 {
            // SAFETY: the caller's promises.
            return unsafe { again::<S, K, V>(view, keys, values) };
        }
        hits
    }
}

/// Iterates over the numbers of the bits that are set.
#[inline(always)]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

/// # Safety
/// As [`one`].
#[inline(always)]
pub(super) unsafe fn batch<S: Simd, K: Key, V: Value, const FAR: bool>(
    view: &View,
    keys: &[K],
    values: &mut [V],
    next: Option<&[K]>,
) -> u64 {
    let count = keys.len().min(values.len()).min(BURST_MAX);
    let (keys, values) = (&keys[..count], &mut values[..count]);
    let mut burst = Burst::new();
    // SAFETY: the caller's promises. The homes of all keys are initialised before the first round.
    unsafe {
        if let Some(next) = next {
            for &key in next.iter().take(BURST_MAX) {
                ask_home::<K, V, FAR>(view, key);
            }
            // A caller that names the next burst named this one before.
            for (home, &key) in burst.homes.iter_mut().zip(keys) {
                home.write(view.home(key));
            }
        } else {
            burst.ask::<K, V, FAR>(view, keys);
        }
        burst.first_round::<S, K, V, FAR>(view, keys, values);
        burst.second_round::<S, K, V>(view, keys, values)
    }
}

/// Keys of a burst of [`all`]. One under the model checker, so that bursts of one key overlap.
const STRIDE: usize = if cfg!(feature = "loom") { 1 } else { 32 };

/// Looks up any number of keys, in bursts of [`STRIDE`]. The homes of a burst are prefetched before
/// the previous one is compared. Its second round follows the first one of the next, so only the
/// first and the last burst wait for memory.
///
/// # Safety
/// As [`one`].
#[inline(always)]
pub(super) unsafe fn all<S: Simd, K: Key, V: Value, const FAR: bool>(
    view: &View,
    keys: &[K],
    values: &mut [V],
    hits: &mut [u64],
) {
    let count = keys.len().min(values.len()).min(hits.len().saturating_mul(64));
    let (keys, values) = (&keys[..count], &mut values[..count]);
    let bursts = count.div_ceil(STRIDE);
    let part = |burst: usize| (burst * STRIDE).min(count)..(burst * STRIDE + STRIDE).min(count);
    let mut held = [Burst::new(), Burst::new(), Burst::new()];
    let [mut now, mut next, mut before] = held.each_mut();
    // SAFETY: the caller's promises. The homes of a burst are initialised before its first round.
    unsafe {
        now.ask::<K, V, FAR>(view, &keys[part(0)]);
        for burst in 0..=bursts {
            next.ask::<K, V, FAR>(view, &keys[part(burst + 1)]);
            let (its, places) = (&keys[part(burst)], &mut values[part(burst)]);
            now.first_round::<S, K, V, FAR>(view, its, places);
            if let Some(last) = burst.checked_sub(1) {
                let (its, places) = (&keys[part(last)], &mut values[part(last)]);
                let found = before.second_round::<S, K, V>(view, its, places);
                let at = last * STRIDE;
                let word = hits.get_unchecked_mut(at / 64);
                *word = if at.is_multiple_of(64) { found } else { *word | found << (at % 64) };
            }
            (now, next, before) = (next, before, now);
        }
    }
}

/// Looks up the burst key by key, after the writer changed a bucket during one of the rounds.
///
/// # Safety
/// As [`one`]; at most 64 keys, and as many values.
#[cold]
unsafe fn again<S: Simd, K: Key, V: Value>(view: &View, keys: &[K], values: &mut [V]) -> u64 {
    let mut hits = 0;
    for (i, (&key, place)) in keys.iter().zip(values).enumerate() {
        // SAFETY: the caller's promises.
        let value = unsafe { one::<S, K, V>(view, key) };
        hits |= u64::from(value.is_some()) << i;
        *place = value.unwrap_or_default();
    }
    hits
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::super::Kernels;
    use super::super::portable::Portable;
    use super::*;
    use crate::fib::{Config, MacAddr, Reader, Writer};
    use crate::isa::Isa;
    use std::vec::Vec;

    /// A table that refused an insertion, and twice as many keys as it has entries.
    fn full<K: Key, V: Value>(key: fn(u64) -> K, value: fn(u64) -> V) -> (Reader<K, V>, Vec<K>) {
        let mut writer = Writer::new(&Config::buckets(40).seed(3)).expect("small");
        let count = (0..).take_while(|&i| writer.insert(key(i), value(i)).is_ok()).count() as u64;
        (writer.reader(), (0..2 * count).map(key).collect())
    }

    /// Near and far kernels of every instruction set, whatever the table's size, against single
    /// lookups.
    fn agree<K: Key, V: Value>(key: fn(u64) -> K, value: fn(u64) -> V) {
        let (reader, keys) = full(key, value);
        let due: Vec<Option<V>> = keys.iter().map(|&key| reader.lookup(key)).collect();
        let bits = |due: &[Option<V>]| {
            due.iter().enumerate().fold(0u64, |bits, (i, due)| bits | u64::from(due.is_some()) << i)
        };
        let plain = |due: &[Option<V>]| -> Vec<V> {
            due.iter().map(|due| due.unwrap_or_default()).collect()
        };
        for (isa, far) in Isa::available().flat_map(|isa| [(isa, false), (isa, true)]) {
            let Kernels { batch, all, .. } = Kernels::<K, V>::of(isa, far).expect("available");
            let view = reader.table.view();
            for length in [1, 7, 32, 64] {
                for (keys, due) in keys.chunks(length).zip(due.chunks(length)) {
                    for next in [None, Some(&keys[..0]), Some(keys)] {
                        let mut values = vec_of::<V>(keys.len());
                        // SAFETY: the view is of the reader's table, whose types these are, and the
                        // CPU has the instruction set.
                        let hits = unsafe { batch(&view, keys, &mut values, next) };
                        assert_eq!((hits, values), (bits(due), plain(due)), "{isa}, far: {far}");
                    }
                }
            }
            let (mut values, mut hits) = (vec_of::<V>(keys.len()), vec_of(keys.len().div_ceil(64)));
            // SAFETY: as above.
            unsafe { all(&view, &keys, &mut values, &mut hits) };
            assert_eq!(hits, due.chunks(64).map(bits).collect::<Vec<_>>(), "{isa}, far: {far}");
            assert_eq!(values, plain(&due), "{isa}, far: {far}");
        }
    }

    fn vec_of<T: Clone + Default>(count: usize) -> Vec<T> {
        std::vec![T::default(); count]
    }

    fn mac(number: u64) -> MacAddr {
        MacAddr::new(number.wrapping_mul(0x9e37_79b9_7f4b) & 0xffff_ffff_ffff).expect("48 bits")
    }

    fn wide(number: u64) -> u128 {
        u128::from(number) << 64 | u128::from(number % 5)
    }

    #[test]
    fn near_and_far_kernels_agree() {
        agree::<MacAddr, u16>(mac, |i| i as u16 + 1);
        agree::<u64, u16>(|i| i, |i| i as u16 + 1);
        agree::<u64, u32>(|i| i << 9, |i| i as u32 + 1);
        agree::<u64, u64>(|i| i << 40, |i| i + 1);
        agree::<u128, u16>(wide, |i| i as u16 + 1);
        agree::<u128, u32>(wide, |i| i as u32 + 1);
        agree::<u128, u64>(wide, |i| i + 1);
    }

    /// Answers would be the same with more of them, and later.
    #[test]
    fn second_lines_are_prefetched_only_if_the_home_says_so() {
        let (reader, keys) = full::<MacAddr, u16>(mac, |i| i as u16);
        let view = reader.table.view();
        let (mut open, mut settled) = (0, 0);
        for keys in keys.chunks(BURST_MAX) {
            let mut burst = Burst::new();
            let mut values = [0; BURST_MAX];
            // SAFETY: the view is of a table of these types; every CPU has the portable lookups.
            unsafe {
                burst.ask::<MacAddr, u16, false>(&view, keys);
                burst.first_round::<Portable, MacAddr, u16, false>(&view, keys, &mut values);
            }
            for (i, &key) in keys.iter().enumerate() {
                let home = view.home(key);
                let marked =
                    reader.table.seen_header(home.bucket).marked(home.second(view.buckets));
                let hit = burst.hits >> i & 1 == 1;
                assert_eq!(burst.open >> i & 1 == 1, marked && !hit);
                open += usize::from(marked && !hit);
                settled += usize::from(!marked && !hit);
            }
        }
        assert!(open > 20 && settled > 20, "{open} of each kind, {settled}");
    }
}
