//! Each adapter beside a plain `BTreeMap`: random operations with tables of few buckets, while
//! entries are dropped at random; old snapshots, aborts, failures, panics, threads, processes.

mod live;
mod processes;
mod snapshots;
mod stores;
mod threads;

use overbank_aside::lookaside::Config;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::RngCore;

/// Sizes of tables for twins: one bucket, a few, and more than there are keys.
fn sizes() -> [Config; 3] {
    [1, 12, 1000].map(Config::entries)
}

/// A source of random choices.
struct Choices(Pcg32);

impl Choices {
    fn new(seed: u64) -> Self {
        Choices(Pcg32::new(seed, 1))
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0.next_u32() % bound
    }

    fn key(&mut self) -> u64 {
        u64::from(self.below(48))
    }

    fn value(&mut self) -> u64 {
        u64::from(self.0.next_u32())
    }
}
