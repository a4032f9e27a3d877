//! What the control side and the workers tell each other.
//!
//! Everything that changes while packets flow reaches a worker in a [`Snapshot`] (through its
//! [`crate::mailbox`]), as a [`Command`], or as a [`PacketOut`]; what it has to tell goes into
//! bounded queues. All of it is in a [`Link`], one for each worker.

use crate::l2::Reports;
use crate::sys::Bell;
use crate::totals::Published;
use crossbeam_queue::ArrayQueue;
use overbank_ports::queue::Queue;
use overbank_switch::SwitchPort;
use overbank_switch::rule::Action;
use overbank_switch::sink::PacketInReason;
use overbank_switch::tables::Tables;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

/// Frames of controllers that wait for a worker, at most, unless told otherwise.
pub const PACKET_OUTS: usize = 256;

/// What OpenFlow's port modification can set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Administratively down: neither receives nor forwards.
    pub down: bool,
    /// Frames that come in are dropped.
    pub no_receive: bool,
    /// Frames are not sent.
    pub no_forward: bool,
    /// Flooded frames leave it out.
    pub no_flood: bool,
    /// Its frames do not go to controllers.
    pub no_packet_in: bool,
}

/// A port as the workers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortView {
    /// OpenFlow number.
    pub number: u32,
    /// What it may do.
    pub config: PortConfig,
    /// In the Ethernet switch it talks to ports that are not isolated, and to no other.
    pub isolated: bool,
}

impl PortView {
    /// The port as the datapath sees it.
    pub fn switch_port(&self) -> SwitchPort {
        SwitchPort { number: self.number, flood: !self.config.no_flood }
    }
}

/// The rules and ports that a worker goes by.
#[derive(Clone)]
pub struct Snapshot {
    /// The rules.
    pub tables: Arc<Tables>,
    /// The ports; their order is the same in all snapshots.
    pub ports: Arc<[PortView]>,
}

/// Something for a worker to do.
pub enum Command {
    /// Take over this queue of a port.
    Attach {
        /// Place of the port in [`Snapshot::ports`].
        port: usize,
        /// The queue.
        queue: Queue,
    },
    /// Give the queue of a port back.
    Detach {
        /// Place of the port in [`Snapshot::ports`].
        port: usize,
    },
}

/// A packet for the controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// Why.
    pub reason: PacketInReason,
    /// How many bytes of it the rule wants them to have; `u16::MAX` is all.
    pub max_len: u16,
    /// Table of the rule.
    pub table: u8,
    /// Cookie of the rule.
    pub cookie: u64,
    /// Port that it came in on.
    pub in_port: u32,
    /// The whole frame.
    pub frame: Vec<u8>,
}

/// A packet of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// The frame.
    pub frame: Vec<u8>,
    /// Port that it shall be taken to have come in on; [`PORT_CONTROLLER`] where there is none.
    ///
    /// [`PORT_CONTROLLER`]: overbank_switch::ports::PORT_CONTROLLER
    pub in_port: u32,
    /// What to do with it.
    pub actions: Vec<Action>,
}

/// Milliseconds since the switch started.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Milliseconds since the start.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        let elapsed = self.0.elapsed();
        elapsed.as_secs() * 1000 + u64::from(elapsed.subsec_millis())
    }
}

/// What one worker and the control side share.
pub struct Link {
    /// For the worker to do.
    pub commands: ArrayQueue<Command>,
    /// Queues that it gave back, with the place of their port.
    pub detached: ArrayQueue<(usize, Queue)>,
    /// Frames of controllers.
    pub packet_outs: ArrayQueue<PacketOut>,
    /// Frames for controllers.
    pub packet_ins: ArrayQueue<PacketIn>,
    /// Stations seen.
    pub reports: Arc<Reports>,
    /// What it counted.
    pub published: Published,
    /// Rings when there is something for the worker.
    pub bell: Bell,
    /// The worker shall take what has arrived to its end and then end itself.
    pub stop: AtomicBool,
    /// No port of this worker will ever bring another frame.
    pub finished: AtomicBool,
    /// By port: the interface is gone.
    pub gone: Box<[AtomicBool]>,
}

impl Link {
    /// A link for so many ports, and so many packets for controllers and of controllers that wait.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(
        ports: usize,
        packet_ins: usize,
        packet_outs: usize,
        reports: Arc<Reports>,
    ) -> io::Result<Link> {
        Ok(Link {
            // An attach and a detach for each port, and one more of each.
            commands: ArrayQueue::new(4 * ports.max(1)),
            detached: ArrayQueue::new(4 * ports.max(1)),
            packet_outs: ArrayQueue::new(packet_outs.max(1)),
            packet_ins: ArrayQueue::new(packet_ins.max(1)),
            reports,
            published: Published::new(ports + 1),
            bell: Bell::new()?,
            stop: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            gone: (0..ports).map(|_| AtomicBool::new(false)).collect(),
        })
    }
}

/// What all workers share with the control side.
pub struct Common {
    /// The switch's clock.
    pub clock: Clock,
    /// Rings when a worker has something for the core.
    pub bell: Bell,
    /// Controllers that take packets.
    pub controllers: AtomicUsize,
}
