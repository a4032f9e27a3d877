//! What a run of the simulator is like.

use crate::{Micros, Settings};

/// Chances of a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// A message, a request, a reply or a delivery is lost.
    pub loss: u32,
    /// It comes twice.
    pub twice: u32,
    /// It takes up to a second.
    pub late: u32,
    /// Crashes, pauses, cut links and outages of etcd or the log, in a virtual second.
    pub events: u32,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self { loss: 0, twice: 0, late: 0, events: 0 };
    /// Messages and batches are lost, late and repeated; no node fails.
    pub const LOSSY: Self = Self { loss: 30, twice: 50, late: 50, events: 0 };
    /// Everything goes wrong, often.
    pub const ROUGH: Self = Self { loss: 30, twice: 20, late: 20, events: 250 };
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Nodes.
    pub nodes: u8,
    /// Sessions that exist at a time.
    pub sessions: usize,
    /// Sessions that are established before the faults begin.
    pub filled: usize,
    /// Requests of clients in a quarter of a second.
    pub requests: u32,
    /// Time with faults.
    pub time_us: Micros,
    /// What goes wrong.
    pub faults: Faults,
    /// The cluster.
    pub settings: Settings,
}

impl Plan {
    /// A small cluster with all faults: some 10 ms of real time.
    pub fn small() -> Self {
        Self {
            nodes: 4,
            sessions: 24,
            filled: 0,
            requests: 4,
            time_us: 20_000_000,
            faults: Faults::ROUGH,
            settings: Settings {
                partitions: 4,
                node_bits: 2,
                partition_keys: 64,
                rest_us: 3_000_000,
                rebuild_from: 2,
                snapshot_every: 8,
                drain_rate: 200,
                suspend_us: 2_000_000,
                ..Settings::default()
            },
        }
    }

    /// A large cluster with all faults.
    pub fn large() -> Self {
        Self {
            nodes: 32,
            sessions: 100_000,
            filled: 90_000,
            requests: 500,
            time_us: 20_000_000,
            faults: Faults { events: 500, ..Faults::ROUGH },
            settings: Settings {
                partitions: 64,
                node_bits: 5,
                partition_keys: 4 << 10,
                rest_us: 3_000_000,
                snapshot_every: 256,
                drain_rate: 5_000,
                suspend_us: 2_000_000,
                ..Settings::default()
            },
        }
    }
}
