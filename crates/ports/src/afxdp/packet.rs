//! Sends past AF_XDP, for a worker without a queue of the interface.
//!
//! An AF_XDP socket belongs to one hardware queue, and its rings to one thread. If there are more
//! workers than queues, the others send through an `AF_PACKET` socket. Frames are collected and
//! sent with one `sendmmsg(2)` per flush, bypassing the queueing discipline, as AF_XDP in copy mode
//! does. Nothing is received here, because the AF_XDP sockets take all frames first.
//!
//! Cost: two copies of each frame (ours and the kernel's) and one system call for each burst.

use super::interface::Interface;
use super::transmit::{admit, state};
use crate::queue::{PortError, SendError, Transmit, TransmitCounters};
use crate::sys::socket::PacketSocket;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Most collected frames; more are sent without a flush.
const FRAMES_MAX: usize = 64;

pub(super) struct PacketTransmit {
    interface: Arc<Interface>,
    socket: PacketSocket,
    /// The collected frames, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    counters: TransmitCounters,
}

impl PacketTransmit {
    /// Opens a socket that only sends.
    pub(super) fn open(interface: Arc<Interface>) -> Result<PacketTransmit, PortError> {
        let system = |call| move |error: io::Error| (call, error);
        let open = || {
            let socket = PacketSocket::new().map_err(system("socket(AF_PACKET)"))?;
            // A failure costs a little speed only.
            let _ = socket.set_packet(libc::PACKET_QDISC_BYPASS, 1);
            // Without a protocol nothing is received.
            socket.bind(interface.index(), 0).map_err(system("bind(AF_PACKET)"))?;
            Ok(socket)
        };
        let socket = open().map_err(|(call, error)| interface.system(call, error))?;
        Ok(PacketTransmit {
            interface,
            socket,
            bytes: Vec::new(),
            ends: Vec::with_capacity(FRAMES_MAX),
            counters: TransmitCounters::default(),
        })
    }

    /// Sends everything; counts refused frames as lost.
    fn hand_over(&mut self) -> Result<(), PortError> {
        let mut parts: Vec<libc::iovec> = Vec::with_capacity(self.ends.len());
        let mut start = 0;
        for &end in &self.ends {
            let frame = &mut self.bytes[start..end];
            parts.push(libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() });
            start = end;
        }
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: zero is a value of every member of this structure.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                message
            })
            .collect();
        let mut result = Ok(());
        let mut done = 0;
        while done < messages.len() {
            let rest = &mut messages[done..];
            // SAFETY: `rest` describes parts of `bytes`, all of which live through the call.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_fd().as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            if let Ok(sent @ 1..) = usize::try_from(sent) {
                for part in &parts[done..done + sent] {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += part.iov_len as u64;
                }
                done += sent;
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // The kernel dropped this frame, or has no room for it.
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EMSGSIZE | libc::EINTR) => {
                    self.counters.lost += 1;
                    done += 1;
                }
                _ => {
                    self.counters.lost += (messages.len() - done) as u64;
                    self.interface.ask();
                    result = self.interface.known().and_then(|()| {
                        match error.raw_os_error() {
                            // The interface went down and up in between.
                            Some(libc::ENETDOWN) => Ok(()),
                            _ => Err(self.interface.system("sendmmsg(AF_PACKET)", error)),
                        }
                    });
                    break;
                }
            }
        }
        self.bytes.clear();
        self.ends.clear();
        result
    }
}

impl Transmit for PacketTransmit {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        self.send_parts(frame, &[])
    }

    fn send_parts(&mut self, head: &[u8], rest: &[u8]) -> Result<(), SendError> {
        if !admit(&self.interface, head, rest.len())? {
            self.counters.lost += 1;
            return Ok(());
        }
        if self.ends.len() == FRAMES_MAX {
            // A failure counts the frames as lost, and the next flush reports it.
            let _ = self.hand_over();
        }
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(rest);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let state = state(&self.interface);
        if self.ends.is_empty() {
            return state;
        }
        if state.is_err() {
            self.counters.lost += self.ends.len() as u64;
            self.bytes.clear();
            self.ends.clear();
            return state;
        }
        self.hand_over()
    }

    fn counters(&mut self) -> TransmitCounters {
        self.counters
    }
}
