//! Changes of a message in its frame.

use super::{HEADER_LEN, Op, Stamp, at};
use crate::checksum;
use crate::proto::transport::udp;

/// Gives the message of a datagram another operation and a stamp, and keeps the UDP checksum right;
/// one of 0, for none, stays 0. `udp` starts with the UDP header. Returns `None`, without a change,
/// if it is shorter than a message.
#[inline]
pub fn mark(udp: &mut [u8], op: Op, stamp: Stamp) -> Option<()> {
    let (head, payload) = udp.split_first_chunk_mut::<{ udp::HEADER_LEN }>()?;
    let header: &mut [u8; HEADER_LEN] = payload.first_chunk_mut()?;
    let number = |header: &[u8; HEADER_LEN]| {
        // The word of version and operation, and the stamp: seven words of 16 bits.
        let mut bytes = [0; 16];
        bytes[2..4].copy_from_slice(&header[at::OP - 1..=at::OP]);
        bytes[4..].copy_from_slice(&header[at::STAMP..]);
        u128::from_be_bytes(bytes)
    };
    let old = number(header);
    header[at::OP] = op as u8;
    header[at::STAMP..].copy_from_slice(&stamp.bytes());
    let stored = u16::from_be_bytes([head[udp::CHECKSUM], head[udp::CHECKSUM + 1]]);
    if stored != 0 {
        let sum = match checksum::update(stored, checksum::delta(old, number(header))) {
            0 => 0xffff,
            sum => sum,
        };
        head[udp::CHECKSUM..].copy_from_slice(&sum.to_be_bytes());
    }
    Some(())
}
