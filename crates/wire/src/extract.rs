//! Reads frames into flow keys.
//!
//! [`extract`] reads the headers of one Ethernet frame into a [`FlowKey`] with the semantics of
//! Open vSwitch (`miniflow_extract` and ovs-fields(7)). [`Offsets`] has the places of the headers,
//! for [`crate::edit`].
//!
//! - It takes any bytes of any length and never panics. Only a frame without a whole Ethernet
//!   header is refused; every other gets the key of its valid part, the rest zero.
//! - The lengths of the IP headers count, not that of the frame: Ethernet padding is no payload.
//! - Differences from Open vSwitch: an IP version that contradicts the Ethernet type is a broken
//!   header; ICMP is read over IPv4 only and ICMPv6 over IPv6 only; IGMP has no type and code.
//!   Otherwise `ovs-ofctl parse-pcap` (3.1.0) agreed on the tests' valid and mutated frames.
//! - Cost: one cache line of the frame for IPv4 and TCP or UDP, and the two lines of the key.
//!   Untagged IPv4 without options that carries TCP or UDP takes a separate short path, which the
//!   tests hold equal to the general one.

use crate::key::FlowKey;
use crate::proto::{arp, be16, be32, chunk, ethernet, icmp, ipv4, ipv6, number, transport};
use crate::reason::DropReason;

/// The network header of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Network {
    /// Not IP and not ARP, or an ARP packet that is not for IPv4 over Ethernet.
    #[default]
    None,
    /// ARP or RARP.
    Arp,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
    /// The Ethernet type is IP but the header is invalid: it must not be rewritten.
    BrokenIp,
}

/// The transport header of a frame: complete, and not in a later fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// Unknown, cut short, or in another fragment.
    #[default]
    None,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP over IPv4.
    Icmp,
    /// ICMPv6 over IPv6.
    Icmp6,
}

/// Offsets of a frame's headers. 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Start of the data after Ethernet header, tags and LLC; 0 = none.
    pub l3: u16,
    /// The network header at `l3`.
    pub network: Network,
    /// The transport header at `l4`.
    pub transport: Transport,
    /// Offset after a valid IP header and its extension headers; 0 = none. More than 16 bits:
    /// 65,535 bytes of IPv6 extension headers may precede it.
    pub l4: u32,
    /// End of the IP packet, before any padding; 0 without one.
    pub end: u32,
    /// VLAN tags known to the key: 0 to 2.
    pub tags: u8,
    /// The packet is a fragment (first or later).
    pub fragment: bool,
    /// An IPv6 routing header has segments left.
    pub routed: bool,
}

/// Reads `frame`, received on `in_port`, into `key`, every bit of which is written. Returns the
/// offsets of its headers.
#[inline]
pub fn extract(frame: &[u8], in_port: u32, key: &mut FlowKey) -> Result<Offsets, DropReason> {
    extract_within(frame, in_port, ethernet::TAGS_MAX, key)
}

/// Extracts with at most `vlan_limit` tags (0 to 2). The type after these is the packet's
/// `dl_type`, even if it is the TPID of a further tag.
#[inline]
pub fn extract_within(
    frame: &[u8],
    in_port: u32,
    vlan_limit: u8,
    key: &mut FlowKey,
) -> Result<Offsets, DropReason> {
    match plain_ip4(frame, in_port, key) {
        Some(offsets) => Ok(offsets),
        None => extract_general(frame, in_port, vlan_limit, key),
    }
}

/// Returns the offsets alone.
#[inline]
pub(crate) fn offsets(frame: &[u8]) -> Result<Offsets, DropReason> {
    // The short path's key is never read, and so never written.
    match plain_ip4(frame, 0, &mut FlowKey::default()) {
        Some(offsets) => Ok(offsets),
        None => extract_general(frame, 0, ethernet::TAGS_MAX, &mut FlowKey::default()),
    }
}

/// Reads untagged, unfragmented IPv4 without options with TCP or UDP; returns `None` for all else.
#[inline(always)]
fn plain_ip4(frame: &[u8], in_port: u32, key: &mut FlowKey) -> Option<Offsets> {
    const L3: usize = ethernet::HEADER_LEN;
    const L4: usize = L3 + ipv4::HEADER_LEN;
    const UDP_END: usize = L4 + transport::udp::HEADER_LEN;
    let header: &[u8; UDP_END] = frame.first_chunk()?;
    let end = L3 + usize::from(be16(header, L3 + 2));
    let padding = frame.len().wrapping_sub(end);
    // A frame shorter than `end` wraps to a padding that is far too long.
    if be32(header, ethernet::TYPE) & 0xffff_ff00 != 0x0800_4500
        || be16(header, L3 + 6) & ipv4::FRAGMENT != 0
        || padding > crate::proto::PADDING_MAX
    {
        return None;
    }
    let nw_proto = header[L3 + 9];
    let (transport, tcp_flags) = if nw_proto == number::UDP && end >= UDP_END {
        (Transport::Udp, 0)
    } else if nw_proto == number::TCP && end >= L4 {
        let tcp = chunk(frame, L4)?;
        if !transport::tcp_len_fits(tcp, end - L4) {
            return None;
        }
        (Transport::Tcp, be16(tcp, transport::tcp::FLAGS) & transport::TCP_FLAGS)
    } else {
        return None;
    };
    *key = FlowKey {
        in_port,
        dl_type: ethernet::TYPE_IP4,
        nw_proto,
        dl_dst: crate::proto::array(header, 0),
        dl_src: crate::proto::array(header, 6),
        nw_src: be32(header, L3 + ipv4::SRC),
        nw_dst: be32(header, L3 + ipv4::DST),
        tp_src: be16(header, L4),
        tp_dst: be16(header, L4 + 2),
        tcp_flags,
        nw_tos: header[L3 + 1],
        nw_ttl: header[L3 + ipv4::TTL],
        ..FlowKey::default()
    };
    Some(Offsets {
        l3: L3 as u16,
        network: Network::Ip4,
        transport,
        l4: L4 as u32,
        end: end as u32,
        ..Offsets::default()
    })
}

/// Reads any frame.
#[inline(never)]
fn extract_general(
    frame: &[u8],
    in_port: u32,
    vlan_limit: u8,
    key: &mut FlowKey,
) -> Result<Offsets, DropReason> {
    *key = FlowKey { in_port, ..FlowKey::default() };
    let (l3, tags) =
        ethernet::parse(frame, vlan_limit, key).ok_or(DropReason::TruncatedEthernet)?;
    // At most two tags and a SNAP header: fits 16 bits.
    let mut offsets = Offsets { l3: l3 as u16, tags, ..Offsets::default() };
    let bytes = frame.get(l3..).unwrap_or_default();
    let (header_len, total_len);
    match key.dl_type {
        ethernet::TYPE_IP4 => {
            let Some(lens) = ipv4::parse(bytes, key) else {
                offsets.network = Network::BrokenIp;
                return Ok(offsets);
            };
            offsets.network = Network::Ip4;
            (header_len, total_len) = lens;
        }
        ethernet::TYPE_IP6 => {
            let Some(parsed) = ipv6::parse(bytes, key) else {
                offsets.network = Network::BrokenIp;
                return Ok(offsets);
            };
            offsets.network = Network::Ip6;
            offsets.routed = parsed.routed;
            (header_len, total_len) = (parsed.header_len, parsed.total_len);
        }
        ethernet::TYPE_ARP | ethernet::TYPE_RARP => {
            if arp::parse(bytes, key) {
                offsets.network = Network::Arp;
            }
            return Ok(offsets);
        }
        _ => return Ok(offsets),
    }
    // An IP packet is at most 65,575 bytes long: these fit 32 bits.
    offsets.l4 = (l3 + header_len) as u32;
    offsets.end = (l3 + total_len) as u32;
    offsets.fragment = key.nw_frag != 0;
    if key.nw_frag & crate::key::FRAG_LATER == 0 {
        let payload = bytes.get(header_len..total_len).unwrap_or_default();
        offsets.transport = transport(payload, offsets.network, key);
    }
    Ok(offsets)
}

/// Reads the transport header at the start of `payload`.
#[inline]
fn transport(payload: &[u8], network: Network, key: &mut FlowKey) -> Transport {
    use transport::{parse_ports, parse_tcp, sctp, udp};
    let (complete, kind) = match (key.nw_proto, network) {
        (number::TCP, _) => (parse_tcp(payload, key), Transport::Tcp),
        (number::UDP, _) => (parse_ports::<{ udp::HEADER_LEN }>(payload, key), Transport::Udp),
        (number::SCTP, _) => (parse_ports::<{ sctp::HEADER_LEN }>(payload, key), Transport::Sctp),
        (number::ICMP, Network::Ip4) => (icmp::parse(payload, key), Transport::Icmp),
        (number::ICMP6, Network::Ip6) => (icmp::parse6(payload, key), Transport::Icmp6),
        _ => return Transport::None,
    };
    if complete { kind } else { Transport::None }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod properties;
