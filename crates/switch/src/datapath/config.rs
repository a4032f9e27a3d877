//! Configuration and counters of a datapath.

use crate::drop::DropReason;
use crate::megaflow::{MegaflowCounters, SizeError};
use crate::ports::SwitchPort;
use overbank::cache::{self, Design};
use overbank::isa::Isa;

/// Most megaflows that 16-bit values in tier 1 can number.
pub const MEGAFLOWS_16_BIT: usize = 1 << 16;

/// Configuration of a datapath.
#[derive(Clone, Debug)]
pub struct Config {
    /// The signature cache; `None` sends every packet to tier 2.
    pub cache: Option<CacheConfig>,
    /// Capacity of the megaflow cache.
    pub megaflows: usize,
    pub ports: Vec<SwitchPort>,
    /// Seed of hash functions and random evictions.
    pub seed: u64,
}

/// Configuration of tier 1.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Geometry and policy.
    pub design: Design,
    pub entries: usize,
    /// Instruction set; `None` takes `OVERBANK_SIMD`, or else the best that the machine has.
    pub isa: Option<Isa>,
}

/// Why a datapath cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("signature cache: {0}")]
    Cache(cache::CacheError),
    #[error("megaflow cache: {0}")]
    Megaflows(SizeError),
}

/// Counters of a datapath since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub packets: u64,
    /// Lookups in tier 1, hits, and matches that verification refused.
    pub microflow: cache::Counters,
    /// Counters of tier 2.
    pub megaflow: MegaflowCounters,
    /// Packets that reached the classifier.
    pub classifier_lookups: u64,
    /// Signatures in tier 1 of stale megaflows; also among those that verification refused.
    pub stale_signatures: u64,
    /// Packets that controllers sent; neither they nor their drops count elsewhere.
    pub packet_outs: u64,
    /// Frames that left by no port and went to no controller, by [`DropReason::index`].
    pub drops: [u64; DropReason::COUNT],
}

impl Counters {
    /// Returns the share of tier-1 lookups that hit, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        ratio(self.microflow.hits, self.microflow.lookups)
    }

    /// Returns the mean number of subtables searched per lookup in tier 2.
    pub fn subtables_per_lookup(&self) -> f64 {
        ratio(self.megaflow.subtables_searched, self.megaflow.lookups)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
