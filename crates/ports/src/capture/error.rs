//! Errors of captures. Each message is one line: the file, what is wrong, where, and what would be
//! right.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a capture cannot be read. Byte positions count uncompressed data.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file is missing or unreadable.
    #[error("{}: cannot open the capture: {reason}", path.display())]
    Open { path: PathBuf, reason: io::Error },
    /// The system or the gzip decoder failed in the middle.
    #[error("{}: cannot read the capture at byte {at}: {reason}", path.display())]
    Read { path: PathBuf, at: u64, reason: io::Error },
    #[error("{}: the file is empty, expected a pcap or pcapng capture", path.display())]
    EmptyFile { path: PathBuf },
    /// The first bytes belong to no known format.
    #[error(
        "{}: not a capture: it starts with {found}, expected pcap or pcapng, plain or gzipped",
        path.display()
    )]
    NotACapture {
        path: PathBuf,
        /// The first bytes, in hexadecimal.
        found: String,
    },
    /// The data ends within a part.
    #[error(
        "{}: truncated capture: {part} at byte {at} has {got} of {need} bytes",
        path.display()
    )]
    Truncated {
        path: PathBuf,
        /// The part that is cut.
        part: Part,
        /// Its start.
        at: u64,
        /// Its bytes present.
        got: u64,
        /// Its full length in bytes.
        need: u64,
    },
    #[error("{}: broken capture: {part} at byte {at}: {what}", path.display())]
    Malformed {
        path: PathBuf,
        /// The broken part.
        part: Part,
        /// Its start.
        at: u64,
        /// What is wrong and what would be right.
        what: String,
    },
    /// The capture is valid but has no packets.
    #[error("{}: the capture holds no packets", path.display())]
    NoPackets { path: PathBuf },
    /// None of the packets is an Ethernet frame.
    #[error(
        "{}: no Ethernet frames among the {packets} packets of the capture, only {found}",
        path.display()
    )]
    NoEthernet {
        path: PathBuf,
        packets: u64,
        /// The link types found, separated by commas.
        found: String,
    },
    /// The frames need more memory than allowed.
    #[error(
        "{}: packet {packet} does not fit into the {limit_bytes} bytes of memory allowed for \
         frames; raise the limit or cut the capture",
        path.display()
    )]
    OverLimit {
        path: PathBuf,
        /// The first packet that does not fit, from 1.
        packet: u64,
        limit_bytes: usize,
    },
}

/// A part of a capture. Packets count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header of the file or of a section.
    Header,
    /// The packet of this number.
    Packet(u64),
    /// A pcapng block that is no packet, after this many packets.
    BlockAfter(u64),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Header => write!(f, "the header"),
            Part::Packet(n) => write!(f, "packet {n}"),
            Part::BlockAfter(0) => write!(f, "a block before the first packet"),
            Part::BlockAfter(n) => write!(f, "the block after packet {n}"),
        }
    }
}
