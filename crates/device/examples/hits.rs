//! Measures hits of the key-value cache on one core, from and to ports in memory, beside the
//! Ethernet switch on the same frames, in turns.
//!
//!     cargo run --release -p overbank-device --example hits -- [ROUNDS]
//!
//! Prints, for values of 16 and 128 bytes and 1,024 and 65,536 cached keys, the medians of millions
//! of frames a second with their ranges, and ratios of the same rounds.

use overbank_device::loaded::{Loaded, get};
use overbank_device::{DropReason, Sink};
use overbank_ports::FrameStore;
use overbank_ports::looped::{MemoryOptions, MemoryPort};
use overbank_ports::queue::{Port as _, Queue};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use std::error::Error;
use std::time::Instant;

/// Frames of a store, and how many pass in a turn.
const FRAMES: usize = 1 << 16;
const TURN: u64 = 1 << 21;
const ROUNDS: usize = 15;

/// Sends frames by ports in memory.
struct Out {
    ports: Vec<Queue>,
    answered: u64,
    dropped: u64,
}

impl Sink for Out {
    #[inline]
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        self.output_parts(index, port, bytes, &[]);
    }

    #[inline]
    fn output_parts(&mut self, _: usize, port: u16, head: &[u8], rest: &[u8]) {
        self.answered += u64::from(port == 0);
        let sent = self.ports[usize::from(port)].transmit.send_parts(head, rest);
        self.dropped += u64::from(sent.is_err());
    }

    fn drop(&mut self, _: usize, _: DropReason) {
        self.dropped += 1;
    }

    fn to_control(&mut self, _: usize) {}
}

/// One device on its ports.
struct Bench {
    name: String,
    loaded: Loaded,
    source: Queue,
    out: Out,
    /// Millions of frames a second, by round: the device, the Ethernet switch.
    rates: [Vec<f64>; 2],
}

impl Bench {
    fn new(cached: usize, bytes: usize) -> Result<Bench, Box<dyn Error>> {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let mut keys: Vec<u128> = (0..FRAMES).map(|n| (n % cached) as u128).collect();
        keys.shuffle(&mut random);
        let mut store = FrameStore::new();
        for key in keys {
            store.push(&get(key), 0, 0)?;
        }
        let options = MemoryOptions::default();
        let mut source = MemoryPort::from_store(store.into(), &options, "source", 1);
        let mut ports = Vec::new();
        for name in ["client", "server"] {
            ports.extend(MemoryPort::open(&options, name, 1)?.take_queues());
        }
        Ok(Bench {
            name: format!("{cached} keys, {bytes} bytes"),
            loaded: Loaded::new(cached, bytes)?,
            source: source.take_queues().remove(0),
            out: Out { ports, answered: 0, dropped: 0 },
            rates: Default::default(),
        })
    }

    /// Passes a turn's frames through one of the two; returns millions a second.
    fn turn(&mut self, is_device: bool) -> Result<f64, Box<dyn Error>> {
        let (mut passed, start) = (0, Instant::now());
        let before = self.out.answered;
        while passed < TURN {
            let burst = self.source.receive.receive()?;
            passed += burst.len() as u64;
            if is_device {
                self.loaded.device.forward(0, &burst, 1, &mut self.out);
            } else {
                self.loaded.plain.forward(0, &burst, 1, &mut self.out);
            }
            for port in &mut self.out.ports {
                port.transmit.flush()?;
            }
        }
        let rate = passed as f64 / start.elapsed().as_secs_f64() / 1e6;
        let answered = self.out.answered - before;
        assert_eq!(answered, if is_device { passed } else { 0 }, "all are hits, or none");
        assert_eq!(self.out.dropped, 0);
        Ok(rate)
    }
}

/// Returns the median with its range.
fn spread(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[0], sorted[sorted.len() - 1]);
    format!("{:.2} ({low:.2} to {high:.2})", sorted[sorted.len() / 2])
}

fn ratio(of: &[f64], to: &[f64]) -> String {
    spread(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS), |text| text.parse())?;
    let sizes = [(1024, 16), (1024, 128), (1 << 16, 16), (1 << 16, 128)];
    let mut benches = Vec::new();
    for (cached, bytes) in sizes {
        benches.push(Bench::new(cached, bytes)?);
    }
    let mut random = Pcg64Mcg::seed_from_u64(4);
    // The first round warms up.
    for round in 0..=rounds.max(1) {
        let mut turns: Vec<(usize, bool)> =
            (0..benches.len()).flat_map(|n| [(n, true), (n, false)]).collect();
        turns.shuffle(&mut random);
        for (nth, is_device) in turns {
            let rate = benches[nth].turn(is_device)?;
            if round > 0 {
                benches[nth].rates[usize::from(!is_device)].push(rate);
            }
        }
    }
    for Bench { name, rates: [device, plain], .. } in &benches {
        println!("{name}: {} M hits/s, l2 {} M/s", spread(device), spread(plain));
        println!("  of l2: {}", ratio(device, plain));
    }
    let device = |nth: usize| &benches[nth].rates[0];
    println!("65,536 to 1,024 keys at 128 bytes: {}", ratio(device(3), device(1)));
    println!("128 to 16 bytes at 1,024 keys: {}", ratio(device(1), device(0)));
    println!("128 to 16 bytes at 65,536 keys: {}", ratio(device(3), device(2)));
    Ok(())
}
