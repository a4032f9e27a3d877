//! Runs bytes as operations on a tree, with hints and without, against a map.
//!
//! Nodes have 4 entries, so that few operations make a deep tree.
//!
//! Input: capacity, entries of hints (1 byte each; 0 is none), then operations (2 bytes each:
//! operation, key).
#![no_main]

use std::collections::BTreeMap;
use std::ops::Bound;

use libfuzzer_sys::fuzz_target;
use overbank::lookaside::Hints;
use overbank::lookaside::tree::{Full, Tree};

fuzz_target!(|data: &[u8]| {
    let [capacity, hints, ops @ ..] = data else { return };
    let capacity = usize::from(*capacity) + 1;
    let hints = (*hints > 0).then(|| Hints::entries(usize::from(*hints)));
    let mut tree = Tree::<u8, u32, 4, 4>::with_nodes(capacity, hints).expect("sizes in range");
    let mut map = BTreeMap::new();
    for (value, op) in (0..).zip(ops.chunks_exact(2)) {
        let key = op[1];
        match op[0] % 16 {
            0..=5 => {
                let full = map.len() == capacity && !map.contains_key(&key);
                let said = tree.insert(key, value);
                if full {
                    assert_eq!(said, Err(Full { capacity }));
                } else {
                    assert_eq!(said, Ok(map.insert(key, value)));
                }
            }
            6..=9 => assert_eq!(tree.remove(&key), map.remove(&key)),
            10 | 11 => assert_eq!(tree.get(&key), map.get(&key).copied()),
            12 => {
                let keys: Vec<u8> = (0..key % 40).map(|i| key.wrapping_mul(i)).collect();
                let mut out = vec![None; keys.len()];
                tree.get_batch(&keys, &mut out);
                assert!(out.into_iter().eq(keys.iter().map(|key| map.get(key).copied())));
            }
            13 => {
                // Kinds of the bounds, and their distance.
                let end = key.saturating_add(op[0] >> 4);
                let start = [Bound::Included(key), Bound::Unbounded][usize::from(op[0] >> 4 & 1)];
                let range =
                    (start, [Bound::Included(end), Bound::Excluded(end)][usize::from(key & 1)]);
                let theirs = map.range(range).map(|(&key, &value)| (key, value));
                assert!(tree.range(range).eq(theirs.clone()));
                assert!(tree.range(range).rev().eq(theirs.rev()));
            }
            14 => _ = tree.hints_mut().map(|hints| hints.retain(|at| at % 3 != u32::from(key) % 3)),
            _ if key == 0 => {
                tree.clear();
                map.clear();
            }
            _ => {
                assert_eq!(tree.peek(&key), map.get(&key).copied());
                if let Some(there) = tree.get_mut(&key) {
                    *there += 1 << 16;
                    *map.get_mut(&key).expect("in both") += 1 << 16;
                }
            }
        }
        assert_eq!(tree.len(), map.len());
    }
    assert!(tree.iter().eq(map.iter().map(|(&key, &value)| (key, value))));
});
