//! The nodes of one kind, by number: a bounded arena that gives freed ones out again.

use super::key::Key;
use super::node::Node;
use crate::array::Array;
use crate::memory::MemoryError;
use crate::prefetch::prefetch;

/// Bytes of a cache line.
const LINE: usize = 64;

pub(super) struct Arena<K, X, const N: usize> {
    nodes: Array<Node<K, X, N>>,
    /// Entries of each node, close together: a search reads them beside the node, not before it.
    lens: Array<u8>,
    /// Numbers of freed nodes.
    free: Array<u32>,
}

impl<K: Key, X: Copy, const N: usize> Arena<K, X, N> {
    const FITS: () = assert!(
        N >= 4 && N <= u8::MAX as usize && size_of::<Node<K, X, N>>() <= 1 << 17,
        "a node of a tree has 4 to 255 entries and at most 128 KiB"
    );

    pub(super) fn with_capacity(nodes: usize) -> Result<Self, MemoryError> {
        const { Self::FITS };
        Ok(Self {
            nodes: Array::with_capacity(nodes)?,
            lens: Array::with_capacity(nodes)?,
            free: Array::with_capacity(nodes)?,
        })
    }

    /// Returns the number of an empty node; `item` fills unused places. None is left only if the
    /// tree counted its nodes wrongly.
    pub(super) fn take(&mut self, item: X) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize].keys = [K::MAX; N];
            return Some(at);
        }
        let at = self.nodes.push(Node::empty(item))?;
        self.lens.push(0)?;
        Some(at as u32)
    }

    /// Frees a node.
    pub(super) fn give(&mut self, at: u32) {
        self.lens[at as usize] = 0;
        self.free.push(at);
    }

    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.lens.clear();
        self.free.clear();
    }

    #[inline(always)]
    pub(super) fn node(&self, at: u32) -> &Node<K, X, N> {
        &self.nodes[at as usize]
    }

    #[inline(always)]
    pub(super) fn node_mut(&mut self, at: u32) -> &mut Node<K, X, N> {
        &mut self.nodes[at as usize]
    }

    #[inline(always)]
    pub(super) fn len(&self, at: u32) -> usize {
        usize::from(self.lens[at as usize])
    }

    /// Returns the key and the item of an entry, unless node or entry do not exist.
    #[inline(always)]
    pub(super) fn entry(&self, at: u32, slot: usize) -> Option<(K, X)> {
        let len = usize::from(*self.lens.get(at as usize)?);
        let node = self.nodes.get(at as usize)?;
        (slot < len && slot < N).then(|| (node.keys[slot], node.items[slot]))
    }

    /// Returns whether an entry exists and has this key.
    #[inline(always)]
    pub(super) fn holds(&self, at: u32, slot: usize, key: &K) -> bool {
        let (Some(len), Some(node)) = (self.lens.get(at as usize), self.nodes.get(at as usize))
        else {
            return false;
        };
        (slot < usize::from(*len)) & node.keys.get(slot).is_some_and(|there| there == key)
    }

    pub(super) fn insert(&mut self, at: u32, slot: usize, key: K, item: X) {
        let len = self.len(at);
        self.nodes[at as usize].insert(len, slot, key, item);
        self.lens[at as usize] += 1;
    }

    pub(super) fn remove(&mut self, at: u32, slot: usize) -> X {
        let len = self.len(at);
        self.lens[at as usize] -= 1;
        self.nodes[at as usize].remove(len, slot)
    }

    /// Moves entries between two neighbours so that the left one has `to`. Returns the first key
    /// of the right one.
    pub(super) fn shift(&mut self, left: u32, right: u32, to: usize) -> K {
        let [a, b] = [left as usize, right as usize];
        let (l, r) = (self.len(left), self.len(right));
        let Ok([node, other]) = self.nodes.get_disjoint_mut([a, b]) else {
            unreachable!("two nodes of the arena")
        };
        node.shift(other, (l, r), to);
        let first = other.keys[0];
        (self.lens[a], self.lens[b]) = (to as u8, (l + r - to) as u8);
        first
    }

    /// Prefetches the lines with the keys of a node.
    #[inline(always)]
    pub(super) fn prefetch_keys(&self, at: u32) {
        if let Some(node) = self.nodes.get(at as usize) {
            node.keys.iter().step_by((LINE / size_of::<K>()).max(1)).for_each(prefetch);
        }
    }

    /// Prefetches an entry.
    #[inline(always)]
    pub(super) fn prefetch(&self, at: u32, slot: usize) {
        if let (Some(node), Some(len)) = (self.nodes.get(at as usize), self.lens.get(at as usize)) {
            prefetch(len);
            if slot < N {
                prefetch(&node.keys[slot]);
                prefetch(&node.items[slot]);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes() + self.lens.memory_bytes() + self.free.memory_bytes()
    }

    pub(super) fn huge_pages(&self) -> crate::memory::HugePages {
        self.nodes.huge_pages()
    }

    /// Returns how many nodes are in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Returns how many nodes fit.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.lens.memory_bytes()
    }
}
