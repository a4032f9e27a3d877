//! Notes from node to node: packets of no session that came by the fabric.
//!
//! ```text
//!   Ethernet: to the node where they came in, from 02:4f:42:80:00:NN, type 0x88b5
//!   1 │ count │ count × (source 8, hash of the key 8)
//! ```
//!
//! NN is the node that dropped them. Notes are taken at the port of the fabric alone. A frame from
//! outside that crosses the fabric is IP and has another source: it is never a note.
//!
//! Panics: none, on any frame.

use crate::fabric::PREFIX;
use crate::next_hops::Mac;
use crate::share::Source;
use arrayvec::ArrayVec;
use overbank_cluster::NodeId;

/// Most packets of a note.
pub(crate) const PACKETS_MAX: usize = 32;

/// In place of a data frame's hops.
const MARK: u8 = 0x80;
/// For local experiments (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
const VERSION: u8 = 1;
const HEADER: usize = 16;
const PACKET: usize = 16;

/// A packet of no session: where it was from, and the hash of its key.
pub(crate) type Unknown = (Source, u64);

/// Writes a note; the first [`PACKETS_MAX`] packets are in it.
pub(crate) fn write(
    to: Mac,
    from: NodeId,
    packets: impl Iterator<Item = Unknown>,
) -> ArrayVec<u8, { HEADER + PACKETS_MAX * PACKET }> {
    let mut frame = ArrayVec::new();
    let [a, b, c] = PREFIX;
    frame.extend(to);
    frame.extend([a, b, c, MARK, 0, from.0]);
    frame.extend(ETHER_TYPE);
    frame.extend([VERSION, 0]);
    let mut count = 0;
    for (Source(source), key) in packets.take(PACKETS_MAX) {
        frame.extend(source.to_be_bytes());
        frame.extend(key.to_be_bytes());
        count += 1;
    }
    frame[HEADER - 1] = count;
    frame
}

/// Returns the node that sent a note and its packets; `None`: the frame is no note.
pub(crate) fn read(frame: &[u8]) -> Option<(NodeId, impl Iterator<Item = Unknown>)> {
    let (header, packets) = frame.split_first_chunk::<HEADER>()?;
    let [_, _, _, _, _, _, a, b, c, mark, zero, from, ethertype @ .., version, count] = header;
    let is_note = [*a, *b, *c] == PREFIX
        && [*mark, *zero] == [MARK, 0]
        && *ethertype == ETHER_TYPE
        && *version == VERSION;
    let word = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    let packets = packets.chunks_exact(PACKET).take(usize::from(*count));
    let packets = packets
        .filter_map(move |packet| Some((Source::from_bits(word(packet)?)?, word(&packet[8..])?)));
    is_note.then_some((NodeId(*from), packets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sources() -> impl Strategy<Value = Source> {
        let four = (0u64..1 << 24).prop_map(|bits| Source(crate::share::V4 | bits));
        prop_oneof![four, (0u64..1 << 48).prop_map(|bits| Source(crate::share::V6 | bits))]
    }

    proptest! {
        #[test]
        fn a_note_says_what_was_written(
            packets in prop::collection::vec((sources(), any::<u64>()), 0..40),
            node in any::<u8>(),
            padding in 0usize..60,
        ) {
            let frame = write([2; 6], NodeId(node), packets.iter().copied());
            let frame = [&frame[..], &vec![0; padding]].concat();
            let (from, read) = read(&frame).expect("a note");
            prop_assert_eq!(from, NodeId(node));
            let most = packets.len().min(PACKETS_MAX);
            prop_assert_eq!(read.collect::<Vec<_>>(), &packets[..most]);
            prop_assert!(crate::fabric::tag(frame[6..12].try_into().unwrap()).is_none());
        }

        #[test]
        fn other_frames_are_none(
            at in 6usize..15,
            flip in 1u8..,
            bytes in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let packet = (Source(crate::share::V4), 7);
            let mut frame = write([2; 6], NodeId(1), std::iter::once(packet)).to_vec();
            prop_assert!(read(&frame[..15]).is_none());
            frame[at] ^= flip;
            // But for the node's number.
            prop_assert_eq!(read(&frame).is_some(), at == 11);
            if let Some((_, read)) = read(&bytes) {
                prop_assert!(read.count() < bytes.len());
            }
            // A source that no packet has.
            let mut frame = write([2; 6], NodeId(1), std::iter::once(packet)).to_vec();
            frame[16] ^= flip;
            let sources = read(&frame).expect("a note").1;
            prop_assert!(sources.count() == usize::from(flip == 3));
        }
    }
}
