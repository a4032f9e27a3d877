//! IPv4 packets without options: nearly every one. The short path beside [`crate::ip`] and
//! [`crate::edit`]; the tests hold them equal.
//!
//! Cost: the cache line of the header. Panics: none, on any bytes.

use crate::checksum;
use crate::gtpu::Link;
use crate::ip::{Ends, Packet, flow4};
use crate::proto::{PADDING_MAX, array, be16, be32, chunk, ethernet, ipv4};
use std::net::Ipv4Addr;

/// Length of the header.
pub const HEADER_LEN: usize = ipv4::HEADER_LEN;
/// Length of an Ethernet header and this one.
pub const FRAME_HEADER_LEN: usize = ethernet::HEADER_LEN + HEADER_LEN;

/// An IPv4 packet without options, with valid lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet4<'a> {
    header: &'a [u8; HEADER_LEN],
    /// All of it.
    bytes: &'a [u8],
}

impl<'a> Packet4<'a> {
    /// Reads the packet at the start of `bytes`; `None` if it is another.
    #[inline(always)]
    pub fn of(bytes: &'a [u8]) -> Option<Packet4<'a>> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let bytes = bytes.get(..usize::from(be16(header, 2)))?;
        (header[0] == 0x45 && bytes.len() >= HEADER_LEN).then_some(Packet4 { header, bytes })
    }

    /// Reads the packet of an untagged frame; `None` if it has another.
    #[inline(always)]
    pub fn of_frame(frame: &'a [u8]) -> Option<Packet4<'a>> {
        const TYPE: usize = ethernet::TYPE;
        let head: &[u8; FRAME_HEADER_LEN] = frame.first_chunk()?;
        let packet = Packet4::of(frame.get(ethernet::HEADER_LEN..)?)?;
        let padding = frame.len() - ethernet::HEADER_LEN - packet.bytes.len();
        let usual = be16(head, TYPE) == ethernet::TYPE_IP4 && padding <= PADDING_MAX;
        usual.then_some(packet)
    }

    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4, _>(self.header, ipv4::SRC))
    }

    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4, _>(self.header, ipv4::DST))
    }

    /// Returns the type of service.
    #[inline]
    pub const fn tos(&self) -> u8 {
        self.header[1]
    }

    #[inline]
    pub const fn ttl(&self) -> u8 {
        self.header[ipv4::TTL]
    }

    /// Returns the whole packet.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns what follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    /// Returns the same as a packet of either version.
    pub fn packet(&self) -> Packet<'a> {
        let ends = Ends::V4 { src: self.src(), dst: self.dst() };
        Packet::new(self.bytes, ends, self.tos())
    }

    /// Returns [`Packet::flow_hash`].
    #[inline]
    pub fn flow_hash(&self) -> u64 {
        let (header, payload) = (self.header, self.payload());
        let fragment = be16(header, 6) & ipv4::FRAGMENT != 0;
        let ports = if fragment { None } else { chunk::<4>(payload, 0) };
        flow4(be32(header, ipv4::SRC), be32(header, ipv4::DST), header[9], ports)
    }

    /// Returns the header with a TTL of one less. Its checksum is updated: a wrong one stays wrong.
    /// The TTL is not 0.
    #[inline(always)]
    pub fn next_hop(&self) -> [u8; HEADER_LEN] {
        let mut header = *self.header;
        header[ipv4::TTL] = header[ipv4::TTL].wrapping_sub(1);
        // The word of TTL and protocol falls by 0x100.
        let sum = checksum::update(be16(self.header, ipv4::CHECKSUM), !0x100);
        header[ipv4::CHECKSUM..ipv4::SRC].copy_from_slice(&sum.to_be_bytes());
        header
    }

    /// Returns Ethernet header and [`Packet4::next_hop`]: what a forwarded frame begins with, in
    /// front of [`Packet4::payload`]. `link` has no tag.
    #[inline(always)]
    pub fn forwarded(&self, link: &Link) -> [u8; FRAME_HEADER_LEN] {
        let mut head = [0; FRAME_HEADER_LEN];
        head[..6].copy_from_slice(&link.dst);
        head[6..12].copy_from_slice(&link.src);
        head[ethernet::TYPE..14].copy_from_slice(&ethernet::TYPE_IP4.to_be_bytes());
        head[ethernet::HEADER_LEN..].copy_from_slice(&self.next_hop());
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::Network;
    use crate::testing::frames;
    use crate::{FlowKey, FrameBuf, extract};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        /// What it reads of a frame and writes for the next hop: the same as the general paths.
        #[test]
        fn agrees_with_the_general_paths(frame in frames::mutated()) {
            let Some(packet) = Packet4::of_frame(&frame) else { return Ok(()) };
            let offsets = extract(&frame, 0, &mut FlowKey::default()).expect("a frame");
            prop_assert_eq!((offsets.l3, offsets.network), (14, Network::Ip4));
            let general = Packet::parse(&frame[14..]).expect("a packet");
            prop_assert_eq!(packet.packet(), general);
            prop_assert_eq!(packet.flow_hash(), general.flow_hash());
            if packet.ttl() > 1 {
                let link = Link { dst: [1; 6], src: [2; 6], vlan: None };
                let mut buf = FrameBuf::new();
                buf.load_packet(&general, &link).expect("room");
                buf.dec_ttl().expect("above 1");
                let ours = [&packet.forwarded(&link)[..], packet.payload()].concat();
                prop_assert_eq!(buf.as_slice(), ours);
            }
        }
    }

    #[test]
    fn the_usual_packet_takes_it() {
        let mut frame = vec![0; 60];
        frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 28]);
        assert_eq!(Packet4::of_frame(&frame).map(|packet| packet.payload().len()), Some(8));
        frame[14] = 0x46;
        assert!(Packet4::of_frame(&frame).is_none());
    }
}
