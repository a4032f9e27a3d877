//! A switch's burst: 32 packets at a time through a flow cache, each hint verified against the flow
//! that it names.
//!
//!     cargo run --release -p overbank --example burst

use overbank::cache::{BURST, Config, Design, Probes};
use overbank::hash::{Hash64, Seed};

/// A packet's flow: addresses and ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Flow(u128);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let design: Design = "blp-2-16+pblru".parse()?;
    let mut cache = design.build(&Config::entries(4096))?;
    // What the slower tables know: the cache has the numbers of these, and no keys.
    let flows: Vec<Flow> = (0..3000).map(|i| Flow(i << 64 | 0x0a00_0001)).collect();
    let (seed, mut probes) = (Seed::new(1), Probes::new());
    for burst in (0..100_000_usize).collect::<Vec<_>>().chunks(BURST) {
        let packets: Vec<Flow> = burst.iter().map(|i| flows[i * i % flows.len()]).collect();
        let hashes: Vec<Hash64> = packets.iter().map(|flow| seed.hash64(flow)).collect();
        cache.probe_batch(&hashes, &mut probes);
        let hits = probes.resolve(&*cache, &hashes, |i, id| flows[id as usize] == packets[i]);
        cache.commit(&hashes, &hits);
        for i in hits.missed() {
            let id = flows.iter().position(|flow| *flow == packets[i]).ok_or("an unknown flow")?;
            cache.insert(hashes[i], id as u32)?;
        }
    }
    println!(
        "{design}: {:.2} % of {} packets hit",
        100.0 * cache.counters().hit_rate(),
        cache.counters().lookups
    );
    Ok(())
}
