//! Measures flow caches: nanoseconds per key, by design and instruction set.
//!
//!     cargo run --release -p overbank --example probe -- [DESIGN[,DESIGN…]] [ENTRIES] [KEYS]
//!
//! Without arguments all designs with random eviction and a few others, 2^20 entries (4 MiB of
//! 16-bit fingerprints and values) and 10^6 keys, drawn uniformly: the set-up of the paper's
//! section 7. Each figure is the best of several rounds in one process, so that the rows of one run
//! can be compared with each other.
//!
//! Columns, in nanoseconds: `probe`, a key through `probe_batch`, hit or miss, its value used;
//! `lookup`, the same with every match verified (against a value that is at hand, so the cost of
//! the caller's entry is not in it) and reported by `commit`; `insert`, an insertion after a
//! miss, alone and not prefetched. The line above them is what one random read of a table of that
//! size costs when the reads are independent and the CPU may overlap them.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use overbank::cache::{BURST, Config, Design, DynCache, Probes, Slot};
use overbank::hash::Hash64;
use overbank::isa::Isa;
use overbank::random::Pcg32;

const ROUNDS: usize = 7;
const DRAWS: usize = 1 << 18;

/// Hashes of `DRAWS` keys drawn uniformly, and for each the value that belongs to it.
struct Traffic {
    hashes: Vec<Hash64>,
    values: Vec<u16>,
}

impl Traffic {
    fn draw(&mut self, pcg: &mut Pcg32, keys: u32) {
        for (hash, value) in self.hashes.iter_mut().zip(&mut self.values) {
            let key = pcg.below(keys);
            *hash = Hash64::mix(u64::from(key));
            *value = key as u16;
        }
    }
}

struct Figures {
    hit_rate: f64,
    probe_ns: f64,
    lookup_ns: f64,
    ahead_ns: f64,
    insert_ns: f64,
}

/// Verified lookups of all keys, and insertions for the misses, with the time of each part.
fn replay(cache: &mut dyn DynCache, traffic: &Traffic, ahead: bool) -> (f64, f64) {
    let mut probes = Probes::new();
    let (mut lookup, mut insert, mut misses) = (0.0, 0.0, 0u32);
    let mut missed = Vec::with_capacity(DRAWS);
    let start = Instant::now();
    let bursts = traffic.hashes.chunks(BURST).zip(traffic.values.chunks(BURST));
    for (b, (hashes, values)) in bursts.enumerate() {
        if ahead {
            let next = traffic.hashes.get((b + 1) * BURST..).unwrap_or_default();
            cache.probe_batch_ahead(hashes, next, &mut probes);
        } else {
            cache.probe_batch(hashes, &mut probes);
        }
        let is_right = |i: usize, value: u32| value == u32::from(values[i]);
        let hits = probes.resolve(cache, hashes, is_right);
        cache.commit(hashes, &hits);
        missed.extend(hits.missed().iter().map(|i| (b * BURST + i) as u32));
    }
    lookup += start.elapsed().as_secs_f64();
    let start = Instant::now();
    for &i in &missed {
        let (hash, value) = (traffic.hashes[i as usize], traffic.values[i as usize]);
        misses += u32::from(black_box(cache.insert(hash, u32::from(value))).is_ok());
    }
    insert += start.elapsed().as_secs_f64();
    (lookup * 1e9 / traffic.hashes.len() as f64, insert * 1e9 / f64::from(misses.max(1)))
}

fn measure(cache: &mut dyn DynCache, keys: u32) -> Figures {
    let mut pcg = Pcg32::new(1, 2);
    let mut traffic = Traffic { hashes: vec![Hash64::default(); DRAWS], values: vec![0; DRAWS] };
    // Twenty times the working set: the contents have settled.
    for _ in 0..(20 * keys as usize).div_ceil(DRAWS) {
        traffic.draw(&mut pcg, keys);
        replay(cache, &traffic, false);
    }
    cache.reset_counters();
    let mut best = Figures {
        hit_rate: 0.0,
        probe_ns: f64::MAX,
        lookup_ns: f64::MAX,
        ahead_ns: f64::MAX,
        insert_ns: f64::MAX,
    };
    let mut probes = Probes::new();
    for _ in 0..ROUNDS {
        traffic.draw(&mut pcg, keys);
        let mut sum = 0u32;
        let start = Instant::now();
        for hashes in traffic.hashes.chunks(BURST) {
            cache.probe_batch(hashes, &mut probes);
            let found = probes.values().iter().fold(0u32, |a, &v| a.wrapping_add(v));
            sum = sum.wrapping_add(found ^ probes.matched().bits());
        }
        black_box(sum);
        best.probe_ns = best.probe_ns.min(start.elapsed().as_secs_f64() * 1e9 / DRAWS as f64);
        let (lookup, insert) = replay(cache, &traffic, false);
        traffic.draw(&mut pcg, keys);
        best.ahead_ns = best.ahead_ns.min(replay(cache, &traffic, true).0);
        best.lookup_ns = best.lookup_ns.min(lookup);
        best.insert_ns = best.insert_ns.min(insert);
    }
    best.hit_rate = cache.counters().hit_rate();
    best
}

/// One random 64-byte line of `bytes` per key, nothing compared.
fn floor_ns(bytes: usize) -> f64 {
    // A cache of the same size, so that the pages are of the same kind; set-16 reads one line.
    let design: Design = "set-16".parse().expect("a design's name");
    let Ok(cache) = design.build(&Config::entries(bytes / 4).seed(1)) else { return f64::NAN };
    let mut pcg = Pcg32::new(3, 4);
    let hashes: Vec<Hash64> = (0..DRAWS).map(|_| Hash64::mix(u64::from(pcg.draw()))).collect();
    let Some(first) = Slot::new(0) else { return f64::NAN };
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut sum = 0;
        for &hash in &hashes {
            sum ^= black_box(cache.candidate(hash, first));
        }
        black_box(sum);
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / DRAWS as f64);
    }
    best
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let designs: Vec<Design> = match arguments.next() {
        Some(names) => names.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => Design::all()
            .filter(|design| design.policy().name() == "random")
            .chain([
                "blp-2-4+pblru".parse()?,
                "blp-2-16+pblru".parse()?,
                "blp-2-16+bubble".parse()?,
            ])
            .collect(),
    };
    let entries: usize = arguments.next().map_or(Ok(1 << 20), |n| n.parse())?;
    let keys: u32 = arguments.next().map_or(Ok(1_000_000), |n| n.parse())?;
    println!(
        "{entries} entries, {keys} keys, bursts of {BURST}, best of {ROUNDS} rounds of {DRAWS}"
    );
    println!("one random slot read: {:.1} ns a key", floor_ns(entries * 4));
    println!(
        "{:<18}{:<10}{:>7}{:>9}{:>9}{:>9}{:>9}   huge pages",
        "design", "isa", "hit %", "probe", "lookup", "ahead", "insert"
    );
    for design in designs {
        for isa in Isa::available() {
            let mut cache = design.build(&Config::entries(entries).seed(1).isa(Some(isa)))?;
            let Figures { hit_rate, probe_ns, lookup_ns, ahead_ns, insert_ns } =
                measure(&mut *cache, keys);
            println!(
                "{design:<18}{isa:<10}{:>7.2}{probe_ns:>9.2}{lookup_ns:>9.2}{ahead_ns:>9.2}{insert_ns:>9.2}   {}",
                100.0 * hit_rate,
                cache.huge_pages()
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("probe: {error}");
            ExitCode::FAILURE
        }
    }
}
