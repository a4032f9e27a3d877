//! Trees against `BTreeMap`, with nodes so small that every path is common.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::string::ToString;
use std::vec::Vec;

use super::nodes::{LEAVES_MAX, NONE};
use super::*;
use crate::lookaside::hints::CacheError;
use crate::random::Pcg32;

/// Checks each node against the rules of `nodes`, and the order of all keys.
fn check<K: Key, V: Copy, const L: usize, const I: usize>(tree: &Tree<K, V, L, I>) {
    let nodes = &tree.nodes;
    let (mut leaves, mut inners, mut keys) = (Vec::new(), 0, Vec::new());
    let mut level = Vec::from([(nodes.root, 0, None::<K>, None::<K>)]);
    if nodes.len == 0 {
        level.clear();
        assert_eq!((nodes.root, nodes.height, nodes.ends), (NONE, 0, [NONE; 2]));
    }
    while let Some((at, depth, low, high)) = level.pop() {
        let root = depth == 0;
        if depth == nodes.height {
            let (node, len) = (nodes.leaves.node(at), nodes.leaves.len(at));
            assert!(len >= if root { 1 } else { L / 2 } && len <= L, "a leaf of {len}");
            assert!(node.keys[len..].iter().all(|&key| key == K::MAX));
            assert!(low.is_none_or(|low| low <= node.keys[0]));
            assert!(high.is_none_or(|high| node.keys[len - 1] < high));
            keys.extend(&node.keys[..len]);
            leaves.push(at);
            continue;
        }
        let (node, len) = (nodes.inners.node(at), nodes.inners.len(at));
        assert!(len >= if root { 2 } else { I / 2 } && len <= I, "an inner node of {len}");
        assert!(node.keys[len..].iter().all(|&key| key == K::MAX));
        assert!(low.is_none_or(|low| low == node.keys[0]), "the key beside it in its parent");
        inners += 1;
        for i in (0..len).rev() {
            let low = if i > 0 { Some(node.keys[i]) } else { low };
            let high = if i + 1 < len { Some(node.keys[i + 1]) } else { high };
            level.push((node.items[i], depth + 1, low, high));
        }
    }
    assert!(keys.is_sorted_by(|a: &K, b| a < b));
    assert_eq!((keys.len(), leaves.len()), (nodes.len, nodes.leaves.used()));
    assert_eq!(inners, nodes.inners.used());
    for (i, &leaf) in leaves.iter().enumerate() {
        let before = if i == 0 { NONE } else { leaves[i - 1] };
        let after = leaves.get(i + 1).copied().unwrap_or(NONE);
        assert_eq!(nodes.links[leaf as usize], [before, after]);
    }
    let ends = leaves.first().zip(leaves.last()).map_or([NONE; 2], |(&a, &b)| [a, b]);
    assert_eq!(nodes.ends, ends);
}

/// A bound of each kind.
fn bounds(key: u16) -> [Bound<u16>; 3] {
    [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded]
}

/// Whether a range of the standard library would panic.
fn crossed(start: Bound<u16>, end: Bound<u16>) -> bool {
    match (start, end) {
        (Bound::Excluded(a), Bound::Excluded(b)) => a >= b,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a > b,
    }
}

/// Runs random operations on a tree of `capacity` entries and on a map, with keys below `keys`
/// and the greatest ones. Before each, hints are dropped at random.
fn twin<const L: usize, const I: usize>(
    (capacity, keys, ops): (usize, u32, usize),
    hints: Option<Config>,
    value: impl Fn(u32) -> [u8; 24],
) {
    let (mut tree, mut map) =
        (Tree::<u16, [u8; 24], L, I>::with_nodes(capacity, hints).unwrap(), BTreeMap::new());
    let memory = tree.memory_bytes();
    let mut pcg = Pcg32::new(capacity as u64, u64::from(keys));
    // Phases in which the tree grows, and in which it shrinks.
    let mut growing = true;
    for op in 0..ops {
        let draw = |pcg: &mut Pcg32| match pcg.below(32) {
            0 => u16::MAX - pcg.below(2) as u16,
            _ => pcg.below(keys) as u16,
        };
        let key = draw(&mut pcg);
        if let Some(hints) = tree.hints_mut() {
            match pcg.below(200) {
                0 => hints.clear(),
                1..20 => hints.retain(|_| pcg.below(4) > 0),
                _ => {}
            }
        }
        if pcg.below(2 * capacity as u32) == 0 {
            growing = !growing;
        }
        match pcg.below(16) {
            0..8 if (pcg.below(8) > 0) == growing => {
                let value = value(op as u32);
                let full = map.len() == capacity && !map.contains_key(&key);
                let said = tree.insert(key, value);
                if full {
                    assert_eq!(said, Err(Full { capacity }));
                } else {
                    assert_eq!(said, Ok(map.insert(key, value)));
                }
            }
            0..8 => assert_eq!(tree.remove(&key), map.remove(&key)),
            8 | 9 => assert_eq!(tree.get(&key), map.get(&key).copied()),
            10 => assert_eq!(tree.get_mut(&key), map.get_mut(&key)),
            11 => {
                assert_eq!(tree.peek(&key), map.get(&key).copied());
                assert_eq!(tree.contains(&key), map.contains_key(&key));
                let entry = tree.find(&key).and_then(|at| tree.entry(at));
                assert_eq!(entry, map.get(&key).map(|&value| (key, value)));
                let wild = pcg.draw();
                assert_eq!(
                    tree.entry(wild).is_some_and(|(there, _)| there == key),
                    tree.holds(wild, &key)
                );
                tree.prefetch(wild);
                let mut found = [None, Some(7)];
                tree.find_burst(&[key], Mask::first(BURST), &mut found);
                assert_eq!(found, [tree.find(&key), Some(7)]);
                if let Some(value) = tree.get_mut(&key) {
                    value[0] ^= 1;
                    map.get_mut(&key).unwrap()[0] ^= 1;
                }
            }
            12 | 13 => {
                let burst: Vec<u16> = (0..pcg.below(80)).map(|_| draw(&mut pcg)).collect();
                let mut out = std::vec![Some(value(0)); burst.len()];
                tree.get_batch(&burst, &mut out);
                assert!(out.iter().copied().eq(burst.iter().map(|key| map.get(key).copied())));
            }
            14 => {
                let (a, b) = (bounds(key), bounds(draw(&mut pcg)));
                let (a, b) = (a[pcg.below(3) as usize], b[pcg.below(3) as usize]);
                let theirs = || map.range((a, b)).map(|(&key, &value)| (key, value));
                if crossed(a, b) {
                    assert_eq!(tree.range((a, b)).next(), None);
                } else {
                    assert!(tree.range((a, b)).eq(theirs()));
                    assert!(tree.range((a, b)).rev().eq(theirs().rev()));
                }
            }
            _ if pcg.below(2000) == 0 => {
                tree.clear();
                map.clear();
            }
            _ => {
                let entry = |(&key, &value): (&u16, &[u8; 24])| (key, value);
                assert_eq!(tree.first(), map.first_key_value().map(entry));
                assert_eq!(tree.last(), map.last_key_value().map(entry));
            }
        }
        assert_eq!((tree.len(), tree.is_empty()), (map.len(), map.is_empty()));
        if op % 16 == 0 {
            check(&tree);
        }
    }
    assert!(tree.iter().eq(map.iter().map(|(&key, &value)| (key, value))));
    assert_eq!(tree.memory_bytes(), memory);
    let counters = tree.hints().map(|hints| *hints.counters());
    assert!(counters.is_none_or(|c| c.hits > 100 && c.false_positives > 0), "{counters:?}");
}

#[test]
fn every_operation_is_that_of_a_map() {
    let value = |op: u32| std::array::from_fn(|i| (op >> (i % 4 * 8)) as u8);
    let hints = |entries| Some(Hints::entries(entries));
    twin::<4, 4>((300, 400, 40_000), None, value);
    twin::<4, 4>((300, 400, 40_000), hints(48), value);
    twin::<4, 4>((3, 8, 10_000), hints(16), value);
    twin::<4, 4>((1, 4, 4_000), hints(32), value);
    twin::<5, 7>((500, 700, 40_000), hints(200), value);
    twin::<8, 5>((700, 60_000, 40_000), None, value);
    twin::<LEAF, INNER>((8000, 9000, 60_000), hints(3000), value);
}

/// Inserts, looks up and removes keys of one type, in an order that is not theirs.
fn order<K: Key>(keys: impl IntoIterator<Item = K>) {
    let keys: Vec<K> = keys.into_iter().collect();
    assert!(keys.is_sorted() && !keys.is_empty());
    let mut tree = Tree::<K, usize>::with_capacity(keys.len(), Hints::entries(64)).unwrap();
    let step = (0..keys.len()).map(|i| (i * 7919) % keys.len());
    step.clone().for_each(|i| assert_eq!(tree.insert(keys[i], i), Ok(None)));
    check(&tree);
    assert!(tree.iter().eq(keys.iter().copied().zip(0..)));
    step.clone()
        .for_each(|i| assert_eq!((tree.get(&keys[i]), tree.get(&keys[i])), (Some(i), Some(i))));
    let mut out = std::vec![None; keys.len()];
    tree.get_batch(&keys, &mut out);
    assert!(out.into_iter().eq((0..keys.len()).map(Some)));
    step.for_each(|i| assert_eq!(tree.remove(&keys[i]), Some(i)));
    check(&tree);
}

#[test]
fn keys_of_every_kind_are_in_their_order() {
    order(0..=u8::MAX);
    order((-300..300i32).map(|i| i * 7_000_000));
    order((0..1000u64).chain([u64::MAX - 1, u64::MAX]));
    order((0..500u128).map(|i| (i << 64) | (499 - i)));
    order((0..500u64).map(|i| (i * 0x0101_0101).to_be_bytes()));
    order((0..600u16).map(|i| (i / 30, [(i % 30) as u8, 1])));
    order([u128::MAX]);
}

#[test]
fn a_value_may_be_nothing_or_large() {
    let mut set = Tree::<u32, ()>::with_capacity(100, None).unwrap();
    let mut wide = Tree::<u32, [u64; 200], 8, 4>::with_nodes(100, Hints::entries(30)).unwrap();
    for key in (0..100).rev() {
        assert_eq!(
            (set.insert(key, ()), wide.insert(key, [u64::from(key); 200])),
            (Ok(None), Ok(None))
        );
    }
    assert_eq!(
        (set.insert(4, ()), set.insert(100, ())),
        (Ok(Some(())), Err(Full { capacity: 100 }))
    );
    assert!(
        (0..100)
            .all(|key| set.get(&key).is_some() && wide.get(&key) == Some([u64::from(key); 200]))
    );
}

/// The capacity holds whatever was done before: nodes are as empty as they may be when the last
/// entries come.
#[test]
fn a_tree_is_emptied_and_filled_again_and_never_needs_more_memory() {
    fn rounds<const L: usize, const I: usize>(capacity: usize) {
        let mut tree = Tree::<u32, u32, L, I>::with_nodes(capacity, None).unwrap();
        let (memory, mut pcg) = (tree.memory_bytes(), Pcg32::new(capacity as u64, 3));
        for round in 0..100u32 {
            // Ascending, descending, from the middle out, or random; removed in another order.
            let order = |kind: u32, pcg: &mut Pcg32| {
                let mut keys: Vec<u32> = (0..capacity as u32).collect();
                match kind % 4 {
                    0 => {}
                    1 => keys.reverse(),
                    2 => keys.sort_by_key(|&key| key.abs_diff(capacity as u32 / 2)),
                    _ => keys.sort_by_cached_key(|_| pcg.draw()),
                }
                keys
            };
            for key in order(round, &mut pcg) {
                assert_eq!(tree.insert(key, key + round), Ok(None));
            }
            assert_eq!(tree.insert(u32::MAX, 0), Err(Full { capacity }));
            check(&tree);
            // Every second pair or so away, then others in: many nodes at their least.
            for key in (0..capacity as u32).filter(|key| key % 4 < 2) {
                assert_eq!(tree.remove(&key), Some(key + round));
            }
            check(&tree);
            let removed = capacity - tree.len();
            for key in 0..removed as u32 {
                assert_eq!(tree.insert(u32::MAX - key, round), Ok(None));
            }
            assert_eq!(tree.insert(1 << 20, 0), Err(Full { capacity }));
            check(&tree);
            for key in 0..removed as u32 {
                assert_eq!(tree.remove(&(u32::MAX - key)), Some(round));
            }
            for key in order(round / 4, &mut pcg).into_iter().filter(|key| key % 4 >= 2) {
                assert_eq!(tree.remove(&key), Some(key + round));
            }
            check(&tree);
            assert_eq!((tree.len(), tree.nodes.leaves.used(), tree.memory_bytes()), (0, 0, memory));
        }
    }
    rounds::<4, 4>(150);
    rounds::<5, 6>(150);
    rounds::<32, 63>(1200);
}

/// The bound of the documentation is met, and tight but for roots.
#[test]
fn arenas_have_the_nodes_that_entries_can_need() {
    let mut tree = Tree::<u32, u32, 4, 4>::with_nodes(4096, None).unwrap();
    assert_eq!((tree.nodes.leaves.capacity(), tree.nodes.inners.capacity()), (2048, 2047));
    // Ascending insertions leave every node but the last ones half full.
    (0..4096).for_each(|key| assert_eq!(tree.insert(key, 0), Ok(None)));
    assert!(tree.nodes.leaves.used() >= 2046, "{}", tree.nodes.leaves.used());
    check(&tree);
    for (capacity, leaves, inners) in [(1, 1, 1), (31, 1, 1), (32, 2, 1), (16 * 63, 63, 3)] {
        let tree = Tree::<u32, u32>::with_capacity(capacity, None).unwrap();
        let arenas = (tree.nodes.leaves.capacity(), tree.nodes.inners.capacity());
        assert_eq!(arenas, (leaves, inners), "{capacity}");
    }
}

#[test]
fn ranges_have_the_entries_between_their_bounds_from_both_ends() {
    let mut tree = Tree::<u16, u16, 4, 4>::with_nodes(40, None).unwrap();
    let keys: Vec<u16> = (1..=20).map(|i| 2 * i).chain([u16::MAX]).collect();
    keys.iter().for_each(|&key| assert_eq!(tree.insert(key, key), Ok(None)));
    for a in (0..=44).chain([u16::MAX]) {
        for b in (0..=44).chain([u16::MAX]) {
            for (start, end) in bounds(a).into_iter().flat_map(|a| bounds(b).map(|b| (a, b))) {
                let expected: Vec<u16> =
                    keys.iter().copied().filter(|key| (start, end).contains(key)).collect();
                let range = tree.range((start, end));
                assert!(
                    range.clone().map(|(key, _)| key).eq(expected.iter().copied()),
                    "{start:?} {end:?}"
                );
                assert!(range.clone().rev().map(|(key, _)| key).eq(expected.iter().copied().rev()));
                // From both ends in turn, until they meet.
                let (mut range, mut left) = (range, &expected[..]);
                while let [first, rest @ ..] = left {
                    assert_eq!(range.next(), Some((*first, *first)));
                    left = rest;
                    if let [rest @ .., last] = left {
                        assert_eq!(range.next_back(), Some((*last, *last)));
                        left = rest;
                    }
                }
                assert_eq!((range.next(), range.next_back(), range.next()), (None, None, None));
            }
        }
    }
    assert!(Tree::<u16, u16>::with_capacity(1, None).unwrap().range(..).next().is_none());
    assert_eq!(std::format!("{:?}", tree.range(3..7)), "{4: 4, 6: 6}");
}

#[test]
fn sizes_out_of_range_are_errors_that_say_what_would_be_right() {
    let error =
        |capacity, hints: Option<Config>| Tree::<u64, u64>::with_capacity(capacity, hints).err();
    assert_eq!(error(0, None), Some(TreeError::Empty));
    let max = LEAVES_MAX * 16;
    let large = error(max + 1, None).unwrap();
    assert_eq!(large, TreeError::TooLarge { capacity: max + 1, max });
    assert_eq!(
        large.to_string(),
        "a tree of these nodes has at most 2147483648 entries, not 2147483649"
    );
    assert_eq!(error(1, Some(Hints::entries(0))), Some(TreeError::Hints(CacheError::Empty)));
}
