//! The flow sequence of a capture: frames to flow keys, keys to the microflow hash, hashes to dense
//! flow ids in the order of first appearance.
//!
//! Cost: 12 bytes a packet and about 40 a flow; the frames themselves are not kept.

use overbank_ports::memory::FrameStore;
use overbank_wire::{FlowKey, extract};
use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
pub struct Trace {
    ids: Vec<u32>,
    times_ns: Vec<u64>,
    hashes: Vec<u64>,
    /// By hash: 64 well-mixed bits stand for the flow, as they do in the signature cache.
    known: HashMap<u64, u32>,
    broken: u64,
}

impl Trace {
    /// Reads all frames of a capture; those of interface `i` come in on port `i + 1`.
    pub fn of(store: &FrameStore) -> Trace {
        let mut trace = Trace::default();
        for frame in store.iter() {
            trace.push(frame.data, frame.interface.saturating_add(1), frame.timestamp_ns);
        }
        trace
    }

    /// Appends a frame. One without a whole Ethernet header belongs to no flow and is only counted.
    pub fn push(&mut self, frame: &[u8], in_port: u32, timestamp_ns: u64) {
        let mut key = FlowKey::default();
        match extract(frame, in_port, &mut key) {
            Ok(_) => self.push_hash(key.microflow_hash(), timestamp_ns),
            Err(_) => self.broken += 1,
        }
    }

    pub fn push_hash(&mut self, hash: u64, timestamp_ns: u64) {
        let next = self.hashes.len() as u32;
        let id = *self.known.entry(hash).or_insert(next);
        if id == next {
            self.hashes.push(hash);
        }
        self.ids.push(id);
        self.times_ns.push(timestamp_ns);
    }

    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub fn times_ns(&self) -> &[u64] {
        &self.times_ns
    }

    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    pub fn broken(&self) -> u64 {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{FRAME_LEN, Traffic};

    #[test]
    fn frames_become_dense_ids_in_order_of_appearance() {
        let traffic = Traffic::default();
        let mut store = FrameStore::new();
        let mut frame = [0; FRAME_LEN];
        for (time, id) in [7, 7, 3, 9, 3, 7].into_iter().enumerate() {
            traffic.write_frame(id, &mut frame);
            store.push(&frame, 0, time as u64).unwrap();
        }
        // The same headers from another interface are another flow; four bytes are none.
        store.push(&frame, 1, 6).unwrap();
        store.push(&frame[..4], 0, 7).unwrap();
        let trace = Trace::of(&store);
        assert_eq!(trace.ids(), [0, 0, 1, 2, 1, 0, 3]);
        assert_eq!(trace.times_ns(), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((trace.hashes().len(), trace.broken()), (4, 1));
    }
}
