//! A burst of lookups: what was found, what of it is right, and what is reported.
//!
//! ```text
//!   hashes ─ probe_batch ─▶ Probes ─ resolve: is it this key's? ─▶ Hits ─ commit ─▶ counts, policy
//! ```

use super::dynamic::DynCache;
use crate::hash::Hash64;

/// Most keys of one probe.
pub const BURST: usize = 32;

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
    /// Returns the set of the numbers whose bits are set.
    pub const fn new(bits: u32) -> Self {
        Self(bits)
    }

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

    /// Puts another match in the place of key `i`'s; without one it is a miss. Ignores keys that
    /// the probe does not have. A slot counts modulo the candidates of the cache that it is
    /// reported to.
    pub fn replace(&mut self, i: usize, found: Option<(Slot, u32)>) {
        if i >= self.len() {
            return;
        }
        self.mask[i] = found.map_or(0, |(slot, _)| 1 << slot.0);
        self.value[i] = found.map_or(self.value[i], |(_, value)| value);
        self.matched = self.matched & !(1 << i) | u32::from(found.is_some()) << i;
    }

    /// Returns the report of a burst in which the first matches of these keys are right.
    #[inline(always)]
    pub fn first_matches(&self, right: Mask) -> Hits<'_> {
        Hits { masks: self.masks(), hit: right.0 & self.matched, refused: 0 }
    }

    /// Decides which matches are right: `verify(i, value)` says whether the value belongs to the
    /// key of `hashes[i]`. It is asked for the first match of each key, in order, and then for the
    /// others of each key whose first is wrong, until it returns true. The right match of a key is
    /// then its first; a key without one is a miss.
    ///
    /// `cache` and `hashes` are those of the probe.
    #[inline(always)]
    pub fn resolve<C: DynCache + ?Sized>(
        &mut self,
        cache: &C,
        hashes: &[Hash64],
        mut verify: impl FnMut(usize, u32) -> bool,
    ) -> Hits<'_> {
        let len = self.len().min(hashes.len());
        let mut hit = 0;
        for (i, (&mask, &value)) in self.mask[..len].iter().zip(&self.value).enumerate() {
            hit |= u32::from(mask != 0 && verify(i, value)) << i;
        }
        self.after_first(cache, &hashes[..len], verify, hit)
    }

    /// Decides as [`Self::resolve`] without a branch on what was found, if `verify` has no effect:
    /// it is asked about values without meaning, too.
    #[inline(always)]
    pub fn resolve_branchless<C: DynCache + ?Sized>(
        &mut self,
        cache: &C,
        hashes: &[Hash64],
        mut verify: impl FnMut(usize, u32) -> bool,
    ) -> Hits<'_> {
        let len = self.len().min(hashes.len());
        let mut hit = 0;
        for (i, &value) in self.value[..len].iter().enumerate() {
            hit |= u32::from(verify(i, value)) << i;
        }
        let hit = hit & self.matched;
        self.after_first(cache, &hashes[..len], verify, hit)
    }

    /// Asks about the other matches of keys whose first was wrong, about one lookup in thousands.
    #[inline(always)]
    fn after_first<C: DynCache + ?Sized>(
        &mut self,
        cache: &C,
        hashes: &[Hash64],
        mut verify: impl FnMut(usize, u32) -> bool,
        mut hit: u32,
    ) -> Hits<'_> {
        let mut refused = 0;
        for i in Ones(self.matched & !hit & keys(hashes.len())) {
            let right = self.others(cache, (i, hashes[i]), &mut verify, &mut refused);
            hit |= u32::from(right) << i;
        }
        Hits { masks: &self.mask[..hashes.len()], hit, refused }
    }

    /// Counts the first match of a key as wrong, and asks about those that follow; puts the right
    /// one in its place.
    #[cold]
    fn others<C: DynCache + ?Sized>(
        &mut self,
        cache: &C,
        (i, hash): (usize, Hash64),
        verify: &mut impl FnMut(usize, u32) -> bool,
        refused: &mut u64,
    ) -> bool {
        let mut found = None;
        for slot in self.slots(i).skip(1) {
            *refused += 1;
            let value = cache.candidate(hash, slot);
            if verify(i, value) {
                found = Some((slot, value));
                break;
            }
        }
        *refused += u64::from(found.is_none());
        self.replace(i, found);
        found.is_some()
    }
}

/// Returns a bit for each key of a burst of `len`.
pub(crate) const fn keys(len: usize) -> u32 {
    ((1u64 << len) - 1) as u32
}

impl Default for Probes {
    fn default() -> Self {
        Self::new()
    }
}

/// What was verified of a burst. To be reported by [`FlowCache::commit`](super::FlowCache::commit).
#[derive(Clone, Debug)]
pub struct Hits<'a> {
    /// The matches of each key; the right one is the first.
    pub(crate) masks: &'a [u32],
    /// Keys that were found.
    pub(crate) hit: u32,
    pub(crate) refused: u64,
}

impl Hits<'_> {
    /// Adds matches that were wrong.
    #[inline]
    pub fn refuse(&mut self, count: u64) {
        self.refused = self.refused.saturating_add(count);
    }

    /// Returns the number of keys.
    pub const fn len(&self) -> usize {
        self.masks.len()
    }

    /// Returns whether there are no keys.
    pub const fn is_empty(&self) -> bool {
        self.masks.is_empty()
    }

    /// Returns the keys that were found.
    pub const fn found(&self) -> Mask {
        Mask(self.hit)
    }

    /// Returns the keys that were not.
    pub const fn missed(&self) -> Mask {
        Mask(!self.hit & keys(self.len()))
    }

    /// Returns how many matches were wrong.
    pub const fn refused(&self) -> u64 {
        self.refused
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
    fn a_hit_needs_a_match() {
        let probes = Probes { len: 3, matched: 5, mask: [6; BURST], ..Probes::new() };
        let hits = probes.first_matches(Mask::new(u32::MAX));
        assert_eq!((hits.len(), hits.found(), hits.missed()), (3, Mask::new(5), Mask::new(2)));
    }

    #[test]
    fn a_match_is_replaced() {
        let mut probes = Probes { len: 2, matched: 3, mask: [5; BURST], ..Probes::new() };
        probes.replace(1, Slot::new(31).map(|slot| (slot, 7)));
        assert_eq!((probes.masks(), probes.values()), (&[5, 1 << 31][..], &[0, 7][..]));
        probes.replace(0, None);
        assert_eq!((probes.masks(), probes.matched()), (&[0, 1 << 31][..], Mask::new(2)));
        for outside in [2, BURST, usize::MAX] {
            probes.replace(outside, Slot::new(1).map(|slot| (slot, 1)));
        }
        assert_eq!((probes.mask[2], probes.matched()), (5, Mask::new(2)));
    }
}
