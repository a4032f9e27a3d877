//! IPv4 (RFC 791), with options and fragments.
//!
//! ```text
//!  0     1     2           4           6           8     9     10          12        16
//!  |v ihl| tos | total len | id        | flags, off| ttl |proto| checksum  | src     | dst  ..
//! ```

use super::{PADDING_MAX, be16, be32, chunk};
use crate::key::{FRAG_ANY, FRAG_LATER, FlowKey};

pub(crate) const HEADER_LEN: usize = 20;
pub(crate) const TTL: usize = 8;
pub(crate) const CHECKSUM: usize = 10;
pub(crate) const SRC: usize = 12;
pub(crate) const DST: usize = 16;
/// More-fragments bit and fragment offset.
pub(crate) const FRAGMENT: u16 = 0x3fff;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Reads an IPv4 header. Returns its length and that of the whole packet, without padding. Returns
/// `None`, and leaves the key unchanged, if version, header length or total length is invalid.
#[inline]
pub(crate) fn parse(bytes: &[u8], key: &mut FlowKey) -> Option<(usize, usize)> {
    let header = chunk::<HEADER_LEN>(bytes, 0)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total_len = usize::from(be16(header, 2));
    if header[0] >> 4 != 4
        || header_len < HEADER_LEN
        || header_len > total_len
        || total_len > bytes.len()
        || bytes.len() - total_len > PADDING_MAX
    {
        return None;
    }
    key.nw_src = be32(header, SRC);
    key.nw_dst = be32(header, DST);
    key.nw_tos = header[1];
    key.nw_ttl = header[TTL];
    key.nw_proto = header[9];
    let fragment = be16(header, 6);
    if fragment & FRAGMENT != 0 {
        key.nw_frag = FRAG_ANY | if fragment & FRAGMENT_OFFSET != 0 { FRAG_LATER } else { 0 };
    }
    Some((header_len, total_len))
}
