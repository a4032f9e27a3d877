//! What the device answers on one core, from and to ports in memory (figures 9a and 9b).
//!
//! The paper's switch is as fast at any size: its stages are passed whatever is in them. Here a
//! value is copied, and memory is behind caches. What must hold is how much is lost.
//!
//! In the paper, a packet passes the switch 32 times between its clients. Here the frames of a
//! store pass the device in bursts, beside an Ethernet switch on the same frames, in turns.

use std::time::Instant;

use super::*;
use overbank::random::Pcg32;
use overbank_device::loaded::{Loaded, get, put};
use overbank_device::{DropReason, Sink};
use overbank_netcache::slots::passes_of;
use overbank_ports::FrameStore;
use overbank_ports::looped::{MemoryOptions, MemoryPort};
use overbank_ports::queue::{Port as _, Queue};

pub const KV9A: Experiment = Experiment {
    name: "kv9a",
    title: "Answers of the device on one core, by bytes of a value and share of writes",
    source: "NetCache, figure 9a",
    run: sizes,
};
pub const KV9B: Experiment = Experiment {
    name: "kv9b",
    title: "Answers of the device on one core, by cached keys",
    source: "NetCache, figure 9b",
    run: items,
};

/// Frames of a store, in a random order of keys.
const FRAMES: usize = 1 << 16;
const ITEMS: usize = 1 << 16;
const BYTES: [usize; 6] = [16, 32, 48, 64, 96, 128];
const WRITES: [f64; 3] = [0.0, 0.5, 1.0];
/// Values of 1 to 11 passes, and keys that have room for all of these.
const LONG: [usize; 6] = [128, 256, 512, 768, 1024, 1408];
const LONG_ITEMS: usize = 1 << 12;

/// Takes what leaves by ports in memory.
struct Out {
    ports: Vec<Queue>,
    /// Frames by the port that they left by: the client's, the server's.
    sent: [u64; 2],
    lost: u64,
}

impl Sink for Out {
    #[inline]
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        self.output_parts(index, port, bytes, &[]);
    }

    #[inline]
    fn output_parts(&mut self, _: usize, port: u16, head: &[u8], rest: &[u8]) {
        let port = usize::from(port);
        self.sent[port] += 1;
        self.lost += u64::from(self.ports[port].transmit.send_parts(head, rest).is_err());
    }

    fn drop(&mut self, _: usize, _: DropReason) {
        self.lost += 1;
    }

    fn to_control(&mut self, _: usize) {}
}

/// A device with its frames.
struct Bench {
    items: usize,
    bytes: usize,
    writes: f64,
    loaded: Loaded,
    source: Queue,
    out: Out,
    /// Frames that were to be answered and were not, or the other way round.
    wrong: u64,
}

impl Bench {
    /// Keys that are read are not written: the former are hits, the latter invalid.
    fn new(items: usize, bytes: usize, writes: f64, seed: u64) -> Result<Bench, LabError> {
        let mut random = Pcg32::new(seed, 9);
        let written = (writes * items as f64) as usize;
        let mut keys: Vec<u128> = (0..FRAMES).map(|nth| (nth % items) as u128).collect();
        for last in (1..keys.len()).rev() {
            keys.swap(last, random.below(last as u32 + 1) as usize);
        }
        let mut store = FrameStore::new();
        for key in keys {
            let frame = if (key as usize) < written { put(key, &vec![1; bytes]) } else { get(key) };
            store.push(&frame, 0, 0).map_err(LabError::failed)?;
        }
        let options = MemoryOptions::default();
        let mut source = MemoryPort::from_store(store.into(), &options, "source", 1);
        let mut ports = Vec::new();
        for name in ["client", "server"] {
            let mut port = MemoryPort::open(&options, name, 1).map_err(LabError::failed)?;
            ports.extend(port.take_queues());
        }
        Ok(Bench {
            items,
            bytes,
            writes,
            loaded: Loaded::new(items, bytes).map_err(LabError::failed)?,
            source: source.take_queues().remove(0),
            out: Out { ports, sent: [0; 2], lost: 0 },
            wrong: 0,
        })
    }

    /// Passes frames through the device or the Ethernet switch; returns millions a second.
    fn turn(&mut self, is_device: bool, frames: u64) -> Result<f64, LabError> {
        let (mut passed, start) = (0, Instant::now());
        let before = self.out.sent;
        while passed < frames {
            let burst = self.source.receive.receive().map_err(LabError::failed)?;
            passed += burst.len() as u64;
            match is_device {
                true => self.loaded.device.forward(0, &burst, 1, &mut self.out),
                false => self.loaded.plain.forward(0, &burst, 1, &mut self.out),
            }
            for port in &mut self.out.ports {
                port.transmit.flush().map_err(LabError::failed)?;
            }
        }
        let rate = passed as f64 / start.elapsed().as_secs_f64() / 1e6;
        let [answered, forwarded] = [0, 1].map(|port| self.out.sent[port] - before[port]);
        let reads = match (is_device, self.writes) {
            (false, _) => 0,
            (true, 0.0) => passed,
            (true, 1.0) => 0,
            // Each half of the keys has as many frames of the store, but for its last round.
            (true, _) => answered.clamp(passed * 45 / 100, passed * 55 / 100),
        };
        self.wrong += reads.abs_diff(answered) + (passed - reads).abs_diff(forwarded);
        Ok(rate)
    }
}

struct Measured {
    benches: Vec<Bench>,
    /// By bench: millions of frames a second of the device, of the Ethernet switch.
    device: Rounds,
    plain: Rounds,
}

impl Measured {
    fn at(&self, items: usize, bytes: usize, writes: f64) -> usize {
        let wanted = (items, bytes, writes);
        let of = |bench: &Bench| (bench.items, bench.bytes, bench.writes) == wanted;
        self.benches.iter().position(of).unwrap_or(0)
    }

    /// The device's rate as a multiple of the Ethernet switch's.
    fn to_plain(&self, nth: usize) -> Spread {
        let of = |rounds: &Rounds| rounds.figures[nth].clone();
        Spread::of_ratios(of(&self.device), of(&self.plain))
    }

    fn claim(&self, least: f64, (of, to): (usize, usize)) -> Option<Finding> {
        Finding::at_least(least, self.device.ratio(of, to))
    }
}

fn measure(context: &mut Context<'_>, benches: Vec<Bench>) -> Result<Measured, LabError> {
    let (frames, rounds) = if context.smoke() { (1 << 14, 1) } else { (1 << 20, 15) };
    let mut turns: Vec<(usize, Bench)> = benches.into_iter().enumerate().collect();
    let mut plain = vec![Vec::new(); turns.len()];
    let mut first = vec![true; turns.len()];
    let device = Rounds::run(
        &mut turns,
        rounds,
        |done| context.step("rounds", done),
        |(nth, bench), _| {
            if std::mem::take(&mut first[*nth]) {
                bench.turn(true, frames)?;
                bench.turn(false, frames)?;
            }
            plain[*nth].push(bench.turn(false, frames)?);
            bench.turn(true, frames)
        },
    )?;
    let benches = turns.into_iter().map(|turn| turn.1).collect();
    Ok(Measured { benches, device, plain: Rounds { figures: plain } })
}

const CLAIMS: &[Claim<Measured>] =
    &[Claim::new("all frames are answered or forwarded as they should", "all", |of: &Measured| {
        let wrong: u64 = of.benches.iter().map(|bench| bench.wrong + bench.out.lost).sum();
        Finding::new(wrong == 0, format!("{wrong} wrong"))
    })];

const OF_SIZES: &[Claim<Measured>] = &[
    Claim::timed("128 bytes: 10 million hits/s", "goal: 10 M/s", |of: &Measured| {
        Finding::at_least(10.0, of.device.spread(of.at(ITEMS, 128, 0.0)))
    }),
    Claim::timed("128 bytes: 0.5 × the Ethernet switch", "goal: 0.5", |of: &Measured| {
        Finding::at_least(0.5, of.to_plain(of.at(ITEMS, 128, 0.0)))
    }),
    Claim::timed("128 bytes: 0.7 × the hits of 16 bytes", "flat", |of: &Measured| {
        of.claim(0.7, (of.at(ITEMS, 128, 0.0), of.at(ITEMS, 16, 0.0)))
    }),
];

const OF_ITEMS: &[Claim<Measured>] =
    &[Claim::timed("65,536 keys: 0.6 × the hits of 1,024", "flat", |of: &Measured| {
        of.claim(0.6, (of.at(ITEMS, 128, 0.0), of.at(1024, 128, 0.0)))
    })];

fn sizes(context: &mut Context<'_>) -> Result<Record, LabError> {
    let (bytes, items): (&[usize], usize) = match context.smoke() {
        true => (&[16, 128], 1024),
        false => (&BYTES, ITEMS),
    };
    let (long, long_items): (&[usize], usize) = match context.smoke() {
        true => (&[256, 1408], 64),
        false => (&LONG, LONG_ITEMS),
    };
    context.step("devices", 0.0)?;
    let seed = context.seed;
    let sizes = pairs(bytes, &WRITES).into_iter().map(|(bytes, of)| (items, bytes, of));
    let all = sizes.chain(long.iter().map(|&bytes| (long_items, bytes, 0.0)));
    let all = all.map(|(items, bytes, of)| Bench::new(items, bytes, of, seed));
    let of = measure(context, all.collect::<Result<_, _>>()?)?;
    let mut record = KV9A.record(context);
    record.judge("", CLAIMS, &of);
    record.judge("", OF_SIZES, &of);
    let curves = WRITES.map(|writes| {
        let point = |&bytes: &usize| (bytes as f64, of.device.spread(of.at(items, bytes, writes)));
        Series::rounds(format!("{} writes", percent(writes, 0)), bytes.iter().map(point))
    });
    let plot = Plot::new("frames a second of a core", "bytes of a value", "million/s");
    record.plots.push(plot.with(curves));
    let point = |&bytes: &usize| (bytes as f64, of.device.spread(of.at(long_items, bytes, 0.0)));
    let plot = Plot::new("hits a second of a core, in several passes", "bytes", "million/s");
    let title = format!("{long_items} keys");
    record.plots.push(plot.with([Series::rounds(title, long.iter().map(point))]));
    report(&mut record, &of);
    record.note(
        "A value takes a pass through the pipeline for each 128 bytes, as in a switch that \
         recirculates packets (section 5).",
    );
    record.note(
        "No snake of cables: there, the paper's packets go through all ports as queries. A device \
         that answers by the port that a query came in by ends a snake at its first pass.",
    );
    Ok(record)
}

fn items(context: &mut Context<'_>) -> Result<Record, LabError> {
    let items: &[usize] = match context.smoke() {
        true => &[64, 1024],
        false => &[1024, 2048, 4096, 8192, 16_384, 32_768, ITEMS],
    };
    context.step("devices", 0.0)?;
    let seed = context.seed;
    let all = items.iter().map(|&items| Bench::new(items, VALUE_LEN, 0.0, seed));
    let of = measure(context, all.collect::<Result<_, _>>()?)?;
    let mut record = KV9B.record(context);
    record.judge("", CLAIMS, &of);
    record.judge("", OF_ITEMS, &of);
    let point = |&items: &usize| (items as f64, of.device.spread(of.at(items, VALUE_LEN, 0.0)));
    let plot = Plot::new("hits a second of a core", "cached keys", "million/s").log_x();
    record.plots.push(plot.with([Series::rounds("128 bytes", items.iter().map(point))]));
    report(&mut record, &of);
    record.note("A device caches 65,536 keys at most, as the paper's.");
    Ok(record)
}

fn report(record: &mut Record, of: &Measured) {
    record.setting("instrument", "the product's engine, ports in memory, one core");
    record.setting("frames in the store", FRAMES);
    record.settings([isa()]);
    record.tables.push(Table::of(
        "Million frames a second",
        of.benches.iter().enumerate(),
        &[
            ("cached keys", &|(_, bench)| bench.items.to_string()),
            ("bytes", &|(_, bench)| bench.bytes.to_string()),
            ("passes", &|(_, bench)| passes_of(bench.bytes).to_string()),
            ("writes", &|(_, bench)| percent(bench.writes, 0)),
            ("device", &|(nth, _)| of.device.spread(*nth).cell(2)),
            ("Ethernet switch", &|(nth, _)| of.plain.spread(*nth).cell(2)),
            ("ratio", &|(nth, _)| of.to_plain(*nth).cell(2)),
        ],
    ));
    record
        .note("The paper: 2.24 G/s for all: two clients of 35 M/s, whose packets pass the switch 32 times.");
}
