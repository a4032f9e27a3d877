//! Asks the kernel about network interfaces, by `ioctl` on a socket.

#![allow(unsafe_code)] // ioctl on `struct ifreq`.

use std::ffi::CString;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns the index of an interface; `NotFound` if the name is unknown.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let text = CString::new(name).map_err(|_| io::ErrorKind::NotFound)?;
    // SAFETY: a string that ends with a zero byte.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(io::ErrorKind::NotFound.into()),
        index => Ok(index),
    }
}

/// State of an interface at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Administratively up, and with a carrier.
    pub up: bool,
    /// Longest payload of a frame.
    pub mtu: u32,
}

/// A socket for requests. It stays in the network namespace in which it was opened.
pub(crate) struct Control(OwnedFd);

impl Control {
    pub(crate) fn new() -> io::Result<Control> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the socket was just opened and has no other owner.
        Ok(Control(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the state of interface number `index`; `ENODEV` once it is deleted, even if renamed.
    pub(crate) fn state(&self, index: u32) -> io::Result<State> {
        let mut request = self.named(index)?;
        self.ioctl(libc::SIOCGIFFLAGS as libc::Ioctl, &mut request)?;
        // SAFETY: the kernel just filled in this member.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        self.ioctl(libc::SIOCGIFMTU as libc::Ioctl, &mut request)?;
        // SAFETY: as above.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        let mtu = u32::try_from(mtu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        Ok(State { up: flags & both == both, mtu })
    }

    /// Returns hardware type (`ARPHRD_*`) and address of interface number `index`.
    pub(crate) fn hardware(&self, index: u32) -> io::Result<(u16, [u8; 6])> {
        let mut request = self.named(index)?;
        self.ioctl(libc::SIOCGIFHWADDR as libc::Ioctl, &mut request)?;
        // SAFETY: the kernel just filled in this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let mac = std::array::from_fn(|i| address.sa_data[i] as u8);
        Ok((address.sa_family, mac))
    }

    pub(crate) fn set_up(&self, index: u32) -> io::Result<()> {
        let mut request = self.named(index)?;
        self.ioctl(libc::SIOCGIFFLAGS as libc::Ioctl, &mut request)?;
        // SAFETY: the kernel just filled in this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        self.ioctl(libc::SIOCSIFFLAGS as libc::Ioctl, &mut request)
    }

    pub(crate) fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        let mut request = self.named(index)?;
        let mtu = libc::c_int::try_from(mtu).map_err(|_| io::ErrorKind::InvalidInput)?;
        request.ifr_ifru.ifru_mtu = mtu;
        self.ioctl(libc::SIOCSIFMTU as libc::Ioctl, &mut request)
    }

    /// Returns a request with the current name of interface number `index`.
    fn named(&self, index: u32) -> io::Result<libc::ifreq> {
        // SAFETY: all zeros is a valid ifreq.
        let mut request: libc::ifreq = unsafe { zeroed() };
        request.ifr_ifru.ifru_ifindex =
            libc::c_int::try_from(index).expect("an interface index is an int");
        self.ioctl(libc::SIOCGIFNAME as libc::Ioctl, &mut request)?;
        Ok(request)
    }

    fn ioctl(&self, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: each number that is used here reads and writes one ifreq.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), number, std::ptr::from_mut(request)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
