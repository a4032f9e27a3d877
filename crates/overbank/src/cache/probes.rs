//! A burst of lookups: what was found, what of it is right, and what is reported.
//!
//! ```text
//!   hashes ─ probe_batch ─▶ Probes ─ resolve: is it this key's? ─▶ Hits ─ commit ─▶ counts, policy
//! ```

use super::dynamic::DynCache;
use crate::hash::Hash64;

/// Most keys of one probe.
pub const BURST: usize = 32;

/// Of a key without a slot.
pub(crate) const MISS: u8 = u8::MAX;

/// One of a key's candidate slots, below 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// Returns the slot of this number, if it is one.
    pub const fn new(number: u8) -> Option<Slot> {
        if number < u32::BITS as u8 { Some(Slot(number)) } else { None }
    }

    /// Returns its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// A set of numbers below 32: keys of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mask(pub(crate) u32);

impl Mask {
    /// Returns the numbers below `count`, [`BURST`] at most.
    pub const fn first(count: usize) -> Mask {
        Mask(keys(if count < BURST { count } else { BURST }))
    }

    /// Returns the numbers of both sets.
    #[must_use]
    pub const fn and(self, other: Mask) -> Mask {
        Mask(self.0 & other.0)
    }

    /// Returns a bit for each number, the lowest for 0.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns how many numbers there are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the number is one of them.
    pub const fn contains(self, number: usize) -> bool {
        number < BURST && self.0 >> number & 1 == 1
    }

    /// Iterates over the numbers, the lowest first.
    #[inline]
    pub const fn iter(self) -> Ones {
        Ones(self.0)
    }
}

impl IntoIterator for Mask {
    type Item = usize;
    type IntoIter = Ones;

    #[inline]
    fn into_iter(self) -> Ones {
        self.iter()
    }
}

/// Iterates over the numbers of a [`Mask`].
#[derive(Clone, Debug)]
pub struct Ones(u32);

impl Iterator for Ones {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let number = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(number)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.count_ones() as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Ones {}

/// Iterates over candidate slots, first to last.
#[derive(Clone, Debug)]
pub struct Slots(Ones);

impl Slots {
    /// Returns an iterator over the slots of `mask`.
    #[inline]
    pub(crate) const fn of(mask: u32) -> Self {
        Self(Ones(mask))
    }
}

impl Iterator for Slots {
    type Item = Slot;

    #[inline]
    fn next(&mut self) -> Option<Slot> {
        self.0.next().map(|number| Slot(number as u8))
    }
}

/// Matches found for each key of a burst: hints, to be verified by the caller.
///
/// Allocated once and used for many probes.
///
/// In cuckoo-lite with room (up to 2, 3 and 4 fifths full with 4, 8 and 16 slots), a second bucket
/// is read only if the first has no match. Rarely, another key in the first bucket has the same
/// fingerprint as an entry in the second; the probe then reports a miss.
/// [`FlowCache::lookup`](super::FlowCache::lookup) and `lookup_batch` read both.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Probes {
    /// One bit per candidate slot of the key whose fingerprint matches. Almost always at most one
    /// bit; a miss shows a bit with a probability of about candidates / 65536.
    pub(crate) mask: [u32; BURST],
    /// The value in the first matching slot. Without a match it is some value of the bucket,
    /// without meaning.
    pub(crate) value: [u32; BURST],
    /// Bit i: key i has a match (`mask[i] != 0`).
    pub(crate) matched: u32,
    /// Number of keys of this probe.
    pub(crate) len: usize,
}

impl Probes {
    /// Returns an empty result.
    pub const fn new() -> Self {
        Self { mask: [0; BURST], value: [0; BURST], matched: 0, len: 0 }
    }

    /// Returns the number of keys of the last probe.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the last probe had no keys.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the keys with a match.
    pub const fn matched(&self) -> Mask {
        Mask(self.matched)
    }

    /// Returns the value in the first matching slot of each key, and for a key without a match some
    /// value without meaning: what they name can be prefetched without a branch.
    #[inline]
    pub fn values(&self) -> &[u32] {
        &self.value[..self.len.min(BURST)]
    }

    /// Returns where [`Probes::values`] of the probes at `this` lie, whatever is probed; for other
    /// languages. Not to be read while `this` is written.
    pub const fn values_at(this: *const Probes) -> *const u32 {
        this.wrapping_byte_add(core::mem::offset_of!(Probes, value)).cast()
    }

    /// Returns where [`Probes::masks`] lie, as [`Probes::values_at`].
    pub const fn masks_at(this: *const Probes) -> *const u32 {
        this.wrapping_byte_add(core::mem::offset_of!(Probes, mask)).cast()
    }

    /// Returns the matching candidate slots of each key: bit `s` for slot `s`.
    #[inline]
    pub fn masks(&self) -> &[u32] {
        &self.mask[..self.len.min(BURST)]
    }

    /// Iterates over the matching candidate slots of key `i`, first to last; empty if `i` is out of
    /// range.
    #[inline]
    pub fn slots(&self, i: usize) -> Slots {
        Slots::of(self.mask.get(i).copied().unwrap_or(0))
    }

    /// Decides which matches are right: `verify(i, value)` says whether the value belongs to the
    /// key of `hashes[i]`. It is asked for each match, in the order of the keys and then of the
    /// slots, until it returns true.
    ///
    /// `cache` and `hashes` are those of the probe.
    #[inline(always)]
    pub fn resolve<C: DynCache + ?Sized>(
        &self,
        cache: &C,
        hashes: &[Hash64],
        mut verify: impl FnMut(usize, u32) -> bool,
    ) -> Hits {
        let mut hits = Hits::none(self.len.min(hashes.len()));
        for (i, &hash) in hashes[..hits.len].iter().enumerate() {
            let mask = self.mask[i];
            if mask == 0 {
                continue;
            }
            if verify(i, self.value[i]) {
                hits.set(i, mask.trailing_zeros() as u8);
            } else {
                hits.refused += 1;
                others(&mut hits, cache, (i, hash, mask & (mask - 1)), &mut verify);
            }
        }
        hits
    }

    /// Decides as [`Self::resolve`] without a branch on what was found, if `verify` has no effect:
    /// it is asked about values without meaning, too.
    #[inline(always)]
    pub fn resolve_branchless<C: DynCache + ?Sized>(
        &self,
        cache: &C,
        hashes: &[Hash64],
        mut verify: impl FnMut(usize, u32) -> bool,
    ) -> Hits {
        let mut hits = Hits::none(self.len.min(hashes.len()));
        for i in 0..hits.len {
            let right = verify(i, self.value[i]) & (self.mask[i] != 0);
            // A miss sets all bits of the slot, which is `MISS`.
            hits.slots[i] = self.mask[i].trailing_zeros() as u8 | u8::from(!right).wrapping_neg();
            hits.hit |= u32::from(right) << i;
        }
        // Wrong first matches, about one lookup in thousands.
        let wrong = self.matched & !hits.hit & keys(hits.len);
        for i in Ones(wrong) {
            hits.refused += 1;
            let left = self.mask[i] & (self.mask[i] - 1);
            others(&mut hits, cache, (i, hashes[i], left), &mut verify);
        }
        hits
    }
}

/// Asks about the matches of a key that follow the first one.
#[cold]
fn others<C: DynCache + ?Sized>(
    hits: &mut Hits,
    cache: &C,
    (i, hash, mask): (usize, Hash64, u32),
    verify: &mut impl FnMut(usize, u32) -> bool,
) {
    for slot in Slots::of(mask) {
        if verify(i, cache.candidate(hash, slot)) {
            return hits.set(i, slot.0);
        }
        hits.refused += 1;
    }
}

/// Returns a bit for each key of a burst of `len`.
const fn keys(len: usize) -> u32 {
    ((1u64 << len) - 1) as u32
}

impl Default for Probes {
    fn default() -> Self {
        Self::new()
    }
}

/// What was verified of a burst. To be reported by [`FlowCache::commit`](super::FlowCache::commit).
#[derive(Clone, Debug)]
pub struct Hits {
    slots: [u8; BURST],
    hit: u32,
    len: usize,
    refused: u64,
}

impl Hits {
    /// Returns a report of `len` keys, [`BURST`] at most, of which none was found.
    #[inline]
    pub const fn none(len: usize) -> Hits {
        let len = if len < BURST { len } else { BURST };
        Hits { slots: [MISS; BURST], hit: 0, len, refused: 0 }
    }

    /// Returns a report of the slots in which the keys of a burst were found. Ignores those past
    /// [`BURST`].
    #[inline(always)]
    pub fn of(found: impl ExactSizeIterator<Item = Option<Slot>>) -> Hits {
        let mut hits = Hits::none(found.len());
        for (place, slot) in hits.slots.iter_mut().zip(found) {
            *place = slot.map_or(MISS, Slot::get);
        }
        // The top bit of each byte that is a slot, eight at a time, gathered by a product.
        let (words, _) = hits.slots.as_chunks::<8>();
        for (i, &word) in words.iter().enumerate() {
            let slots = !u64::from_le_bytes(word) & 0x8080_8080_8080_8080;
            let bits = (slots >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            hits.hit |= (bits as u32) << (8 * i);
        }
        hits
    }

    /// Says that key `i` was found in this slot. Ignores keys that are none of the burst; a slot
    /// that the cache does not have counts as a miss there.
    #[inline]
    pub fn hit(&mut self, i: usize, slot: Slot) {
        if i < self.len {
            self.set(i, slot.0);
        }
    }

    /// Adds matches that were wrong.
    #[inline]
    pub fn refuse(&mut self, count: u64) {
        self.refused = self.refused.saturating_add(count);
    }

    #[inline(always)]
    fn set(&mut self, i: usize, slot: u8) {
        self.slots[i] = slot;
        self.hit |= 1 << i;
    }

    /// Returns the number of keys.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no keys.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the keys that were found.
    pub const fn found(&self) -> Mask {
        Mask(self.hit)
    }

    /// Returns the keys that were not.
    pub const fn missed(&self) -> Mask {
        Mask(!self.hit & keys(self.len))
    }

    /// Returns how many matches were wrong.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the number of each key's slot; for a key that was not found one that is no slot.
    #[inline(always)]
    pub(crate) fn slots(&self) -> &[u8] {
        &self.slots[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_slices() {
        let probes = Probes { len: 3, ..Probes::new() };
        assert_eq!(Probes::values_at(&probes), probes.values().as_ptr());
        assert_eq!(Probes::masks_at(&probes), probes.masks().as_ptr());
    }

    #[test]
    fn hits_of_slots_are_those_said_one_by_one() {
        for len in 0..=BURST + 1 {
            let slot = |i: usize| Slot::new((i * 37 % 61) as u8);
            let mut expected = Hits::none(len);
            for (i, slot) in (0..len).filter_map(|i| Some((i, slot(i)?))) {
                expected.hit(i, slot);
            }
            let hits = Hits::of((0..len).map(slot));
            assert_eq!((hits.slots(), hits.found()), (expected.slots(), expected.found()));
            assert_eq!((hits.len(), hits.missed()), (expected.len(), expected.missed()));
        }
    }
}
