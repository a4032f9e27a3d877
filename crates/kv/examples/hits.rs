//! Measures hits of the proxy's cache on one thread: look-up, check, and a copy of the reply.
//!
//!     cargo run --release -p overbank-kv --features proxy --example hits
//!
//! Prints medians, with their ranges, of nanoseconds a hit over 10,000 cached keys of 16 bytes with
//! values of 128 bytes, for uniform keys and for Zipf's law. Hashes are computed before.

use overbank_kv::proxy::slots::{Config, Filled, Query, SlotsError, Variant, build};
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64Mcg;
use std::error::Error;
use std::time::Instant;

const KEYS: usize = 10_000;
const REQUESTS: usize = 1 << 20;
const ROUNDS: usize = 11;

fn key(number: usize) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

fn filled(number: usize) -> Option<Filled> {
    let reply: Box<[u8]> = [b"$128\r\n".as_slice(), &[b'v'; 128], b"\r\n"].concat().into();
    let request = b"GET".as_slice().into();
    let variant = Variant { db: 0, request, resp3: reply.clone(), resp2: reply };
    Filled::new(&key(number), u64::MAX, vec![variant])
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let keys: Vec<(u128, Vec<u8>)> = (0..KEYS).map(|k| (random.random(), key(k))).collect();
    let (mut core, mut workers) = build(Config { entries: KEYS, ..Config::default() })?;
    for (number, (hash, key)) in keys.iter().enumerate() {
        let slot = core.promote(*hash, key).ok_or("no slot")?;
        let ticket = core.begin_fill(slot).ok_or("a write is in flight")?;
        core.accept(ticket, filled(number).ok_or("too many replies")?)?;
    }
    core.set_lease(u64::MAX);
    let worker = workers.first_mut().ok_or(SlotsError::Workers(0))?;
    let zipf = Zipf::new(KEYS as f64, 0.99)?;
    let orders: [(&str, Vec<usize>); 2] = [
        ("uniform", (0..REQUESTS).map(|_| random.random_range(0..KEYS)).collect()),
        ("Zipf 0.99", (0..REQUESTS).map(|_| zipf.sample(&mut random) as usize - 1).collect()),
    ];
    for (name, order) in orders {
        let mut out = [0; 256];
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let (start, mut bytes) = (Instant::now(), 0);
                for &number in &order {
                    let Some((hash, key)) = keys.get(number) else { continue };
                    let query = Query { hash: *hash, key, db: 0, request: b"GET" };
                    let copied = worker.hit(&query, 0, |variant| {
                        let room = out.get_mut(..variant.resp2.len());
                        room.map_or(0, |room| {
                            room.copy_from_slice(&variant.resp2);
                            room.len()
                        })
                    });
                    bytes += copied.unwrap_or(0);
                }
                std::hint::black_box(&out);
                assert_eq!(bytes, 136 * REQUESTS, "each is a hit");
                start.elapsed().as_nanos() as f64 / REQUESTS as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let [min, median, max] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| times[at]);
        println!("{name:<10} {median:.1} ns a hit ({min:.1} to {max:.1})");
    }
    let start = Instant::now();
    for &(hash, _) in keys.iter().cycle().take(REQUESTS) {
        let mark = worker.begin_write(hash);
        worker.end_write(mark);
    }
    println!("{:<10} {:.1} ns", "a write", start.elapsed().as_nanos() as f64 / REQUESTS as f64);
    Ok(())
}
