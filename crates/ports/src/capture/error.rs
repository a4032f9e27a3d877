//! What can be wrong with a capture. Each message is one line: which file, what, where, and what
//! would be right.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a capture cannot be read. Byte positions are those of the uncompressed data.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The file is missing or may not be read.
    #[error("{}: cannot open the capture: {reason}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The system, or the gzip decoder, failed in the middle.
    #[error("{}: cannot read the capture at byte {at}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Bytes read before the failure.
        at: u64,
        /// What the system or the decoder says.
        reason: io::Error,
    },
    /// The file has no bytes.
    #[error("{}: the file is empty, expected a pcap or pcapng capture", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// The first bytes are of no format that we know.
    #[error(
        "{}: not a capture: it starts with {found}, expected pcap or pcapng, plain or gzipped",
        path.display()
    )]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// The first bytes, in hexadecimal.
        found: String,
    },
    /// The data ends inside of something.
    #[error(
        "{}: truncated capture: {part} at byte {at} has {got} of {need} bytes",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What is cut.
        part: Part,
        /// Where it starts.
        at: u64,
        /// How many of its bytes are there.
        got: u64,
        /// How many there should be.
        need: u64,
    },
    /// The data contradicts its format.
    #[error("{}: broken capture: {part} at byte {at}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is broken.
        part: Part,
        /// Where it starts.
        at: u64,
        /// What is wrong and what would be right.
        what: String,
    },
    /// The capture is well formed and holds no packet.
    #[error("{}: the capture holds no packets", path.display())]
    NoPackets {
        /// The file.
        path: PathBuf,
    },
    /// There are packets, but none is an Ethernet frame.
    #[error(
        "{}: no Ethernet frames among the {packets} packets of the capture, only {found}",
        path.display()
    )]
    NoEthernet {
        /// The file.
        path: PathBuf,
        /// Packets seen.
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
        /// The file.
        path: PathBuf,
        /// The first packet that does not fit, from 1.
        packet: u64,
        /// The limit.
        limit_bytes: usize,
    },
}

/// A part of a capture, for messages. Packets count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The header of the file or of a section.
    Header,
    /// Packet number so and so.
    Packet(u64),
    /// A pcapng block that is no packet, after so many packets.
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
