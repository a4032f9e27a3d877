//! Edits of a copy of a frame.
//!
//! ```text
//!  bytes  | headroom, 128 bytes | frame ...              | unused |
//!         0        start -------^                        ^-- end
//! ```
//!
//! A [`FrameBuf`] holds a copy of a frame and the [`Offsets`] that extraction found. Tags are
//! pushed into the headroom, so the payload never moves. Every write updates the covering checksums
//! by the difference (RFC 1624; CRC32c likewise): a right checksum stays right, a wrong one stays
//! wrong.
//!
//! - Memory: one buffer, grown to the longest frame seen and never beyond [`FRAME_MAX`]; no other
//!   allocation.
//! - A field absent from the frame is left unchanged; so is everything after a broken header.
//! - No panic, even with offsets of another frame: each access is checked.
//! - UDP: checksum 0 (none) stays 0, and a computed 0 is written as 0xffff.
//! - Fragments: the first one carries the checksum of the whole datagram, which follows every
//!   change; later ones have none. SCTP's CRC cannot follow a port written in a first fragment,
//!   since it depends on the datagram's length, and stays unchanged.
//! - IPv6 destinations with routing segments left are not part of the transport checksum.

use crate::checksum;
use crate::edit_key::write_mask;
use crate::extract::{Network, Offsets, Transport, offsets};
use crate::field::Field;
use crate::gtpu::{Encap, Link, Refused};
use crate::ip::{Ends, Packet};
use crate::key::{FRAG_LATER, FlowKey, VLAN_PRESENT};
use crate::proto::{arp, chunk, ethernet, icmp, ipv4, ipv6, number, transport};
use crate::reason::{Congested, DropReason, TtlExpired};

/// Bytes reserved in front of a frame: 32 tags, or the headers of a tunnel.
pub const HEADROOM: usize = 128;

const _: () = assert!(Encap::LEN_MAX <= HEADROOM);

/// Longest frame that a [`FrameBuf`] takes: the longest that tcpdump writes into a capture.
pub const FRAME_MAX: usize = 262_144;

#[derive(Clone, Debug)]
pub struct FrameBuf {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    offsets: Offsets,
}

/// The bits of a field: from bit `shift` up in the number in the `len` bytes at `at`.
#[derive(Clone, Copy)]
struct FieldLocation {
    /// From the frame's start; at an even distance from the start of the header.
    at: usize,
    /// Even, 2 to 16.
    len: usize,
    shift: u32,
    covered: Covered,
}

/// The checksums that cover a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Covered {
    Nothing,
    /// The IPv4 header's.
    Header,
    /// The IPv4 header's, and the transport's through its pseudo-header.
    Address4,
    /// The transport's, through its pseudo-header.
    Address6,
    /// The transport's, as part of its header.
    Transport,
}

impl Default for FrameBuf {
    fn default() -> FrameBuf {
        FrameBuf::new()
    }
}

impl FrameBuf {
    /// Returns an empty buffer with room for a frame of 2 KiB; longer frames make it grow.
    pub fn new() -> FrameBuf {
        FrameBuf::with_frame_len(2048)
    }

    /// Returns an empty buffer with room for frames of up to `frame_len` bytes (at most
    /// [`FRAME_MAX`]).
    pub fn with_frame_len(frame_len: usize) -> FrameBuf {
        FrameBuf {
            bytes: vec![0; HEADROOM + frame_len.min(FRAME_MAX)],
            start: HEADROOM,
            end: HEADROOM,
            offsets: Offsets::default(),
        }
    }

    /// Copies `frame` into the buffer. `offsets` are those that [`crate::extract()`] returned for
    /// it.
    pub fn load(&mut self, frame: &[u8], offsets: Offsets) -> Result<(), DropReason> {
        self.copy(frame)?;
        self.offsets = offsets;
        Ok(())
    }

    /// Copies an IP packet into the buffer, with a new Ethernet header in front of it.
    pub fn load_packet(&mut self, packet: &Packet<'_>, link: &Link) -> Result<(), DropReason> {
        self.copy(packet.bytes())?;
        // The headroom is longer than any link header.
        let dl_type = packet.ends.ethernet_type();
        self.start = link.write(&mut self.bytes, HEADROOM, dl_type).unwrap_or(HEADROOM);
        self.offsets = offsets(self.as_slice())?;
        Ok(())
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) -> Result<(), DropReason> {
        if bytes.len() > FRAME_MAX {
            return Err(DropReason::FrameTooLong);
        }
        (self.start, self.end) = (HEADROOM, HEADROOM + bytes.len());
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        self.bytes[self.start..self.end].copy_from_slice(bytes);
        Ok(())
    }

    /// Puts the headers of a tunnel in front of the frame's IP packet, in place of its Ethernet
    /// header and tags; padding is cut off. See [`Encap::write`] for `flow` and `dscp`.
    ///
    /// # Errors
    /// [`Refused::NotIp`]: the frame has no valid IP packet. [`Refused::TooLong`]: it does not fit
    /// a tunnel. The frame is unchanged.
    pub fn encapsulate(&mut self, encap: &Encap, flow: u64, dscp: u8) -> Result<(), Refused> {
        if !matches!(self.offsets.network, Network::Ip4 | Network::Ip6) {
            return Err(Refused::NotIp);
        }
        let l3 = self.start + usize::from(self.offsets.l3);
        let packet = l3..self.start + self.offsets.end as usize;
        let start = encap.write(&mut self.bytes[..self.end], packet.clone(), flow, dscp)?;
        (self.start, self.end) = (start, packet.end);
        let l3 = encap.outer.link.header_len();
        self.offsets = Offsets {
            l3: l3 as u16,
            network: match encap.outer.ends {
                Ends::V4 { .. } => Network::Ip4,
                Ends::V6 { .. } => Network::Ip6,
            },
            transport: Transport::Udp,
            l4: (l3 + encap.outer.ends.header_len()) as u32,
            end: (self.end - self.start) as u32,
            tags: u8::from(encap.outer.link.vlan.is_some()),
            fragment: false,
            routed: false,
        };
        Ok(())
    }

    /// Returns the frame as it is now.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the offsets of its headers as they are now.
    #[inline]
    pub fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// Writes the bits `mask` of a field and updates the checksums. Returns false, without a
    /// change, if the frame does not have the field or the field is read-only.
    pub fn set_field(&mut self, field: Field, value: u128, mask: u128) -> bool {
        let mask = mask & write_mask(field);
        if field == Field::ArpOp {
            return self.set_arp_op(value, mask);
        }
        let Some(place) = self.place(field) else { return false };
        let Some(old) = self.read(place.at, place.len) else { return false };
        let (value, mask) = ((value & mask) << place.shift, mask << place.shift);
        let new = (old & !mask) | value;
        if new != old {
            self.write(place.at, place.len, new);
            self.update_checksums(place, old, new);
        }
        true
    }

    /// Adds an outer tag with VID and PCP of the tag below, or zeros. Returns false, without a
    /// change, if `tpid` is neither 0x8100 nor 0x88a8, the headroom is used up, or the frame has no
    /// whole Ethernet header.
    pub fn push_vlan(&mut self, tpid: u16) -> bool {
        const LEN: usize = ethernet::TAG_LEN;
        let len = self.end - self.start;
        if !ethernet::is_tpid(tpid) || self.start < LEN || len < ethernet::HEADER_LEN {
            return false;
        }
        let below = if self.offsets.tags > 0 { self.read(ethernet::HEADER_LEN, 2) } else { None };
        let tci = below.unwrap_or(0) as u16 & !VLAN_PRESENT;
        self.bytes.copy_within(self.start..self.start + ethernet::TYPE, self.start - LEN);
        self.start -= LEN;
        self.write(ethernet::TYPE, LEN, u128::from(tpid) << 16 | u128::from(tci));
        self.offsets.tags = (self.offsets.tags + 1).min(ethernet::TAGS_MAX);
        self.offsets.shift(LEN as i32);
        true
    }

    /// Removes the outer tag. Returns false, without a change, if the key knows of none.
    pub fn pop_vlan(&mut self) -> bool {
        const LEN: usize = ethernet::TAG_LEN;
        let len = self.end - self.start;
        if self.offsets.tags == 0 || len < ethernet::HEADER_LEN + LEN {
            return false;
        }
        self.bytes.copy_within(self.start..self.start + ethernet::TYPE, self.start + LEN);
        self.start += LEN;
        self.offsets.tags -= 1;
        self.offsets.shift(-(LEN as i32));
        true
    }

    /// Takes one off the TTL or hop limit; frames other than IP are left as they are. A broken IP
    /// header counts as expired.
    #[inline]
    pub fn dec_ttl(&mut self) -> Result<(), TtlExpired> {
        let at = usize::from(self.offsets.l3);
        let frame = &mut self.bytes[self.start..self.end];
        let header = frame.get_mut(at..).unwrap_or_default();
        match self.offsets.network {
            Network::Ip4 => {
                let bytes: &mut [u8; 4] = header
                    .get_mut(ipv4::TTL..)
                    .and_then(|rest| rest.first_chunk_mut())
                    .filter(|bytes| bytes[0] > 1)
                    .ok_or(TtlExpired)?;
                // TTL, protocol, checksum. The word of the first two falls by 0x100.
                let [ttl, proto, sum @ ..] = *bytes;
                let [a, b] = checksum::update(u16::from_be_bytes(sum), !0x100).to_be_bytes();
                *bytes = [ttl - 1, proto, a, b];
            }
            Network::Ip6 => {
                let limit = header
                    .get_mut(ipv6::HOP_LIMIT)
                    .filter(|limit| **limit > 1)
                    .ok_or(TtlExpired)?;
                *limit -= 1;
            }
            Network::BrokenIp => return Err(TtlExpired),
            Network::None | Network::Arp => {}
        }
        Ok(())
    }

    /// Merges the congestion mark of a tunnel's outer header, given by its type of service, into
    /// the packet that came out of it (RFC 6040, figure 4). Frames other than IP are left as they
    /// are.
    ///
    /// # Errors
    /// The tunnel was congested and the packet cannot say so: it is to be dropped.
    #[inline]
    pub fn merge_ecn(&mut self, outer_tos: u8) -> Result<(), Congested> {
        const NOT_CAPABLE: u8 = 0;
        const CAPABLE_1: u8 = 1;
        const CAPABLE_0: u8 = 2;
        const CONGESTED: u8 = 3;
        let outer = outer_tos & 3;
        // Not capable, as most tunnels, or says nothing new.
        if matches!(outer, NOT_CAPABLE | CAPABLE_0) {
            return Ok(());
        }
        let Some(place) = self.place(Field::NwEcn) else { return Ok(()) };
        let tos = self.read(place.at, place.len).unwrap_or(0) >> place.shift;
        match (tos as u8 & 3, outer) {
            (NOT_CAPABLE, CONGESTED) => return Err(Congested),
            (_, CONGESTED) | (CAPABLE_0, CAPABLE_1) => {
                self.set_field(Field::NwEcn, u128::from(outer), 3);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the bits of a writable field; `None` if the frame does not have it.
    fn place(&self, field: Field) -> Option<FieldLocation> {
        let o = self.offsets;
        let (l3, l4) = (usize::from(o.l3), o.l4 as usize);
        let (ip4, ip6) = (o.network == Network::Ip4, o.network == Network::Ip6);
        let (at, len, shift, covered) = match field {
            Field::DlDst => (0, 6, 0, Covered::Nothing),
            Field::DlSrc => (6, 6, 0, Covered::Nothing),
            Field::VlanTci | Field::VlanVid if o.tags > 0 => (14, 2, 0, Covered::Nothing),
            Field::VlanPcp if o.tags > 0 => (14, 2, 13, Covered::Nothing),
            Field::NwSrc if ip4 => (l3 + ipv4::SRC, 4, 0, Covered::Address4),
            Field::NwDst if ip4 => (l3 + ipv4::DST, 4, 0, Covered::Address4),
            Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha
                if o.network == Network::Arp =>
            {
                let (at, len) = match field {
                    Field::ArpSha => (arp::SHA, 6),
                    Field::ArpSpa => (arp::SPA, 4),
                    Field::ArpTha => (arp::THA, 6),
                    _ => (arp::TPA, 4),
                };
                (l3 + at, len, 0, Covered::Nothing)
            }
            Field::Ipv6Src if ip6 => (l3 + ipv6::SRC, 16, 0, Covered::Address6),
            Field::Ipv6Dst if ip6 && o.routed => (l3 + ipv6::DST, 16, 0, Covered::Nothing),
            Field::Ipv6Dst if ip6 => (l3 + ipv6::DST, 16, 0, Covered::Address6),
            Field::Ipv6Label if ip6 => (l3, 4, 0, Covered::Nothing),
            Field::NwTos | Field::NwEcn if ip4 => (l3, 2, 0, Covered::Header),
            Field::NwTos | Field::NwEcn if ip6 => (l3, 4, 20, Covered::Nothing),
            Field::IpDscp if ip4 => (l3, 2, 2, Covered::Header),
            Field::IpDscp if ip6 => (l3, 4, 22, Covered::Nothing),
            Field::NwTtl if ip4 => (l3 + ipv4::TTL, 2, 8, Covered::Header),
            Field::NwTtl if ip6 => (l3 + ipv6::HOP_LIMIT - 1, 2, 0, Covered::Nothing),
            Field::TpSrc if o.transport.has_ports() => (l4, 2, 0, Covered::Transport),
            Field::TpDst if o.transport.has_ports() => (l4 + 2, 2, 0, Covered::Transport),
            Field::TcpSrc if o.transport == Transport::Tcp => (l4, 2, 0, Covered::Transport),
            Field::TcpDst if o.transport == Transport::Tcp => (l4 + 2, 2, 0, Covered::Transport),
            Field::UdpSrc if o.transport == Transport::Udp => (l4, 2, 0, Covered::Transport),
            Field::UdpDst if o.transport == Transport::Udp => (l4 + 2, 2, 0, Covered::Transport),
            Field::SctpSrc if o.transport == Transport::Sctp => (l4, 2, 0, Covered::Transport),
            Field::SctpDst if o.transport == Transport::Sctp => (l4 + 2, 2, 0, Covered::Transport),
            Field::IcmpType if o.transport == Transport::Icmp => (l4, 2, 8, Covered::Transport),
            Field::IcmpCode if o.transport == Transport::Icmp => (l4, 2, 0, Covered::Transport),
            Field::Icmp6Type if o.transport == Transport::Icmp6 => (l4, 2, 8, Covered::Transport),
            Field::Icmp6Code if o.transport == Transport::Icmp6 => (l4, 2, 0, Covered::Transport),
            Field::NdTarget | Field::NdSll | Field::NdTll if o.transport == Transport::Icmp6 => {
                let (at, len) = nd_place(self.as_slice().get(l4..o.end as usize)?, field)?;
                (l4 + at, len, 0, Covered::Transport)
            }
            _ => return None,
        };
        Some(FieldLocation { at, len, shift, covered })
    }

    /// Writes the ARP opcode, a 16-bit number. The field is its low byte, or zero if it does not
    /// fit. The whole number is written, so that the field reads back.
    fn set_arp_op(&mut self, value: u128, mask: u128) -> bool {
        let at = usize::from(self.offsets.l3) + arp::OP;
        if self.offsets.network != Network::Arp {
            return false;
        }
        let Some(wire) = self.read(at, 2) else { return false };
        let old = if wire <= 0xff { wire } else { 0 };
        if mask != 0 {
            self.write(at, 2, (old & !mask) | (value & mask));
        }
        true
    }

    /// Updates the checksums after a write of `new` over `old` at `place`.
    fn update_checksums(&mut self, place: FieldLocation, old: u128, new: u128) {
        let delta = checksum::delta(old, new);
        if matches!(place.covered, Covered::Header | Covered::Address4) {
            let at = usize::from(self.offsets.l3) + ipv4::CHECKSUM;
            if let Some(stored) = self.read(at, 2) {
                self.write(at, 2, u128::from(checksum::update(stored as u16, delta)));
            }
        }
        let pseudo = matches!(place.covered, Covered::Address4 | Covered::Address6);
        if !pseudo && place.covered != Covered::Transport {
            return;
        }
        let l4 = self.offsets.l4 as usize;
        let transport = match self.offsets.transport {
            Transport::None if pseudo => self.broken_transport(),
            known => known,
        };
        let at = l4
            + match transport {
                Transport::Tcp => transport::tcp::CHECKSUM,
                Transport::Udp => transport::udp::CHECKSUM,
                Transport::Icmp6 => icmp::CHECKSUM,
                Transport::Icmp if !pseudo => icmp::CHECKSUM,
                Transport::Sctp if !pseudo => return self.update_crc(place, old, new),
                Transport::Icmp | Transport::Sctp | Transport::None => return,
            };
        let Some(stored) = self.read(at, 2) else { return };
        let udp = transport == Transport::Udp;
        if udp && stored == 0 {
            return;
        }
        let mut updated = checksum::update(stored as u16, delta);
        if updated == 0 && (udp || self.icmp_is_zero()) {
            updated = 0xffff;
        }
        self.write(at, 2, u128::from(updated));
    }

    /// Returns the transport of a header that extraction refused although it has a checksum: TCP
    /// with an invalid data offset, or ICMPv6 cut short after its checksum.
    #[cold]
    fn broken_transport(&self) -> Transport {
        let (l3, l4) = (usize::from(self.offsets.l3), self.offsets.l4 as usize);
        let bytes = self.as_slice().get(l3..).unwrap_or_default();
        let mut key = FlowKey::default();
        let read = match self.offsets.network {
            Network::Ip4 => ipv4::parse(bytes, &mut key).is_some(),
            Network::Ip6 => ipv6::parse(bytes, &mut key).is_some(),
            Network::None | Network::Arp | Network::BrokenIp => false,
        };
        let len = (self.offsets.end as usize).saturating_sub(l4);
        if !read || key.nw_frag & FRAG_LATER != 0 {
            return Transport::None;
        }
        match key.nw_proto {
            number::TCP if len >= transport::tcp::HEADER_LEN => Transport::Tcp,
            number::ICMP6 if self.offsets.network == Network::Ip6 && len >= icmp::CHECKSUM + 2 => {
                Transport::Icmp6
            }
            _ => Transport::None,
        }
    }

    /// Returns whether an ICMP message is all zeros, which has checksum 0xffff: this tells the two
    /// zeros of ones' complement apart. The other protocols have a pseudo-header.
    #[cold]
    fn icmp_is_zero(&self) -> bool {
        let (l4, end) = (self.offsets.l4 as usize, self.offsets.end as usize);
        let sum = l4 + icmp::CHECKSUM..l4 + icmp::CHECKSUM + 2;
        self.offsets.transport == Transport::Icmp
            && self.as_slice().get(l4..end).is_some_and(|message| {
                message.iter().enumerate().all(|(i, &b)| b == 0 || sum.contains(&(l4 + i)))
            })
    }

    /// Updates the CRC after a write of SCTP ports.
    fn update_crc(&mut self, place: FieldLocation, old: u128, new: u128) {
        let (l4, end) = (self.offsets.l4 as usize, self.offsets.end as usize);
        if self.offsets.fragment {
            return;
        }
        // The ports are the first 32-bit word of the packet.
        let difference = (old ^ new) as u32;
        let difference = if place.at == l4 { difference << 16 } else { difference };
        let at = l4 + transport::sctp::CHECKSUM;
        if let Some(stored) = self.read(at, 4)
            && let Some(following) = end.checked_sub(l4 + 4)
        {
            // Stored with the low byte first.
            let crc = (stored as u32).swap_bytes() ^ checksum::crc32c_delta(difference, following);
            self.write(at, 4, u128::from(crc.swap_bytes()));
        }
    }

    /// Returns the number in the `len` bytes at `at` of the frame; `None` past its end.
    #[inline]
    fn read(&self, at: usize, len: usize) -> Option<u128> {
        let bytes = self.as_slice().get(at..at.checked_add(len)?)?;
        // Nearly every write has two or four bytes.
        Some(match *bytes {
            [a, b] => u128::from(u16::from_be_bytes([a, b])),
            [a, b, c, d] => u128::from(u32::from_be_bytes([a, b, c, d])),
            _ => bytes.iter().fold(0, |number, &b| (number << 8) | u128::from(b)),
        })
    }

    /// Writes a number into the `len` bytes at `at` of the frame; does nothing past its end.
    #[inline]
    fn write(&mut self, at: usize, len: usize, number: u128) {
        let frame = &mut self.bytes[self.start..self.end];
        match (len, frame.get_mut(at..at.saturating_add(len))) {
            (2, Some(bytes)) => bytes.copy_from_slice(&(number as u16).to_be_bytes()),
            (4, Some(bytes)) => bytes.copy_from_slice(&(number as u32).to_be_bytes()),
            (_, Some(bytes)) => bytes.copy_from_slice(&number.to_be_bytes()[16 - len..]),
            (_, None) => {}
        }
    }
}

impl Transport {
    /// Returns whether it has a source and a destination port.
    pub const fn has_ports(self) -> bool {
        matches!(self, Transport::Tcp | Transport::Udp | Transport::Sctp)
    }
}

impl Offsets {
    /// Moves all headers after the tags by `by` bytes.
    fn shift(&mut self, by: i32) {
        self.l3 = self.l3.saturating_add_signed(by as i16);
        if self.l4 != 0 {
            self.l4 = self.l4.saturating_add_signed(by);
            self.end = self.end.saturating_add_signed(by);
        }
    }
}

/// Returns offset and length of a neighbour discovery field in an ICMPv6 message.
fn nd_place(message: &[u8], field: Field) -> Option<(usize, usize)> {
    chunk::<{ icmp::ND_OPTIONS }>(message, 0)?;
    if !icmp::is_nd(message) {
        return None;
    }
    match field {
        Field::NdTarget => Some((icmp::ND_TARGET, 16)),
        Field::NdSll if message[0] == icmp::ND_SOLICIT => {
            Some((icmp::option_at(message, icmp::ND_SLL)?, 6))
        }
        Field::NdTll if message[0] == icmp::ND_ADVERT => {
            Some((icmp::option_at(message, icmp::ND_TLL)?, 6))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
