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
//! A local sender on the other end of a veth pair, or above a TAP interface, hands frames over
//! before the work is done. [`VnetHeader`] is what the kernel tells about them; AF_XDP tells
//! nothing, for which there is [`complete_checksum_if_partial`].
//!
//! Cost: one pass over the bytes that a checksum covers; a segment is copied once. Guarantees: total
//! functions, no panic for any bytes, no allocation but the caller's buffer.
//! Sources: virtio 1.2 section 5.1.6, `skb_checksum_help` and `tcp_gso_segment` of Linux.

mod checksum;
mod headers;
mod segment;

pub(crate) use checksum::complete_header_checksum;
pub use checksum::{complete_checksum, complete_checksum_if_partial};
pub(crate) use headers::parse;
pub use segment::{SegmentError, Segmenter};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest frame that the engine takes; a port counts a longer one as an error.
pub const FRAME_MAX: usize = 262_144;

/// Bytes of a VLAN tag.
pub const TAG_LEN: usize = 4;

/// What the kernel says about a frame that it did not finish: `struct virtio_net_hdr`, in the byte
/// order of the machine.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct VnetHeader {
    /// [`VnetHeader::NEEDS_CSUM`] and others that need nothing done.
    pub flags: u8,
    /// 0: an ordinary frame.
    pub gso_type: u8,
    /// Length of all headers, a hint that we do not need.
    pub hdr_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Where the bytes that the checksum covers begin.
    pub csum_start: u16,
    /// Where the checksum field is, from `csum_start`.
    pub csum_offset: u16,
}

impl VnetHeader {
    /// The checksum is partial.
    pub const NEEDS_CSUM: u8 = 1;
    /// A super-frame of TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// A super-frame of TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// A super-frame of UDP datagrams of the same length.
    pub const GSO_UDP_L4: u8 = 5;
    /// Bit beside the type: the first segment alone carries CWR. Our cutting does so for all.
    pub const GSO_ECN: u8 = 0x80;
    /// Bytes.
    pub const LEN: usize = size_of::<VnetHeader>();

    /// The same header for the frame with a VLAN tag put in.
    #[must_use]
    pub fn behind_tag(self) -> VnetHeader {
        VnetHeader { csum_start: self.csum_start.wrapping_add(TAG_LEN as u16), ..self }
    }
}

/// A VLAN tag that travelled beside its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Ethernet type of the tag, such as 0x8100.
    pub tpid: u16,
    /// Priority, drop eligibility, VLAN number.
    pub tci: u16,
}

/// Puts a tag behind the addresses of a frame. `room` is the frame with [`TAG_LEN`] free bytes in
/// front, all of which is the frame afterwards. A frame without whole addresses stays as it is,
/// and the answer is `false`.
pub fn insert_tag(room: &mut [u8], tag: Tag) -> bool {
    if room.len() < TAG_LEN + 12 {
        return false;
    }
    room.copy_within(TAG_LEN..TAG_LEN + 12, 0);
    room[12..14].copy_from_slice(&tag.tpid.to_be_bytes());
    room[14..16].copy_from_slice(&tag.tci.to_be_bytes());
    true
}

/// Bytes behind the Ethernet header and the VLAN tags: what the MTU of an interface bounds.
pub fn payload_len(frame: &[u8]) -> usize {
    frame.len().saturating_sub(headers::link_len(frame))
}

#[cfg(test)]
mod tests;
