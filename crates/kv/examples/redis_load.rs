//! Load on a Redis, or a proxy before one: GETs by Zipf's law, pipelined, over many connections.
//!
//!     cargo run --release -p overbank-kv --example redis_load -- \
//!         PORT CONNECTIONS PIPELINE KEYS THETA SECONDS
//!
//! θ of 0 is uniform. Prints a line: requests a second, and the median and 99th percentile of the
//! time from a pipeline's request to its last reply, in microseconds. Keys are those of
//! `redis-benchmark -r`: `key:` and twelve digits.

use overbank_kv::load::{self, Batch, Pace, Plan, quantile};
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;
use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Share of the time that warms up.
const WARM_UP: f64 = 0.25;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<f64> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [port, connections, pipeline, keys, theta, seconds] = numbers[..] else {
        return Err("PORT CONNECTIONS PIPELINE KEYS THETA SECONDS".into());
    };
    let mut random = Pcg64::seed_from_u64(1);
    let zipf = Zipf::new(keys, theta)?;
    let mut draw = || match theta {
        0.0 => random.random_range(0..keys as u64),
        // Ranks are spread over the keys, as hot keys are.
        _ => (zipf.sample(&mut random) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys as u64,
    };
    let targets = [([127, 0, 0, 1], port as u16).into()];
    let plan = Plan {
        targets: &targets,
        connections: connections as usize,
        pace: Pace::Closed(connections as usize),
        time: Duration::from_secs_f64(seconds),
        stop: &AtomicBool::new(false),
    };
    let requests = pipeline as u32;
    let seen = load::run(&plan, |out| {
        (0..requests).for_each(|_| load::get(draw(), out));
        Some(Batch { target: 0, requests, kind: 0 })
    })?;
    let from = Duration::from_secs_f64(seconds * WARM_UP);
    let time = |share| quantile(seen.after(from), share);
    println!("{:.0} {:.1} {:.1}", seen.rate(from), time(0.5), time(0.99));
    Ok(())
}
