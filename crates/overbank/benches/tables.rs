//! The tables with criterion, for those that change them: how long a burst takes, at a size that
//! the caches of a core hold and at one that they do not.
//!
//!     cargo bench -p overbank
//!     cargo bench -p overbank -- 'fib/.*large'
//!
//! Keys are drawn before the clock starts, new ones for each burst. The figures of the project come
//! from `overbank lab` and `cargo xtask peers`, which compare with other tables in one run.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use overbank::cache::{BURST, Config, Design, Probes};
use overbank::hash::Hash64;
use overbank::{fib, lookaside, partition, sketch};

/// Entries of a table.
const SIZES: [(&str, u64); 2] = [("small", 1 << 12), ("large", 1 << 22)];
const DESIGNS: [&str; 4] = ["set-8", "blp-2-4", "blp-2-16+pblru", "cuckoo-2-16+half-bubble"];

/// Draws bursts of numbers below `bound`.
fn bursts<T>(bound: u64, make: impl Fn(u64) -> T) -> impl FnMut() -> [T; BURST] {
    let mut drawn = 0;
    move || {
        std::array::from_fn(|_| {
            drawn += 1;
            make(((u128::from(Hash64::mix(drawn).get()) * u128::from(bound)) >> 64) as u64)
        })
    }
}

/// Verified lookups of a cache whose working set is as large as the cache; misses are inserted.
fn caches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cache");
    group.throughput(Throughput::Elements(BURST as u64));
    for (size, entries) in SIZES {
        for name in DESIGNS {
            let design: Design = name.parse().expect("a design");
            let mut cache = design.build(&Config::entries(entries as usize)).expect("a cache");
            let (mut draw, mut probes) = (bursts(entries, |flow| flow), Probes::new());
            let mut burst = |flows: [u64; BURST]| {
                let hashes = flows.map(Hash64::mix);
                cache.probe_batch(&hashes, &mut probes);
                let right = |i: usize, value: u32| value == flows[i] as u32 & 0xffff;
                let hits = probes.resolve(&*cache, &hashes, right);
                cache.commit(&hashes, &hits);
                for i in hits.missed() {
                    cache.insert(hashes[i], flows[i] as u32 & 0xffff).expect("16 bits");
                }
                hits.found().bits()
            };
            (0..entries / 8).for_each(|_| _ = burst(draw()));
            group.bench_function(format!("{name}/{size}"), |bencher| {
                bencher.iter_batched(&mut draw, &mut burst, BatchSize::SmallInput);
            });
        }
    }
}

/// Lookups of a forwarding table of Ethernet addresses, 90 % full; every second key is there.
fn fibs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fib");
    group.throughput(Throughput::Elements(BURST as u64));
    for (size, entries) in SIZES {
        let address = |number: u64| -> fib::MacAddr {
            let bytes = (Hash64::mix(number).get() >> 16).to_be_bytes();
            std::array::from_fn(|i| bytes[i + 2]).into()
        };
        let config = fib::Config::entries((entries as f64 / 0.9) as usize);
        let mut writer = fib::Writer::<fib::MacAddr, u16>::new(&config).expect("a table");
        for number in 0..entries {
            writer.insert(address(number), number as u16).expect("room");
        }
        let (reader, mut draw) = (writer.reader(), bursts(2 * entries, address));
        group.bench_function(format!("lookup_batch/{size}"), |bencher| {
            let mut values = [0; BURST];
            let look =
                |keys: [fib::MacAddr; BURST]| black_box(reader.lookup_batch(&keys, &mut values));
            bencher.iter_batched(&mut draw, look, BatchSize::SmallInput);
        });
    }
}

/// Lookups of a partition table, and counts of a sketch.
fn without_keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("partition");
    group.throughput(Throughput::Elements(BURST as u64));
    for (size, keys) in SIZES {
        let hash = |number| Hash64::mix(number).get();
        let entries = (0..keys).map(|number| (hash(number), number as u8 & 15));
        let config = partition::Config::new(keys as usize, 4);
        let (table, _) = partition::Replica::build(&config, entries).expect("a table");
        let (reader, mut draw) = (table.reader(), bursts(keys, hash));
        group.bench_function(format!("lookup_batch/{size}"), |bencher| {
            let look = |hashes: [u64; BURST]| {
                let mut values = [0; BURST];
                reader.lookup_batch(&hashes, &mut values);
                values
            };
            bencher.iter_batched(&mut draw, look, BatchSize::SmallInput);
        });
    }
    group.finish();
    let settings = sketch::Settings { threshold: 100, sample_log2: 0 };
    let (mut counter, _keeper) = sketch::Config::default().build(1, settings).expect("a sketch");
    let mut draw = bursts(1 << 20, |number| {
        u128::from(Hash64::mix(number).get()) << 64 | u128::from(Hash64::mix(!number).get())
    });
    let mut group = criterion.benchmark_group("sketch");
    group.throughput(Throughput::Elements(BURST as u64));
    group.bench_function("count_batch", |bencher| {
        let count = |keys: [u128; BURST]| counter.count_batch(&keys);
        bencher.iter_batched(&mut draw, count, BatchSize::SmallInput);
    });
}

/// Lookups of a look-aside table: of keys that it has, and of keys that it lacks and does not get.
fn copies(criterion: &mut Criterion) {
    type Table = lookaside::Copies<u64, u64>;
    let mut group = criterion.benchmark_group("lookaside");
    group.throughput(Throughput::Elements(BURST as u64));
    for (size, entries) in SIZES {
        let table = Table::new(&lookaside::Config::entries(2 * entries as usize)).expect("a table");
        (0..entries).for_each(|key| _ = table.get_or(key, |&key| Some(key)));
        for (what, from) in [("hit", 0), ("miss", 1 << 40)] {
            let mut draw = bursts(entries, |key| key + from);
            group.bench_function(format!("{what}/{size}"), |bencher| {
                let look = |keys: [u64; BURST]| {
                    keys.iter().filter(|&&key| table.get(key).is_answer()).count()
                };
                bencher.iter_batched(&mut draw, look, BatchSize::SmallInput);
            });
            group.bench_function(format!("{what} in bursts/{size}"), |bencher| {
                let look = |keys: [u64; BURST]| {
                    let mut answers = 0;
                    table.get_batch(&keys, |_, found| answers += usize::from(found.is_answer()));
                    answers
                };
                bencher.iter_batched(&mut draw, look, BatchSize::SmallInput);
            });
        }
    }
}

criterion_group!(tables, caches, fibs, copies, without_keys);
criterion_main!(tables);
