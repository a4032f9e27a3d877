//! Information elements of the messages about paths and tunnels (TS 29.281, section 8).
//!
//! ```text
//!  0     1                                0     1           3
//!  | type| value, of known length |  or   | type| length    | value      from type 128 on
//! ```
//!
//! The list of extension header types has a length of one byte (8.5). An unknown element below 128
//! has no known length, so what follows it cannot be found: the message is refused.

use super::Refused;
use crate::proto::chunk;
use std::net::IpAddr;

/// Element types.
pub(super) mod element {
    pub(crate) const RECOVERY: u8 = 14;
    pub(crate) const TEID: u8 = 16;
    pub(crate) const PEER_ADDRESS: u8 = 133;
    pub(crate) const EXTENSION_TYPES: u8 = 141;
}

/// The first element of each known type.
#[derive(Default)]
pub(super) struct Elements<'a> {
    pub(super) recovery: Option<u8>,
    pub(super) teid: Option<u32>,
    pub(super) peer: Option<IpAddr>,
    pub(super) extension_types: Option<&'a [u8]>,
}

impl<'a> Elements<'a> {
    /// Reads all elements of a body. Each takes at least two bytes, which bounds the walk.
    pub(super) fn parse(mut bytes: &'a [u8]) -> Result<Elements<'a>, Refused> {
        let mut found = Elements::default();
        while let Some(&kind) = bytes.first() {
            let (start, len) = match kind {
                element::RECOVERY => (1, 1),
                element::TEID => (1, 4),
                element::EXTENSION_TYPES => {
                    let [len] = chunk::<1>(bytes, 1).ok_or(Refused::BrokenElement)?;
                    (2, usize::from(*len))
                }
                128.. => {
                    let len = chunk::<2>(bytes, 1).ok_or(Refused::BrokenElement)?;
                    (3, usize::from(u16::from_be_bytes(*len)))
                }
                _ => return Err(Refused::BrokenElement),
            };
            let value = bytes.get(start..start + len).ok_or(Refused::BrokenElement)?;
            bytes = bytes.get(start + len..).unwrap_or_default();
            match kind {
                element::RECOVERY => found.recovery = found.recovery.or(value.first().copied()),
                element::TEID => {
                    let teid = chunk::<4>(value, 0).map(|teid| u32::from_be_bytes(*teid));
                    found.teid = found.teid.or(teid);
                }
                element::PEER_ADDRESS => {
                    let peer = address(value).ok_or(Refused::BrokenElement)?;
                    found.peer = found.peer.or(Some(peer));
                }
                element::EXTENSION_TYPES => {
                    found.extension_types = found.extension_types.or(Some(value));
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => chunk::<4>(value, 0).map(|&octets| IpAddr::from(octets)),
        16 => chunk::<16>(value, 0).map(|&octets| IpAddr::from(octets)),
        _ => None,
    }
}
