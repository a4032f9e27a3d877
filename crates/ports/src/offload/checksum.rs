//! Completes checksums that the kernel left to hardware.

use super::headers::{self, Headers, SCTP, TCP, UDP};

/// Offset of the checksum in the headers.
pub(super) const TCP_OFFSET: usize = 16;
pub(super) const UDP_OFFSET: usize = 6;

/// Returns the ones' complement sum of the 16-bit words of `bytes`, unfolded; a last odd byte is
/// padded with zero. It is in the machine's byte order, which matters only when it is stored.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    // 32-bit words into 64 bits: no carry is lost below 16 GiB, and the compiler vectorises the
    // loop.
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|w| u64::from(u32::from_ne_bytes(*w))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_ne_bytes(last));
    sum
}

/// Folds a sum to 16 bits, in network byte order.
pub(super) fn fold(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (sum as u16).to_ne_bytes()
}

/// Returns the complement of a folded sum. For UDP it is never zero, which would mean "none". For
/// TCP it may be zero, since analysers report the other form as a bug.
pub(super) fn finish(sum: u64, udp: bool) -> [u8; 2] {
    match fold(sum).map(|byte| !byte) {
        [0, 0] if udp => [0xff, 0xff],
        done => done,
    }
}

/// Returns the sum of the pseudo-header for `len` bytes of `proto`.
pub(super) fn pseudo(frame: &[u8], headers: &Headers, len: usize) -> u64 {
    let addresses = if headers.v6 { 8..40 } else { 12..20 };
    let ip = &frame[headers.l3..headers.l4];
    // Both numbers are below 2^32; as words in network byte order.
    let len = (len as u32).to_be_bytes();
    sum(&ip[addresses]) + sum(&len) + sum(&[0, headers.proto])
}

/// Completes the checksum of a frame; the kernel says that it covers everything from `start` on and
/// lies at `start + offset`. Returns `false` if that is outside the frame.
pub fn complete_checksum(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(covered) = frame.get(start..) else { return false };
    if offset == 8
        && covered.len() >= 12
        && headers::parse(frame).is_some_and(|h| h.proto == SCTP && h.l4 == start)
    {
        complete_sctp(&mut frame[start..]);
        return true;
    }
    if offset > covered.len() || covered.len() - offset < 2 {
        return false;
    }
    let done = finish(sum(covered), offset == UDP_OFFSET);
    frame[start + offset..start + offset + 2].copy_from_slice(&done);
    true
}

/// Completes the checksum of a frame without offload metadata; returns whether it changed the
/// frame. If the TCP or UDP field equals the sum of the pseudo-header and the checksum is wrong, a
/// local sender left the rest to hardware. The same holds for SCTP with a field of zero.
///
/// Cost for a complete frame: a sum over the addresses. A damaged frame is mistaken for a partial
/// one with a probability of 2⁻¹⁶; fragments are never changed.
pub fn complete_checksum_if_partial(frame: &mut [u8]) -> bool {
    let Some(h) = headers::parse(frame) else { return false };
    if h.fragment || h.odd {
        return false;
    }
    let available = h.end - h.l4;
    let (offset, len) = match h.proto {
        TCP if available >= 20 => (TCP_OFFSET, available),
        UDP if available >= 8 => {
            let len = usize::from(u16::from_be_bytes([frame[h.l4 + 4], frame[h.l4 + 5]]));
            if len < 8 || len > available {
                return false;
            }
            (UDP_OFFSET, len)
        }
        SCTP if available >= 12 => {
            let covered = &mut frame[h.l4..h.end];
            return covered[8..12] == [0; 4] && complete_sctp(covered);
        }
        _ => return false,
    };
    let at = h.l4 + offset;
    let pseudo = pseudo(frame, &h, len);
    if frame[at..at + 2] != fold(pseudo) {
        return false;
    }
    let covered = sum(&frame[h.l4..h.l4 + len]);
    if fold(pseudo + covered) == [0xff, 0xff] {
        return false;
    }
    frame[at..at + 2].copy_from_slice(&finish(covered, h.proto == UDP));
    true
}

/// Writes the CRC of a whole SCTP packet; returns whether it changed.
fn complete_sctp(packet: &mut [u8]) -> bool {
    let before: [u8; 4] = packet[8..12].try_into().expect("four bytes");
    packet[8..12].fill(0);
    let crc = crc32c(packet).to_le_bytes();
    packet[8..12].copy_from_slice(&crc);
    crc != before
}

/// Computes CRC-32C (Castagnoli, reflected) byte by byte: SCTP is rare.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let (mut crc, mut bit) = (i as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0u32, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

/// Writes the checksum of an IPv4 header.
pub(crate) fn complete_header_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let done = finish(sum(header), false);
    header[10..12].copy_from_slice(&done);
}
