//! Slots beside the paper's loop, corrected.

use super::*;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// Algorithm 2 as it is printed, but for the errors that the module names, once for each pass.
/// Moves by trying all.
struct Naive {
    memory: Vec<u8>,
    key_map: BTreeMap<Item, Vec<Place>>,
    passes: usize,
}

impl Naive {
    fn insert(&mut self, item: Item, bytes: usize) -> Option<Place> {
        if self.key_map.contains_key(&item) || bytes > 128 * self.passes {
            return None;
        }
        let (mut memory, mut places) = (self.memory.clone(), Vec::new());
        let mut left = bytes.div_ceil(16).max(1);
        while left > 0 {
            let n = left.min(8);
            let index = memory.iter().position(|free| free.count_ones() as usize >= n)?;
            let bits = (0..8u8).filter(|bit| memory[index] >> bit & 1 == 1);
            let stages = bits.take(n).fold(0u8, |stages, bit| stages | 1 << bit);
            memory[index] &= !stages;
            places.push(Place { index: index as u16, stages, units: left as u8 });
            left -= n;
        }
        self.memory = memory;
        Some(self.key_map.entry(item).or_insert(places)[0])
    }

    fn evict(&mut self, item: Item) -> Option<Place> {
        let places = self.key_map.remove(&item)?;
        places.iter().for_each(|it| self.memory[usize::from(it.index)] |= it.stages);
        places.first().copied()
    }

    fn squares(&self) -> u32 {
        self.memory.iter().map(|free| free.count_ones().pow(2)).sum()
    }
}

/// Does the same to both.
struct Pair(Slots, Naive);

impl Pair {
    fn new(indexes_log2: u32, passes: usize) -> Pair {
        let memory = vec![u8::MAX; 1 << indexes_log2];
        let naive = Naive { memory, key_map: BTreeMap::new(), passes };
        Pair(Slots::new(indexes_log2, passes), naive)
    }

    fn insert(&mut self, item: Item, bytes: usize) {
        let Pair(slots, naive) = self;
        assert_eq!(slots.insert(item, bytes).ok(), naive.insert(item, bytes));
    }

    fn remove(&mut self, item: Item) {
        let Pair(slots, naive) = self;
        assert_eq!(slots.remove(item), naive.evict(item));
    }

    /// Makes room for a value as far as moves do; returns how many there were.
    fn repack(&mut self, bytes: usize) -> usize {
        let Pair(slots, naive) = self;
        let mut moves = 0;
        let spare = |slots: &Slots| (0..=Item::MAX).find(|item| slots.place(*item).is_none());
        while let Some(Move { from, to, place }) = slots.repack(bytes, spare(slots).expect("one")) {
            let before = naive.squares();
            let free = &mut naive.memory[usize::from(place.index)];
            assert_eq!(*free & place.stages, place.stages, "units of others");
            *free &= !place.stages;
            naive.key_map.insert(to, vec![place]);
            let left = slots.remove(from);
            assert_eq!(naive.evict(from), left);
            assert_eq!(left.map(|left| left.units), Some(place.units));
            assert!(naive.squares() > before);
            moves += 1;
        }
        moves
    }

    /// Each unit is free or of one item, by all that says so.
    fn check(&self) {
        let Pair(slots, naive) = self;
        assert_eq!(slots.free[..], naive.memory[..]);
        let free = naive.memory.iter().map(|free| free.count_ones()).sum::<u32>();
        assert_eq!(slots.free_units(), free);
        for (index, &free) in naive.memory.iter().enumerate() {
            let mut of_items = 0;
            let mut items = BTreeSet::new();
            for item in slots.items(index as u16) {
                let here = |place: &Place| usize::from(place.index) == index;
                let stages = slots.passes(item).find(here).expect("placed").stages;
                assert_eq!(of_items & stages, 0, "owned twice");
                of_items |= stages;
                assert!(items.insert(item));
            }
            assert_eq!(of_items, !free, "leaked");
            for (with, set) in slots.with_free.iter().enumerate() {
                let is_in = set.iter().any(|of| usize::from(of) == index);
                assert_eq!(is_in, with == free.count_ones() as usize);
            }
        }
        let placed = (0..=u16::MAX).filter(|item| slots.place(*item).is_some());
        let placed = placed.map(|item| (item, slots.passes(item).collect::<Vec<Place>>()));
        assert!(placed.eq(naive.key_map.iter().map(|(item, places)| (*item, places.clone()))));
    }
}

/// Operations on a full memory; `OVERBANK_SLOT_OPERATIONS` says how many.
#[test]
fn no_unit_is_owned_twice_and_none_leaks() {
    let operations = std::env::var("OVERBANK_SLOT_OPERATIONS");
    let operations = operations.ok().and_then(|text| text.parse().ok()).unwrap_or(200_000u64);
    for passes in [1, 3, PASSES_MAX] {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut pair = Pair::new(6, passes);
        let mut moves = 0;
        for nth in 0..operations / 3 {
            // About as many values as there is room for, and some that are too long.
            let item = random.random_range(0..320 / (1 + passes as Item));
            let most = if random.random_ratio(1, 2) { PASS } else { passes * PASS };
            let bytes = random.random_range(0..=most + 1);
            match random.random_range(0..8) {
                0..4 => pair.insert(item, bytes),
                4..7 => pair.remove(item),
                _ => moves += pair.repack(bytes),
            }
            if nth % 4096 == 0 {
                pair.check();
            }
        }
        pair.check();
        assert!(moves > 100, "{moves} moves with {passes} passes");
    }
}

#[test]
fn moves_bring_free_units_together() {
    let mut pair = Pair::new(4, 1);
    for item in 0..64 {
        pair.insert(item, 32);
    }
    // One value of two units of each index goes: 32 units are free, and no two indexes have eight.
    (0..64).step_by(4).for_each(|item| pair.remove(item));
    assert_eq!(pair.0.insert(100, 128), Err(SlotError::Full { units: 8, free: 32 }));
    assert_eq!(pair.repack(128), 3);
    pair.insert(100, 128);
    assert!(pair.0.place(100).is_some());
    assert_eq!(pair.0.repack(16, 200), None, "there is room");
    pair.check();
    // Values of five units leave three in each index, for good.
    let mut pair = Pair::new(4, 1);
    (0..16).for_each(|item| pair.insert(item, 80));
    assert_eq!(pair.0.free_units(), 48);
    assert_eq!(pair.repack(64), 0);
}

#[test]
fn a_long_value_has_whole_indexes_and_a_rest() {
    let mut pair = Pair::new(2, PASSES_MAX);
    pair.insert(0, 48);
    pair.insert(1, 300);
    let place = |index, stages, units| Place { index, stages, units };
    let wanted = [place(1, 0xff, 19), place(2, 0xff, 11), place(0, 0b11_1000, 3)];
    assert!(pair.0.passes(1).eq(wanted));
    // Nine units are left: one whole index, and not two.
    assert_eq!(pair.0.insert(2, 256), Err(SlotError::Full { units: 16, free: 10 }));
    pair.insert(2, 160);
    assert!(pair.0.passes(2).eq([place(3, 0xff, 10), place(0, 0b1100_0000, 2)]));
    assert_eq!(pair.0.free_units(), 0);
    // What is in pieces stays where it is, and gives all of them back.
    assert_eq!(pair.repack(128), 0);
    pair.remove(1);
    pair.check();
    assert_eq!(pair.0.free_units(), 19);
    // Two whole indexes come free by a move.
    let mut pair = Pair::new(2, PASSES_MAX);
    (0..4).for_each(|item| pair.insert(item, 64));
    (4..8).for_each(|item| pair.insert(item, 64));
    [0, 2, 4, 6].iter().for_each(|item| pair.remove(*item));
    assert_eq!(pair.0.insert(9, 256), Err(SlotError::Full { units: 16, free: 16 }));
    assert_eq!(pair.repack(256), 2);
    pair.insert(9, 256);
    assert_eq!(pair.0.place(9).map(|place| place.units), Some(16));
    pair.check();
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut slots = Slots::new(0, 1);
    let place = slots.insert(7, 0).expect("room");
    assert_eq!(place, Place { index: 0, stages: 1, units: 1 });
    let error = slots.insert(7, 16).expect_err("placed");
    assert_eq!(error.to_string(), "item 7 has a place");
    let error = slots.insert(8, 129).expect_err("too long");
    assert_eq!(error.to_string(), "a value of 129 bytes: must have at most 128");
    let error = slots.insert(8, 128).expect_err("full");
    assert_eq!(error.to_string(), "no place has 8 free units; 7 are free in all");
    assert_eq!((slots.free_units(), slots.remove(8)), (7, None));
    // Once, and not again: the paper's EVICT would free the units of the next item.
    assert_eq!(slots.remove(7), Some(place));
    assert_eq!(slots.insert(9, 128).expect("room").stages, u8::MAX);
    assert_eq!((slots.remove(7), slots.free_units()), (None, 0));
    assert_eq!(slots.items(9).count(), 0);
}

#[test]
fn lengths_are_rounded_up() {
    for (bytes, units) in [(0, 1), (1, 1), (16, 1), (17, 2), (112, 7), (113, 8), (128, 8)] {
        assert_eq!(units_of(bytes), units, "{bytes}");
    }
    for (bytes, passes) in [(0, 1), (128, 1), (129, 2), (256, 2), (1281, 11), (1408, 11)] {
        assert_eq!(passes_of(bytes), passes, "{bytes}");
    }
}

proptest! {
    #[test]
    fn index_sets_are_sets(changes in prop::collection::vec((any::<bool>(), any::<u16>()), 0..300)) {
        let (mut set, mut naive) = (IndexSet::from_iter([]), BTreeSet::new());
        for (inserts, index) in changes {
            // Near each other and far apart, both ends too.
            let index = if index % 3 == 0 { index } else { (index / 1024).wrapping_neg() };
            if inserts {
                set.insert(index);
                naive.insert(index);
            } else {
                set.remove(index);
                naive.remove(&index);
            }
            prop_assert_eq!(set.first(), naive.first().copied());
        }
        prop_assert!(set.iter().eq(naive.iter().copied()));
    }
}
