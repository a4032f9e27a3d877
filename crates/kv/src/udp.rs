//! A UDP socket that never blocks but in [`Udp::wait`], for IPv4, IPv6 or both.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Bytes of the longest datagram that is read; longer ones are cut, and refused by their length.
pub const DATAGRAM_MAX: usize = 2048;
/// Longest wait at a time.
const WAIT_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Udp {
    socket: UdpSocket,
    is_v6: bool,
}

impl Udp {
    /// Binds an address; the unspecified one of IPv6 serves IPv4, too.
    pub fn bind(address: SocketAddr, receive_bytes: usize) -> io::Result<Udp> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        // The kernel allows up to `net.core.rmem_max`.
        set_socket_recv_buffer_size(&socket, receive_bytes)?;
        Ok(Udp { socket, is_v6: address.is_ipv6() })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        let to = match to {
            SocketAddr::V4(to) if self.is_v6 => (to.ip().to_ipv6_mapped(), to.port()).into(),
            to => to,
        };
        self.socket.send_to(bytes, to).map(drop)
    }

    /// Receives a datagram, if there is one: its length, and its source.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match self.socket.recv_from(room) {
            Ok((len, from)) => Ok(Some((len, canonical(from)))),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until a datagram is there, or `other` is readable, but not longer than `time`.
    pub fn wait(&self, other: Option<BorrowedFd<'_>>, time: Duration) -> io::Result<()> {
        let time = Timespec::try_from(time.min(WAIT_MAX)).map_err(io::Error::other)?;
        let socket = PollFd::new(&self.socket, PollFlags::IN);
        let result = match other {
            None => poll(&mut [socket], Some(&time)),
            Some(other) => {
                poll(&mut [socket, PollFd::from_borrowed_fd(other, PollFlags::IN)], Some(&time))
            }
        };
        match result {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns an IPv4 address that is written as one of IPv6 as itself.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            (address.ip().to_canonical(), address.port()).into()
        }
        address => address,
    }
}
