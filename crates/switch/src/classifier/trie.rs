//! Finds which prefix lengths can match an address, and how many of its bits prove it.
//!
//! A binary trie with compressed paths over the prefixes that the rules of one table use on one
//! field. Values are left-aligned in 128 bits, so that one type serves ports, IPv4 and IPv6.
//!
//! ```text
//!   rules 10/8, 10.1.2.3/32           a packet to 10.1.2.4:
//!        [root /0]                      lengths on its path: {8}
//!            \ 0000 1010                bits that say so:    30 (the first that differs from .3)
//!          [/8 •]
//!            \ 00000001 …             so a rule with /32 cannot match, and any packet that
//!          [/32 •]                      agrees on 30 bits is in the same position
//! ```
//!
//! Clones share their nodes until they change ([`crate::cow`]). A walk touches at most one 32-byte
//! node for each branching of the prefixes; there are at most two nodes for each rule. No panic for
//! prefix lengths from 1 to 128. Source: Open vSwitch's prefix tracking (Pfaff et al., The Design
//! and Implementation of Open vSwitch, NSDI 2015, section 5.4).

use crate::cow::CowVec;

/// Index of no child.
const NIL: u32 = 0;
/// Nodes that are copied together when one of them changes.
const CHUNK: usize = 64;

/// One node: the prefix of `len` bits that leads to it.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// The prefix, left-aligned, zero after `len` bits.
    bits: u128,
    /// Children, by the bit after the prefix. The root is never a child, so 0 is none.
    child: [u32; 2],
    /// Number of rules with exactly this prefix.
    rules: u32,
    len: u8,
}

/// Result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    /// Bit `n - 1` is set if a prefix of `n` bits matches the value.
    lengths: u128,
    /// All values that agree on this many leading bits have the same `lengths`.
    looked: u8,
}

impl Walk {
    /// Returns the number of leading bits that prove that no prefix of `len` bits matches.
    #[inline]
    pub(super) fn excludes(&self, len: u8) -> Option<u8> {
        // The first `len` bits alone decide it, if they are fewer than those walked.
        (self.lengths >> (len - 1) & 1 == 0).then_some(self.looked.min(len))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Trie {
    /// Node 0 is the root.
    nodes: CowVec<Node, CHUNK>,
    /// The first free node; 0 is none. Its first child is the next free node.
    free: u32,
}

impl Default for Trie {
    fn default() -> Trie {
        let mut nodes = CowVec::default();
        nodes.push(Node::default());
        Trie { nodes, free: NIL }
    }
}

/// Returns the first `len` bits of `value`.
fn prefix(value: u128, len: u8) -> u128 {
    value & !u128::MAX.checked_shr(len.into()).unwrap_or(0)
}

/// Returns bit `at` of `value`, counted from the left.
fn bit(value: u128, at: u8) -> usize {
    (value << at >> 127) as usize
}

/// Returns the number of leading bits that `a` and `b` share, at most `max`.
fn common(a: u128, b: u128, max: u8) -> u8 {
    // At most 128.
    ((a ^ b).leading_zeros() as u8).min(max)
}

impl Trie {
    fn alloc(&mut self, node: Node) -> u32 {
        if self.free != NIL {
            let index = self.free;
            self.free = self.nodes[index as usize].child[0];
            self.nodes[index as usize] = node;
            return index;
        }
        self.nodes.push(node);
        // At most two nodes for each of a million rules.
        u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes")
    }

    /// Adds a rule with the prefix of `len` bits of `value`.
    pub(super) fn insert(&mut self, value: u128, len: u8) {
        let value = prefix(value, len);
        let leaf = Node { bits: value, child: [NIL; 2], rules: 1, len };
        let mut at = 0;
        // The node `at` is a prefix of the value.
        while self.nodes[at].len < len {
            let side = bit(value, self.nodes[at].len);
            let below = self.nodes[at].child[side];
            if below == NIL {
                self.nodes[at].child[side] = self.alloc(leaf);
                return;
            }
            let child = self.nodes[below as usize];
            let shared = common(value, child.bits, len.min(child.len));
            if shared < child.len {
                // The paths part above the child: a new node takes its place.
                let mut fork =
                    Node { bits: prefix(value, shared), child: [NIL; 2], rules: 0, len: shared };
                fork.child[bit(child.bits, shared)] = below;
                if shared == len {
                    fork.rules = 1;
                } else {
                    fork.child[bit(value, shared)] = self.alloc(leaf);
                }
                self.nodes[at].child[side] = self.alloc(fork);
                return;
            }
            at = below as usize;
        }
        self.nodes[at].rules += 1;
    }

    /// Reverts one [`Trie::insert`]. Ignores an unknown prefix.
    pub(super) fn remove(&mut self, value: u128, len: u8) {
        let value = prefix(value, len);
        let (mut above, mut parent, mut at) = (0, 0, 0);
        while self.nodes[at].len < len {
            let below = self.nodes[at].child[bit(value, self.nodes[at].len)];
            if below == NIL {
                return;
            }
            (above, parent, at) = (parent, at, below as usize);
        }
        if self.nodes[at].bits != value || self.nodes[at].len != len || self.nodes[at].rules == 0 {
            return;
        }
        self.nodes[at].rules -= 1;
        self.contract(at, parent);
        // A parent that only forked is obsolete if `at` went away.
        self.contract(parent, above);
    }

    /// Removes the node `at` if no rule ends there and it is no fork.
    fn contract(&mut self, at: usize, parent: usize) {
        let node = self.nodes[at];
        if at == 0 || node.rules > 0 || (node.child[0] != NIL && node.child[1] != NIL) {
            return;
        }
        let side = bit(node.bits, self.nodes[parent].len);
        // At most one of them is a child; NIL is 0.
        self.nodes[parent].child[side] = node.child[0] | node.child[1];
        self.nodes[at] = Node { child: [self.free, NIL], ..Node::default() };
        self.free = at as u32;
    }

    /// Returns the lengths of the prefixes that match `value`, and how many bits determine them.
    pub(super) fn walk(&self, value: u128) -> Walk {
        let mut lengths = 0;
        let mut node = &self.nodes[0];
        loop {
            if node.rules > 0 {
                lengths |= 1 << (node.len - 1);
            }
            if node.child == [NIL; 2] {
                return Walk { lengths, looked: node.len };
            }
            let below = node.child[bit(value, node.len)];
            if below == NIL {
                return Walk { lengths, looked: node.len + 1 };
            }
            let child = &self.nodes[below as usize];
            let shared = common(value, child.bits, child.len);
            if shared < child.len {
                return Walk { lengths, looked: shared + 1 };
            }
            node = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin: which lengths match, from the list of prefixes.
    fn lengths(prefixes: &[(u128, u8)], value: u128) -> u128 {
        prefixes
            .iter()
            .filter(|&&(p, len)| prefix(p, len) == prefix(value, len))
            .fold(0, |acc, &(_, len)| acc | 1 << (len - 1))
    }

    #[test]
    fn the_picture_of_the_module() {
        let mut trie = Trie::default();
        let ip = |a: [u8; 4]| u128::from(u32::from_be_bytes(a)) << 96;
        trie.insert(ip([10, 0, 0, 0]), 8);
        trie.insert(ip([10, 1, 2, 3]), 32);
        let walk = trie.walk(ip([10, 1, 2, 4]));
        assert_eq!(walk, Walk { lengths: 1 << 7, looked: 30 });
        assert_eq!(walk.excludes(32), Some(30));
        assert_eq!(walk.excludes(16), Some(16));
        assert_eq!(walk.excludes(8), None);
        assert_eq!(trie.walk(ip([11, 0, 0, 0])).excludes(32), Some(8));
    }

    #[test]
    fn whole_width_prefixes() {
        let mut trie = Trie::default();
        trie.insert(u128::MAX, 128);
        trie.insert(u128::MAX - 1, 128);
        trie.insert(1 << 127, 1);
        assert_eq!(trie.walk(u128::MAX), Walk { lengths: 1 << 127 | 1, looked: 128 });
        assert_eq!(trie.walk(0).excludes(1), Some(1));
    }

    proptest! {
        /// Prefixes of a small domain come and go; the walk agrees with the list, and the bits that
        /// it says are enough are enough.
        #[test]
        fn agrees_with_the_list(
            ops in prop::collection::vec((any::<u8>(), 1u8..=8, any::<bool>()), 1..60),
            values in prop::collection::vec((any::<u8>(), any::<u128>()), 1..20),
        ) {
            let mut trie = Trie::default();
            let mut list: Vec<(u128, u8)> = Vec::new();
            for (byte, len, add) in ops {
                let value = u128::from(byte) << 120;
                if add {
                    trie.insert(value, len);
                    list.push((value, len));
                } else {
                    trie.remove(value, len);
                    if let Some(at) = list
                        .iter()
                        .position(|&(p, l)| l == len && prefix(p, l) == prefix(value, len))
                    {
                        list.swap_remove(at);
                    }
                }
            }
            for (byte, noise) in values {
                let value = u128::from(byte) << 120;
                let walk = trie.walk(value);
                prop_assert_eq!(walk.lengths, lengths(&list, value));
                let other = prefix(value, walk.looked) | (noise & !prefix(u128::MAX, walk.looked));
                prop_assert_eq!(trie.walk(other).lengths, walk.lengths);
            }
            // Nothing is left behind when all have gone.
            for &(p, len) in &list {
                trie.remove(p, len);
            }
            prop_assert_eq!(trie.nodes[0].child, [NIL; 2]);
            let free = std::iter::successors(Some(trie.free), |&at| {
                Some(trie.nodes[at as usize].child[0])
            });
            prop_assert_eq!(trie.nodes.len(), free.take_while(|&at| at != NIL).count() + 1);
        }
    }
}
