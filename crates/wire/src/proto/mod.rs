//! One file for each protocol family, all with the same structure: constants for lengths and
//! offsets, and a `parse` that reads the header at the start of a slice into the key.
//!
//! A header that is cut short or contradicts itself leaves its fields of the key zero, as in Open
//! vSwitch's `miniflow_extract`.

pub(crate) mod arp;
pub(crate) mod ethernet;
pub(crate) mod icmp;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod transport;

/// Most bytes after an IP packet in its frame. With more, Open vSwitch (and this crate) consider
/// the length field wrong and distrust the header.
pub(crate) const PADDING_MAX: usize = 65_535;

/// IP protocol numbers.
pub(crate) mod number {
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const AH: u8 = 51;
    pub(crate) const ICMP6: u8 = 58;
    pub(crate) const DEST_OPTIONS: u8 = 60;
    pub(crate) const SCTP: u8 = 132;
}

/// Returns the `N` bytes at `at`, if all are present.
#[inline(always)]
pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// Returns the big-endian 16-bit number at `at` of a header of known size.
#[inline(always)]
pub(crate) fn be16<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Returns the big-endian 32-bit number at `at` of a header of known size.
#[inline(always)]
pub(crate) fn be32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Returns the `M` bytes at `at` of a header of known size.
#[inline(always)]
pub(crate) fn array<const M: usize, const N: usize>(header: &[u8; N], at: usize) -> [u8; M] {
    let mut bytes = [0; M];
    bytes.copy_from_slice(&header[at..at + M]);
    bytes
}
