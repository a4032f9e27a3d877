//! Reads any bytes as a capture: packets within their limits, or an error of one line.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use overbank_ports::{Capture, CaptureError, Limits};

const MEMORY_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let packets = match open(data) {
        Ok(capture) => read(capture),
        Err(error) => return check(&error),
    };
    let Ok(capture) = open(data) else { panic!("opened once, refused the second time") };
    match capture.into_ethernet(&Limits { memory_bytes_max: MEMORY_BYTES_MAX }) {
        Ok(store) => {
            assert_eq!(Some(store.len() as u64 + store.skipped()), packets);
            assert!(store.memory_bytes() <= MEMORY_BYTES_MAX);
            assert!(store.iter().all(|frame| frame.data.len() <= 262_144));
        }
        Err(error) => check(&error),
    }
});

fn open(data: &[u8]) -> Result<Capture, CaptureError> {
    Capture::from_reader(Cursor::new(data.to_vec()), "input")
}

/// Returns the number of packets, or `None` after an error.
fn read(mut capture: Capture) -> Option<u64> {
    let mut packets = 0;
    loop {
        match capture.next_packet() {
            Ok(Some(packet)) => {
                assert!(packet.data.len() <= 262_144);
                packets += 1;
            }
            Ok(None) => return Some(packets),
            Err(error) => {
                check(&error);
                return None;
            }
        }
    }
}

fn check(error: &CaptureError) {
    let message = error.to_string();
    assert!(!message.is_empty() && message.lines().count() == 1, "{message:?}");
}
