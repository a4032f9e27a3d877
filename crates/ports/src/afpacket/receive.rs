//! The receiving half: completes frames of the ring and segments super-frames.

#![allow(unsafe_code)] // Takes frames out of the ring.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::ring::{Raw, Ring};
use crate::offload::{FRAME_MAX, Segmenter, TAG_LEN, VnetHeader, complete_checksum, insert_tag};
use crate::queue::{BURST, PortError, Receive, ReceiveCounters, Received};
use crate::sys::link::Link;
use crate::sys::socket::PacketSocket;

/// Bytes for the segments of one burst: the longest frame, and a burst of jumbo frames.
const SEGMENTS_BYTES: usize = 2 * FRAME_MAX;
/// A pending error makes `poll` return at once; it is cleared after this many empty rounds.
const CLEAR_EVERY: u32 = 64;

#[derive(Clone)]
enum FrameLocation {
    /// In the ring: offset and length.
    Ring(usize, usize),
    /// In `whole`, which holds one frame at a time.
    Whole(Range<usize>),
    /// In `segments`.
    Segments(Range<usize>),
}

/// Receives from one socket.
pub(super) struct Receiver {
    // Unmapped before the socket is closed.
    ring: Ring,
    socket: PacketSocket,
    link: Arc<Link>,
    /// A super-frame with segments still to come.
    rest: Option<(FrameLocation, Segmenter)>,
    segments: Vec<u8>,
    /// A frame that was too long for its slot, after its [`VnetHeader`].
    whole: Vec<u8>,
    empty_rounds: u32,
    counters: ReceiveCounters,
}

impl Receiver {
    pub fn new(socket: PacketSocket, ring: Ring, link: Arc<Link>) -> Receiver {
        Receiver {
            ring,
            socket,
            link,
            rest: None,
            segments: Vec::with_capacity(SEGMENTS_BYTES),
            whole: Vec::new(),
            empty_rounds: 0,
            counters: ReceiveCounters::default(),
        }
    }

    pub fn socket(&self) -> &PacketSocket {
        &self.socket
    }

    /// Completes one frame; returns `None` if it is unusable or a super-frame, now in `rest`.
    fn take(&mut self, raw: Raw) -> Option<FrameLocation> {
        let Raw { at, len, wire_len, vnet, tag, copied } = raw;
        let finished = vnet.flags & VnetHeader::NEEDS_CSUM == 0 && vnet.gso_type == 0;
        if finished && !copied && tag.is_none() && len == wire_len && len > 0 {
            return Some(FrameLocation::Ring(at, len));
        }
        let vnet = if tag.is_some() { vnet.behind_tag() } else { vnet };
        let grown = if tag.is_some() { TAG_LEN } else { 0 };
        let (place, frame) = if copied {
            // A failed read counts as an unusable frame.
            let read = self.read_whole().unwrap_or(0);
            if read == 0 {
                return self.unusable();
            }
            let range = VnetHeader::LEN - grown..VnetHeader::LEN + read;
            (FrameLocation::Whole(range.clone()), &mut self.whole[range])
        } else if len == wire_len {
            let (at, len) = (at - grown, len + grown);
            // SAFETY: the `Raw` was just given, with TAG_LEN free bytes before it.
            (FrameLocation::Ring(at, len), unsafe { self.ring.bytes_mut(at, len) })
        } else {
            return self.unusable();
        };
        if frame.is_empty() || tag.is_some_and(|tag| !insert_tag(frame, tag)) {
            return self.unusable();
        }
        if vnet.gso_type != 0 {
            match Segmenter::new(frame, &vnet) {
                Ok(segmenter) => self.rest = Some((place, segmenter)),
                Err(_) => return self.unusable(),
            }
            return None;
        }
        if frame.len() > FRAME_MAX {
            return self.unusable();
        }
        if vnet.flags & VnetHeader::NEEDS_CSUM != 0
            && !complete_checksum(frame, vnet.csum_start.into(), vnet.csum_offset.into())
        {
            return self.unusable();
        }
        match place {
            // This burst may need `whole` again.
            FrameLocation::Whole(range) => {
                let start = self.segments.len();
                self.segments.extend_from_slice(&self.whole[range]);
                Some(FrameLocation::Segments(start..self.segments.len()))
            }
            place => Some(place),
        }
    }

    fn unusable(&mut self) -> Option<FrameLocation> {
        self.counters.errors += 1;
        None
    }

    /// Reads the frame that did not fit into its slot, and returns its length. The header before it
    /// was in the slot as well; its last bytes leave room for a tag.
    fn read_whole(&mut self) -> io::Result<usize> {
        const { assert!(VnetHeader::LEN >= TAG_LEN) };
        self.whole.resize(VnetHeader::LEN + FRAME_MAX + 1, 0);
        let got = self.socket.read(&mut self.whole)?.len;
        Ok(got.saturating_sub(VnetHeader::LEN))
    }

    /// Returns whether another frame fits into `segments` without moving it.
    fn has_room(&self, len: usize) -> bool {
        self.segments.len() + len <= self.segments.capacity()
    }
}

impl Receive for Receiver {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        // The super-frame may still lie in the ring.
        if self.rest.is_none() {
            self.ring.release();
        }
        self.segments.clear();
        let mut places = ArrayVec::<FrameLocation, BURST>::new();
        while !places.is_full() {
            if let Some((place, segmenter)) = &mut self.rest {
                let len = segmenter.segment_len_max();
                if self.segments.len() + len > self.segments.capacity() {
                    break;
                }
                let frame = match place {
                    // SAFETY: nothing was released since the frame was given.
                    FrameLocation::Ring(at, len) => unsafe { self.ring.bytes(*at, *len) },
                    FrameLocation::Whole(range) => &self.whole[range.clone()],
                    FrameLocation::Segments(_) => &[],
                };
                match segmenter.next_segment(frame, &mut self.segments) {
                    Some(range) => places.push(FrameLocation::Segments(range)),
                    None => self.rest = None,
                }
                continue;
            }
            if !self.has_room(FRAME_MAX) {
                break;
            }
            let Some(raw) = self.ring.next_frame() else { break };
            if let Some(place) = self.take(raw) {
                places.push(place);
            }
        }
        if places.is_empty() {
            self.empty_rounds = self.empty_rounds.wrapping_add(1);
            let up = self.link.check();
            if up.is_err() || self.empty_rounds.is_multiple_of(CLEAR_EVERY) {
                self.socket.take_error();
            }
            up?;
        }
        let frame = |place: &FrameLocation| match place {
            // SAFETY: given since the last release; no one writes while the result is borrowed.
            FrameLocation::Ring(at, len) => unsafe { self.ring.bytes(*at, *len) },
            FrameLocation::Segments(range) => &self.segments[range.clone()],
            FrameLocation::Whole(_) => &[],
        };
        Ok(places.iter().map(frame).collect())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.counters.missed += self.socket.missed();
        self.counters
    }
}
