//! Measures partition tables by row width and value bits: bits a key, build rate with one thread
//! and with several, lookup time, and the cost of changes at the owner and at a copy (there by
//! batch, so that the clock does not count). With CHURN, replaces CHURN × KEYS keys one by one and
//! reports the bits a key and the fallback then.
//!
//!     cargo run --release -p overbank --example partition -- KEYS [THREADS [CHURN]]

use overbank::hash::mix;
use overbank::partition::{BuildError, BuildStats, Config, Plan, RowBits, Writer};
use std::error::Error;
use std::time::{Duration, Instant};

/// Deltas that are applied between two looks at the clock.
const BATCH: usize = 256;

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
    let churn: u64 = arguments.next().map_or(Ok(0), |text| text.parse())?;
    println!("{keys} keys; lookups: medians of 5 rounds; changes are of random keys");
    println!(
        "row  v  packed  bits/key  fallback  Mkeys/s  {threads} threads  seeds/group  lookup ns  \
         move us p50    p99  bytes  apply ns p50    p99  insert us p50    p99  after churn"
    );
    let kinds = [(RowBits::R64, false), (RowBits::R128, false), (RowBits::R128, true)];
    for ((row, packed), bits) in kinds.into_iter().flat_map(|kind| (1..=4).map(move |v| (kind, v)))
    {
        let value = |i: u64| (mix(!i) & ((1 << bits) - 1)) as u8;
        let config = Config::new(keys as usize, bits).row(row);
        let config = if packed { config.packed() } else { config };
        let entries = (0..keys).map(|i| (mix(i), value(i)));
        let rate = |threads| {
            let start = Instant::now();
            let built = build(&config, threads, entries.clone())?;
            Ok::<_, BuildError>((built, start.elapsed().as_secs_f64()))
        };
        let (_, by_threads) = rate(threads)?;
        let ((mut writer, stats), alone) = rate(1)?;
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
        let (mut replica, mut deltas) = (writer.replica()?, Vec::new());
        let moved = times_ns(0..changes, |i| {
            // Each key once, so its value is known without a look that would bring its lines.
            let key = i * (keys / changes) + mix(i) % (keys / changes);
            let start = Instant::now();
            let delta = writer.insert(mix(key), value(key) ^ 1)?;
            let time = start.elapsed();
            deltas.extend(delta);
            Ok(time)
        })?;
        let applied = times_ns(deltas.chunks_exact(BATCH), |batch| {
            let start = Instant::now();
            replica.apply_all(batch)?;
            Ok(start.elapsed())
        })?;
        let bytes = deltas.iter().map(|delta| delta.bytes()).max().unwrap_or(0);
        let inserted = times_ns(0..changes, |i| {
            writer.remove(mix(i));
            let start = Instant::now();
            writer.insert(mix(keys + i), value(i))?;
            Ok(start.elapsed())
        })?;
        let mut refused = 0;
        for i in changes..changes + churn * keys {
            writer.remove(mix(i));
            refused += u64::from(writer.insert(mix(keys + i), value(i)).is_err());
        }
        let [moved, inserted] = [moved, inserted].map(|times| times.map(|ns| ns as f64 / 1e3));
        let applied = applied.map(|ns| ns as f64 / BATCH as f64);
        println!(
            "{:3}  {bits}  {packed:6}  {:8.4}  {:8}  {:7.1}  {:7.2} ×  {:11.3}  {:9.1}  \
             {:11.2} {:6.2}  {bytes:5}  {:12.1} {:6.1}  {:13.2} {:6.2}  {:.4} bits/key, {} in fallback, {refused} refused",
            row.get(),
            reader.bytes() as f64 * 8.0 / keys as f64,
            stats.fallback,
            keys as f64 / alone / 1e6,
            alone / by_threads,
            stats.seeds_tried as f64 / stats.groups as f64,
            rounds[2],
            moved[0],
            moved[1],
            applied[0],
            applied[1],
            inserted[0],
            inserted[1],
            reader.bytes() as f64 * 8.0 / writer.len() as f64,
            reader.fallback_len(),
        );
    }
    Ok(())
}

/// Median and 99th percentile of the times that `each` returns, in ns, the clock's own included.
fn times_ns<T>(
    of: impl IntoIterator<Item = T>,
    each: impl FnMut(T) -> Result<Duration, Box<dyn Error>>,
) -> Result<[u128; 2], Box<dyn Error>> {
    let times: Result<Vec<Duration>, _> = of.into_iter().map(each).collect();
    let mut times = times?;
    times.sort_unstable();
    Ok([50, 99].map(|percent| times.get(times.len() * percent / 100).map_or(0, |t| t.as_nanos())))
}
