//! Reads packet captures: pcap (µs and ns, both byte orders) and pcapng, plain or gzipped.
//!
//! ```text
//! pcap    header 24 bytes: magic, version, 2 × 0, snaplen, link type
//!         then per packet: seconds, fraction, captured length, original length │ data
//! pcapng  blocks: type, length │ body, padded to 4 bytes │ length again   (see `pcapng.rs`)
//! ```
//!
//! Cost: one copy from the read buffer (256 KiB) into the packet buffer. Guarantees: no bytes make
//! it panic. Memory is bounded by [`CAPTURED_LEN_MAX`] plus options whatever a length field claims,
//! and by [`Limits`] for [`read_ethernet`]. Every packet is delivered, or an error names the first
//! that is not. A capture that ends within a record is an error: part of the traffic is missing,
//! and a caller that compares results must know.
//!
//! This is a separate reader because `pcap-file` 2.0 refuses captures cut by a snap length
//! (original length above snaplen), ignores pcapng's timestamp resolution, keeps the padding of
//! simple packet blocks, and fails on options that are not UTF-8. The tests use it as an oracle.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::pcapng::{self, Section};
use super::{CaptureError, LinkType, Part};
use crate::memory::{FrameStore, Limits, StoreFull};

/// Most bytes of one packet, as in libpcap and Wireshark; a longer one means a broken file.
pub const CAPTURED_LEN_MAX: u32 = 262_144;

/// Bytes read ahead.
const BUFFER_BYTES: usize = 1 << 16;

/// One packet of a capture; borrows the buffer of its [`Capture`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970; 0 where the format has none (simple packet blocks).
    pub timestamp_ns: u64,
    /// Index of the interface in its section, from 0; always 0 in pcap.
    pub interface: u32,
    /// Protocol of the first byte of `data`.
    pub link_type: LinkType,
    /// Length on the wire in bytes; more than `data.len()` if a snap length cut the packet.
    pub orig_len: u32,
    pub data: &'a [u8],
}

/// The header of a record; `data` is a range of the buffer.
pub(super) struct Record {
    pub timestamp_ns: u64,
    pub interface: u32,
    pub link_type: LinkType,
    pub orig_len: u32,
    pub data: Range<usize>,
}

enum Format {
    Pcap { big_endian: bool, nanoseconds: bool, link_type: LinkType },
    PcapNg(Section),
}

/// An open capture, read from front to back.
pub struct Capture {
    source: Source,
    format: Format,
}

/// The bytes of a capture and the position in them.
pub(super) struct Source {
    input: Box<dyn BufRead + Send>,
    path: PathBuf,
    pub at: u64,
    /// Packets returned so far.
    pub packets: u64,
    /// The record being read; grows to the largest one.
    pub buf: Vec<u8>,
}

impl Capture {
    /// Opens a capture and reads its header.
    pub fn open(path: impl AsRef<Path>) -> Result<Capture, CaptureError> {
        let path = path.as_ref();
        match File::open(path) {
            Ok(file) => Capture::from_reader(file, path),
            Err(reason) => Err(CaptureError::Open { path: path.into(), reason }),
        }
    }

    /// Reads a capture from any source; messages name it `name`.
    pub fn from_reader(
        reader: impl Read + Send + 'static,
        name: impl AsRef<Path>,
    ) -> Result<Capture, CaptureError> {
        let mut reader = reader;
        let path = name.as_ref().to_path_buf();
        // A pipe may deliver the first byte alone.
        let mut head = Vec::with_capacity(2);
        let got = reader.by_ref().take(2).read_to_end(&mut head);
        got.map_err(|reason| CaptureError::Open { path: path.clone(), reason })?;
        let gzipped = head == [0x1f, 0x8b];
        let input = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(head).chain(reader));
        let input: Box<dyn BufRead + Send> = if gzipped {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input)))
        } else {
            Box::new(input)
        };
        let mut source = Source { input, path, at: 0, packets: 0, buf: Vec::new() };
        let format = source.file_header()?;
        Ok(Capture { source, format })
    }

    /// Returns the next packet; `None` at the end. After an error the position is undefined.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        let record = match &mut self.format {
            Format::Pcap { big_endian, nanoseconds, link_type } => {
                self.source.pcap_record(*big_endian, *nanoseconds, *link_type)?
            }
            Format::PcapNg(section) => pcapng::next_record(&mut self.source, section)?,
        };
        Ok(record.map(|r| Packet {
            timestamp_ns: r.timestamp_ns,
            interface: r.interface,
            link_type: r.link_type,
            orig_len: r.orig_len,
            data: &self.source.buf[r.data],
        }))
    }

    /// Reads all Ethernet frames into memory; see [`read_ethernet`].
    pub fn into_ethernet(mut self, limits: &Limits) -> Result<FrameStore, CaptureError> {
        let mut store = FrameStore::with_limits(*limits);
        let mut others = BTreeSet::new();
        let mut packet = 0;
        loop {
            let full = match self.next_packet()? {
                None => break,
                Some(p) if p.link_type != LinkType::ETHERNET => {
                    others.insert(p.link_type);
                    store.count_skipped();
                    None
                }
                Some(p) => {
                    if (p.data.len() as u64) < u64::from(p.orig_len) {
                        store.count_cut_short();
                    }
                    store.push(p.data, p.interface, p.timestamp_ns).err()
                }
            };
            packet += 1;
            if let Some(StoreFull { limit_bytes }) = full {
                let path = self.source.path;
                return Err(CaptureError::OverLimit { path, packet, limit_bytes });
            }
        }
        let path = self.source.path;
        if packet == 0 {
            return Err(CaptureError::NoPackets { path });
        }
        if store.is_empty() {
            let mut found: Vec<_> = others.iter().take(8).map(LinkType::to_string).collect();
            if others.len() > found.len() {
                found.push(format!("{} more", others.len() - found.len()));
            }
            return Err(CaptureError::NoEthernet {
                path,
                packets: packet,
                found: found.join(", "),
            });
        }
        Ok(store)
    }
}

/// Reads all Ethernet frames of a capture into memory.
///
/// Packets of other link types are left out and counted ([`FrameStore::skipped`]). Frames cut by a
/// snap length are kept and counted ([`FrameStore::cut_short`]).
pub fn read_ethernet(path: impl AsRef<Path>, limits: &Limits) -> Result<FrameStore, CaptureError> {
    Capture::open(path)?.into_ethernet(limits)
}

impl Source {
    fn file_header(&mut self) -> Result<Format, CaptureError> {
        let got = self.fill(4, Part::Header)?;
        if got == 0 {
            return Err(CaptureError::EmptyFile { path: self.path.clone() });
        }
        let (big_endian, nanoseconds) = match self.buf[..got] {
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, false),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, true),
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, false),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, true),
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                return pcapng::first_section(self).map(Format::PcapNg);
            }
            _ => {
                let hex: Vec<_> = self.buf[..got].iter().map(|b| format!("{b:02x}")).collect();
                let (path, found) = (self.path.clone(), hex.join(" "));
                return Err(CaptureError::NotACapture { path, found });
            }
        };
        self.fill_all(20, 4, Part::Header)?;
        // The upper half of this word describes frame check sequences.
        let link_type = LinkType(self.u32(16, big_endian) as u16);
        Ok(Format::Pcap { big_endian, nanoseconds, link_type })
    }

    fn pcap_record(
        &mut self,
        big_endian: bool,
        nanoseconds: bool,
        link_type: LinkType,
    ) -> Result<Option<Record>, CaptureError> {
        const HEADER: usize = 16;
        let part = Part::Packet(self.packets + 1);
        match self.fill(HEADER, part)? {
            0 => return Ok(None),
            HEADER => {}
            got => return Err(self.truncated(part, got, HEADER)),
        }
        let [seconds, fraction, captured, orig_len] =
            [0, 4, 8, 12].map(|at| self.u32(at, big_endian));
        if captured > CAPTURED_LEN_MAX {
            return Err(self.malformed(part, HEADER, length_message(captured)));
        }
        self.fill_all(captured as usize, HEADER, part)?;
        self.packets += 1;
        let unit = if nanoseconds { 1 } else { 1000 };
        Ok(Some(Record {
            timestamp_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit,
            interface: 0,
            link_type,
            orig_len,
            data: 0..captured as usize,
        }))
    }

    /// Reads up to `len` bytes to the front of the buffer; fewer only at the end of the data.
    pub fn fill(&mut self, len: usize, part: Part) -> Result<usize, CaptureError> {
        if self.buf.len() < len {
            self.buf.resize(len, 0);
        }
        let mut got = 0;
        while got < len {
            match self.input.read(&mut self.buf[got..len]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.at += got as u64;
                    return Err(self.failed(e, part, got, len));
                }
            }
        }
        self.at += got as u64;
        Ok(got)
    }

    /// Reads exactly `len` bytes of something of which `before` bytes were read.
    pub fn fill_all(&mut self, len: usize, before: usize, part: Part) -> Result<(), CaptureError> {
        match self.fill(len, part)? {
            got if got < len => Err(self.truncated(part, before + got, before + len)),
            _ => Ok(()),
        }
    }

    /// Skips `len` bytes; `need` is the length of the whole part.
    pub fn skip(
        &mut self,
        len: u64,
        before: usize,
        need: usize,
        part: Part,
    ) -> Result<(), CaptureError> {
        let result = io::copy(&mut self.input.by_ref().take(len), &mut io::sink());
        match result {
            Ok(got) => {
                self.at += got;
                if got < len {
                    return Err(self.truncated(part, before + got as usize, need));
                }
                Ok(())
            }
            Err(e) => Err(self.failed(e, part, before, need)),
        }
    }

    /// Returns the 32 bits at `at` of the buffer.
    pub fn u32(&self, at: usize, big_endian: bool) -> u32 {
        let bytes = self.buf[at..at + 4].try_into().expect("four bytes");
        if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Returns the 16 bits at `at` of the buffer.
    pub fn u16(&self, at: usize, big_endian: bool) -> u16 {
        let bytes = self.buf[at..at + 2].try_into().expect("two bytes");
        if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    /// Returns the error of failed input; an early end of compressed data counts as truncation.
    fn failed(&self, reason: io::Error, part: Part, got: usize, need: usize) -> CaptureError {
        if reason.kind() == io::ErrorKind::UnexpectedEof {
            return self.truncated(part, got, need);
        }
        CaptureError::Read { path: self.path.clone(), at: self.at, reason }
    }

    pub fn truncated(&self, part: Part, got: usize, need: usize) -> CaptureError {
        let (got, need) = (got as u64, need as u64);
        let at = self.at.saturating_sub(got);
        CaptureError::Truncated { path: self.path.clone(), part, at, got, need }
    }

    /// Returns the error of a wrong `part`, of which `read` bytes were read.
    pub fn malformed(&self, part: Part, read: usize, what: String) -> CaptureError {
        let at = self.at.saturating_sub(read as u64);
        CaptureError::Malformed { path: self.path.clone(), part, at, what }
    }
}

pub(super) fn length_message(captured: u32) -> String {
    format!("a captured length of {captured} bytes, expected at most {CAPTURED_LEN_MAX}")
}
