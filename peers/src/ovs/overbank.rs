//! Overbank's datapath as a contestant: a thread on core 1 that works on orders.
//!
//! Its loop is that of a poll-mode thread: take 32 buffers, have a packet written to each, process
//! them, hand each to the port that it leaves by. A port counts and drops, as `net_null` does.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use overbank_kit::traffic::{FRAME_LEN, OUTPUT_PORTS};
use overbank_products::replay::Contestant;
use overbank_switch::datapath::{CacheConfig, Config, Counters, Datapath, Sink};
use overbank_switch::drop::DropReason;
use overbank_switch::megaflow::BURST;
use overbank_switch::parse::parse_rules;
use overbank_switch::translate::Tables;

use super::Window;
use super::traffic::{Ids, Place};
use crate::{clock, machine};

/// Buffers that packets are written to in turn.
const BUFFERS: usize = 16 * BURST;
/// Megaflows, as many as Open vSwitch's SMC can tell apart.
const MEGAFLOWS: usize = 1 << 16;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Buffer([u8; FRAME_LEN]);

enum Order {
    Packets(u64),
    Window { settle: Duration, window: Duration },
}

/// A datapath with the packets that it gets.
pub trait Work: Send + 'static {
    /// Makes and processes some packets; returns how many.
    fn turn(&mut self) -> u64;

    /// Counts from now on.
    fn begin(&mut self);

    /// Describes these packets and cycles since then.
    fn describe(&self, packets: u64, cycles: u64) -> Window;
}

/// All datapaths, one thread.
pub struct Datapaths {
    orders: Option<Sender<(usize, Order)>>,
    windows: Receiver<Window>,
    thread: Option<JoinHandle<()>>,
}

impl Datapaths {
    /// Starts a thread for these datapaths; it is pinned to core 1.
    pub fn start<W: Work>(mut runners: Vec<W>) -> Result<Datapaths> {
        let (orders, receive) = channel::<(usize, Order)>();
        let (send, windows) = channel();
        let (ready, is_ready) = channel();
        let thread = std::thread::spawn(move || {
            let pinned = machine::keep_on(&[1]);
            if ready.send(pinned).is_err() {
                return;
            }
            for (nth, order) in receive {
                if send.send(obey(&mut runners[nth], order)).is_err() {
                    return;
                }
            }
        });
        let datapaths = Datapaths { orders: Some(orders), windows, thread: Some(thread) };
        is_ready.recv().context("Overbank's thread ended")??;
        Ok(datapaths)
    }

    fn order(&mut self, nth: usize, order: Order) -> Result<Window> {
        let orders = self.orders.as_ref().context("the thread has ended")?;
        orders.send((nth, order)).map_err(|_| anyhow!("Overbank's thread ended"))?;
        self.windows.recv().context("Overbank's thread ended")
    }

    /// Has datapath `nth` process `packets` packets.
    pub fn warm(&mut self, nth: usize, packets: u64) -> Result<()> {
        self.order(nth, Order::Packets(packets)).map(drop)
    }

    /// Runs datapath `nth` for `settle` and measures it for `window`.
    pub fn window(&mut self, nth: usize, settle: Duration, window: Duration) -> Result<Window> {
        self.order(nth, Order::Window { settle, window })
    }
}

impl Drop for Datapaths {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // The thread has printed its panic.
            let _ = thread.join();
        }
    }
}

/// Output ports that count. Neither side does the work of a driver.
#[derive(Default)]
struct Ports {
    packets: [u64; OUTPUT_PORTS.len()],
    dropped: u64,
}

impl Sink for Ports {
    #[inline]
    fn output(&mut self, _: usize, port: u32, frame: &[u8], _: bool) {
        // The buffer goes back to where it came from.
        std::hint::black_box(frame.as_ptr());
        match self.packets.get_mut(port.wrapping_sub(OUTPUT_PORTS[0]) as usize) {
            Some(packets) => *packets += 1,
            None => self.dropped += 1,
        }
    }

    #[inline]
    fn drop(&mut self, _: usize, _: DropReason) {
        self.dropped += 1;
    }
}

/// A datapath with the packets that it gets.
pub struct Runner {
    datapath: Datapath,
    ids: Arc<Ids>,
    place: Place,
    buffers: Box<[Buffer; BUFFERS]>,
    ports: Ports,
    start: Instant,
    generator_cycles: u64,
}

impl Runner {
    /// A datapath whose signature cache has that design and number of entries.
    pub fn new(design: &str, entries: usize, ids: &Arc<Ids>) -> Result<Runner> {
        let cache = match design.parse()? {
            Contestant::None => None,
            Contestant::Cache(design) => Some(CacheConfig { design, entries, isa: None }),
            Contestant::CacheOn(design, isa) => {
                Some(CacheConfig { design, entries, isa: Some(isa) })
            }
        };
        let ports = [1].iter().chain(ids.outputs()).map(|&port| port.into()).collect();
        let config = Config { cache, megaflows: MEGAFLOWS, ports, seed: 1 };
        let rules = parse_rules(ids.rules()).map_err(|e| anyhow!("rules: {e}"))?;
        Ok(Runner {
            datapath: Datapath::new(&config, Tables::new(rules)?)?,
            ids: Arc::clone(ids),
            place: Place::default(),
            buffers: Box::new([Buffer([0; FRAME_LEN]); BUFFERS]),
            ports: Ports::default(),
            start: Instant::now(),
            generator_cycles: 0,
        })
    }

    /// Processes all buffers once.
    fn all_buffers(&mut self) {
        let now_ms = self.start.elapsed().as_millis() as u64;
        for buffers in self.buffers.chunks_exact_mut(BURST) {
            let start = clock::cycles();
            self.ids.write_frames(&mut self.place, buffers.iter_mut().map(|b| &mut b.0));
            self.generator_cycles += clock::cycles() - start;
            let frames: [&[u8]; BURST] = std::array::from_fn(|i| &buffers[i].0[..]);
            self.datapath.process(&frames, 1, now_ms, &mut self.ports);
        }
    }
}

impl Work for Runner {
    fn turn(&mut self) -> u64 {
        self.all_buffers();
        BUFFERS as u64
    }

    fn begin(&mut self) {
        self.datapath.reset_counters();
        self.generator_cycles = 0;
    }

    fn describe(&self, packets: u64, cycles: u64) -> Window {
        let counters: Counters = self.datapath.counters();
        let share = |count: u64| count as f64 / packets as f64;
        Window {
            packets,
            cycles: share(cycles),
            generator_cycles: share(self.generator_cycles),
            on_core: 1.0,
            emc: 0.0,
            signature: share(counters.microflow.hits),
            megaflow: share(counters.megaflow.hits),
            subtables: counters.subtables_per_lookup(),
            upcalls: counters.classifier_lookups,
            table: None,
        }
    }
}

fn run_for(work: &mut impl Work, time: Duration) -> u64 {
    let start = Instant::now();
    let mut packets = 0;
    while start.elapsed() < time {
        packets += work.turn();
    }
    packets
}

fn obey(work: &mut impl Work, order: Order) -> Window {
    match order {
        Order::Packets(packets) => {
            let mut done = 0;
            while done < packets {
                done += work.turn();
            }
            Window::default()
        }
        Order::Window { settle, window } => {
            run_for(work, settle);
            work.begin();
            let task = Path::new("/proc/thread-self");
            let on_core = machine::on_core_ns(task);
            let (start, first) = (Instant::now(), clock::cycles());
            let packets = run_for(work, window);
            let (cycles, went_by) = (clock::cycles() - first, start.elapsed());
            let on_core = on_core.zip(machine::on_core_ns(task));
            let on_core = on_core.map(|(a, b)| Duration::from_nanos(b.saturating_sub(a)));
            work.describe(packets, cycles).on_core(on_core, went_by)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbank_kit::workload::FlowStream;

    #[test]
    fn every_packet_leaves_and_is_counted() {
        let ids = Arc::new(Ids::write(FlowStream::uniform(100, 1).unwrap(), 12, 4).unwrap());
        for design in ["none", "blp-2-16"] {
            let mut runner = Runner::new(design, 1 << 12, &ids).unwrap();
            obey(&mut runner, Order::Packets(1 << 12));
            assert_eq!(runner.ports.packets.iter().sum::<u64>(), 1 << 12);
            assert_eq!(runner.ports.dropped, 0);
            let short = Duration::from_millis(5);
            let window = obey(&mut runner, Order::Window { settle: short, window: short });
            assert!(window.packets > 0 && window.cycles > window.generator_cycles);
            assert_eq!(window.upcalls, 0);
            let hits = if design == "none" { window.megaflow } else { window.signature };
            assert!(hits > 0.99, "{design}: {window:?}");
        }
    }
}
