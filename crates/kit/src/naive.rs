//! A naive table of any geometry: whole keys in slots, random eviction, and displacement if wanted.
//!
//! The tables of `overbank::cache` exist for the geometries that are fast; this one shows what any
//! geometry holds. An insertion into full buckets looks for an empty slot that is reached by moving
//! at most *depth* entries, fewest moves first ([`Search`]). It evicts at random if there is none.
//!
//! ```text
//!  depth 1     new ─▶ [a b c d]      b ─▶ [e f · g]                one entry moves
//!  depth 2     new ─▶ [a b c d]      b ─▶ [e f h g]   f ─▶ [· …]   two entries move
//! ```
//!
//! Cost: each bucket read is a cache miss in large tables, so some 100 ns a lookup.

use crate::geometry::{AnyGeometry, Family};
use overbank::hash::mix;
use overbank::random::Pcg32;

pub struct NaiveTable {
    geometry: AnyGeometry,
    buckets: usize,
    /// Key plus one; 0 is empty.
    slots: Vec<u32>,
    depth: u32,
    seed: u64,
    pcg: Pcg32,
    search: Search,
    pub counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub held: usize,
    /// Buckets read by insertions.
    pub read: usize,
    pub moves: usize,
    pub evictions: usize,
}

impl NaiveTable {
    /// Builds an empty table of at least `entries` slots.
    pub fn new(geometry: AnyGeometry, entries: usize, depth: u32, seed: u64) -> NaiveTable {
        let (m, counts) = (geometry.m as usize, Counts::default());
        let buckets = entries.div_ceil(m);
        let buffer = if geometry.family == Family::Blp { geometry.h as usize - 1 } else { 0 };
        let slots = vec![0; (buckets + buffer) * m];
        let (search, pcg) = (Search::at_most(usize::MAX), Pcg32::new(seed, 11));
        NaiveTable { geometry, buckets, slots, depth, seed, pcg, search, counts }
    }

    /// Returns the slots, buffer buckets not counted.
    pub fn entries(&self) -> usize {
        self.buckets * self.geometry.m as usize
    }

    fn bucket(&self, key: u32, nth: u32) -> usize {
        let apart = if self.geometry.family == Family::Cuckoo { nth } else { 0 };
        let hash = mix(mix(self.seed ^ u64::from(apart) << 32) ^ u64::from(key));
        let bucket = ((u128::from(hash) * self.buckets as u128) >> 64) as usize;
        bucket + (nth - apart) as usize
    }

    fn homes(&self, key: u32) -> impl Iterator<Item = usize> + '_ {
        (0..self.geometry.h).map(move |nth| self.bucket(key, nth))
    }

    fn bucket_slots(&self, bucket: usize) -> &[u32] {
        let m = self.geometry.m as usize;
        &self.slots[bucket * m..(bucket + 1) * m]
    }

    pub fn contains(&self, key: u32) -> bool {
        self.homes(key).any(|bucket| self.bucket_slots(bucket).contains(&(key + 1)))
    }

    /// Looks a key up and inserts it when it is missing; returns whether it was there.
    pub fn look_up(&mut self, key: u32) -> bool {
        let found = self.contains(key);
        if !found {
            self.insert(key);
        }
        found
    }

    /// Inserts a key that is not there.
    pub fn insert(&mut self, key: u32) {
        let m = self.geometry.m as usize;
        let mut search = std::mem::take(&mut self.search);
        let this = &*self;
        let empty = |bucket| this.bucket_slots(bucket).iter().position(|&slot| slot == 0);
        let others = |bucket, slot| this.homes(this.bucket_slots(bucket)[slot] - 1);
        let found = search.nearest(this.homes(key), (self.depth, m), empty, others);
        let (bucket, slot) = if let Some(found) = found {
            self.counts.held += 1;
            search.make_room(found, |from, to| {
                self.counts.moves += 1;
                self.slots[to.0 * m + to.1] = self.slots[from.0 * m + from.1];
            })
        } else {
            self.counts.evictions += 1;
            let victim = self.pcg.below(self.geometry.h * self.geometry.m);
            (self.bucket(key, victim / self.geometry.m), (victim % self.geometry.m) as usize)
        };
        self.slots[bucket * m + slot] = key + 1;
        self.counts.read += search.nodes.len();
        self.search = search;
    }
}

/// A search for the empty slot that is fewest moves away, breadth first; each bucket once.
#[derive(Default)]
pub struct Search {
    nodes: Vec<Node>,
    nodes_max: usize,
}

#[derive(Clone, Copy)]
struct Node {
    bucket: usize,
    /// The node and the slot whose entry would move here; `None` for a home of the new key.
    from: Option<(usize, usize)>,
    moves: u32,
}

/// A slot of a bucket.
pub type Place = (usize, usize);

impl Search {
    /// Looks at `nodes_max` buckets at most.
    pub fn at_most(nodes_max: usize) -> Search {
        Search { nodes: Vec::new(), nodes_max }
    }

    /// Finds an empty slot within `depth` moves from `homes`, and the node of its bucket.
    ///
    /// `empty` gives an empty slot of a bucket of `m` slots, `others` the buckets of an entry.
    pub fn nearest<B: Iterator<Item = usize>>(
        &mut self,
        homes: impl Iterator<Item = usize>,
        (depth, m): (u32, usize),
        empty: impl Fn(usize) -> Option<usize>,
        others: impl Fn(usize, usize) -> B,
    ) -> Option<Place> {
        self.nodes.clear();
        for bucket in homes {
            if let Some(found) = self.look(Node { bucket, from: None, moves: 0 }, &empty) {
                return Some(found);
            }
        }
        let mut at = 0;
        while let Some(&Node { bucket, moves, .. }) = self.nodes.get(at)
            && moves < depth
        {
            for slot in 0..m {
                for bucket in others(bucket, slot) {
                    let node = Node { bucket, from: Some((at, slot)), moves: moves + 1 };
                    if let Some(found) = self.look(node, &empty) {
                        return Some(found);
                    }
                }
            }
            at += 1;
        }
        None
    }

    fn look(&mut self, node: Node, empty: impl Fn(usize) -> Option<usize>) -> Option<Place> {
        // Homes are few of the buckets, and no entry moves between them.
        let seen = |before: &Node| node.from.is_some() && before.bucket == node.bucket;
        if self.nodes.iter().any(seen) || self.nodes.len() >= self.nodes_max {
            return None;
        }
        self.nodes.push(node);
        Some((self.nodes.len() - 1, empty(node.bucket)?))
    }

    /// Moves the entries on the way to what [`nearest`](Search::nearest) found, the last one first;
    /// returns the place that is empty then. No bucket is on the way twice.
    pub fn make_room(
        &self,
        (mut node, mut empty): Place,
        mut displace: impl FnMut(Place, Place),
    ) -> Place {
        while let Some((before, slot)) = self.nodes[node].from {
            displace((self.nodes[before].bucket, slot), (self.nodes[node].bucket, empty));
            (node, empty) = (before, slot);
        }
        (self.nodes[node].bucket, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn table(name: &str, entries: usize, depth: u32) -> NaiveTable {
        NaiveTable::new(name.parse().unwrap(), entries, depth, 1)
    }

    #[test]
    fn entries_are_moved_and_never_lost_but_by_eviction() {
        for (name, depth) in
            [("set-4", 0), ("cuckoo-2-4", 0), ("cuckoo-2-4", 2), ("blp-2-4", 1), ("blp-3-5", 2)]
        {
            let mut table = table(name, 512, depth);
            for key in 0..600 {
                table.insert(key);
                assert!(table.contains(key), "{name}");
            }
            let stored: HashSet<u32> = table.slots.iter().copied().filter(|&s| s != 0).collect();
            let held = (0..600).filter(|&key| table.contains(key)).count();
            let Counts { held: counted, moves, evictions, .. } = table.counts;
            assert_eq!((stored.len(), counted, held + evictions), (held, held, 600), "{name}");
            assert_eq!(moves > 0, depth > 0, "{name}");
        }
        let lost = [0, 1, 2].map(|depth| {
            let mut table = table("cuckoo-2-4", 4096, depth);
            (0..3800).for_each(|key| table.insert(key));
            table.counts.evictions
        });
        assert!(lost.is_sorted_by(|a, b| a > b), "deeper searches hold more: {lost:?}");
    }

    /// Fills 2-4 BLP, 16 buckets and the spill: every inner bucket holds two entries that
    /// may also lie in the next bucket and two that may also lie in the one before. And a new key
    /// of buckets 8 and 9.
    fn full_blp(depth: u32) -> (NaiveTable, u32) {
        let mut table = table("blp-2-4", 64, depth);
        for (bucket, i) in (0..=16usize).flat_map(|bucket| (0..4).map(move |i| (bucket, i))) {
            let home = if i < 2 { bucket.min(15) } else { bucket.saturating_sub(1) };
            let fits = |key: &u32| table.bucket(*key, 0) == home && !table.contains(*key);
            let key = (0..).find(fits).unwrap();
            table.slots[4 * bucket + i] = key + 1;
        }
        let new = (0..).find(|&key| table.bucket(key, 0) == 8 && !table.contains(key)).unwrap();
        (table, new)
    }

    #[test]
    fn looks_once_at_each_bucket_that_can_be_reached() {
        // Buckets 8 and 9; then 7 and 10; then 6 and 11.
        for (depth, read) in [(0, 2), (1, 4), (2, 6)] {
            let (mut table, new) = full_blp(depth);
            table.insert(new);
            assert_eq!(table.counts, Counts { held: 0, read, moves: 0, evictions: 1 });
        }
        // Anywhere: counted by sets.
        let mut table = table("cuckoo-2-4", 1 << 12, 0);
        (0..1 << 16).for_each(|key| table.insert(key));
        assert!(table.slots.iter().all(|&slot| slot != 0));
        for (depth, most) in [(0, 2), (1, 2 + 8), (2, 2 + 8 + 32)] {
            table.depth = depth;
            for key in (depth + 1) << 20..((depth + 1) << 20) + 100 {
                let mut reached: HashSet<usize> = table.homes(key).collect();
                if reached.len() == 1 {
                    continue;
                }
                for _ in 0..depth {
                    let held = reached.iter().flat_map(|&bucket| table.bucket_slots(bucket));
                    let next: Vec<_> = held.flat_map(|&slot| table.homes(slot - 1)).collect();
                    reached.extend(next);
                }
                table.counts = Counts::default();
                table.insert(key);
                assert_eq!((table.counts.read, table.counts.moves), (reached.len(), 0));
                assert!(table.counts.read <= most);
            }
        }
    }

    #[test]
    fn moves_as_few_entries_as_it_must() {
        for (empty, moves) in [(8, 0), (9, 0), (7, 1), (10, 1), (6, 2), (11, 2), (5, usize::MAX)] {
            let (mut table, new) = full_blp(2);
            table.slots[4 * empty + 1] = 0;
            let before: Vec<u32> = table.slots.iter().copied().filter(|&slot| slot != 0).collect();
            table.insert(new);
            if moves > 2 {
                assert_eq!((table.counts.moves, table.counts.evictions), (0, 1), "too far");
                continue;
            }
            assert_eq!((table.counts.moves, table.counts.evictions), (moves, 0), "{empty}");
            let keys = before.iter().map(|slot| slot - 1).chain([new]);
            assert!(keys.into_iter().all(|key| table.contains(key)), "{empty}");
        }
    }
}
