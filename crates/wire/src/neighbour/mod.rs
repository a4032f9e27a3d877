//! Questions for the MAC address of an IP address, and their answers: ARP (RFC 826) and neighbour
//! discovery (RFC 4861).
//!
//! ```text
//!   ARP request              ─▶ ARP reply
//!   neighbour solicitation   ─▶ neighbour advertisement; to all nodes if its source is none
//! ```
//!
//! For an address that this program alone has: there is no cache, and nothing is asked. A frame has
//! one VLAN tag at most. Solicitations count with hop limit 255, a right checksum and no extension
//! headers: that is how they must come.
//!
//! Cost: a frame that is no question is known as such by its Ethernet type, or by its next header.
//! Panics: none, on any bytes; no allocation.

use crate::checksum;
use crate::gtpu::Link;
use crate::ip::{Ends, Head, write_header};
use crate::proto::{arp, array, be16, chunk, ethernet, icmp, ipv6, number};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the longest answer: an advertisement with its option.
pub const ANSWER_MAX: usize =
    ethernet::HEADER_LEN + ethernet::TAG_LEN + ipv6::HEADER_LEN + icmp::ND_OPTIONS + OPTION_LEN;

/// Length of the option with a MAC address.
const OPTION_LEN: usize = 8;
/// Hop limit of neighbour discovery: no router has forwarded it.
const HOP_LIMIT: u8 = 255;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
/// Flags of an advertisement: it was asked for; it replaces what was known.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Start of an ARP packet for IPv4 over Ethernet.
const ARP: [u8; 6] = [0, 1, 0x08, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// A question; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The address that is asked for.
    pub target: IpAddr,
    /// MAC and IP address of the one that asks; unspecified if it has none yet.
    from: ([u8; 6], IpAddr),
    vlan: Option<u16>,
}

impl Question {
    /// Reads a frame; `None`: it asks for no address.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Question> {
        let start: &[u8; ethernet::HEADER_LEN] = frame.first_chunk()?;
        let (mut l3, mut dl_type, mut vlan) =
            (ethernet::HEADER_LEN, be16(start, ethernet::TYPE), None);
        if dl_type == ethernet::TPID {
            let tag: &[u8; ethernet::TAG_LEN] = chunk(frame, l3)?;
            (l3, dl_type, vlan) = (l3 + ethernet::TAG_LEN, be16(tag, 2), Some(be16(tag, 0)));
        }
        let mac = array(start, 6);
        match dl_type {
            ethernet::TYPE_ARP => {
                let packet: &[u8; arp::LEN] = chunk(frame, l3)?;
                if packet[..6] != ARP || be16(packet, arp::OP) != REQUEST {
                    return None;
                }
                let ip = |at| IpAddr::V4(Ipv4Addr::from(array::<4, _>(packet, at)));
                Some(Question { target: ip(arp::TPA), from: (mac, ip(arp::SPA)), vlan })
            }
            ethernet::TYPE_IP6 => {
                let header: &[u8; ipv6::HEADER_LEN] = chunk(frame, l3)?;
                if header[0] >> 4 != 6 || header[6] != number::ICMP6 || header[7] != HOP_LIMIT {
                    return None;
                }
                let l4 = l3 + ipv6::HEADER_LEN;
                let message = frame.get(l4..l4 + usize::from(be16(header, 4)))?;
                let fixed: &[u8; icmp::ND_OPTIONS] = chunk(message, 0)?;
                let address = |at| Ipv6Addr::from(array::<16, _>(header, at));
                let (src, dst) = (address(ipv6::SRC), address(ipv6::DST));
                let sum = Ends::V6 { src, dst }.pseudo_sum(number::ICMP6, message.len());
                if fixed[..2] != [icmp::ND_SOLICIT, 0]
                    || checksum::finish(sum + checksum::sum(message)) != 0
                {
                    return None;
                }
                let target = Ipv6Addr::from(array::<16, _>(fixed, icmp::ND_TARGET));
                Some(Question { target: target.into(), from: (mac, src.into()), vlan })
            }
            _ => None,
        }
    }

    /// Writes the answer at the start of `room`: `mac` has the address. Returns its length.
    pub fn answer(&self, mac: [u8; 6], room: &mut [u8; ANSWER_MAX]) -> Option<usize> {
        let Question { target, from: (asker, ip), vlan } = *self;
        match (target, ip) {
            (IpAddr::V4(target), IpAddr::V4(ip)) => {
                let link = Link { dst: asker, src: mac, vlan };
                let l3 = link.header_len();
                link.write(room, l3, ethernet::TYPE_ARP)?;
                let packet: &mut [u8; arp::LEN] = room[l3..].first_chunk_mut()?;
                packet[..6].copy_from_slice(&ARP);
                packet[arp::OP..arp::SHA].copy_from_slice(&REPLY.to_be_bytes());
                packet[arp::SHA..arp::SPA].copy_from_slice(&mac);
                packet[arp::SPA..arp::THA].copy_from_slice(&target.octets());
                packet[arp::THA..arp::TPA].copy_from_slice(&asker);
                packet[arp::TPA..].copy_from_slice(&ip.octets());
                Some(l3 + arp::LEN)
            }
            (IpAddr::V6(target), IpAddr::V6(ip)) => {
                let (dst, dst_mac, flags) = if ip.is_unspecified() {
                    (ALL_NODES, ALL_NODES_MAC, OVERRIDE)
                } else {
                    (ip, asker, SOLICITED | OVERRIDE)
                };
                let link = Link { dst: dst_mac, src: mac, vlan };
                let l3 = link.header_len();
                let l4 = l3 + ipv6::HEADER_LEN;
                let len = l4 + icmp::ND_OPTIONS + OPTION_LEN;
                let room = room.get_mut(..len)?;
                link.write(room, l3, ethernet::TYPE_IP6)?;
                let ends = Ends::V6 { src: target, dst };
                let head = Head { proto: number::ICMP6, ttl: HOP_LIMIT, tos: 0, label: 0 };
                write_header(&mut room[l3..l4], &ends, &head, len - l4)?;
                let message = &mut room[l4..];
                message[..icmp::ND_TARGET].copy_from_slice(&[
                    icmp::ND_ADVERT,
                    0,
                    0,
                    0,
                    flags,
                    0,
                    0,
                    0,
                ]);
                message[icmp::ND_TARGET..icmp::ND_OPTIONS].copy_from_slice(&target.octets());
                message[icmp::ND_OPTIONS..][..2].copy_from_slice(&[icmp::ND_TLL, 1]);
                message[icmp::ND_OPTIONS + 2..].copy_from_slice(&mac);
                let sum = ends.pseudo_sum(number::ICMP6, message.len()) + checksum::sum(message);
                message[icmp::CHECKSUM..][..2]
                    .copy_from_slice(&checksum::finish(sum).to_be_bytes());
                Some(len)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
