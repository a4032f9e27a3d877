//! Figure 7: frames forwarded from memory ports, by size of the table; and building that table.
//!
//! ```text
//!  addresses drawn, not timed ─▶ ring of frames ─▶ l2::Forwarder ─▶ 8 memory ports, which count
//!                                64 bytes each,    the switch's      each frame is expected at the
//!                                rewritten as      own datapath      port of its address
//!                                they arrive
//! ```
//!
//! A loop of few frames would have few addresses. So each frame gets a new destination when it
//! arrives: a ring of frames is written anew, one burst ahead, as a network card writes into memory.
//! What that and the ports cost is measured by the same loop without the forwarder, and both figures
//! are reported. Sources are not looked up, as in the paper.

use std::sync::Arc;
use std::time::Instant;

use super::insertion::{self, Built, Latency};
use super::measure::{Draws, Part, Plan};
use super::{address, sizes};
use crate::experiment::{Context, Experiment, LabError, Record};
use crate::micro::Spread;
use overbank::fib::Key6;
use overbank_live::l2::{DropReason, Forwarder, Role, Sink, Station};
use overbank_ports::FrameStore;
use overbank_ports::looped::{MemoryOptions, MemoryPort};
use overbank_ports::queue::{BURST, Port, PortError, Receive, ReceiveCounters, Received, Transmit};

mod report;

/// Figure 7.
pub const FIB7: Experiment = Experiment {
    name: "fib7",
    title: "the Ethernet switch from memory: packet rate by table size, building the table, insertions",
    source: "dissertation, figure 7",
    run,
};

const SMOKE: [u64; 2] = [100_000, 1_000_000];
const FULL: [u64; 5] = [100_000, 1_000_000, 16_000_000, 128_000_000, 1_000_000_000];

/// Ports that frames leave by, as many as the paper's machine had.
const PORTS: u16 = 8;
/// The port that frames come in on.
const INGRESS: u16 = 0;
/// Bytes of a frame without its check sequence; on the wire, with it, the paper's 64.
const FRAME: usize = 60;
/// Frames of the ring: 256 KiB, in a second-level cache, as after a network card's direct cache
/// access.
const RING: usize = 4096;
/// Skew of the second kind of traffic.
const THETA: f64 = 0.99;

/// Place of the port of an address among all ports.
fn port_of(number: u64) -> u16 {
    1 + (number % u64::from(PORTS)) as u16
}

fn station_of(number: u64) -> u16 {
    Station::fixed(port_of(number)).bits()
}

/// Frames that arrive with addresses of a list.
struct Arrivals {
    frames: Vec<Frame>,
    /// First bytes of the frames still to come: destination, and two of the source.
    heads: Vec<[u8; 8]>,
    /// Frames given out of the list.
    next: usize,
}

/// On a cache line of its own.
#[derive(Clone)]
#[repr(align(64))]
struct Frame([u8; FRAME]);

impl Arrivals {
    fn new() -> Arrivals {
        let mut frame = Frame([0; FRAME]);
        // From 02:00:00:00:00:01, IPv4.
        frame.0[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 8, 0]);
        Arrivals { frames: vec![frame; RING], heads: Vec::new(), next: 0 }
    }

    /// These addresses, in this order, are those of the next frames.
    fn expect(&mut self, numbers: &[u32]) {
        self.heads.clear();
        self.heads.extend(numbers.iter().map(|&number| {
            let [a, b, c, d, e, f] = address(u64::from(number)).to_bytes();
            [a, b, c, d, e, f, 2, 0]
        }));
        self.next = 0;
        self.write(0);
    }

    /// Writes the burst of the list that begins with frame `from`.
    #[inline(always)]
    fn write(&mut self, from: usize) {
        let heads = self.heads.iter().skip(from).take(BURST);
        for (frame, head) in self.frames[from % RING..].iter_mut().zip(heads) {
            frame.0[..8].copy_from_slice(head);
        }
    }
}

impl Receive for Arrivals {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let (from, until) = (self.next, self.heads.len().min(self.next + BURST));
        self.next = until;
        self.write(from + BURST);
        // Bursts are whole but for the last one, and the ring is a multiple of them.
        let frames = self.frames[from % RING..].iter().take(until - from);
        Ok(frames.map(|frame| frame.0.as_slice()).collect())
    }

    fn is_finished(&self) -> bool {
        self.next >= self.heads.len()
    }

    fn counters(&mut self) -> ReceiveCounters {
        ReceiveCounters::default()
    }
}

const _: () = assert!(RING.is_multiple_of(BURST));

/// The transmitting halves of the ports.
struct Outputs {
    ports: Vec<Box<dyn Transmit>>,
    dropped: u64,
}

impl Outputs {
    fn new() -> Outputs {
        let port = |number: u16| {
            let (none, options) = (Arc::<FrameStore>::default(), MemoryOptions::default());
            MemoryPort::from_store(none, &options, &format!("memory{number}"), 1).take_queues()
        };
        let ports = (0..=PORTS).flat_map(port).map(|queue| queue.transmit).collect();
        Outputs { ports, dropped: 0 }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.ports.iter_mut().try_for_each(|port| port.flush())
    }

    /// Frames that left by each port so far.
    fn sent(&mut self) -> Vec<u64> {
        self.ports.iter_mut().map(|port| port.counters().sent).collect()
    }

    #[inline(always)]
    fn send(&mut self, port: u16, frame: &[u8]) {
        let sent = self.ports.get_mut(usize::from(port)).map(|port| port.send(frame));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped += 1;
        }
    }
}

impl Sink<Key6> for Outputs {
    #[inline]
    fn output(&mut self, _index: usize, port: u16, frame: &[u8]) {
        self.send(port, frame);
    }

    fn drop(&mut self, _index: usize, _reason: DropReason) {
        self.dropped += 1;
    }
}

/// All frames of the list, through the forwarder.
#[inline(never)]
fn forward(
    forwarder: &Forwarder<Key6>,
    arrivals: &mut Arrivals,
    outputs: &mut Outputs,
) -> Result<(), PortError> {
    while !arrivals.is_finished() {
        let burst = arrivals.receive()?;
        forwarder.forward(INGRESS, &burst, outputs);
        outputs.flush()?;
    }
    Ok(())
}

/// The same frames from the same ring to the same ports, and nobody looks at them.
#[inline(never)]
fn pass(arrivals: &mut Arrivals, outputs: &mut Outputs) -> Result<(), PortError> {
    while !arrivals.is_finished() {
        let burst = arrivals.receive()?;
        for (i, frame) in burst.iter().enumerate() {
            outputs.send(1 + i as u16 % PORTS, frame);
        }
        outputs.flush()?;
    }
    Ok(())
}

/// Nanoseconds a frame by round.
#[derive(Default)]
struct Times {
    uniform: Vec<f64>,
    zipf: Vec<f64>,
    /// The loop without the forwarder.
    pass: Vec<f64>,
}

/// What was measured at one size.
struct Measured {
    entries: u64,
    bytes: u64,
    pages: String,
    occupancy: f64,
    built: Built,
    latency: Latency,
    times: Times,
    /// Frames that left by the port of their address, and all.
    right: u64,
    frames: u64,
}

/// Frames of one list: a quarter of the ring's lines at a time stays in the fastest caches.
const STRETCH: usize = 2048;

struct Bench<'a> {
    forwarder: Option<&'a Forwarder<Key6>>,
    arrivals: Arrivals,
    outputs: Outputs,
    right: u64,
    frames: u64,
}

impl Bench<'_> {
    /// Nanoseconds a frame of one list; every frame must leave by its port.
    fn stretch(&mut self, draws: &mut Draws) -> Result<f64, LabError> {
        let numbers = draws.numbers(STRETCH);
        self.arrivals.expect(numbers);
        let mut expected = self.outputs.sent();
        let count = |(i, number): (usize, &u32)| match self.forwarder {
            Some(_) => expected[usize::from(port_of(u64::from(*number)))] += 1,
            None => expected[1 + i % BURST % usize::from(PORTS)] += 1,
        };
        numbers.iter().enumerate().for_each(count);
        let start = Instant::now();
        match self.forwarder {
            Some(forwarder) => forward(forwarder, &mut self.arrivals, &mut self.outputs),
            None => pass(&mut self.arrivals, &mut self.outputs),
        }
        .map_err(LabError::failed)?;
        let ns = start.elapsed().as_secs_f64() * 1e9 / STRETCH as f64;
        self.frames += STRETCH as u64;
        let sent = self.outputs.sent();
        let wrong: u64 = sent.iter().zip(&expected).map(|(sent, own)| sent.abs_diff(*own)).sum();
        // A frame at a wrong port lacks at its own.
        self.right += (STRETCH as u64).saturating_sub(wrong + self.outputs.dropped);
        self.outputs.dropped = 0;
        Ok(ns)
    }

    /// The median of some stretches, after others that are not timed.
    fn round(&mut self, draws: &mut Draws, plan: &Plan) -> Result<f64, LabError> {
        let stretches = (plan.keys / STRETCH).max(2);
        for _ in 0..stretches / 2 {
            self.stretch(draws)?;
        }
        let times = (0..stretches).map(|_| self.stretch(draws));
        Ok(Spread::of(times.collect::<Result<_, _>>()?).median)
    }
}

fn measure(
    context: &mut Context<'_>,
    plan: &Plan,
    part: Part,
    entries: u64,
) -> Result<Measured, LabError> {
    let name = sizes::name(entries);
    let (mut fib, built) = insertion::build(context, part.piece(0.0, 0.8), entries, station_of)?;
    let reader = fib.reader();
    let (bytes, pages) = (reader.bytes() as u64, reader.huge_pages().to_string());
    let occupancy = fib.occupancy();

    let forwarder = Forwarder::new(fib.reader(), &[Role::default(); 1 + PORTS as usize]);
    let mut lanes = [Some(&forwarder), Some(&forwarder), None].map(|forwarder| Bench {
        forwarder,
        arrivals: Arrivals::new(),
        outputs: Outputs::new(),
        right: 0,
        frames: 0,
    });
    let mut uniform = Draws::uniform(entries, context.seed)?;
    let mut zipf = Draws::zipf(entries, THETA, context.seed)?;
    let mut times = Times::default();
    for round in 0..plan.rounds {
        let share = round as f64 / plan.rounds as f64;
        context.step(&format!("{name} entries: forwarding"), part.piece(0.8, 0.9).at(share))?;
        let [first, second, third] = &mut lanes;
        times.uniform.push(first.round(&mut uniform, plan)?);
        times.zipf.push(second.round(&mut zipf, plan)?);
        times.pass.push(third.round(&mut uniform, plan)?);
    }
    let right = lanes.iter().map(|lane| lane.right).sum();
    let frames = lanes.iter().map(|lane| lane.frames).sum();

    context.step(&format!("{name} entries: single insertions"), part.at(0.9))?;
    let count = if context.smoke() { 2000 } else { 200_000 };
    let latency = insertion::latency(&mut fib, entries, count, context.seed, station_of)?;
    Ok(Measured { entries, bytes, pages, occupancy, built, latency, times, right, frames })
}

fn run(context: &mut Context<'_>) -> Result<Record, LabError> {
    context.step("starts", 0.0)?;
    let wanted = sizes::wanted(context, &SMOKE, &FULL);
    let plan = Plan::of(context.smoke());
    let (all, missing) = sizes::each(context, &wanted, |context, part, entries| {
        match sizes::does_not_fit(entries, sizes::fib_bytes(entries)) {
            Some(line) => Ok(Err(line)),
            None => measure(context, &plan, part, entries).map(Ok),
        }
    })?;
    let mut record = Record::new((FIB7.name, FIB7.title, FIB7.source), context);
    sizes::left_out(&mut record, &wanted, missing)?;
    report::write(&mut record, &plan, &all);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_with_the_addresses_of_the_list() {
        let mut arrivals = Arrivals::new();
        for count in [0, 1, 31, 32, 33, RING, RING + 45, 2 * RING] {
            let numbers: Vec<u32> = (0..count as u32).map(|i| i * 7 + 3).collect();
            arrivals.expect(&numbers);
            let mut expected = numbers.iter();
            while !arrivals.is_finished() {
                for frame in arrivals.receive().unwrap() {
                    let number = expected.next().expect("no more than there are");
                    assert_eq!(frame[..6], address(u64::from(*number)).to_bytes());
                    assert_eq!(frame[6..14], [2, 0, 0, 0, 0, 1, 8, 0]);
                    assert_eq!(frame.len(), FRAME);
                }
            }
            assert_eq!(expected.next(), None, "{count}");
            assert!(arrivals.receive().unwrap().is_empty());
        }
    }

    #[test]
    fn a_frame_at_the_wrong_port_is_noticed() {
        let mut fib = super::super::measure::empty(1000, 1).unwrap();
        for number in 0..1000 {
            // Every tenth at the port after its own.
            let port = if number % 10 == 0 { 1 + number % 8 } else { number };
            fib.insert(address(number), station_of(port)).unwrap();
        }
        let forwarder = Forwarder::new(fib.reader(), &[Role::default(); 1 + PORTS as usize]);
        let mut bench = Bench {
            forwarder: Some(&forwarder),
            arrivals: Arrivals::new(),
            outputs: Outputs::new(),
            right: 0,
            frames: 0,
        };
        let mut draws = Draws::uniform(1000, 1).unwrap();
        bench.stretch(&mut draws).unwrap();
        assert_eq!(bench.frames, STRETCH as u64);
        assert!(bench.right < STRETCH as u64, "{}", bench.right);
        bench.forwarder = None;
        (bench.right, bench.frames) = (0, 0);
        bench.stretch(&mut draws).unwrap();
        assert_eq!(bench.right, bench.frames);
    }
}
