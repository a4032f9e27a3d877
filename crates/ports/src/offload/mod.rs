//! Work that the kernel left to hardware, done in software: pure functions of bytes.
//!
//! ```text
//! Ethernet │ VLAN tags │ IPv4 or IPv6 + extensions │ TCP or UDP │ payload
//!          ^ payload_len counts from here            ^ csum_start
//!
//! partial checksum   the field holds the folded sum of the pseudo-header; we add the rest
//! super-frame        headers once, up to 64 KiB of payload; we cut it into frames of gso_size
//! ```
//!
//! A local sender on the other end of a veth pair, or above a TAP interface, passes frames on
//! before that work is done. [`VnetHeader`] is the kernel's description of it. AF_XDP has none;
//! [`complete_checksum_if_partial`] detects it.
//!
//! Cost: one pass over the bytes that a checksum covers; a segment is copied once. Guarantees:
//! total functions; no bytes make them panic; they allocate only in the caller's buffer.
//! Sources: virtio 1.2 section 5.1.6, `skb_checksum_help` and `tcp_gso_segment` of Linux.

mod checksum;
mod headers;
mod segment;

pub(crate) use checksum::complete_header_checksum;
pub use checksum::{complete_checksum, complete_checksum_if_partial};
pub(crate) use headers::parse;
pub use segment::{SegmentError, Segmenter};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest frame that the engine takes; a port counts longer ones as errors.
pub const FRAME_MAX: usize = 262_144;

pub const TAG_LEN: usize = 4;

/// The kernel's description of an unfinished frame: `struct virtio_net_hdr`, in the machine's byte
/// order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct VnetHeader {
    /// [`VnetHeader::NEEDS_CSUM`], and others that need no action.
    pub flags: u8,
    /// 0: an ordinary frame.
    pub gso_type: u8,
    /// Length of all headers; an unused hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Start of the bytes that the checksum covers.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// The checksum is partial.
    pub const NEEDS_CSUM: u8 = 1;
    /// A super-frame of TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// A super-frame of TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// A super-frame of UDP datagrams of equal length.
    pub const GSO_UDP_L4: u8 = 5;
    /// Bit beside the type: only the first segment carries CWR. Our segments all carry it.
    pub const GSO_ECN: u8 = 0x80;
    pub const LEN: usize = size_of::<VnetHeader>();

    /// Returns the header for the frame with a VLAN tag inserted.
    #[must_use]
    pub fn behind_tag(self) -> VnetHeader {
        VnetHeader { csum_start: self.csum_start.wrapping_add(TAG_LEN as u16), ..self }
    }
}

/// A VLAN tag that the kernel passes beside the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Ethernet type of the tag, such as 0x8100.
    pub tpid: u16,
    /// Priority, drop eligibility, VLAN number.
    pub tci: u16,
}

/// Inserts a tag after the addresses of a frame. `room` is [`TAG_LEN`] free bytes and the frame;
/// afterwards all of it is the frame. A frame without whole addresses stays unchanged, and the
/// result is `false`.
pub fn insert_tag(room: &mut [u8], tag: Tag) -> bool {
    if room.len() < TAG_LEN + 12 {
        return false;
    }
    room.copy_within(TAG_LEN..TAG_LEN + 12, 0);
    room[12..14].copy_from_slice(&tag.tpid.to_be_bytes());
    room[14..16].copy_from_slice(&tag.tci.to_be_bytes());
    true
}

/// Returns the number of bytes after Ethernet header and VLAN tags, which the interface's MTU
/// bounds.
pub fn payload_len(frame: &[u8]) -> usize {
    payload_len_of(frame, frame.len())
}

/// Returns the same of a frame of `len` bytes that begins with `head`.
pub fn payload_len_of(head: &[u8], len: usize) -> usize {
    len.saturating_sub(headers::link_len(head))
}

#[cfg(test)]
mod tests;
