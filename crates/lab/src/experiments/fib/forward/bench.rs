//! The loop that figure 7 times: frames arrive in a ring, go through the forwarder, leave by memory
//! ports, and are counted there.
//!
//! ```text
//!  heads, drawn before the clock ─▶ ring ─▶ forwarder, or none ───▶ ports 1 to 8
//!  destination, source, type        4096 frames of 64 bytes
//! ```

use std::sync::Arc;
use std::time::Instant;

use super::{FRAME, INGRESS, PORTS, RING, learning, port_of};
use crate::experiments::fib::address;
use crate::experiments::fib::measure::{Draws, Plan};
use overbank::fib::Key6;
use overbank_kit::experiment::LabError;
use overbank_kit::spread::median;
use overbank_live::l2::{Address, DropReason, Forwarder, Sighting, Sink};
use overbank_ports::FrameStore;
use overbank_ports::looped::{MemoryOptions, MemoryPort};
use overbank_ports::queue::{BURST, Port, PortError, Receive, ReceiveCounters, Received, Transmit};

/// The first bytes of a frame: destination, source, IPv4, and what follows.
type Head = [u8; 16];

fn head(to: Key6, from: Key6) -> Head {
    let mut head = [0; 16];
    head[..6].copy_from_slice(&to.to_bytes());
    head[6..12].copy_from_slice(&from.to_bytes());
    head[12] = 8;
    head
}

/// The source of all frames where sources are not looked up.
const ONE_STATION: Key6 = Key6::from_bytes([2, 0, 0, 0, 0, 1]);

/// Whose the frames of a lane are, and whom they are for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Traffic {
    /// From one station, which is not looked up, to every entry.
    ToEntries,
    /// From the stations behind the ingress to those behind the other ports: [`learning`].
    AmongStations,
}

impl Traffic {
    /// The heads of `count` frames, and the port that each must leave by.
    fn draw(self, draws: &mut Draws, count: usize) -> Vec<(Head, u16)> {
        let wide = |&number: &u32| u64::from(number);
        match self {
            Traffic::ToEntries => {
                let numbers = draws.numbers(count).iter().map(wide);
                numbers.map(|to| (head(address(to), ONE_STATION), port_of(to))).collect()
            }
            Traffic::AmongStations => {
                let (to, from) = draws.numbers(2 * count).split_at(count);
                let pairs = to.iter().map(wide).zip(from.iter().map(wide));
                let frame = |(to, from)| {
                    let (to, from) = (learning::receiver(to), learning::sender(from));
                    (head(address(to), address(from)), learning::port(to))
                };
                pairs.map(frame).collect()
            }
        }
    }
}

/// Frames that arrive with the heads of a list.
struct Arrivals {
    frames: Vec<Frame>,
    heads: Vec<Head>,
    /// Frames given out of the list.
    next: usize,
}

/// On a cache line of its own.
#[derive(Clone)]
#[repr(align(64))]
struct Frame([u8; FRAME]);

impl Arrivals {
    fn new() -> Arrivals {
        Arrivals { frames: vec![Frame([0; FRAME]); RING], heads: Vec::new(), next: 0 }
    }

    /// These, in this order, are the heads of the next frames.
    fn expect(&mut self, heads: impl Iterator<Item = Head>) {
        self.heads.clear();
        self.heads.extend(heads);
        self.next = 0;
        self.write(0);
    }

    /// Writes the burst of the list that begins with frame `from`.
    #[inline(always)]
    fn write(&mut self, from: usize) {
        let heads = self.heads.iter().skip(from).take(BURST);
        for (frame, head) in self.frames[from % RING..].iter_mut().zip(heads) {
            frame.0[..size_of::<Head>()].copy_from_slice(head);
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
    /// Frames whose source told something.
    news: u64,
}

impl Outputs {
    fn new() -> Outputs {
        let port = |number: u16| {
            let (none, options) = (Arc::<FrameStore>::default(), MemoryOptions::default());
            MemoryPort::from_store(none, &options, &format!("memory{number}"), 1).take_queues()
        };
        let ports = (0..=PORTS).flat_map(port).map(|queue| queue.transmit).collect();
        Outputs { ports, dropped: 0, news: 0 }
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

impl<K> Sink<K> for Outputs {
    #[inline]
    fn output(&mut self, _index: usize, port: u16, frame: &[u8]) {
        self.send(port, frame);
    }

    fn drop(&mut self, _index: usize, _reason: DropReason) {
        self.dropped += 1;
    }

    fn saw(&mut self, _sighting: Sighting<K>) {
        self.news += 1;
    }
}

/// All frames of the list, through the forwarder.
#[inline(never)]
fn forward<K: Address>(
    forwarder: &Forwarder<K>,
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

/// The same frames from the same ring to the same ports, and without a lookup.
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

/// Frames of one list: a quarter of the ring's lines at a time stays in the fastest caches.
const STRETCH: usize = 2048;

/// A lane of the measurement.
pub(super) struct Bench<'a, K> {
    /// `None`: the loop alone.
    forwarder: Option<&'a Forwarder<K>>,
    traffic: Traffic,
    arrivals: Arrivals,
    outputs: Outputs,
    counts: Counts,
}

/// Frames of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) frames: u64,
    /// Those that left by the port of their address.
    pub(super) right: u64,
    /// Those whose source told something.
    pub(super) news: u64,
}

impl std::ops::Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            frames: self.frames + other.frames,
            right: self.right + other.right,
            news: self.news + other.news,
        }
    }
}

impl<'a, K: Address> Bench<'a, K> {
    pub(super) fn new(forwarder: Option<&'a Forwarder<K>>, traffic: Traffic) -> Bench<'a, K> {
        let (arrivals, outputs) = (Arrivals::new(), Outputs::new());
        Bench { forwarder, traffic, arrivals, outputs, counts: Counts::default() }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { news: self.outputs.news, ..self.counts }
    }

    /// Nanoseconds a frame of one list; every frame must leave by its port.
    fn stretch(&mut self, draws: &mut Draws) -> Result<f64, LabError> {
        let frames = self.traffic.draw(draws, STRETCH);
        self.arrivals.expect(frames.iter().map(|(head, _)| *head));
        let mut expected = self.outputs.sent();
        let count = |(i, (_, port)): (usize, &(Head, u16))| match self.forwarder {
            Some(_) => expected[usize::from(*port)] += 1,
            None => expected[1 + i % BURST % usize::from(PORTS)] += 1,
        };
        frames.iter().enumerate().for_each(count);
        let start = Instant::now();
        match self.forwarder {
            Some(forwarder) => forward(forwarder, &mut self.arrivals, &mut self.outputs),
            None => pass(&mut self.arrivals, &mut self.outputs),
        }
        .map_err(LabError::failed)?;
        let ns = start.elapsed().as_secs_f64() * 1e9 / STRETCH as f64;
        self.counts.frames += STRETCH as u64;
        let sent = self.outputs.sent();
        let wrong: u64 = sent.iter().zip(&expected).map(|(sent, own)| sent.abs_diff(*own)).sum();
        // A frame at a wrong port lacks at its own.
        self.counts.right += (STRETCH as u64).saturating_sub(wrong + self.outputs.dropped);
        self.outputs.dropped = 0;
        Ok(ns)
    }

    /// The median of some stretches, after others that are not timed.
    pub(super) fn round(&mut self, draws: &mut Draws, plan: &Plan) -> Result<f64, LabError> {
        let stretches = (plan.keys / STRETCH).max(2);
        for _ in 0..stretches / 2 {
            self.stretch(draws)?;
        }
        let times = (0..stretches).map(|_| self.stretch(draws));
        Ok(median(times.collect::<Result<Vec<_>, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::station_of;
    use super::*;
    use crate::experiments::fib::measure::empty;
    use overbank_live::l2::Role;

    #[test]
    fn frames_arrive_with_the_heads_of_the_list() {
        let mut arrivals = Arrivals::new();
        for count in [0, 1, 31, 32, 33, RING, RING + 45, 2 * RING] {
            let pairs = (0..count as u64).map(|i| (address(i * 7 + 3), address(i * 5 + 1)));
            arrivals.expect(pairs.clone().map(|(to, from)| head(to, from)));
            let mut expected = pairs;
            while !arrivals.is_finished() {
                for frame in arrivals.receive().unwrap() {
                    let (to, from) = expected.next().expect("no more than there are");
                    assert_eq!(
                        (&frame[..6], &frame[6..12]),
                        (&to.to_bytes()[..], &from.to_bytes()[..])
                    );
                    assert_eq!((&frame[12..14], frame.len()), (&[8, 0][..], FRAME));
                }
            }
            assert_eq!(expected.next(), None, "{count}");
            assert!(arrivals.receive().unwrap().is_empty());
        }
    }

    #[test]
    fn a_frame_at_the_wrong_port_is_noticed() {
        let mut fib = empty(1000, 1).unwrap();
        for number in 0..1000 {
            // Every tenth at the port after its own.
            let port = if number % 10 == 0 { 1 + number % 8 } else { number };
            fib.insert(address(number), station_of(port)).unwrap();
        }
        let forwarder = Forwarder::new(fib.reader(), &[Role::default(); 1 + PORTS as usize]);
        let mut bench = Bench::new(Some(&forwarder), Traffic::ToEntries);
        let mut draws = Draws::uniform(1000, 1).unwrap();
        bench.stretch(&mut draws).unwrap();
        let counts = bench.counts();
        assert_eq!(counts.frames, STRETCH as u64);
        assert!(counts.right < STRETCH as u64, "{counts:?}");
        let mut alone = Bench::<Key6>::new(None, Traffic::ToEntries);
        alone.stretch(&mut draws).unwrap();
        assert_eq!(alone.counts().right, alone.counts().frames);
    }
}
