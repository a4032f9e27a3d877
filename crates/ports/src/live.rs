//! Frames that come in on a network interface, through a plain `AF_PACKET` socket of Linux.
//!
//! For samples, not for speed: one system call a frame, each frame copied once. Needs the right
//! `CAP_NET_RAW` (root has it). The interface is only listened to: nothing is sent, it is not put
//! into promiscuous mode, and frames that this machine sends are left out (on the loopback
//! interface they come in again). The kernel takes off the outer VLAN tag before we see a frame.
//!
//! Guarantees: a frame is cut at [`FRAME_MAX`] bytes; waiting never takes longer than the caller
//! says; the socket is closed when dropped.

#![allow(unsafe_code)] // Socket calls of libc.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most bytes of a frame that are kept: all headers, and more than an Ethernet MTU.
pub const FRAME_MAX: usize = 16_384;

/// Bytes that the kernel keeps for us between two calls.
const KERNEL_BUFFER_BYTES: libc::c_int = 32 << 20;

/// Why an interface cannot be listened to.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// There is no such interface.
    #[error("{interface}: no such network interface")]
    NoInterface {
        /// Its name.
        interface: String,
    },
    /// The right to listen is missing.
    #[error("{interface}: listening needs the right CAP_NET_RAW: run as root")]
    NotAllowed {
        /// Its name.
        interface: String,
    },
    /// It is no Ethernet interface.
    #[error("{interface}: hardware type {hardware}, expected Ethernet (1) or loopback (772)")]
    NotEthernet {
        /// Its name.
        interface: String,
        /// `ARPHRD_*` of the kernel.
        hardware: u16,
    },
    /// Anything else that the system says.
    #[error("{interface}: {reason}")]
    System {
        /// Its name.
        interface: String,
        /// What it said.
        reason: io::Error,
    },
}

/// An interface that is being listened to.
pub struct Live {
    socket: OwnedFd,
    interface: String,
    buffer: Box<[u8; FRAME_MAX]>,
}

/// A frame that came in.
#[derive(Clone, Copy, Debug)]
pub struct LiveFrame<'a> {
    /// The bytes from the Ethernet destination on, [`FRAME_MAX`] of them at most.
    pub data: &'a [u8],
    /// When it was read, in nanoseconds since 1970.
    pub timestamp_ns: u64,
}

impl Live {
    /// Starts listening.
    pub fn open(interface: &str) -> Result<Live, LiveError> {
        let name = || interface.to_owned();
        let system = |reason| LiveError::System { interface: name(), reason };
        let missing = || LiveError::NoInterface { interface: name() };
        let text = CString::new(interface).map_err(|_| missing())?;
        // SAFETY: a string that ends with a zero byte.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        let index = libc::c_int::try_from(index).ok().filter(|&i| i > 0).ok_or_else(missing)?;
        // Protocol 0: nothing comes in before the socket is bound to the interface.
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            let reason = io::Error::last_os_error();
            return Err(match reason.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => LiveError::NotAllowed { interface: name() },
                _ => system(reason),
            });
        }
        // SAFETY: the socket that was just made, which nobody else has.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // A smaller buffer is no reason to give up: missed frames are counted.
        for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
            if set_int(&socket, libc::SOL_SOCKET, option, KERNEL_BUFFER_BYTES).is_ok() {
                break;
            }
        }
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        // SAFETY: `address` is a sockaddr_ll, and its size is what we say.
        let bound = unsafe {
            libc::bind(
                fd,
                (&raw const address).cast::<libc::sockaddr>(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(system(io::Error::last_os_error()));
        }
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: as above; the kernel writes no more than `length`.
        let told = unsafe {
            libc::getsockname(fd, (&raw mut address).cast::<libc::sockaddr>(), &raw mut length)
        };
        if told != 0 {
            return Err(system(io::Error::last_os_error()));
        }
        let hardware = address.sll_hatype;
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware) {
            return Err(LiveError::NotEthernet { interface: name(), hardware });
        }
        Ok(Live { socket, interface: name(), buffer: Box::new([0; FRAME_MAX]) })
    }

    /// The next frame that comes in within `wait`.
    pub fn next_frame(&mut self, wait: Duration) -> Result<Option<LiveFrame<'_>>, LiveError> {
        let fd = self.socket.as_raw_fd();
        let failed = |reason: io::Error, interface: &str| match reason.kind() {
            // A signal, or somebody was faster: nothing came.
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(LiveError::System { interface: interface.to_owned(), reason }),
        };
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let wait = libc::c_int::try_from(wait.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one pollfd, as the count says.
        match unsafe { libc::poll(&raw mut poll, 1, wait) } {
            0 => return Ok(None),
            n if n < 0 => return failed(io::Error::last_os_error(), &self.interface),
            _ => {}
        }
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut from: libc::sockaddr_ll = unsafe { zeroed() };
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel writes at most FRAME_MAX bytes of data and `length` bytes of address,
        // which is the room that there is.
        let got = unsafe {
            libc::recvfrom(
                fd,
                self.buffer.as_mut_ptr().cast(),
                FRAME_MAX,
                libc::MSG_DONTWAIT,
                (&raw mut from).cast::<libc::sockaddr>(),
                &raw mut length,
            )
        };
        let Ok(got) = usize::try_from(got) else {
            return failed(io::Error::last_os_error(), &self.interface);
        };
        if from.sll_pkttype == libc::PACKET_OUTGOING {
            return Ok(None);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timestamp_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        Ok(Some(LiveFrame { data: &self.buffer[..got.min(FRAME_MAX)], timestamp_ns }))
    }

    /// Frames that came since the last call and that the kernel had no room for.
    pub fn missed(&self) -> u64 {
        // SAFETY: all zeros is a valid tpacket_stats.
        let mut stats: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes no more than `length` bytes to `stats`.
        let told = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        if told == 0 { u64::from(stats.tp_drops) } else { 0 }
    }
}

fn set_int(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: a pointer to an integer and its size.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Instant;

    #[test]
    fn what_is_not_there_is_named() {
        for name in ["nowhere0", "", "a\0b", "a name that is far too long for one"] {
            let error = Live::open(name).err().expect("refused");
            assert!(matches!(error, LiveError::NoInterface { .. }), "{error}");
        }
    }

    /// Frames on the loopback interface, once each; without the right to listen, the error.
    #[test]
    fn frames_come_in_and_waiting_ends() {
        let mut live = match Live::open("lo") {
            Ok(live) => live,
            Err(error) => {
                assert!(matches!(error, LiveError::NotAllowed { .. }), "{error}");
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
        while start.elapsed() < Duration::from_millis(500) && seen.len() < 20 {
            if let Some(frame) = live.next_frame(Duration::from_millis(20)).expect("listening") {
                let at = frame.data.windows(16).position(|w| w == mark);
                seen.extend(at.and_then(|at| frame.data.get(at + 16).copied()));
                assert!(frame.timestamp_ns > 1_600_000_000_000_000_000);
            }
        }
        assert_eq!(seen, (0..20).collect::<Vec<u8>>(), "each once, in order");
        let start = Instant::now();
        while live.next_frame(Duration::ZERO).expect("listening").is_some() {}
        let _ = live.next_frame(Duration::from_millis(30)).expect("listening");
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(live.missed(), 0);
    }
}
