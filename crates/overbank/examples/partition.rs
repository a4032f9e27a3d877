//! Bits a key, build rate, lookup time and cost of a change of partition tables, by row width and value bits:
//! `cargo run --release -p overbank --example partition -- KEYS`.

use overbank::hash::mix;
use overbank::partition::{Config, RowBits, Writer};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let keys: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |text| text.parse())?;
    println!("{keys} keys; medians of 5 rounds; changes are of random keys");
    println!("row  v   bits/key  build Mkeys/s  seeds/group  lookup ns   move us  insert us");
    for row in [RowBits::R64, RowBits::R128] {
        for bits in 1..=4 {
            let value = |i: u64| (mix(!i) & ((1 << bits) - 1)) as u8;
            let config = Config::new(keys as usize, bits).row(row);
            let start = Instant::now();
            let entries = (0..keys).map(|i| (mix(i), value(i)));
            let (mut writer, stats) = Writer::build(&config, entries)?;
            let built = start.elapsed().as_secs_f64();
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
                "{:3}  {bits}  {:9.3}  {:13.1}  {:11.3}  {:9.1}  {moved:8.2}  {inserted:9.2}",
                row.get(),
                reader.bytes() as f64 * 8.0 / keys as f64,
                keys as f64 / built / 1e6,
                stats.seeds_tried as f64 / stats.groups as f64,
                rounds[2],
            );
        }
    }
    Ok(())
}
