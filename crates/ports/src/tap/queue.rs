//! The two halves of a queue of a TAP interface.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use zerocopy::FromBytes;

use super::device::Device;
use crate::offload::{FRAME_MAX, Segmenter, VnetHeader, complete_checksum, payload_len};
use crate::queue::{
    BURST, PortError, Receive, ReceiveCounters, Received, SendError, Transmit, TransmitCounters,
};
use crate::sys::link::Link;

/// A header, the longest frame, and one byte that reveals a longer one.
const READ_BYTES: usize = VnetHeader::LEN + FRAME_MAX + 1;
/// Bytes for the frames of a burst.
const BURST_BYTES: usize = 2 * READ_BYTES;

pub(super) struct TapReceive {
    device: Arc<Device>,
    link: Arc<Link>,
    /// The frames of the burst, some after their [`VnetHeader`].
    bytes: Vec<u8>,
    /// A super-frame with segments still to come.
    whole: Vec<u8>,
    rest: Option<Segmenter>,
    counters: ReceiveCounters,
}

/// Result of one read.
enum Got {
    Frame(Range<usize>),
    /// A super-frame, now in `whole`.
    Super,
    Unusable,
}

impl TapReceive {
    pub fn new(device: Arc<Device>, link: Arc<Link>) -> TapReceive {
        TapReceive {
            device,
            link,
            bytes: Vec::with_capacity(BURST_BYTES),
            whole: Vec::new(),
            rest: None,
            counters: ReceiveCounters::default(),
        }
    }

    fn read(&mut self) -> io::Result<Got> {
        let start = self.bytes.len();
        let got = self.device.read(&mut self.bytes, READ_BYTES)?;
        let read = &mut self.bytes[start..];
        let Ok((header, frame)) = VnetHeader::read_from_prefix(read) else {
            return Ok(Got::Unusable);
        };
        if frame.is_empty() || got == READ_BYTES {
            return Ok(Got::Unusable);
        }
        if header.gso_type != 0 {
            let Ok(segmenter) = Segmenter::new(frame, &header) else { return Ok(Got::Unusable) };
            self.whole.clear();
            self.whole.extend_from_slice(frame);
            self.bytes.truncate(start);
            self.rest = Some(segmenter);
            return Ok(Got::Super);
        }
        let frame = &mut read[VnetHeader::LEN..];
        if header.flags & VnetHeader::NEEDS_CSUM != 0
            && !complete_checksum(frame, header.csum_start.into(), header.csum_offset.into())
        {
            return Ok(Got::Unusable);
        }
        Ok(Got::Frame(start + VnetHeader::LEN..start + got))
    }
}

impl Receive for TapReceive {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        self.bytes.clear();
        let mut ranges = ArrayVec::<Range<usize>, BURST>::new();
        // Bounded even if all frames are unusable.
        for _ in 0..2 * BURST {
            // Room for the longest frame, so that nothing read moves.
            if ranges.is_full() || self.bytes.capacity() - self.bytes.len() < READ_BYTES {
                break;
            }
            if let Some(segmenter) = &mut self.rest {
                match segmenter.next_segment(&self.whole, &mut self.bytes) {
                    Some(range) => ranges.push(range),
                    None => self.rest = None,
                }
                continue;
            }
            match self.read() {
                Ok(Got::Frame(range)) => ranges.push(range),
                Ok(Got::Super) => {}
                Ok(Got::Unusable) => self.counters.errors += 1,
                Err(e) => match e.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => break,
                    // Gone, or an unknown failure: the link reports it.
                    _ => {
                        self.link.ask();
                        break;
                    }
                },
            }
        }
        if ranges.is_empty() {
            self.link.check()?;
        }
        Ok(ranges.into_iter().map(|range| &self.bytes[range]).collect())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some((*self.device).as_fd())
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.counters
    }
}

/// Sends through one descriptor, one frame at a time.
pub(super) struct TapTransmit {
    device: Arc<Device>,
    link: Arc<Link>,
    counters: TransmitCounters,
}

impl TapTransmit {
    pub fn new(device: Arc<Device>, link: Arc<Link>) -> TapTransmit {
        TapTransmit { device, link, counters: TransmitCounters::default() }
    }
}

impl Transmit for TapTransmit {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        if !self.link.is_up() {
            return Err(SendError::Down);
        }
        if payload_len(frame) > self.link.mtu() {
            return Err(SendError::TooLong);
        }
        loop {
            let Err(e) = self.device.write(frame) else {
                self.counters.sent += 1;
                self.counters.sent_bytes += frame.len() as u64;
                return Ok(());
            };
            match e.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return Err(SendError::Full),
                Some(libc::EIO | libc::EBADFD) => {
                    self.link.ask();
                    return Err(SendError::Down);
                }
                // The kernel refuses the frame as invalid, for example as too short for Ethernet.
                _ => {
                    self.counters.lost += 1;
                    return Ok(());
                }
            }
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.link.check()
    }

    fn counters(&mut self) -> TransmitCounters {
        self.counters
    }
}
