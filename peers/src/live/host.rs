//! Both hosts: a generator and a sink, in one thread on one core.
//!
//! ```text
//!   loop:  due frames ─▶ sendmmsg ─▶ host a's interface … switch … host b's ─▶ ring ─▶ look
//!
//!   frame  0            42     46        50             58       60
//!          │ headers    │ flow │ number  │ sent, ns     │ window │    60 bytes, 64 on the wire
//! ```
//!
//! The sink checks every frame: headers as sent, numbers of a flow ascending. Frames of an earlier
//! window, and other frames on the interface, do not count. The time of a frame is taken before it
//! is passed to the kernel and again when it is found in the sink's ring. As one thread does both,
//! a frame may wait for the sink as long as one burst takes to send; that is the same for all
//! switches.
//!
//! Overdue frames, after the core was taken away, are sent at once, a burst at a time, and their
//! time counts from then: delays of the generator are not the switch's.

use super::net::{FAR, Net, Space};
use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use overbank_kit::machine::allowed_cores;
use overbank_kit::traffic::{FRAME_LEN, Traffic};
use overbank_kit::workload::FlowStream;
use overbank_ports::PortSpec;
use overbank_ports::queue::{Port, Queue, Receive, Transmit};
use std::time::{Duration, Instant};

/// Frames passed on at once, flat out.
const BURST: usize = 32;
/// Frames passed on at once at a rate: the sink looks between two bursts.
const RATE_BURST: u64 = 8;
/// Headers, which no switch changes here.
const HEADERS: usize = 42;
/// Length of the sequence in which flows come, a power of two.
const SEQUENCE: usize = 1 << 16;
/// A window ends when no more frames have come for this long, or none at all for [`LATE_MAX`].
const QUIET: Duration = Duration::from_millis(30);
const LATE_MAX: Duration = Duration::from_secs(10);
/// Longest latency that is distinguished from longer ones.
const LATENCY_MAX_NS: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// As much as the generator can send.
    FlatOut,
    /// This many frames a second, evenly.
    Rate(f64),
}

/// Results of a window.
pub struct Window {
    /// Duration of sending.
    pub seconds: f64,
    /// Frames passed to the generator's port.
    pub offered: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Frames that arrived while others were still being sent.
    pub in_time: u64,
    /// Frames after a later one of their flow, or repeated.
    pub disordered: u64,
    /// Our frames with changed bytes.
    pub changed: u64,
    /// Nanoseconds from sending to arrival.
    pub latency: Histogram<u64>,
}

impl Window {
    /// Returns the frames a second that arrived.
    pub fn rate(&self) -> f64 {
        self.in_time as f64 / self.seconds
    }

    /// Returns the share of the frames that did not arrive.
    pub fn loss(&self) -> f64 {
        1.0 - self.received as f64 / self.offered.max(1) as f64
    }

    /// Returns the microseconds within which this share of the frames arrived.
    pub fn latency_us(&self, share: f64) -> f64 {
        self.latency.value_at_quantile(share) as f64 / 1e3
    }
}

pub struct Hosts {
    transmit: Box<dyn Transmit>,
    sink: Sink,
    flows: Flows,
    sequence: Vec<u32>,
    next: usize,
    window: u16,
    start: Instant,
    /// Keeps the interfaces open.
    ports: Vec<Box<dyn Port>>,
}

/// Frames of all flows, and the numbers of frames to come.
struct Flows {
    frames: Vec<[u8; FRAME_LEN]>,
    numbers: Vec<u32>,
}

struct Sink {
    receive: Box<dyn Receive>,
    /// For each flow, the lowest number that is in order.
    expected: Vec<u32>,
}

impl Hosts {
    /// Opens the hosts' interfaces, for `flows` flows of the built-in traffic.
    ///
    /// # Errors
    /// The interfaces cannot be opened.
    pub fn new(net: &Net, flows: u32, seed: u64) -> Result<Hosts> {
        let open = |space, options: &str| {
            let spec: PortSpec = format!("afpacket:{FAR}{options}").parse()?;
            let open = || Ok(overbank_ports::open(&spec, 1)?);
            let mut port = net.inside(space, &allowed_cores(), open)?;
            // The kernel reports a new interface as up some time after it is.
            let end = Instant::now() + LATE_MAX;
            while !port.info().link_up && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            let queue = port.take_queues().pop().ok_or_else(|| anyhow!("no queue"))?;
            anyhow::Ok((port, queue))
        };
        // The halves that are not needed are closed here: host a's ring is not read.
        let (port_a, Queue { transmit, .. }) = open(Space::A, ",ring-mib=1")?;
        let (port_b, Queue { receive, .. }) = open(Space::B, "")?;
        let mut hosts = Hosts::between(transmit, receive, flows, seed)?;
        hosts.ports = vec![port_a, port_b];
        Ok(hosts)
    }

    /// Returns a generator that sends on one port and a sink that receives on the other.
    fn between(
        transmit: Box<dyn Transmit>,
        receive: Box<dyn Receive>,
        flows: u32,
        seed: u64,
    ) -> Result<Hosts> {
        let traffic = Traffic::default();
        let mut frames = vec![[0; FRAME_LEN]; flows as usize];
        (0..).zip(&mut frames).for_each(|(id, frame)| traffic.write_frame(id, frame));
        for (id, frame) in (0u32..).zip(&mut frames) {
            frame[HEADERS..HEADERS + 4].copy_from_slice(&id.to_ne_bytes());
        }
        let mut sequence = vec![0; SEQUENCE];
        FlowStream::uniform(flows, seed)?.fill(&mut sequence);
        Ok(Hosts {
            transmit,
            sink: Sink { receive, expected: vec![0; flows as usize] },
            flows: Flows { frames, numbers: vec![0; flows as usize] },
            sequence,
            next: 0,
            window: 0,
            start: Instant::now(),
            ports: Vec::new(),
        })
    }

    /// Sends for a while, on the calling thread, and waits for late frames.
    pub fn run(&mut self, load: Load, time: Duration) -> Window {
        self.window = self.window.wrapping_add(1);
        self.flows.numbers.fill(0);
        self.sink.expected.fill(0);
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3);
        let mut window = Window {
            seconds: 0.0,
            offered: 0,
            received: 0,
            in_time: 0,
            disordered: 0,
            changed: 0,
            latency: latency.expect("bounds of a histogram"),
        };
        let start = Instant::now();
        loop {
            let elapsed = start.elapsed();
            if elapsed >= time {
                break;
            }
            let due = match load {
                Load::FlatOut => BURST as u64,
                Load::Rate(rate) => {
                    let due = (elapsed.as_secs_f64() * rate) as u64 + 1;
                    due.saturating_sub(window.offered).min(RATE_BURST)
                }
            };
            if due > 0 {
                self.send(due as usize);
                window.offered += due;
            }
            // One burst is all that may wait, unless the switch holds more.
            for _ in 0..3 {
                if self.look(&mut window) < BURST {
                    break;
                }
            }
        }
        window.seconds = start.elapsed().as_secs_f64();
        window.in_time = window.received;
        let (mut last, end) = (Instant::now(), Instant::now() + LATE_MAX);
        while (window.received == 0 || last.elapsed() < QUIET) && Instant::now() < end {
            if self.look(&mut window) > 0 {
                last = Instant::now();
            } else {
                // The switch may need this core.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        window
    }

    fn send(&mut self, frames: usize) {
        let sent_ns = self.start.elapsed().as_nanos() as u64;
        for _ in 0..frames {
            let flow = self.sequence[self.next % SEQUENCE] as usize;
            self.next += 1;
            let frame = &mut self.flows.frames[flow];
            let number = &mut self.flows.numbers[flow];
            frame[46..50].copy_from_slice(&number.to_ne_bytes());
            frame[50..58].copy_from_slice(&sent_ns.to_ne_bytes());
            frame[58..60].copy_from_slice(&self.window.to_ne_bytes());
            *number = number.wrapping_add(1);
            // A refused frame does not arrive, and counts as lost.
            let _ = self.transmit.send(frame);
        }
        // Refused frames do not arrive, and count as lost.
        let _ = self.transmit.flush();
    }

    /// Takes frames that have arrived, at most a burst.
    fn look(&mut self, window: &mut Window) -> usize {
        let Ok(frames) = self.sink.receive.receive() else { return 0 };
        if frames.is_empty() {
            return 0;
        }
        let now_ns = self.start.elapsed().as_nanos() as u64;
        for frame in &frames {
            let Ok(frame) = <&[u8; FRAME_LEN]>::try_from(*frame) else { continue };
            let Some((flow, number, sent_ns)) = read(frame, self.window) else { continue };
            let Some(sent) = self.flows.frames.get(flow) else { continue };
            if frame[..HEADERS] != sent[..HEADERS] {
                window.changed += 1;
                continue;
            }
            window.received += 1;
            let expected = &mut self.sink.expected[flow];
            if number < *expected {
                window.disordered += 1;
            } else {
                *expected = number.wrapping_add(1);
            }
            window.latency.saturating_record(now_ns.saturating_sub(sent_ns));
        }
        frames.len()
    }
}

/// Returns flow, number and time of a frame of this window.
fn read(frame: &[u8; FRAME_LEN], window: u16) -> Option<(usize, u32, u64)> {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| frame[at + i]));
    let time = u64::from_ne_bytes(std::array::from_fn(|i| frame[50 + i]));
    let of = u16::from_ne_bytes([frame[58], frame[59]]);
    (of == window).then_some((word(HEADERS) as usize, word(46), time))
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_ports::queue::{
        PortError, ReceiveCounters, Received, SendError, TransmitCounters,
    };
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    /// What a faulty switch does to the n-th frame.
    type Fault = fn(u64, Vec<u8>, &mut VecDeque<Vec<u8>>);

    struct Wire {
        frames: Arc<Mutex<VecDeque<Vec<u8>>>>,
        fault: Fault,
        count: u64,
        burst: Vec<Vec<u8>>,
    }

    impl Transmit for Wire {
        fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
            let mut frames = self.frames.lock().expect("no panic");
            (self.fault)(self.count, frame.to_vec(), &mut frames);
            self.count += 1;
            Ok(())
        }

        fn flush(&mut self) -> Result<(), PortError> {
            Ok(())
        }

        fn counters(&mut self) -> TransmitCounters {
            TransmitCounters::default()
        }
    }

    impl Receive for Wire {
        fn receive(&mut self) -> Result<Received<'_>, PortError> {
            let mut frames = self.frames.lock().expect("no panic");
            let waiting = frames.len().min(BURST);
            self.burst = frames.drain(..waiting).collect();
            Ok(self.burst.iter().map(Vec::as_slice).collect())
        }

        fn counters(&mut self) -> ReceiveCounters {
            ReceiveCounters::default()
        }
    }

    /// One flow through a switch that does that; frames offered, received, out of order, changed.
    fn through(fault: Fault, load: Load) -> [u64; 4] {
        let frames = Arc::<Mutex<VecDeque<Vec<u8>>>>::default();
        let wire = || Wire { frames: frames.clone(), fault, count: 0, burst: Vec::new() };
        let mut hosts = Hosts::between(Box::new(wire()), Box::new(wire()), 1, 1).expect("one flow");
        let mut window = hosts.run(load, Duration::from_millis(20));
        // The machine may have had something else to do for all of the time.
        while window.offered == 0 {
            window = hosts.run(load, Duration::from_millis(20));
        }
        assert!(window.in_time <= window.received && window.seconds >= 0.02);
        assert_eq!(window.latency.len(), window.received);
        [window.offered, window.received, window.disordered, window.changed]
    }

    #[test]
    fn a_good_switch_passes() {
        for load in [Load::FlatOut, Load::Rate(10_000.0)] {
            let [offered, received, disordered, changed] =
                through(|_, frame, wire| wire.push_back(frame), load);
            assert!(offered > 0 && received == offered);
            assert_eq!((disordered, changed), (0, 0));
            // The rate is kept to the frame, however late the thread comes.
            assert!(load == Load::FlatOut || offered <= 201, "{offered} in 20 ms");
        }
    }

    #[test]
    fn faults_are_counted() {
        let load = Load::FlatOut;
        let tenth = |offered: u64| offered.div_ceil(10);
        let [offered, received, disordered, changed] = through(
            |n, frame, wire| {
                if !n.is_multiple_of(10) {
                    wire.push_back(frame);
                }
            },
            load,
        );
        assert_eq!((received, disordered, changed), (offered - tenth(offered), 0, 0), "lost");
        let [offered, received, disordered, _] = through(
            |n, frame, wire| {
                wire.push_back(frame.clone());
                if n.is_multiple_of(10) {
                    wire.push_back(frame);
                }
            },
            load,
        );
        assert_eq!((received - offered, disordered), (tenth(offered), tenth(offered)), "twice");
        let [offered, received, _, changed] = through(
            |n, mut frame, wire| {
                frame[30] ^= u8::from(n.is_multiple_of(10));
                wire.push_back(frame);
            },
            load,
        );
        assert_eq!((offered - received, changed), (tenth(offered), tenth(offered)), "changed");
        // A frame is held back until the next one has gone.
        let [offered, received, disordered, _] = through(
            |n, frame, wire| match (n % 32, wire.pop_back()) {
                (1, Some(held)) => wire.extend([frame, held]),
                (_, last) => wire.extend(last.into_iter().chain([frame])),
            },
            load,
        );
        assert_eq!((received, disordered), (offered, offered / 32), "reordered");
    }

    #[test]
    fn frames_of_an_earlier_window_count_for_nothing() {
        let frame = [7; FRAME_LEN];
        assert!(read(&frame, 0x0707).is_some() && read(&frame, 1).is_none());
    }
}
