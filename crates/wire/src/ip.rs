//! IP packets without a frame, as they are inside a tunnel.
//!
//! [`Packet::parse`] checks version and lengths, and nothing else: header checksum, options and
//! extension headers are the receiver's. Bytes after the packet are cut off. An IPv6 payload length
//! of 0 is valid with no next header alone: jumbograms are refused.
//!
//! Cost: the cache line of the header. Panics: none, on any bytes.

use crate::checksum;
use crate::gtpu::Refused;
use crate::hash::{K, mix};
use crate::proto::{array, be16, chunk, ethernet, ipv4, ipv6, number};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Flags and fragment offset of IPv4: the packet must not be fragmented.
const DONT_FRAGMENT: u16 = 0x4000;
/// Next header of IPv6: none follows.
const NO_NEXT_HEADER: u8 = 59;

/// Source and destination of a packet, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    V4 { src: Ipv4Addr, dst: Ipv4Addr },
    V6 { src: Ipv6Addr, dst: Ipv6Addr },
}

impl Ends {
    pub const fn src(&self) -> IpAddr {
        match *self {
            Ends::V4 { src, .. } => IpAddr::V4(src),
            Ends::V6 { src, .. } => IpAddr::V6(src),
        }
    }

    pub const fn dst(&self) -> IpAddr {
        match *self {
            Ends::V4 { dst, .. } => IpAddr::V4(dst),
            Ends::V6 { dst, .. } => IpAddr::V6(dst),
        }
    }

    /// Returns the ends of an answer.
    pub(crate) const fn swapped(&self) -> Ends {
        match *self {
            Ends::V4 { src, dst } => Ends::V4 { src: dst, dst: src },
            Ends::V6 { src, dst } => Ends::V6 { src: dst, dst: src },
        }
    }

    /// Returns the length of the IP header that is written between them.
    pub(crate) const fn header_len(&self) -> usize {
        match self {
            Ends::V4 { .. } => ipv4::HEADER_LEN,
            Ends::V6 { .. } => ipv6::HEADER_LEN,
        }
    }

    /// Returns the Ethernet type of packets between them.
    pub(crate) const fn ethernet_type(&self) -> u16 {
        match self {
            Ends::V4 { .. } => ethernet::TYPE_IP4,
            Ends::V6 { .. } => ethernet::TYPE_IP6,
        }
    }

    /// Returns the sum of the pseudo-header of `len` bytes of a protocol (RFC 768, RFC 8200).
    pub(crate) fn pseudo_sum(&self, proto: u8, len: usize) -> u64 {
        let addresses = match self {
            Ends::V4 { src, dst } => checksum::sum(&src.octets()) + checksum::sum(&dst.octets()),
            Ends::V6 { src, dst } => checksum::sum(&src.octets()) + checksum::sum(&dst.octets()),
        };
        addresses + u64::from(proto) + len as u64
    }
}

/// Fields of a written IP header.
pub(crate) struct Head {
    pub(crate) proto: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// IPv6 flow label, 20 bits.
    pub(crate) label: u32,
}

/// Writes an IP header in front of `payload_len` bytes. `out` has [`Ends::header_len`] bytes;
/// returns `None` if it has not, or the packet is too long. Over IPv4, the packet must not be
/// fragmented, which makes its identification meaningless (RFC 6864).
#[inline]
pub(crate) fn write_header(
    out: &mut [u8],
    ends: &Ends,
    head: &Head,
    payload_len: usize,
) -> Option<()> {
    match ends {
        Ends::V4 { src, dst } => {
            let total = u16::try_from(ipv4::HEADER_LEN + payload_len).ok()?;
            // Of the words, and not of the bytes: these are written one by one, and a load of a
            // word that was written so waits until they are in the cache.
            let words = u64::from(u16::from_be_bytes([0x45, head.tos]))
                + u64::from(total)
                + u64::from(DONT_FRAGMENT)
                + u64::from(u16::from_be_bytes([head.ttl, head.proto]));
            let sum = words + u64::from(src.to_bits()) + u64::from(dst.to_bits());
            let (total, sum) = (total.to_be_bytes(), checksum::finish(sum).to_be_bytes());
            let out: &mut [u8; ipv4::HEADER_LEN] = out.try_into().ok()?;
            out[..4].copy_from_slice(&[0x45, head.tos, total[0], total[1]]);
            let [flags, offset] = DONT_FRAGMENT.to_be_bytes();
            let rest = [0, 0, flags, offset, head.ttl, head.proto, sum[0], sum[1]];
            out[4..12].copy_from_slice(&rest);
            out[ipv4::SRC..ipv4::DST].copy_from_slice(&src.octets());
            out[ipv4::DST..].copy_from_slice(&dst.octets());
        }
        Ends::V6 { src, dst } => {
            let len = u16::try_from(payload_len).ok()?.to_be_bytes();
            let out: &mut [u8; ipv6::HEADER_LEN] = out.try_into().ok()?;
            let first = 6 << 28 | u32::from(head.tos) << 20 | head.label & 0x000f_ffff;
            out[..4].copy_from_slice(&first.to_be_bytes());
            out[4..8].copy_from_slice(&[len[0], len[1], head.proto, head.ttl]);
            out[ipv6::SRC..ipv6::DST].copy_from_slice(&src.octets());
            out[ipv6::DST..].copy_from_slice(&dst.octets());
        }
    }
    Some(())
}

/// An IP packet with valid version and lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    /// Source and destination.
    pub ends: Ends,
    /// Type of service or traffic class.
    pub tos: u8,
}

impl<'a> Packet<'a> {
    /// Returns a packet that was read otherwise.
    pub(crate) const fn new(bytes: &'a [u8], ends: Ends, tos: u8) -> Packet<'a> {
        Packet { bytes, ends, tos }
    }

    /// Reads the packet at the start of `bytes`.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, Refused> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => {
                let header = chunk::<{ ipv4::HEADER_LEN }>(bytes, 0).ok_or(Refused::InnerLength)?;
                let header_len = usize::from(header[0] & 0x0f) * 4;
                let total_len = usize::from(be16(header, 2));
                if header_len < ipv4::HEADER_LEN || header_len > total_len {
                    return Err(Refused::InnerLength);
                }
                let bytes = bytes.get(..total_len).ok_or(Refused::InnerLength)?;
                let ends = Ends::V4 {
                    src: Ipv4Addr::from(array::<4, _>(header, ipv4::SRC)),
                    dst: Ipv4Addr::from(array::<4, _>(header, ipv4::DST)),
                };
                Ok(Packet { bytes, ends, tos: header[1] })
            }
            Some(6) => {
                let header = chunk::<{ ipv6::HEADER_LEN }>(bytes, 0).ok_or(Refused::InnerLength)?;
                let payload_len = usize::from(be16(header, 4));
                if payload_len == 0 && header[6] != NO_NEXT_HEADER {
                    return Err(Refused::InnerEmpty);
                }
                let total_len = ipv6::HEADER_LEN + payload_len;
                let bytes = bytes.get(..total_len).ok_or(Refused::InnerLength)?;
                let ends = Ends::V6 {
                    src: Ipv6Addr::from(array::<16, _>(header, ipv6::SRC)),
                    dst: Ipv6Addr::from(array::<16, _>(header, ipv6::DST)),
                };
                Ok(Packet { bytes, ends, tos: (be16(header, 0) >> 4) as u8 })
            }
            _ => Err(Refused::InnerVersion),
        }
    }

    /// Returns the packet, without what followed it.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the DSCP, 6 bits.
    pub const fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Returns 64 mixed bits, equal for all packets of a flow: of addresses, protocol and ports.
    /// Fragments, and IPv6 packets with extension headers, count without ports.
    #[inline]
    pub fn flow_hash(&self) -> u64 {
        let (proto, at, whole) = match (self.ends, self.bytes) {
            (Ends::V4 { .. }, [first, _, _, _, _, _, flags, offset, _, proto, ..]) => {
                let fragment = u16::from_be_bytes([*flags, *offset]) & ipv4::FRAGMENT;
                (*proto, usize::from(first & 0x0f) * 4, fragment == 0)
            }
            (_, bytes) => (bytes.get(6).copied().unwrap_or(0), ipv6::HEADER_LEN, true),
        };
        let ports = if whole { chunk::<4>(self.bytes, at) } else { None };
        match self.ends {
            Ends::V4 { src, dst } => flow4(src.to_bits(), dst.to_bits(), proto, ports),
            Ends::V6 { src, dst } => {
                let last = transport(proto, ports);
                let half = |address: Ipv6Addr, shift: u32| (u128::from(address) >> shift) as u64;
                let src = mix(half(src, 64) ^ K[0], half(src, 0) ^ K[1]);
                let dst = mix(half(dst, 64) ^ K[2], half(dst, 0) ^ K[3]);
                mix(src ^ last, dst ^ K[4])
            }
        }
    }
}

/// Returns the number of a flow within its addresses: protocol and ports, where it has them.
#[inline(always)]
fn transport(proto: u8, ports: Option<&[u8; 4]>) -> u64 {
    let has_ports = matches!(proto, number::TCP | number::UDP | number::SCTP);
    let ports = ports.filter(|_| has_ports).map_or(0, |ports| u32::from_be_bytes(*ports));
    u64::from(ports) << 8 | u64::from(proto)
}

/// Returns [`Packet::flow_hash`] of IPv4; `ports` are the four bytes after the header, if the
/// packet is no fragment.
#[inline(always)]
pub(crate) fn flow4(src: u32, dst: u32, proto: u8, ports: Option<&[u8; 4]>) -> u64 {
    let ends = u64::from(src) << 32 | u64::from(dst);
    mix(ends ^ K[0], transport(proto, ports) ^ K[1])
}
