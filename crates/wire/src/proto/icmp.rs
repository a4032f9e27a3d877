//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861).
//!
//! ```text
//!  0     1     2           4           8         24
//!  | type| code| checksum  | ..        | target  | options: type, length in 8 bytes, ..
//! ```
//!
//! Target and options exist in neighbour solicitations (135) and advertisements (136) with code 0.
//! Options are read as long as they are valid. A repeated link-layer option makes the message
//! invalid: it has neither target nor link-layer addresses then (as in Open vSwitch).

use super::chunk;
use crate::key::FlowKey;

pub(crate) const HEADER_LEN: usize = 8;
pub(crate) const CHECKSUM: usize = 2;
pub(crate) const ND_TARGET: usize = 8;
pub(crate) const ND_OPTIONS: usize = 24;
pub(crate) const ND_SOLICIT: u8 = 135;
pub(crate) const ND_ADVERT: u8 = 136;
/// Source link-layer address option.
pub(crate) const ND_SLL: u8 = 1;
/// Target link-layer address option.
pub(crate) const ND_TLL: u8 = 2;

/// Reads type and code; returns false if the header is cut short.
#[inline]
pub(crate) fn parse(bytes: &[u8], key: &mut FlowKey) -> bool {
    let Some(header) = chunk::<HEADER_LEN>(bytes, 0) else { return false };
    key.tp_src = u16::from(header[0]);
    key.tp_dst = u16::from(header[1]);
    true
}

/// Reads an ICMPv6 message; returns false if its header is cut short.
pub(crate) fn parse6(bytes: &[u8], key: &mut FlowKey) -> bool {
    if !parse(bytes, key) {
        return false;
    }
    if is_nd(bytes)
        && let Some(&target) = chunk::<16>(bytes, ND_TARGET)
    {
        key.nd_target = target;
        for (kind, mac) in options(bytes) {
            let slot = if kind == ND_SLL { &mut key.arp_sha } else { &mut key.arp_tha };
            if *slot != [0; 6] {
                (key.nd_target, key.arp_sha, key.arp_tha) = ([0; 16], [0; 6], [0; 6]);
                break;
            }
            *slot = *mac;
        }
    }
    true
}

/// Returns whether an ICMPv6 message is a neighbour solicitation or advertisement.
pub(crate) fn is_nd(message: &[u8]) -> bool {
    matches!(message, [ND_SOLICIT | ND_ADVERT, 0, ..])
}

/// Returns the offset of the address in the first link-layer option of this kind.
pub(crate) fn option_at(message: &[u8], kind: u8) -> Option<usize> {
    let mut at = ND_OPTIONS;
    while let Some(option) = next_option(message, at) {
        if option[..2] == [kind, 1] {
            return Some(at + 2);
        }
        at += option.len();
    }
    None
}

/// Iterates over the link-layer options of a neighbour message: kind and address.
fn options(message: &[u8]) -> impl Iterator<Item = (u8, &[u8; 6])> {
    let mut at = ND_OPTIONS;
    std::iter::from_fn(move || {
        let option = next_option(message, at)?;
        at += option.len();
        Some(option)
    })
    .filter_map(|option| match option {
        [kind @ (ND_SLL | ND_TLL), 1, mac @ ..] => Some((*kind, mac.first_chunk()?)),
        _ => None,
    })
}

/// Returns the whole option at `at`, at least eight bytes; `None` if it has no length or is cut
/// short.
fn next_option(message: &[u8], at: usize) -> Option<&[u8]> {
    let head = chunk::<8>(message, at)?;
    let len = usize::from(head[1]) * 8;
    if len == 0 { None } else { message.get(at..at + len) }
}
