//! One writer and a reader for each core: addresses are learnt and forgotten while all others are
//! looked up.
//!
//!     cargo run --release -p overbank --example readers

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use overbank::fib::{BURST_MAX, Config, MacAddr, Writer};

const STATIONS: u64 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = |n: u64| MacAddr::new(n << 8 | 0x02).ok_or("an address has 48 bits");
    let mut writer = Writer::<MacAddr, u16>::new(&Config::entries(2 * STATIONS as usize))?;
    for n in 0..STATIONS {
        writer.insert(address(n)?, (n % 48) as u16)?;
    }
    let keys = (0..STATIONS).map(address).collect::<Result<Vec<_>, _>>()?;
    let (keys, over) = (&keys, &AtomicBool::new(false));
    thread::scope(|threads| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let readers: Vec<_> = (0..cores)
            .map(|_| {
                let reader = writer.reader();
                threads.spawn(move || {
                    let (mut ports, mut found) = ([0; BURST_MAX], 0_u64);
                    while !over.load(Ordering::Relaxed) {
                        for burst in keys.chunks(BURST_MAX) {
                            let hits = reader.lookup_batch(burst, &mut ports);
                            assert_eq!(hits.count_ones() as usize, burst.len(), "none is absent");
                            found += burst.len() as u64;
                        }
                    }
                    found
                })
            })
            .collect();
        // Stations beyond those come and go: the entries of the others move to make room.
        let churn = (STATIONS..STATIONS + 1_000_000).try_for_each(|n| {
            writer.insert(address(n)?, 7)?;
            writer.remove(address(n)?);
            Ok::<(), Box<dyn std::error::Error>>(())
        });
        over.store(true, Ordering::Relaxed);
        for (core, reader) in readers.into_iter().enumerate() {
            println!("reader {core}: {} lookups", reader.join().map_err(|_| "a reader ended")?);
        }
        churn
    })
}
