//! Packets of no session, by N3 of all nodes, from one source that sends nothing else.

use crate::scene::{NODES, mac};
use crate::traffic::stray;
use overbank_ports::afpacket::{self, AfPacketOptions, AfPacketPort};
use overbank_ports::queue::{Port, Queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Packets to each node, in turns: 60,000 a second in all, if there is CPU for as many.
const EVERY: Duration = Duration::from_millis(1);
const AT_ONCE: u32 = 15;
/// The lowest TEID: no session has one above it.
const FROM: u32 = 1 << 20;

pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Flood {
    /// Starts, in the namespace of the calling thread.
    pub fn start() -> Flood {
        let port = |node: usize| {
            let options = AfPacketOptions { ring_mib: 1, ..AfPacketOptions::default() };
            let opened = afpacket::open(&format!("b{node}n3"), &options, 1);
            opened.unwrap_or_else(|error| panic!("{error}"))
        };
        let ports: Vec<AfPacketPort> = (0..NODES).map(port).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        Flood { stop, thread: std::thread::spawn(move || run(ports, &own)) }
    }

    /// Ends it; says how many packets there were.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.thread.join().expect("the flood ends well");
        eprintln!("{sent} packets of no session");
    }
}

fn run(mut ports: Vec<AfPacketPort>, stop: &AtomicBool) -> u64 {
    let mut queues: Vec<Queue> =
        ports.iter_mut().map(|port| port.take_queues().remove(0)).collect();
    let (mut teid, mut next, mut sent) = (FROM, Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += EVERY;
        for (node, queue) in queues.iter_mut().enumerate() {
            for _ in 0..AT_ONCE {
                teid = (teid + 1).max(FROM);
                // What finds no room is not sent.
                sent += u64::from(queue.transmit.send(&stray(mac(node, 0), teid)).is_ok());
            }
            let _ = queue.transmit.flush();
        }
    }
    sent
}
