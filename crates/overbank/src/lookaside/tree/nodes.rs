//! The nodes of a tree and the search in them.
//!
//! ```text
//!                       root, height levels of inner nodes
//!            ┌──────┬──────┐
//!            │ ·    │ k1   │ k2 …        child i has the keys from ki on, and below k(i+1)
//!            └──┼───┴──┼───┘
//!         ┌─────┘      └────┐
//!      leaf ◀──── links ────▶ leaf        position of an entry: leaf 27 bits, slot 5 bits
//! ```
//!
//! The first key of an inner node is that beside it in its parent, so that entries can move to the
//! left neighbour. On the left edge of the tree it has no meaning.

use super::arena::Arena;
use super::error::TreeError;
use super::key::Key;
use super::node::Node;
use crate::array::Array;
use crate::lookaside::hints::{BURST, Mask, Positions};

/// Bits of a position that say the slot.
const SLOT_BITS: u32 = 5;
/// Most leaves that positions can name.
pub(super) const LEAVES_MAX: usize = 1 << (u32::BITS - SLOT_BITS);
/// Most levels of inner nodes: each has at least twice the nodes of the one above.
pub(super) const HEIGHT_MAX: usize = 27;
/// No leaf.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct Nodes<K, V, const LEAF: usize, const INNER: usize> {
    pub(super) leaves: Arena<K, V, LEAF>,
    pub(super) inners: Arena<K, u32, INNER>,
    /// The leaves before and after each leaf.
    pub(super) links: Array<[u32; 2]>,
    /// Inner node, or a leaf if the height is 0. Without meaning in an empty tree.
    pub(super) root: u32,
    pub(super) height: usize,
    /// First and last leaf.
    pub(super) ends: [u32; 2],
    pub(super) len: usize,
    pub(super) capacity: usize,
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Nodes<K, V, LEAF, INNER> {
    const FITS: () = assert!(LEAF <= 1 << SLOT_BITS, "a leaf has at most 32 entries");

    pub(super) fn with_capacity(capacity: usize) -> Result<Self, TreeError> {
        const { Self::FITS };
        if capacity == 0 {
            return Err(TreeError::Empty);
        }
        let (leaves, inners) = Self::nodes_of(capacity);
        let max = LEAVES_MAX.saturating_mul(Node::<K, V, LEAF>::LEAST);
        if capacity > max {
            return Err(TreeError::TooLarge { capacity, max });
        }
        Ok(Self {
            leaves: Arena::with_capacity(leaves)?,
            inners: Arena::with_capacity(inners)?,
            links: Array::with_capacity(leaves)?,
            root: NONE,
            height: 0,
            ends: [NONE; 2],
            len: 0,
            capacity,
        })
    }

    /// Returns the most leaves and inner nodes of a tree of `capacity` entries. Each node but the
    /// root has at least [`Node::LEAST`] entries, so each level has at most that part of the nodes
    /// of the level below, or is the root.
    const fn nodes_of(capacity: usize) -> (usize, usize) {
        const fn at_least_one(nodes: usize) -> usize {
            if nodes > 1 { nodes } else { 1 }
        }
        let leaves = at_least_one(capacity / Node::<K, V, LEAF>::LEAST);
        let (mut level, mut inners) = (leaves, 0);
        while level > 1 {
            level = at_least_one(level / Node::<K, u32, INNER>::LEAST);
            inners += level;
        }
        (leaves, at_least_one(inners))
    }

    /// Goes down from an inner node of a level, 0 above the leaves, to the child that covers the
    /// key: returns its place and its number. Prefetches its keys: a search of them waits once.
    #[inline(always)]
    pub(super) fn child(&self, level: usize, at: u32, key: &K) -> (usize, u32) {
        let node = self.inners.node(at);
        let place = node.child(key, self.inners.len(at));
        let child = node.items[place];
        if level == 0 {
            self.leaves.prefetch_keys(child);
        } else {
            self.inners.prefetch_keys(child);
        }
        (place, child)
    }

    /// Returns the leaf that covers the key, in a tree that is not empty.
    #[inline(always)]
    pub(super) fn leaf(&self, key: &K) -> u32 {
        (0..self.height).rev().fold(self.root, |at, level| self.child(level, at, key).1)
    }

    /// Returns leaf and slot of a key.
    #[inline]
    pub(super) fn locate(&self, key: &K) -> Option<(u32, usize)> {
        if self.len == 0 {
            return None;
        }
        let leaf = self.leaf(key);
        self.slot(leaf, key).map(|slot| (leaf, slot))
    }

    /// Returns the slot of a key in its leaf.
    #[inline(always)]
    fn slot(&self, leaf: u32, key: &K) -> Option<usize> {
        let slot = self.leaves.node(leaf).lower(key);
        self.leaves.holds(leaf, slot, key).then_some(slot)
    }

    /// Returns the entry at a position.
    #[inline(always)]
    pub(super) fn entry(&self, at: u32) -> Option<(K, V)> {
        let (leaf, slot) = split(at);
        self.leaves.entry(leaf, slot)
    }

    /// Removes all entries; the nodes are given out again.
    pub(super) fn clear(&mut self) {
        self.leaves.clear();
        self.inners.clear();
        self.links.clear();
        (self.root, self.height, self.ends, self.len) = (NONE, 0, [NONE; 2], 0);
    }
}

/// Returns leaf and slot of a position.
#[inline(always)]
pub(super) const fn split(at: u32) -> (u32, usize) {
    (at >> SLOT_BITS, (at & ((1 << SLOT_BITS) - 1)) as usize)
}

/// Returns the position of leaf and slot.
#[inline(always)]
pub(super) const fn position((leaf, slot): (u32, usize)) -> u32 {
    leaf << SLOT_BITS | slot as u32
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Positions<K>
    for Nodes<K, V, LEAF, INNER>
{
    #[inline(always)]
    fn holds(&self, at: u32, key: &K) -> bool {
        let (leaf, slot) = split(at);
        self.leaves.holds(leaf, slot, key)
    }

    #[inline]
    fn find(&self, key: &K) -> Option<u32> {
        self.locate(key).map(position)
    }

    #[inline(always)]
    fn prefetch(&self, at: u32) {
        let (leaf, slot) = split(at);
        self.leaves.prefetch(leaf, slot);
    }

    /// Walks down level by level with all keys, and prefetches the next nodes meanwhile.
    fn find_burst(&self, keys: &[K], which: Mask, found: &mut [Option<u32>]) {
        if self.len == 0 {
            return;
        }
        // The numbers in `which` beyond the slices name no key.
        let which = which.and(Mask::first(keys.len().min(found.len())));
        let mut nodes = [self.root; BURST];
        for level in (0..self.height).rev() {
            for i in which {
                nodes[i] = self.child(level, nodes[i], &keys[i]).1;
            }
        }
        for i in which {
            if let Some(slot) = self.slot(nodes[i], &keys[i]) {
                self.leaves.prefetch(nodes[i], slot);
                found[i] = Some(position((nodes[i], slot)));
            }
        }
    }
}
