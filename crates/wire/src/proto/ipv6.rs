//! IPv6 (RFC 8200) and its extension headers.
//!
//! ```text
//!  0                   4           6     7     8         24        40
//!  | v, class, label   | pay. len  | next| hops| src     | dst     | extension headers ..
//! ```
//!
//! Hop-by-hop, routing, destination options, authentication and fragment headers are skipped in
//! any order and number. Each takes at least eight of the at most 65,535 payload bytes, which
//! bounds the walk.

use super::{PADDING_MAX, array, be16, be32, chunk, number};
use crate::key::{FRAG_ANY, FRAG_LATER, FlowKey};

pub(crate) const HEADER_LEN: usize = 40;
pub(crate) const HOP_LIMIT: usize = 7;
pub(crate) const SRC: usize = 8;
pub(crate) const DST: usize = 24;

/// Result of reading an IPv6 header and its extension headers.
pub(crate) struct Parsed {
    /// Length of the header and all extension headers.
    pub(crate) header_len: usize,
    /// Length of the whole packet, without padding.
    pub(crate) total_len: usize,
    /// A routing header has segments left: `dst` is not the final destination.
    pub(crate) routed: bool,
}

/// Reads an IPv6 header and its extension headers. Returns `None` if version or payload length is
/// invalid, and leaves the key unchanged. Also returns `None` if the extension headers run past the
/// end; the key then has only the addresses, as in Open vSwitch.
#[inline]
pub(crate) fn parse(bytes: &[u8], key: &mut FlowKey) -> Option<Parsed> {
    let header = chunk::<HEADER_LEN>(bytes, 0)?;
    let total_len = HEADER_LEN + usize::from(be16(header, 4));
    if header[0] >> 4 != 6 || total_len > bytes.len() || bytes.len() - total_len > PADDING_MAX {
        return None;
    }
    key.ipv6_src = array(header, SRC);
    key.ipv6_dst = array(header, DST);
    let mut proto = header[6];
    let mut frag = 0;
    let mut parsed = Parsed { header_len: HEADER_LEN, total_len, routed: false };
    if is_extension(proto) {
        let payload = bytes.get(..total_len)?;
        (proto, frag) = extensions(payload, proto, &mut parsed)?;
    }
    key.nw_proto = proto;
    key.nw_frag = frag;
    let first = be32(header, 0);
    key.ipv6_label = first & 0x000f_ffff;
    key.nw_tos = (first >> 20) as u8;
    key.nw_ttl = header[HOP_LIMIT];
    Some(parsed)
}

#[inline]
fn is_extension(proto: u8) -> bool {
    use number::{AH, DEST_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(proto, HOP_BY_HOP | ROUTING | DEST_OPTIONS | AH | FRAGMENT)
}

/// Walks the extension headers of `packet`, the first of which is a `proto`. Returns the protocol
/// after them and the fragment bits.
fn extensions(packet: &[u8], mut proto: u8, parsed: &mut Parsed) -> Option<(u8, u8)> {
    let mut frag = 0;
    while is_extension(proto) {
        let ext = chunk::<8>(packet, parsed.header_len)?;
        let len = match proto {
            number::AH => (usize::from(ext[1]) + 2) * 4,
            number::FRAGMENT => 8,
            _ => (usize::from(ext[1]) + 1) * 8,
        };
        parsed.header_len += len;
        if parsed.header_len > packet.len() {
            return None;
        }
        // Routing: byte 3 is the number of segments left.
        parsed.routed |= proto == number::ROUTING && ext[3] != 0;
        if proto == number::FRAGMENT && be16(ext, 2) != 0 {
            frag = FRAG_ANY;
            if be16(ext, 2) & 0xfff8 != 0 {
                return Some((number::FRAGMENT, FRAG_ANY | FRAG_LATER));
            }
        }
        proto = ext[0];
    }
    Some((proto, frag))
}
