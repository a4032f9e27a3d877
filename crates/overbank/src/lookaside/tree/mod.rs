//! An ordered map in a bounded arena: a B+ tree whose entries have positions that prove themselves.
//!
//! ```text
//!  key ─▶ hints: position? ─▶ leaf 27 bits | slot 5 bits: this key lies there ─▶ value
//!           │ none, or another key lies there
//!           └─▶ inner nodes of 63 children ─▶ leaf of 32 keys ─▶ value, and a new hint
//! ```
//!
//! *Cost.* A hit of the hints touches 1 to 2 lines of them, one of the leaf's keys and that of the
//! value. Without one, a lookup of 10 million keys reads 4 to 5 nodes. Leaves are half full at
//! least; inner nodes add 3 to 5 % to them.
//!
//! *Capacity.* All memory is allocated by the constructor, and `n` entries always fit, whatever
//! was inserted and removed before. Each leaf but a root has at least 16 of 32 entries, after
//! splits and after removals, which merge it with a neighbour or take entries from there. So `n`
//! entries have at most n / 16 leaves, and each level of inner nodes at most 1/31 of the nodes
//! below it. That is what is allocated.
//!
//! *Guarantees.* No panic on any key, value or bound. No allocation after construction. Every
//! operation but `clear` (O(1)) and iteration visits at most two nodes of each level, and changes
//! three. Pages are huge where the kernel grants them ([`crate::memory`]).
//!
//! With [`Hints`], the effect is that of Ni, Jiang, Jiang, Huang, Wu: *SDC: A Software Defined
//! Cache for Efficient Data Indexing* (ICS 2019), in software.

mod arena;
mod change;
mod error;
mod key;
mod node;
mod nodes;
mod range;
#[cfg(test)]
mod tests;

pub use error::{Full, TreeError};
pub use key::Key;
pub use range::Range;

use core::fmt;
use core::ops::RangeBounds;

use self::nodes::{Nodes, split};
use super::hints::{BURST, Config, Hints, Mask, Positions};
use crate::memory::HugePages;

/// Entries of a leaf.
pub const LEAF: usize = 32;
/// Children of an inner node.
pub const INNER: usize = 63;

/// An ordered map of bounded size, from plain words to plain values, with or without hints.
///
/// One owner, no locks: shared references only read. Lookups that use hints also keep them, so
/// [`get`](Self::get) needs an exclusive reference; [`peek`](Self::peek) changes nothing.
///
/// ```
/// use overbank::lookaside::{Hints, Tree};
///
/// let mut prices = Tree::<u64, f64>::with_capacity(1000, Hints::entries(300))?;
/// for (id, price) in [(7, 0.5), (3, 9.0), (9, 2.5)] {
///     prices.insert(id, price)?;
/// }
/// assert_eq!((prices.get(&7), prices.get(&8)), (Some(0.5), None));
/// let mut out = [None; 2];
/// prices.get_batch(&[9, 3], &mut out); // Bursts wait for memory once.
/// assert_eq!(out, [Some(2.5), Some(9.0)]);
/// assert!(prices.range(4..).map(|(id, _)| id).eq([7, 9]));
/// assert_eq!((prices.remove(&7), prices.first()), (Some(0.5), Some((3, 9.0))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The numbers of entries of a leaf (4 to 32) and of children of an inner node (4 to 255) are for
/// tests and measurements.
pub struct Tree<K, V, const LEAF: usize = { self::LEAF }, const INNER: usize = { self::INNER }> {
    nodes: Nodes<K, V, LEAF, INNER>,
    hints: Option<Hints>,
}

impl<K: Key, V: Copy> Tree<K, V> {
    /// Allocates and touches the memory of `capacity` entries, about 2 × `capacity` × (bytes of a
    /// key and a value), and that of the hints: [`Hints::entries`], or `None`.
    ///
    /// # Errors
    /// The capacity is zero or above 2³¹, the hints cannot have their size, or there is no memory.
    pub fn with_capacity(
        capacity: usize,
        hints: impl Into<Option<Config>>,
    ) -> Result<Self, TreeError> {
        Self::with_nodes(capacity, hints)
    }
}

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Tree<K, V, LEAF, INNER> {
    /// Allocates a tree with nodes of other sizes, as [`Tree::with_capacity`].
    ///
    /// # Errors
    /// As there.
    pub fn with_nodes(
        capacity: usize,
        hints: impl Into<Option<Config>>,
    ) -> Result<Self, TreeError> {
        let hints = hints.into().map(|config| Hints::new(&config)).transpose()?;
        Ok(Self { nodes: Nodes::with_capacity(capacity)?, hints })
    }

    /// Returns the position of a key.
    #[inline(always)]
    fn position(&mut self, key: &K) -> Option<u32> {
        match &mut self.hints {
            Some(hints) => hints.get(&self.nodes, key),
            None => self.nodes.find(key),
        }
    }

    /// Returns the value of a key: of its hint, or by a search that leaves one.
    #[inline]
    pub fn get(&mut self, key: &K) -> Option<V> {
        let at = self.position(key)?;
        self.nodes.entry(at).map(|(_, value)| value)
    }

    /// Returns the value of a key to be changed in place, found as [`get`](Self::get) does.
    #[inline]
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (leaf, slot) = split(self.position(key)?);
        self.nodes.leaves.node_mut(leaf).items.get_mut(slot)
    }

    /// Returns the value of a key by a search; uses no hints and leaves none.
    pub fn peek(&self, key: &K) -> Option<V> {
        self.nodes.entry(self.nodes.find(key)?).map(|(_, value)| value)
    }

    /// Returns the entry at a position, if one lies there now.
    #[inline]
    pub fn entry(&self, at: u32) -> Option<(K, V)> {
        self.nodes.entry(at)
    }

    /// Returns whether a key has an entry, by a search.
    pub fn contains(&self, key: &K) -> bool {
        self.nodes.locate(key).is_some()
    }

    /// Sets `out[i]` to the value of `keys[i]`. Works in bursts of [`BURST`] keys, whose memory is
    /// prefetched; those without a hint walk down the tree together. Slices of different lengths
    /// are cut to the shorter one.
    pub fn get_batch(&mut self, keys: &[K], out: &mut [Option<V>]) {
        let count = keys.len().min(out.len());
        let (keys, nodes) = (&keys[..count], &self.nodes);
        let mut each = |first: usize, found: &[Option<u32>]| {
            for (out, found) in out[first..].iter_mut().zip(found) {
                *out = found.and_then(|at| nodes.entry(at)).map(|(_, value)| value);
            }
        };
        if let Some(hints) = &mut self.hints {
            return hints.bursts(nodes, keys, each);
        }
        for (b, keys) in keys.chunks(BURST).enumerate() {
            let mut found = [None; BURST];
            nodes.find_burst(keys, Mask::first(keys.len()), &mut found);
            each(b * BURST, &found[..keys.len()]);
        }
    }

    /// Inserts an entry and returns the value that the key had before. Fails if the key is new and
    /// the tree has as many entries as its capacity.
    pub fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        self.nodes.insert(key, value)
    }

    /// Removes the entry of a key and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.nodes.remove(key)
    }

    /// Iterates over the entries between two bounds, in order, from both ends. A range whose start
    /// is above its end has none.
    pub fn range(&self, range: impl RangeBounds<K>) -> Range<'_, K, V, LEAF, INNER> {
        self.nodes.range(&range)
    }

    /// Iterates over all entries, in order, from both ends.
    pub fn iter(&self) -> Range<'_, K, V, LEAF, INNER> {
        self.range(..)
    }

    /// Returns the entry with the least key.
    pub fn first(&self) -> Option<(K, V)> {
        self.iter().next()
    }

    /// Returns the entry with the greatest key.
    pub fn last(&self) -> Option<(K, V)> {
        self.iter().next_back()
    }

    /// Removes all entries. Touches no node.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.nodes.len
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.nodes.len == 0
    }

    /// Returns the number of entries that fit, always.
    pub fn capacity(&self) -> usize {
        self.nodes.capacity
    }

    /// Returns the hints, with their counters.
    pub fn hints(&self) -> Option<&Hints> {
        self.hints.as_ref()
    }

    /// Returns the hints, which may be cleared at any time: no answer changes.
    pub fn hints_mut(&mut self) -> Option<&mut Hints> {
        self.hints.as_mut()
    }

    /// Returns the bytes of the tree without its hints.
    pub fn memory_bytes(&self) -> usize {
        let Nodes { leaves, inners, links, .. } = &self.nodes;
        leaves.memory_bytes() + inners.memory_bytes() + links.memory_bytes()
    }

    /// Returns the pages of the leaves, as the kernel reports now. Reads `/proc/self/smaps`: not
    /// for the packet path.
    pub fn huge_pages(&self) -> HugePages {
        self.nodes.leaves.huge_pages()
    }
}

/// Positions of entries. Threads that share a tree can each have [`Hints`] before it.
impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Positions<K>
    for Tree<K, V, LEAF, INNER>
{
    #[inline]
    fn holds(&self, at: u32, key: &K) -> bool {
        self.nodes.holds(at, key)
    }

    #[inline]
    fn find(&self, key: &K) -> Option<u32> {
        self.nodes.find(key)
    }

    #[inline]
    fn prefetch(&self, at: u32) {
        self.nodes.prefetch(at);
    }

    fn find_burst(&self, keys: &[K], which: Mask, found: &mut [Option<u32>]) {
        self.nodes.find_burst(keys, which, found);
    }
}

impl<'a, K: Key, V: Copy, const LEAF: usize, const INNER: usize> IntoIterator
    for &'a Tree<K, V, LEAF, INNER>
{
    type Item = (K, V);
    type IntoIter = Range<'a, K, V, LEAF, INNER>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Key, V: Copy + fmt::Debug, const LEAF: usize, const INNER: usize> fmt::Debug
    for Tree<K, V, LEAF, INNER>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}
