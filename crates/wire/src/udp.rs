//! The UDP datagram to a port in a frame.
//!
//! Untagged IPv4 without options, and IPv6 without extension headers, take a short path each. It
//! returns `None` for anything unusual, and the general path decides; the tests hold them equal.

use crate::checksum;
use crate::extract::{Network, Transport, extract};
use crate::ip::Ends;
use crate::key::FlowKey;
use crate::proto::{PADDING_MAX, array, be16, chunk, ethernet, ipv4, ipv6, number, transport::udp};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Start of the IP header in an untagged frame.
const L3: usize = ethernet::HEADER_LEN;

overbank_reasons::reasons! {
    /// Why a frame has no datagram to a port.
    pub enum Refused {
        NotIp = "not_ip", "frame without an IPv4 or IPv6 packet";
        BrokenIp = "broken_ip", "IP header with a wrong version, length or checksum";
        Routed = "routed", "IPv6 routing header with segments left";
        Fragment = "fragment", "fragment of a packet";
        NotUdp = "not_udp", "packet without a UDP header";
        OtherPort = "other_port", "UDP datagram to another port";
        UdpLength = "udp_length", "UDP length that contradicts the packet";
    }
}

/// A UDP datagram, with its place in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Start of the IP header in the frame: 14, and 4 for each VLAN tag.
    pub l3: usize,
    pub ends: Ends,
    pub src_port: u16,
    /// Type of service or traffic class of the packet.
    pub tos: u8,
    /// Header and payload, by the length in the header.
    udp: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a frame with at most two VLAN tags, whose datagram is to `port`. The IPv4 header
    /// checksum must be right; the UDP checksum is not read, see [`Self::checksum_is_right`].
    #[inline(always)]
    pub fn of(frame: &'a [u8], port: u16) -> Result<Datagram<'a>, Refused> {
        match Datagram::plain(frame, port) {
            Some(datagram) => Ok(datagram),
            None => Datagram::general(frame, port),
        }
    }

    /// Reads the frames of nearly every peer.
    #[inline(always)]
    fn plain(frame: &'a [u8], port: u16) -> Option<Datagram<'a>> {
        let start: &[u8; L3 + 2] = frame.first_chunk()?;
        match be16(start, ethernet::TYPE) {
            ethernet::TYPE_IP4 => Datagram::plain4(frame, port),
            ethernet::TYPE_IP6 => Datagram::plain6(frame, port),
            _ => None,
        }
    }

    #[inline(always)]
    fn plain4(frame: &'a [u8], port: u16) -> Option<Datagram<'a>> {
        const L4: usize = L3 + ipv4::HEADER_LEN;
        let header = chunk::<{ ipv4::HEADER_LEN }>(frame, L3)?;
        let usual = header[0] == 0x45
            && be16(header, 6) & ipv4::FRAGMENT == 0
            && header[9] == number::UDP
            && checksum::is_right(header);
        if !usual {
            return None;
        }
        let ends = Ends::V4 {
            src: Ipv4Addr::from(array::<4, _>(header, ipv4::SRC)),
            dst: Ipv4Addr::from(array::<4, _>(header, ipv4::DST)),
        };
        let end = L3 + usize::from(be16(header, 2));
        Datagram::plain_udp(frame, port, L4..end, (ends, header[1]))
    }

    #[inline(always)]
    fn plain6(frame: &'a [u8], port: u16) -> Option<Datagram<'a>> {
        const L4: usize = L3 + ipv6::HEADER_LEN;
        let header = chunk::<{ ipv6::HEADER_LEN }>(frame, L3)?;
        let first = be16(header, 0);
        if first >> 12 != 6 || header[6] != number::UDP {
            return None;
        }
        let ends = Ends::V6 {
            src: Ipv6Addr::from(array::<16, _>(header, ipv6::SRC)),
            dst: Ipv6Addr::from(array::<16, _>(header, ipv6::DST)),
        };
        let end = L4 + usize::from(be16(header, 4));
        Datagram::plain_udp(frame, port, L4..end, (ends, (first >> 4) as u8))
    }

    /// Reads the UDP header of a packet at this range of the frame.
    #[inline(always)]
    fn plain_udp(
        frame: &'a [u8],
        port: u16,
        Range { start: l4, end }: Range<usize>,
        (ends, tos): (Ends, u8),
    ) -> Option<Datagram<'a>> {
        let header = chunk::<{ udp::HEADER_LEN }>(frame, l4)?;
        let udp_end = l4 + usize::from(be16(header, 4));
        // A frame shorter than `end` wraps to a padding that is far too long.
        let usual = be16(header, 2) == port
            && udp_end >= l4 + udp::HEADER_LEN
            && udp_end <= end
            && frame.len().wrapping_sub(end) <= PADDING_MAX;
        if !usual {
            return None;
        }
        Some(Datagram {
            l3: L3,
            ends,
            src_port: be16(header, 0),
            tos,
            udp: frame.get(l4..udp_end)?,
        })
    }

    /// Reads any frame.
    #[cold]
    pub(crate) fn general(frame: &'a [u8], port: u16) -> Result<Datagram<'a>, Refused> {
        let mut key = FlowKey::default();
        let offsets = extract(frame, 0, &mut key).map_err(|_| Refused::NotIp)?;
        let (l3, l4) = (usize::from(offsets.l3), offsets.l4 as usize);
        let ends = match offsets.network {
            Network::Ip4 => {
                let header = frame.get(l3..l4).ok_or(Refused::BrokenIp)?;
                if checksum::finish(checksum::sum(header)) != 0 {
                    return Err(Refused::BrokenIp);
                }
                Ends::V4 { src: Ipv4Addr::from(key.nw_src), dst: Ipv4Addr::from(key.nw_dst) }
            }
            Network::Ip6 => {
                Ends::V6 { src: Ipv6Addr::from(key.ipv6_src), dst: Ipv6Addr::from(key.ipv6_dst) }
            }
            Network::BrokenIp => return Err(Refused::BrokenIp),
            Network::None | Network::Arp => return Err(Refused::NotIp),
        };
        if offsets.fragment {
            return Err(Refused::Fragment);
        }
        if offsets.routed {
            return Err(Refused::Routed);
        }
        if offsets.transport != Transport::Udp {
            return Err(Refused::NotUdp);
        }
        if key.tp_dst != port {
            return Err(Refused::OtherPort);
        }
        let rest = frame.get(l4..offsets.end as usize).ok_or(Refused::NotUdp)?;
        let header = chunk::<{ udp::HEADER_LEN }>(rest, 0).ok_or(Refused::NotUdp)?;
        let len = usize::from(be16(header, 4));
        let udp = rest.get(..len).filter(|_| len >= udp::HEADER_LEN).ok_or(Refused::UdpLength)?;
        Ok(Datagram { l3, ends, src_port: key.tp_src, tos: key.nw_tos, udp })
    }

    /// Returns the UDP payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.udp.get(udp::HEADER_LEN..).unwrap_or_default()
    }

    /// Returns whether the UDP checksum is right, or 0 for none: over IPv6 as well, which tunnels
    /// may omit (RFC 6935). Reads the whole datagram.
    pub fn checksum_is_right(&self) -> bool {
        let stored = chunk::<2>(self.udp, udp::CHECKSUM).copied().unwrap_or_default();
        let sum = self.ends.pseudo_sum(number::UDP, self.udp.len()) + checksum::sum(self.udp);
        stored == [0, 0] || checksum::finish(sum) == 0
    }
}
