//! The receiving half of a queue: one or several AF_XDP sockets, or none.
//!
//! Frames are lent straight from the UMEM. With the next call they go back to the fill ring, all at
//! once. Several sockets (an interface with more queues than there are workers) are served in
//! turn; a call starts at the socket after the one at which the last call began, so that none
//! starves.
//!
//! Cost: no system call while frames arrive, unless a driver asks to be woken. When nothing has
//! arrived, a look at the clock, and every 5 ms three small system calls for all queues of the port.

use super::interface::Interface;
use super::socket::{ReceiveRings, Socket};
use super::sys;
use crate::offload;
use crate::queue::{BURST, PortError, Receive, ReceiveCounters, Received};
use arrayvec::ArrayVec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Calls with frames after which the system is asked for the state nevertheless.
const BUSY_CALLS: u32 = 1024;

/// One socket, as far as receiving goes.
struct Ring {
    rings: ReceiveRings,
    /// Addresses of the frames that are on loan.
    lent: ArrayVec<u64, BURST>,
    socket: Arc<Socket>,
}

/// Receives from the sockets of one worker.
pub(super) struct XdpReceive {
    interface: Arc<Interface>,
    sockets: Vec<Ring>,
    /// Where the next call begins.
    first: usize,
    calls: u32,
    errors: u64,
    /// Readable when one of several sockets is.
    all: Option<OwnedFd>,
}

impl XdpReceive {
    /// Serves the given sockets; with none it knows only whether the interface is up.
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
    /// Gives the frames on loan back to the kernel.
    fn give_back(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        for address in self.lent.drain(..) {
            // The ring has room for every frame that there is.
            self.rings.fill.push(address);
        }
        self.rings.fill.publish();
    }

    /// Takes frames until there are none or the burst is full; returns how many were unusable.
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
                // Not one of our frames: the kernel never does that.
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
                // For the MTU; what it says of the state is told when no frames come.
                let _ = self.interface.check();
            }
            return Ok(burst);
        }
        for ring in &self.sockets {
            if ring.rings.fill.needs_wakeup() {
                // What it answers is found out below: down or gone.
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
