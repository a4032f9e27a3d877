//! What an AF_XDP port asks of its interface and changes on it, beyond what all ports do
//! ([`Link`]).
//!
//! The helper is a packet socket that receives nothing. It holds promiscuous mode, which therefore
//! ends with the process, however that ends. Its requests go to the network namespace in which the
//! port was opened, from any thread.

use super::sys;
use crate::queue::PortError;
use crate::sys::link::Link;
use crate::sys::socket::PacketSocket;
use std::io;
use std::mem::{size_of, zeroed};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

#[repr(C)]
#[derive(Default)]
struct EthtoolChannels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// The device removes VLAN tags.
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// An interface, shared by all queues of a port.
pub(super) struct Interface {
    link: Link,
    port: String,
    helper: PacketSocket,
}

impl Deref for Interface {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

impl Interface {
    /// Looks up the interface by name.
    pub(super) fn find(name: &str) -> Result<Interface, PortError> {
        let port = format!("afxdp:{name}");
        let link = Link::open(&port, name)?;
        let helper =
            PacketSocket::new().map_err(|error| link.system("socket(AF_PACKET)", error))?;
        Ok(Interface { link, port, helper })
    }

    /// Returns an error that says what the user can do.
    pub(super) fn unusable(&self, problem: impl Into<String>) -> PortError {
        PortError::Unusable { port: self.port.clone(), problem: problem.into() }
    }

    /// Returns whether the interface is known to be deleted.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.known(), Err(PortError::Gone { .. }))
    }

    /// Returns the number of receive and transmit queues, if the driver reports it.
    pub(super) fn channels(&self) -> Option<(u32, u32)> {
        const ETHTOOL_GCHANNELS: u32 = 0x3c;
        let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..Default::default() };
        self.ethtool(&mut channels).ok()?;
        let all = |own: u32| own.saturating_add(channels.combined);
        Some((all(channels.rx), all(channels.tx))).filter(|queues| queues.0 > 0)
    }

    /// Makes the device keep VLAN tags in frames; returns true if it removed them before.
    pub(super) fn keep_vlan_tags(&self) -> bool {
        self.ethtool_flags().is_ok_and(|flags| {
            flags & ETH_FLAG_RXVLAN != 0 && self.set_ethtool_flags(flags & !ETH_FLAG_RXVLAN).is_ok()
        })
    }

    /// Undoes [`Interface::keep_vlan_tags`].
    pub(super) fn take_vlan_tags(&self) {
        if let Ok(flags) = self.ethtool_flags() {
            // Fails if the interface was deleted or the process dropped CAP_NET_ADMIN: then
            // `rxvlan` stays off, which costs speed only.
            let _ = self.set_ethtool_flags(flags | ETH_FLAG_RXVLAN);
        }
    }

    fn ethtool_flags(&self) -> io::Result<u32> {
        const ETHTOOL_GFLAGS: u32 = 0x25;
        let mut value = EthtoolValue { command: ETHTOOL_GFLAGS, data: 0 };
        self.ethtool(&mut value)?;
        Ok(value.data)
    }

    fn set_ethtool_flags(&self, flags: u32) -> io::Result<()> {
        const ETHTOOL_SFLAGS: u32 = 0x26;
        self.ethtool(&mut EthtoolValue { command: ETHTOOL_SFLAGS, data: flags })
    }

    /// Receives frames for other addresses too, until [`Interface::end_promiscuous`] or the end of
    /// the process.
    pub(super) fn make_promiscuous(&self) -> Result<(), PortError> {
        self.promiscuous(libc::PACKET_ADD_MEMBERSHIP)
            .map_err(|error| self.system("PACKET_ADD_MEMBERSHIP", error))
    }

    /// Undoes [`Interface::make_promiscuous`] even while queues still hold the interface.
    pub(super) fn end_promiscuous(&self) {
        // Fails only if the interface was deleted.
        let _ = self.promiscuous(libc::PACKET_DROP_MEMBERSHIP);
    }

    fn promiscuous(&self, option: libc::c_int) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: self.index() as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.helper.set(libc::SOL_PACKET, option, &membership)
    }

    /// Runs an ethtool command; `value` is its structure, with the command in front.
    fn ethtool<T>(&self, value: &mut T) -> io::Result<()> {
        const SIOCETHTOOL: libc::c_ulong = 0x8946;
        const { assert!(size_of::<T>() >= size_of::<EthtoolValue>()) };
        // SAFETY: zero is a value of every member of this structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        request.ifr_ifru.ifru_ifindex = self.index() as libc::c_int;
        // The interface may have been renamed: ask for its name first.
        self.ioctl(libc::SIOCGIFNAME, &mut request)?;
        request.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
        self.ioctl(SIOCETHTOOL, &mut request)
    }

    fn ioctl(&self, command: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
        let socket = self.helper.as_fd().as_raw_fd();
        // SAFETY: the commands used here take an `ifreq`; where it holds an address, that of a
        // structure of ethtool which the command fills.
        sys::check(unsafe { libc::ioctl(socket, command as _, std::ptr::from_mut(request)) })
            .map(drop)
    }
}
