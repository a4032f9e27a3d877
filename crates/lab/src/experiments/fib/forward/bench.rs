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
use crate::prelude::*;
use overbank::fib::MacAddr;
use overbank_ports::FrameStore;
use overbank_ports::looped::{MemoryOptions, MemoryPort};
use overbank_ports::queue::{BURST, Port, PortError, Received, Transmit};
use overbank_stations::forward::{DropReason, Forwarder, Sink};
use overbank_stations::{Address, Sighting};

/// The first bytes of a frame: destination, source, IPv4, and what follows.
type Head = [u8; 16];

fn head(to: u64, from: MacAddr) -> Head {
    let mut head = [0; 16];
    head[..6].copy_from_slice(&address(to).to_bytes());
    head[6..12].copy_from_slice(&from.to_bytes());
    head[12] = 8;
    head
}

/// Draws the heads of frames, each with the port that it must leave by.
type Frames = fn(&mut Draws, usize) -> Vec<(Head, u16)>;

/// Draws frames from one station, which is not looked up, to every entry.
pub(super) fn to_entries(draws: &mut Draws, count: usize) -> Vec<(Head, u16)> {
    const ONE_STATION: MacAddr = MacAddr::from_bytes([2, 0, 0, 0, 0, 1]);
    let numbers = draws.numbers(count).iter().map(|&to| u64::from(to));
    numbers.map(|to| (head(to, ONE_STATION), port_of(to))).collect()
}

/// Draws the same frames, each burst to the ports in turn: [`alone`].
pub(super) fn in_turn(draws: &mut Draws, count: usize) -> Vec<(Head, u16)> {
    let frames = to_entries(draws, count).into_iter().enumerate();
    frames.map(|(i, (head, _))| (head, turn(i % BURST))).collect()
}

/// Returns the port of a frame of a burst.
fn turn(place: usize) -> u16 {
    1 + place as u16 % PORTS
}

/// Draws frames from the stations behind the ingress to those behind the other ports: [`learning`].
pub(super) fn among_stations(draws: &mut Draws, count: usize) -> Vec<(Head, u16)> {
    let (to, from) = draws.numbers(2 * count).split_at(count);
    let frame = |(&to, &from): (&u32, &u32)| {
        let to = learning::receiver(to.into());
        (head(to, address(learning::sender(from.into()))), learning::port(to))
    };
    to.iter().zip(from).map(frame).collect()
}

/// Frames that arrive with the heads of a list.
pub(super) struct Arrivals {
    frames: Vec<Frame>,
    heads: Vec<Head>,
    /// Frames given out of the list.
    next: usize,
}

/// Has a separate cache line.
#[derive(Clone)]
#[repr(align(64))]
struct Frame([u8; FRAME]);

impl Arrivals {
    fn new() -> Arrivals {
        Arrivals { frames: vec![Frame([0; FRAME]); RING], heads: Vec::new(), next: 0 }
    }

    /// Takes the heads of the next frames, in this order.
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

    /// Returns the next burst; empty at the end.
    #[inline(always)]
    fn receive(&mut self) -> Received<'_> {
        let (from, until) = (self.next, self.heads.len().min(self.next + BURST));
        self.next = until;
        self.write(from + BURST);
        // Bursts are whole but for the last one, and the ring is a multiple of them.
        let frames = self.frames[from % RING..].iter().take(until - from);
        frames.map(|frame| frame.0.as_slice()).collect()
    }
}

const _: () = assert!(RING.is_multiple_of(BURST));

/// The transmitting halves of the ports.
pub(super) struct Outputs {
    ports: Vec<Box<dyn Transmit>>,
    dropped: u64,
    /// Frames whose source was reported.
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

    /// Returns the frames that left by each port so far.
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

/// Takes all frames of the list to the ports.
pub(super) type Carry<'a> = Box<dyn Fn(&mut Arrivals, &mut Outputs) -> Result<(), PortError> + 'a>;

fn in_bursts<'a>(carry: impl Fn(&[&[u8]], &mut Outputs) + 'a) -> Carry<'a> {
    Box::new(move |arrivals, outputs| {
        loop {
            let burst = arrivals.receive();
            if burst.is_empty() {
                return Ok(());
            }
            carry(&burst, outputs);
            outputs.flush()?;
        }
    })
}

/// Carries frames through a forwarder.
pub(super) fn through<K: Address>(forwarder: &Forwarder<K>) -> Carry<'_> {
    in_bursts(move |burst, outputs| forwarder.forward(INGRESS, burst, outputs))
}

/// Carries the same frames to the same ports without a lookup.
pub(super) fn alone() -> Carry<'static> {
    in_bursts(|burst, outputs| {
        burst.iter().enumerate().for_each(|(i, frame)| outputs.send(turn(i), frame));
    })
}

/// Frames of one list: a quarter of the ring's lines at a time stays in the fastest caches.
const STRETCH: usize = 2048;

pub(super) struct Lane<'a> {
    carry: Carry<'a>,
    frames: Frames,
    draws: Draws,
    arrivals: Arrivals,
    outputs: Outputs,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) frames: u64,
    /// Those that left by the port of their address.
    pub(super) right: u64,
    /// Those whose source was reported.
    pub(super) news: u64,
}

impl<'a> Lane<'a> {
    pub(super) fn new(carry: Carry<'a>, frames: Frames, draws: Draws) -> Lane<'a> {
        let (arrivals, outputs, counts) = (Arrivals::new(), Outputs::new(), Counts::default());
        Lane { carry, frames, draws, arrivals, outputs, counts }
    }

    pub(super) fn counts(lanes: &[Lane<'_>]) -> Counts {
        lanes.iter().fold(Counts::default(), |all, lane| Counts {
            frames: all.frames + lane.counts.frames,
            right: all.right + lane.counts.right,
            news: all.news + lane.outputs.news,
        })
    }

    /// Returns the nanoseconds a frame of one list; every frame must leave by its port.
    fn stretch(&mut self) -> Result<f64, LabError> {
        let frames = (self.frames)(&mut self.draws, STRETCH);
        self.arrivals.expect(frames.iter().map(|(head, _)| *head));
        let mut expected = self.outputs.sent();
        frames.iter().for_each(|(_, port)| expected[usize::from(*port)] += 1);
        let start = Instant::now();
        (self.carry)(&mut self.arrivals, &mut self.outputs).map_err(LabError::failed)?;
        let ns = start.elapsed().as_secs_f64() * 1e9 / STRETCH as f64;
        self.counts.frames += STRETCH as u64;
        let sent = self.outputs.sent();
        let wrong: u64 = sent.iter().zip(&expected).map(|(sent, own)| sent.abs_diff(*own)).sum();
        // A frame at a wrong port lacks at its own.
        self.counts.right += (STRETCH as u64).saturating_sub(wrong + self.outputs.dropped);
        self.outputs.dropped = 0;
        Ok(ns)
    }

    /// Returns the median of some stretches, after others that are not timed.
    pub(super) fn round(&mut self, plan: &Plan) -> Result<f64, LabError> {
        let stretches = (plan.keys / STRETCH).max(2);
        for _ in 0..stretches / 2 {
            self.stretch()?;
        }
        let times = (0..stretches).map(|_| self.stretch());
        Ok(median(times.collect::<Result<Vec<_>, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ROLES, station_of};
    use super::*;
    use crate::experiments::fib::measure::empty;

    #[test]
    fn frames_arrive_with_the_heads_of_the_list() {
        let mut arrivals = Arrivals::new();
        for count in [0, 1, 31, 32, 33, RING, RING + 45, 2 * RING] {
            let mut heads = (0..count as u64).map(|i| head(i * 7 + 3, address(i * 5 + 1)));
            arrivals.expect(heads.clone());
            for _ in 0..count.div_ceil(BURST) {
                for frame in arrivals.receive() {
                    assert_eq!(
                        (Some(&frame[..16]), frame.len()),
                        (heads.next().as_ref().map(|h| &h[..]), FRAME)
                    );
                }
            }
            assert_eq!(heads.next(), None, "{count}");
            assert!(arrivals.receive().is_empty());
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
        let forwarder = Forwarder::new(fib.reader(), &ROLES);
        let draws = || Draws::uniform(1000, 1).unwrap();
        let mut lane = Lane::new(through(&forwarder), to_entries, draws());
        lane.stretch().unwrap();
        assert!(lane.counts.frames == STRETCH as u64 && lane.counts.right < lane.counts.frames);
        let mut alone = Lane::new(alone(), in_turn, draws());
        alone.stretch().unwrap();
        assert_eq!(alone.counts.right, alone.counts.frames);
    }
}
