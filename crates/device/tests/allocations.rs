//! The device allocates for no packet: counted by the allocator itself.

use overbank_device::loaded::{Loaded, get, put};
use overbank_device::{DropReason, Sink};
use overbank_testing::allocations::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Default)]
struct Counts {
    /// By the port of ingress, and by the other one.
    answered: u64,
    forwarded: u64,
    dropped: u64,
}

impl Sink for Counts {
    fn output(&mut self, index: usize, port: u16, bytes: &[u8]) {
        self.output_parts(index, port, bytes, &[]);
    }

    fn output_parts(&mut self, _: usize, port: u16, _: &[u8], _: &[u8]) {
        match port {
            0 => self.answered += 1,
            _ => self.forwarded += 1,
        }
    }

    fn drop(&mut self, _: usize, _: DropReason) {
        self.dropped += 1;
    }

    fn to_control(&mut self, _: usize) {}
}

#[test]
fn no_packet_allocates() {
    let mut loaded = Loaded::new(64, 128).expect("memory");
    // Hits, misses, writes of cached keys and of others, no messages, sources that are new.
    let mut frames: Vec<Vec<u8>> = (0..80).map(get).collect();
    frames.extend((32..80).map(|key| put(key, b"value")));
    let mut garbage = get(1);
    garbage[43] ^= 1;
    frames.extend([garbage, vec![2; 60], vec![9; 13]]);
    let burst: Vec<&[u8]> = frames.iter().map(|frame| &frame[..]).collect();
    let mut counts = Counts::default();
    let before = allocations();
    for round in 0..100 {
        for burst in burst.chunks(128) {
            loaded.device.forward(0, burst, round * 7, &mut counts);
            loaded.plain.forward(0, burst, round * 7, &mut counts);
        }
        loaded.device.attend();
    }
    assert_eq!(allocations() - before, 0);
    // Half of the cached keys are never written.
    let Counts { answered, forwarded, dropped } = counts;
    assert!(
        answered >= 3200 && forwarded > 10_000 && dropped >= 200,
        "{answered} {forwarded} {dropped}"
    );
    assert!(loaded.device.counted().kv_writes >= 3200);
}
