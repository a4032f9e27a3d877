//! Hints in front of a slab, against a map of its positions.

use std::collections::HashMap;
use std::vec::Vec;

use super::{Blp, Config, Geometry, HalfBubble, Hints, Mask, Pblru, Policy, Positions, SetAssoc};
use crate::random::Pcg32;

/// Keys at positions that change all the time.
struct Slab {
    places: Vec<Option<u32>>,
    positions: HashMap<u32, u32>,
}

impl Positions<u32> for Slab {
    fn holds(&self, at: u32, key: &u32) -> bool {
        self.places.get(at as usize).is_some_and(|place| *place == Some(*key))
    }

    fn find(&self, key: &u32) -> Option<u32> {
        self.positions.get(key).copied()
    }
}

impl Slab {
    fn put(&mut self, at: u32, key: Option<u32>) {
        if let Some(old) = std::mem::replace(&mut self.places[at as usize], key) {
            self.positions.remove(&old);
        }
        if let Some(key) = key {
            self.positions.insert(key, at);
        }
    }

    /// Swaps what lies at two positions.
    fn swap(&mut self, a: u32, b: u32) {
        let (at_a, at_b) = (self.places[a as usize], self.places[b as usize]);
        self.put(a, None);
        self.put(b, at_a);
        self.put(a, at_b);
    }
}

fn chaos<G: Geometry, P: Policy<G>>(config: &Config) {
    let mut hints = Hints::<G, P>::with_design(config).unwrap();
    let mut slab = Slab { places: std::vec![None; 100], positions: HashMap::new() };
    let mut pcg = Pcg32::new(hints.capacity() as u64, 5);
    let (mut lookups, mut present) = (0, 0);
    for _ in 0..40_000 {
        let (a, b, key) = (pcg.below(100), pcg.below(100), pcg.below(150));
        match pcg.below(12) {
            0 => hints.retain(|_| pcg.below(2) == 0),
            1 if pcg.below(50) == 0 => hints.clear(),
            1 => slab.swap(a, b),
            2 => slab.put(a, None),
            3 if slab.find(&key).is_none() => slab.put(a, Some(key)),
            4..7 => {
                let keys: Vec<u32> = (0..pcg.below(70)).map(|_| pcg.below(150)).collect();
                let mut out = std::vec![Some(7); keys.len() + pcg.below(2) as usize];
                hints.get_batch(&slab, &keys, &mut out);
                for (key, out) in keys.iter().zip(&out) {
                    assert_eq!(*out, slab.find(key));
                    present += u64::from(out.is_some());
                }
                assert!(out[keys.len()..].iter().all(|&more| more == Some(7)));
                lookups += keys.len() as u64;
            }
            _ => {
                assert_eq!(hints.peek(&slab, &key), slab.find(&key));
                assert_eq!(hints.get(&slab, &key), slab.find(&key));
                lookups += 1;
                present += u64::from(slab.find(&key).is_some());
            }
        }
    }
    let counters = hints.counters();
    assert_eq!(counters.lookups, lookups);
    assert!(counters.hits > present / 50 && counters.hits < present, "{counters:?} of {present}");
    assert!(counters.false_positives > 100, "{counters:?}");
    assert!(hints.len() <= hints.capacity());
}

#[test]
fn positions_are_right_whatever_moves_and_whatever_hints_are_dropped() {
    for buckets in [1, 2, 3, 20] {
        chaos::<SetAssoc<8>, Pblru>(&Config::buckets(buckets));
        chaos::<Blp<2, 16>, HalfBubble>(&Config::buckets(buckets));
    }
}

/// A search that counts.
struct Counted(core::cell::Cell<u32>);

impl Positions<u32> for Counted {
    fn holds(&self, at: u32, key: &u32) -> bool {
        at == key + 1
    }

    fn find(&self, key: &u32) -> Option<u32> {
        self.0.set(self.0.get() + 1);
        (*key < 40).then_some(key + 1)
    }
}

#[test]
fn a_key_is_searched_for_once_and_then_hinted_at() {
    let (index, mut hints) = (Counted(0.into()), Hints::new(&Hints::entries(1000)).unwrap());
    let keys: Vec<u32> = (0..50).collect();
    let mut out = [None; 50];
    hints.get_batch(&index, &keys, &mut out);
    assert_eq!((index.0.get(), hints.len()), (50, 40));
    assert_eq!((out[39], out[40]), (Some(40), None));
    hints.get_batch(&index, &keys, &mut out);
    assert_eq!((hints.get(&index, &3), hints.peek(&index, &4)), (Some(4), Some(5)));
    assert_eq!(index.0.get(), 60, "absent ones alone");
    let counters = *hints.counters();
    assert_eq!((counters.lookups, counters.hits, counters.inserts), (101, 41, 40));
    let mut found = [None; 3];
    index.find_burst(&[1, 2], Mask::first(3), &mut found);
    assert_eq!(found, [Some(2), Some(3), None]);
    hints.clear();
    hints.reset_counters();
    assert_eq!((hints.len(), hints.counters().lookups), (0, 0));
    for _ in 0..2 {
        assert_eq!((hints.get(&index, &3), index.0.get()), (Some(4), 63));
    }
}
