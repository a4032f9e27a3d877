//! Measures one bulk lookup, for comparison with `Fib.lookup` of the Python package.
//!
//!     cargo run --release -p overbank --example lookup_all -- [ENTRIES] [KEYS] [REPETITIONS]
//!
//! The table has the entries mix(0), mix(1), …, each with its number; every key that is looked up
//! is there. Prints the median nanoseconds of a key as JSON. `crates/python/benches/fib.py` runs it
//! in turns with Python.

use std::hint::black_box;
use std::time::Instant;

use overbank::fib::{Config, Writer};
use overbank::hash::mix;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<u64>());
    let (entries, keys, repetitions) = (number(1_000_000)?, number(1_000_000)?, number(15)?);
    if entries == 0 || keys == 0 || repetitions == 0 {
        return Err("entries, keys and repetitions: must be at least 1".into());
    }
    let mut writer = Writer::<u64, u64>::new(&Config::entries(entries as usize).seed(1))?;
    for number in 0..entries {
        writer.insert(mix(number), number)?;
    }
    let keys: Vec<u64> = (0..keys).map(|key| mix(mix(key) % entries)).collect();
    let (mut values, mut hits) = (vec![0; keys.len()], vec![0; keys.len().div_ceil(64)]);
    let reader = writer.reader();
    let mut times = Vec::new();
    for _ in 0..repetitions {
        let start = Instant::now();
        reader.lookup_all(&keys, &mut values, &mut hits);
        times.push(start.elapsed().as_nanos());
        black_box((&values, &hits));
    }
    times.sort_unstable();
    let found: u32 = hits.iter().map(|word| word.count_ones()).sum();
    assert_eq!(found as usize, keys.len(), "every key is there");
    let nanoseconds = times[times.len() / 2] as f64 / keys.len() as f64;
    let sum = values.iter().fold(0u64, |sum, &value| sum.wrapping_add(value));
    println!("{{\"lookup_all\": {nanoseconds:.3}, \"sum\": {sum}}}");
    Ok(())
}
