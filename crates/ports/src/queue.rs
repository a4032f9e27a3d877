//! Ports of a running switch: bursts in and out, one queue pair for each worker.
//!
//! ```text
//!            ┌─ queue 0: Receive ─▶ worker 0 ─▶ Transmit ─┐
//!   port ────┤                                            ├──── port
//!            └─ queue 1: Receive ─▶ worker 1 ─▶ Transmit ─┘
//! ```
//!
//! A queue is owned by one worker, so that nothing on the packet path is shared or locked. Its two
//! halves are separate objects: while the frames of one burst are on loan from `Receive`, they are
//! copied out by any `Transmit`, that of the same port included.
//!
//! Frames start at the Ethernet header and have no frame check sequence. What a port hands over is
//! complete: VLAN tags that the kernel took off are back in place, checksums that it left to the
//! hardware are computed, large frames that it did not cut into segments are cut.

use arrayvec::ArrayVec;
use std::io;
use std::os::fd::BorrowedFd;

/// Most frames that one call of [`Receive::receive`] brings: four bursts of the tables, so that a
/// worker that is behind looks up 32 frames while the lines of the next 32 are on their way.
pub const BURST: usize = 128;

/// Frames of a burst. They stay as they are until the next call of the same `Receive`.
pub type Received<'a> = ArrayVec<&'a [u8], BURST>;

/// Why a port cannot be opened or does not work any more.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The port is configured in a way that cannot work.
    #[error("{port}: {problem}")]
    Unusable {
        /// Name of the port, as the user wrote it.
        port: String,
        /// What is wrong and what would be right, on one line.
        problem: String,
    },
    /// The interface was deleted. The port stays without traffic until it is opened anew.
    #[error("{port}: the interface is gone")]
    Gone {
        /// Name of the port.
        port: String,
    },
    /// The interface is there and down; it works again as soon as it is up.
    #[error("{port}: the interface is down")]
    Down {
        /// Name of the port.
        port: String,
    },
    /// The system refused something.
    #[error("{port}: {call}: {source}")]
    System {
        /// Name of the port.
        port: String,
        /// What was asked for, such as `bind`.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why one frame was not taken for transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SendError {
    /// No room in the transmit ring; the frame is lost, as on any full queue.
    #[error("transmit queue full")]
    Full,
    /// Longer than the port's MTU allows.
    #[error("frame longer than the port's MTU")]
    TooLong,
    /// The port is down or gone.
    #[error("port down")]
    Down,
}

/// What the receiving half of a queue counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Frames that the kernel or the ring lost before we saw them.
    pub missed: u64,
    /// Frames that arrived unusable (cut short, undecodable) and were not handed over.
    pub errors: u64,
}

/// What the transmitting half of a queue counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounters {
    /// Frames handed to the outside.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that were taken by [`Transmit::send`] and then refused by the outside.
    pub lost: u64,
}

/// The receiving half of a queue.
pub trait Receive: Send {
    /// Up to [`BURST`] frames that wait, perhaps none; never blocks.
    ///
    /// # Errors
    /// [`PortError::Down`] and [`PortError::Gone`], again and again while it lasts; the caller goes
    /// on with its other ports.
    fn receive(&mut self) -> Result<Received<'_>, PortError>;

    /// A descriptor that `poll(2)` reports readable when frames wait; `None`: ask without waiting.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether there will never be another frame, as at the end of a capture.
    fn is_finished(&self) -> bool {
        false
    }

    /// What was counted so far.
    fn counters(&mut self) -> ReceiveCounters;
}

/// The transmitting half of a queue.
pub trait Transmit: Send {
    /// Takes a copy of the frame, to be sent no later than the next [`Transmit::flush`].
    ///
    /// # Errors
    /// The frame was not taken.
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError>;

    /// Hands over everything that was taken; never blocks.
    ///
    /// # Errors
    /// As [`Receive::receive`]; frames that were not handed over are counted as lost.
    fn flush(&mut self) -> Result<(), PortError>;

    /// What was counted so far.
    fn counters(&mut self) -> TransmitCounters;
}

/// Both halves.
pub struct Queue {
    /// Frames in.
    pub receive: Box<dyn Receive>,
    /// Frames out.
    pub transmit: Box<dyn Transmit>,
}

/// What is known of an open port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortInfo {
    /// Kind and name as configured, such as `afxdp:veth1`.
    pub name: String,
    /// Ethernet address, zero where there is none.
    pub mac: [u8; 6],
    /// Longest payload of an Ethernet frame in bytes, VLAN tags not counted.
    pub mtu: u32,
    /// Whether frames can pass at the moment.
    pub link_up: bool,
    /// Modes that were chosen or granted, for people: `copy mode, need-wakeup, 2 queues`.
    pub detail: String,
}

/// An open port. Dropping it undoes what opening it did (XDP programs, queues, modes).
pub trait Port: Send {
    /// The queues, one for each worker; given out once, empty afterwards.
    fn take_queues(&mut self) -> Vec<Queue>;

    /// What is known now; asks the system.
    fn info(&mut self) -> PortInfo;
}
