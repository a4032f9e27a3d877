//! Passes any frames through the key-value cache, between reads of its keys. Each frame has one
//! fate, and no read is answered with a value that is not of its key.
//!
//! Input: frames, each with a byte for its port and two for its length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overbank_device::loaded::{Loaded, get};
use overbank_device::{DropReason, Sink};
use std::cell::RefCell;

const KEYS: usize = 8;
const BYTES: usize = 48;

/// Counts what becomes of the frames of a burst, and keeps the last one that was sent.
#[derive(Default)]
struct Fates {
    sent: Vec<u8>,
    /// By frame.
    outputs: [u32; 32],
    ends: [u32; 32],
}

impl Sink for Fates {
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        self.output_parts(index, port, bytes, &[]);
    }

    fn output_parts(&mut self, index: usize, port: u16, head: &[u8], rest: &[u8]) {
        assert!(port < 2);
        self.outputs[index] += 1;
        self.sent = [head, rest].concat();
    }

    fn drop(&mut self, index: usize, _: DropReason) {
        self.ends[index] += 1;
    }

    fn to_control(&mut self, index: usize) {
        self.ends[index] += 1;
    }
}

thread_local! {
    /// Kept: to make one takes longer than to use it. Writes make keys invalid, one after another;
    /// then another one takes its place.
    static LOADED: RefCell<Option<Loaded>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    LOADED.with_borrow_mut(|loaded| {
        let device = loaded.get_or_insert_with(|| Loaded::new(KEYS, BYTES).expect("memory"));
        let mut rest = data;
        while let [port, high, low, bytes @ ..] = rest {
            let len = usize::from(u16::from_be_bytes([*high, *low])).min(bytes.len());
            let (frame, more) = bytes.split_at(len);
            rest = more;
            let mut fates = Fates::default();
            device.device.forward(u16::from(port % 2), &[frame; 2], 1, &mut fates);
            for nth in 0..2 {
                assert_eq!(fates.ends[nth] + fates.outputs[nth].min(1), 1, "{frame:02x?}");
            }
        }
        let mut invalid = 0;
        for key in 0..KEYS as u128 {
            let mut fates = Fates::default();
            device.device.forward(0, &[&get(key)], 1, &mut fates);
            let is_answer = fates.sent.get(45) == Some(&6);
            if is_answer {
                assert_eq!(fates.sent[fates.sent.len() - BYTES..], [key as u8; BYTES]);
            }
            invalid += usize::from(!is_answer);
        }
        if invalid > KEYS / 2 {
            *loaded = None;
        }
    });
});
