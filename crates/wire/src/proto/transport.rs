//! TCP, UDP and SCTP: ports at bytes 0 and 2, and TCP's flags.

use super::{be16, chunk};
use crate::key::FlowKey;

/// TCP (RFC 9293).
pub(crate) mod tcp {
    pub(crate) const HEADER_LEN: usize = 20;
    pub(crate) const FLAGS: usize = 12;
    pub(crate) const CHECKSUM: usize = 16;
}

/// UDP (RFC 768).
pub(crate) mod udp {
    pub(crate) const HEADER_LEN: usize = 8;
    pub(crate) const CHECKSUM: usize = 6;
}

/// SCTP (RFC 9260). The checksum is a CRC32c over the packet, without a pseudo-header.
pub(crate) mod sctp {
    pub(crate) const HEADER_LEN: usize = 12;
    pub(crate) const CHECKSUM: usize = 8;
}

/// Twelve flag bits of the sixteen that start with the data offset.
pub(crate) const TCP_FLAGS: u16 = 0x0fff;

/// Returns whether the data offset of a TCP header covers the fixed part and ends within the `len`
/// bytes present.
#[inline(always)]
pub(crate) fn tcp_len_fits(header: &[u8; tcp::HEADER_LEN], len: usize) -> bool {
    let header_len = usize::from(header[tcp::FLAGS] >> 4) * 4;
    (tcp::HEADER_LEN..=len).contains(&header_len)
}

/// Reads a TCP header; returns false if it, options included, is cut short.
#[inline]
pub(crate) fn parse_tcp(bytes: &[u8], key: &mut FlowKey) -> bool {
    let Some(header) = chunk::<{ tcp::HEADER_LEN }>(bytes, 0) else { return false };
    if !tcp_len_fits(header, bytes.len()) {
        return false;
    }
    key.tp_src = be16(header, 0);
    key.tp_dst = be16(header, 2);
    key.tcp_flags = be16(header, tcp::FLAGS) & TCP_FLAGS;
    true
}

/// Reads the ports of a header of `LEN` bytes; returns false if it is cut short.
#[inline]
pub(crate) fn parse_ports<const LEN: usize>(bytes: &[u8], key: &mut FlowKey) -> bool {
    let Some(header) = chunk::<LEN>(bytes, 0) else { return false };
    key.tp_src = be16(header, 0);
    key.tp_dst = be16(header, 2);
    true
}
