//! Writes the headers of a tunnel in front of a packet.
//!
//! ```text
//!  | Ethernet 14 or 18 | IPv4 20 or IPv6 40 | UDP 8 | GTP-U 8, or 12 and container | packet
//! ```
//!
//! - UDP checksum: 0 over IPv4; over IPv6 it is computed. RFC 6935 allows 0 there as well, for
//!   receivers that are known to accept it, which an N3 peer need not be.
//! - UDP source port: 49152 to 65535 by the flow, so that routers spread flows over paths (RFC
//!   7605). Over IPv6 the flow label has further bits of the flow (RFC 6438).
//! - ECN: the outer header says that the packet is not capable of it (RFC 6040, compatibility
//!   mode): congestion inside the tunnel drops packets, so no mark can be lost at the other end.
//! - IPv4 is sent with "do not fragment": the caller answers packets that are too big
//!   ([`crate::icmp_error`]).

use super::extensions::kind;
use super::{
    Body, Container, E, Extensions, HEADER_LEN, LONG_HEADER_LEN, Message, PORT, Refused, VERSION,
    message_type,
};
use crate::checksum;
use crate::ip::{Ends, Head, write_header};
use crate::proto::{array, ethernet, ipv4, ipv6, number, transport::udp};
use std::ops::Range;

/// First of the source ports.
const PORT_MIN: u16 = 0xc000;

/// The Ethernet header of a frame to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub dst: [u8; 6],
    pub src: [u8; 6],
    /// Tag control information of a VLAN tag.
    pub vlan: Option<u16>,
}

impl Link {
    /// Returns the length of the header.
    pub const fn header_len(&self) -> usize {
        ethernet::HEADER_LEN + if self.vlan.is_some() { ethernet::TAG_LEN } else { 0 }
    }

    /// Writes the header of a frame whose packet starts at `at` in `bytes`. Returns the start of
    /// the frame; `None`, without a change, if there is no room.
    #[inline]
    pub(crate) fn write(&self, bytes: &mut [u8], at: usize, dl_type: u16) -> Option<usize> {
        let start = at.checked_sub(self.header_len())?;
        let out = bytes.get_mut(start..at)?;
        let (addresses, rest) = out.split_first_chunk_mut::<{ ethernet::TYPE }>()?;
        addresses[..6].copy_from_slice(&self.dst);
        addresses[6..].copy_from_slice(&self.src);
        let (tag, last) = rest.split_last_chunk_mut::<2>()?;
        last.copy_from_slice(&dl_type.to_be_bytes());
        if let (Some(tci), Some(tag)) = (self.vlan, tag.first_chunk_mut::<4>()) {
            *tag = (u32::from(ethernet::TPID) << 16 | u32::from(tci)).to_be_bytes();
        }
        Some(start)
    }
}

/// The headers outside GTP-U.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    pub link: Link,
    pub ends: Ends,
    /// TTL or hop limit.
    pub ttl: u8,
}

impl Outer {
    /// Most bytes of these headers.
    pub const LEN_MAX: usize =
        ethernet::HEADER_LEN + ethernet::TAG_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN;

    /// Returns the length of these headers.
    pub const fn header_len(&self) -> usize {
        self.link.header_len() + self.ends.header_len() + udp::HEADER_LEN
    }

    /// Writes the headers in front of `message`, a range of `bytes`, and returns the start of the
    /// frame. `ports` are source and destination; `dscp` has 6 bits; `label` is the flow label of
    /// IPv6, 20 bits. A response goes from [`PORT`] to the port that the request came from.
    ///
    /// # Errors
    /// [`Refused::TooLong`], without a change: the headroom is too small, the range is outside, or
    /// the packet would exceed 65,535 bytes.
    #[inline]
    pub fn write(
        &self,
        bytes: &mut [u8],
        message: Range<usize>,
        ports: [u16; 2],
        dscp: u8,
        label: u32,
    ) -> Result<usize, Refused> {
        self.try_write(bytes, message, ports, dscp, label).ok_or(Refused::TooLong)
    }

    #[inline]
    fn try_write(
        &self,
        bytes: &mut [u8],
        message: Range<usize>,
        [src_port, dst_port]: [u16; 2],
        dscp: u8,
        label: u32,
    ) -> Option<usize> {
        // Every check is here: what follows cannot fail.
        let l3 = self.start(bytes, &message)? + self.link.header_len();
        let l4 = l3 + self.ends.header_len();
        let udp_len = message.end - l4;

        let header: &mut [u8; udp::HEADER_LEN] = bytes.get_mut(l4..)?.first_chunk_mut()?;
        header[..2].copy_from_slice(&src_port.to_be_bytes());
        header[2..4].copy_from_slice(&dst_port.to_be_bytes());
        header[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        header[udp::CHECKSUM..].copy_from_slice(&[0, 0]);
        if let Ends::V6 { .. } = self.ends {
            let whole = bytes.get(l4..message.end)?;
            let sum = self.ends.pseudo_sum(number::UDP, udp_len) + checksum::sum(whole);
            let sum = match checksum::finish(sum) {
                0 => 0xffff,
                sum => sum,
            };
            let at = l4 + udp::CHECKSUM;
            bytes.get_mut(at..at + 2)?.copy_from_slice(&sum.to_be_bytes());
        }
        let head = Head { proto: number::UDP, ttl: self.ttl, tos: dscp << 2, label };
        write_header(bytes.get_mut(l3..l4)?, &self.ends, &head, udp_len)?;
        self.link.write(bytes, l3, self.ends.ethernet_type())
    }

    /// Returns where the frame would start; `None` if it has no room or is too long.
    #[inline]
    fn start(&self, bytes: &[u8], message: &Range<usize>) -> Option<usize> {
        bytes.get(message.clone())?;
        let start = message.start.checked_sub(self.header_len())?;
        u16::try_from(message.end - start - self.link.header_len()).ok()?;
        Some(start)
    }
}

/// All headers of a tunnel, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encap {
    pub outer: Outer,
    pub teid: u32,
    pub session: Option<Container>,
}

impl Encap {
    /// Most bytes of all headers.
    pub const LEN_MAX: usize = Outer::LEN_MAX + LONG_HEADER_LEN + Container::HEADER_LEN_MAX;

    /// Writes the headers in front of `packet`, a range of `bytes`, and returns the start of the
    /// frame. `flow` is equal for all packets of a flow and mixed
    /// ([`flow_hash`](crate::ip::Packet::flow_hash)); `dscp` has 6 bits.
    ///
    /// # Errors
    /// [`Refused::TooLong`], without a change: as [`Outer::write`].
    #[inline]
    pub fn write(
        &self,
        bytes: &mut [u8],
        packet: Range<usize>,
        flow: u64,
        dscp: u8,
    ) -> Result<usize, Refused> {
        self.plain4(bytes, &packet, flow, dscp)
            .or_else(|| self.general(bytes, packet, flow, dscp))
            .ok_or(Refused::TooLong)
    }

    /// Writes the headers of nearly every packet over IPv4 at once; returns `None`, without a
    /// change, for any other. The tests hold it equal to the general path.
    #[inline]
    fn plain4(
        &self,
        bytes: &mut [u8],
        packet: &Range<usize>,
        flow: u64,
        dscp: u8,
    ) -> Option<usize> {
        let len = bytes.get(packet.clone())?.len();
        self.write_plain(bytes.get_mut(..packet.start)?, len, flow, dscp)
    }

    /// Writes the headers of nearly every packet over IPv4 at the end of `room`: those in front of
    /// a packet of `len` bytes that lies elsewhere. Returns their start; `None`, without a change,
    /// for any other than IPv4 without a tag and with a plain container, or as [`Encap::write`].
    #[inline(always)]
    pub fn write_plain(&self, room: &mut [u8], len: usize, flow: u64, dscp: u8) -> Option<usize> {
        const L3: usize = ethernet::HEADER_LEN;
        const L4: usize = L3 + ipv4::HEADER_LEN;
        const GTPU: usize = L4 + udp::HEADER_LEN;
        const END: usize = GTPU + HEADER_LEN;
        let Outer { link: Link { dst, src, vlan: None }, ends, ttl } = self.outer else {
            return None;
        };
        let Ends::V4 { src: from, dst: to } = ends else { return None };
        let optional = match self.session {
            Some(session) => {
                let [len, first, second, next] = session.plain()?;
                Some([0, 0, 0, kind::PDU_SESSION, len, first, second, next])
            }
            None => None,
        };
        let more = if optional.is_some() { 8 } else { 0 };
        let start = room.len().checked_sub(END + more)?;
        let (out, rest) = room.get_mut(start..)?.split_first_chunk_mut::<END>()?;
        let total = u16::try_from(END - L3 + more + len).ok()?;
        let [from, to] = [from.octets(), to.octets()];
        let be = u16::to_be_bytes;

        out[..6].copy_from_slice(&dst);
        out[6..12].copy_from_slice(&src);
        out[12..16].copy_from_slice(&[8, 0, 0x45, dscp << 2]);
        let [high, low] = be(total);
        out[16..24].copy_from_slice(&[high, low, 0, 0, 0x40, 0, ttl, number::UDP]);
        out[24..26].copy_from_slice(&[0, 0]);
        out[26..30].copy_from_slice(&from);
        out[30..L4].copy_from_slice(&to);
        let sum = checksum::of_header(&array(out, L3));
        out[24..26].copy_from_slice(&sum);
        out[L4..36].copy_from_slice(&be(PORT_MIN | flow as u16));
        out[36..38].copy_from_slice(&be(PORT));
        out[38..40].copy_from_slice(&be(total - ipv4::HEADER_LEN as u16));
        out[40..GTPU].copy_from_slice(&[0, 0]);
        let flags = if more == 0 { VERSION } else { VERSION | E };
        let [high, low] = be((more + len) as u16);
        out[GTPU..GTPU + 4].copy_from_slice(&[flags, message_type::G_PDU, high, low]);
        out[GTPU + 4..].copy_from_slice(&self.teid.to_be_bytes());
        if let (Some(optional), Some(out)) = (optional, rest.first_chunk_mut::<8>()) {
            *out = optional;
        }
        Some(start)
    }

    /// Writes any headers.
    #[inline(never)]
    fn general(
        &self,
        bytes: &mut [u8],
        packet: Range<usize>,
        flow: u64,
        dscp: u8,
    ) -> Option<usize> {
        let mut room = [0; Container::HEADER_LEN_MAX];
        let extensions = match self.session {
            Some(session) => session.write(&mut room),
            None => Extensions::NONE,
        };
        let message = Message { extensions, ..Message::new(self.teid, None, Body::GPdu(&[])) };
        let packet_len = bytes.get(packet.clone())?.len();
        let at = packet.start.checked_sub(message.header_len())?;
        self.outer.start(bytes, &(at..packet.end))?;
        message.emit_header(bytes.get_mut(at..packet.start)?, packet_len)?;
        let (ports, label) = ([PORT_MIN | flow as u16, PORT], (flow >> 32) as u32);
        self.outer.try_write(bytes, at..packet.end, ports, dscp, label)
    }
}

#[cfg(test)]
mod tests;
