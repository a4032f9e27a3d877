//! ICMP errors about packets that cannot be forwarded: RFC 792 and RFC 1191, RFC 4443.
//!
//! ```text
//!  | IPv4 20 | type, code, checksum | 0  | MTU | packet, up to 576 bytes in all
//!  | IPv6 40 | type, code, checksum | MTU      | packet, up to 1280 bytes in all
//! ```
//!
//! No error answers an ICMP error or a redirect, a fragment other than the first one, a packet to a
//! group, or one whose source is not a single host (RFC 1812, 4.3.2.7; RFC 4443, 2.4). RFC 4443
//! allows "packet too big" for groups; it is not sent here, since one packet could be answered by
//! many routers. Rate limits are the caller's.

use crate::checksum;
use crate::ip::{Ends, Head, Packet, write_header};
use crate::key::{FRAG_LATER, FlowKey};
use crate::proto::{icmp, ipv4, ipv6, number};
use std::net::{IpAddr, Ipv4Addr};

/// Longest error over IPv4 (RFC 1812, 4.3.2.3), IP header included.
pub const LEN_MAX_V4: usize = 576;
/// Longest error over IPv6, the smallest MTU of its links.
pub const LEN_MAX_V6: usize = 1280;

/// TTL and hop limit of an error.
const TTL: u8 = 64;
/// Internetwork control (RFC 1812, 4.3.2.5).
const TOS_V4: u8 = 0xc0;
/// "Do not fragment" in the second word of IPv4.
const DONT_FRAGMENT: u8 = 0x40;

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is longer than this MTU of the next hop, which counts whole IP packets.
    TooBig { mtu: u32 },
    /// Its TTL or hop limit does not allow another hop.
    TtlExpired,
    /// No route leads to its destination.
    NoRoute,
    /// The destination does not exist, or is down.
    Host,
    /// The destination does not listen on the port.
    Port,
    /// A rule of the operator forbids it.
    Prohibited,
}

impl Problem {
    /// Returns all problems; one that is too big, for this MTU.
    const fn all(mtu: u32) -> [Problem; 6] {
        let [host, port] = [Problem::Host, Problem::Port];
        let too_big = Problem::TooBig { mtu };
        [too_big, Problem::TtlExpired, Problem::NoRoute, host, port, Problem::Prohibited]
    }

    /// Returns type and code over IPv4.
    const fn v4(self) -> [u8; 2] {
        match self {
            Problem::NoRoute => [3, 0],
            Problem::Host => [3, 1],
            Problem::Port => [3, 3],
            Problem::TooBig { .. } => [3, 4],
            Problem::Prohibited => [3, 13],
            Problem::TtlExpired => [11, 0],
        }
    }

    /// Returns type and code over IPv6.
    const fn v6(self) -> [u8; 2] {
        match self {
            Problem::NoRoute => [1, 0],
            Problem::Prohibited => [1, 1],
            Problem::Host => [1, 3],
            Problem::Port => [1, 4],
            Problem::TooBig { .. } => [2, 0],
            Problem::TtlExpired => [3, 0],
        }
    }

    /// Returns the second word of the message.
    fn word(self, ends: &Ends) -> [u8; 4] {
        match (self, ends) {
            (Problem::TooBig { mtu }, Ends::V4 { .. }) => mtu.min(0xffff).to_be_bytes(),
            (Problem::TooBig { mtu }, Ends::V6 { .. }) => mtu.to_be_bytes(),
            _ => [0; 4],
        }
    }
}

overbank_reasons::reasons! {
    /// Why no error answers a packet.
    pub enum Silent {
        Icmp = "icmp", "the packet is an ICMP error, a redirect, or of an unknown ICMP type";
        Fragment = "fragment", "the packet is a fragment other than the first";
        Group = "group", "the packet is to a multicast or broadcast address";
        Source = "source", "the packet's source is not a single host";
        MayFragment = "may_fragment", "the packet is too big, but may be fragmented";
        Broken = "broken", "the packet's header or extension headers are invalid";
        Family = "family", "the error's source is of another family than the packet";
        NoRoom = "no_room", "the buffer is too short";
    }
}

/// Writes the error about `packet` that `from`, an address of this router, sends to its source:
/// a whole IP packet at the start of `room`. Returns its length, at most [`LEN_MAX_V4`] or
/// [`LEN_MAX_V6`].
pub fn write(
    problem: Problem,
    packet: &Packet<'_>,
    from: IpAddr,
    room: &mut [u8],
) -> Result<usize, Silent> {
    may_answer(problem, packet)?;
    let (ends, len_max, kind, proto, tos) = match (packet.ends, from) {
        (Ends::V4 { src: dst, .. }, IpAddr::V4(src)) => {
            (Ends::V4 { src, dst }, LEN_MAX_V4, problem.v4(), number::ICMP, TOS_V4)
        }
        (Ends::V6 { src: dst, .. }, IpAddr::V6(src)) => {
            (Ends::V6 { src, dst }, LEN_MAX_V6, problem.v6(), number::ICMP6, 0)
        }
        _ => return Err(Silent::Family),
    };
    let l4 = ends.header_len();
    let quoted = packet.bytes().len().min(len_max - l4 - icmp::HEADER_LEN);
    let len = l4 + icmp::HEADER_LEN + quoted;
    let (header, message) =
        room.get_mut(..len).and_then(|all| all.split_at_mut_checked(l4)).ok_or(Silent::NoRoom)?;
    let head = Head { proto, ttl: TTL, tos, label: 0 };
    write_header(header, &ends, &head, message.len()).ok_or(Silent::NoRoom)?;
    message[..2].copy_from_slice(&kind);
    message[2..4].fill(0);
    message[4..8].copy_from_slice(&problem.word(&ends));
    message[icmp::HEADER_LEN..].copy_from_slice(&packet.bytes()[..quoted]);
    let pseudo = match ends {
        Ends::V4 { .. } => 0,
        Ends::V6 { .. } => ends.pseudo_sum(proto, message.len()),
    };
    let sum = checksum::finish(pseudo + checksum::sum(message));
    message[icmp::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    Ok(len)
}

/// An error as its receiver finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    pub problem: Problem,
    /// The start of the packet that it is about, as the sender of the error had it.
    pub about: &'a [u8],
}

/// Reads an error with one of the problems above; `None`: the packet is none, is a fragment, or its
/// checksum is wrong.
pub fn read<'a>(packet: &Packet<'a>) -> Option<Told<'a>> {
    let (bytes, mut key) = (packet.bytes(), FlowKey::default());
    let (header_len, proto, pseudo) = match packet.ends {
        Ends::V4 { .. } => (ipv4::parse(bytes, &mut key)?.0, number::ICMP, 0),
        Ends::V6 { .. } => {
            let header_len = ipv6::parse(bytes, &mut key)?.header_len;
            let len = bytes.len().checked_sub(header_len)?;
            (header_len, number::ICMP6, packet.ends.pseudo_sum(number::ICMP6, len))
        }
    };
    let message = bytes.get(header_len..)?;
    let (head, about) = message.split_first_chunk::<{ icmp::HEADER_LEN }>()?;
    let whole = key.nw_proto == proto && key.nw_frag == 0;
    if !whole || checksum::finish(pseudo + checksum::sum(message)) != 0 {
        return None;
    }
    let [kind, code, _, _, word @ ..] = *head;
    let mtu = u32::from_be_bytes(word);
    let is = |problem: &Problem| {
        let found = if proto == number::ICMP { problem.v4() } else { problem.v6() };
        found == [kind, code]
    };
    // Over IPv4, the MTU is in the lower half; RFC 1191 leaves the other one unused.
    let mtu = if proto == number::ICMP { mtu & 0xffff } else { mtu };
    let problem = Problem::all(mtu).into_iter().find(is)?;
    Some(Told { problem, about })
}

/// Returns whether a packet may be answered by an error.
fn may_answer(problem: Problem, packet: &Packet<'_>) -> Result<(), Silent> {
    let bytes = packet.bytes();
    let mut key = FlowKey::default();
    let (header_len, is_query): (_, fn(u8) -> bool) = match packet.ends {
        Ends::V4 { src, dst } => {
            let (header_len, _) = ipv4::parse(bytes, &mut key).ok_or(Silent::Broken)?;
            check_v4(src, dst)?;
            let may_fragment = bytes.get(6).is_none_or(|flags| flags & DONT_FRAGMENT == 0);
            if matches!(problem, Problem::TooBig { .. }) && may_fragment {
                return Err(Silent::MayFragment);
            }
            // Echo, router discovery, time stamps, information, masks.
            (header_len, |kind| matches!(kind, 0 | 8 | 9 | 10 | 13..=18))
        }
        Ends::V6 { src, dst } => {
            let parsed = ipv6::parse(bytes, &mut key).ok_or(Silent::Broken)?;
            if src.is_unspecified() || src.is_loopback() || src.is_multicast() {
                return Err(Silent::Source);
            }
            if dst.is_multicast() {
                return Err(Silent::Group);
            }
            (parsed.header_len, |kind| kind >= 128 && kind != REDIRECT_V6)
        }
    };
    if key.nw_frag & FRAG_LATER != 0 {
        return Err(Silent::Fragment);
    }
    let icmp = matches!(
        (packet.ends, key.nw_proto),
        (Ends::V4 { .. }, number::ICMP) | (Ends::V6 { .. }, number::ICMP6)
    );
    if icmp && !bytes.get(header_len).is_some_and(|&kind| is_query(kind)) {
        return Err(Silent::Icmp);
    }
    Ok(())
}

const REDIRECT_V6: u8 = 137;

fn check_v4(src: Ipv4Addr, dst: Ipv4Addr) -> Result<(), Silent> {
    // 0.0.0.0/8 is this network, 240.0.0.0/4 is reserved and has the broadcast address.
    let reserved = |address: Ipv4Addr| address.octets()[0] >= 240;
    if src.octets()[0] == 0 || src.is_loopback() || src.is_multicast() || reserved(src) {
        return Err(Silent::Source);
    }
    if dst.is_multicast() || dst.is_broadcast() {
        return Err(Silent::Group);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
