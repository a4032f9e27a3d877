//! Captures as a port: receives frames from one file, sends frames to another.
//!
//! Queue 0 reads; other queues receive nothing. All queues write, each burst as a whole. Frames
//! come as fast as the caller asks, or paced by their timestamps, the first one at once.
//!
//! Frames cut by the capture's snap length, and packets that are not Ethernet, count as errors. A
//! broken capture delivers everything before the break, then one error, then the end.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use arrayvec::ArrayVec;

use crate::capture::{Capture, CaptureStream, LinkType, StreamWriter};
use crate::queue::{
    BURST, Port, PortError, PortInfo, Queue, Receive, ReceiveCounters, Received, SendError,
    Transmit, TransmitCounters,
};

/// Longest payload written.
const MTU: usize = 262_144 - 18;

/// Options of [`open`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapOptions {
    /// Capture to read: pcap or pcapng, plain or gzipped.
    pub input: Option<PathBuf>,
    /// Capture to write; replaced if it exists.
    pub output: Option<PathBuf>,
    /// Deliver each frame at its timestamp, relative to the first one.
    pub pace: bool,
}

pub struct PcapPort {
    info: PortInfo,
    queues: Vec<Queue>,
}

/// Opens the files.
///
/// # Errors
/// One of them cannot be opened, or the input starts with something other than Ethernet.
pub fn open(options: &PcapOptions, name: &str, queues: usize) -> Result<PcapPort, PortError> {
    let unusable = |problem| PortError::Unusable { port: name.to_owned(), problem };
    let mut reader = Reader::new(name, options.pace);
    if let Some(path) = &options.input {
        let capture = Capture::open(path).map_err(|e| unusable(e.to_string()))?;
        reader.begin(capture).map_err(unusable)?;
    }
    let output = match &options.output {
        Some(path) => Some(CaptureStream::create(path).map_err(|e| unusable(e.to_string()))?),
        None => None,
    };
    let mut reader = Some(reader);
    let queues = (0..queues)
        .map(|_| {
            let receive = reader.take().unwrap_or_else(|| Reader::new(name, false));
            let transmit = Writer {
                port: name.to_owned(),
                out: output.as_ref().map(CaptureStream::writer),
                waiting: (0, 0),
                counters: TransmitCounters::default(),
            };
            Queue { receive: Box::new(receive), transmit: Box::new(transmit) }
        })
        .collect();
    let detail = match (&options.input, options.pace) {
        (None, _) => "writes only".to_owned(),
        (Some(_), true) => "reads, paced by timestamps".to_owned(),
        (Some(_), false) => "reads as fast as possible".to_owned(),
    };
    let mtu = MTU as u32;
    let info = PortInfo { name: name.to_owned(), mac: [0; 6], mtu, link_up: true, detail };
    Ok(PcapPort { info, queues })
}

impl Port for PcapPort {
    fn take_queues(&mut self) -> Vec<Queue> {
        std::mem::take(&mut self.queues)
    }

    fn info(&mut self) -> PortInfo {
        self.info.clone()
    }
}

struct Reader {
    port: String,
    capture: Option<Capture>,
    pace: bool,
    /// When the first frame was delivered, and its timestamp.
    began: Option<(Instant, u64)>,
    /// A frame that was read and is not yet due.
    early: Option<(u64, Vec<u8>)>,
    bytes: Vec<u8>,
    /// An error to report after the frames before it.
    broken: Option<PortError>,
    counters: ReceiveCounters,
}

/// Result of one step of reading.
enum Step {
    Frame(Range<usize>),
    Skipped,
    NotDue,
    End,
}

impl Reader {
    fn new(port: &str, pace: bool) -> Reader {
        Reader {
            port: port.to_owned(),
            capture: None,
            pace,
            began: None,
            early: None,
            bytes: Vec::new(),
            broken: None,
            counters: ReceiveCounters::default(),
        }
    }

    /// Reads the first packet, so that a capture of another link type is refused at once.
    fn begin(&mut self, mut capture: Capture) -> Result<(), String> {
        let first = capture.next_packet().map_err(|e| e.to_string())?;
        if let Some(packet) = first {
            if packet.link_type != LinkType::ETHERNET {
                return Err(format!("a capture of {}, expected Ethernet", packet.link_type));
            }
            if (packet.data.len() as u64) < u64::from(packet.orig_len) {
                self.counters.errors += 1;
            } else {
                self.early = Some((packet.timestamp_ns, packet.data.to_vec()));
            }
        }
        self.capture = Some(capture);
        Ok(())
    }

    fn is_due(&mut self, timestamp_ns: u64) -> bool {
        if !self.pace {
            return true;
        }
        let (start, first) = *self.began.get_or_insert_with(|| (Instant::now(), timestamp_ns));
        start.elapsed().as_nanos() >= u128::from(timestamp_ns.saturating_sub(first))
    }

    fn step(&mut self) -> Result<Step, PortError> {
        if let Some((timestamp_ns, frame)) = self.early.take() {
            if !self.is_due(timestamp_ns) {
                self.early = Some((timestamp_ns, frame));
                return Ok(Step::NotDue);
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&frame);
            return Ok(Step::Frame(start..self.bytes.len()));
        }
        let Some(capture) = &mut self.capture else { return Ok(Step::End) };
        let packet = match capture.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => {
                self.capture = None;
                return Ok(Step::End);
            }
            Err(error) => {
                self.capture = None;
                let (port, problem) = (self.port.clone(), error.to_string());
                return Err(PortError::Unusable { port, problem });
            }
        };
        let cut = (packet.data.len() as u64) < u64::from(packet.orig_len);
        if cut || packet.link_type != LinkType::ETHERNET {
            self.counters.errors += 1;
            return Ok(Step::Skipped);
        }
        if self.pace {
            self.early = Some((packet.timestamp_ns, packet.data.to_vec()));
            return Ok(Step::Skipped);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet.data);
        Ok(Step::Frame(start..self.bytes.len()))
    }
}

impl Receive for Reader {
    fn receive(&mut self) -> Result<Received<'_>, PortError> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        self.bytes.clear();
        let mut ranges = ArrayVec::<Range<usize>, BURST>::new();
        // Bounded even if all packets are unusable.
        for _ in 0..8 * BURST {
            if ranges.is_full() {
                break;
            }
            match self.step() {
                Ok(Step::Frame(range)) => ranges.push(range),
                Ok(Step::Skipped) => {}
                Ok(Step::NotDue | Step::End) => break,
                Err(error) if ranges.is_empty() => return Err(error),
                // Deliver the frames before it first.
                Err(error) => {
                    self.broken = Some(error);
                    break;
                }
            }
        }
        Ok(ranges.into_iter().map(|range| &self.bytes[range]).collect())
    }

    fn is_finished(&self) -> bool {
        self.capture.is_none() && self.early.is_none() && self.broken.is_none()
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.counters
    }
}

struct Writer {
    port: String,
    out: Option<StreamWriter>,
    /// Frames and bytes taken since the last flush.
    waiting: (u64, u64),
    counters: TransmitCounters,
}

impl Writer {
    fn settle(&mut self, written: bool) {
        let (frames, bytes) = std::mem::take(&mut self.waiting);
        if written {
            self.counters.sent += frames;
            self.counters.sent_bytes += bytes;
        } else {
            self.counters.lost += frames;
        }
    }
}

impl Transmit for Writer {
    fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        if frame.len() > MTU {
            return Err(SendError::TooLong);
        }
        // Without an output nothing can be sent.
        let Some(out) = &mut self.out else { return Err(SendError::Down) };
        self.waiting.0 += 1;
        self.waiting.1 += frame.len() as u64;
        if out.push(frame).is_err() {
            self.settle(false);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let result = out.flush();
        self.settle(result.is_ok());
        result.map_err(|e| PortError::Unusable { port: self.port.clone(), problem: e.to_string() })
    }

    fn counters(&mut self) -> TransmitCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
