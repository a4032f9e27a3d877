//! The G-PDU of nearly every packet, read at once, up to the header inside.
//!
//! ```text
//!  | Ethernet 14 | IPv4 20 | UDP 8 | GTP-U 8, or 16 with a container | IPv4 20 | rest
//! ```
//!
//! [`Plain::of`] returns `None` for anything unusual: tags, options, fragments, sequence numbers,
//! other extension headers, IPv6. [`Datagram`](crate::udp::Datagram), [`Message`](super::Message)
//! and [`Packet`](crate::ip::Packet) decide then. The tests hold them equal.
//!
//! Cost: the two cache lines of the headers, and no loop. Panics: none, on any bytes.

use super::extensions::kind;
use super::{Container, E, HEADER_LEN, PN, PORT, S, VERSION, VERSION_MASK, message_type};
use crate::checksum;
use crate::ip4::Packet4;
use crate::proto::{PADDING_MAX, array, be16, be32, chunk, ethernet, ipv4, number, transport::udp};
use std::net::Ipv4Addr;

const L3: usize = ethernet::HEADER_LEN;
const L4: usize = L3 + ipv4::HEADER_LEN;
const GTPU: usize = L4 + udp::HEADER_LEN;
/// Start of the inner packet, without and with a PDU Session Container.
const SHORT: usize = GTPU + HEADER_LEN;
const LONG: usize = SHORT + 8;

/// A G-PDU over IPv4 with an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain<'a> {
    /// Of the outer header.
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub tos: u8,
    pub teid: u32,
    pub packet: Packet4<'a>,
}

impl<'a> Plain<'a> {
    /// Reads a frame.
    #[inline(always)]
    pub fn of(frame: &'a [u8]) -> Option<Plain<'a>> {
        let head: &[u8; SHORT + ipv4::HEADER_LEN] = frame.first_chunk()?;
        let outer = &array::<{ ipv4::HEADER_LEN }, _>(head, L3);
        let end = L3 + usize::from(be16(head, L3 + 2));
        let udp_end = L4 + usize::from(be16(head, L4 + 4));
        let message_end = SHORT + usize::from(be16(head, GTPU + 2));
        // Version 4 without options; not a fragment; UDP to our port; a G-PDU. Each length is
        // within the one around it, and a frame shorter than `end` wraps to a padding that is far
        // too long.
        let usual = be32(head, ethernet::TYPE) & 0xffff_ff00 == 0x0800_4500
            && be16(head, L3 + 6) & ipv4::FRAGMENT == 0
            && head[L3 + 9] == number::UDP
            && be16(head, L4 + 2) == PORT
            && head[GTPU] & VERSION_MASK == VERSION
            && head[GTPU + 1] == message_type::G_PDU
            && message_end <= udp_end
            && udp_end <= end
            && frame.len().wrapping_sub(end) <= PADDING_MAX
            && checksum::is_right(outer);
        if !usual {
            return None;
        }
        let at = match head[GTPU] & (E | S | PN) {
            0 => SHORT,
            // No sequence number to read: its field is skipped.
            E => {
                let optional = chunk::<8>(frame, SHORT)?;
                let [_, _, _, kind::PDU_SESSION, 1, content @ .., kind::NONE] = optional else {
                    return None;
                };
                Container::is_valid(content).then_some(LONG)?
            }
            _ => return None,
        };
        Some(Plain {
            src: Ipv4Addr::from(array::<4, _>(head, L3 + ipv4::SRC)),
            dst: Ipv4Addr::from(array::<4, _>(head, L3 + ipv4::DST)),
            tos: head[L3 + 1],
            teid: be32(head, GTPU + 4),
            packet: Packet4::of(frame.get(at..message_end)?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gtpu::{Body, Message, PORT};
    use crate::ip::{Ends, Packet};
    use crate::testing::internet_checksum;
    use crate::udp::Datagram;
    use proptest::prelude::*;

    /// What the general readers say of a frame: source, destination, TEID, type of service, packet.
    fn general(frame: &[u8]) -> Option<(Ends, u32, u8, Packet<'_>)> {
        let datagram = Datagram::general(frame, PORT).ok()?;
        let message = Message::parse(datagram.payload()).ok()?;
        let Body::GPdu(packet) = message.body else { return None };
        Some((datagram.ends, message.teid, datagram.tos, Packet::parse(packet).ok()?))
    }

    fn seal(frame: &mut [u8]) {
        frame[24..26].fill(0);
        let sum = internet_checksum(&frame[L3..L4]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }

    /// A frame with a packet in a tunnel, and perhaps a container.
    fn usual(container: Option<[u8; 2]>, payload: &[u8]) -> Vec<u8> {
        let len = 28 + payload.len() as u8;
        let head = [0x45, 4, 0, len, 0, 0, 0, 0, 64, 17, 0, 0, 10, 45, 0, 2, 192, 0, 2, 80];
        let inner = [&head[..], &[19, 136, 0, 53, 0, len - 20, 0, 0], payload].concat();
        let optional = container.map(|[a, b]| [0, 0, 0, 0x85, 1, a, b, 0]);
        let optional = optional.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        let len = (optional.len() + inner.len()) as u16;
        let flags = if optional.is_empty() { 0x30 } else { 0x34 };
        let [a, b] = len.to_be_bytes();
        let udp_len = 16 + len;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0];
        frame.extend((20 + udp_len).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 7, 192, 0, 2, 1]);
        frame.extend([8, 104, 8, 104].into_iter().chain(udp_len.to_be_bytes()).chain([0, 0]));
        frame.extend([flags, 255, a, b, 1, 2, 3, 4].iter().chain(optional).chain(&inner));
        seal(&mut frame);
        frame
    }

    #[test]
    fn the_usual_frames_take_it() {
        for container in [None, Some([0, 9]), Some([0x10, 9]), Some([0, 0x49])] {
            let frame = usual(container, b"abcd");
            let plain = Plain::of(&frame).expect("usual");
            assert_eq!((plain.teid, plain.packet.bytes().len()), (0x0102_0304, 32));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        /// Whatever is changed in a frame: what this reader reads, the general ones read alike.
        #[test]
        fn agrees_with_the_general_readers(
            container in prop::option::of(any::<[u8; 2]>()),
            payload in prop::collection::vec(any::<u8>(), 0..20),
            changes in prop::collection::vec((0usize..100, any::<u8>()), 0..4),
            len in prop::option::weighted(0.3, 0usize..140),
            sealed: bool,
        ) {
            let mut frame = usual(container, &payload);
            for (at, byte) in changes {
                if let Some(old) = frame.get_mut(at) {
                    *old = byte;
                }
            }
            if sealed {
                seal(&mut frame);
            }
            if let Some(len) = len {
                frame.resize(len, 0);
            }
            if let Some(plain) = Plain::of(&frame) {
                let ends = Ends::V4 { src: plain.src, dst: plain.dst };
                let expected = Some((ends, plain.teid, plain.tos, plain.packet.packet()));
                prop_assert_eq!(general(&frame), expected);
            }
        }
    }
}
