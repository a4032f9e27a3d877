//! The naive twin: a gateway that reads byte by byte and looks sessions up in a list.
//!
//! It names each reason of [`Denied`]. Frames that cannot be read are `Refused` for any reason: the
//! reasons have twins of their readers in `overbank-wire`.

use super::{Event, Verdict};
use crate::fabric::Seed;
use crate::next_hops::Mac;
use crate::peers::{Asker, Path};
use crate::prefix::Prefix;
use crate::reason::Denied;
use crate::session::{Session, is_host};
use crate::slab::Direction;
use overbank_cluster::NodeId;
use overbank_wire::icmp_error::{self, Problem};
use overbank_wire::ip::Packet;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Refused, for whatever reason.
struct Unread;
type Read<T> = Result<T, Unread>;

pub(super) struct Naive {
    pub(super) sessions: Vec<Session>,
    pub(super) n3: Vec<IpAddr>,
    pub(super) pools: Vec<Prefix>,
    pub(super) peers: Vec<Prefix>,
    pub(super) protected: Vec<Prefix>,
    pub(super) mtu: [usize; 2],
    /// Of N3, then of N6: the port's address and its routes.
    pub(super) hops: [(Mac, Vec<(Prefix, Mac)>); 2],
    pub(super) from: [IpAddr; 2],
    /// Times at which everything admitted would have passed, in nanoseconds.
    pub(super) admitted: HashMap<(u64, Direction), u64>,
}

fn at<const N: usize>(bytes: &[u8], place: usize) -> Read<[u8; N]> {
    bytes.get(place..place + N).and_then(|b| b.try_into().ok()).ok_or(Unread)
}

fn be16(bytes: &[u8], place: usize) -> Read<usize> {
    Ok(usize::from(u16::from_be_bytes(at(bytes, place)?)))
}

/// Returns the Internet checksum, word by word.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IP packet: its bytes, addresses, protocol and the place of what follows its headers.
struct Ip<'a> {
    bytes: &'a [u8],
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    rest: usize,
    fragment: bool,
    routed: bool,
}

/// Reads version, lengths and addresses.
fn inner(bytes: &[u8]) -> Read<Ip<'_>> {
    let (mut fragment, first) = (false, at::<1>(bytes, 0)?[0]);
    let (len, src, dst, proto, rest): (_, IpAddr, IpAddr, _, _);
    match first >> 4 {
        4 => {
            at::<20>(bytes, 0)?;
            (len, rest) = (be16(bytes, 2)?, usize::from(first & 15) * 4);
            if rest < 20 || rest > len {
                return Err(Unread);
            }
            (src, dst) = (at::<4>(bytes, 12)?.into(), at::<4>(bytes, 16)?.into());
            (proto, fragment) = (bytes[9], be16(bytes, 6)? & 0x3fff != 0);
        }
        6 => {
            at::<40>(bytes, 0)?;
            (len, rest, proto) = (40 + be16(bytes, 4)?, 40, bytes[6]);
            if len == 40 && proto != 59 {
                return Err(Unread);
            }
            (src, dst) = (at::<16>(bytes, 8)?.into(), at::<16>(bytes, 24)?.into());
        }
        _ => return Err(Unread),
    }
    let bytes = bytes.get(..len).ok_or(Unread)?;
    Ok(Ip { bytes, src, dst, proto, rest, fragment, routed: false })
}

/// Walks the extension headers of IPv6.
fn walk(ip: &mut Ip<'_>) -> Read<()> {
    while ip.src.is_ipv6() && matches!(ip.proto, 0 | 43 | 44 | 51 | 60) {
        let header = at::<8>(ip.bytes, ip.rest)?;
        ip.rest += match ip.proto {
            51 => (usize::from(header[1]) + 2) * 4,
            44 => 8,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        if ip.rest > ip.bytes.len() {
            return Err(Unread);
        }
        ip.routed |= ip.proto == 43 && header[3] != 0;
        if ip.proto == 44 && [header[2], header[3]] != [0, 0] {
            ip.fragment = true;
            if u16::from_be_bytes([header[2], header[3]]) & 0xfff8 != 0 {
                return Ok(());
            }
        }
        ip.proto = header[0];
    }
    Ok(())
}

/// Reads a frame to the packet in it.
fn outer(frame: &[u8]) -> Read<Ip<'_>> {
    let version = match at::<2>(frame, 12)? {
        [0x08, 0x00] => 4,
        [0x86, 0xdd] => 6,
        _ => return Err(Unread),
    };
    let mut ip = inner(&frame[14..])?;
    if ip.bytes[0] >> 4 != version {
        return Err(Unread);
    }
    walk(&mut ip)?;
    Ok(ip)
}

/// Returns the type of service or traffic class of a packet.
fn tos(packet: &[u8]) -> u8 {
    match packet[0] >> 4 {
        4 => packet[1],
        _ => packet[0] << 4 | packet[1] >> 4,
    }
}

/// Returns a packet that came out of a tunnel with these outer bits (RFC 6040, figure 4); `None`:
/// it is to be dropped.
fn merge_ecn(mut packet: Vec<u8>, outer_tos: u8) -> Option<Vec<u8>> {
    let (before, outer) = (tos(&packet), outer_tos & 3);
    let ecn = match (before & 3, outer) {
        (0, 3) => return None,
        (0, _) => 0,
        (_, 3) => 3,
        (2, 1) => 1,
        (inner, _) => inner,
    };
    let after = before & 0xfc | ecn;
    if packet[0] >> 4 == 6 {
        packet[0] = 0x60 | after >> 4;
        packet[1] = after << 4 | packet[1] & 15;
    } else if after != before {
        // The header's sum is the same as before: one word changes, the checksum by as much.
        let mut sum = u32::from(!u16::from_be_bytes([packet[10], packet[11]]));
        sum += u32::from(!u16::from_be_bytes([packet[0], before]));
        sum += u32::from(u16::from_be_bytes([packet[0], after]));
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[1] = after;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    Some(packet)
}

/// A GTP-U message.
enum Message<'a> {
    GPdu(u32, &'a [u8]),
    Echo(u16),
    /// An Echo Response with this sequence number.
    Response(u16),
    Other(Denied),
    /// A G-PDU to this TEID with an extension header that must be known.
    Unknown(u32),
}

fn container(content: &[u8]) -> Read<()> {
    let [first, second] = at(content, 0)?;
    let has = |byte: u8, bit: u8, len: usize| if byte & bit != 0 { len } else { 0 };
    let len = match first >> 4 {
        0 => has(second, 0x80, 1) + has(first, 8, 8) + has(first, 4, 3) + has(first, 2, 4),
        1 => {
            let len = has(first, 8, 24)
                + has(first, 4, 4)
                + has(first, 2, 4)
                + has(first, 1, 3)
                + has(second, 0x80, 4);
            let new = if second & 0x40 != 0 { Some(at::<1>(content, 2 + len)?[0]) } else { None };
            len + new.map_or(0, |new| 1 + has(new, 1, 4))
        }
        _ => return Err(Unread),
    };
    if content.len() >= 2 + len { Ok(()) } else { Err(Unread) }
}

fn message(payload: &[u8]) -> Read<Message<'_>> {
    let [flags, kind, ..] = at::<8>(payload, 0)?;
    let message = payload.get(..8 + be16(payload, 2)?).ok_or(Unread)?;
    if flags >> 4 != 3 {
        return Err(Unread);
    }
    let teid = u32::from_be_bytes(at(message, 4)?);
    let (mut rest, mut sequence) = (8, 0);
    if flags & 7 != 0 {
        let long = at::<12>(message, 0)?;
        rest = 12;
        if flags & 2 != 0 {
            sequence = be16(message, 8)? as u16;
        }
        let (mut next, mut seen) = (if flags & 4 != 0 { long[11] } else { 0 }, 0);
        let mut containers = 0;
        while next != 0 {
            seen += 1;
            let len = 4 * usize::from(at::<1>(message, rest)?[0]);
            let header = message.get(rest..rest + len).filter(|h| !h.is_empty()).ok_or(Unread)?;
            match next {
                0x85 => {
                    containers += 1;
                    container(&header[1..len - 1])?;
                }
                128.. if kind == 255 => return Ok(Message::Unknown(teid)),
                128.. => return Err(Unread),
                _ => {}
            }
            (next, rest) = (header[len - 1], rest + len);
            if seen > 8 || containers > 1 {
                return Err(Unread);
            }
        }
    }
    let body = &message[rest..];
    if kind == 255 {
        return Ok(Message::GPdu(teid, body));
    }
    let (mut place, mut found) = (0, Vec::new());
    while place < body.len() && [1, 2, 26, 31, 254].contains(&kind) {
        let element = body[place];
        let (start, len) = match element {
            14 => (1, 1),
            16 => (1, 4),
            141 => (2, usize::from(at::<1>(body, place + 1)?[0])),
            128.. => (3, be16(body, place + 1)?),
            _ => return Err(Unread),
        };
        let value = body.get(place + start..place + start + len).ok_or(Unread)?;
        if element == 133 && ![4, 16].contains(&value.len()) {
            return Err(Unread);
        }
        found.push(element);
        place += start + len;
    }
    let has = |element| found.contains(&element);
    Ok(match kind {
        1 => Message::Echo(sequence),
        2 => Message::Response(sequence),
        26 if has(16) && has(133) => Message::Other(Denied::ErrorIndication),
        31 if has(141) => Message::Other(Denied::SupportedExtensions),
        254 => Message::Other(Denied::EndMarker),
        _ => return Err(Unread),
    })
}

/// Why nothing leaves.
enum Fate {
    Refused,
    Denied(Denied),
}

impl From<Unread> for Fate {
    fn from(_: Unread) -> Fate {
        Fate::Refused
    }
}

impl From<Denied> for Fate {
    fn from(denied: Denied) -> Fate {
        Fate::Denied(denied)
    }
}

impl Naive {
    fn link(&self, port: usize, to: IpAddr) -> Option<[u8; 12]> {
        let (mac, routes) = &self.hops[port];
        let fits = routes.iter().filter(|(prefix, _)| prefix.contains(to));
        let (_, next) = fits.max_by_key(|(prefix, _)| prefix.len())?;
        [*next, *mac].concat().try_into().ok()
    }

    fn is_in(prefixes: &[Prefix], address: IpAddr) -> bool {
        prefixes.iter().any(|prefix| prefix.contains(address))
    }

    fn session_of(&self, address: IpAddr) -> Option<Session> {
        self.sessions.iter().copied().find(|s| Naive::has(s, address))
    }

    fn has(session: &Session, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => session.ipv4 == Some(address),
            IpAddr::V6(address) => session
                .ipv6
                .is_some_and(|prefix| prefix.address().octets()[..8] == address.octets()[..8]),
        }
    }

    fn admit(&mut self, session: &Session, direction: Direction, len: usize, now_ms: u64) -> bool {
        let rate = match direction {
            Direction::Up => session.rate_up,
            Direction::Down => session.rate_down,
        };
        let Some(rate) = rate else { return true };
        let now = now_ms * 1_000_000;
        let until = self.admitted.entry((session.id, direction)).or_insert(0);
        if until.saturating_sub(now) > 100_000_000 {
            return false;
        }
        *until = (*until).max(now) + 8_000_000_000 * len as u64 / rate;
        true
    }

    /// Returns a frame with the headers of IP and UDP in front of a message.
    fn datagram(
        link: [u8; 12],
        [src, dst]: [IpAddr; 2],
        ports: [u16; 2],
        dscp: u8,
        label: u32,
        message: &[u8],
    ) -> Vec<u8> {
        let udp_len = (8 + message.len()) as u16;
        let mut udp: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
        udp.extend(udp_len.to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(message);
        let mut frame = link.to_vec();
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut ip = vec![0x45, dscp << 2];
                ip.extend((20 + udp_len).to_be_bytes());
                ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
                ip.extend(src.octets());
                ip.extend(dst.octets());
                let sum = checksum(&ip).to_be_bytes();
                ip[10..12].copy_from_slice(&sum);
                frame.extend([0x08, 0x00]);
                frame.extend(ip);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut whole = [src.octets(), dst.octets()].concat();
                whole.extend([
                    0,
                    0,
                    udp_len.to_be_bytes()[0],
                    udp_len.to_be_bytes()[1],
                    0,
                    0,
                    0,
                    17,
                ]);
                whole.extend(&udp);
                let sum = match checksum(&whole) {
                    0 => 0xffff,
                    sum => sum,
                };
                udp[6..8].copy_from_slice(&sum.to_be_bytes());
                frame.extend([0x86, 0xdd]);
                let first = 6 << 28 | u32::from(dscp) << 22 | label & 0xf_ffff;
                frame.extend(first.to_be_bytes());
                frame.extend(udp_len.to_be_bytes());
                frame.extend([17, 64]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
            }
            _ => panic!("two families"),
        }
        frame.extend(udp);
        frame
    }

    /// Returns a packet in the tunnel to a session's peer.
    fn tunnel(&self, session: &Session, packet: &[u8], flow: u64, dscp: u8) -> Option<Vec<u8>> {
        let link = self.link(0, session.peer)?;
        let long = session.qfi.map(|qfi| [0, 0, 0, 0x85, 1, 0, qfi, 0]);
        let len = packet.len() + if long.is_some() { 8 } else { 0 };
        let mut message = vec![if long.is_some() { 0x34 } else { 0x30 }, 255];
        message.extend((len as u16).to_be_bytes());
        message.extend(session.peer_teid.to_be_bytes());
        message.extend(long.into_iter().flatten());
        message.extend(packet);
        let ports = [0xc000 | flow as u16, 2152];
        let label = (flow >> 32) as u32;
        Some(Naive::datagram(link, [session.n3, session.peer], ports, dscp, label, &message))
    }

    fn overhead(session: &Session) -> usize {
        let ip = if session.peer.is_ipv4() { 20 } else { 40 };
        ip + 8 + if session.qfi.is_some() { 16 } else { 8 }
    }

    fn check_link(&self, port: usize, frame: &[u8]) -> Result<(), Denied> {
        let mac = self.hops[port].0;
        if frame.len() < 14 {
            return Err(Denied::Truncated);
        }
        if frame[0] & 1 == 1 || (mac != [0; 6] && frame[..6] != mac) {
            return Err(Denied::OtherMac);
        }
        if [[0x81, 0x00], [0x88, 0xa8]].contains(&[frame[12], frame[13]]) {
            return Err(Denied::Vlan);
        }
        Ok(())
    }

    /// Returns a packet with one less in its TTL.
    fn one_hop(packet: &[u8]) -> Vec<u8> {
        let mut packet = packet.to_vec();
        if packet[0] >> 4 == 6 {
            packet[7] -= 1;
            return packet;
        }
        packet[8] -= 1;
        // What was wrong with the checksum stays: the header's sum is the same as before.
        let before = u32::from(u16::from_be_bytes([packet[10], packet[11]]));
        let sum = !before as u16 as u32 + 0xfeff;
        let after = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&after.to_be_bytes());
        packet
    }

    fn ttl(packet: &[u8]) -> u8 {
        packet[if packet[0] >> 4 == 4 { 8 } else { 7 }]
    }

    fn icmp(&self, problem: Problem, packet: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::parse(packet).ok()?;
        let from = self.from[usize::from(packet.ends.src().is_ipv6())];
        let mut room = vec![0; 1280];
        let len = icmp_error::write(problem, &packet, from, &mut room).ok()?;
        room.truncate(len);
        Some(room)
    }

    /// Returns what happens to a frame: what the gateway sends by itself, then the frame's fate.
    pub(super) fn take(
        &mut self,
        index: usize,
        port: u16,
        frame: &[u8],
        now_ms: u64,
    ) -> Vec<Event> {
        let mut made = Vec::new();
        let fate = match port {
            0 => self.take_n3(frame, now_ms, &mut made),
            _ => self.take_n6(frame, now_ms, &mut made),
        };
        let verdict = match fate {
            Ok((port, bytes)) => Verdict::Sent(port, bytes),
            Err(Fate::Denied(denied)) => Verdict::Denied(denied),
            Err(Fate::Refused) => Verdict::Refused,
        };
        made.push(Event::Frame(index, verdict));
        made
    }

    fn take_n3(
        &mut self,
        frame: &[u8],
        now_ms: u64,
        made: &mut Vec<Event>,
    ) -> Result<(u16, Vec<u8>), Fate> {
        self.check_link(0, frame)?;
        let ip = outer(frame)?;
        if ip.src.is_ipv4() && checksum(&ip.bytes[..ip.rest]) != 0 {
            return Err(Fate::Refused);
        }
        if ip.fragment || ip.routed || ip.proto != 17 || be16(ip.bytes, ip.rest + 2)? != 2152 {
            return Err(Fate::Refused);
        }
        let udp = &ip.bytes[ip.rest..];
        let len = be16(udp, 4)?;
        if len < 8 || len > udp.len() {
            return Err(Fate::Refused);
        }
        if !self.n3.contains(&ip.dst) {
            return Err(Denied::OtherAddress.into());
        }
        if !self.peers.is_empty() && !Naive::is_in(&self.peers, ip.src) {
            return Err(Denied::ForeignPeer.into());
        }
        let back: [u8; 12] = [&frame[6..12], &frame[..6]].concat().try_into().expect("two");
        let back = self.link(0, ip.src).unwrap_or(back);
        let (teid, packet) = match message(&udp[8..len])? {
            Message::Other(denied) => return Err(denied.into()),
            Message::Response(sequence) => {
                let (seed, me) = (Seed(0), NodeId(0));
                let path = Path { n3: ip.dst, peer: ip.src };
                let is_ours = Asker { seed, me }.of(path, sequence) == Some(me);
                return Err(if is_ours { Denied::EchoResponse } else { Denied::EchoStray }.into());
            }
            Message::Echo(_) if !is_host(ip.src) => return Err(Denied::EchoLimited.into()),
            Message::Echo(sequence) => {
                let mut answer = vec![0x32, 2, 0, 6, 0, 0, 0, 0];
                answer.extend(sequence.to_be_bytes());
                answer.extend([0, 0, 14, 0]);
                let ports = [2152, be16(udp, 0)? as u16];
                let frame = Naive::datagram(back, [ip.dst, ip.src], ports, 0, 0, &answer);
                return Ok((0, frame));
            }
            Message::Unknown(teid) => {
                if teid != 0 && is_host(ip.src) {
                    let notice = [0x32, 31, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 141, 2, 0x40, 0x85];
                    let ends = [ip.dst, ip.src];
                    let frame = Naive::datagram(back, ends, [2152, 2152], 0, 0, &notice);
                    made.push(Event::Made(0, frame));
                }
                return Err(Fate::Refused);
            }
            Message::GPdu(0, _) => return Err(Denied::TeidZero.into()),
            Message::GPdu(teid, packet) => (teid, inner(packet)?),
        };
        let mut sessions = self.sessions.iter();
        let Some(&session) = sessions.find(|s| s.n3 == ip.dst && s.teid == teid) else {
            if is_host(ip.src) {
                let address = match ip.dst {
                    IpAddr::V4(address) => address.octets().to_vec(),
                    IpAddr::V6(address) => address.octets().to_vec(),
                };
                // The sender's port, if it is not the usual one.
                let port: &[u8] = match &udp[..2] {
                    [8, 104] => &[0],
                    [a, b] => &[0x40, 1, *a, *b, 0],
                    _ => unreachable!("two bytes"),
                };
                let len = (3 + port.len() + 5 + 3 + address.len()) as u8;
                let flags = if port.len() > 1 { 0x36 } else { 0x32 };
                let mut indication = vec![flags, 26, 0, len, 0, 0, 0, 0, 0, 0, 0];
                indication.extend(port);
                indication.push(16);
                indication.extend(teid.to_be_bytes());
                indication.extend([133, 0, address.len() as u8]);
                indication.extend(address);
                let ends = [ip.dst, ip.src];
                let frame = Naive::datagram(back, ends, [2152, 2152], 0, 0, &indication);
                made.push(Event::Made(0, frame));
            }
            return Err(Denied::UnknownTeid.into());
        };
        let fate = self.up(&session, packet, tos(ip.bytes), now_ms);
        let problem = match &fate {
            Err((Denied::TtlExpired, _)) => Some(Problem::TtlExpired),
            Err((Denied::TooBig, _)) => Some(Problem::TooBig { mtu: self.mtu[1] as u32 }),
            _ => None,
        };
        fate.map(|frame| (1, frame)).map_err(|(denied, packet)| {
            let error = problem.and_then(|problem| self.icmp(problem, packet));
            let dscp = |error: &[u8]| if error[0] >> 4 == 4 { error[1] >> 2 } else { 0 };
            let tunnel = error.and_then(|error| self.tunnel(&session, &error, 0, dscp(&error)));
            made.extend(tunnel.map(|frame| Event::Made(0, frame)));
            denied.into()
        })
    }

    fn up<'a>(
        &mut self,
        session: &Session,
        mut ip: Ip<'a>,
        outer_tos: u8,
        now_ms: u64,
    ) -> Result<Vec<u8>, (Denied, &'a [u8])> {
        let packet = ip.bytes;
        let denied = |denied| Err((denied, packet));
        let local = |address: IpAddr| matches!(address, IpAddr::V6(a) if a.segments()[0] & 0xffc0 == 0xfe80);
        if local(ip.src) || local(ip.dst) {
            return denied(Denied::LinkLocal);
        }
        if !Naive::has(session, ip.src) {
            return denied(Denied::Spoofed);
        }
        if self.n3.contains(&ip.dst) || Naive::is_in(&self.protected, ip.dst) {
            return denied(Denied::ToControl);
        }
        let group = match ip.dst {
            IpAddr::V4(a) => {
                a.octets()[0] >= 224 || a.octets()[0] == 127 || a == Ipv4Addr::UNSPECIFIED
            }
            IpAddr::V6(a) => {
                a.octets()[0] == 255 || a == Ipv6Addr::UNSPECIFIED || a == Ipv6Addr::LOCALHOST
            }
        };
        if group {
            return denied(Denied::BadDestination);
        }
        if !session.gate.uplink() {
            return denied(Denied::Gate);
        }
        if Naive::ttl(packet) < 2 {
            return denied(Denied::TtlExpired);
        }
        if packet.len() > self.mtu[1] {
            return denied(Denied::TooBig);
        }
        let Some(link) = self.link(1, ip.dst) else { return denied(Denied::NoNextHop) };
        if walk(&mut ip).is_err() {
            return denied(Denied::BrokenInner);
        }
        let hop = Naive::one_hop(packet);
        let Some(marked) = merge_ecn(hop, outer_tos) else { return denied(Denied::Congested) };
        if !self.admit(session, Direction::Up, packet.len(), now_ms) {
            return denied(Denied::RateLimited);
        }
        let kind: [u8; 2] = if ip.src.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
        Ok([&link[..], &kind, &marked].concat())
    }

    fn take_n6(
        &mut self,
        frame: &[u8],
        now_ms: u64,
        made: &mut Vec<Event>,
    ) -> Result<(u16, Vec<u8>), Fate> {
        self.check_link(1, frame)?;
        let ip = outer(frame)?;
        if !Naive::is_in(&self.pools, ip.dst) {
            return Err(Denied::NotTerminal.into());
        }
        let session = self.session_of(ip.dst).ok_or(Denied::UnknownTerminal)?;
        let packet = ip.bytes;
        let mut tell = |naive: &Naive, problem| {
            let error = naive.icmp(problem, packet).zip(naive.link(1, ip.src));
            made.extend(error.map(|(error, link)| {
                let kind: [u8; 2] = if ip.src.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
                Event::Made(1, [&link[..], &kind, &error].concat())
            }));
        };
        if !session.gate.downlink() {
            return Err(Denied::Gate.into());
        }
        if Naive::ttl(packet) < 2 {
            tell(self, Problem::TtlExpired);
            return Err(Denied::TtlExpired.into());
        }
        let room = self.mtu[0] - Naive::overhead(&session);
        if packet.len() > room {
            tell(self, Problem::TooBig { mtu: room as u32 });
            return Err(Denied::TooBig.into());
        }
        let flow = Packet::parse(packet).map_err(|_| Unread)?.flow_hash();
        let tos = u16::from_be_bytes([packet[0], packet[1]]);
        let dscp = if packet[0] >> 4 == 4 { packet[1] >> 2 } else { (tos >> 6) as u8 & 63 };
        let frame = self.tunnel(&session, &Naive::one_hop(packet), flow, dscp);
        let frame = frame.ok_or(Denied::NoNextHop)?;
        if !self.admit(&session, Direction::Down, packet.len(), now_ms) {
            return Err(Denied::RateLimited.into());
        }
        Ok((0, frame))
    }
}
