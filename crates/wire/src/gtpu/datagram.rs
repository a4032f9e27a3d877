//! The UDP datagram to port 2152 in a frame.

use super::{PORT, Refused};
use crate::checksum;
use crate::extract::{Network, Transport, extract};
use crate::ip::Ends;
use crate::key::FlowKey;
use crate::proto::{be16, chunk, ipv4, number, transport::udp};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A UDP datagram to port 2152, with its place in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Start of the outer IP header in the frame: 14, and 4 for each VLAN tag.
    pub l3: usize,
    pub ends: Ends,
    pub src_port: u16,
    /// Type of service or traffic class of the outer header.
    pub tos: u8,
    /// Header and payload, by the length in the header.
    udp: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a frame with at most two VLAN tags. The IPv4 header checksum must be right; the UDP
    /// checksum is not read, see [`Self::checksum_is_right`].
    #[inline]
    pub fn of(frame: &'a [u8]) -> Result<Datagram<'a>, Refused> {
        let mut key = FlowKey::default();
        let offsets = extract(frame, 0, &mut key).map_err(|_| Refused::NotIp)?;
        let (l3, l4) = (usize::from(offsets.l3), offsets.l4 as usize);
        let ends = match offsets.network {
            Network::Ip4 => {
                let header = frame.get(l3..l4).ok_or(Refused::BrokenIp)?;
                let sum = match <&[u8; ipv4::HEADER_LEN]>::try_from(header) {
                    // Of known length: no loop.
                    Ok(plain) => checksum::sum(plain),
                    Err(_) => checksum::sum(header),
                };
                if checksum::finish(sum) != 0 {
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
        if key.tp_dst != PORT {
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
