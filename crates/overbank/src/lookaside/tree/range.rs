//! Entries in order, from both ends.

use core::fmt;
use core::iter::FusedIterator;
use core::ops::{Bound, RangeBounds};

use super::key::Key;
use super::nodes::{NONE, Nodes};
use crate::prefetch::prefetch;

/// Entries of a tree in the order of their keys, made by [`Tree::range`](super::Tree::range) and
/// [`Tree::iter`](super::Tree::iter).
pub struct Range<'a, K, V, const LEAF: usize, const INNER: usize> {
    nodes: &'a Nodes<K, V, LEAF, INNER>,
    /// Leaf and slot of the first entry, or the end of its leaf.
    front: (u32, usize),
    /// Leaf and slot after the last entry.
    back: (u32, usize),
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Nodes<K, V, LEAF, INNER> {
    /// Returns the entries between two bounds; none if the first is above the second.
    pub(super) fn range(&self, range: &impl RangeBounds<K>) -> Range<'_, K, V, LEAF, INNER> {
        let nothing = Range { nodes: self, front: (NONE, 0), back: (NONE, 0) };
        let (start, end) = (range.start_bound(), range.end_bound());
        let crossed = match (start, end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
                a > b
            }
        };
        if crossed || self.len == 0 {
            return nothing;
        }
        // Places before a key and behind it.
        let before = |key: &K| {
            let leaf = self.leaf(key);
            (leaf, self.leaves.node(leaf).lower(key).min(self.leaves.len(leaf)))
        };
        let behind = |key: &K| {
            let (leaf, slot) = before(key);
            (leaf, slot + usize::from(self.leaves.holds(leaf, slot, key)))
        };
        let [first, last] = self.ends;
        let front = match start {
            Bound::Included(key) => before(key),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => (first, 0),
        };
        let back = match end {
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => before(key),
            Bound::Unbounded => (last, self.leaves.len(last)),
        };
        Range { front, back, ..nothing }
    }
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Range<'_, K, V, LEAF, INNER> {
    fn ended(&self) -> bool {
        self.front.0 == self.back.0 && self.front.1 >= self.back.1
    }
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Iterator
    for Range<'_, K, V, LEAF, INNER>
{
    type Item = (K, V);

    #[inline]
    fn next(&mut self) -> Option<(K, V)> {
        while !self.ended() {
            let (leaf, slot) = self.front;
            if let Some(entry) = self.nodes.leaves.entry(leaf, slot) {
                self.front.1 += 1;
                return Some(entry);
            }
            let next = self.nodes.links[leaf as usize][1];
            self.front = (next, 0);
            // That after the next one, if there is one.
            if let Some(links) = self.nodes.links.get(next as usize) {
                prefetch(links);
                self.nodes.leaves.prefetch_keys(links[1]);
            }
        }
        None
    }
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> DoubleEndedIterator
    for Range<'_, K, V, LEAF, INNER>
{
    #[inline]
    fn next_back(&mut self) -> Option<(K, V)> {
        while !self.ended() {
            let (leaf, slot) = self.back;
            if let Some(before) = slot.checked_sub(1) {
                self.back.1 = before;
                return self.nodes.leaves.entry(leaf, before);
            }
            let before = self.nodes.links[leaf as usize][0];
            self.back = (before, self.nodes.leaves.len(before));
        }
        None
    }
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> FusedIterator
    for Range<'_, K, V, LEAF, INNER>
{
}

impl<K, V, const LEAF: usize, const INNER: usize> Clone for Range<'_, K, V, LEAF, INNER> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<K: Key, V: Copy + fmt::Debug, const LEAF: usize, const INNER: usize> fmt::Debug
    for Range<'_, K, V, LEAF, INNER>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.clone()).finish()
    }
}
