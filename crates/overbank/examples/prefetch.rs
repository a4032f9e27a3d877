//! Compares near and far prefetch on this machine, by the size of the table.
//!
//!     cargo run --release -p overbank --example prefetch -- [MIB[,MIB…]]
//!
//! Two equal tables, one of each kind, take turns in many short rounds of random keys that are
//! there: forwarding tables of Ethernet addresses, looked up in bursts of 32 and as a list, and
//! flow caches (blp-2-16), probed in bursts. Prints the cost of far as a multiple of near in the
//! same round: the median, and the quarter of rounds below and above it. `*` marks the sizes at
//! which `Prefetch::Automatic` is far. Without arguments from half an L2 to 32 of them.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use overbank::cache::{self, BURST, Design, DynCache, Probes};
use overbank::fib::{Config, MacAddr, Reader, Writer};
use overbank::hash::Hash64;
use overbank::prefetch::{Prefetch, l2_bytes};
use overbank::random::Pcg32;

const ROUNDS: usize = 401;
const DRAWS: usize = 1 << 13;
const KINDS: [Prefetch; 2] = [Prefetch::Near, Prefetch::Far];

type Failure = Box<dyn std::error::Error>;

fn address(number: u64) -> MacAddr {
    let bits = number.wrapping_mul(0x9e37_79b9_7f4b) & 0xffff_ffff_ffff;
    MacAddr::new(bits).expect("masked to 48 bits")
}

fn seconds<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_secs_f64()
}

/// The first, second and third quartile of far ÷ near.
fn quartiles(mut ratios: Vec<f64>) -> [f64; 3] {
    ratios.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| ratios[ratios.len() * quarter / 4])
}

/// Runs near and far in turns, each first in half of the rounds, each on different keys.
fn compare<K>(entries: u64, make: impl Fn(u64) -> K, mut run: impl FnMut(usize, &[K])) -> [f64; 3] {
    let mut pcg = Pcg32::new(1, 2);
    let mut keys = Vec::with_capacity(DRAWS);
    let ratios = (0..ROUNDS).map(|round| {
        let mut time = |which: usize| {
            keys.clear();
            keys.extend((0..DRAWS).map(|_| make(u64::from(pcg.below(entries as u32)))));
            seconds(|| run(which, &keys))
        };
        let first = round % 2;
        let (one, other) = (time(first), time(1 - first));
        if first == 0 { other / one } else { one / other }
    });
    quartiles(ratios.collect())
}

fn forwarding(bytes: usize) -> Result<[[f64; 3]; 2], Failure> {
    let (buckets, entries) = (bytes / 64, (bytes / 64 * 7) as u64 * 9 / 10);
    let [near, far] = KINDS.map(|prefetch| -> Result<Reader<MacAddr, u16>, Failure> {
        let mut writer = Writer::new(&Config::buckets(buckets).seed(7).prefetch(prefetch))?;
        for number in 0..entries {
            writer.insert(address(number), number as u16)?;
        }
        Ok(writer.reader())
    });
    let tables = [near?, far?];
    let (mut values, mut hits) = (vec![0u16; DRAWS], vec![0u64; DRAWS / 64]);
    let bursts = compare(entries, address, |which, keys| {
        for keys in keys.chunks(32) {
            black_box(tables[which].lookup_batch(keys, &mut values));
        }
    });
    let list = compare(entries, address, |which, keys| {
        tables[which].lookup_all(keys, &mut values, &mut hits);
    });
    Ok([bursts, list])
}

fn caches(bytes: usize) -> Result<[f64; 3], Failure> {
    let design: Design = "blp-2-16".parse()?;
    let slots = bytes / 4;
    let [near, far] = KINDS.map(|prefetch| -> Result<Box<dyn DynCache>, Failure> {
        let config = cache::Config::entries(slots).seed(7).prefetch(prefetch);
        let mut cache = design.build(&config)?;
        for number in 0..slots as u64 {
            cache.insert(Hash64::mix(number), number as u32 & 0xffff)?;
        }
        Ok(cache)
    });
    let caches = [near?, far?];
    let mut probes = Probes::new();
    Ok(compare(slots as u64, Hash64::mix, |which, hashes| {
        for hashes in hashes.chunks(BURST) {
            caches[which].probe_batch(hashes, &mut probes);
            black_box(probes.matched());
        }
    }))
}

fn run() -> Result<(), Failure> {
    let l2 = l2_bytes();
    let sizes = match std::env::args().nth(1) {
        Some(list) => list
            .split(',')
            .map(|mib| Ok((mib.parse::<f64>()? * f64::from(1 << 20)) as usize))
            .collect::<Result<Vec<_>, Failure>>()?,
        None => (0..7).map(|double| (l2 / 2) << double).collect(),
    };
    println!("L2 of {} KiB; far ÷ near, median (quartiles)", l2 >> 10);
    for bytes in sizes {
        let mark = if Prefetch::Automatic.is_far(bytes) { '*' } else { ' ' };
        let [bursts, list] = forwarding(bytes)?;
        let cache = caches(bytes)?;
        let text = |[low, median, high]: [f64; 3]| format!("{median:.2} ({low:.2}-{high:.2})");
        println!(
            "{mark}{:7.1} MiB  fib bursts {}  fib list {}  cache {}",
            bytes as f64 / f64::from(1 << 20),
            text(bursts),
            text(list),
            text(cache),
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prefetch: {error}");
            ExitCode::FAILURE
        }
    }
}
