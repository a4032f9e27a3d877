//! An address that an interface has while this process lives.
//!
//! The kernel gets it with a lifetime, which [`Held::renew`] extends: after the end of the process,
//! however it comes, the kernel removes the address by itself.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, CacheInfo};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// See the module. Dropping it removes the address.
#[derive(Debug)]
pub struct Held {
    socket: Socket,
    index: u32,
    address: IpAddr,
    lifetime_s: u32,
}

impl Held {
    /// Gives an interface an address, as a host (/32, /128), for this time: whole seconds, 1 at
    /// least. IPv6 skips the detection of duplicates: the caller sees to it that no other host
    /// has the address.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(index: u32, address: IpAddr, lifetime: Duration) -> io::Result<Held> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        let lifetime_s = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX - 1).max(1);
        let held = Held { socket, index, address, lifetime_s };
        held.renew()?;
        Ok(held)
    }

    /// Extends the lifetime, from now on.
    ///
    /// # Errors
    /// The kernel refuses; the address may be gone.
    pub fn renew(&self) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewAddress(self.message());
        self.ask(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn message(&self) -> AddressMessage {
        let mut message = AddressMessage::default();
        let (family, bits) = match self.address {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        (message.header.family, message.header.prefix_len) = (family, bits);
        message.header.index = self.index;
        let mut times = CacheInfo::default();
        (times.ifa_valid, times.ifa_preferred) = (self.lifetime_s, self.lifetime_s);
        message.attributes = vec![
            AddressAttribute::Local(self.address),
            AddressAttribute::Address(self.address),
            AddressAttribute::CacheInfo(times),
        ];
        if self.address.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        message
    }

    fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (NLM_F_REQUEST | NLM_F_ACK | flags, 1);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer);
        match answer.map_err(io::Error::other)?.payload {
            NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
            _ => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // It goes when its lifetime is over, at the latest.
        let _ = self.ask(RouteNetlinkMessage::DelAddress(self.message()), 0);
    }
}
