//! The tree of `lookaside` with criterion, for those that change it: bursts of lookups with hints
//! and without, and changes, beside the map of the standard library; at a size that the caches of
//! a core hold and at one that they do not.
//!
//!     cargo bench -p overbank --bench lookaside_tree
//!
//! A tenth of the keys gets nine tenths of the lookups, and hints have room for three tenths. Keys
//! are drawn before the clock starts, new ones for each burst.

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use overbank::cache::BURST;
use overbank::hash::mix;
use overbank::lookaside::{Hints, Tree};

/// Entries.
const SIZES: [(&str, u64); 2] = [("small", 1 << 12), ("large", 1 << 22)];

/// Draws bursts of the keys of numbers below `bound`, those below a tenth of it more often.
fn bursts(bound: u64) -> impl FnMut() -> [u64; BURST] {
    let mut drawn = 0;
    move || {
        std::array::from_fn(|_| {
            drawn += 1;
            let random = mix(drawn);
            let below = if random % 10 < 9 { bound / 10 } else { bound };
            mix(((u128::from(mix(random)) * u128::from(below)) >> 64) as u64)
        })
    }
}

fn trees(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    group.throughput(Throughput::Elements(BURST as u64));
    for (size, entries) in SIZES {
        let (mut map, capacity) = (BTreeMap::new(), entries as usize + BURST);
        let make = |hints| Tree::<u64, u64>::with_capacity(capacity, hints).expect("memory");
        let mut alone = make(None);
        let mut hinted = make(Some(Hints::entries(3 * entries as usize / 10)));
        for number in 0..entries {
            map.insert(mix(number), number);
            alone.insert(mix(number), number).expect("room");
            hinted.insert(mix(number), number).expect("room");
        }
        let mut draw = bursts(entries);
        let mut bench = |name: &str, work: &mut dyn FnMut([u64; BURST]) -> u64| {
            group.bench_function(format!("{name}/{size}"), |bencher| {
                bencher.iter_batched(
                    &mut draw,
                    |keys| work(black_box(keys)),
                    BatchSize::SmallInput,
                );
            });
        };
        bench("get, map of std", &mut |keys| keys.iter().map(|key| map[key]).sum());
        for (name, tree) in [("no hints", &mut alone), ("hints", &mut hinted)] {
            let get = &mut |keys: [u64; BURST]| keys.iter().filter_map(|key| tree.get(key)).sum();
            bench(&format!("get, {name}"), get);
            bench(&format!("get_batch, {name}"), &mut |keys| {
                let mut values = [None; BURST];
                tree.get_batch(&keys, &mut values);
                values.into_iter().flatten().sum()
            });
        }
        // Out and in again.
        bench("change, map of std", &mut |keys| {
            let gone = keys.map(|key| map.remove(&key).unwrap_or(1));
            keys.iter().zip(gone).filter_map(|(&key, value)| map.insert(key, value)).sum()
        });
        bench("change", &mut |keys| {
            let gone = keys.map(|key| alone.remove(&key).unwrap_or(1));
            let back = keys.iter().zip(gone);
            back.filter_map(|(&key, value)| alone.insert(key, value).expect("room")).sum()
        });
    }
}

criterion_group!(tree, trees);
criterion_main!(tree);
