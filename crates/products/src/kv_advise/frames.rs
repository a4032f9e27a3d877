//! The TCP segments to a port in the packets of a capture.
//!
//! Ethernet with up to two VLAN tags, Linux cooked captures (`tcpdump -i any`) and raw IP; IPv4 and
//! IPv6. A packet that a snap length has cut is filled up, so that its length counts and what is
//! missing is known.

use overbank_ports::capture::LinkType;
use overbank_wire::extract::{Network, Transport};
use overbank_wire::{FlowKey, extract};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

/// Longest packet that is looked at.
const PACKET_MAX: usize = 1 << 17;
const ETHERNET_LEN: usize = 14;
const FIN: u16 = 1;
const SYN: u16 = 1 << 1;
const RST: u16 = 1 << 2;

/// Packets of captures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    pub packets: u64,
    /// TCP segments to the port.
    pub segments: u64,
    /// Packets of a link type that is not read.
    pub other_links: u64,
    /// Fragments of IP packets, which are not put together.
    pub fragments: u64,
    /// Segments that a snap length has cut.
    pub cut_short: u64,
}

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Hash of both ends and the VLAN.
    pub stream: u64,
    pub seq: u32,
    pub syn: bool,
    /// FIN or RST.
    pub ends: bool,
    pub payload: &'a [u8],
    /// Bytes of the payload behind these that the capture lacks.
    pub missing: usize,
}

/// Finds segments to a port.
#[derive(Debug)]
pub struct Frames {
    port: u16,
    pub packets: Packets,
    scratch: Vec<u8>,
}

impl Frames {
    pub fn new(port: u16) -> Frames {
        Frames { port, packets: Packets::default(), scratch: Vec::new() }
    }

    /// Returns the segment in a packet, if it goes to the port.
    pub fn segment<'a>(
        &'a mut self,
        link: LinkType,
        data: &'a [u8],
        orig_len: u32,
    ) -> Option<Segment<'a>> {
        self.packets.packets += 1;
        let missing = (orig_len as usize).saturating_sub(data.len());
        let frame = match link {
            LinkType::ETHERNET if missing == 0 => data,
            _ => {
                let Some((head, rest)) = ethernet(link, data) else {
                    self.packets.other_links += 1;
                    return None;
                };
                self.scratch.clear();
                self.scratch.extend_from_slice(&head);
                self.scratch.extend_from_slice(rest);
                let whole = self.scratch.len().saturating_add(missing);
                self.scratch.resize(whole.min(PACKET_MAX.max(self.scratch.len())), 0);
                &self.scratch
            }
        };
        let held = frame.len() - missing.min(frame.len());
        let mut key = FlowKey::default();
        let at = extract(frame, 0, &mut key).ok()?;
        if at.fragment {
            self.packets.fragments += 1;
            return None;
        }
        if at.transport != Transport::Tcp || key.tp_dst != self.port {
            return None;
        }
        let l4 = at.l4 as usize;
        let payload = l4 + usize::from(frame.get(l4 + 12)? >> 4) * 4;
        let seq = u32::from_be_bytes(frame.get(l4 + 4..l4 + 8)?.try_into().ok()?);
        let bytes = frame.get(payload..at.end as usize)?;
        let here = held.saturating_sub(payload).min(bytes.len());
        self.packets.segments += 1;
        self.packets.cut_short += u64::from(here < bytes.len());
        let is_six = at.network == Network::Ip6;
        Some(Segment {
            stream: stream(&key, is_six),
            seq,
            syn: key.tcp_flags & SYN != 0,
            ends: key.tcp_flags & (FIN | RST) != 0,
            payload: bytes.get(..here)?,
            missing: bytes.len() - here,
        })
    }
}

/// Returns an Ethernet header for a packet, and what follows it.
fn ethernet(link: LinkType, data: &[u8]) -> Option<([u8; ETHERNET_LEN], &[u8])> {
    let mut head = [0; ETHERNET_LEN];
    let (kind, rest) = match link.0 {
        1 => {
            head.copy_from_slice(data.get(..ETHERNET_LEN)?);
            return Some((head, data.get(ETHERNET_LEN..)?));
        }
        12 | 14 | 101 | 228 | 229 => match data.first()? >> 4 {
            4 => ([0x08, 0x00], data),
            6 => ([0x86, 0xdd], data),
            _ => return None,
        },
        113 => (data.get(14..16)?.try_into().ok()?, data.get(16..)?),
        276 => (data.get(..2)?.try_into().ok()?, data.get(20..)?),
        _ => return None,
    };
    head[12..].copy_from_slice(&kind);
    Some((head, rest))
}

/// Returns the hash of a stream's ends. Those that seem to be one are at worst counted together.
fn stream(key: &FlowKey, is_six: bool) -> u64 {
    let mut ends = [0; 40];
    if is_six {
        ends[..16].copy_from_slice(&key.ipv6_src);
        ends[16..32].copy_from_slice(&key.ipv6_dst);
    } else {
        ends[..4].copy_from_slice(&key.nw_src.to_be_bytes());
        ends[16..20].copy_from_slice(&key.nw_dst.to_be_bytes());
    }
    ends[32..34].copy_from_slice(&key.tp_src.to_be_bytes());
    ends[34..36].copy_from_slice(&key.tp_dst.to_be_bytes());
    ends[36] = u8::from(is_six);
    xxh3_64(&ends)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a frame with a TCP segment from a port to 6379, behind VLAN tags.
    pub fn frame(v6: bool, tags: usize, from: u16, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in 0..tags {
            frame.extend([[0x88, 0xa8], [0x81, 0x00]][usize::from(tag + 1 == tags)]);
            frame.extend([0, 7]);
        }
        let tcp_len = (20 + payload.len()) as u16;
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(tcp_len.to_be_bytes());
            frame.extend([6, 64]);
            frame.extend([[1; 16], [2; 16]].concat());
        } else {
            frame.extend([0x08, 0x00, 0x45, 0]);
            frame.extend((20 + tcp_len).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        frame.extend(from.to_be_bytes());
        frame.extend(6379u16.to_be_bytes());
        frame.extend(seq.to_be_bytes());
        frame.extend([0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn segments_are_found_behind_tags_and_over_both_versions() {
        let mut seen = Vec::new();
        for v6 in [false, true] {
            for tags in 0..3 {
                let mut bytes = frame(v6, tags, 99, 7, 2, b"PING\r\n");
                let len = bytes.len() as u32;
                if !v6 && tags == 0 {
                    // Padding is no payload.
                    bytes.extend([0; 6]);
                }
                let mut frames = Frames::new(6379);
                let segment = frames.segment(LinkType::ETHERNET, &bytes, bytes.len() as u32);
                let segment = segment.unwrap();
                assert_eq!((segment.seq, segment.syn, segment.ends), (7, true, false));
                assert_eq!((segment.payload, segment.missing), (&b"PING\r\n"[..], 0));
                seen.push(segment.stream);
                // Cut within the payload.
                let cut = &bytes[..len as usize - 4];
                let segment = frames.segment(LinkType::ETHERNET, cut, len).unwrap();
                assert_eq!((segment.payload, segment.missing), (&b"PI"[..], 4));
                assert_eq!((frames.packets.segments, frames.packets.cut_short), (2, 1));
                assert!(Frames::new(80).segment(LinkType::ETHERNET, cut, len).is_none());
            }
        }
        assert!(seen[..3].iter().all(|one| *one == seen[0]) && seen[0] != seen[3]);
    }

    #[test]
    fn other_links_are_read_or_counted() {
        let bytes = frame(false, 0, 99, 7, 0x10, b"x");
        let mut cooked = vec![0; 14];
        cooked.extend(&bytes[12..]);
        let mut cooked2 = bytes[12..14].to_vec();
        cooked2.extend([0; 18]);
        cooked2.extend(&bytes[14..]);
        let mut frames = Frames::new(6379);
        for (link, data) in [(101, &bytes[14..]), (113, &cooked), (276, &cooked2)] {
            let segment = frames.segment(LinkType(link), data, data.len() as u32).unwrap();
            assert_eq!(segment.payload, b"x", "{link}");
        }
        assert!(frames.segment(LinkType(105), &bytes, bytes.len() as u32).is_none());
        assert_eq!((frames.packets.packets, frames.packets.other_links), (4, 1));
    }

    proptest! {
        #[test]
        fn any_packet_is_read_or_passed_over(
            mut bytes: Vec<u8>, start in 0..4usize, link: u16, more: u32, cut in 0..80usize,
        ) {
            if start > 0 {
                let mut good = frame(start > 1, start - 1, 1, 2, 0x18, &bytes);
                good.truncate(good.len() - cut.min(good.len()));
                if let Some(byte) = good.get_mut(cut) {
                    *byte ^= more as u8;
                }
                bytes = good;
            }
            for link in [1, 101, 113, 276, link] {
                let mut frames = Frames::new(6379);
                _ = frames.segment(LinkType(link), &bytes, bytes.len() as u32);
                _ = frames.segment(LinkType(link), &bytes, more);
            }
        }
    }
}
