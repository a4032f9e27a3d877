//! The sending half of a queue: an AF_XDP socket.
//!
//! ```text
//!   free frames ── send: copy ──▶ tx ring ── flush: kick ──▶ kernel ──▶ completion ring ─┐
//!        ▲                                                                               │
//!        └───────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Free frames form a stack, so that the next one is still in the CPU's cache. In copy mode the
//! kick itself sends, 32 frames a call. With zero copy the driver works alone and is kicked only
//! when it asks.
//!
//! Accounting: a frame is *sent* once the kernel took its descriptor. It is *lost* if the kernel
//! took it and reported a drop, or if the interface went down or away before. In copy mode, frames
//! that wait while the interface goes down are withdrawn: nothing stale leaves when it comes up
//! again.

use super::interface::Interface;
use super::ring::Descriptor;
use super::socket::{Socket, TransmitRings};
use super::sys;
use crate::offload;
use crate::queue::{PortError, SendError, Transmit, TransmitCounters};
use std::sync::Arc;

const ETHERNET_BYTES: usize = 14;

/// An address outside every UMEM: the kernel skips such a descriptor.
const WITHDRAWN: Descriptor = Descriptor { address: u64::MAX, len: 1, options: 0 };

pub(super) struct XdpTransmit {
    interface: Arc<Interface>,
    rings: TransmitRings,
    /// Unused frames.
    free: Vec<u64>,
    /// The kernel's position in the ring, as far as known.
    taken: u32,
    /// Ring position up to which frames are counted.
    counted: u32,
    counters: TransmitCounters,
    /// Frames that the kernel took and dropped, and their bytes: to be moved from sent to lost.
    dropped: u64,
    dropped_bytes: u64,
    socket: Arc<Socket>,
}

/// Returns the known state of the interface; asks again while it is down, to see it come up.
pub(super) fn state(interface: &Interface) -> Result<(), PortError> {
    if interface.is_up() { Ok(()) } else { interface.check() }
}

/// Returns whether a frame may leave through an interface; `Ok(false)` if it is no frame, and lost.
///
/// It begins with `head`; `rest` more bytes follow.
pub(super) fn admit(interface: &Interface, head: &[u8], rest: usize) -> Result<bool, SendError> {
    if state(interface).is_err() {
        return Err(SendError::Down);
    }
    let len = head.len() + rest;
    if offload::payload_len_of(head, len) > interface.mtu() {
        return Err(SendError::TooLong);
    }
    Ok(len >= ETHERNET_BYTES)
}

impl XdpTransmit {
    pub(super) fn new(
        interface: Arc<Interface>,
        socket: Arc<Socket>,
        rings: TransmitRings,
    ) -> XdpTransmit {
        let free = socket.transmit_frames().collect();
        let taken = rings.tx.consumed();
        XdpTransmit {
            interface,
            rings,
            free,
            taken,
            counted: taken,
            counters: TransmitCounters::default(),
            dropped: 0,
            dropped_bytes: 0,
            socket,
        }
    }

    /// Collects the frames that the kernel has finished with.
    fn reclaim(&mut self) {
        let before = self.free.len();
        while let Some(address) = self.rings.completion.pop() {
            // The stack never exceeds the number of frames: each is in one place.
            if self.socket.is_transmit_frame(address) {
                self.free.push(address);
            }
        }
        if self.free.len() != before {
            self.rings.completion.release();
        }
    }

    /// Counts what the kernel took since the last call.
    fn count(&mut self) {
        let consumed = self.rings.tx.consumed();
        if ahead(consumed, self.taken) {
            self.taken = consumed;
        }
        while self.counted != self.taken {
            let frame = self.rings.tx.entry(self.counted);
            if frame != WITHDRAWN {
                self.counters.sent += 1;
                self.counters.sent_bytes += u64::from(frame.len);
            }
            self.counted = self.counted.wrapping_add(1);
        }
        self.counters.sent = self.counters.sent.saturating_sub(self.dropped);
        self.counters.sent_bytes = self.counters.sent_bytes.saturating_sub(self.dropped_bytes);
        self.counters.lost += self.dropped;
        (self.dropped, self.dropped_bytes) = (0, 0);
    }

    /// Withdraws the frames that the kernel did not take; they are lost. The kernel later skips
    /// their descriptors, and they are not counted again.
    fn withdraw(&mut self) {
        self.count();
        let mut at = self.counted;
        while at != self.rings.tx.published() {
            let frame = self.rings.tx.entry(at);
            if frame != WITHDRAWN {
                self.rings.tx.replace(at, WITHDRAWN);
                self.free.push(frame.address);
                self.counters.lost += 1;
            }
            at = at.wrapping_add(1);
        }
    }

    /// Makes the kernel send, in as many calls as needed.
    fn kick(&mut self) -> Result<(), PortError> {
        let waiting = |this: &Self| this.rings.tx.published().wrapping_sub(this.taken);
        // In copy mode each call sends 32 frames, drops one, or skips a withdrawn one. If it does
        // none of these, the queue is full.
        for _ in 0..waiting(self) + 2 {
            let before = self.taken;
            let result = sys::kick(self.socket.fd());
            let consumed = self.rings.tx.consumed();
            if ahead(consumed, self.taken) {
                self.taken = consumed;
            }
            let Err(error) = result else {
                if waiting(self) == 0 || self.socket.zero_copy() {
                    // All sent, or under way.
                    break;
                }
                if self.taken == before && self.rings.tx.entry(before) == WITHDRAWN {
                    // Skipped; the kernel publishes that with the next frame that it sends.
                    self.taken = before.wrapping_add(1);
                }
                continue;
            };
            match error.raw_os_error() {
                // The kernel dropped the frame that it took last. If it took no other, it publishes
                // that only with the next call.
                Some(libc::EBUSY) if !self.socket.zero_copy() => {
                    if waiting(self) == 0 && self.taken == before {
                        break;
                    }
                    if self.taken == before {
                        self.taken = self.taken.wrapping_add(1);
                    }
                    let frame = self.rings.tx.entry(self.taken.wrapping_sub(1));
                    self.dropped += 1;
                    self.dropped_bytes += u64::from(frame.len);
                    if waiting(self) == 0 {
                        break;
                    }
                }
                // Its batch is full, or nothing moves at present.
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EBUSY) => {
                    if self.taken == before || waiting(self) == 0 {
                        break;
                    }
                }
                Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => {
                    self.interface.ask();
                    self.interface.known()?;
                    break;
                }
                _ => return Err(self.interface.system("sendto(AF_XDP)", error)),
            }
        }
        Ok(())
    }
}

/// Returns whether index `a` is past index `b`; both wrap.
fn ahead(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

impl Transmit for XdpTransmit {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.send_parts(frame, &[])
    }

    fn send_parts(&mut self, head: &[u8], rest: &[u8]) -> Result<(), SendError> {
        if !admit(&self.interface, head, rest.len())? {
            self.counters.lost += 1;
            return Ok(());
        }
        let len = head.len() + rest.len();
        if len > self.socket.frame_bytes() as usize {
            return Err(SendError::TooLong);
        }
        if self.free.is_empty() {
            self.reclaim();
        }
        if self.free.is_empty() {
            // All frames are in use: more were sent than fit since the last flush, or the link is
            // slow. The caller's next flush reports a lasting failure.
            let _ = self.flush();
        }
        let Some(&address) = self.free.last() else { return Err(SendError::Full) };
        if !self.rings.tx.push(Descriptor { address, len: len as u32, options: 0 }) {
            return Err(SendError::Full);
        }
        self.free.pop();
        // SAFETY: the stack holds addresses of frames for sending of which this is the only user;
        // the kernel sees the descriptor only when it is published.
        unsafe { self.socket.write(address, [head, rest]) };
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.rings.tx.publish();
        let waits = self.rings.tx.published() != self.rings.tx.consumed();
        let mut result = state(&self.interface);
        if result.is_ok() && waits && self.rings.tx.needs_wakeup() {
            result = self.kick();
        }
        if result.is_err() && (!self.socket.zero_copy() || self.interface.is_gone()) {
            // The ring is not read now: in copy mode the kernel reads it only when kicked.
            self.withdraw();
        }
        self.count();
        self.reclaim();
        result
    }

    fn counters(&mut self) -> TransmitCounters {
        self.count();
        self.counters
    }
}
