//! Keys through the sketch of hot keys, for an instruction count and a time.
//!
//!     sketch count LOG2      one in 2^LOG2 is sampled; run it under callgrind with
//!                            `--toggle-collect='*measured*'`, as `cargo xtask instructions` does
//!     sketch time LOG2       prints nanoseconds a key: the median of rounds, and their range
//!
//! `count` prints the keys that went through `measured`.

use overbank::hash::mix;
use overbank::sketch::{BURST_MAX, Config, Counter, Settings};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

const KEYS: usize = 1 << 16;
const ROUNDS: usize = 31;

#[inline(never)]
fn measured(counter: &mut Counter, hashes: &[u128]) -> u64 {
    hashes.chunks(BURST_MAX).map(|burst| counter.count_batch(burst)).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, sample_log2] = &arguments[..] else {
        return Err("arguments: count|time LOG2".into());
    };
    let settings = Settings { threshold: u16::MAX, sample_log2: sample_log2.parse()? };
    let (mut counter, _keeper) = Config::default().build(1, settings)?;
    let hashes: Vec<u128> =
        (0..KEYS as u64).map(|nth| u128::from(mix(nth)) << 64 | u128::from(mix(!nth))).collect();
    if what == "count" {
        black_box(measured(&mut counter, &hashes[..4096]));
        println!("4096");
        return Ok(());
    }
    let mut times: Vec<f64> = (0..=ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(measured(&mut counter, &hashes));
            start.elapsed().as_nanos() as f64 / KEYS as f64
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{:.2} ns a key [{:.2}–{:.2}]", times[ROUNDS / 2], times[0], times[ROUNDS - 1]);
    Ok(())
}
