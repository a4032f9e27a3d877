//! What the control side and the workers share.
//!
//! Everything that changes while packets flow reaches a worker as a [`Snapshot`] (through its
//! mailbox), as an [`Attachment`] of a queue, or as an order of its engine; what it reports is in its
//! published numbers, and in what the engine shares with its control side. There is one [`Link`] for
//! each worker.

use crate::engine::Engine;
use crate::sys::Bell;
use crate::totals::Published;
use crossbeam_queue::ArrayQueue;
use overbank_handover::mailbox;
use overbank_handover::rest::Rest;
use overbank_ports::queue::Queue;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// A port as a worker treats it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortView {
    /// Number that people and controllers call it by.
    pub number: u32,
    /// Frames that come in are processed.
    pub receives: bool,
    /// Frames are sent.
    pub sends: bool,
}

/// What a worker runs on.
pub struct Snapshot<E: Engine> {
    /// The engine's part.
    pub engine: E::Snapshot,
    /// The ports; their order is the same in all snapshots.
    pub ports: Arc<[PortView]>,
}

impl<E: Engine> Clone for Snapshot<E> {
    fn clone(&self) -> Self {
        Snapshot { engine: self.engine.clone(), ports: self.ports.clone() }
    }
}

/// A change of a worker's queues.
pub enum Attachment {
    /// Take over this queue of a port.
    Attach {
        /// Index of the port.
        port: usize,
        /// The queue.
        queue: Queue,
    },
    /// Give the queue of a port back.
    Detach {
        /// Index of the port.
        port: usize,
    },
}

/// Milliseconds since the start.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Returns the milliseconds since the start.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        let elapsed = self.0.elapsed();
        elapsed.as_secs() * 1000 + u64::from(elapsed.subsec_millis())
    }
}

/// What one worker and the control side share.
pub struct Link<E: Engine> {
    /// Changes of its queues.
    pub attachments: ArrayQueue<Attachment>,
    /// Queues that it gave back, with the index of their port.
    pub detached: ArrayQueue<(usize, Queue)>,
    /// Orders for its engine.
    pub orders: ArrayQueue<E::Order>,
    /// What it counted.
    pub published: Published<E>,
    /// Rings when there is something for the worker.
    pub bell: Bell,
    /// Whether the worker sleeps.
    pub rest: Rest,
    /// The worker shall take what has arrived to its end and then end itself.
    pub stop: AtomicBool,
    /// No port of this worker will ever bring another frame.
    pub finished: AtomicBool,
    /// By port: the interface is gone.
    pub gone: Box<[AtomicBool]>,
}

impl<E: Engine> Link<E> {
    /// Returns a link for this many ports, and this many orders that wait.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(ports: usize, orders: usize) -> io::Result<Link<E>> {
        Ok(Link {
            // An attach and a detach for each port, and one more of each.
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
    /// Where snapshots go.
    pub sender: mailbox::Sender<Snapshot<E>>,
    /// Everything else.
    pub link: Arc<Link<E>>,
}

/// What all workers share with the control side.
pub struct Common {
    /// The clock of all threads.
    pub clock: Clock,
    /// Rings when a worker has something for the control side.
    pub bell: Bell,
}

impl Common {
    /// Starts the clock.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new() -> io::Result<Common> {
        Ok(Common { clock: Clock::start(), bell: Bell::new()? })
    }
}
