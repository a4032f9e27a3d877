//! `AF_PACKET` sockets, for [`crate::sniff`] and [`crate::afpacket`].

#![allow(unsafe_code)] // Socket calls of libc.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::offload::Tag;

/// Structures of integers without padding, which the kernel may read and write freely.
///
/// # Safety
/// Any bytes are a valid value, zeros included.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for libc::c_int {}
// SAFETY: integers of the same length.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_req3 {}
// SAFETY: as above.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: integers, laid out without gaps.
unsafe impl Plain for libc::packet_mreq {}

/// A raw packet socket; receives nothing before it is bound.
pub(crate) struct PacketSocket(OwnedFd);

/// A frame that was read, with its metadata.
pub(crate) struct Read {
    /// Its bytes in the buffer; the rest may have been cut.
    pub len: usize,
    /// `PACKET_*`: addressee or direction.
    pub kind: u8,
    /// The VLAN tag that the kernel removed.
    pub tag: Option<Tag>,
}

impl PacketSocket {
    /// Opens a socket that does not block.
    pub(crate) fn new() -> io::Result<PacketSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the socket was just opened and has no other owner.
        Ok(PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn set<T: Plain>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        // SAFETY: a pointer to the value and its size.
        checked(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        })
    }

    /// Sets a numeric option of packet sockets.
    pub(crate) fn set_packet(&self, option: i32, value: i32) -> io::Result<()> {
        self.set(libc::SOL_PACKET, option, &value)
    }

    pub(crate) fn get<T: Plain>(&self, level: i32, option: i32) -> io::Result<T> {
        // SAFETY: zeros are a valid value of a `Plain`.
        let mut value: T = unsafe { zeroed() };
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes no more than `length` bytes to `value`.
        checked(unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                std::ptr::from_mut(&mut value).cast(),
                &raw mut length,
            )
        })?;
        Ok(value)
    }

    /// Sets the size of a kernel buffer, as far as the kernel allows.
    pub(crate) fn set_buffer(&self, forced: i32, plain: i32, bytes: i32) {
        // A smaller buffer is no reason to fail: missed frames are counted.
        if self.set(libc::SOL_SOCKET, forced, &bytes).is_err() {
            let _ = self.set(libc::SOL_SOCKET, plain, &bytes);
        }
    }

    /// Binds to an interface; protocol 0 for sending only, `ETH_P_ALL` to receive.
    pub(crate) fn bind(&self, index: u32, protocol: u16) -> io::Result<()> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = libc::c_int::try_from(index).expect("an interface index is an int");
        // SAFETY: `address` is a sockaddr_ll, and its size is what we say.
        checked(unsafe {
            libc::bind(
                self.0.as_raw_fd(),
                (&raw const address).cast::<libc::sockaddr>(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })
    }

    /// Sends a frame by the bound interface.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let (fd, bytes) = (self.0.as_raw_fd(), frame.as_ptr().cast());
        // SAFETY: the kernel reads the bytes of `frame`.
        match unsafe { libc::send(fd, bytes, frame.len(), 0) } {
            sent if sent < 0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Returns the hardware type of the bound interface.
    pub(crate) fn hardware(&self) -> io::Result<u16> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel writes no more than `length`.
        checked(unsafe {
            libc::getsockname(
                self.0.as_raw_fd(),
                (&raw mut address).cast::<libc::sockaddr>(),
                &raw mut length,
            )
        })?;
        Ok(address.sll_hatype)
    }

    /// Blocks all frames.
    pub(crate) fn shut(&self) -> io::Result<()> {
        // `ret 0`: keep no byte of any frame.
        let mut program = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
        let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
        // SAFETY: the kernel copies the one instruction that `filter` points to.
        checked(unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        })
    }

    /// Reverts [`PacketSocket::shut`].
    pub(crate) fn unshut(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
    }

    /// Clears and returns the pending error of the socket, which makes `poll` return at once.
    pub(crate) fn take_error(&self) -> Option<i32> {
        self.get(libc::SOL_SOCKET, libc::SO_ERROR).ok().filter(|&e| e != 0)
    }

    /// Returns the number of frames since the last call that the kernel had no room for.
    pub(crate) fn missed(&self) -> u64 {
        let stats = self.get::<libc::tpacket_stats>(libc::SOL_PACKET, libc::PACKET_STATISTICS);
        stats.map_or(0, |stats| u64::from(stats.tp_drops))
    }

    /// Reads a frame into `buffer`; [`PACKET_AUXDATA`](libc::PACKET_AUXDATA) carries the tag.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Read> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut from: libc::sockaddr_ll = unsafe { zeroed() };
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = [0u64; 8];
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: each pointer of `message` is to a local of the length beside it.
        let got =
            unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(len) = usize::try_from(got) else { return Err(io::Error::last_os_error()) };
        let mut tag = None;
        // SAFETY: `message` is as the kernel filled it in.
        let mut at = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !at.is_null() {
            // SAFETY: not null, so a whole header inside of `control`, which is aligned for it.
            let header = unsafe { at.read() };
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                // SAFETY: a message of this type holds a tpacket_auxdata.
                let aux =
                    unsafe { libc::CMSG_DATA(at).cast::<libc::tpacket_auxdata>().read_unaligned() };
                tag = tag_of(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid);
            }
            // SAFETY: as for the first one.
            at = unsafe { libc::CMSG_NXTHDR(&raw const message, at) };
        }
        Ok(Read { len: len.min(buffer.len()), kind: from.sll_pkttype, tag })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the VLAN tag that the status word of a frame announces.
pub(crate) fn tag_of(status: u32, tci: u16, tpid: u16) -> Option<Tag> {
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let tpid = if known { tpid } else { libc::ETH_P_8021Q as u16 };
    (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Tag { tpid, tci })
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
