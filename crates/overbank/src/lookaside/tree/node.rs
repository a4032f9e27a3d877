//! A node: keys in order, and beside each what belongs to it. Leaves have values, inner nodes the
//! numbers of their children.
//!
//! ```text
//!  ┌─────────────────────────────┬───────────────────────────┐
//!  │ k0 k1 k2 … k(len−1) MAX MAX │ x0 x1 x2 … x(len−1) ·   · │   starts on a cache line
//!  └─────────────────────────────┴───────────────────────────┘
//! ```
//!
//! The number of entries lies elsewhere (`Arena`). Unused places have the greatest key, so that a
//! search reads a number of places that the compiler knows, without a branch.

use super::key::Key;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Node<K, X, const N: usize> {
    pub(super) keys: [K; N],
    pub(super) items: [X; N],
}

impl<K: Key, X: Copy, const N: usize> Node<K, X, N> {
    /// Fewest entries of a node that is not the root.
    pub(super) const LEAST: usize = N / 2;

    /// Returns a node without entries; `item` fills its unused places.
    pub(super) const fn empty(item: X) -> Self {
        Self { keys: [K::MAX; N], items: [item; N] }
    }

    /// Returns how many keys are less than this one. Of a node with the greatest key, its place.
    #[inline(always)]
    pub(super) fn lower(&self, key: &K) -> usize {
        self.keys.partition_point(|there| there < key)
    }

    /// Returns the last entry whose key is not greater, and the first one if all are. The key of
    /// the first entry is not read.
    #[inline(always)]
    pub(super) fn child(&self, key: &K, len: usize) -> usize {
        // Only the greatest key finds unused places.
        self.keys[1..].partition_point(|there| there <= key).min(len - 1)
    }

    /// Inserts an entry at place `at` of `len` (less than N).
    #[inline]
    pub(super) fn insert(&mut self, len: usize, at: usize, key: K, item: X) {
        self.keys.copy_within(at..len, at + 1);
        self.keys[at] = key;
        self.items.copy_within(at..len, at + 1);
        self.items[at] = item;
    }

    /// Removes the entry at place `at` of `len`.
    #[inline]
    pub(super) fn remove(&mut self, len: usize, at: usize) -> X {
        let item = self.items[at];
        self.keys.copy_within(at + 1..len, at);
        self.keys[len - 1] = K::MAX;
        self.items.copy_within(at + 1..len, at);
        item
    }

    /// Moves entries between two neighbours of `l` and `r` entries so that the left one has `to`,
    /// and the right one the rest (N at most).
    pub(super) fn shift(&mut self, right: &mut Self, (l, r): (usize, usize), to: usize) {
        shift(&mut self.keys, &mut right.keys, (l, r), to);
        shift(&mut self.items, &mut right.items, (l, r), to);
        self.keys[to..].fill(K::MAX);
        right.keys[l + r - to..].fill(K::MAX);
    }
}

fn shift<T: Copy>(left: &mut [T], right: &mut [T], (l, r): (usize, usize), to: usize) {
    if to < l {
        right.copy_within(..r, l - to);
        right[..l - to].copy_from_slice(&left[to..l]);
    } else {
        left[l..to].copy_from_slice(&right[..to - l]);
        right.copy_within(to - l..r, 0);
    }
}
