//! Measures partition tables by row width and value bits: bits a key, build rate with one thread
//! and with several, lookup time, and the cost of changes.
//!
//!     cargo run --release -p overbank --example partition -- KEYS [THREADS]

use overbank::hash::mix;
use overbank::partition::{BuildError, BuildStats, Config, Plan, RowBits, Writer};
use std::error::Error;
use std::time::Instant;

/// Builds a table in a piece for each thread, each on all entries.
fn build(
    config: &Config,
    threads: usize,
    entries: impl Iterator<Item = (u64, u8)> + Clone + Send,
) -> Result<(Writer, BuildStats), BuildError> {
    let plan = Plan::new(config)?;
    let built: Result<Vec<_>, BuildError> = std::thread::scope(|scope| {
        let pieces = plan.pieces(threads).into_iter().map(|piece| {
            let entries = entries.clone();
            scope.spawn(move || piece.build(entries))
        });
        let running: Vec<_> = pieces.collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    plan.writer(built?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let keys: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let threads: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    println!("{keys} keys; lookups: medians of 5 rounds; changes are of random keys");
    println!(
        "row  v  packed  bits/key  fallback  Mkeys/s  {threads} threads  seeds/group  lookup ns  \
         move us  insert us"
    );
    let kinds = [(RowBits::R64, false), (RowBits::R128, false), (RowBits::R128, true)];
    for ((row, packed), bits) in kinds.into_iter().flat_map(|kind| (1..=4).map(move |v| (kind, v)))
    {
        let value = |i: u64| (mix(!i) & ((1 << bits) - 1)) as u8;
        let config = Config::new(keys as usize, bits).row(row);
        let config = if packed { config.packed() } else { config };
        let entries = (0..keys).map(|i| (mix(i), value(i)));
        let start = Instant::now();
        drop(build(&config, threads, entries.clone())?);
        let by_threads = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let (mut writer, stats) = build(&config, 1, entries)?;
        let alone = start.elapsed().as_secs_f64();
        let reader = writer.reader();
        let hashes: Vec<u64> = (0..1 << 20).map(|i| mix(mix(i) % keys)).collect();
        let mut values = vec![0; 32];
        let mut rounds = [0.0; 5];
        for round in &mut rounds {
            let start = Instant::now();
            for burst in hashes.chunks_exact(32) {
                reader.lookup_batch(burst, &mut values);
                std::hint::black_box(&values);
            }
            *round = start.elapsed().as_nanos() as f64 / hashes.len() as f64;
        }
        rounds.sort_by(f64::total_cmp);
        let changes = 20_000.min(keys);
        let start = Instant::now();
        for i in 0..changes {
            let key = mix(i ^ 0x55) % keys;
            writer.insert(mix(key), value(key) ^ 1)?;
        }
        let moved = start.elapsed().as_secs_f64() * 1e6 / changes as f64;
        let start = Instant::now();
        for i in 0..changes {
            writer.remove(mix(i));
            writer.insert(mix(keys + i), value(i))?;
        }
        let inserted = start.elapsed().as_secs_f64() * 1e6 / changes as f64;
        println!(
            "{:3}  {bits}  {packed:6}  {:8.4}  {:8}  {:7.1}  {:7.2} ×  {:11.3}  {:9.1}  {moved:7.2}  \
             {inserted:9.2}",
            row.get(),
            reader.bytes() as f64 * 8.0 / keys as f64,
            stats.fallback,
            keys as f64 / alone / 1e6,
            alone / by_threads,
            stats.seeds_tried as f64 / stats.groups as f64,
            rounds[2],
        );
    }
    Ok(())
}
