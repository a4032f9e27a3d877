//! Cuts super-frames into the frames that a network card would have made of them.
//!
//! ```text
//! super-frame  │ headers │ payload ········ ········ ········ ···· │
//!                          gso_size gso_size gso_size rest
//! frames       │ headers │ gso_size │   IPv4: length, identification + i, checksum
//!              │ headers │ gso_size │   IPv6: length
//!              │ …                      TCP: sequence number, FIN and PSH in the last one only,
//!                                            CWR in the first one only, checksum
//!                                       UDP: length, checksum
//! ```

use std::ops::Range;

use super::checksum::{TCP_OFFSET, UDP_OFFSET, complete_header_checksum, finish, pseudo, sum};
use super::headers::{self, Headers, TCP, UDP};
use super::{FRAME_MAX, VnetHeader};

/// Why a super-frame cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Neither TCP nor UDP, or a tunnel.
    #[error("a super-frame of an unknown kind")]
    Kind,
    /// The headers are incomplete or of another kind.
    #[error("a super-frame with broken headers")]
    Headers,
    /// The segment length is zero, or longer than the engine takes.
    #[error("a super-frame with an impossible segment length")]
    Size,
}

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Cuts one super-frame, a segment each call. Holds only offsets; each call gets the frame.
#[derive(Clone, Copy, Debug)]
pub struct Segmenter {
    headers: Headers,
    payload: usize,
    end: usize,
    size: usize,
    /// Start of the next segment's payload.
    next: usize,
    index: u16,
    done: bool,
}

impl Segmenter {
    /// Reads the headers of a super-frame. All of `frame` belongs to it, without padding.
    ///
    /// # Errors
    /// It cannot be cut.
    pub fn new(frame: &[u8], vnet: &VnetHeader) -> Result<Segmenter, SegmentError> {
        let (proto, v6) = match vnet.gso_type & !VnetHeader::GSO_ECN {
            VnetHeader::GSO_TCPV4 => (TCP, Some(false)),
            VnetHeader::GSO_TCPV6 => (TCP, Some(true)),
            VnetHeader::GSO_UDP_L4 => (UDP, None),
            _ => return Err(SegmentError::Kind),
        };
        let headers = headers::parse(frame).ok_or(SegmentError::Headers)?;
        let right = headers.proto == proto && v6.is_none_or(|v6| v6 == headers.v6);
        if !right || headers.fragment || headers.odd {
            return Err(SegmentError::Headers);
        }
        let l4 = &frame[headers.l4..];
        let l4_len = match proto {
            TCP => usize::from(l4.get(12).ok_or(SegmentError::Headers)? >> 4) * 4,
            _ => 8,
        };
        let least = if proto == TCP { 20 } else { 8 };
        if l4_len < least || l4.len() < l4_len {
            return Err(SegmentError::Headers);
        }
        let (payload, size) = (headers.l4 + l4_len, usize::from(vnet.gso_size));
        let longest = payload + size.min(frame.len() - payload);
        if size == 0 || longest - headers.l3 > 0xffff || longest > FRAME_MAX {
            return Err(SegmentError::Size);
        }
        let end = frame.len();
        Ok(Segmenter { headers, payload, end, size, next: payload, index: 0, done: false })
    }

    /// Returns the length of the longest segment.
    pub fn segment_len_max(&self) -> usize {
        self.payload + self.size.min(self.end - self.payload)
    }

    /// Appends the next segment of `frame` (which [`Segmenter::new`] read) to `out` and returns its
    /// range; `None` after the last one.
    pub fn next_segment(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Option<Range<usize>> {
        if self.done || frame.len() != self.end {
            return None;
        }
        let chunk = self.next..self.end.min(self.next + self.size);
        let last = chunk.end == self.end;
        let start = out.len();
        out.extend_from_slice(&frame[..self.payload]);
        out.extend_from_slice(&frame[chunk.clone()]);
        self.patch(&mut out[start..], chunk.start - self.payload, last);
        self.next = chunk.end;
        self.index = self.index.wrapping_add(1);
        self.done = last;
        Some(start..out.len())
    }

    fn patch(&self, segment: &mut [u8], offset: usize, last: bool) {
        let h = &self.headers;
        let l3_len = segment.len() - h.l3;
        let ip = &mut segment[h.l3..h.l4];
        if h.v6 {
            ip[4..6].copy_from_slice(&((l3_len - 40) as u16).to_be_bytes());
        } else {
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(self.index);
            ip[2..4].copy_from_slice(&(l3_len as u16).to_be_bytes());
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            complete_header_checksum(ip);
        }
        let l4_len = segment.len() - h.l4;
        let pseudo = pseudo(segment, h, l4_len);
        let l4 = &mut segment[h.l4..];
        let field = if h.proto == TCP {
            let seq = u32::from_be_bytes([l4[4], l4[5], l4[6], l4[7]]).wrapping_add(offset as u32);
            l4[4..8].copy_from_slice(&seq.to_be_bytes());
            l4[13] &= if last { !0 } else { !FIN_PSH };
            l4[13] &= if self.index == 0 { !0 } else { !CWR };
            TCP_OFFSET
        } else {
            l4[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
            UDP_OFFSET
        };
        l4[field..field + 2].fill(0);
        let done = finish(pseudo + sum(l4), h.proto == UDP);
        l4[field..field + 2].copy_from_slice(&done);
    }
}
