//! Messages in their frames: found, marked, answered, written.
//!
//! ```text
//!  0                                 l3              l4                           l4 + 8
//!  │ Ethernet, at most one VLAN tag │ IPv4 or IPv6 │ UDP, to the protocol's port │ message │
//! ```
//!
//! - A frame without a datagram to the port is not of the protocol, whatever its bytes.
//! - One that has it is read as a whole, or refused by name. A receiver would also take it in
//!   fragments, or behind options, extension headers and a second tag: there it is refused, or it
//!   would pass a device unseen.
//! - Checksums that were right stay right, and wrong ones wrong: that of an answer is the one of
//!   the request, changed by what differs.
//!
//! Cost of [`Datagram::of`]: the lines of the headers. Panics: none, on any bytes; no allocation.

use super::{HEADER_LEN, Message, Op, Stamp, at, mark};
use crate::checksum;
use crate::extract::{Transport, extract};
use crate::gtpu::Link;
use crate::ip::{Ends, Head, write_header};
use crate::key::FlowKey;
use crate::proto::{be16, chunk, ethernet, ipv4, ipv6, number, transport::udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest start of a frame up to the end of the message's header.
pub const HEAD_MAX: usize =
    ethernet::HEADER_LEN + ethernet::TAG_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN + HEADER_LEN;

/// TTL or hop limit of what is written.
const TTL: u8 = 64;
/// Bits of the traffic class that an answer takes over: not those of congestion.
const DSCP: u8 = 0xfc;

overbank_reasons::reasons! {
    /// Why a datagram to the protocol's port is not read.
    pub enum Broken {
        Ip = "broken_ip", "message in a packet whose IP header has a wrong length or checksum";
        UdpLength = "udp_length", "message whose UDP length contradicts its packet";
        Unusual = "unusual_packet",
            "message in a fragment, or behind IP options, extension headers or two VLAN tags";
        Checksum = "udp_checksum", "message for the device with a wrong UDP checksum, or over IPv6 \
            without one";
    }
}

/// An end of a message's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    pub mac: [u8; 6],
    pub ip: IpAddr,
    /// UDP port.
    pub port: u16,
}

/// A datagram to the protocol's port, in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    frame: &'a [u8],
    /// Starts of the IP and the UDP header. Narrow: these are passed on by the dozen.
    l3: u8,
    l4: u8,
    /// End of the packet, without padding.
    end: u32,
}

impl<'a> Datagram<'a> {
    /// Finds the datagram to `port` in a frame; `Ok(None)`: there is none.
    #[inline(always)]
    pub fn of(frame: &'a [u8], port: u16) -> Result<Option<Datagram<'a>>, Broken> {
        let Some(start) = frame.first_chunk::<{ ethernet::HEADER_LEN }>() else { return Ok(None) };
        let (mut l3, mut dl_type) = (ethernet::HEADER_LEN, be16(start, ethernet::TYPE));
        if ethernet::is_tpid(dl_type) {
            let Some(tag) = chunk::<4>(frame, l3) else { return Ok(None) };
            (l3, dl_type) = (l3 + ethernet::TAG_LEN, be16(tag, 2));
        }
        match dl_type {
            ethernet::TYPE_IP4 => Datagram::in_ip4(frame, l3, port),
            ethernet::TYPE_IP6 => Datagram::in_ip6(frame, l3, port),
            // Another tag, or a length: LLC and SNAP.
            dl_type if ethernet::is_tpid(dl_type) || dl_type < 0x0600 => unusual(frame, port),
            _ => Ok(None),
        }
    }

    #[inline(always)]
    fn in_ip4(frame: &'a [u8], l3: usize, port: u16) -> Result<Option<Datagram<'a>>, Broken> {
        let Some(header) = chunk::<{ ipv4::HEADER_LEN }>(frame, l3) else { return Ok(None) };
        if header[9] != number::UDP {
            return Ok(None);
        }
        if header[0] != 0x45 || be16(header, 6) & ipv4::FRAGMENT != 0 {
            return unusual(frame, port);
        }
        let l4 = l3 + ipv4::HEADER_LEN;
        let Some(of_udp) = to_port(frame, l4, port) else { return Ok(None) };
        if !checksum::is_right(header) {
            return Err(Broken::Ip);
        }
        let end = l3 + usize::from(be16(header, 2));
        Datagram::in_udp(frame, (l3, l4, end), be16(of_udp, 4)).map(Some)
    }

    #[inline(always)]
    fn in_ip6(frame: &'a [u8], l3: usize, port: u16) -> Result<Option<Datagram<'a>>, Broken> {
        let Some(header) = chunk::<{ ipv6::HEADER_LEN }>(frame, l3) else { return Ok(None) };
        match header[6] {
            number::UDP if header[0] >> 4 == 6 => {}
            number::TCP | number::ICMP6 => return Ok(None),
            _ => return unusual(frame, port),
        }
        let l4 = l3 + ipv6::HEADER_LEN;
        let Some(of_udp) = to_port(frame, l4, port) else { return Ok(None) };
        if be16(of_udp, udp::CHECKSUM) == 0 {
            return Err(Broken::Checksum);
        }
        let end = l4 + usize::from(be16(header, 4));
        Datagram::in_udp(frame, (l3, l4, end), be16(of_udp, 4)).map(Some)
    }

    #[inline(always)]
    fn in_udp(
        frame: &'a [u8],
        (l3, l4, end): (usize, usize, usize),
        udp_len: u16,
    ) -> Result<Datagram<'a>, Broken> {
        if end < l4 + udp::HEADER_LEN || end > frame.len() {
            return Err(Broken::Ip);
        }
        if l4 + usize::from(udp_len) != end {
            return Err(Broken::UdpLength);
        }
        // Two headers and a tag, and a packet's 65,535 bytes behind them.
        Ok(Datagram { frame, l3: l3 as u8, l4: l4 as u8, end: end as u32 })
    }

    /// Returns its places in the frame: IP header, UDP header, end.
    #[inline(always)]
    fn places(&self) -> (usize, usize, usize) {
        (self.l3.into(), self.l4.into(), self.end as usize)
    }

    /// Returns the UDP payload: see [`Message::parse`].
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        let (_, l4, end) = self.places();
        self.frame.get(l4 + udp::HEADER_LEN..end).unwrap_or_default()
    }

    /// Returns whether the UDP checksum is right, or absent. Reads the whole datagram.
    pub fn checksum_is_right(&self) -> bool {
        let (_, l4, end) = self.places();
        let udp = self.frame.get(l4..end).unwrap_or_default();
        let stored = chunk::<2>(udp, udp::CHECKSUM).copied().unwrap_or_default();
        let sum = self.ends().pseudo_sum(number::UDP, udp.len()) + checksum::sum(udp);
        stored == [0, 0] || checksum::finish(sum) == 0
    }

    /// Returns where it comes from.
    pub fn src(&self) -> End {
        End { mac: self.mac(6), ip: self.ends().src(), port: self.port(0) }
    }

    /// Returns where it goes.
    pub fn dst(&self) -> End {
        End { mac: self.mac(0), ip: self.ends().dst(), port: self.port(2) }
    }

    fn mac(&self, at: usize) -> [u8; 6] {
        chunk(self.frame, at).copied().unwrap_or_default()
    }

    fn port(&self, at: usize) -> u16 {
        chunk(self.frame, usize::from(self.l4) + at).map_or(0, |bytes| u16::from_be_bytes(*bytes))
    }

    #[inline(always)]
    fn is_ip4(&self) -> bool {
        usize::from(self.l4 - self.l3) == ipv4::HEADER_LEN
    }

    #[inline(always)]
    fn ends(&self) -> Ends {
        let (l3, ..) = self.places();
        if self.is_ip4() {
            let at = |at| chunk::<4>(self.frame, l3 + at).copied().unwrap_or_default();
            let (src, dst) = (at(ipv4::SRC), at(ipv4::DST));
            return Ends::V4 { src: Ipv4Addr::from(src), dst: Ipv4Addr::from(dst) };
        }
        let at = |at| chunk::<16>(self.frame, l3 + at).copied().unwrap_or_default();
        let (src, dst) = (at(ipv6::SRC), at(ipv6::DST));
        Ends::V6 { src: Ipv6Addr::from(src), dst: Ipv6Addr::from(dst) }
    }

    /// Writes the start of the frame, up to the end of the message's header, with another operation
    /// and stamp ([`mark`]). Returns its length; the rest of the frame stays as it is.
    #[inline]
    pub fn mark(&self, op: Op, stamp: Stamp, head: &mut [u8; HEAD_MAX]) -> Option<usize> {
        let (_, l4, _) = self.places();
        let len = l4 + udp::HEADER_LEN + HEADER_LEN;
        let head = head.get_mut(..len)?;
        head.copy_from_slice(self.frame.get(..len)?);
        mark(&mut head[l4..], op, stamp)?;
        Some(len)
    }

    /// Writes the start of the frame that answers this one, back to where it came from: up to the
    /// end of the message's header. The value of `message` follows it. `message` has the client,
    /// request and key of this one. Returns the length of the start; `None` if the value is longer
    /// than a packet.
    #[inline]
    pub fn answer(&self, message: &Message<'_>, head: &mut [u8; HEAD_MAX]) -> Option<usize> {
        let (l3, l4, end) = self.places();
        let start = l4 + udp::HEADER_LEN;
        let old = self.frame.get(..end)?;
        let link = chunk::<{ ethernet::HEADER_LEN + ethernet::TAG_LEN }>(old, 0)?;
        head[..link.len()].copy_from_slice(link);
        head[..6].copy_from_slice(&link[6..12]);
        head[6..12].copy_from_slice(&link[..6]);
        let tos = if self.is_ip4() { old[l3 + 1] } else { old[l3] << 4 | old[l3 + 1] >> 4 };
        let header = Head { proto: number::UDP, ttl: TTL, tos: tos & DSCP, label: 0 };
        let len = udp::HEADER_LEN + message.emit_len();
        write_header(head.get_mut(l3..l4)?, &self.ends().swapped(), &header, len)?;
        let udp_len = u16::try_from(len).ok()?;
        let (udp, of_message) = head[l4..].split_first_chunk_mut::<{ udp::HEADER_LEN }>()?;
        let of_message: &mut [u8; HEADER_LEN] = of_message.first_chunk_mut()?;
        message.emit_header(of_message)?;
        let old_udp = chunk::<{ udp::HEADER_LEN }>(old, l4)?;
        let old_message = chunk::<HEADER_LEN>(old, start)?;
        udp[..2].copy_from_slice(&old_udp[2..4]);
        udp[2..4].copy_from_slice(&old_udp[..2]);
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        let sum = match be16(old_udp, udp::CHECKSUM) {
            0 => 0,
            stored => {
                // The length counts twice, in the pseudo-header, too. Addresses and ports add up to
                // the same.
                let of = |header, value, len| header + checksum::sum(value) + 2 * len;
                let was = checksum::sum(&old_message[..at::CLIENT])
                    + checksum::sum(&old_message[at::STAMP..]);
                let gone = of(was, &old[start + HEADER_LEN..], (end - l4) as u64);
                let come = of(message.varying_sum(), message.value, udp_len.into());
                let left = u64::from(!stored) + u64::from(checksum::finish(gone));
                not_zero(checksum::finish(left + come))
            }
        };
        udp[udp::CHECKSUM..].copy_from_slice(&sum.to_be_bytes());
        Some(start + HEADER_LEN)
    }
}

/// Returns the UDP header at `l4` if it is one to this port.
#[inline(always)]
fn to_port(frame: &[u8], l4: usize, port: u16) -> Option<&[u8; udp::HEADER_LEN]> {
    chunk(frame, l4).filter(|header| be16(header, 2) == port)
}

/// Refuses a frame that has a datagram to the port, where no device looks for one.
#[cold]
fn unusual(frame: &[u8], port: u16) -> Result<Option<Datagram<'_>>, Broken> {
    let mut key = FlowKey::default();
    let Ok(offsets) = extract(frame, 0, &mut key) else { return Ok(None) };
    if offsets.transport == Transport::Udp && key.tp_dst == port {
        return Err(Broken::Unusual);
    }
    Ok(None)
}

/// A computed checksum of 0 is written as 0xffff: 0 is none.
const fn not_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

/// Writes a frame with a message; `vlan`: that of its tag, 0 for none. Returns its length, or
/// `None` if it does not fit into `room` or the ends are of different families.
pub fn write(
    message: &Message<'_>,
    from: &End,
    to: &End,
    vlan: u16,
    room: &mut [u8],
) -> Option<usize> {
    let ends = match (from.ip, to.ip) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Ends::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Ends::V6 { src, dst },
        _ => return None,
    };
    let link = Link { dst: to.mac, src: from.mac, vlan: (vlan != 0).then_some(vlan) };
    let l3 = link.header_len();
    let l4 = l3 + ends.header_len();
    let start = l4 + udp::HEADER_LEN;
    let len = start + message.emit_len();
    let room = room.get_mut(..len)?;
    message.emit(room.get_mut(start..)?)?;
    link.write(room, l3, ends.ethernet_type())?;
    let head = Head { proto: number::UDP, ttl: TTL, tos: 0, label: 0 };
    write_header(&mut room[l3..l4], &ends, &head, len - l4)?;
    let udp_len = u16::try_from(len - l4).ok()?;
    let udp = &mut room[l4..];
    udp[..2].copy_from_slice(&from.port.to_be_bytes());
    udp[2..4].copy_from_slice(&to.port.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[udp::CHECKSUM..udp::HEADER_LEN].fill(0);
    let sum = ends.pseudo_sum(number::UDP, udp.len()) + checksum::sum(udp);
    let sum = not_zero(checksum::finish(sum));
    udp[udp::CHECKSUM..udp::HEADER_LEN].copy_from_slice(&sum.to_be_bytes());
    Some(len)
}

#[cfg(test)]
mod tests;
