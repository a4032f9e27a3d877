//! Receives frames of a network interface through a plain `AF_PACKET` socket of Linux.
//!
//! For samples, not for speed: one system call and one copy for each frame. Needs the capability
//! `CAP_NET_RAW` (root has it). Listening is passive: nothing is sent, and the interface does not
//! become promiscuous. Frames that this machine sends are left out (on the loopback interface they
//! come in again). The outer VLAN tag, which the kernel removes, is restored.
//!
//! Guarantees: a frame is cut at [`FRAME_MAX`] bytes; waiting never exceeds the caller's limit;
//! dropping closes the socket.

#![allow(unsafe_code)] // poll of libc.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::afxdp::netlink;
use crate::offload::{TAG_LEN, insert_tag};
use crate::sys::interface::index_of;
use crate::sys::socket::PacketSocket;

/// Most bytes kept of a frame: all headers, and more than an Ethernet MTU.
pub const FRAME_MAX: usize = 16_384;

/// Bytes that the kernel buffers between two calls.
const KERNEL_BUFFER_BYTES: libc::c_int = 32 << 20;

/// Why listening on an interface fails.
#[derive(Debug, thiserror::Error)]
pub enum SniffError {
    #[error("{interface}: no such network interface")]
    NoInterface { interface: String },
    /// The process lacks the capability.
    #[error("{interface}: listening needs the capability CAP_NET_RAW: run as root")]
    NotAllowed { interface: String },
    #[error("{interface}: hardware type {hardware}, expected Ethernet (1) or loopback (772)")]
    NotEthernet {
        interface: String,
        /// `ARPHRD_*` of the kernel.
        hardware: u16,
    },
    /// Any other error of the system.
    #[error("{interface}: {reason}")]
    System { interface: String, reason: io::Error },
}

/// An open listening socket.
pub struct Sniffer {
    socket: PacketSocket,
    interface: String,
    /// Room for a tag, then the frame.
    buffer: Box<[u8; TAG_LEN + FRAME_MAX]>,
}

#[derive(Clone, Copy, Debug)]
pub struct SniffedFrame<'a> {
    /// The bytes from the Ethernet destination on, at most [`FRAME_MAX`].
    pub data: &'a [u8],
    /// Time of reading, in nanoseconds since 1970.
    pub timestamp_ns: u64,
}

impl Sniffer {
    /// Starts listening.
    pub fn open(interface: &str) -> Result<Sniffer, SniffError> {
        let name = || interface.to_owned();
        let system = |reason| SniffError::System { interface: name(), reason };
        let missing = || SniffError::NoInterface { interface: name() };
        let index = index_of(interface).map_err(|_| missing())?;
        let socket = PacketSocket::new().map_err(|reason| match reason.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SniffError::NotAllowed { interface: name() },
            _ => system(reason),
        })?;
        socket.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, KERNEL_BUFFER_BYTES);
        socket.set_packet(libc::PACKET_AUXDATA, 1).map_err(system)?;
        socket.bind(index, libc::ETH_P_ALL as u16).map_err(system)?;
        let hardware = socket.hardware().map_err(system)?;
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware) {
            return Err(SniffError::NotEthernet { interface: name(), hardware });
        }
        Ok(Sniffer { socket, interface: name(), buffer: Box::new([0; TAG_LEN + FRAME_MAX]) })
    }

    /// Names the XDP program attached to the interface. It sees frames first: those that it passes
    /// to an AF_XDP socket never arrive here.
    pub fn xdp_program(&self) -> Option<String> {
        let index = index_of(&self.interface).ok()?;
        let there = netlink::attached(index as u32).ok()??;
        Some(format!("XDP program {} ({})", there.program, there.mode))
    }

    /// Waits at most `wait` for the next frame.
    pub fn next_frame(&mut self, wait: Duration) -> Result<Option<SniffedFrame<'_>>, SniffError> {
        let fd = self.socket.as_fd().as_raw_fd();
        let failed = |reason: io::Error, interface: &str| match reason.kind() {
            // A signal, or another reader was faster: nothing came.
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(SniffError::System { interface: interface.to_owned(), reason }),
        };
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let wait = libc::c_int::try_from(wait.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one pollfd, as the count says.
        match unsafe { libc::poll(&raw mut poll, 1, wait) } {
            0 => return Ok(None),
            n if n < 0 => return failed(io::Error::last_os_error(), &self.interface),
            _ => {}
        }
        let read = match self.socket.read(&mut self.buffer[TAG_LEN..]) {
            Ok(read) => read,
            Err(reason) => return failed(reason, &self.interface),
        };
        if read.kind == libc::PACKET_OUTGOING {
            return Ok(None);
        }
        let mut frame = TAG_LEN..TAG_LEN + read.len;
        if let Some(tag) = read.tag
            && insert_tag(&mut self.buffer[..frame.end], tag)
        {
            frame = 0..frame.end.min(FRAME_MAX);
        }
        // A clock before 1970 counts as 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timestamp_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        Ok(Some(SniffedFrame { data: &self.buffer[frame], timestamp_ns }))
    }

    /// Returns the number of frames since the last call that the kernel had no room for.
    pub fn missed(&self) -> u64 {
        self.socket.missed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Instant;

    #[test]
    fn missing_files_are_named() {
        for name in ["nowhere0", "", "a\0b", "a name that is far too long for one"] {
            let error = Sniffer::open(name).err().expect("refused");
            assert!(matches!(error, SniffError::NoInterface { .. }), "{error}");
        }
    }

    /// Frames on the loopback interface, once each; without the right to listen, the error.
    #[test]
    fn frames_come_in_and_waiting_ends() {
        let mut sniffer = match Sniffer::open("lo") {
            Ok(sniffer) => sniffer,
            Err(error) => {
                assert!(matches!(error, SniffError::NotAllowed { .. }), "{error}");
                assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
                return;
            }
        };
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let mark: [u8; 16] = std::array::from_fn(|i| i as u8 ^ 0x5a);
        for n in 0..20u8 {
            let payload = [&mark[..], &[n]].concat();
            socket.send_to(&payload, socket.local_addr().expect("bound")).expect("sent");
        }
        let start = Instant::now();
        let mut seen = Vec::new();
        while start.elapsed() < Duration::from_secs(30) && seen.len() < 20 {
            if let Some(frame) = sniffer.next_frame(Duration::from_millis(20)).expect("listening") {
                let at = frame.data.windows(16).position(|w| w == mark);
                seen.extend(at.and_then(|at| frame.data.get(at + 16).copied()));
                assert!(frame.timestamp_ns > 1_600_000_000_000_000_000);
            }
        }
        assert_eq!(seen, (0..20).collect::<Vec<u8>>(), "each once, in order");
        let start = Instant::now();
        while sniffer.next_frame(Duration::ZERO).expect("listening").is_some() {}
        let _ = sniffer.next_frame(Duration::from_millis(30)).expect("listening");
        assert!(start.elapsed() < Duration::from_secs(30));
        assert_eq!(sniffer.missed(), 0);
    }
}
