//! Insertions that split nodes, and removals that merge them.

use super::error::Full;
use super::key::Key;
use super::node::Node;
use super::nodes::{HEIGHT_MAX, NONE, Nodes};

/// The inner nodes above a leaf, from the root on, and the places of their children in them.
type Path = [(u32, usize); HEIGHT_MAX];

/// Of [`Arena::take`](super::arena::Arena::take): the entries fit, so their nodes do.
const COUNTED: &str = "the arenas have the most nodes that the capacity can need";

impl<K: Key, V: Copy, const LEAF: usize, const INNER: usize> Nodes<K, V, LEAF, INNER> {
    /// Returns the leaf that covers a key, and the path to it.
    fn descend(&self, key: &K) -> (u32, Path) {
        let mut path = [(NONE, 0); HEIGHT_MAX];
        let steps = (0..self.height).rev().zip(&mut path);
        let leaf = steps.fold(self.root, |at, (level, step)| {
            let (place, child) = self.child(level, at, key);
            *step = (at, place);
            child
        });
        (leaf, path)
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Result<Option<V>, Full> {
        if self.len == 0 {
            let leaf = self.take_leaf(value);
            (self.root, self.ends) = (leaf, [leaf; 2]);
        }
        let (leaf, path) = self.descend(&key);
        let slot = self.leaves.node(leaf).lower(&key);
        if self.leaves.holds(leaf, slot, &key) {
            let place = &mut self.leaves.node_mut(leaf).items[slot];
            return Ok(Some(core::mem::replace(place, value)));
        }
        if self.len == self.capacity {
            return Err(Full { capacity: self.capacity });
        }
        self.len += 1;
        if self.leaves.len(leaf) < LEAF {
            self.leaves.insert(leaf, slot, key, value);
            return Ok(None);
        }
        let right = self.take_leaf(value);
        let middle = Node::<K, V, LEAF>::LEAST;
        let mut first = self.leaves.shift(leaf, right, middle);
        let (to, slot) = if slot <= middle { (leaf, slot) } else { (right, slot - middle) };
        self.leaves.insert(to, slot, key, value);
        self.link(leaf, right);
        let (mut left, mut child) = (leaf, right);
        for &(node, place) in path[..self.height].iter().rev() {
            if self.inners.len(node) < INNER {
                self.inners.insert(node, place + 1, first, child);
                return Ok(None);
            }
            let right = self.inners.take(child).expect(COUNTED);
            let middle = Node::<K, u32, INNER>::LEAST;
            let above = self.inners.shift(node, right, middle);
            let place = place + 1;
            let (to, place) = if place <= middle { (node, place) } else { (right, place - middle) };
            self.inners.insert(to, place, first, child);
            (left, child, first) = (node, right, above);
        }
        let root = self.inners.take(left).expect(COUNTED);
        self.inners.insert(root, 0, first, left); // The first key of a root is not read.
        self.inners.insert(root, 1, first, child);
        self.root = root;
        self.height += 1;
        Ok(None)
    }

    /// Returns an empty leaf without neighbours.
    fn take_leaf(&mut self, value: V) -> u32 {
        let leaf = self.leaves.take(value).expect(COUNTED);
        if leaf as usize == self.links.len() {
            self.links.push([NONE; 2]).expect(COUNTED);
        }
        self.links[leaf as usize] = [NONE; 2];
        leaf
    }

    /// Puts a leaf behind another.
    fn link(&mut self, left: u32, right: u32) {
        let next = self.links[left as usize][1];
        self.links[left as usize][1] = right;
        self.links[right as usize] = [left, next];
        match self.links.get_mut(next as usize) {
            Some(next) => next[0] = right,
            None => self.ends[1] = right,
        }
    }

    /// Takes out the leaf behind another.
    fn unlink(&mut self, left: u32, right: u32) {
        let next = self.links[right as usize][1];
        self.links[left as usize][1] = next;
        match self.links.get_mut(next as usize) {
            Some(next) => next[0] = left,
            None => self.ends[1] = left,
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        if self.len == 0 {
            return None;
        }
        let (leaf, path) = self.descend(key);
        let slot = self.leaves.node(leaf).lower(key);
        if !self.leaves.holds(leaf, slot, key) {
            return None;
        }
        let value = self.leaves.remove(leaf, slot);
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        } else if self.height > 0 && self.leaves.len(leaf) < Node::<K, V, LEAF>::LEAST {
            self.refill(&path[..self.height]);
        }
        Some(value)
    }

    /// Fills up the last node of a path, which has one entry too few, from a neighbour or with it;
    /// then the node above, if that lost a child.
    #[cold]
    fn refill(&mut self, path: &[(u32, usize)]) {
        for (depth, &(parent, place)) in path.iter().enumerate().rev() {
            let place = place.max(1); // Of the right one of the two.
            let [left, right] =
                [place - 1, place].map(|place| self.inners.node(parent).items[place]);
            let leaves = depth + 1 == path.len();
            let both = if leaves {
                self.leaves.len(left) + self.leaves.len(right)
            } else {
                self.inners.len(left) + self.inners.len(right)
            };
            let merged = both <= if leaves { LEAF } else { INNER };
            let to = if merged { both } else { both / 2 };
            let first = if leaves {
                self.leaves.shift(left, right, to)
            } else {
                self.inners.shift(left, right, to)
            };
            if !merged {
                self.inners.node_mut(parent).keys[place] = first;
                return;
            }
            if leaves {
                self.unlink(left, right);
                self.leaves.give(right);
            } else {
                self.inners.give(right);
            }
            self.inners.remove(parent, place);
            if depth == 0 && self.inners.len(parent) == 1 {
                self.root = self.inners.node(parent).items[0];
                self.height -= 1;
                self.inners.give(parent);
            }
            if depth == 0 || self.inners.len(parent) >= Node::<K, u32, INNER>::LEAST {
                return;
            }
        }
    }
}
