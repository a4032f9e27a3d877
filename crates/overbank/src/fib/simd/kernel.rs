//! The lookups, written once for every instruction set and shape.
//!
//! What makes them right is on the page of the module `fib`. A burst goes in two rounds
//! (Algorithm 3 of the paper): ask for the home lines, compare them, and ask for the second line of
//! the few keys that need it; compare these. The homes are asked for [`AHEAD`] keys before they are
//! compared and not all at once: a core has so many lines under way and no more, and whoever asks for
//! 64 waits for 40 before the first is compared. Neither round branches on what it finds. A burst in
//! which a bucket changed under the comparison is looked up again key by key.
//!
//! A burst alone waits for memory twice, at its begin and at its end. Who names the *next* burst has its
//! homes asked for between the comparisons of this one, and both waits are filled with the other's.

use core::mem::MaybeUninit;

use super::Simd;
use crate::fib::key::{Key, Value};
use crate::fib::place::{Hasher, Place, place};
use crate::fib::shape::{Header, LINE, Shape};
use crate::fib::sync::{AtomicU64, Ordering, fence};
use crate::fib::table::BURST_MAX;
use crate::prefetch;

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
/// Sapphire Rapids), so that none of its buffers is idle, and comparisons fill the wait for the next.
const AHEAD: usize = 24;

/// # Safety
/// As [`one`].
#[inline(always)]
pub(super) unsafe fn batch<S: Simd, K: Key, V: Value>(
    view: &View,
    keys: &[K],
    values: &mut [V],
    next: Option<&[K]>,
) -> u64 {
    let count = keys.len().min(values.len()).min(BURST_MAX);
    let (keys, values) = (&keys[..count], &mut values[..count]);
    // Not initialised: that would be a sixth of the instructions.
    let mut places = [const { MaybeUninit::<Place>::uninit() }; BURST_MAX];
    // Headers of their homes.
    let mut seen = [const { MaybeUninit::<Header>::uninit() }; BURST_MAX];
    // Keys that may be in their second bucket.
    let mut pending = [const { MaybeUninit::<u8>::uninit() }; BURST_MAX];
    let (mut open, mut hits, mut changed) = (0usize, 0u64, 0u64);
    let ask = |bucket: u32| {
        // SAFETY: less than `buckets`, and a bucket has STRIDE words.
        unsafe {
            let bucket = view.bucket::<K, V>(bucket);
            prefetch(&*bucket);
            if Shape::<K, V>::LINES == 2 {
                prefetch(&*bucket.add(LINE));
            }
        }
    };
    let ask_home = |key: K| {
        let place = view.place(key);
        ask(place.home);
        place
    };
    // Who names the next burst named this one before.
    let asked = next.is_some();
    let next = next.unwrap_or_default();
    let ahead = count.min(AHEAD);
    // SAFETY: home and second are less than `buckets`, i < count <= BURST_MAX, and open <= i. The
    // place of a key is initialised `ahead` keys before it is looked up, and what is pending, and the
    // header seen in its home, below `open`. The rest is the caller's promise.
    unsafe {
        let place_of = |key: K| if asked { view.place(key) } else { ask_home(key) };
        for (place, &key) in places.iter_mut().zip(&keys[..ahead]) {
            place.write(place_of(key));
        }
        for i in 0..count {
            if let Some(&key) = keys.get(i + ahead) {
                places.get_unchecked_mut(i + ahead).write(place_of(key));
            }
            if let Some(&key) = next.get(i) {
                ask_home(key);
            }
            let Place { home, second } = places.get_unchecked(i).assume_init();
            let key = *keys.get_unchecked(i);
            let first = look::<S, K, V>(view.bucket::<K, V>(home), key);
            pending.get_unchecked_mut(open).write(i as u8);
            seen.get_unchecked_mut(open).write(first.header);
            let go_on = first.header.marked(second) & !first.found;
            // The home again if all is settled: no branch, and that line is here.
            ask(home ^ ((home ^ second) & u32::from(go_on).wrapping_neg()));
            open += usize::from(go_on);
            *values.get_unchecked_mut(i) = first.value;
            hits |= u64::from(first.found) << i;
            changed |= first.changed;
        }
        for &key in next.iter().take(BURST_MAX).skip(count) {
            ask_home(key);
        }
        for (i, seen) in pending.iter().zip(&seen).take(open) {
            let i = usize::from(i.assume_init());
            let Place { home, second } = places.get_unchecked(i).assume_init();
            let key = *keys.get_unchecked(i);
            let other = look::<S, K, V>(view.bucket::<K, V>(second), key);
            let home = header(view.bucket::<K, V>(home), Ordering::Relaxed);
            *values.get_unchecked_mut(i) = other.value;
            hits |= u64::from(other.found) << i;
            changed |= other.changed | seen.assume_init().difference(home);
        }
        if changed >> 32 != 0 {
            return again::<S, K, V>(view, keys, values);
        }
    }
    hits
}

/// The burst key by key, after the writer came into the first round.
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
