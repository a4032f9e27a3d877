//! The lookups, written once for every instruction set and shape.
//!
//! What makes them right is on the page of the module `fib`. A burst goes in two rounds
//! (Algorithm 3 of the paper): ask for the home lines, compare them, and ask for the second line of
//! the few keys that need it; compare these. Neither round branches on what it finds. A burst in
//! which a bucket changed under the comparison is looked up again key by key.
//!
//! A burst alone asks for its homes [`ahead`] keys before they are compared and not for all at once: a
//! core has so many lines under way and no more, and whoever asks for 64 waits for 40 before the first
//! is compared. It waits for memory twice, at its begin and at its end. Who names the *next* burst has its
//! homes asked for between the comparisons of this one, which fills the first wait. Of a long list
//! ([`all`]) the second round of a burst comes after the first one of the next, which fills the other.

use core::mem::MaybeUninit;

use super::Simd;
use crate::fib::key::{Key, Value};
use crate::fib::place::{Hasher, Place, place};
use crate::fib::shape::{Header, LINE, Shape};
use crate::fib::sync::{AtomicU64, Ordering, fence};
use crate::fib::table::BURST_MAX;
use crate::prefetch::prefetch_at;

/// A table, as a kernel sees it.
///
/// Invariant, made by `Table` and relied on here: at `words` lie `buckets * Shape::STRIDE` words,
/// 64-byte aligned, that live as long as the view is used, and `buckets >= 2`.
#[derive(Clone, Copy)]
pub(in crate::fib) struct View {
    pub(in crate::fib) words: *const AtomicU64,
    pub(in crate::fib) buckets: u32,
    pub(in crate::fib) hasher: Hasher,
}

impl View {
    /// The header of a bucket, and with it the bucket.
    ///
    /// # Safety
    /// The view is of a table of this shape, and `bucket` is one of its buckets.
    #[inline(always)]
    unsafe fn bucket<K: Key, V: Value>(&self, bucket: u32) -> *const AtomicU64 {
        // SAFETY: inside the table by the caller's promise.
        unsafe { self.words.add(bucket as usize * Shape::<K, V>::STRIDE) }
    }

    #[inline(always)]
    fn place<K: Key>(&self, key: K) -> Place {
        place(self.hasher.hash(K::WORDS, key.low(), key.high()), self.buckets)
    }
}

/// What one look at a bucket gave.
struct Look<V> {
    /// The bucket's header before anything else was read.
    header: Header,
    /// Whether a slot that it calls occupied has the key.
    found: bool,
    /// That slot's value; zero if there is none.
    value: V,
    /// Not zero in the high half if the bucket's version changed meanwhile: what was read may belong
    /// to a later occupant of a slot.
    changed: u64,
}

impl<V> Look<V> {
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

/// Looks at a bucket: the slot that the header calls occupied and that has the key, its value, and
/// whether all that was read belongs together.
///
/// # Safety
/// A bucket of a table of this shape; the CPU has the instruction set.
#[inline(always)]
unsafe fn look<S: Simd, K: Key, V: Value>(bucket: *const AtomicU64, key: K) -> Look<V> {
    let slots = Shape::<K, V>::SLOTS;
    // SAFETY: all words read are the bucket's: `equal` reads its one or two lines, and slot < SLOTS.
    unsafe {
        // Acquire: all that was stored before this header was is visible below.
        let before = header(bucket, Ordering::Acquire);
        let low = key.low() << Shape::<K, V>::KEY_SHIFT;
        let mut words = S::equal(bucket, low, Shape::<K, V>::KEY_MASK, 1 + slots);
        if K::WORDS == 2 {
            let end = Shape::<K, V>::HIGHS + slots;
            let mut highs = S::equal(bucket, key.high(), u64::MAX, end.min(LINE));
            if end > LINE {
                // Word 8 counts as well, but `equal` leaves out the first of a line.
                let first = (*bucket.add(LINE)).load(Ordering::Relaxed) == key.high();
                let rest = S::equal(bucket.add(LINE), key.high(), u64::MAX, end - LINE) & !1;
                highs = highs & 0xff | (rest | u32::from(first)) << LINE;
            }
            words &= highs >> slots;
        }
        let words = words & before.words();
        // No match: the last slot, and nothing of its value.
        let slot = (words | 1 << slots).trailing_zeros() as usize - Shape::<K, V>::KEYS;
        let (word, shift) = Shape::<K, V>::value_at(slot);
        let found = words != 0;
        let bits = (*bucket.add(word)).load(Ordering::Relaxed) >> shift;
        let value = V::from_bits(bits & u64::from(found).wrapping_neg());
        // Pairs with the writer's fence between the new version and the first store into a slot: if
        // any load since `before` saw such a store, the load below sees the version.
        fence(Ordering::Acquire);
        let changed = before.difference(header(bucket, Ordering::Relaxed));
        Look { header: before, found, value, changed }
    }
}

/// # Safety
/// The view is of a table of these types; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn one<S: Simd, K: Key, V: Value>(view: &View, key: K) -> Option<V> {
    let place = view.place(key);
    // SAFETY: home and second are less than `buckets`; the rest is the caller's promise.
    unsafe {
        let home = view.bucket::<K, V>(place.home);
        let second = view.bucket::<K, V>(place.second);
        // A round that decides nothing means that the writer stored into one of the two buckets in
        // those few nanoseconds. A writer that sleeps, wherever it was, changes no version.
        loop {
            let first = look::<S, K, V>(home, key);
            if first.found {
                if first.stable() {
                    return Some(first.value);
                }
                continue;
            }
            if !first.header.marked(place.second) {
                if first.stable() {
                    return None;
                }
                continue;
            }
            let other = look::<S, K, V>(second, key);
            if other.found {
                if other.stable() {
                    return Some(other.value);
                }
                continue;
            }
            // `look` had a fence.
            if first.header.same_version(header(home, Ordering::Relaxed)) {
                return None;
            }
        }
    }
}

/// Home lines under way while a key is compared: some more than a core fetches at a time (16 on
/// Sapphire Rapids), so that none of its buffers is idle, and comparisons fill the wait for the next. More
/// of a [far](crate::prefetch_far) table, for whose lines there are more buffers.
const fn ahead(far: bool) -> usize {
    if far { 32 } else { 24 }
}

/// Asks for a bucket.
///
/// # Safety
/// The view is of a table of this shape, and `bucket` is one of its buckets.
#[inline(always)]
unsafe fn ask<K: Key, V: Value, const FAR: bool>(view: &View, bucket: u32) {
    // SAFETY: the caller's promise, and a bucket has STRIDE words.
    unsafe {
        let bucket = view.bucket::<K, V>(bucket);
        prefetch_at::<FAR>(bucket.cast());
        if Shape::<K, V>::LINES == 2 {
            prefetch_at::<FAR>(bucket.add(LINE).cast());
        }
    }
}

/// Asks for a key's home.
///
/// # Safety
/// The view is of a table of this shape.
#[inline(always)]
unsafe fn ask_home<K: Key, V: Value, const FAR: bool>(view: &View, key: K) -> Place {
    let place = view.place(key);
    // SAFETY: less than `buckets`.
    unsafe { ask::<K, V, FAR>(view, place.home) };
    place
}

/// Where the keys of a burst may live. Not initialised: that would be a sixth of the instructions.
type Places = [MaybeUninit<Place>; BURST_MAX];

/// A burst between its two rounds.
struct Burst {
    places: Places,
    /// Keys that may be in their second bucket, and the headers seen in their homes: initialised below
    /// `open`.
    pending: [MaybeUninit<u8>; BURST_MAX],
    seen: [MaybeUninit<Header>; BURST_MAX],
    open: usize,
    hits: u64,
    /// As in [`Look`].
    changed: u64,
}

impl Burst {
    #[inline(always)]
    fn new() -> Burst {
        Burst {
            places: [const { MaybeUninit::uninit() }; BURST_MAX],
            pending: [const { MaybeUninit::uninit() }; BURST_MAX],
            seen: [const { MaybeUninit::uninit() }; BURST_MAX],
            open: 0,
            hits: 0,
            changed: 0,
        }
    }

    /// Compares the homes of all keys, and asks for the second lines that are needed. Before key `i`,
    /// `meanwhile(i, places)` is called.
    ///
    /// # Safety
    /// As [`one`]; at most BURST_MAX keys, and as many values; the place of key `i` in this view is in
    /// `places` when `meanwhile(i, …)` returns.
    #[inline(always)]
    unsafe fn first_round<S: Simd, K: Key, V: Value, const FAR: bool>(
        &mut self,
        view: &View,
        keys: &[K],
        values: &mut [V],
        mut meanwhile: impl FnMut(usize, &mut Places),
    ) {
        let (mut open, mut hits, mut changed) = (0usize, 0u64, 0u64);
        for (i, (&key, value)) in keys.iter().zip(values).enumerate() {
            meanwhile(i, &mut self.places);
            // SAFETY: the caller's promises; home and second are less than `buckets`, and
            // open <= i < BURST_MAX.
            unsafe {
                let Place { home, second } = self.places.get_unchecked(i).assume_init();
                let first = look::<S, K, V>(view.bucket::<K, V>(home), key);
                self.pending.get_unchecked_mut(open).write(i as u8);
                self.seen.get_unchecked_mut(open).write(first.header);
                let go_on = first.header.marked(second) & !first.found;
                // The home again if all is settled: no branch, and that line is here.
                ask::<K, V, FAR>(view, home ^ ((home ^ second) & u32::from(go_on).wrapping_neg()));
                open += usize::from(go_on);
                *value = first.value;
                hits |= u64::from(first.found) << i;
                changed |= first.changed;
            }
        }
        (self.open, self.hits, self.changed) = (open, hits, changed);
    }

    /// Compares the second buckets, and gives the hits of the burst.
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
        for (i, seen) in self.pending.iter().zip(&self.seen).take(self.open) {
            // SAFETY: initialised below `open`; `i` is the number of a key, and its place is
            // initialised, home and second less than `buckets`.
            unsafe {
                let i = usize::from(i.assume_init());
                let Place { home, second } = self.places.get_unchecked(i).assume_init();
                let other = look::<S, K, V>(view.bucket::<K, V>(second), *keys.get_unchecked(i));
                let home = header(view.bucket::<K, V>(home), Ordering::Relaxed);
                *values.get_unchecked_mut(i) = other.value;
                hits |= u64::from(other.found) << i;
                changed |= other.changed | seen.assume_init().difference(home);
            }
        }
        if changed >> 32 != 0 {
            // SAFETY: the caller's promises.
            return unsafe { again::<S, K, V>(view, keys, values) };
        }
        hits
    }
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
    // SAFETY: the caller's promises. The place of a key is initialised `ahead` keys before it is
    // looked up, or with all others before the first.
    unsafe {
        // Who names the next burst named this one before.
        if let Some(next) = next {
            for (place, &key) in burst.places.iter_mut().zip(keys) {
                place.write(view.place(key));
            }
            burst.first_round::<S, K, V, FAR>(view, keys, values, |i, _| {
                if let Some(&key) = next.get(i) {
                    ask_home::<K, V, FAR>(view, key);
                }
            });
            for &key in next.iter().take(BURST_MAX).skip(count) {
                ask_home::<K, V, FAR>(view, key);
            }
        } else {
            let ahead = count.min(ahead(FAR));
            for (place, &key) in burst.places.iter_mut().zip(&keys[..ahead]) {
                place.write(ask_home::<K, V, FAR>(view, key));
            }
            burst.first_round::<S, K, V, FAR>(view, keys, values, |i, places| {
                if let Some(&key) = keys.get(i + ahead) {
                    places.get_unchecked_mut(i + ahead).write(ask_home::<K, V, FAR>(view, key));
                }
            });
        }
        burst.second_round::<S, K, V>(view, keys, values)
    }
}

/// Keys of a burst of [`all`]. One under the model checker, so that bursts of one key overlap.
const STRIDE: usize = if cfg!(loom) { 1 } else { 32 };

/// Any number of keys, in bursts of [`STRIDE`]. The second round of a burst comes after the first one of
/// the next, so that memory is waited for at the begin and at the end only.
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
    // SAFETY: the caller's promises. The places of a burst are initialised before its first round, in
    // that of the burst before it.
    unsafe {
        for (place, &key) in now.places.iter_mut().zip(&keys[part(0)]) {
            place.write(ask_home::<K, V, FAR>(view, key));
        }
        for burst in 0..=bursts {
            let upcoming = &keys[part(burst + 1)];
            now.first_round::<S, K, V, FAR>(
                view,
                &keys[part(burst)],
                &mut values[part(burst)],
                |i, _| {
                    if let Some(&key) = upcoming.get(i) {
                        next.places.get_unchecked_mut(i).write(ask_home::<K, V, FAR>(view, key));
                    }
                },
            );
            if let Some(last) = burst.checked_sub(1) {
                let found = before.second_round::<S, K, V>(
                    view,
                    &keys[part(last)],
                    &mut values[part(last)],
                );
                let at = last * STRIDE;
                let word = hits.get_unchecked_mut(at / 64);
                *word = if at.is_multiple_of(64) { found } else { *word | found << (at % 64) };
            }
            (now, next, before) = (next, before, now);
        }
    }
}

/// The burst key by key, after the writer came into one of the rounds.
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
