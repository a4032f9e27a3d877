//! What a datapath did with a chunk of frames: a log that is cheap to write while the clock runs,
//! and the digest that is made of it afterwards.
//!
//! An output of the frame as it came is 16 bytes of log; an edited frame is copied, as a
//! transmission would copy it.

use super::record::PortTally;
use overbank_switch::datapath::{Frame, Sink};
use overbank_switch::drop::DropReason;
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[derive(Clone, Copy)]
enum Event {
    Output { port: u32, len: u32, edited: bool },
    Drop(DropReason),
}

#[derive(Default)]
pub struct TxLog {
    events: Vec<(u32, Event)>,
    edited: Vec<u8>,
}

impl Sink for TxLog {
    #[inline]
    fn output(&mut self, index: usize, port: u32, frame: &[u8], edited: bool) {
        self.events.push((index as u32, Event::Output { port, len: frame.len() as u32, edited }));
        if edited {
            self.edited.extend_from_slice(frame);
        }
    }

    #[inline]
    fn drop(&mut self, index: usize, reason: DropReason) {
        self.events.push((index as u32, Event::Drop(reason)));
    }
}

impl TxLog {
    /// Empties the log and keeps its memory.
    pub fn clear(&mut self) {
        self.events.clear();
        self.edited.clear();
    }

    /// Returns every output in order: index of the frame in the chunk, port, bytes.
    pub fn outputs<'a>(
        &'a self,
        frames: &'a [Frame<'a>],
    ) -> impl Iterator<Item = (usize, u32, &'a [u8])> {
        let mut at = 0;
        self.events.iter().filter_map(move |&(index, event)| match event {
            Event::Output { port, len, edited } => {
                let bytes = if edited {
                    at += len as usize;
                    &self.edited[at - len as usize..at]
                } else {
                    frames[index as usize].bytes
                };
                Some((index as usize, port, bytes))
            }
            Event::Drop(_) => None,
        })
    }

    /// Returns the digest of (packet index, verdict, output bytes) over the chunk whose first
    /// packet has number `first`. The same on every machine.
    pub fn digest(&self, frames: &[Frame<'_>], first: u64) -> u64 {
        let mut outputs = self.outputs(frames);
        self.events.iter().fold(first, |digest, &(index, event)| {
            let verdict = match event {
                Event::Output { port, .. } => u64::from(port),
                Event::Drop(reason) => 1 << 32 | reason.index() as u64,
            };
            let seed = digest.rotate_left(23)
                ^ (first + u64::from(index)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ verdict.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
            let bytes = match event {
                Event::Output { .. } => outputs.next().map_or(&[][..], |(_, _, bytes)| bytes),
                Event::Drop(_) => &[],
            };
            xxh3_64_with_seed(bytes, seed)
        })
    }

    /// Adds the outputs to per-port totals.
    pub fn tally(&self, ports: &mut BTreeMap<u32, PortTally>) {
        let outputs = self.events.iter().filter_map(|(_, event)| match event {
            Event::Output { port, len, .. } => Some((*port, u64::from(*len))),
            Event::Drop(_) => None,
        });
        for (port, bytes) in outputs {
            let tally = ports.entry(port).or_insert(PortTally { port, packets: 0, bytes: 0 });
            tally.packets += 1;
            tally.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(events: &[(usize, u32, &[u8], bool)]) -> TxLog {
        let mut log = TxLog::default();
        for &(index, port, bytes, edited) in events {
            log.output(index, port, bytes, edited);
        }
        log
    }

    #[test]
    fn the_digest_sees_index_port_reason_and_bytes() {
        let frames = [Frame { bytes: b"one", in_port: 1 }, Frame { bytes: b"two", in_port: 1 }];
        let base = log(&[(0, 1, b"one", false), (1, 2, b"two", false)]).digest(&frames, 0);
        let others = [
            log(&[(0, 2, b"one", false), (1, 1, b"two", false)]),
            log(&[(0, 1, b"one", false), (1, 2, b"tvo", true)]),
            log(&[(0, 1, b"one", false)]),
            log(&[(0, 1, b"one", false), (0, 2, b"two", true)]),
        ];
        for other in &others {
            assert_ne!(other.digest(&frames, 0), base);
        }
        // Whether an equal frame was copied does not matter.
        let copied = log(&[(0, 1, b"one", true), (1, 2, b"two", false)]);
        assert_eq!(copied.digest(&frames, 0), base);
        assert_ne!(copied.digest(&frames, 1), base);

        let mut dropped = TxLog::default();
        dropped.drop(0, DropReason::NoRule);
        let mut other = TxLog::default();
        other.drop(0, DropReason::RuleDrop);
        assert_ne!(dropped.digest(&frames, 0), other.digest(&frames, 0));
    }
}
