//! ARP and RARP for IPv4 over Ethernet (RFC 826, RFC 903). Others have only their `dl_type`.
//!
//! ```text
//!  0     2     4   5   6     8         14        18        24        28
//!  | hrd | pro |hln|pln| op  | sha     | spa     | tha     | tpa     |
//! ```

use super::{array, be16, be32, chunk};
use crate::key::FlowKey;

pub(crate) const LEN: usize = 28;
pub(crate) const OP: usize = 6;
pub(crate) const SHA: usize = 8;
pub(crate) const SPA: usize = 14;
pub(crate) const THA: usize = 18;
pub(crate) const TPA: usize = 24;
/// Ethernet hardware, IPv4 protocol, and their address lengths.
const FIXED: [u8; 6] = [0, 1, 0x08, 0, 6, 4];

/// Reads an ARP packet; returns false if it is not one for IPv4 over Ethernet.
pub(crate) fn parse(bytes: &[u8], key: &mut FlowKey) -> bool {
    let Some(header) = chunk::<LEN>(bytes, 0) else { return false };
    if header[..6] != FIXED {
        return false;
    }
    key.nw_src = be32(header, SPA);
    key.nw_dst = be32(header, TPA);
    // An opcode above 255 counts as 0; the addresses are valid nevertheless.
    key.nw_proto = u8::try_from(be16(header, OP)).unwrap_or(0);
    key.arp_sha = array(header, SHA);
    key.arp_tha = array(header, THA);
    true
}
