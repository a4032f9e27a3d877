//! The transmitting half: collects frames and sends them with one system call.

#![allow(unsafe_code)] // sendmmsg.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::offload::payload_len_of;
use crate::queue::{PortError, SendError, Transmit, TransmitCounters};
use crate::sys::link::Link;
use crate::sys::socket::PacketSocket;

const BATCH: usize = 64;
/// Bytes of one call; a longer frame gets a separate call.
const BATCH_BYTES: usize = BATCH * 2048;

pub(super) struct Sender {
    socket: PacketSocket,
    link: Arc<Link>,
    bytes: Vec<u8>,
    /// End of each frame in `bytes`.
    ends: Vec<usize>,
    counters: TransmitCounters,
}

impl Sender {
    pub fn new(socket: PacketSocket, link: Arc<Link>) -> Sender {
        let (bytes, ends) = (Vec::with_capacity(BATCH_BYTES), Vec::with_capacity(BATCH));
        Sender { socket, link, bytes, ends, counters: TransmitCounters::default() }
    }

    /// Sends the collected frames; counts refused ones as lost.
    fn push(&mut self) {
        let mut from = 0;
        while from < self.ends.len() {
            match send(&self.socket, &self.bytes, &self.ends, from) {
                Ok(0) => break,
                Ok(sent) => {
                    let start = if from == 0 { 0 } else { self.ends[from - 1] };
                    from += sent;
                    self.counters.sent += sent as u64;
                    self.counters.sent_bytes += (self.ends[from - 1] - start) as u64;
                }
                Err(e) => match e.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // No room for this frame, or the kernel refuses it as invalid: the next may
                    // pass.
                    Some(libc::ENOBUFS | libc::EMSGSIZE | libc::EINVAL) => {
                        from += 1;
                        self.counters.lost += 1;
                    }
                    Some(libc::EAGAIN) => break,
                    _ => {
                        self.link.ask();
                        self.socket.take_error();
                        break;
                    }
                },
            }
        }
        self.counters.lost += (self.ends.len() - from) as u64;
        self.bytes.clear();
        self.ends.clear();
    }
}

impl Transmit for Sender {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.send_parts(frame, &[])
    }

    fn send_parts(&mut self, head: &[u8], rest: &[u8]) -> Result<(), SendError> {
        if !self.link.is_up() {
            return Err(SendError::Down);
        }
        let len = head.len() + rest.len();
        if payload_len_of(head, len) > self.link.mtu() {
            return Err(SendError::TooLong);
        }
        if self.ends.len() == BATCH || self.bytes.len() + len > self.bytes.capacity() {
            self.push();
        }
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(rest);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if !self.ends.is_empty() {
            self.push();
        }
        self.link.check()
    }

    fn counters(&mut self) -> TransmitCounters {
        self.counters
    }
}

/// Sends the frames from number `from` on; returns how many the kernel took.
fn send(socket: &PacketSocket, bytes: &[u8], ends: &[usize], from: usize) -> io::Result<usize> {
    let mut start = if from == 0 { 0 } else { ends[from - 1] };
    let mut parts = ArrayVec::<libc::iovec, BATCH>::new();
    for &end in ends[from..].iter().take(BATCH) {
        let frame = &bytes[start..end];
        // The kernel only reads.
        let iov_base = frame.as_ptr().cast_mut().cast();
        parts.push(libc::iovec { iov_base, iov_len: frame.len() });
        start = end;
    }
    let mut messages = ArrayVec::<libc::mmsghdr, BATCH>::new();
    for part in &mut parts {
        // SAFETY: all zeros is a valid mmsghdr: no address, no control data.
        let mut message: libc::mmsghdr = unsafe { zeroed() };
        message.msg_hdr.msg_iov = std::ptr::from_mut(part);
        message.msg_hdr.msg_iovlen = 1;
        messages.push(message);
    }
    // SAFETY: as many messages as we say, of one part each, all of which live until the call
    // returns.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_fd().as_raw_fd(),
            messages.as_mut_ptr(),
            messages.len() as libc::c_uint,
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
