//! State that the control side and the workers share.
//!
//! Each worker has one [`Link`]. Changes reach it as a [`Snapshot`] (through its mailbox), as an
//! [`Attachment`] of a queue, or as an order of its engine. It reports through its published
//! numbers and through what the engine shares with its control side.

use crate::engine::Engine;
use crate::sys::Bell;
use crate::totals::Published;
use crossbeam_queue::ArrayQueue;
use overbank_handover::mailbox;
use overbank_handover::rest::Rest;
use overbank_ports::queue::Queue;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A port as a worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortView {
    /// Number in configuration and OpenFlow.
    pub number: u32,
    /// Whether incoming frames are processed.
    pub receives: bool,
    /// Whether frames may be sent.
    pub sends: bool,
}

/// The state that a worker runs on.
pub struct Snapshot<E: Engine> {
    /// Engine's part.
    pub engine: E::Snapshot,
    /// Ports, in the same order in all snapshots.
    pub ports: Arc<[PortView]>,
}

impl<E: Engine> Clone for Snapshot<E> {
    fn clone(&self) -> Self {
        Snapshot { engine: self.engine.clone(), ports: self.ports.clone() }
    }
}

pub enum Attachment {
    /// Use this queue of a port.
    Attach {
        /// Index of the port.
        port: usize,
        /// The queue.
        queue: Queue,
    },
    /// Return the queue of a port.
    Detach {
        /// Index of the port.
        port: usize,
    },
}

/// The workers' clock. It goes on while the machine is suspended: what ends meanwhile, such as the
/// lease of a node of a cluster, has ended when the machine wakes up.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Since the machine's start.
    start_ms: u64,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { start_ms: machine_ms() }
    }

    /// Returns the milliseconds since the start.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        machine_ms().saturating_sub(self.start_ms)
    }
}

/// Returns the milliseconds since the start of the machine.
#[inline]
fn machine_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// State that one worker and the control side share.
pub struct Link<E: Engine> {
    /// Pending changes of its queues.
    pub attachments: ArrayQueue<Attachment>,
    /// Returned queues, with the index of their port.
    pub detached: ArrayQueue<(usize, Queue)>,
    pub orders: ArrayQueue<E::Order>,
    /// Counts for readers.
    pub published: Published<E>,
    /// Rings when there is something for the worker.
    pub bell: Bell,
    /// Whether the worker sleeps.
    pub rest: Rest,
    /// Asks the worker to process the frames that have arrived and end.
    pub stop: AtomicBool,
    /// Set when no port of this worker will bring another frame.
    pub finished: AtomicBool,
    /// By port: the interface is gone.
    pub gone: Box<[AtomicBool]>,
}

impl<E: Engine> Link<E> {
    /// Returns a link for `ports` ports and at most `orders` pending orders.
    ///
    /// # Errors
    /// Fails if the system has no descriptors left.
    pub fn new(ports: usize, orders: usize) -> io::Result<Link<E>> {
        Ok(Link {
            // An attach and a detach for each port, and one spare of each.
            attachments: ArrayQueue::new(4 * ports.max(1)),
            detached: ArrayQueue::new(4 * ports.max(1)),
            orders: ArrayQueue::new(orders.max(1)),
            published: Published::new(ports + 1),
            bell: Bell::new()?,
            rest: Rest::default(),
            stop: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            gone: (0..ports).map(|_| AtomicBool::new(false)).collect(),
        })
    }
}

/// The control side's end of a worker.
pub struct WorkerEnd<E: Engine> {
    /// Takes snapshots.
    pub sender: mailbox::Sender<Snapshot<E>>,
    /// Takes everything else.
    pub link: Arc<Link<E>>,
}

/// State that all workers share with the control side.
pub struct Common {
    /// Clock of all threads.
    pub clock: Clock,
    /// Rings when a worker has something for the control side.
    pub bell: Bell,
}

impl Common {
    /// Starts the clock.
    ///
    /// # Errors
    /// Fails if the system has no descriptors left.
    pub fn new() -> io::Result<Common> {
        Ok(Common { clock: Clock::start(), bell: Bell::new()? })
    }
}
