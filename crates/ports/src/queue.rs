//! Ports of a running switch: bursts in and out, one queue pair for each worker.
//!
//! ```text
//!            ┌─ queue 0: Receive ─▶ worker 0 ─▶ Transmit ─┐
//!   port ────┤                                            ├──── port
//!            └─ queue 1: Receive ─▶ worker 1 ─▶ Transmit ─┘
//! ```
//!
//! One worker owns a queue, so nothing on the packet path is shared or locked. Its two halves are
//! separate objects: while `Receive` lends the frames of a burst, any `Transmit` can copy them out,
//! that of the same port included.
//!
//! Frames start at the Ethernet header and have no frame check sequence. Received frames are
//! complete: VLAN tags that the kernel removed are restored, checksums that it left to the hardware
//! are computed, and large frames are segmented.

use crate::select::Select;
use arrayvec::ArrayVec;
use std::io;
use std::os::fd::BorrowedFd;

/// Most frames of one call of [`Receive::receive`]: four bursts of the tables, so that a worker
/// with a backlog looks up 32 frames while the lines of the next 32 are loading.
pub const BURST: usize = 128;

/// Frames in two parts up to this long are joined on the stack.
const JOINED_MAX: usize = 2048;

/// Frames of a burst, valid until the next call of the same `Receive`.
pub type Received<'a> = ArrayVec<&'a [u8], BURST>;

/// Why a port cannot be opened or no longer works.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The port's configuration cannot work.
    #[error("{port}: {problem}")]
    Unusable {
        /// Name of the port, as the user wrote it.
        port: String,
        /// What is wrong and what would be right, on one line.
        problem: String,
    },
    /// The interface was deleted. The port has no traffic until it is opened again.
    #[error("{port}: the interface is gone")]
    Gone { port: String },
    /// The interface is down; the port works again once it is up.
    #[error("{port}: the interface is down")]
    Down { port: String },
    /// The system refused a call.
    #[error("{port}: {call}: {source}")]
    System {
        port: String,
        /// The call, such as `bind`.
        call: &'static str,
        source: io::Error,
    },
}

/// Why a frame was not taken for transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SendError {
    /// No room in the transmit ring; the frame is lost, as on any full queue.
    #[error("transmit queue full")]
    Full,
    #[error("frame longer than the port's MTU")]
    TooLong,
    #[error("port down")]
    Down,
}

/// Counters of the receiving half of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Frames that the kernel or the ring lost before they were received.
    pub missed: u64,
    /// Frames that arrived unusable (cut short, undecodable) and were discarded.
    pub errors: u64,
}

/// Counters of the transmitting half of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitCounters {
    /// Frames handed over to the system.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Frames that [`Transmit::send`] took and the system then refused.
    pub lost: u64,
}

pub trait Receive: Send {
    /// Returns up to [`BURST`] waiting frames, possibly none; never blocks.
    ///
    /// # Errors
    /// [`PortError::Down`] and [`PortError::Gone`], on every call while it lasts; the caller
    /// continues with its other ports.
    fn receive(&mut self) -> Result<Received<'_>, PortError>;

    /// Returns a descriptor that `poll(2)` reports readable when frames wait; `None`: poll by
    /// calling.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns whether no frame can ever follow, as at the end of a capture.
    fn is_finished(&self) -> bool {
        false
    }

    /// Returns the counters so far.
    fn counters(&mut self) -> ReceiveCounters;
}

pub trait Transmit: Send {
    /// Takes a copy of the frame, to be sent no later than the next [`Transmit::flush`].
    ///
    /// # Errors
    /// The frame was not taken.
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError>;

    /// Takes a copy of a frame in two parts, as [`Transmit::send`] takes one in a single part.
    /// `head` has the Ethernet header and its tags.
    ///
    /// Joins them first; ports for much traffic copy each part to its place instead.
    ///
    /// # Errors
    /// The frame was not taken.
    fn send_parts(&mut self, head: &[u8], rest: &[u8]) -> Result<(), SendError> {
        let mut frame = ArrayVec::<u8, JOINED_MAX>::new();
        let joined = [head, rest].iter().all(|part| frame.try_extend_from_slice(part).is_ok());
        if joined { self.send(&frame) } else { self.send(&[head, rest].concat()) }
    }

    /// Hands over everything that was taken; never blocks.
    ///
    /// # Errors
    /// As [`Receive::receive`]; frames that were not handed over count as lost.
    fn flush(&mut self) -> Result<(), PortError>;

    /// Returns the counters so far.
    fn counters(&mut self) -> TransmitCounters;
}

/// The two halves of a queue.
pub struct Queue {
    pub receive: Box<dyn Receive>,
    pub transmit: Box<dyn Transmit>,
}

/// Properties of an open port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortInfo {
    /// Kind and name as configured, such as `afxdp:veth1`.
    pub name: String,
    /// Ethernet address, zero if there is none.
    pub mac: [u8; 6],
    /// Longest payload of an Ethernet frame in bytes, without VLAN tags.
    pub mtu: u32,
    /// Whether frames can pass at the moment.
    pub link_up: bool,
    /// Modes chosen or granted, for people: `copy mode, need-wakeup, 2 queues`.
    pub detail: String,
}

/// An open port. Dropping it undoes what opening it changed (XDP programs, queues, modes).
pub trait Port: Send {
    /// Takes the queues, one for each worker; empty on later calls.
    fn take_queues(&mut self) -> Vec<Queue>;

    /// Asks the system for the port's current properties.
    fn info(&mut self) -> PortInfo;

    /// Takes the frames that `select` takes from now on. Only AF_XDP ports can leave frames to the
    /// kernel.
    ///
    /// # Errors
    /// [`PortError`]: the selection is as before.
    fn select(&mut self, select: &Select) -> Result<(), PortError> {
        match select {
            Select::All => Ok(()),
            Select::Rules(_) => Err(PortError::Unusable {
                port: self.info().name,
                problem: "takes every frame; frames can be left to the kernel by afxdp alone"
                    .to_owned(),
            }),
        }
    }
}
