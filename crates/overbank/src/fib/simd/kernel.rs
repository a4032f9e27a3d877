//! The lookups, written once for every instruction set and shape.
//!
//! What makes them right is on the page of the module `fib`. A burst goes in two rounds
//! (Algorithm 3 of the paper): hash all keys and ask for their home lines; compare those, and ask
//! for the second line of the few keys that need it; compare these. Neither round branches on what
//! it finds. A key whose bucket changed under the comparison starts again, alone.

use super::Simd;
use crate::fib::key::{Key, Value};
use crate::fib::place::{self, Hasher};
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
    fn hash<K: Key>(&self, key: K) -> u64 {
        self.hasher.hash(K::WORDS, key.low(), key.high())
    }
}

/// What one look at a bucket gave.
struct Look<V> {
    /// The bucket's header before anything else was read.
    header: Header,
    /// Whether a slot that it calls occupied has the key.
    found: bool,
    /// That slot's value; any slot's if there is none.
    value: V,
    /// Whether nothing that was read can belong to a later occupant of a slot.
    stable: bool,
}

#[inline(always)]
unsafe fn header(bucket: *const AtomicU64, ordering: Ordering) -> Header {
    // SAFETY: the caller's promise: a bucket.
    Header(unsafe { (*bucket).load(ordering) })
}

/// # Safety
/// A bucket of a table of this shape; the CPU has the instruction set.
#[inline(always)]
unsafe fn look<S: Simd, K: Key, V: Value>(bucket: *const AtomicU64, key: K) -> Look<V> {
    let slots = Shape::<K, V>::SLOTS;
    // SAFETY: all words read are the bucket's: slots < SLOTS, `equal` reads its one or two lines.
    unsafe {
        // Acquire: all that was stored before this header was is visible below.
        let before = header(bucket, Ordering::Acquire);
        let low = key.low() << Shape::<K, V>::KEY_SHIFT;
        let mut matching =
            S::equal(bucket, low, Shape::<K, V>::KEY_MASK, 1 + slots) >> Shape::<K, V>::KEYS;
        if K::WORDS == 2 {
            let end = Shape::<K, V>::HIGHS + slots;
            let mut highs = S::equal(bucket, key.high(), u64::MAX, end.min(LINE));
            if end > LINE {
                // Word 8 counts as well, but `equal` leaves out the first of a line.
                let first = (*bucket.add(LINE)).load(Ordering::Relaxed) == key.high();
                let rest = S::equal(bucket.add(LINE), key.high(), u64::MAX, end - LINE) & !1;
                highs = highs & 0xff | (rest | u32::from(first)) << LINE;
            }
            matching &= highs >> Shape::<K, V>::HIGHS;
        }
        matching &= before.occupied();
        // No match: the last slot, whose value nobody will look at.
        let slot = (matching | 1 << (slots - 1)).trailing_zeros() as usize;
        let (word, shift) = Shape::<K, V>::value_at(slot);
        let value = V::from_bits((*bucket.add(word)).load(Ordering::Relaxed) >> shift);
        // Pairs with the writer's fence between the new version and the first store into a slot: if
        // any load above saw such a store, the load below sees the version.
        fence(Ordering::Acquire);
        let after = header(bucket, Ordering::Relaxed);
        Look { header: before, found: matching != 0, value, stable: before.same_version(after) }
    }
}

/// # Safety
/// The view is of a table of these types; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn one<S: Simd, K: Key, V: Value>(view: &View, key: K) -> Option<V> {
    let hash = view.hash(key);
    // SAFETY: home and second are less than `buckets`; the rest is the caller's promise.
    unsafe {
        let home = view.bucket::<K, V>(place::home(hash, view.buckets));
        let second = view.bucket::<K, V>(place::second(hash, view.buckets));
        // A round that decides nothing means that the writer stored into one of the two buckets in
        // those few nanoseconds. A writer that sleeps, wherever it was, changes no version.
        loop {
            let first = look::<S, K, V>(home, key);
            if first.found {
                if first.stable {
                    return Some(first.value);
                }
                continue;
            }
            if !first.header.marked(place::class(hash)) {
                if first.stable {
                    return None;
                }
                continue;
            }
            let other = look::<S, K, V>(second, key);
            if other.found {
                if other.stable {
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

/// # Safety
/// As [`one`].
#[inline(always)]
pub(super) unsafe fn batch<S: Simd, K: Key, V: Value>(
    view: &View,
    keys: &[K],
    values: &mut [V],
) -> u64 {
    let count = keys.len().min(values.len()).min(BURST_MAX);
    let (keys, values) = (&keys[..count], &mut values[..count]);
    let mut hashes = [0u64; BURST_MAX];
    // Keys that the first round did not settle, and the headers of their homes at that time.
    let mut pending = [0u8; BURST_MAX];
    let mut headers = [Header(0); BURST_MAX];
    let (mut open, mut hits) = (0usize, 0u64);
    let ask = |bucket: *const AtomicU64| {
        // SAFETY: a bucket of the table has STRIDE words.
        unsafe {
            prefetch(&*bucket);
            if Shape::<K, V>::LINES == 2 {
                prefetch(&*bucket.add(LINE));
            }
        }
    };
    // SAFETY: home and second are less than `buckets`; the rest is the caller's promise.
    unsafe {
        for (hash, &key) in hashes.iter_mut().zip(keys) {
            *hash = view.hash(key);
            ask(view.bucket::<K, V>(place::home(*hash, view.buckets)));
        }
        for i in 0..count {
            let hash = hashes[i % BURST_MAX];
            let home = view.bucket::<K, V>(place::home(hash, view.buckets));
            let first = look::<S, K, V>(home, keys[i]);
            let hit = first.found & first.stable;
            let absent = !first.found & first.stable & !first.header.marked(place::class(hash));
            values[i] = V::from_bits(first.value.to_bits() & u64::from(hit).wrapping_neg());
            hits |= u64::from(hit) << i;
            pending[open % BURST_MAX] = i as u8;
            headers[open % BURST_MAX] = first.header;
            open += usize::from(!(hit | absent));
            // The home again if all is settled: no branch, and that line is here.
            let second = view.bucket::<K, V>(place::second(hash, view.buckets));
            ask(if hit | absent { home } else { second });
        }
        for (&i, &before) in pending.iter().zip(&headers).take(open) {
            let i = usize::from(i);
            let hash = hashes[i % BURST_MAX];
            let home = view.bucket::<K, V>(place::home(hash, view.buckets));
            let second = view.bucket::<K, V>(place::second(hash, view.buckets));
            let other = look::<S, K, V>(second, keys[i]);
            let value = if other.found & other.stable {
                Some(other.value)
            } else if !other.found && before.same_version(header(home, Ordering::Relaxed)) {
                // If the key was found at home in the first round, that look was not stable, so the
                // version was another one already.
                None
            } else {
                one::<S, K, V>(view, keys[i])
            };
            if let Some(value) = value {
                values[i] = value;
                hits |= 1 << i;
            }
        }
    }
    hits
}
