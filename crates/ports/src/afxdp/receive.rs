//! The receiving half of a queue: any number of AF_XDP sockets.
//!
//! Frames are lent straight from the UMEM, and return to the fill ring all at once with the next
//! call. Several sockets (an interface with more queues than workers) take turns: a call starts one
//! socket after the start of the last call, so that none starves.
//!
//! Cost: no system call while frames arrive, unless a driver asks to be woken. If no frame has
//! arrived: a read of the clock, and every 5 ms three small system calls for all queues of the
//! port.

use super::interface::Interface;
use super::socket::{ReceiveRings, Socket};
use super::sys;
use crate::offload;
use crate::queue::{BURST, PortError, Receive, ReceiveCounters, Received};
use arrayvec::ArrayVec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Calls with frames after which the interface's state is checked anyway.
const BUSY_CALLS: u32 = 1024;

/// One socket and its receive rings.
struct Ring {
    rings: ReceiveRings,
    /// Addresses of the lent frames.
    lent: ArrayVec<u64, BURST>,
    socket: Arc<Socket>,
}

/// Receives from the sockets of one worker.
pub(super) struct XdpReceive {
    interface: Arc<Interface>,
    sockets: Vec<Ring>,
    /// Index of the socket to start with next.
    first: usize,
    calls: u32,
    errors: u64,
    /// Readable when one of several sockets is.
    all: Option<OwnedFd>,
}

impl XdpReceive {
    /// Serves these sockets; without any it only knows whether the interface is up.
    pub(super) fn new(
        interface: Arc<Interface>,
        sockets: Vec<(Arc<Socket>, ReceiveRings)>,
    ) -> io::Result<XdpReceive> {
        let sockets: Vec<Ring> = sockets
            .into_iter()
            .map(|(socket, rings)| Ring { rings, lent: ArrayVec::new(), socket })
            .collect();
        let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(|ring| ring.socket.poll_fd()).collect();
        let all = if fds.len() > 1 { Some(sys::epoll(&fds)?) } else { None };
        Ok(XdpReceive { interface, sockets, first: 0, calls: 0, errors: 0, all })
    }
}

impl Ring {
    /// Returns the lent frames to the kernel.
    fn give_back(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        for address in self.lent.drain(..) {
            // The ring has room for every frame.
            self.rings.fill.push(address);
        }
        self.rings.fill.publish();
    }

    /// Takes frames until none is left or the burst is full; returns how many were unusable.
    fn take<'a>(&mut self, burst: &mut Received<'a>) -> u64 {
        let mut unusable = 0;
        while !burst.is_full() && !self.lent.is_full() {
            let Some(descriptor) = self.rings.rx.pop() else { break };
            // SAFETY: the kernel handed the frame over with the descriptor and gets it back in
            // `give_back` only, at the next call of `receive`, when the burst does not exist any
            // more: it borrows the `XdpReceive` mutably. No frame is in the ring twice.
            match unsafe { self.socket.received(&descriptor) } {
                Some(frame) => {
                    self.lent.push(self.socket.frame_of(descriptor.address));
                    offload::complete_checksum_if_partial(frame);
                    burst.push(frame);
                }
                // Outside our frames, which the kernel never sends.
                None => unusable += 1,
            }
        }
        self.rings.rx.release();
        unusable
    }
}

impl Receive for XdpReceive {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        let mut burst = Received::new();
        let count = self.sockets.len();
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        for turn in 0..count {
            let at = (self.first + turn) % count;
            let ring = &mut self.sockets[at];
            ring.give_back();
            self.errors += ring.take(&mut burst);
        }
        if !burst.is_empty() {
            self.calls += 1;
            if self.calls >= BUSY_CALLS {
                self.calls = 0;
                // For the MTU; the state is reported once no frames come.
                let _ = self.interface.check();
            }
            return Ok(burst);
        }
        for ring in &self.sockets {
            if ring.rings.fill.needs_wakeup() {
                // The result is read below, as down or gone.
                let _ = sys::wake(ring.socket.fd());
            }
        }
        self.interface.check()?;
        Ok(burst)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.all {
            Some(all) => Some(all.as_fd()),
            None => self.sockets.first().map(|ring| ring.socket.poll_fd()),
        }
    }

    fn counters(&mut self) -> ReceiveCounters {
        let missed = self.sockets.iter().map(|ring| ring.socket.missed()).sum();
        ReceiveCounters { missed, errors: self.errors }
    }
}
